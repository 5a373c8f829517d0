//! What lies in a directory and below it, without a walk: the MDT knows, but for what is under way here.

use std::fmt::Write;

use types::{Cred, Fault, Fid};
use wire::meta::{Contents, Counts, CountsReply};

use crate::Fs;

/// A directory's counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Du {
    pub counts: CountsReply,
    /// Files that this client could not settle: of those the sizes may be older than what it wrote.
    pub unsettled: u64,
}

impl Fs {
    /// Counts a directory, after all that this client wrote is settled: in time that does not depend on what lies in it.
    pub fn du(&self, fid: Fid, cred: &Cred) -> Result<Du, Fault> {
        // What cannot be settled is told, and is no reason to tell nothing: an OST may be down.
        let unsettled = match self.settle_all(self.deadline()) {
            Ok(()) => 0,
            Err(_) => self.files.all().iter().filter(|f| f.meta.lock().needs_settling()).count() as u64,
        };
        Ok(Du { counts: self.ask(fid, &Counts { fid, cred: cred.clone() })?, unsettled })
    }

    /// For the attribute `stria.du`.
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
