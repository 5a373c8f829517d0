//! A mirror in a world that fails: two members with logs and clocks of their own, an MGS, a network, clients that write and read registers.
//!
//! An action is one step of one part; whatever no action touches stands still, so pauses of a member are in every order of actions. Letters
//! arrive in any order or never. A loss of power takes any log back to its flushed part.
//!
//! Clients are judged at once: a read begins and ends in one step, and a write is answered as soon as it may be. A slower client sees less.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use ::types::{Epoch, Incarnation};

use crate::decide::{Reports, Request, Verdict, next_members};
use crate::history::History;
use crate::letter::{Effect, Letter, Note};
use crate::member::Member;
use crate::promise::{ASK_MS, Token};
use crate::reads::Read;
use crate::types::{Ending, MemberId, MemberState, Members, MirrorSeq, Position, Role, Standing};

pub type Broken = String;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub at: Position,
    /// The index of its write.
    pub write: usize,
}

/// A host with a target of the mirror.
#[derive(Clone, Hash)]
struct Host {
    /// `None`: stopped.
    member: Option<Member>,
    log: Vec<Entry>,
    /// So many entries are flushed.
    durable: usize,
    standing: Standing,
    life: u32,
    ending: Ending,
    /// Its CLOCK_BOOTTIME is the world's time plus this. A reset of the host sets it anew.
    offset_ms: i64,
}

#[derive(Clone, Debug, Hash)]
enum Packet {
    Letter(MemberId, Letter, Option<usize>),
    Request(MemberId, Request),
    Map(MemberId, Members),
}

/// A write, as the world knows it.
#[derive(Clone, Debug, Hash)]
struct Write {
    register: u8,
    at: Position,
    /// The member that took it, in that life.
    by: (MemberId, Incarnation),
    /// A client has its answer, or has read it.
    is_seen: bool,
    is_flushed: bool,
    /// Every in-sync member lost it before it was flushed.
    is_lost: bool,
}

/// Faults and steps that are still allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    pub writes: u8,
    pub steps: u8,
    pub ticks: u8,
    pub flushes: u8,
    pub drops: u8,
    pub kills: u8,
    pub power: u8,
    pub leaves: u8,
    /// Processes that have begun to stop.
    pub expects: u8,
    /// Starts under numbers that earlier lives had.
    pub lows: u8,
    /// Changes between out and resyncing.
    pub tells: u8,
    /// Most packets under way; what is sent beyond is lost.
    pub packets: u8,
    /// How far a step goes.
    pub step_ms: u64,
    /// Most sequences that an entry takes.
    pub seqs: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time goes on.
    Step,
    Tick(MemberId),
    Write(MemberId, u8),
    Read(MemberId, u8),
    Flush(MemberId),
    Deliver(usize),
    Drop(usize),
    Kill(MemberId),
    PowerLoss(MemberId),
    Leave(MemberId),
    /// Its process has begun to stop (mirror-E5).
    Expect(MemberId),
    /// The one that is alone has the map say that the other is being brought up to date, or is not.
    Tell(MemberId, bool),
    Stop(MemberId),
    Start(MemberId),
    /// Its number of lives is put back.
    StartLow(MemberId),
}

#[derive(Clone)]
pub struct World {
    now_ms: u64,
    hosts: [Host; 2],
    map: Members,
    reports: Reports,
    packets: Vec<Packet>,
    writes: Vec<Write>,
    pub budget: Budget,
}

const REGISTERS: u8 = 2;

