//! Decides whose rights apply. A session that may act for anybody is trusted (its kernel has checked), and the rules check the `Cred` of
//! each request. Any other session is judged: each of its requests counts as one user's, whatever it claims.
//!
//! meta-J1: no rule sees a claimed `Cred` of a judged session: the dispatch replaces it by the judged one.
//! meta-J2: for an operation on a file's content by fid, a judged session proves its right with the capability of an open (`held`).

use types::{Code, Cred, Fault, Fid};
use wire::Request;
use wire::accessed::Accessed;
use wire::meta::*;
use wire::object::{Capability, RIGHT_WRITE};

use crate::records::InodeRecord;
use crate::{Ctx, access};

/// The rights by which a request of a judged session counts.
pub struct Judge<'a> {
    /// The session's user.
    pub cred: Cred,
    /// True if the session may act for anybody.
    pub is_anybody: bool,
    /// True if the capability was made for this session and is unchanged.
    pub is_ours: &'a dyn Fn(&Capability) -> bool,
}

/// A request with a claimed `Cred`.
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
        /// The claimed user of a request; `None` if the call has none, or if the body does not decode.
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
    /// meta-J2: true if `held` is a capability for `fid` with all of `rights`. Always true in a session that is not judged.
    pub fn proves(&self, held: Option<&Capability>, fid: Fid, rights: u8) -> bool {
        let Some(judge) = &self.judge else { return true };
        held.is_some_and(|cap| cap.fid == fid && cap.rights & rights == rights && (judge.is_ours)(cap))
    }

    /// Refuses a judged session without proof.
    pub fn need_proof(&self, held: Option<&Capability>, fid: Fid, rights: u8) -> Result<(), Fault> {
        match self.proves(held, fid, rights) {
            true => Ok(()),
            false => {
                Err(Fault::new(Code::Access, format!("file {fid} is not open for that in this session")))
            }
        }
    }

    /// Needs the right to change a file's content: the file is open for writing, or `cred` may open it so.
    pub fn need_write(
        &self,
        held: Option<&Capability>,
        inode: &InodeRecord,
        cred: &Cred,
    ) -> Result<(), Fault> {
        let is_open = held.is_some() && self.proves(held, inode.fid(), RIGHT_WRITE);
        if is_open { Ok(()) } else { access::need(inode, cred, access::WRITE) }
    }

    /// Refuses users other than root: tools may read all records.
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
