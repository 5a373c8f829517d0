//! Whose rights count. A session that may act for anybody is taken at its word (its kernel has checked), and rules check the
//! `Cred` that a request carries. Any other session is judged: each of its requests counts as one user's, whatever it claims.
//!
//! meta-J1: no rule sees a claimed `Cred` of a judged session: the dispatch puts the judged one in its place.
//! meta-J2: what a judged session does to a file's content by its fid it proves with the capability of an open (`held`).

use types::{Code, Cred, Fault, Fid};
use wire::Request;
use wire::accessed::Accessed;
use wire::meta::*;
use wire::object::{Capability, RIGHT_WRITE};

use crate::records::InodeRecord;
use crate::{Ctx, access};

/// How a request of a judged session is judged.
pub struct Judge<'a> {
    /// Who asks.
    pub cred: Cred,
    /// The session may act for anybody.
    pub is_anybody: bool,
    /// Was the capability made for this session, and is it unchanged?
    pub is_ours: &'a dyn Fn(&Capability) -> bool,
}

/// A request that says who asks.
pub trait Claimed: Request {
    fn cred_mut(&mut self) -> &mut Cred;
}

macro_rules! claimed {
    ($($request:ident)*) => {
        $(impl Claimed for $request {
            fn cred_mut(&mut self) -> &mut Cred {
                &mut self.cred
            }
        })*
        /// Who a request says that it is for; `None` if it does not say, or cannot be read.
        pub fn claimed(call: u16, body: &[u8]) -> Option<Cred> {
            use wire::Wire;
            match call {
                $($request::CALL => $request::from_bytes(body).ok().map(|r| r.cred),)*
                _ => None,
            }
        }
    };
}
claimed!(Lookup SetAttr Create MakeDir Symlink Link Unlink RemoveDir Rename ReadDir GetXattr SetXattr RemoveXattr ListXattr
    Open OpenRead Truncate SetStripe SetFlags Tmpfile Accessed Counts CreateWith);

impl Ctx<'_> {
    /// meta-J2: what an open gave for `fid`, good for all of `rights`. True where nobody is judged.
    pub fn proves(&self, held: Option<&Capability>, fid: Fid, rights: u8) -> bool {
        let Some(judge) = &self.judge else { return true };
        held.is_some_and(|cap| cap.fid == fid && cap.rights & rights == rights && (judge.is_ours)(cap))
    }

    /// Refuses a judged session that has no proof.
    pub fn need_proof(&self, held: Option<&Capability>, fid: Fid, rights: u8) -> Result<(), Fault> {
        match self.proves(held, fid, rights) {
            true => Ok(()),
            false => {
                Err(Fault::new(Code::Access, format!("file {fid} is not open for that in this session")))
            }
        }
    }

    /// May change a file's content: it is open for that, or `cred` may open it.
    pub fn need_write(
        &self,
        held: Option<&Capability>,
        inode: &InodeRecord,
        cred: &Cred,
    ) -> Result<(), Fault> {
        let is_open = held.is_some() && self.proves(held, inode.fid(), RIGHT_WRITE);
        if is_open { Ok(()) } else { access::need(inode, cred, access::WRITE) }
    }

    /// Tools look at everything: root only.
    pub fn need_root(&self) -> Result<(), Fault> {
        match &self.judge {
            Some(judge) if judge.cred.uid != 0 => {
                Err(Fault::new(Code::Perm, "only root may ask this of the MDT"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