impl World {
    /// A pair in contact, with nothing written.
    pub fn new(budget: Budget) -> World {
        let map = Members { epoch: Epoch(1), primary: MemberId::A, states: [MemberState::InSync; 2] };
        let standing = Standing { map, is_whole: true, asked: None, is_filling: false };
        let host = |offset_ms| Host {
            member: None,
            log: Vec::new(),
            durable: 0,
            standing,
            life: 0,
            ending: Ending::Clean { is_free: true },
            offset_ms,
        };
        let mut world = World {
            now_ms: 1_000_000,
            hosts: [host(0), host(777_000)],
            map,
            reports: Reports::default(),
            packets: Vec::new(),
            writes: Vec::new(),
            budget: Budget { packets: u8::MAX, ..budget },
        };
        for member in MemberId::BOTH {
            world.start(member);
        }
        world.rounds(2, &MemberId::BOTH).expect("nothing fails");
        assert_eq!(MemberId::BOTH.map(|m| world.role(m)), [Role::Primary, Role::Backup]);
        world.budget.packets = budget.packets;
        world
    }

    /// The same without packets under way.
    pub fn hushed(mut self) -> World {
        self.packets.clear();
        self
    }
    /// Is a member alone by the map, and bound to both?
    pub fn is_joining(&self, m: MemberId) -> bool {
        self.map.is_sole(m) && self.role(m) == Role::Primary
    }
    /// By the MGS.
    pub fn is_pair(&self) -> bool {
        self.map.is_pair()
    }
    pub fn is_quiet(&self) -> bool {
        self.packets.is_empty()
    }

    fn clock(&self, m: MemberId) -> u64 {
        self.now_ms.saturating_add_signed(self.hosts[m.index()].offset_ms)
    }
    fn host(&mut self, m: MemberId) -> &mut Host {
        &mut self.hosts[m.index()]
    }
    fn member(&self, m: MemberId) -> Option<&Member> {
        self.hosts[m.index()].member.as_ref()
    }
    pub fn role(&self, m: MemberId) -> Role {
        self.member(m).map_or(Role::Stopped, |member| member.role(self.clock(m)))
    }

    /// The actions that may come next.
    pub fn actions(&self) -> Vec<Action> {
        let mut all = Vec::new();
        let left = &self.budget;
        if left.steps > 0 {
            all.push(Action::Step);
        }
        for m in MemberId::BOTH {
            let Some(_) = self.member(m) else {
                all.push(Action::Start(m));
                // The very number that the other one knows could not be told from that life: daemons number lives with gaps.
                let low = self.hosts[m.index()].life.saturating_sub(1);
                let known = self.member(m.other()).and_then(Member::peer_life);
                if left.lows > 0 && low > 0 && known != Some(Incarnation(low)) {
                    all.push(Action::StartLow(m));
                }
                continue;
            };
            let role = self.role(m);
            if left.ticks > 0 {
                all.push(Action::Tick(m));
            }
            for register in 0..REGISTERS {
                if left.writes > 0 && role.orders() {
                    all.push(Action::Write(m, register));
                }
                if role.orders() || role == Role::Backup {
                    all.push(Action::Read(m, register));
                }
            }
            let host = &self.hosts[m.index()];
            if left.flushes > 0 && host.durable < host.log.len() {
                all.push(Action::Flush(m));
            }
            if left.kills > 0 {
                all.push(Action::Kill(m));
            }
            if left.power > 0 {
                all.push(Action::PowerLoss(m));
            }
            if left.tells > 0 && role == Role::Alone {
                all.push(Action::Tell(m, true));
                all.push(Action::Tell(m, false));
            }
            if left.expects > 0 && self.member(m).is_some_and(|member| !member.is_stopping) {
                all.push(Action::Expect(m));
            }
            if left.leaves > 0 {
                all.push(Action::Leave(m));
                all.push(Action::Stop(m));
            }
        }
        for packet in 0..self.packets.len() {
            all.push(Action::Deliver(packet));
            if left.drops > 0 {
                all.push(Action::Drop(packet));
            }
        }
        all
    }

