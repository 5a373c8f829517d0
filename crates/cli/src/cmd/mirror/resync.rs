//! `stria mirror resync`: has the follower of a mirror give its content up and be filled anew, once a token confirms it.

use bench::wrap::wrap;
use clap::Args;
use serde::Serialize;
use types::{MirrorId, TargetId};
use wire::pair::{Resync, ResyncReply};

use super::{Line, Named, find, lines};
use crate::cmd::manage::Consent;
use crate::exit::{Exit, Failure};
use crate::reach;
use crate::shell;

#[derive(Debug, Args)]
pub struct Resyncing {
    #[command(flatten)]
    named: Named,
    /// Go on though the primary has damage that it cannot repair. The other member's pages there, which may be sound, are lost then.
    #[arg(long)]
    lose_damaged: bool,
    #[command(flatten)]
    consent: Consent,
}

/// The JSON output.
#[derive(Debug, Serialize)]
struct Report {
    mirror: String,
    id: u32,
    /// The member that is filled, and its host.
    target: u32,
    host: String,
    /// The host of the only copy meanwhile.
    primary_host: String,
    /// Damaged places of the primary, which would be lost at both members.
    lost: u64,
    /// The first of them.
    places: Vec<Place>,
    begun: bool,
    token: String,
}

#[derive(Debug, Serialize)]
struct Place {
    path: String,
    object: String,
    offset: u64,
}

impl Resyncing {
    pub fn run(self) -> anyhow::Result<Exit> {
        let place = &self.named.place;
        let management = place.manage()?;
        let line: Line = find(&lines(&management.map, None), &self.named.name)?.clone();
        let what = || format!("resync {}", line.name);
        let next = format!("`stria mirror status {}` tells more", shell::word(&line.name));
        let (Some(from), Some(to)) = (line.primary_member(), line.other_member()) else {
            return Err(Failure::unusable(what(), "it has no second member", next).into());
        };
        if !line.is_whole() {
            let why = "its members are not in sync; a member that is out is resynced by itself once it reaches the primary";
            return Err(Failure::failed(what(), why, next).into());
        }
        let (mirror, target) = (MirrorId(line.id), TargetId(to.target));
        let fs = management.map.target(target).map_or_else(Default::default, |t| t.fs);
        let (token, loses_damaged) = (self.consent.confirm.clone().unwrap_or_default(), self.lose_damaged);
        let request = Resync { mirror, token, loses_damaged };
        let asked = reach::ask(&*management.fabric.peer(target)?, fs, target, &request);
        let ResyncReply { token, begun, lost, places } =
            asked.map_err(|e| Failure::failed(what(), format!("{e:#}"), &next))?;
        let reaches = management.file_systems();
        let reach = reaches.iter().find(|reach| reach.targets().iter().any(|t| t.id == target));
        let path = |fid| reach.map_or_else(String::new, |reach| reach.path_of(fid));
        let place_of = |d: &wire::pair::Difference| Place {
            path: path(d.object.fid),
            object: d.object.to_string(),
            offset: d.offset,
        };
        let report = Report {
            mirror: line.name.clone(),
            id: line.id,
            target: to.target,
            host: to.host.clone(),
            primary_host: from.host.clone(),
            lost,
            places: places.iter().map(place_of).collect(),
            begun,
            token,
        };
        let options = place.options(&management);
        match place.json {
            true => outln!("{}", serde_json::to_string_pretty(&report)?),
            false => report.text(&options).iter().for_each(|text| outln!("{}", wrap(text, 4))),
        }
        Ok(self.consent.exit(begun))
    }
}

impl Report {
    fn text(&self, options: &str) -> Vec<String> {
        let Report { mirror, id, target, host, primary_host, lost, places, begun, token } = self;
        if *begun {
            let see = format!("`stria mirror status {mirror}` shows how far it is");
            return vec![format!("target {target} on {host} is filled anew by {primary_host}; {see}")];
        }
        let mut text = vec![
            format!(
                "target {target} on {host} would give up its content, and take all of it from {primary_host}"
            ),
            format!(
                "at risk: until that has ended {mirror} has one copy, on {primary_host}; if that host is lost meanwhile, the file system waits \
                 for it, and what its medium loses is lost"
            ),
        ];
        let option = if *lost > 0 { "--lose-damaged " } else { "" };
        if *lost > 0 {
            text.push(format!(
                "would be lost: {lost} places that {primary_host} cannot read, and {host} may have"
            ));
            let told = |Place { path, object, offset }: &Place| {
                format!("  {path}: object {object}, offset {offset}")
            };
            text.extend(places.iter().map(told));
        }
        text.push("nothing was changed; to do it:".into());
        text.push(format!("  stria mirror resync {id} {option}--confirm {token} {options}"));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_risk_and_the_command_are_told() {
        let mut report = Report {
            mirror: "home-OST0000".into(),
            id: 2,
            target: 4,
            host: "oss2".into(),
            primary_host: "oss1".into(),
            lost: 0,
            places: vec![],
            begun: false,
            token: "0badcafe".into(),
        };
        let text = report.text("--mgs 10.0.0.5@tcp");
        assert!(text[1].contains("one copy, on oss1"), "{text:?}");
        assert_eq!(text[3], "  stria mirror resync 2 --confirm 0badcafe --mgs 10.0.0.5@tcp");
        report.lost = 2;
        report.places = vec![Place { path: "/a".into(), object: "0x20".into(), offset: 4096 }];
        let text = report.text("--mgs 10.0.0.5@tcp");
        assert!(
            text[2].starts_with("would be lost: 2 places that oss1 cannot read, and oss2 may have"),
            "{text:?}"
        );
        assert_eq!(text[3], "  /a: object 0x20, offset 4096");
        assert!(text[5].contains("resync 2 --lose-damaged --confirm 0badcafe"), "{text:?}");
        report.begun = true;
        assert!(report.text("")[0].contains("target 4 on oss2 is filled anew by oss1"));
    }
}
