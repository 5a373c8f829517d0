//! A new OST on this host, or another member for the mirror of one: makes its device, and tells the line of the configuration.

use std::path::PathBuf;

use clap::Args;
use disk::Kind;
use serde::Serialize;
use types::Size;
use wire::map::{ClusterMap, Mirror};

use super::Place;
use crate::cmd::mkfs;
use crate::exit::{Exit, Failure};

#[derive(Debug, Args)]
pub(super) struct Add {
    /// The new device or file on this host. A device that is not blank is refused.
    #[arg(long, value_name = "DEVICE")]
    device: PathBuf,
    /// The file system that it belongs to [default: the only one].
    #[arg(long, value_name = "NAME")]
    fsname: Option<String>,
    /// Make a sparse file of this size, where there is none yet.
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Make it the second member of this OST, which has no other one. Its host is another one than the first member's.
    #[arg(long, value_name = "NAME", conflicts_with = "fsname")]
    to_mirror: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// The JSON output.
#[derive(Debug, Serialize)]
struct Report {
    fsname: String,
    device: PathBuf,
    device_bytes: u64,
    /// Of the new target.
    uuid: String,
    /// The mirror whose second member it becomes.
    #[serde(skip_serializing_if = "Option::is_none")]
    mirror: Option<String>,
    /// The key of the server's configuration that gets the device.
    key: &'static str,
}

impl Add {
    pub fn run(self) -> anyhow::Result<Exit> {
        let what = format!("target add {}", self.device.display());
        let refuse = |(why, next): (String, &str)| Failure::unusable(&what, why, next);
        let management = self.place.manage()?;
        let map = &management.map;
        let mirror = match &self.to_mirror {
            Some(name) => Some(single(map, name).map_err(refuse)?),
            None => None,
        };
        let fsname = match mirror {
            Some(mirror) => map.fs(mirror.fs).map_or_else(|| "?".into(), |fs| fs.name.clone()),
            None => fs_name(map, self.fsname.as_deref()).map_err(refuse)?,
        };
        let first = mirror.and_then(|mirror| map.target(mirror.primary));
        let index = first.map(|first| first.index);
        let make = |dry_run| mkfs::target(Kind::Ost, (&fsname, index), &self.device, self.size, dry_run);
        // Everything that may refuse, before anything is written.
        let would_make = make(true)?;
        if first.is_some_and(|first| would_make.bytes < first.bytes_total) {
            let why = format!("the device has {} bytes, fewer than the first member's", would_make.bytes);
            return Err(refuse((why, "give a device of at least that size")).into());
        }
        let made = make(false)?;
        let report = Report {
            fsname,
            // It goes into a configuration file, whose server has another working directory.
            device: std::path::absolute(&self.device)?,
            device_bytes: made.bytes,
            uuid: made.uuid,
            mirror: mirror.map(|mirror| mgmt::mirror_name(map, mirror)),
            key: if mirror.is_some() { "second_devices" } else { "devices" },
        };
        match self.place.json {
            true => outln!("{}", serde_json::to_string_pretty(&report)?),
            false => out!("{}", report.text(&self.place.options(&management))),
        }
        Ok(Exit::Done)
    }
}

impl Report {
    fn text(&self, place: &str) -> String {
        let (device, size) = (self.device.display(), types::size::human(self.device_bytes));
        let what = match &self.mirror {
            Some(mirror) => format!("a second member of {mirror}"),
            None => format!("an OST of {}", self.fsname),
        };
        let then = match &self.mirror {
            Some(mirror) => format!("the first member fills it then: stria mirror status {mirror} {place}"),
            None => format!("it registers as a new OST then: stria status {place}"),
        };
        format!(
            "made {what} on {device} ({size})\nnext: add \"{device}\" to the list `{}` in oss.toml of this host, and start that server anew\n  {then}\n",
            self.key
        )
    }
}

/// An OST without a second member. An error has the reason and the next step.
fn single<'m>(map: &'m ClusterMap, name: &str) -> Result<&'m Mirror, (String, &'static str)> {
    let by_name = |m: &&Mirror| !m.is_mdt && mgmt::mirror_name(map, m) == name;
    match map.mirrors.iter().find(by_name) {
        None => Err((format!("no OST has the name {name}"), "`stria status` shows their names")),
        Some(mirror) if mirror.members.len() > 1 => {
            let next = "for a member that is lost, use `stria target replace`";
            Err((format!("{name} has two members already"), next))
        }
        Some(mirror) => Ok(mirror),
    }
}

fn fs_name(map: &ClusterMap, given: Option<&str>) -> Result<String, (String, &'static str)> {
    match (given, map.file_systems.as_slice()) {
        (Some(name), _) if map.fs_named(name).is_some() => Ok(name.to_owned()),
        (None, [only]) => Ok(only.name.clone()),
        (Some(name), _) => Err((
            format!("there is no file system {name}"),
            "`stria fs list` shows them; `stria fs create` makes one",
        )),
        (None, all) => Err((
            format!("there are {} file systems", all.len()),
            "give --fsname; `stria fs list` shows their names",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::mirror::tests::doubled;
    use wire::map::MemberState;

    #[test]
    fn a_new_ost_belongs_to_a_file_system_or_doubles_a_single_ost() {
        let mut map = doubled(MemberState::InSync);
        assert_eq!(fs_name(&map, None), Ok("home".into()));
        assert_eq!(fs_name(&map, Some("home")), Ok("home".into()));
        assert!(fs_name(&map, Some("away")).unwrap_err().0.contains("no file system away"));
        assert!(single(&map, "home-OST0000").unwrap_err().0.contains("two members already"));
        assert!(single(&map, "home-MDT0000").unwrap_err().0.contains("no OST"));
        map.mirrors.iter_mut().for_each(|mirror| mirror.members.truncate(1));
        assert!(single(&map, "home-OST0000").is_ok());
        map.file_systems.push(map.file_systems[0].clone());
        assert!(fs_name(&map, None).unwrap_err().0.contains("2 file systems"));
    }

    #[test]
    fn the_line_of_the_configuration_is_told() {
        let mut report = Report {
            fsname: "home".into(),
            device: "/dev/sdx".into(),
            device_bytes: 1 << 40,
            uuid: String::new(),
            mirror: None,
            key: "devices",
        };
        let text = report.text("--mgs a");
        assert!(text.contains("made an OST of home on /dev/sdx (1.0T)"), "{text}");
        assert!(text.contains("add \"/dev/sdx\" to the list `devices` in oss.toml"), "{text}");
        report.mirror = Some("home-OST0000".into());
        assert!(report.text("--mgs a").contains("stria mirror status home-OST0000 --mgs a"));
    }
}