    pub fn run(&mut self, action: Action) -> Result<(), Broken> {
        match action {
            Action::Step => {
                self.budget.steps -= 1;
                self.now_ms += self.budget.step_ms;
            }
            Action::Tick(m) => {
                self.budget.ticks -= 1;
                self.event(m, None, |member, now, out| member.on_tick(now, out));
            }
            Action::Write(m, register) => {
                self.budget.writes -= 1;
                self.write(m, register);
            }
            Action::Read(m, register) => self.read(m, register)?,
            Action::Flush(m) => {
                self.budget.flushes -= 1;
                self.flush(m);
            }
            Action::Deliver(n) => self.deliver(n),
            Action::Drop(n) => {
                self.budget.drops -= 1;
                self.packets.remove(n);
            }
            Action::Kill(m) => {
                self.budget.kills -= 1;
                self.end(m, Ending::Killed);
            }
            Action::PowerLoss(m) => {
                self.budget.power -= 1;
                self.power_loss(m);
            }
            Action::Leave(m) => {
                self.budget.leaves -= 1;
                self.flush(m);
                self.event(m, None, |member, now, out| member.on_leave(now, out));
            }
            Action::Expect(m) => {
                self.budget.expects -= 1;
                self.event(m, None, |member, _, _| member.on_stopping());
            }
            Action::Tell(m, is_under_way) => {
                self.budget.tells -= 1;
                let epoch = self.member(m).expect("it is alone").map().epoch;
                self.send(Packet::Request(m, Request::Resyncing { epoch, is_under_way }));
            }
            Action::Stop(m) => {
                self.budget.leaves -= 1;
                self.stop(m);
            }
            Action::Start(m) => self.start(m),
            Action::StartLow(m) => {
                self.budget.lows -= 1;
                // To put a medium back takes longer than letters live.
                self.packets.retain(|packet| !matches!(packet, Packet::Letter(..)));
                self.host(m).life -= 2;
                self.start(m);
            }
        }
        self.check()
    }

    fn start(&mut self, m: MemberId) {
        let now_ms = self.clock(m);
        let host = self.host(m);
        host.life += 1;
        let mut history = History::default();
        host.log.iter().for_each(|entry| history.append(entry.at));
        // A recovery flushes what it found.
        host.durable = host.log.len();
        let mut out = Vec::new();
        let state = (host.standing, history);
        let life = Incarnation(host.life);
        host.member = Some(Member::start(m, life, state, host.ending, now_ms, &mut out));
        self.carry_out(m, None, out);
    }

    fn stop(&mut self, m: MemberId) {
        self.flush(m);
        let now_ms = self.clock(m);
        let is_free = self.member(m).is_some_and(|member| member.given.is_over(now_ms));
        self.end(m, Ending::Clean { is_free });
    }

    fn end(&mut self, m: MemberId, ending: Ending) {
        let host = self.host(m);
        host.member = None;
        host.ending = ending;
    }

    fn power_loss(&mut self, m: MemberId) {
        self.end(m, Ending::PowerLost);
        let now_ms = self.now_ms;
        let host = self.host(m);
        host.log.truncate(host.durable);
        // CLOCK_BOOTTIME begins anew.
        host.offset_ms = 10_000 - now_ms as i64;
        for n in 0..self.writes.len() {
            let has = |m: &MemberId| self.map.is_in_sync(*m) && self.has(*m, n);
            let write = &self.writes[n];
            let is_lost = write.is_seen && !write.is_flushed && !MemberId::BOTH.iter().any(has);
            self.writes[n].is_lost |= is_lost;
        }
    }

    fn has(&self, m: MemberId, write: usize) -> bool {
        self.hosts[m.index()].log.iter().any(|entry| entry.write == write)
    }

    /// One event of one member, with all that follows from it there.
    fn event(
        &mut self,
        m: MemberId,
        content: Option<usize>,
        run: impl FnOnce(&mut Member, u64, &mut Vec<Effect>),
    ) {
        let now_ms = self.clock(m);
        let Some(member) = &mut self.host(m).member else { return };
        let mut out = Vec::new();
        run(member, now_ms, &mut out);
        self.carry_out(m, content, out);
        self.answer(m);
    }

