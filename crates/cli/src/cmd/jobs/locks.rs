//! The files and directories whose leases requests wait for, and the clients that hold them: looks at the MDTs during the interval of
//! `stria why`.
//!
//! cli-WY2: a wait counts at each look that meets it. So the share of a file and its holder is that of the time, as far as the looks are dense.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use types::{Fid, SessionId};
use wire::mdt::{MdtLeases, MdtLeasesReply};

use crate::reach::Reach;

/// Looks of an interval. Each brings all leases, up to `wire::mdt::LEASES_MAX`.
const LOOKS: u32 = 50;
/// Shortest pause between two looks: they are to be a small load.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Files and directories that are shown.
const SHOWN: usize = 3;

/// A file or directory whose lease is waited for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Held {
    pub path: String,
    pub fid: String,
    /// The client that waits.
    pub waits: String,
    /// The client that holds the lease. `None`: one that had gone by the look.
    pub holder: Option<String>,
    /// Of all waits that were met, 0 to 1.
    pub share: f64,
}

/// A file or directory, the client that waits, and a holder.
type Key = (Fid, String, Option<String>);

/// Waits that were met.
#[derive(Default)]
pub struct Looks {
    met: BTreeMap<Key, u64>,
    /// Most changes of names that waited at one look.
    pub names: u64,
}

impl Looks {
    /// Looks until the interval is over.
    pub fn during(reach: &Reach, interval: Duration) -> Looks {
        let (until, pause) = (Instant::now() + interval, (interval / LOOKS).max(PAUSE_MIN));
        let mut looks = Looks::default();
        let left = || until.saturating_duration_since(Instant::now());
        while !left().is_zero() {
            for mdt in reach.mdts() {
                let request = MdtLeases { cap: reach.capability(SystemTime::now()), fid: Fid(0) };
                match reach.ask(mdt.id, &request) {
                    Ok(reply) => looks.add(&reply),
                    // It is down, or this identity may not ask: the counts tell the rest.
                    Err(_) => std::thread::sleep(left()),
                }
            }
            std::thread::sleep(left().min(pause));
        }
        looks
    }

    fn add(&mut self, reply: &MdtLeasesReply) {
        let names: BTreeMap<SessionId, &str> =
            reply.clients.iter().map(|client| (client.session, client.name.as_str())).collect();
        let name =
            |session: SessionId| names.get(&session).map_or(session.to_string(), |name| (*name).into());
        self.names = self.names.max(reply.changes_waiting);
        for wait in &reply.names {
            let key = (wait.fid, name(wait.session), Some(name(wait.holder)));
            *self.met.entry(key).or_default() += 1;
        }
        for wait in &reply.waits {
            let holds = |file: &&wire::mdt::FileLease| file.fid == wait.fid && file.session != wait.session;
            let mut holders: Vec<Option<String>> =
                reply.files.iter().filter(holds).map(|file| Some(name(file.session))).collect();
            if holders.is_empty() {
                holders.push(None);
            }
            for holder in holders {
                *self.met.entry((wait.fid, name(wait.session), holder)).or_default() += 1;
            }
        }
    }

    /// Those with most of the waits of clients that are meant.
    pub fn most(&self, is_meant: impl Fn(&str) -> bool, path_of: impl Fn(Fid) -> String) -> Vec<Held> {
        let mut meant: Vec<(&Key, u64)> =
            self.met.iter().filter(|((_, waits, _), _)| is_meant(waits)).map(|(key, n)| (key, *n)).collect();
        let all = meant.iter().map(|(_, n)| n).sum::<u64>().max(1);
        meant.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let held = |((fid, waits, holder), n): (&Key, u64)| Held {
            path: path_of(*fid),
            fid: fid.to_string(),
            waits: waits.clone(),
            holder: holder.clone(),
            share: n as f64 / all as f64,
        };
        meant.into_iter().take(SHOWN).map(held).collect()
    }
}

impl Held {
    /// The holder, for people.
    pub fn holder(&self) -> &str {
        self.holder.as_deref().unwrap_or("a client that gives it back just then")
    }

    pub fn text(&self) -> String {
        let Held { path, waits, share, .. } = self;
        format!("{path}: {waits} waits for {} ({:.0} % of the waits)", self.holder(), share * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::mdt::{ClientLeases, FileLease, LeaseWait, NameWait};
    use wire::shared::LeaseKind;

    /// cli-WY2
    #[test]
    fn the_file_and_the_holder_that_are_met_most_come_first() {
        let client = |session, name: &str| ClientLeases {
            session: SessionId(session),
            name: name.into(),
            silent_ms: 0,
            left_ms: 0,
            dirs: 0,
            files: 0,
        };
        let kind = LeaseKind::Exclusive;
        let held =
            |fid, session| FileLease { fid: Fid(fid), session: SessionId(session), kind, wanted_ms: 1 };
        let wait =
            |fid, session| LeaseWait { fid: Fid(fid), session: SessionId(session), kind, waited_ms: 1 };
        let reply = |files: Vec<FileLease>, waits: Vec<LeaseWait>| MdtLeasesReply {
            clients: vec![client(1, "n1"), client(2, "n2")],
            files,
            waits,
            more: false,
            changes_waiting: 4,
            names: vec![],
        };
        let mut looks = Looks::default();
        (0..3).for_each(|_| looks.add(&reply(vec![held(9, 1), held(8, 2)], vec![wait(9, 2)])));
        looks.add(&reply(vec![held(9, 2)], vec![wait(9, 2), wait(8, 1)]));
        let path = |fid: Fid| format!("/f{}", fid.0);
        let most = looks.most(|_| true, path);
        assert_eq!((most.len(), looks.names), (3, 4));
        assert_eq!(most[0].text(), "/f9: n2 waits for n1 (60 % of the waits)");
        assert!(most.iter().any(|one| one.holder.is_none() && one.path == "/f8"), "{most:?}");
        // Names of a directory count as well as content.
        let mut of_names = reply(vec![], vec![]);
        of_names.names =
            vec![NameWait { fid: Fid(7), session: SessionId(1), holder: SessionId(2), waited_ms: 1 }];
        let mut looks_at_names = Looks::default();
        looks_at_names.add(&of_names);
        let most = looks_at_names.most(|_| true, path);
        assert_eq!(most.len(), 1);
        assert_eq!(most[0].text(), "/f7: n1 waits for n2 (100 % of the waits)");
        // Of one client.
        let of_one = looks.most(|waits| waits == "n1", path);
        assert_eq!((of_one.len(), of_one[0].share), (1, 1.0));
    }
}
