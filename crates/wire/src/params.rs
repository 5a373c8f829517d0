//! Parameters of a running target: tools read and set them.

use crate::Empty;
use crate::codec::{bodies, calls};

bodies! {
    /// Reads the parameters of a target.
    ParamList {}
    ParamListReply { params: Vec<ParamLine> }
    ParamLine {
        name: String,
        /// The one that holds.
        value: u64,
        /// That of the configuration, of the file system, or the default.
        base: u64,
        /// In the cluster map.
        kept: Option<u64>,
        /// Set at the running target.
        live: Option<u64>,
    }
    /// Sets live values, or ends them (no value): all or none.
    ParamSet { changes: Vec<LiveParam> }
    LiveParam { name: String, value: Option<u64> }
}

calls! {
    0x0190 ParamList => ParamListReply, read;
    0x0191 ParamSet => Empty, read;
}
