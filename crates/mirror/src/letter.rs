//! Messages between the two members, and the effects that a member asks of its daemon.

use ::types::Incarnation;

use crate::decide::Request;
use crate::history::History;
use crate::promise::Token;
use crate::types::{Ends, Members, MirrorSeq, Position};

/// One message to the other member. Each carries the sender's map, so that a newer one spreads without the MGS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Letter {
    pub map: Members,
    pub ends: Ends,
    pub note: Note,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// The greeting of a life, and whatever the primary needs to know to begin a stream of entries.
    Hello {
        history: History,
        flushed: MirrorSeq,
        is_whole: bool,
        is_filling: bool,
    },
    /// From the primary: entries follow; the receiver cuts its log after this one.
    Start {
        after: Position,
    },
    /// From the primary: it is not known what the logs share. The receiver takes over this history, entries follow, fills among them.
    Fill {
        history: History,
    },
    /// An entry, behind the one before it. Its content travels with it.
    Entry {
        before: Position,
        at: Position,
    },
    /// All entries up to `end` are in the log, those up to `flushed` are durable.
    Ack {
        end: MirrorSeq,
        flushed: MirrorSeq,
        is_whole: bool,
        is_filling: bool,
    },
    /// From the primary, which is bound to both now (mirror-J2): flush up to here, and be whole.
    Join {
        up_to: MirrorSeq,
    },
    /// Asks for a promise not to act alone.
    Ask(Token),
    Promise(Token),
    Return(Token),
    /// A planned stop: the sender serves no more, and the other is to ask for the mirror.
    Leaving,
}

/// The daemon carries effects out in order, each completely, before it gives the member another event. If one fails, the member has ended:
/// the daemon stops serving this target and starts it anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Make the standing durable.
    Record,
    /// Flush the log up to its end.
    Flush,
    /// Durably drop the entries after this one from the log, with what they did.
    Cut(MirrorSeq),
    /// Append and apply the entry that came with this letter.
    Append(Position),
    /// Send the entries after this one, in order (`Member::entry`).
    Ship(MirrorSeq),
    /// Become empty, with a log that goes on behind the end of the history. `Member::on_filled` follows with the last entry of a filling. A
    /// target that cannot do so beside its work ends its life, and takes a copy.
    Refill,
    /// mirror-O6: this life has the number of an earlier one. End it, and begin one above this number.
    Outlive(Incarnation),
    Send(Letter),
    Request(Request),
}