    fn carry_out(&mut self, m: MemberId, content: Option<usize>, out: Vec<Effect>) {
        for effect in out {
            match effect {
                Effect::Record => {
                    let host = self.host(m);
                    host.standing = *host.member.as_ref().expect("it has effects").standing();
                }
                Effect::Flush => {
                    let host = self.host(m);
                    host.durable = host.log.len();
                }
                Effect::Cut(after) => {
                    let host = self.host(m);
                    host.log.retain(|entry| entry.at.seq <= after);
                    host.durable = host.durable.min(host.log.len());
                }
                Effect::Append(at) => {
                    let write = content.expect("an entry travels with its content");
                    self.host(m).log.push(Entry { at, write });
                }
                Effect::Ship(after) => self.ship(m, after),
                Effect::Refill => unreachable!("no log is trimmed here, see `fill`"),
                Effect::Outlive(above) => {
                    self.end(m, Ending::Killed);
                    self.host(m).life = above.0;
                    self.start(m);
                }
                Effect::Send(letter) => self.send(Packet::Letter(m.other(), letter, None)),
                Effect::Request(request) => self.send(Packet::Request(m, request)),
            }
        }
    }

    fn ship(&mut self, m: MemberId, after: MirrorSeq) {
        let host = &self.hosts[m.index()];
        let member = host.member.as_ref().expect("it ships");
        let later = host.log.iter().filter(|entry| entry.at.seq > after);
        let letter = |entry: &Entry| {
            let before = host.log.iter().rev().map(|other| other.at.seq).find(|seq| *seq < entry.at.seq);
            member.entry(before.unwrap_or_default().next(), entry.at.seq)
        };
        let letters: Vec<_> = later.map(|entry| (letter(entry), entry.write)).collect();
        for (letter, write) in letters {
            self.send(Packet::Letter(m.other(), letter, Some(write)));
        }
    }

    fn send(&mut self, packet: Packet) {
        if self.packets.len() < self.budget.packets.into() {
            self.packets.push(packet);
        }
    }

    fn deliver(&mut self, n: usize) {
        match self.packets.remove(n) {
            Packet::Letter(to, letter, content) => {
                self.event(to, content, |member, now, out| member.on_letter(letter, now, out));
            }
            Packet::Request(from, request) => {
                self.reports.on_request(from, request, self.now_ms);
                let verdict = next_members(&self.map, &self.reports, from, request, self.now_ms);
                if let Verdict::Change(map) = verdict {
                    self.map = map;
                }
                self.send(Packet::Map(from, self.map));
            }
            Packet::Map(to, map) => self.event(to, None, |member, now, out| member.on_map(map, now, out)),
        }
    }

    fn flush(&mut self, m: MemberId) {
        let host = self.host(m);
        host.durable = host.log.len();
        let up_to = host.log.last().map_or(MirrorSeq(0), |entry| entry.at.seq);
        self.event(m, None, |member, _, out| member.on_flushed(up_to, out));
    }

    fn write(&mut self, m: MemberId, register: u8) {
        let now_ms = self.clock(m);
        let Some(member) = &mut self.host(m).member else { return };
        let life = member.life();
        let write = self.writes.len();
        let count = 1 + (write as u32 + u32::from(register)) % u32::from(self.budget.seqs);
        let Some(member) = &mut self.host(m).member else { return };
        let Some((before, at)) = member.order(now_ms, count) else { return };
        self.writes.push(Write {
            register,
            at,
            by: (m, life),
            is_seen: false,
            is_flushed: false,
            is_lost: false,
        });
        self.host(m).log.push(Entry { at, write });
        self.ship(m, before.seq);
        self.answer(m);
    }

