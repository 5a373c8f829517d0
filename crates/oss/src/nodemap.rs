//! Nodemaps at an OST: banned nodes, and nodes that may only read. Users have no ids here.
//!
//! oss-N1: a banned node's requests are refused from the map on that bans it, and its sessions end.
//! oss-N2: a node that may only read changes no object, whatever capability it has. It keeps no space, and keeps no reader out of a range.
//! Requests without a session need the key of the file system or tell nothing of its files; they are not looked at.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mgmt::nodemap;
use net::{Answer, Endpoint};
use parking_lot::RwLock;
use types::{Fault, SessionId};
use wire::map::{ClusterMap, Nodemap};
use wire::object::{Destroy, Grant, LockRange, Punch, Release, Reserve, Truncate, Write};
use wire::session::{Attach, Detach};
use wire::{Header, Request};

use crate::Core;
use crate::serve::parse;

/// The nodes of attached sessions.
#[derive(Default)]
pub struct Guests {
    /// The map has nodemaps; otherwise no request looks further.
    is_any: AtomicBool,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    /// In their order.
    list: Vec<Nodemap>,
    by_session: HashMap<SessionId, Guest>,
}

struct Guest {
    /// Role and node name.
    certificate: Option<(&'static str, String)>,
    endpoint: Endpoint,
    nodemap: Option<Arc<Nodemap>>,
}

/// So many are kept without a look at their sessions.
const KEPT: usize = 64;

impl Guest {
    fn of(answer: &Answer<'_>, list: &[Nodemap]) -> Guest {
        let certificate = answer.peer().map(|peer| (peer.role.as_str(), peer.node.as_str().to_owned()));
        let mut guest = Guest { certificate, endpoint: answer.endpoint(), nodemap: None };
        guest.look(list);
        guest
    }
    fn look(&mut self, list: &[Nodemap]) {
        let peer = nodemap::Peer {
            certificate: self.certificate.as_ref().map(|(role, node)| (*role, node.as_str())),
            net: &self.endpoint.net,
            address: self.endpoint.address,
        };
        self.nodemap = nodemap::find(list, &peer).map(|found| Arc::new(found.clone()));
    }
    fn check_ban(&self) -> Result<(), Fault> {
        match &self.nodemap {
            Some(found) if found.ban => Err(nodemap::banned(found)),
            _ => Ok(()),
        }
    }
    fn check(&self, call: u16, body: &[u8]) -> Result<(), Fault> {
        match &self.nodemap {
            Some(found) if found.read_only && is_for_writers(call, body)? => Err(nodemap::read_only(found)),
            _ => self.check_ban(),
        }
    }
}

/// oss-N2. A reader may take a shared lock of a range, as a read over several objects does, and give back what it has.
fn is_for_writers(call: u16, body: &[u8]) -> Result<bool, Fault> {
    Ok(match call {
        Write::CALL | Truncate::CALL | Punch::CALL | Reserve::CALL | Release::CALL | Destroy::CALL => true,
        Grant::CALL => parse::<Grant>(body)?.bytes > 0,
        LockRange::CALL => parse::<LockRange>(body)?.write,
        _ => false,
    })
}

impl Guests {
    pub fn forget(&self, session: SessionId) {
        self.state.write().by_session.remove(&session);
    }
}

impl Core {
    /// oss-N1 and oss-N2, and the place of a session that attaches.
    pub fn admit_node(&self, head: &Header, body: &[u8], answer: &Answer<'_>) -> Result<(), Fault> {
        if head.call == Attach::CALL {
            let req: Attach = parse(body)?;
            return if req.observer { Ok(()) } else { self.admit_guest(req.session, answer) };
        }
        // The end of a session takes nothing from others.
        if !self.guests.is_any.load(Ordering::Acquire)
            || head.session == SessionId(0)
            || head.call == Detach::CALL
        {
            return Ok(());
        }
        if let Some(guest) = self.guests.state.read().by_session.get(&head.session) {
            return guest.check(head.call, body);
        }
        // A session from before this start.
        self.admit_guest(head.session, answer)?;
        let state = self.guests.state.read();
        state.by_session.get(&head.session).map_or(Ok(()), |guest| guest.check(head.call, body))
    }

    fn admit_guest(&self, session: SessionId, answer: &Answer<'_>) -> Result<(), Fault> {
        let mut state = self.guests.state.write();
        let guest = Guest::of(answer, &state.list);
        guest.check_ban()?;
        state.by_session.insert(session, guest);
        if state.by_session.len() > KEPT + 2 * self.store.session_count() {
            state.by_session.retain(|id, _| *id == session || self.store.slot(*id, 0).is_some());
        }
        Ok(())
    }

    pub fn set_nodemaps(&self, map: &ClusterMap) {
        let list = nodemap::in_order(map);
        let mut state = self.guests.state.write();
        if state.list == list {
            return;
        }
        self.guests.is_any.store(!list.is_empty(), Ordering::Release);
        let State { list: now, by_session } = &mut *state;
        *now = list;
        by_session.values_mut().for_each(|guest| guest.look(now));
        let banned: Vec<SessionId> =
            by_session.iter().filter(|(_, guest)| guest.check_ban().is_err()).map(|(id, _)| *id).collect();
        drop(state);
        for session in banned {
            tracing::warn!(session = session.0, "a nodemap bans the node of a session, which ends");
            if let Err(error) = self.end_session(session) {
                tracing::warn!(session = session.0, %error, "the session could not be ended; its requests are refused");
            }
        }
    }
}
