//! `du` of a directory tree without a walk: the MDT keeps counts. Changes of this client are reported first.

use std::fmt::Write;

use types::{Cred, Fault, Fid};
use wire::meta::{Contents, Counts, CountsReply};

use crate::Fs;

/// A directory's counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Du {
    pub counts: CountsReply,
    /// Files whose updates this client could not report. Their sizes may be older than its writes.
    pub unsettled: u64,
}

impl Fs {
    /// Counts of a directory, after this client reported its updates. The time does not depend on the size of the tree.
    pub fn du(&self, fid: Fid, cred: &Cred) -> Result<Du, Fault> {
        // Updates that fail are counted in the answer, since an OST may be down.
        let unsettled = match self.settle_all(self.deadline()) {
            Ok(()) => 0,
            Err(_) => self.files.all().iter().filter(|f| f.meta.lock().needs_settling()).count() as u64,
        };
        Ok(Du { counts: self.ask(fid, &Counts { fid, cred: cred.clone() })?, unsettled })
    }

    /// The value of the attribute `stria.du`.
    pub(crate) fn du_json(&self, fid: Fid, cred: &Cred) -> Result<String, Fault> {
        let Du { counts, unsettled } = self.du(fid, cred)?;
        let mut out = String::from("{");
        for (name, sums) in [("own", counts.own), ("tree", counts.tree)] {
            let Contents { files, dirs, others, bytes, blocks } = sums;
            write!(
                out,
                "\"{name}\":{{\"files\":{files},\"dirs\":{dirs},\"others\":{others},\"bytes\":{bytes},\"blocks\":{blocks}}},"
            )
            .expect("a String takes any text");
        }
        write!(out, "\"unsettled\":{unsettled}}}").expect("a String takes any text");
        Ok(out)
    }
}
