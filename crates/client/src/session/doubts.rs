//! Files with unflushed requests to an OST that was removed.
//!
//! client-MG4: a removed OST takes bytes only of files whose layout still names it. A drain has copied and flushed those of all others, and this
//! client may not have heard of that flush. So the MDT is asked before a loss is noted. A call that needs such bytes fails at once.

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;
use types::{Code, Fid, MirrorId};
use wire::meta::GetStripe;

use crate::Fs;

#[derive(Default)]
pub(crate) struct Doubts(Mutex<BTreeMap<(Fid, MirrorId), String>>);

impl Doubts {
    pub fn add(&self, fid: Fid, mirror: MirrorId, why: &str) {
        self.0.lock().insert((fid, mirror), why.to_owned());
    }

    fn first_above(&self, after: Option<(Fid, MirrorId)>) -> Option<((Fid, MirrorId), String)> {
        let doubts = self.0.lock();
        let mut all = doubts.iter().filter(|(key, _)| after.is_none_or(|after| **key > after));
        all.next().map(|(key, why)| (*key, why.clone()))
    }
}

impl Fs {
    /// Notes losses of files that still name a removed OST. Files that the MDT does not tell of stay in doubt.
    pub(crate) fn judge_doubts(&self, deadline: Instant) {
        let mut after = None;
        while let Some((key, why)) = self.id.doubts.first_above(after) {
            let (fid, mirror) = key;
            let is_lost = match self.ask_until(fid, &GetStripe { fid }, deadline) {
                Ok(answer) => {
                    let layout = answer.reply.inode.layout;
                    layout.is_some_and(|layout| layout.objects(fid).any(|(_, of, _)| of == mirror))
                }
                // It was removed, and its bytes with it.
                Err(fault) if matches!(fault.code, Code::NotFound | Code::Stale) => false,
                Err(fault) => {
                    tracing::debug!(
                        "whether file {fid} lost bytes with mirror {mirror} is not known yet: {fault}"
                    );
                    after = Some(key);
                    if Instant::now() >= deadline {
                        return;
                    }
                    continue;
                }
            };
            if is_lost {
                self.id.losses.add(fid, &why);
            }
            self.id.doubts.0.lock().remove(&key);
            after = Some(key);
        }
    }
}
