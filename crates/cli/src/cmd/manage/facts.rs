//! `stria target show`: what superblocks tell of their targets, for `stria mgs rebuild`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use disk::volume::VolumeError;
use disk::{Disk, FileDisk, Kind, Label, Volume};
use mgmt::rebuild::{Facts, Noted};
use mirror::MemberState as State;
use serde::{Deserialize, Serialize};
use types::{Epoch, MirrorId, TargetId, Uuid};
use wire::map::MemberState;

use crate::exit::{Exit, Failure};

/// Print what the superblocks of devices tell of their targets, as JSON for `stria mgs rebuild`. Nothing is written. Servers may have the devices in
/// use: without a management service no epoch changes.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria target show /dev/nvme1n1 /dev/nvme2n1 > oss1.json")]
pub struct Show {
    /// The devices or image files.
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<PathBuf>,
}

/// Looks at a superblock that is written meanwhile.
const TORN_MAX: u32 = 10;
const TORN_WAIT: Duration = Duration::from_millis(50);

/// One target in a file of facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    device: String,
    is_mdt: bool,
    fsname: String,
    fs_uuid: String,
    uuid: String,
    target: u32,
    index: u32,
    mirror: u32,
    epoch: u32,
    bytes_total: u64,
    /// Another process, such as its server, has it open.
    #[serde(default)]
    in_use: bool,
    /// The newest map of its mirror of two that the member knows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    note: Option<NoteLine>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoteLine {
    epoch: u32,
    primary: u8,
    /// As in the map: 0 out, 1 filling, 2 in sync.
    states: [u8; 2],
    /// It has all that it ever acknowledged.
    is_whole: bool,
    /// It has a part of the other member's content.
    is_filling: bool,
}

impl Show {
    pub fn run(self) -> anyhow::Result<Exit> {
        let lines = self.devices.iter().map(|d| look(d)).collect::<anyhow::Result<Vec<Line>>>()?;
        outln!("{}", serde_json::to_string_pretty(&lines)?);
        Ok(Exit::Done)
    }
}

/// Reads one superblock.
pub fn look(device: &Path) -> anyhow::Result<Line> {
    let failed = |why: String| Failure::unusable(device.display(), why, "give the device of an MDT or OST");
    let (disk, in_use) = match FileDisk::open_read_only(device) {
        Err(e) if e.kind() == ErrorKind::ResourceBusy => (FileDisk::open_unclaimed(device), true),
        opened => (opened, false),
    };
    let disk = disk.map_err(|e| failed(e.to_string()))?;
    let (label, note) = read(&disk, in_use).map_err(|e| failed(e.to_string()))?;
    let noted = pair::noted_standing(&note).map_err(|e| failed(format!("the note of its member: {e}")))?;
    let number = |state| match state {
        State::Out => MemberState::Out,
        State::Resyncing => MemberState::Filling,
        State::InSync => MemberState::InSync,
    };
    Ok(Line {
        device: device.display().to_string(),
        is_mdt: label.kind == Kind::Mdt,
        fsname: label.fs_name,
        fs_uuid: label.fs_uuid.to_string(),
        uuid: label.uuid.to_string(),
        target: label.target.0,
        index: label.index,
        mirror: label.mirror.0,
        epoch: label.epoch.0,
        bytes_total: disk.size(),
        in_use,
        note: noted.map(|standing| NoteLine {
            epoch: standing.map.epoch.0,
            primary: standing.map.primary.index() as u8,
            states: standing.map.states.map(|state| number(state) as u8),
            is_whole: standing.is_whole,
            is_filling: standing.is_filling,
        }),
    })
}

/// A server that has the device open may write one copy of the superblock at that moment, and then the other one.
fn read(disk: &dyn Disk, in_use: bool) -> Result<(Label, Vec<u8>), VolumeError> {
    for _ in 0..TORN_MAX {
        match Volume::identity_on(disk) {
            Err(_) if in_use => std::thread::sleep(TORN_WAIT),
            found => return found,
        }
    }
    Volume::identity_on(disk)
}

