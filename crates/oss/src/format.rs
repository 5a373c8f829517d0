//! What a new OST is to be.

use disk::volume::{Format, Kind, Label};
use store::{Geometry, geometry};
use types::{Epoch, MirrorId, TargetId, Uuid};

/// Identity of a new OST. The rest of its label comes with the first `join`.
#[derive(Clone, Debug)]
pub struct FormatSpec {
    pub fs_name: String,
    pub uuid: Uuid,
    /// Wanted index, or `u32::MAX` for the next free one.
    pub index: u32,
    /// Of the log; by default what `store::geometry` says of the medium.
    pub log_bytes: Option<u64>,
    /// Overwrite a medium that holds something.
    pub force: bool,
}

impl FormatSpec {
    pub fn new(fs_name: &str, uuid: Uuid) -> FormatSpec {
        FormatSpec { fs_name: fs_name.into(), uuid, index: u32::MAX, log_bytes: None, force: false }
    }

    /// How a medium of `medium_bytes` is divided.
    pub(crate) fn division(&self, medium_bytes: u64) -> Geometry {
        let usual = geometry(medium_bytes);
        Geometry { log_bytes: self.log_bytes.unwrap_or(usual.log_bytes), ..usual }
    }

    /// As `division`, with the label: what the volume is made by.
    pub fn format(&self, medium_bytes: u64) -> Format {
        let Geometry { log_bytes, checkpoint_bytes } = self.division(medium_bytes);
        Format { label: self.label(), log_bytes, checkpoint_bytes }
    }

    pub(crate) fn label(&self) -> Label {
        Label {
            kind: Kind::Ost,
            fs_name: self.fs_name.clone(),
            fs_uuid: Uuid::default(),
            uuid: self.uuid,
            target: TargetId(0),
            index: self.index,
            mirror: MirrorId(0),
            epoch: Epoch(0),
        }
    }
}
