//! Answers, now or later.

use std::sync::Arc;

use pki::Identity;
use types::{Buf, Code, Fault};
use wire::{Flags, Header};

use crate::calls::{Begun, Calls};
use crate::known::{Endpoint, Known, Sender};
use crate::line::{Answered, SendBack};

/// Nearly every reply fits, so that its buffer does not grow (decision 0037).
const REPLY_BYTES: usize = 512;

/// A service's answer.
pub struct Answer<'a> {
    pub head: Header,
    pub body: Vec<u8>,
    pub bulk: &'a mut Buf,
    parking: Option<&'a dyn Parking>,
    is_parked: bool,
    /// The place where the request is counted, and when it came.
    pub(crate) counted: Option<(&'a Arc<Calls>, Begun)>,
}

/// A transport's part of an answer that comes later.
pub(crate) trait Parking {
    /// Takes the request's place out of its thread. `None`: it must be answered now.
    fn park(&self) -> Option<Deliver>;
    /// The request comes from this process.
    fn is_local(&self) -> bool {
        false
    }
    /// See `Answer::sender`.
    fn sender(&self) -> Option<Sender> {
        None
    }
    /// Lends what is known of the other end.
    fn with_known(&self, _look: &mut dyn FnMut(&Known)) {}
    /// See `Answer::endpoint`.
    fn endpoint(&self) -> Endpoint {
        Endpoint::local()
    }
    /// See `Answer::line`.
    fn line(&self, answered: Answered) -> Option<Line>;
}

/// The way back to the process that sent a request: `send` sends it requests (see `line.rs`).
#[derive(Clone)]
pub struct Line(pub(crate) Arc<dyn SendBack>);

impl Line {
    /// Sends a request. `head.request` pairs it with its answer. False: the line is closed.
    pub fn send(&self, head: &Header, body: &[u8]) -> bool {
        debug_assert_eq!(
            (head.body_len as usize, head.bulk_len),
            (body.len(), 0),
            "the header tells the lengths"
        );
        self.0.send(head, body)
    }
    pub fn is_open(&self) -> bool {
        self.0.is_open()
    }
}

/// Sends an answer. Dropped without a call, the request ends without one.
pub(crate) type Deliver = Box<dyn FnOnce(Header, Vec<u8>, Buf) + Send>;

/// The right to answer a request after its service returned, from any thread. Dropped, the client hears that there is no answer.
pub struct Later {
    head: Header,
    deliver: Deliver,
    counted: Option<(Arc<Calls>, Begun)>,
}

impl<'a> Answer<'a> {
    /// An empty answer with this head, for a service that is called without a transport. It cannot come later.
    pub fn new(head: Header, bulk: &'a mut Buf) -> Answer<'a> {
        bulk.clear();
        Answer {
            head,
            body: Vec::with_capacity(REPLY_BYTES),
            bulk,
            parking: None,
            is_parked: false,
            counted: None,
        }
    }

    pub(crate) fn parkable(head: Header, bulk: &'a mut Buf, parking: &'a dyn Parking) -> Answer<'a> {
        Answer { parking: Some(parking), ..Answer::new(head, bulk) }
    }

    /// Parks the request: the service returns at once, and the answer is given by `Later::answer`. `None`: this call must be answered now.
    pub fn later(&mut self) -> Option<Later> {
        let deliver = self.parking?.park()?;
        self.parking = None;
        self.is_parked = true;
        let counted = self.counted.map(|(calls, begun)| (calls.clone(), begun.parked()));
        Some(Later { head: self.head, deliver, counted })
    }

    /// Counts an operation of a request that has several, for the statistics of jobs.
    pub fn count_part(&self, call: u16, bulk_len: u32) {
        if let Some((calls, begun)) = self.counted {
            calls.count_part(begun, call, bulk_len.into());
        }
    }

    /// Takes the line to the process that sent this request, for later requests to it. `None`: the process does not listen on this
    /// connection, or its line was taken before.
    pub fn line(&mut self, answered: Answered) -> Option<Line> {
        self.parking?.line(answered)
    }

