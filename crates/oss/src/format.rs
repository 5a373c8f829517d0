//! The specification of a new OST.

use disk::volume::{Format, Kind, Label};
use store::{Geometry, geometry};
use types::{Epoch, MirrorId, TargetId, Uuid};

/// Identity of a new OST. The first `join` fills in the rest of its label.
#[derive(Clone, Debug)]
pub struct FormatSpec {
    pub fs_name: String,
    pub uuid: Uuid,
    /// Wanted index, or `u32::MAX` for the next free one.
    pub index: u32,
    /// Size of the log. The default comes from `store::geometry` for the medium.
    pub log_bytes: Option<u64>,
    /// Overwrite a medium that is not blank.
    pub force: bool,
}

impl FormatSpec {
    pub fn new(fs_name: &str, uuid: Uuid) -> FormatSpec {
        FormatSpec { fs_name: fs_name.into(), uuid, index: u32::MAX, log_bytes: None, force: false }
    }

    /// The division of a medium of `medium_bytes`.
    pub(crate) fn division(&self, medium_bytes: u64) -> Geometry {
        let usual = geometry(medium_bytes);
        Geometry { log_bytes: self.log_bytes.unwrap_or(usual.log_bytes), ..usual }
    }

    /// The division with the label: the input of the volume's format.
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
