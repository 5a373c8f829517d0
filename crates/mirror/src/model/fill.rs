//! A filling beside live writes: a primary that is alone, a receiver, and letters that arrive in any order or never. Random walks with ends
//! of the receiver at any moment and a log that is trimmed; at the end all letters arrive, and the receiver must be in sync and equal.
//!
//! An entry changes a part of its object, so an object's content is the list of the live entries that made it.

use ::types::{Epoch, Incarnation};

use crate::decide::Request;
use crate::history::History;
use crate::letter::{Effect, Letter};
use crate::member::Member;
use crate::planted::{Rule, kept, without};
use crate::promise::ASK_MS;
use crate::types::{Ending, Line, MemberId, MemberState, Members, MirrorSeq, Position, Standing};

use MemberId::{A, B};

const OBJECTS: usize = 2;

type Content = [Vec<u64>; OBJECTS];

#[derive(Clone, Debug)]
enum Entry {
    Live(usize),
    Fill(usize, Vec<u64>),
    End { since: u64 },
}

/// A filling that the primary orders.
#[derive(Clone, Debug)]
struct Filling {
    life: Incarnation,
    since: Option<u64>,
    next: usize,
    end: Option<u64>,
    /// The content of the next object, as it was read (`Rule::FillsAreOrdered`).
    read: Option<Vec<u64>>,
}

struct World {
    members: [Option<Member>; 2],
    // The primary.
    log: Vec<Entry>,
    content: Content,
    trimmed: u64,
    filling: Option<Filling>,
    // The receiver, and the state that it keeps over its ends.
    filled: Content,
    standing: Standing,
    lives: u32,
    packets: Vec<(MemberId, Letter, Option<u64>)>,
    now_ms: u64,
    /// The primary has asked for the receiver to be declared in sync.
    is_joined: bool,
    budget: [u8; 3],
    rng: u64,
}

fn history(end: u64) -> History {
    let mut history = History::default();
    (1..=end).for_each(|seq| history.append(Position { line: Line(5), seq: MirrorSeq(seq) }));
    history
}