    /// The sender by its certificate. `None`: its connection has no TLS, or the request comes from this process.
    pub fn peer(&self) -> Option<Identity> {
        let mut peer = None;
        self.parking?.with_known(&mut |known| peer = Some(known.identity().clone()));
        peer
    }

    /// The role and the identity of the sender, without an allocation. `None` as for `peer`.
    pub fn sender(&self) -> Option<Sender> {
        self.parking?.sender()
    }

    /// The place that the request comes from.
    pub fn endpoint(&self) -> Endpoint {
        self.parking.map_or_else(Endpoint::local, Parking::endpoint)
    }

    /// pki-R1: refuses a call that the sender's role may not make. Without a certificate all calls are allowed.
    pub fn check_role(&self, call: u16) -> Result<(), Fault> {
        match self.sender() {
            Some(sender) if !pki::may(sender.role, call) => Err(self.refuse(|who| pki::refusal(who, call))),
            _ => Ok(()),
        }
    }

    /// A refusal for the sender; `why` makes its text. The log tells the first one of each connection.
    pub fn refuse(&self, why: impl Fn(&Identity) -> String) -> Fault {
        let mut told = String::new();
        if let Some(parking) = self.parking {
            parking.with_known(&mut |known| told = refuse(known, why(known.identity())));
        }
        Fault::new(Code::Access, told)
    }

    /// True if the request comes from this process.
    pub fn is_local(&self) -> bool {
        self.parking.is_some_and(Parking::is_local)
    }

    /// True if the answer comes later.
    pub fn is_parked(&self) -> bool {
        self.is_parked
    }

    /// The whole answer to `request`, or `None` if it comes later.
    pub(crate) fn end(self, request: &Header) -> Option<(Header, Vec<u8>)> {
        let Answer { head: mut reply, body, bulk, is_parked, .. } = self;
        if is_parked {
            bulk.clear();
            return None;
        }
        assert_eq!(reply.request, request.request, "a service answers the request that it was given");
        assert_eq!(reply.target, request.target, "a service answers for the target that was asked");
        reply.flags |= Flags::REPLY;
        reply.body_len = body.len() as u32;
        reply.bulk_len = bulk.len() as u32;
        Some((reply, body))
    }
}

/// Logs the first refusal of a connection.
pub(crate) fn refuse(known: &Known, why: String) -> String {
    if known.is_first_refusal() {
        tracing::warn!("a request was refused: {why}");
    }
    why
}

/// Lends a test's identity.
#[cfg(any(test, feature = "testing"))]
impl Parking for Known {
    fn endpoint(&self) -> Endpoint {
        Endpoint { net: "tcp0".into(), address: Some(std::net::Ipv4Addr::new(10, 0, 0, 7).into()) }
    }
    fn park(&self) -> Option<Deliver> {
        None
    }
    fn sender(&self) -> Option<Sender> {
        Some(Known::sender(self))
    }
    fn with_known(&self, look: &mut dyn FnMut(&Known)) {
        look(self);
    }
    fn line(&self, _: Answered) -> Option<Line> {
        None
    }
}

#[cfg(any(test, feature = "testing"))]
impl<'a> Answer<'a> {
    /// As `new`, for a request of this sender.
    pub fn to(known: &'a Known, head: Header, bulk: &'a mut Buf) -> Answer<'a> {
        Answer { parking: Some(known), ..Answer::new(head, bulk) }
    }
}

impl Later {
    /// The head of the answer, as the service left it when it parked.
    pub fn head(&self) -> &Header {
        &self.head
    }

    /// Answers the request. `fill` makes the answer.
    pub fn answer(self, fill: impl FnOnce(&mut Answer<'_>)) {
        let mut bulk = Buf::new();
        let mut answer = Answer::new(self.head, &mut bulk);
        fill(&mut answer);
        if let Some((head, body)) = answer.end(&self.head) {
            if let Some((calls, begun)) = &self.counted {
                calls.count(*begun, &head, &body);
            }
            (self.deliver)(head, body, bulk);
        }
    }
}
