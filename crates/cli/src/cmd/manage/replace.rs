//! Another device for a member of a mirror that is lost: makes the target, and takes the lost member out of the map.

use std::path::{Path, PathBuf};

use clap::Args;
use disk::Kind;
use serde::Serialize;
use types::{Size, TargetId};
use wire::map::{ClusterMap, MemberState, Mirror, Target};
use wire::mgmt::{PlanRemoval, RemovalKind, Remove};

use super::{Consent, Place};
use crate::cmd::mkfs;
use crate::exit::{Exit, Failure};
use crate::shell;

#[derive(Debug, Args)]
pub(super) struct Replace {
    /// The mirror's name, such as stria-OST0003, or the id of the member that is lost.
    #[arg(value_name = "NAME|ID")]
    name: String,
    /// The new device or file on this host. A device that is not blank is refused.
    #[arg(long, value_name = "DEVICE")]
    device: PathBuf,
    /// Make a sparse file of this size, where there is none yet.
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    place: Place,
}

/// The JSON output.
#[derive(Debug, Serialize)]
struct Report {
    mirror: String,
    /// Id of the member that is replaced.
    target: u32,
    /// The host of the lost member.
    host: String,
    /// The host of the member that has the content.
    from: String,
    device: PathBuf,
    device_bytes: u64,
    replaced: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// Of the new target.
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
}

impl Replace {
    pub fn run(self) -> anyhow::Result<Exit> {
        let what = format!("replace {}", self.name);
        let management = self.place.manage()?;
        let map = &management.map;
        let (mirror, lost) =
            lost_member(map, &self.name).map_err(|(why, next)| Failure::unusable(&what, why, next))?;
        let host = |t: &Target| map.node(t.node).map_or_else(|| "?".into(), |n| n.name.clone());
        let from = map.target(mirror.primary).expect("a mirror's primary is in its map");
        // 1. Everything that may refuse, before anything is written.
        if let Some((dir, cluster)) = self.place.pair() {
            let images = [0, 1].map(|server| cluster.member_image(dir, mirror.is_mdt, lost.index, server));
            let absolute = |path: &Path| std::path::absolute(path);
            if !images.iter().any(|image| absolute(image).ok() == absolute(&self.device).ok()) {
                let next =
                    format!("give {} or {}, whichever is lost", images[0].display(), images[1].display());
                let why = format!(
                    "a pair of `stria up` knows its images by name, and {} is none",
                    self.device.display()
                );
                return Err(Failure::unusable(&what, why, next).into());
            }
        }
        let fsname = map.fs(mirror.fs).map_or("?", |fs| &fs.name);
        let kind = if mirror.is_mdt { Kind::Mdt } else { Kind::Ost };
        let make = |dry_run| mkfs::member(kind, (fsname, lost.index), &self.device, self.size, dry_run);
        let would_make = make(true)?;
        if would_make.bytes < from.bytes_total {
            let why = format!(
                "the device has {} bytes, and the other member has {}",
                would_make.bytes, from.bytes_total
            );
            return Err(Failure::unusable(&what, why, "give a device of at least that size").into());
        }
        let (removal, name, force) = (RemovalKind::Target, lost.id.to_string(), false);
        let plan = management.ask(&PlanRemoval { kind: removal, name: name.clone(), force })?;
        if !plan.refused.is_empty() {
            let (why, next) =
                plan.refused.split_once("; ").unwrap_or((&plan.refused, "see `stria mirror status`"));
            return Err(Failure::failed(&what, why, next).into());
        }
        let mut report = Report {
            mirror: mgmt::mirror_name(map, mirror),
            target: lost.id.0,
            host: host(lost),
            from: host(from),
            device: self.device.clone(),
            device_bytes: would_make.bytes,
            replaced: false,
            token: Some(plan.token.clone()),
            uuid: None,
        };
        // 2. A wrong token is found before the device is written.
        if let Some(token) = &self.consent.confirm {
            if *token != plan.token {
                let why = format!("the token {token:?} is not for the present state of the cluster");
                return Err(Failure::failed(&what, why, "look again with --dry-run").into());
            }
            let made = make(false)?;
            let done = management.ask(&Remove { kind: removal, name, force, token: token.clone() });
            done.map_err(|e| {
                let why = format!("the device is made, and target {} is still in the map: {e:#}", lost.id);
                let next = format!(
                    "take it out by `stria target remove {}`, then start the server of the new device",
                    lost.id
                );
                Failure::failed(&what, why, next)
            })?;
            (report.replaced, report.token, report.uuid) = (true, None, Some(made.uuid));
        }
        match self.place.json {
            true => outln!("{}", serde_json::to_string_pretty(&report)?),
            false => self.tell(&report, mirror.is_mdt, &self.place.options(&management)),
        }
        Ok(self.consent.exit(report.replaced))
    }

