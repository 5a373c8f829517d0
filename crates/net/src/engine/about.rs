//! Answers about the process itself, for `stria net`.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use types::{Code, Fault, Seq};
use wire::fabric::{NetStat, NetStatReply, NetTrace, PEERS_MAX};
use wire::{Empty, Flags, Header, ReplyHead, Request, Wire, encode_reply};

use super::{Engine, reply_to};
use crate::connection::Connection;
use crate::counts::PeerCounts;
use crate::later::refuse;

pub(super) fn is_about_the_process(call: u16) -> bool {
    matches!(call, NetStat::CALL | NetTrace::CALL)
}

impl Engine {
    /// Answers `NetStat` or `NetTrace`.
    pub(super) fn about(&self, connection: &Connection, head: &Header, body: &[u8]) -> (Header, Vec<u8>) {
        let done = ReplyHead::done(Seq(0), Seq(0));
        // pki-R1.
        let stranger = connection.channel.known().filter(|known| !pki::may(known.sender().role, head.call));
        let body = match head.call {
            _ if let Some(known) = stranger => {
                let why = refuse(known, pki::refusal(known.identity(), head.call));
                encode_reply(&ReplyHead::refused(&Fault::new(Code::Access, why), Seq(0)), None::<&Empty>)
            }
            NetStat::CALL => encode_reply(&done, Some(&self.stat())),
            _ => match NetTrace::from_bytes(body) {
                Ok(request) => encode_reply(&done, Some(&self.budget.trace.read(&request))),
                Err(why) => {
                    let fault = Fault::new(Code::BadRequest, format!("the request's body: {}", why.0));
                    encode_reply(&ReplyHead::refused(&fault, Seq(0)), None::<&Empty>)
                }
            },
        };
        let mut reply = reply_to(head);
        reply.flags |= Flags::REPLY;
        reply.body_len = body.len() as u32;
        (reply, body)
    }

    fn stat(&self) -> NetStatReply {
        let mut under_way = HashMap::<*const PeerCounts, usize>::new();
        for connection in self.all() {
            let requests = connection.under_way.load(Ordering::Relaxed);
            *under_way.entry(Arc::as_ptr(connection.meter.of())).or_default() += requests;
        }
        let mut peers = self.budget.stat(&under_way);
        peers.sort_by_key(|peer| Reverse(peer.frames_in));
        let others = peers.len().saturating_sub(PEERS_MAX) as u32;
        peers.truncate(PEERS_MAX);
        let mut links = self.budget.links(Instant::now());
        links.truncate(PEERS_MAX);
        NetStatReply {
            workers: self.workers() as u32,
            connections: self.open() as u32,
            memory_bytes: self.budget.bytes() as u64,
            memory_bytes_max: self.budget.limits.memory as u64,
            peers,
            others,
            links,
        }
    }
}
