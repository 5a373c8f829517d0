//! The nodemap of a session: which one it is, and what it does to requests and replies.
//!
//! mds-N1: a session's nodemap is found at its attach, by certificate and address, and again when the map has other nodemaps. A request
//!     compares two pointers.
//! mds-N2: a banned node gets no answer but the refusal; its sessions are evicted when the map comes.
//! mds-N3: a session whose callers get other ids by a newer map is evicted, since its client caches rights and owners of the old ones.
//! mds-N4: a node that may only read makes no change, also none that a lease let it promise.

use std::borrow::Cow;
use std::sync::Arc;

use meta::ids::Ids;
use mgmt::nodemap;
use net::{Answer, Endpoint};
use pki::Role;
use types::{Fault, SessionId};
use wire::map::Nodemap;
use wire::session::{Attach, Detach};
use wire::{Header, Request};

use crate::Core;
use crate::sessions::Session;

/// The nodemaps of a cluster map, in their order. Maps with the same ones share the list.
pub type Nodemaps = Arc<Vec<Nodemap>>;

/// The node that a session belongs to, and its nodemap in `list`.
#[derive(Debug)]
pub struct Place {
    /// Role and node name.
    certificate: Option<(&'static str, String)>,
    endpoint: Endpoint,
    list: Nodemaps,
    pub nodemap: Option<Arc<Nodemap>>,
}

impl Place {
    pub fn of(answer: &Answer<'_>, list: &Nodemaps) -> Place {
        let certificate = answer.peer().map(|peer| (peer.role.as_str(), peer.node.as_str().to_owned()));
        Place::new(certificate, answer.endpoint(), list)
    }
    fn new(certificate: Option<(&'static str, String)>, endpoint: Endpoint, list: &Nodemaps) -> Place {
        let peer = nodemap::Peer {
            certificate: certificate.as_ref().map(|(role, node)| (*role, node.as_str())),
            net: &endpoint.net,
            address: endpoint.address,
        };
        let nodemap = nodemap::find(list, &peer).map(|found| Arc::new(found.clone()));
        Place { certificate, endpoint, list: list.clone(), nodemap }
    }
    fn under(&self, list: &Nodemaps) -> Place {
        Place::new(self.certificate.clone(), self.endpoint.clone(), list)
    }

    /// mds-N2.
    pub fn check_ban(&self) -> Result<(), Fault> {
        check_ban(self.nodemap.as_deref())
    }
    pub fn changes_ids(&self) -> bool {
        self.nodemap.as_deref().is_some_and(nodemap::changes_ids)
    }
}

fn check_ban(found: Option<&Nodemap>) -> Result<(), Fault> {
    match found {
        Some(found) if found.ban => Err(nodemap::banned(found)),
        _ => Ok(()),
    }
}

/// True if the client must tell the MDT of each change at once: it could promise what is refused later, or with other ids.
pub fn tells_all(found: Option<&Nodemap>) -> bool {
    found.is_some_and(|found| found.read_only || nodemap::changes_ids(found))
}

impl Session {
    /// Its nodemap in `list`. A session that was begun before this start learns its place from its first request.
    fn nodemap_in(&self, list: &Nodemaps, answer: &Answer<'_>) -> Option<Arc<Nodemap>> {
        let known = self.place.load();
        match &*known {
            Some(place) if Arc::ptr_eq(&place.list, list) => place.nodemap.clone(),
            known => {
                let place = Arc::new(match known {
                    Some(place) => place.under(list),
                    None => Place::of(answer, list),
                });
                self.place.store(Some(place.clone()));
                place.nodemap.clone()
            }
        }
    }
}

impl Core {
    /// The nodemap of a request's sender; refuses a banned one (mds-N2). A session that is not there is refused by the request itself.
    pub fn nodemap_of(&self, head: &Header, answer: &Answer<'_>) -> Result<Option<Arc<Nodemap>>, Fault> {
        let joined = self.joined.load();
        let Some(list) = joined.as_deref().map(|j| &j.nodemaps).filter(|list| !list.is_empty()) else {
            return Ok(None);
        };
        let found = match head.session {
            // Servers and administrators act for the file system. An attach is looked at by itself.
            SessionId(0) => match answer.sender().map(|sender| sender.role) {
                Some(Role::Server | Role::Admin) => None,
                _ if head.call == Attach::CALL => None,
                _ => Place::of(answer, list).nodemap,
            },
            id => self.sessions.now().get(id).and_then(|session| session.nodemap_in(list, answer)),
        };
        // The end of a session takes nothing from others.
        if head.call != Detach::CALL {
            check_ban(found.as_deref())?;
        }
        Ok(found)
    }

    /// mds-N2 and mds-N3, when the list of nodemaps has changed.
    pub fn review_nodemaps(&self) {
        let Ok(joined) = self.joined() else { return };
        let mut all = Vec::new();
        self.sessions.each(|session| all.push(session.clone()));
        let _one = self.ending.lock();
        for session in all {
            // One whose place is not known yet is refused, if it is banned, at its first request.
            let Some(before) = session.place.load_full() else { continue };
            let after = before.under(&joined.nodemaps);
            let has_same_ids = nodemap::has_same_ids(before.nodemap.as_deref(), after.nodemap.as_deref());
            let is_banned = after.check_ban().is_err();
            let name = after.nodemap.as_ref().map_or("none", |n| &n.name).to_owned();
            session.place.store(Some(Arc::new(after)));
            if has_same_ids && !is_banned {
                continue;
            }
            tracing::warn!(
                session = session.id.0,
                client = session.name,
                nodemap = name,
                is_banned,
                "the nodemaps have changed, and a session ends by it"
            );
            let why =
                format!("the nodemap of this node is now {name}, which bans it or gives its users other ids");
            if let Err(fault) = self.evict_because(session.id, &why) {
                tracing::warn!(session = session.id.0, %fault, "the session could not be ended; its requests are refused");
            }
        }
    }

    /// mds-N4.
    pub fn check_may_change(&self, found: Option<&Nodemap>, call: u16, body: &[u8]) -> Result<(), Fault> {
        match found {
            Some(found) if found.read_only && self.rules.is_change(call, body) => {
                Err(nodemap::read_only(found))
            }
            _ => Ok(()),
        }
    }

    /// The request with the ids of the file system.
    pub fn request_ids<'b>(
        &self,
        found: Option<&Nodemap>,
        call: u16,
        body: &'b [u8],
    ) -> Result<Cow<'b, [u8]>, Fault> {
        let Some(found) = found.filter(|found| nodemap::maps_ids(found)) else {
            return Ok(Cow::Borrowed(body));
        };
        let ids =
            Ids { uid: &|id| nodemap::to_fs(&found.uids, id), gid: &|id| nodemap::to_fs(&found.gids, id) };
        let mapped = self.rules.request_ids(call, body, &ids)?;
        Ok(mapped.map_or(Cow::Borrowed(body), Cow::Owned))
    }

    /// The body of a reply with the ids of the client; `None`: it stays as it is.
    pub fn reply_ids(
        &self,
        found: Option<&Nodemap>,
        call: u16,
        body: &[u8],
        reply: &[u8],
    ) -> Result<Option<Vec<u8>>, Fault> {
        let Some(found) = found.filter(|found| nodemap::maps_ids(found)) else { return Ok(None) };
        let ids = Ids {
            uid: &|id| Some(nodemap::to_client(&found.uids, id, found.squash_uid)),
            gid: &|id| Some(nodemap::to_client(&found.gids, id, found.squash_gid)),
        };
        self.rules.reply_ids(call, body, reply, &ids)
    }
}