    /// Answers what may be answered, and reports what is flushed.
    fn answer(&mut self, m: MemberId) {
        let now_ms = self.clock(m);
        let host = &self.hosts[m.index()];
        let Some(member) = &host.member else { return };
        let (answerable, flushed) = (member.answerable(now_ms), member.flushed(now_ms));
        for entry in &host.log {
            let write = &mut self.writes[entry.write];
            write.is_seen |= write.by == (m, member.life()) && entry.at.seq <= answerable;
            write.is_flushed |= write.is_seen && entry.at.seq <= flushed.min(answerable);
        }
    }

    /// Invariant 4: no read shows less than any client has seen before it began.
    fn read(&mut self, m: MemberId, register: u8) -> Result<(), Broken> {
        let now_ms = self.clock(m);
        let host = &self.hosts[m.index()];
        let Some(member) = &host.member else { return Ok(()) };
        let of_register: Vec<Entry> =
            host.log.iter().filter(|entry| self.writes[entry.write].register == register).copied().collect();
        let last = of_register.last().map_or(MirrorSeq(0), |entry| entry.at.seq);
        if member.read(last, now_ms) != Read::Serve {
            return Ok(());
        }
        // The backup applies on arrival, the other one when the entry is answerable.
        let answerable = member.answerable(now_ms);
        let is_applied = |entry: &&Entry| self.role(m) == Role::Backup || entry.at.seq <= answerable;
        let value = of_register.iter().rfind(is_applied);
        let seq = value.map_or(MirrorSeq(0), |entry| entry.at.seq);
        for write in &self.writes {
            if write.register == register && write.is_seen && !write.is_lost && write.at.seq > seq {
                return Err(format!("4: {m:?} served {value:?} after {write:?} was seen"));
            }
        }
        if let Some(entry) = value {
            self.writes[entry.write].is_seen = true;
        }
        Ok(())
    }

    /// Invariants 1, 2, 3 and 5, at every moment.
    fn check(&self) -> Result<(), Broken> {
        let roles = MemberId::BOTH.map(|m| self.role(m));
        for m in MemberId::BOTH {
            let (role, other) = (roles[m.index()], roles[m.other().index()]);
            if role.orders() && other.orders() {
                return Err(format!("1: {roles:?} at one moment"));
            }
            if role == Role::Alone && (other == Role::Backup || !self.map.is_sole(m)) {
                return Err(format!("1: {m:?} alone beside {other:?}, map {:?}", self.map));
            }
            let is_serving = role.orders() || role == Role::Backup;
            for (n, write) in self.writes.iter().enumerate() {
                if is_serving && write.is_seen && !write.is_lost && !self.has(m, n) {
                    return Err(format!("2: {m:?} serves as {role:?} without {write:?}"));
                }
                let host = &self.hosts[m.index()];
                let is_durable = host.log[..host.durable].iter().any(|entry| entry.write == n);
                if self.map.is_in_sync(m) && write.is_flushed && !is_durable {
                    return Err(format!("3: {m:?} is in sync without {write:?} on its medium"));
                }
            }
            if role == Role::Backup && other == Role::Primary {
                let (own, of_primary) = (&self.hosts[m.index()].log, &self.hosts[m.other().index()].log);
                if !of_primary.starts_with(own) {
                    return Err(format!("5: the backup has {own:?}, its primary {of_primary:?}"));
                }
            }
        }
        Ok(())
    }

    /// Every packet arrives in order, everything that arrives follows, and members tick.
    pub fn rounds(&mut self, rounds: u32, members: &[MemberId]) -> Result<(), Broken> {
        for _ in 0..rounds {
            for m in members {
                self.event(*m, None, |member, now, out| member.on_tick(now, out));
            }
            let mut deliveries = 0;
            while !self.packets.is_empty() {
                self.deliver(0);
                self.check()?;
                deliveries += 1;
                if deliveries > 1_000 {
                    return Err("6: members talk without end".to_owned());
                }
            }
            self.now_ms += ASK_MS;
        }
        Ok(())
    }

