//! A server's process as its clients see it: after a kill, a refusal takes the place of each pending reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use net::{Answer, Service};
use types::{Code, Fault, Seq};
use wire::notice::Listen;
use wire::{Empty, Header, ReplyHead, Request};

/// Requests that are under way at the kill go on in this process, on a medium whose image was taken: a flush would vouch for
/// bytes that the image lacks. Their answers are put in place by a word to try again.
pub struct Mortal {
    inner: Arc<dyn Service>,
    is_dead: AtomicBool,
    /// False: it refuses lines for notices, so that clients hear of changes by their keep-alives only.
    has_lines: bool,
}

impl Mortal {
    pub fn new(inner: Arc<dyn Service>, has_lines: bool) -> Arc<Mortal> {
        Arc::new(Mortal { inner, is_dead: AtomicBool::new(false), has_lines })
    }

    /// From here on each reply is replaced by a refusal. Call it before the image is taken: the image then has all that was acknowledged.
    pub fn die(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
    }
}

impl Service for Mortal {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        let is_refused = head.call == Listen::CALL && !self.has_lines;
        if !is_refused {
            self.inner.serve(head, body, bulk, answer);
        }
        if is_refused || self.is_dead.load(Ordering::SeqCst) {
            let fault = Fault::new(Code::NotReady, "this server was killed; try again");
            answer.bulk.clear();
            answer.body = wire::encode_reply(&ReplyHead::refused(&fault, Seq(0)), None::<&Empty>);
        }
    }
}
