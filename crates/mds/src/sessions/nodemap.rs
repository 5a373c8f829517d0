//! The nodemap of a session: which one it is, and what it does to requests and replies.
//!
//! mds-N1: a session's nodemap is found at its attach, by certificate and address, and again when the map has other nodemaps. A request
//!     compares two pointers.
//! mds-N2: a banned node gets no answer but the refusal; its sessions are evicted when the map comes.
//! mds-N3: a session whose callers get other ids or another root by a newer map is evicted, since its client caches rights, owners and names of
//!     the old ones.
//! mds-N4: a node that may only read makes no change, also none that a lease let it promise.
//! mds-N7: a request takes its nodemap and the key of capabilities from one map. A newer key never signs what a former nodemap allowed.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use meta::ids::Ids;
use mgmt::nodemap;
use net::{Answer, Endpoint};
use object::slots::unknown;
use pki::Role;
use types::{Fault, Fid, SessionId};
use wire::map::Nodemap;
use wire::session::{Attach, Detach};
use wire::{Header, Request};

use crate::Core;
use crate::joined::Joined;
use crate::sessions::below::Root;
use crate::sessions::{KeptRoot, Session};

/// The nodemaps of a cluster map, in their order. Maps with the same ones share the list.
pub type Nodemaps = Arc<Vec<Nodemap>>;

/// A nodemap, with its root as this MDT knows it.
#[derive(Debug)]
pub struct Terms {
    nodemap: Nodemap,
    /// `None`: they see the whole file system.
    pub root: Option<Arc<Root>>,
    /// mds-N5: the root is no directory.
    missing: Option<Fault>,
}

impl Deref for Terms {
    type Target = Nodemap;
    fn deref(&self) -> &Nodemap {
        &self.nodemap
    }
}

impl Terms {
    fn of(core: &Core, found: &Nodemap) -> Terms {
        let nodemap = found.clone();
        match core.root_of(found) {
            Ok(root) => Terms { nodemap, root, missing: None },
            Err(fault) => Terms { nodemap, root: None, missing: Some(fault) },
        }
    }

    /// mds-N2 and mds-N5.
    fn check(&self) -> Result<(), Fault> {
        match &self.missing {
            _ if self.ban => Err(nodemap::banned(self)),
            Some(fault) => Err(fault.clone()),
            None => Ok(()),
        }
    }

    /// The file system's root, unless the nodes see another one.
    fn top(&self) -> Option<Fid> {
        match &self.root {
            Some(root) => Some(root.top),
            None if nodemap::has_root(self) => None,
            None => Some(Fid::ROOT),
        }
    }
}