    /// Invariant 6. `one`: first only this member lives.
    pub fn heal(&mut self, one: Option<MemberId>) -> Result<(), Broken> {
        self.budget.packets = u8::MAX;
        if let Some(m) = one {
            // The other one stays away.
            self.end_if_up(m.other());
            self.restart_if_ended(m);
            // The other one's request may still be carried out.
            self.rounds(1, &[m])?;
            let standing = self.hosts[m.index()].member.as_ref().expect("it is up").standing();
            let must_serve = self.map.is_sole(m) || (self.map.is_in_sync(m) && standing.is_whole);
            self.rounds(ROUNDS, &[m])?;
            if must_serve && self.role(m) != Role::Alone {
                let member = self.member(m);
                return Err(format!(
                    "6: {m:?} is in sync and does not serve: {member:?}, the map is {:?}",
                    self.map
                ));
            }
            self.read_all(m)?;
        }
        for m in MemberId::BOTH {
            self.restart_if_ended(m);
        }
        self.rounds(ROUNDS, &MemberId::BOTH)?;
        if !self.map.is_pair() {
            let members = MemberId::BOTH.map(|m| self.member(m));
            return Err(format!("6: the map is {:?}, members {members:?}", self.map));
        }
        let primary = self.map.primary;
        let roles = [self.role(primary), self.role(primary.other())];
        if roles != [Role::Primary, Role::Backup] {
            return Err(format!("6: roles {roles:?}"));
        }
        self.write(primary, 0);
        self.rounds(2, &MemberId::BOTH)?;
        if self.hosts[0].log != self.hosts[1].log || !self.writes.last().expect("written").is_seen {
            return Err(format!("6: {:?} and {:?}", self.hosts[0].log, self.hosts[1].log));
        }
        self.read_all(primary)?;
        self.read_all(primary.other())
    }

    fn read_all(&mut self, m: MemberId) -> Result<(), Broken> {
        (0..REGISTERS).try_for_each(|register| self.read(m, register))
    }
    fn end_if_up(&mut self, m: MemberId) {
        if self.member(m).is_some() {
            self.end(m, Ending::Killed);
        }
    }
    /// A member that has said that it leaves stops then, as one whose process stops.
    fn restart_if_ended(&mut self, m: MemberId) {
        if self.member(m).is_some_and(|member| member.is_leaving() || member.is_stopping) {
            self.stop(m);
        }
        if self.member(m).is_none() {
            self.start(m);
        }
    }

    fn age(&self, asker: MemberId, token: &Token) -> u64 {
        self.clock(asker).saturating_sub(token.sent_ms)
    }

    /// Equal for worlds that go on alike: times count from now.
    pub fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for m in MemberId::BOTH {
            let mut host = self.hosts[m.index()].clone();
            let now_ms = self.clock(m);
            if let Some(member) = &mut host.member {
                for ms in
                    [&mut member.given.until_ms, &mut member.held.until_ms, &mut member.patient_until_ms]
                {
                    *ms = ms.saturating_sub(now_ms);
                }
            }
            host.offset_ms = 0;
            host.hash(&mut hasher);
        }
        for packet in &self.packets {
            let mut packet = packet.clone();
            if let Packet::Letter(to, letter, _) = &mut packet {
                match &mut letter.note {
                    Note::Ask(token) | Note::Return(token) => token.sent_ms = self.age(to.other(), token),
                    Note::Promise(token) => token.sent_ms = self.age(*to, token),
                    _ => {}
                }
            }
            packet.hash(&mut hasher);
        }
        let mut reports = self.reports.clone();
        reports.rebase(self.now_ms);
        (self.map, reports, &self.writes, self.budget).hash(&mut hasher);
        hasher.finish()
    }
}

/// A promise of 2 s at most once for each of the changes of epoch that a return takes, and the damping.
const ROUNDS: u32 = 40;
