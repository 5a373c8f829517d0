//! The other member and the MGS, as a seat reaches them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use net::rpc::{self, RpcError};
use net::{Fabric, NetError};
use types::{Buf, Code, Fault, FsId, Incarnation, MirrorId, TargetId};
use wire::pair::{
    AskMembers, AskMembersReply, AskingOf, CompareRanges, CompareRangesReply, CompareRecords,
    CompareRecordsReply, CompareStep, CopyAll, CopyAllReply, FetchPages, FetchPagesReply, FlushLog, Letter,
    Letters, LettersReply, ListLost, ListLostReply, Stage,
};
use wire::{Header, Request};

use crate::StageId;

/// Half of a promise: a member that hangs keeps the sender back for one asking only.
const LETTERS: Duration = Duration::from_secs(1);
/// A flush that takes longer is asked for again: meanwhile the mirror may have gone on without a member that hangs.
const FLUSH: Duration = LETTERS;
/// A write of pages waits for the medium.
const MEDIUM: Duration = Duration::from_secs(5);
/// A part of a copy is read from the medium, beside other work.
const COPY: Duration = Duration::from_secs(30);

/// Each call returns within a bound. A fault says nothing about whether it was carried out.
pub trait Post: Send + Sync {
    /// The other member, to which everything goes.
    fn other(&self) -> TargetId;
    /// Letters to the other member, to be taken in order. Returns those that follow from them.
    fn letters(&self, letters: Vec<Letter>) -> Result<Vec<Letter>, Fault>;
    /// Has the other member flush its log. Returns its acknowledgement.
    fn flush_log(&self) -> Result<Vec<Letter>, Fault>;
    /// Gives pages to this life of the other member.
    fn stage(&self, to: Incarnation, id: StageId, pages: &[u8]) -> Result<(), Fault>;
    /// As `stage`. `meanwhile` is called once, if it can be while the pages are on their way.
    fn stage_beside(
        &self,
        to: Incarnation,
        id: StageId,
        pages: &[u8],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), Fault> {
        meanwhile();
        self.stage(to, id, pages)
    }
    /// A part of the other member's whole content.
    fn copy_all(&self, copy: u64, part: u64) -> Result<CopyAllReply, Fault>;
    /// Pages that this member cannot read, with the bytes of the sound ones.
    fn fetch(&self, request: &FetchPages, bytes: &mut Buf) -> Result<FetchPagesReply, Fault>;
    /// Ranges that the other member compares with its own.
    fn compare(&self, request: &CompareRanges) -> Result<CompareRangesReply, Fault>;
    /// A step of a comparison of records.
    fn compare_records(&self, request: &CompareRecords) -> Result<CompareRecordsReply, Fault>;
    /// Damage of the other member.
    fn list_lost(&self, request: &ListLost) -> Result<ListLostReply, Fault>;
    /// A request to the MGS.
    fn ask(&self, asking: AskingOf) -> Result<AskMembersReply, Fault>;
}

/// Sends a request to the MGS, at most until the deadline. A server process has its own peer of the MGS.
pub type AskMgs = dyn Fn(&AskMembers, Instant) -> Result<AskMembersReply, Fault> + Send + Sync;

/// Over the fabric.
pub struct FabricPost {
    pub fabric: Arc<Fabric>,
    pub fs: FsId,
    pub mirror: MirrorId,
    pub me: TargetId,
    pub other: TargetId,
    pub mgs: Box<AskMgs>,
}

impl FabricPost {
    fn call<R: Request>(&self, request: &R, bulk: &[u8], within: Duration) -> Result<R::Reply, Fault> {
        self.call_into(request, bulk, &mut Buf::new(), within)
    }

    fn call_into<R: Request>(
        &self,
        request: &R,
        bulk: &[u8],
        into: &mut Buf,
        within: Duration,
    ) -> Result<R::Reply, Fault> {
        let peer = self.fabric.peer(self.other).map_err(unreached)?;
        let head = Header { fs: self.fs, ..Header::default() };
        match rpc::call(&*peer, head, request, bulk, into, Instant::now() + within) {
            Ok((_, _, reply)) => reply,
            Err(RpcError::Net(why)) => Err(unreached(why)),
            Err(why) => Err(Fault::new(Code::BadRequest, why.to_string())),
        }
    }
}

fn unreached(why: NetError) -> Fault {
    Fault::new(Code::NotReady, why.to_string())
}

impl Post for FabricPost {
    fn other(&self) -> TargetId {
        self.other
    }
    fn letters(&self, letters: Vec<Letter>) -> Result<Vec<Letter>, Fault> {
        let LettersReply { letters } =
            self.call(&Letters { mirror: self.mirror, from: self.me, letters }, &[], LETTERS)?;
        Ok(letters)
    }
    fn flush_log(&self) -> Result<Vec<Letter>, Fault> {
        let LettersReply { letters } =
            self.call(&FlushLog { mirror: self.mirror, from: self.me }, &[], FLUSH)?;
        Ok(letters)
    }
    fn stage(&self, to: Incarnation, StageId(id): StageId, pages: &[u8]) -> Result<(), Fault> {
        self.call(&Stage { mirror: self.mirror, from: self.me, to, id }, pages, MEDIUM)?;
        Ok(())
    }
    fn stage_beside(
        &self,
        to: Incarnation,
        StageId(id): StageId,
        pages: &[u8],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), Fault> {
        let (peer, mut into) = (self.fabric.peer(self.other).map_err(unreached)?, Buf::new());
        let head = Header { fs: self.fs, ..Header::default() };
        let stage = Stage { mirror: self.mirror, from: self.me, to, id };
        let mut call = rpc::prepare(head, &stage, pages, &mut into, Instant::now() + MEDIUM);
        let waits = || spent::waiting(spent::Cause::Mirror);
        let ticket = {
            let _wait = waits();
            peer.send(&mut call).map_err(unreached)?
        };
        meanwhile();
        let _wait = waits();
        let answer = peer.receive(ticket, &mut call).map_err(unreached)?;
        let (_, _, reply) =
            rpc::read::<Stage>(answer).map_err(|why| Fault::new(Code::BadRequest, why.to_string()))?;
        reply.map(drop)
    }
    fn copy_all(&self, copy: u64, part: u64) -> Result<CopyAllReply, Fault> {
        self.call(&CopyAll { mirror: self.mirror, from: self.me, copy, part }, &[], COPY)
    }
    fn fetch(&self, request: &FetchPages, bytes: &mut Buf) -> Result<FetchPagesReply, Fault> {
        self.call_into(request, &[], bytes, MEDIUM)
    }
    fn compare(&self, request: &CompareRanges) -> Result<CompareRangesReply, Fault> {
        self.call(request, &[], MEDIUM)
    }
    fn compare_records(&self, request: &CompareRecords) -> Result<CompareRecordsReply, Fault> {
        // No entry comes during a `Begin`, so programs wait for it.
        let within = if matches!(request.step, CompareStep::Begin { .. }) { LETTERS } else { MEDIUM };
        self.call(request, &[], within)
    }
    fn list_lost(&self, request: &ListLost) -> Result<ListLostReply, Fault> {
        self.call(request, &[], MEDIUM)
    }
    fn ask(&self, asking: AskingOf) -> Result<AskMembersReply, Fault> {
        let request = AskMembers { mirror: self.mirror, member: self.me, asking };
        (self.mgs)(&request, Instant::now() + LETTERS)
    }
}