/// The node that a session belongs to, and its nodemap in `list`.
#[derive(Debug)]
pub struct Place {
    /// Role and node name.
    certificate: Option<(&'static str, String)>,
    endpoint: Endpoint,
    list: Nodemaps,
    pub terms: Option<Arc<Terms>>,
}

impl Place {
    pub fn of(core: &Core, answer: &Answer<'_>, list: &Nodemaps) -> Place {
        let certificate = answer.peer().map(|peer| (peer.role.as_str(), peer.node.as_str().to_owned()));
        Place::new(core, certificate, answer.endpoint(), list, None)
    }
    fn new(
        core: &Core,
        certificate: Option<(&'static str, String)>,
        endpoint: Endpoint,
        list: &Nodemaps,
        before: Option<&Place>,
    ) -> Place {
        let peer = nodemap::Peer {
            certificate: certificate.as_ref().map(|(role, node)| (*role, node.as_str())),
            net: &endpoint.net,
            address: endpoint.address,
        };
        let found = nodemap::find(list, &peer);
        let terms = found.map(|found| match before.and_then(|place| place.root_for(found)) {
            Some(root) => Terms { nodemap: found.clone(), root: Some(root), missing: None },
            None => Terms::of(core, found),
        });
        Place { certificate, endpoint, list: list.clone(), terms: terms.map(Arc::new) }
    }
    fn under(&self, core: &Core, list: &Nodemaps) -> Place {
        Place::new(core, self.certificate.clone(), self.endpoint.clone(), list, Some(self))
    }
    /// mds-N5: the same path stays the same directory.
    fn root_for(&self, found: &Nodemap) -> Option<Arc<Root>> {
        let terms = self.terms.as_deref().filter(|terms| terms.nodemap.root == found.root)?;
        terms.root.clone()
    }
    /// The root, for the session's record.
    pub fn kept_root(&self) -> Option<KeptRoot> {
        let terms = self.terms.as_deref()?;
        Some(KeptRoot { path: terms.nodemap.root.clone(), top: terms.root.as_ref()?.top })
    }
    /// mds-N5, for a session that was begun before this start.
    pub fn keeping(mut self, core: &Core, kept: Option<&KeptRoot>) -> Place {
        if let (Some(terms), Some(kept)) = (self.terms.as_deref(), kept)
            && terms.nodemap.root == kept.path
        {
            let (nodemap, root) = (terms.nodemap.clone(), Some(core.roots.of(kept.top)));
            self.terms = Some(Arc::new(Terms { nodemap, root, missing: None }));
        }
        self
    }
    /// The place of a session that attaches again.
    pub fn after(mut self, before: Option<&Place>) -> Place {
        let root = self.terms.as_deref().and_then(|terms| before?.root_for(terms));
        if let (Some(terms), Some(root)) = (self.terms.as_deref(), root) {
            let nodemap = terms.nodemap.clone();
            self.terms = Some(Arc::new(Terms { nodemap, root: Some(root), missing: None }));
        }
        self
    }

    /// mds-N2 and mds-N5.
    pub fn check(&self) -> Result<(), Fault> {
        self.terms.as_deref().map_or(Ok(()), Terms::check)
    }
    pub fn changes_ids(&self) -> bool {
        self.terms.as_deref().is_some_and(|terms| nodemap::changes_ids(terms))
    }
    /// The directory that the client sees as its root.
    pub fn top(&self) -> Fid {
        self.known_top().unwrap_or(Fid::ROOT)
    }
    pub fn is_of(&self, list: &Nodemaps) -> bool {
        Arc::ptr_eq(&self.list, list)
    }
    /// mds-N3, mds-N5: True if a client that knows the one place may go on in the other: its users have the same ids, and its root is the same.
    pub fn is_like(&self, other: &Place) -> bool {
        let [one, two] = [self, other].map(|place| place.terms.as_deref().map(Deref::deref));
        nodemap::has_same_ids(one, two) && self.known_top() == other.known_top()
    }
    fn known_top(&self) -> Option<Fid> {
        self.terms.as_deref().map_or(Some(Fid::ROOT), Terms::top)
    }
}

/// True if the client must tell the MDT of each change at once: it could promise what is refused later, with other ids, or for a directory that
/// was moved out of its root.
pub fn tells_all(found: Option<&Terms>) -> bool {
    found.is_some_and(|found| found.read_only || found.root.is_some() || nodemap::changes_ids(found))
}

/// A newer list gives a session's users other ids, or another root.
struct Changed;

impl Session {
    /// Its nodemap in `list`. A session that was begun before this start learns its place from its first request. `Err`: it may not go on
    /// (mds-N3, mds-N5).
    fn terms_in(
        &self,
        core: &Core,
        list: &Nodemaps,
        answer: &Answer<'_>,
    ) -> Result<Option<Arc<Terms>>, Changed> {
        let known = self.place.load();
        match &*known {
            Some(place) if Arc::ptr_eq(&place.list, list) => Ok(place.terms.clone()),
            known => {
                let place = Arc::new(match known {
                    Some(place) => place.under(core, list),
                    None => Place::of(core, answer, list).keeping(core, self.root.as_ref()),
                });
                if known.as_ref().is_some_and(|known| !known.is_like(&place)) {
                    return Err(Changed);
                }
                self.place.store(Some(place.clone()));
                Ok(place.terms.clone())
            }
        }
    }
}

impl Core {
    /// The nodemap of a request's sender; refuses a banned one (mds-N2), and one whose root is missing (mds-N5). A session that is not there is refused by the request itself.
    pub fn terms_of(
        &self,
        joined: Option<&Joined>,
        head: &Header,
        answer: &Answer<'_>,
    ) -> Result<Option<Arc<Terms>>, Fault> {
        let Some(list) = joined.map(|j| &j.nodemaps).filter(|list| !list.is_empty()) else {
            return Ok(None);
        };
        let found = match head.session {
            // An attach is looked at by itself.
            _ if head.call == Attach::CALL => None,
            // Servers and administrators act for the file system.
            SessionId(0) => match answer.sender().map(|sender| sender.role) {
                Some(Role::Server | Role::Admin) => None,
                _ => Place::of(self, answer, list).terms,
            },
            id => {
                let session = self.sessions.now().get(id).cloned();
                match session.map(|session| session.terms_in(self, list, answer)) {
                    None => None,
                    Some(Ok(terms)) => terms,
                    // The review may not have come to it yet, or the session's last attach was under an older list.
                    Some(Err(Changed)) => {
                        self.review_nodemaps();
                        return Err(unknown(id));
                    }
                }
            }
        };
        // The end of a session takes nothing from others.
        if let Some(terms) = found.as_deref().filter(|_| head.call != Detach::CALL) {
            terms.check()?;
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
            let after = before.under(self, &joined.nodemaps);
            let is_like = before.is_like(&after);
            let is_banned = after.check().is_err();
            let name = after.terms.as_ref().map_or("none", |n| &n.name).to_owned();
            session.place.store(Some(Arc::new(after)));
            if is_like && !is_banned {
                continue;
            }
            tracing::warn!(
                session = session.id.0,
                client = session.name,
                nodemap = name,
                is_banned,
                "the nodemaps have changed, and a session ends by it"
            );
            let why = format!(
                "the nodemap of this node is now {name}, which bans it or gives its users other ids or another root"
            );
            if let Err(fault) = self.evict_because(session.id, &why) {
                tracing::warn!(session = session.id.0, %fault, "the session could not be ended; its requests are refused");
            }
        }
    }

    /// mds-N4.
    pub fn check_may_change(&self, found: Option<&Terms>, call: u16, body: &[u8]) -> Result<(), Fault> {
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
        found: Option<&Terms>,
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
        found: Option<&Terms>,
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