    fn tell(&self, report: &Report, is_mdt: bool, place: &str) {
        let Report { mirror, target, host, from, .. } = report;
        let (verb, size) =
            (if report.replaced { "made" } else { "would make" }, types::size::human(report.device_bytes));
        outln!("{verb} a member of {mirror} on {} ({size})", self.device.display());
        let verb = if report.replaced { "removed" } else { "would remove" };
        outln!(
            "{verb} target {target} on {host}: the second copy; no file loses bytes, which are all on {from}"
        );
        let key = if is_mdt {
            "as `device` with `second = true` into mds.toml"
        } else {
            "under `second_devices` into oss.toml"
        };
        match (&report.token, self.place.pair()) {
            (None, Some((dir, _))) => {
                let dir = shell::path(dir);
                outln!(
                    "next: `stria down --dir {dir}`, then `stria up --dir {dir}`: the other server fills it"
                );
            }
            (None, None) => {
                outln!("next: write it {key} of this host, and start that server");
                outln!("  it is filled then: stria mirror status {mirror} {place}");
            }
            (Some(token), _) => {
                let size = self.size.map(|size| format!("--size {} ", size.0)).unwrap_or_default();
                let device = shell::path(&self.device);
                outln!("nothing was changed; to do it:");
                outln!("  stria target replace {target} --device {device} {size}--confirm {token} {place}");
            }
        }
    }
}

/// The member that is lost, by its id or as the only one of its mirror that is out. An error has the reason and the next step.
fn lost_member<'m>(
    map: &'m ClusterMap,
    name: &str,
) -> Result<(&'m Mirror, &'m Target), (String, &'static str)> {
    let list = "`stria mirror list` shows names, ids and states";
    let id = name.parse().ok().map(TargetId);
    let by_name = |m: &&Mirror| mgmt::mirror_name(map, m) == name;
    let by_id = |m: &&Mirror| id.is_some_and(|id| m.has(id));
    let Some(mirror) = map.mirrors.iter().find(by_name).or_else(|| map.mirrors.iter().find(by_id)) else {
        return Err(("no mirror has this name, and no member this id".into(), list));
    };
    if mirror.members.len() < 2 {
        let next =
            "make one with `stria mkfs ... --index`, and write it under `second_devices` of its server";
        return Err(("it has one member only, so there is none to replace".into(), next));
    }
    let is_meant = |target| match id.filter(|_| !by_name(&mirror)) {
        Some(id) => target == id,
        None => true,
    };
    let meant = mirror.members.iter().filter(|m| is_meant(m.target) && m.state != MemberState::InSync);
    let targets: Vec<&Target> = meant.filter_map(|m| map.target(m.target)).collect();
    match targets[..] {
        [only] => Ok((mirror, only)),
        [] => {
            let next = "stop the server of the lost device first, and wait until the other member has declared it out";
            Err(("it is in sync".into(), next))
        }
        _ => Err(("both of its members are out".into(), "start the server of the one that has the content")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::mirror::tests::doubled;

    #[test]
    fn the_member_that_is_out_is_replaced_by_name_or_id() {
        let map = doubled(MemberState::Out);
        for name in ["home-OST0000", "4"] {
            let (mirror, lost) = lost_member(&map, name).expect(name);
            assert_eq!((mgmt::mirror_name(&map, mirror), lost.id), ("home-OST0000".into(), TargetId(4)));
        }
        for (name, want) in [
            ("2", "it is in sync"),
            ("home-MDT0000", "it is in sync"),
            ("home-OST0007", "no mirror has this name"),
            ("77", "no mirror has this name"),
        ] {
            let (why, _) = lost_member(&map, name).expect_err(name);
            assert!(why.contains(want), "{name}: {why}");
        }
        let mut alone = map.clone();
        alone.mirrors[1].members.truncate(1);
        assert!(lost_member(&alone, "home-OST0000").expect_err("alone").0.contains("one member only"));
        let mut lost = map;
        lost.mirrors[1].members[0].state = MemberState::Out;
        assert!(lost_member(&lost, "home-OST0000").expect_err("none").0.contains("both of its members"));
    }
}
