//! Requests that this end of a connection sends: a server's over the line of a listener, and a listener's first one.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use types::Buf;
use wire::frame::PING;
use wire::{Flags, Header, Malformed};

use super::{Engine, reply_to};
use crate::connection::Connection;
use crate::counts::Way;
use crate::incoming::Frame;
use crate::known::Endpoint;
use crate::later::Answer;
use crate::limits::{Limits, Origin, Share};
use crate::line::{ANSWER_MAX, Answered, SendBack};
use crate::node::Dialled;
use crate::outgoing::{Bulk, Left, When};
use crate::socket::{Gone, tune};
use crate::{Hub, Line, Service};

/// Bounds of a process that listens: notices are short and seldom.
const LISTENER: Limits = Limits { connections: 65_536, workers: 2, memory: 16 << 20, frames: 256 };

/// One end of a connection, which sends requests.
struct Back {
    engine: Weak<Engine>,
    connection: Weak<Connection>,
}

impl Back {
    fn line(engine: &Engine, connection: &Arc<Connection>) -> Line {
        Line(Arc::new(Back { engine: engine.me.clone(), connection: Arc::downgrade(connection) }))
    }
    fn both(&self) -> Option<(Arc<Engine>, Arc<Connection>)> {
        let connection = self.connection.upgrade().filter(|c| !c.is_closed.load(Ordering::SeqCst))?;
        Some((self.engine.upgrade()?, connection))
    }
}

impl SendBack for Back {
    fn send(&self, head: &Header, body: &[u8]) -> bool {
        self.both().is_some_and(|(engine, connection)| engine.send_back(&connection, head, body))
    }
    fn is_open(&self) -> bool {
        self.both().is_some()
    }
    fn close(&self) {
        self.both().iter().for_each(|(engine, connection)| engine.close(connection));
    }
}

impl Engine {
    /// The engine of a process that listens.
    pub fn listener() -> io::Result<Arc<Engine>> {
        Engine::of((Hub::new(), "a line".into()), LISTENER, None, true)
    }

    /// Takes a connection that was dialled. `heard` serves what the other end sends over it.
    pub fn adopt(&self, dialled: Dialled, heard: Arc<dyn Service>, answered: Answered) -> io::Result<Line> {
        let Dialled { channel, entry, meter, certificate, .. } = dialled;
        let seat = self
            .budget
            .seat(Origin::of(&channel.socket))
            .ok_or_else(|| io::Error::other("too many lines"))?;
        tune(&channel.socket, super::LINGER)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        // No service is asked for the endpoint of a server that this process dialled.
        let endpoint = Endpoint::local();
        let connection = Connection::new(id, channel, endpoint, seat, self.now_ms()).dialled(
            (entry, meter, certificate),
            heard,
            answered,
        );
        let connection = Arc::new(connection);
        let line = Back::line(self, &connection);
        self.watch_new(connection)?;
        Ok(line)
    }

    /// The line to the other end of `connection`. `None`: it was taken before.
    pub(super) fn line(&self, connection: &Arc<Connection>, answered: Answered) -> Option<Line> {
        connection.answered.set(answered).ok()?;
        Some(Back::line(self, connection))
    }

    /// net-B1: sends a request, or closes the connection.
    fn send_back(&self, connection: &Arc<Connection>, head: &Header, body: &[u8]) -> bool {
        let raw = head.encode(body);
        let hold = || connection.seat.take(raw.len() + body.len()).map(|share| (share, None));
        let (channel, bulk) = (&connection.channel, Bulk::Lent(&[]));
        match connection.outgoing.write(channel, [&raw, body], bulk, hold, When::now(), &mut || false) {
            Ok(left @ (Left::All | Left::Queued)) => {
                connection.meter.frame(Way::Out, head);
                if left == Left::Queued {
                    self.watch_for_space(connection);
                }
                true
            }
            Ok(Left::Nothing) => unreachable!("a frame that may be queued is taken"),
            Err(gone) => {
                self.close_because(connection, gone);
                false
            }
        }
    }

    /// Answers a ping, or hands an answer to the sender of its request.
    pub(super) fn take_at_once(&self, connection: &Arc<Connection>, frame: Frame<Share>) -> Result<(), Gone> {
        let Frame { head, body, bulk, share } = frame;
        if head.flags & Flags::REPLY == 0 {
            self.answer(connection, reply_to(&head), &[], &mut Buf::new(), share, self.may_sleep());
            return Ok(());
        }
        let answered = connection.answered.get().ok_or(Malformed("an answer to no request"))?;
        if body.len() > ANSWER_MAX || !bulk.is_empty() {
            return Err(Malformed("length of an answer over a line").into());
        }
        if head.call != PING {
            answered(&head, &body);
        }
        Ok(())
    }

    /// Ends the engine, and waits for none of its threads.
    pub fn end(&self) {
        self.begin_stop();
        self.stop(Duration::ZERO, Duration::ZERO);
    }
}

/// Serves a request that came over a line.
pub(super) fn serve_line(
    heard: &dyn Service,
    head: &Header,
    body: &[u8],
    bulk: &mut Buf,
) -> Option<(Header, Vec<u8>)> {
    let mut answer = Answer::new(reply_to(head), bulk);
    heard.serve(head, body, &[], &mut answer);
    answer.end(head)
}