impl Line {
    pub fn facts(self) -> Result<Facts, String> {
        let bad = |what: &str| format!("{}: its {what} is not as `stria target show` prints it", self.device);
        let uuid = |text: &str| uuid_of(text).ok_or_else(|| bad("uuid"));
        let state = |n: u8| match n {
            0 => Ok(MemberState::Out),
            1 => Ok(MemberState::Filling),
            2 => Ok(MemberState::InSync),
            _ => Err(bad("note")),
        };
        let noted = |note: &NoteLine| {
            let states = [state(note.states[0])?, state(note.states[1])?];
            match note.primary < 2 {
                true => {
                    let NoteLine { primary, is_whole, is_filling, .. } = *note;
                    Ok(Noted { epoch: Epoch(note.epoch), primary, states, is_whole, is_filling })
                }
                false => Err(bad("note")),
            }
        };
        Ok(Facts {
            is_mdt: self.is_mdt,
            fs_uuid: uuid(&self.fs_uuid)?,
            uuid: uuid(&self.uuid)?,
            target: TargetId(self.target),
            index: self.index,
            mirror: MirrorId(self.mirror),
            epoch: Epoch(self.epoch),
            bytes_total: self.bytes_total,
            note: self.note.as_ref().map(noted).transpose()?,
            fs_name: self.fsname,
            device: self.device,
        })
    }
}

fn uuid_of(text: &str) -> Option<Uuid> {
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    let mut bytes = [0; 16];
    if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(Uuid(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    #[test]
    fn facts_of_a_device_come_back_from_their_text() {
        let dir = TestDir::new("target-show");
        let label = disk::Label {
            kind: Kind::Ost,
            fs_name: "demo".into(),
            fs_uuid: Uuid([0xa1; 16]),
            uuid: Uuid([0x0b; 16]),
            target: TargetId(3),
            index: 1,
            mirror: MirrorId(4),
            epoch: Epoch(9),
        };
        let path = dir.path().join("ost.img");
        let disk = FileDisk::create(&path, 64 << 20).unwrap();
        let format = disk::Format { label, log_bytes: 1 << 20, checkpoint_bytes: 1 << 20 };
        Volume::format(&disk, &format, false).unwrap();
        // Its server may run.
        let in_use = look(&path).unwrap();
        drop(disk);
        let line = look(&path).unwrap();
        assert_eq!((in_use.in_use, line.in_use), (true, false));
        assert_eq!(Line { in_use: false, ..in_use }, line);
        let text = serde_json::to_string(&line).unwrap();
        let facts = serde_json::from_str::<Line>(&text).unwrap().facts().unwrap();
        assert_eq!(
            (facts.fs_uuid, facts.uuid, facts.target),
            (Uuid([0xa1; 16]), Uuid([0x0b; 16]), TargetId(3))
        );
        assert_eq!((facts.index, facts.mirror, facts.epoch), (1, MirrorId(4), Epoch(9)));
        assert_eq!((facts.bytes_total, facts.note), (64 << 20, None));
        let note = |states| NoteLine { epoch: 7, primary: 1, states, is_whole: true, is_filling: false };
        let member = Line { note: Some(note([0, 2])), ..line.clone() }.facts().unwrap();
        let states = [MemberState::Out, MemberState::InSync];
        let want = Noted { epoch: Epoch(7), primary: 1, states, is_whole: true, is_filling: false };
        assert_eq!(member.note, Some(want));
        assert!(Line { note: Some(note([0, 3])), ..line.clone() }.facts().is_err());
        assert!(Line { uuid: "0b".into(), ..line }.facts().is_err());
        assert!(look(&dir.path().join("nothing")).unwrap_err().to_string().contains("nothing"));
    }
}
