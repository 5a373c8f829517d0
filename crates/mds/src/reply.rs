//! Shared by all call handlers: parsing of a request's body, the outcome of a call, and a common refusal.

use std::sync::Arc;

use types::{Code, Fault, Seq};
use wire::{Malformed, Wire};

/// A request that was carried out, now or earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The reply's body without its head. Empty for a request older than its slot's last.
    pub reply: Arc<[u8]>,
    /// Of the operation in the log; 0 if nothing changed.
    pub seq: Seq,
}

pub fn parse<T: Wire>(body: &[u8]) -> Result<T, Fault> {
    T::from_bytes(body)
        .map_err(|Malformed(what)| Fault::new(Code::BadRequest, format!("the request's body: {what}")))
}

/// A reply without a log entry.
pub fn plain<T: Wire>(reply: T) -> Done {
    Done { reply: Arc::from(reply.to_bytes()), seq: Seq(0) }
}

/// The refusal of a mutating request without a session.
pub fn refuse_observer() -> Fault {
    Fault::new(
        Code::BadRequest,
        "a request that changes things needs a session; observers may only read and flush",
    )
}
