//! The management services of a cluster: which one leads, and whether etcd answers.

use std::time::{Duration, Instant};

use bench::wrap::wrap;
use net::rpc;
use serde::Serialize;
use types::Buf;
use wire::Header;
use wire::mgmt::{MgsStat, MgsStatReply};

use crate::reach::{MGS, Reach};

/// Longest wait for one of them. All are asked at the same time.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// One of several management services, or one over etcd.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Service {
    nid: String,
    /// "leads", "follows", "no quorum", "silent".
    state: &'static str,
    /// The NIDs of the leading one, as this one knows it.
    #[serde(skip_serializing_if = "String::is_empty")]
    leader: String,
    /// The reason that it does not lead.
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
}

/// All of the given NIDs. Empty for a single one that has its map in a file.
pub fn all(reach: &Reach) -> Vec<Service> {
    let ask = |nid: &String| -> Result<MgsStatReply, String> {
        let head = Header { target: MGS, ..Header::default() };
        let (peer, deadline) = (reach.fabric.peer_at(nid, MGS), Instant::now() + ANSWER_MAX);
        let answered = rpc::call(&*peer, head, &MgsStat {}, &[], &mut Buf::new(), deadline);
        answered.map_err(|e| e.to_string())?.2.map_err(|fault| fault.to_string())
    };
    let ask = &ask;
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = reach.mgs_nids.iter().map(|nid| scope.spawn(move || ask(nid))).collect();
        asked.into_iter().map(|one| one.join().expect("asking does not panic")).collect()
    });
    // One process may have several NIDs: a map in a file has one service.
    let is_shared = answers.iter().flatten().any(|said| said.store == "etcd");
    let lines = reach.mgs_nids.iter().zip(answers).map(|(nid, said)| line(nid, said));
    if is_shared { lines.collect() } else { vec![] }
}

fn line(nid: &str, said: Result<MgsStatReply, String>) -> Service {
    let nid = nid.to_owned();
    match said {
        Ok(said) if said.leads => Service { nid, state: "leads", leader: String::new(), why: String::new() },
        Ok(said) if !said.leader.is_empty() => {
            Service { nid, state: "follows", leader: said.leader, why: String::new() }
        }
        Ok(said) => Service { nid, state: "no quorum", leader: String::new(), why: said.why },
        Err(why) => Service { nid, state: "silent", leader: String::new(), why },
    }
}

impl Service {
    pub fn is_well(&self) -> bool {
        matches!(self.state, "leads" | "follows")
    }

    pub fn text(&self) -> String {
        let Service { nid, state, leader, why } = self;
        let rest = match *state {
            "leads" => "leads".to_owned(),
            "follows" => format!("ready to take over from {leader}"),
            "no quorum" => format!("does not lead, so the cluster map stays as it is: {why}"),
            _ => format!("is silent ({why}); start it"),
        };
        wrap(&format!("management service at {nid}: {rest}"), 4) + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_of_a_management_service_has_its_line() {
        let said = |leads, leader: &str, why: &str| MgsStatReply {
            store: "etcd".into(),
            leads,
            leader: leader.into(),
            why: why.into(),
            version: 7,
        };
        for (answer, is_well, text) in [
            (Ok(said(true, "", "")), true, "at a: leads"),
            (Ok(said(false, "b", "the one at b does")), true, "ready to take over from b"),
            (Ok(said(false, "", "etcd has no quorum")), false, "stays as it is: etcd has no quorum"),
            (Err("not sent: refused".into()), false, "is silent (not sent: refused); start it"),
        ] {
            let line = line("a", answer);
            assert_eq!(line.is_well(), is_well);
            assert!(line.text().replace("\n    ", " ").contains(text), "{}", line.text());
        }
    }
}
