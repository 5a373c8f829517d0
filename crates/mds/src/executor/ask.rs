//! A mutating request, on its own thread and for another one to run.

use std::sync::Arc;

use wire::Header;

use crate::judge::Judged;
use crate::sessions::below::Root;
use crate::sessions::leases::Forgot;

/// A mutating request.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub head: &'a Header,
    pub body: &'a [u8],
    pub bulk: &'a [u8],
    pub judged: Option<&'a Judged>,
    /// The session's root.
    pub root: Option<&'a Arc<Root>>,
    /// The answers of other sessions that forgot for it.
    pub forgot: &'a Forgot,
}

/// A request that owns its bytes, for another thread to run.
pub struct OwnAsk {
    pub head: Header,
    pub body: Vec<u8>,
    pub bulk: Vec<u8>,
    pub judged: Option<Judged>,
    pub root: Option<Arc<Root>>,
    pub forgot: Forgot,
}

impl Ask<'_> {
    pub fn to_own(self) -> OwnAsk {
        let Ask { head, body, bulk, judged, root, forgot } = self;
        let (body, bulk, forgot) = (body.to_vec(), bulk.to_vec(), forgot.clone());
        OwnAsk { head: *head, body, bulk, judged: judged.cloned(), root: root.cloned(), forgot }
    }
}

impl OwnAsk {
    pub fn as_ask(&self) -> Ask<'_> {
        let OwnAsk { head, body, bulk, judged, root, forgot } = self;
        Ask { head, body, bulk, judged: judged.as_ref(), root: root.as_ref(), forgot }
    }
}