impl World {
    fn new(seed: u64) -> World {
        let map = Members { epoch: Epoch(5), primary: A, states: [MemberState::InSync, MemberState::Out] };
        let standing = Standing { map, is_whole: false, asked: None, is_filling: false };
        let mut world = World {
            members: [None, None],
            log: vec![Entry::Live(0), Entry::Live(1), Entry::Live(0)],
            content: [vec![1, 3], vec![2]],
            trimmed: 3,
            filling: None,
            filled: [vec![7], vec![]],
            standing,
            lives: 0,
            packets: vec![],
            now_ms: 10_000,
            is_joined: false,
            budget: [8, 2, 2],
            rng: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        let ending = Ending::Clean { is_free: true };
        let whole = Standing { is_whole: true, ..standing };
        let mut out = Vec::new();
        let mut a = Member::start(A, Incarnation(1), (whole, history(3)), ending, 0, &mut out);
        // It has heard of its epoch, and its promise is over.
        let newer = Members { epoch: Epoch(6), ..map };
        a.on_map(newer, 0, &mut out);
        world.standing.map = newer;
        world.members[0] = Some(a);
        world.start();
        world
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng % limit
    }

    /// The receiver's next life. Its log says nothing while it is filling.
    fn start(&mut self) {
        self.lives += 1;
        let is_filling = self.standing.is_filling && kept(Rule::FillingRecorded);
        let end = self.members[1].as_ref().map_or(0, |member| member.history().end().seq.0);
        let known = self.members[0].as_ref().expect("it lives").history().clone();
        let history = if is_filling || end == 0 { History::default() } else { cut(known, end) };
        let standing = Standing { is_filling, ..self.standing };
        let (mut out, life) = (Vec::new(), Incarnation(100 + self.lives));
        let member = Member::start(B, life, (standing, history), Ending::Killed, self.now_ms, &mut out);
        self.members[1] = Some(member);
        self.carry_out(B, None, out);
    }

    fn event(
        &mut self,
        m: MemberId,
        entry: Option<u64>,
        run: impl FnOnce(&mut Member, u64, &mut Vec<Effect>),
    ) {
        let mut out = Vec::new();
        let now_ms = self.now_ms;
        run(self.members[m.index()].as_mut().expect("it lives"), now_ms, &mut out);
        self.carry_out(m, entry, out);
    }

    fn carry_out(&mut self, m: MemberId, entry: Option<u64>, out: Vec<Effect>) {
        let (mut ended, mut asked) = (None, None);
        for effect in out {
            match effect {
                Effect::Record if m == B => {
                    self.standing = *self.members[1].as_ref().expect("it lives").standing();
                }
                Effect::Append(at) => {
                    assert_eq!(Some(at.seq.0), entry, "an entry travels with its content");
                    ended = self.apply(at.seq.0);
                }
                Effect::Refill => self.filled = Content::default(),
                Effect::Ship(_) => self.ship(),
                Effect::Outlive(_) => unreachable!("numbers of lives rise here"),
                Effect::Send(letter) => self.packets.push((m.other(), letter, None)),
                Effect::Request(Request::InSync { .. }) => self.is_joined = true,
                // The MGS has it alone, as it was.
                Effect::Request(Request::Ask { epoch, .. }) => {
                    asked = Some(Members { epoch: Epoch(epoch.0 + 1), ..self.standing.map });
                }
                Effect::Record | Effect::Flush | Effect::Cut(_) | Effect::Request(_) => {}
            }
        }
        if let Some(map) = asked {
            self.event(A, None, |member, now_ms, out| member.on_map(map, now_ms, out));
        }
        if let Some(since) = ended {
            self.event(B, None, |member, _, out| member.on_filled(MirrorSeq(since), out));
        }
        if self.packets.len() > 12 {
            let n = self.below(self.packets.len() as u64) as usize;
            self.packets.remove(n);
        }
    }

    /// The receiver's part of an entry. Returns the first entry of a filling that it ends.
    fn apply(&mut self, seq: u64) -> Option<u64> {
        match &self.log[seq as usize - 1] {
            Entry::Live(object) => self.filled[*object].push(seq),
            Entry::Fill(object, content) => self.filled[*object] = content.clone(),
            Entry::End { since } => return Some(*since),
        }
        None
    }

    /// Sends the entries that the log still has behind what the receiver has.
    fn ship(&mut self) {
        let a = self.members[0].as_ref().expect("it lives");
        let Some(acked) = a.peer_acked().filter(|acked| acked.0 >= self.trimmed) else { return };
        for seq in acked.0 + 1..=(self.log.len() as u64).min(acked.0 + 3) {
            let letter = a.entry(MirrorSeq(seq), MirrorSeq(seq));
            self.packets.push((B, letter, Some(seq)));
        }
    }

    fn order(&mut self, entry: Entry) -> Option<u64> {
        let a = self.members[0].as_mut().expect("it lives");
        let (_, at) = a.order(self.now_ms, 1)?;
        if let Entry::Live(object) = entry {
            self.content[object].push(at.seq.0);
        }
        self.log.push(entry);
        assert_eq!(self.log.len() as u64, at.seq.0, "the log has each entry");
        Some(at.seq.0)
    }

    /// The next step of the primary's filling, as a seat takes it.
    fn fill(&mut self) {
        let a = self.members[0].as_ref().expect("it lives");
        let Some((life, acked)) = a.fills() else {
            self.filling = None;
            return;
        };
        let is_over = |f: &Filling| f.life != life || f.end.is_some_and(|end| end <= acked.0);
        if self.filling.as_ref().is_none_or(is_over) {
            self.filling = Some(Filling { life, since: None, next: 0, end: None, read: None });
        }
        let mut filling = self.filling.take().expect("it was set");
        let last = if kept(Rule::EndIsLast) { OBJECTS } else { OBJECTS - 1 };
        if filling.next < last {
            let now = self.content[filling.next].clone();
            let read = filling.read.take();
            if !kept(Rule::FillsAreOrdered) && read.is_none() {
                filling.read = Some(now);
            } else {
                let seq = self.order(Entry::Fill(filling.next, read.unwrap_or(now)));
                // Refused while the primary may not order.
                filling.since = filling.since.or(seq);
                filling.next += usize::from(seq.is_some());
            }
        } else if let (None, Some(since)) = (filling.end, filling.since) {
            filling.end = self.order(Entry::End { since });
        }
        self.filling = Some(filling);
    }

    fn deliver(&mut self, n: usize, is_copied: bool) {
        let packet = self.packets[n].clone();
        if !is_copied {
            self.packets.remove(n);
        }
        let (to, letter, entry) = packet;
        let trimmed = self.trimmed;
        self.members[0].as_mut().expect("it lives").on_trimmed(MirrorSeq(trimmed + 1));
        self.event(to, entry, |member, now_ms, out| member.on_letter(letter, now_ms, out));
    }

    fn tick(&mut self, m: MemberId) {
        let trimmed = self.trimmed;
        self.event(m, None, |member, now_ms, out| {
            if m == A {
                member.on_trimmed(MirrorSeq(trimmed + 1));
            }
            member.on_tick(now_ms, out);
        });
    }

    fn act(&mut self) {
        match self.below(20) {
            0..8 if !self.packets.is_empty() => {
                let (n, is_copied) = (self.below(self.packets.len() as u64) as usize, self.below(8) == 0);
                self.deliver(n, is_copied);
            }
            8..11 => self.fill(),
            11 | 12 if self.budget[0] > 0 => {
                self.budget[0] -= 1;
                let object = self.below(OBJECTS as u64) as usize;
                self.order(Entry::Live(object));
            }
            13 if self.budget[1] > 0 => {
                self.budget[1] -= 1;
                self.start();
            }
            14 if self.budget[2] > 0 && !self.is_joined => {
                self.budget[2] -= 1;
                // An entry that is under way is in no checkpoint.
                let a = self.members[0].as_ref().expect("it lives");
                self.trimmed = self.trimmed.max(a.answerable(self.now_ms).0);
            }
            15 | 16 => {
                self.now_ms += ASK_MS;
                self.tick(A);
            }
            17 => self.tick(B),
            18 if !self.packets.is_empty() => {
                let n = self.below(self.packets.len() as u64) as usize;
                self.packets.remove(n);
            }
            _ => {}
        }
    }

    /// A member that is not filled any more has what the log up to its end makes.
    fn check(&self) -> Result<(), String> {
        let b = self.members[1].as_ref().expect("it lives");
        if b.standing().is_filling || !b.is_streaming() {
            return Ok(());
        }
        let end = b.history().end().seq.0;
        let want = self
            .content
            .clone()
            .map(|object| -> Vec<u64> { object.into_iter().filter(|seq| *seq <= end).collect() });
        if self.filled == want { Ok(()) } else { Err(format!("{:?} is not {want:?}", self.filled)) }
    }
}

fn cut(mut history: History, end: u64) -> History {
    history.cut(MirrorSeq(end));
    history
}

fn walk(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed);
    for _ in 0..150 {
        world.act();
        world.check()?;
    }
    // All is well from here on.
    for _ in 0..60 {
        world.now_ms += ASK_MS;
        world.tick(A);
        world.tick(B);
        for _ in 0..4 {
            world.fill();
            while !world.packets.is_empty() {
                world.deliver(0, false);
                world.check()?;
            }
        }
    }
    let b = world.members[1].as_ref().expect("it lives");
    if !world.is_joined || b.standing().is_filling || b.history().end().seq.0 != world.log.len() as u64 {
        let a = &world.members[0];
        return Err(format!("it is not in sync: {b:?}, {a:?}, {:?}", world.log));
    }
    world.check()
}

fn walks() -> u64 {
    if std::env::var_os("STRIA_LONG").is_some() { 500_000 } else { 5_000 }
}

#[test]
fn contents_are_equal_once_a_member_is_filled() {
    for seed in 0..walks() {
        walk(seed).unwrap_or_else(|e| panic!("walk {seed}: {e}"));
    }
}

#[test]
fn planted_faults_of_a_filling_are_found() {
    for rule in [
        Rule::FillsAreOrdered,
        Rule::EndIsLast,
        Rule::FillingRecorded,
        Rule::FillingIsWhole,
        Rule::LateFillsAreVoid,
    ] {
        let found = without(rule, || {
            (0..walks()).find(|seed| {
                let walked = std::panic::catch_unwind(|| walk(*seed));
                walked.is_err() || walked.is_ok_and(|result| result.is_err())
            })
        });
        assert!(found.is_some(), "the walks do not show that {rule:?} is gone");
    }
}
