//! Finds the MGS and registers with it. It retries for a bounded time and reports what it waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use net::{Fabric, Listening, Peer, Service};
use types::{Buf, Code, Fault, FsId, Uuid};
use wire::map::ClusterMap;
use wire::mgmt::{GetMap, Register, RegisterReply, is_not_leading};
use wire::notice::WatchMap;
use wire::{Header, Request};

use crate::exit::Failure;
use crate::reach::{self, MGS};
use crate::serve::servers::{Domain, Node, Role};
use crate::stop::Event;

/// Longest wait of a role for what it needs: longer than a server takes to boot.
pub const WAIT_MAX: Duration = Duration::from_secs(300);
/// Longest wait for the present holder of a role's place (servers evict a killed client after 10 s).
const BUSY_MAX: Duration = Duration::from_secs(20);
/// Time between two tries.
const TRY_EACH: Duration = Duration::from_millis(200);
/// From then on the reason of the wait is reported; before, the servers may just be starting.
const SAY_AFTER: Duration = Duration::from_secs(2);
/// Time from the first report to the second; each further one comes after twice the time. A changed reason is reported at once.
const SAY_EACH: Duration = Duration::from_secs(5);

/// Connections to the MGS: in this process, or by NIDs that are tried in order.
#[derive(Clone)]
pub struct MgsPeers {
    fabric: Arc<Fabric>,
    /// Empty: in this process.
    nids: Vec<String>,
    /// The place of the NID that answered last and did not say that another one leads: each request begins there.
    answered: Arc<AtomicUsize>,
}

impl MgsPeers {
    pub fn local(fabric: Arc<Fabric>) -> MgsPeers {
        MgsPeers { fabric, nids: vec![], answered: Arc::default() }
    }
    pub fn at(fabric: Arc<Fabric>, nids: Vec<String>) -> MgsPeers {
        MgsPeers { fabric, nids, answered: Arc::default() }
    }

    /// As `ask`, until the deadline. Each NID gets its share of the time, so one that is dead does not take it all.
    pub fn ask_within<R: Request>(&self, request: &R, deadline: Instant) -> Result<R::Reply, Fault> {
        let unheard = |why: String| {
            let next = "it is asked again";
            Fault::new(Code::NotReady, format!("the management service does not answer: {why}; {next}"))
        };
        let (count, begin) = (self.nids.len().max(1), self.answered.load(Ordering::Relaxed));
        let mut last = unheard("no time is left".into());
        for tried in 0..count {
            let at = (begin + tried) % count;
            let peer = match self.nids.get(at) {
                Some(nid) => self.fabric.peer_at(nid, MGS),
                None => self.fabric.peer(MGS).map_err(|e| unheard(e.to_string()))?,
            };
            let share = deadline.saturating_duration_since(Instant::now()) / (count - tried) as u32;
            let head = Header { target: MGS, ..Header::default() };
            match net::rpc::call(&*peer, head, request, &[], &mut Buf::new(), Instant::now() + share) {
                // mgs-M5: another one leads.
                Ok((_, _, Err(fault))) if is_not_leading(&fault) => last = fault,
                Ok((_, _, said)) => {
                    self.answered.store(at, Ordering::Relaxed);
                    return said;
                }
                Err(e) => last = unheard(e.to_string()),
            }
        }
        Err(last)
    }

    /// Asks the first NID that answers and does not say that another one leads.
    pub fn ask<R: Request>(&self, request: &R) -> anyhow::Result<R::Reply> {
        Ok(self.ask_who(request)?.0)
    }

    /// Begins a line over which the MGS tells of newer maps.
    pub fn watch(&self, heard: &Arc<impl Service + 'static>) -> anyhow::Result<Listening> {
        if self.nids.is_empty() {
            return watch(&*self.fabric.peer(MGS)?, heard.clone());
        }
        let mut last = anyhow::anyhow!("no NID of the management service is given");
        for nid in self.in_turn().map(|at| &self.nids[at]) {
            match watch(&*self.fabric.peer_at(nid, MGS), heard.clone()) {
                Ok(line) => return Ok(line),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// A map with another version than `known_version`. Targets without an address live in the process that answered.
    pub fn map(&self, known_version: u64, server: bool) -> anyhow::Result<Option<ClusterMap>> {
        let (reply, nid) = self.ask_who(&GetMap { known_version, server })?;
        Ok(reply.map.map(|map| match nid {
            Some(nid) => reach::with_nid(map, &nid),
            None => map,
        }))
    }

    /// The answer, and the NID that it came from.
    fn ask_who<R: Request>(&self, request: &R) -> anyhow::Result<(R::Reply, Option<String>)> {
        if self.nids.is_empty() {
            return Ok((reach::ask(&*self.fabric.peer(MGS)?, FsId(0), MGS, request)?, None));
        }
        let mut last = anyhow::anyhow!("no NID of the management service is given");
        for at in self.in_turn() {
            let nid = &self.nids[at];
            match reach::ask(&*self.fabric.peer_at(nid, MGS), FsId(0), MGS, request) {
                Ok(reply) => {
                    self.answered.store(at, Ordering::Relaxed);
                    return Ok((reply, Some(nid.clone())));
                }
                Err(e) => match e.downcast_ref::<Fault>() {
                    // A refusal is an answer; another NID of the same service would give the same.
                    Some(fault) if !is_not_leading(fault) => {
                        self.answered.store(at, Ordering::Relaxed);
                        return Err(e);
                    }
                    // Its reason says more than the silence of another one.
                    Some(_) => last = e,
                    None if last.is::<Fault>() => {}
                    None => last = e,
                },
            }
        }
        Err(last)
    }

    /// The places of the NIDs, from the one that answered last.
    fn in_turn(&self) -> impl Iterator<Item = usize> + use<> {
        let (count, begin) = (self.nids.len(), self.answered.load(Ordering::Relaxed));
        (0..count).map(move |tried| (begin + tried) % count)
    }

    pub fn describe(&self) -> String {
        if self.nids.is_empty() { "this process".into() } else { self.nids.join(", ") }
    }
}

/// Longest wait for a line: heartbeats wait behind it.
const WATCH_MAX: Duration = Duration::from_secs(2);

fn watch(mgs: &dyn Peer, heard: Arc<dyn Service>) -> anyhow::Result<Listening> {
    let (head, deadline) = (Header { target: MGS, ..Header::default() }, Instant::now() + WATCH_MAX);
    let mut into = Buf::new();
    let mut call = net::rpc::prepare(head, &WatchMap {}, &[], &mut into, deadline);
    let (head, body, line) = mgs.listen(&mut call, heard)?;
    net::rpc::read::<WatchMap>((head, body))?.2?;
    Ok(line)
}

/// A wait: its purpose, its limit, and where it is reported.
pub struct Wait<'a> {
    pub what: &'a str,
    pub max: Duration,
    pub events: Option<&'a Receiver<Event>>,
    pub say: &'a dyn Fn(&str),
}

impl<'a> Wait<'a> {
    /// A wait without reports, with the usual limit among servers.
    pub fn silent(what: &'a str, events: Option<&'a Receiver<Event>>) -> Wait<'a> {
        Wait { what, max: WAIT_MAX, events, say: &|_| {} }
    }
}

/// The last report of a wait.
struct Said {
    reason: String,
    at: Instant,
    /// The time until the same reason is reported again.
    pause: Duration,
}

/// Retries `attempt` until it succeeds, is refused for good, a signal asks to stop, or the time is over.
pub fn wait_for<T>(wait: &Wait, mut attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let what = wait.what;
    let begin = Instant::now();
    let (mut logged, mut said): (Option<Said>, Option<Said>) = (None, None);
    loop {
        let err = match attempt() {
            Ok(done) => return Ok(done),
            Err(err) => err,
        };
        let is_busy = err.downcast_ref::<Fault>().is_some_and(|f| f.code == Code::Busy);
        if is_final(&err) || is_busy && begin.elapsed() > BUSY_MAX {
            // An error of ours names its subject already.
            return Err(if err.is::<Failure>() { err } else { err.context(what.to_owned()) });
        }
        let waited = begin.elapsed();
        if waited >= wait.max {
            return Err(gave_up(what, waited, &format!("{err:#}")).into());
        }
        let reason = reason_of(&err);
        let line =
            format!("{what}: waiting, {} s of {} s at most: {err:#}", waited.as_secs(), wait.max.as_secs());
        if is_due(&mut logged, &reason) {
            tracing::info!("{line}");
        }
        if waited >= SAY_AFTER && is_due(&mut said, &reason) {
            (wait.say)(&line);
        }
        match wait.events.map(|e| e.recv_timeout(TRY_EACH.min(wait.max - waited))) {
            None => std::thread::sleep(TRY_EACH),
            Some(Err(RecvTimeoutError::Timeout)) => {}
            Some(_) => {
                return Err(
                    Failure::failed(what, "asked to stop before it was ready", "start it again").into()
                );
            }
        }
    }
}

/// The error of a wait that timed out.
pub fn gave_up(what: &str, waited: Duration, why: &str) -> Failure {
    let next = "check that it runs and that its address is right";
    Failure::failed(what, format!("gave up after {} s: {why}", waited.as_secs()), next)
}

/// The error without the parts that change from one try to the next.
fn reason_of(err: &anyhow::Error) -> String {
    format!("{err:#}").split(" (").next().unwrap_or_default().to_owned()
}

fn is_due(said: &mut Option<Said>, reason: &str) -> bool {
    let pause = match said {
        Some(last) if last.reason == reason && last.at.elapsed() < last.pause => return false,
        Some(last) if last.reason == reason => last.pause * 2,
        _ => SAY_EACH,
    };
    *said = Some(Said { reason: reason.to_owned(), at: Instant::now(), pause });
    true
}

/// Whether a refusal is final: only "not yet" may change with a retry.
fn is_final(err: &anyhow::Error) -> bool {
    if err.downcast_ref::<Failure>().is_some() {
        return true;
    }
    err.downcast_ref::<Fault>()
        .is_some_and(|f| !matches!(f.code, Code::NotReady | Code::Timeout | Code::Busy | Code::Moved))
}

/// The registration of a target.
#[derive(Clone, Debug)]
pub struct Announcement<'a> {
    pub label: &'a disk::Label,
    /// Wanted index of a new target; `None`: the index of its format, else the next free one.
    pub index: Option<u32>,
    /// A new target becomes the second member of the mirror of that index.
    pub second: bool,
    pub bytes_total: u64,
    pub node_name: &'a str,
    pub nids: &'a [String],
    pub domain: &'a Domain,
}

impl Announcement<'_> {
    pub fn register(
        &self,
        mgs: &MgsPeers,
        events: Option<&Receiver<Event>>,
    ) -> anyhow::Result<RegisterReply> {
        let label = self.label;
        let is_new = label.target.0 == 0;
        let request = Register {
            fs_name: label.fs_name.clone(),
            is_mdt: label.kind == disk::Kind::Mdt,
            index: if is_new { self.index.unwrap_or(label.index) } else { label.index },
            uuid: label.uuid,
            target: label.target,
            bytes_total: self.bytes_total,
            node_name: self.node_name.to_owned(),
            nids: self.nids.to_vec(),
            second: self.second,
            rack: self.domain.rack.clone(),
            apart: self.domain.apart,
        };
        let what = format!("register with the management service at {}", mgs.describe());
        wait_for(&Wait::silent(&what, events), || mgs.ask(&request))
    }
}

/// Asks the MGS whether a new target of this kind and file system may register, and waits for it as registration does. `second`: it is to be
/// a second member.
pub fn check_name(role: Role, second: bool, node: &Node<'_>) -> anyhow::Result<()> {
    let what =
        format!("ask the management service at {} for file system '{}'", node.mgs.describe(), node.fsname);
    wait_for(&Wait::silent(&what, node.events), || {
        let map =
            node.mgs.map(0, false)?.ok_or_else(|| Fault::new(Code::NotReady, "the answer has no map"))?;
        judge_name(&map, role, second, node.fsname)
    })
}

/// Refuses what registration would refuse or wait for in vain. If there is no file system yet, the first MDT may still be starting.
fn judge_name(map: &ClusterMap, role: Role, second: bool, fsname: &str) -> anyhow::Result<()> {
    let what = || format!("file system '{fsname}'");
    // The first MDT makes its file system, and nothing else does.
    let makes_it = role == Role::Mdt && !second;
    match (makes_it, map.fs_named(fsname).map(|fs| fs.id)) {
        (false, None) if map.file_systems.is_empty() => {
            Err(Fault::new(Code::NotReady, format!("no MDT of {} has registered yet", what())).into())
        }
        (false, None) => {
            let known: Vec<&str> = map.file_systems.iter().map(|f| f.name.as_str()).collect();
            let why = format!("the management service has none of this name; it has: {}", known.join(", "));
            let next = "correct `fsname`, or start its `stria mds` first; nothing was formatted";
            Err(Failure::failed(what(), why, next).into())
        }
        (true, Some(fs)) if map.targets.iter().any(|t| t.fs == fs && t.is_mdt) => {
            let next = "correct `fsname`, or `device` if that MDT is meant, or set `second = true` for its second member; nothing was formatted";
            Err(Failure::failed(what(), "it has its MDT already, and this release takes one", next).into())
        }
        _ => Ok(()),
    }
}

/// A unique uuid: 16 random bytes of the kernel, marked as version 4.
pub fn new_uuid() -> std::io::Result<Uuid> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(Uuid(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::Manner;
    use wire::map::Apart;

    #[test]
    fn waiting_ends_with_success_a_final_refusal_or_a_signal() {
        let mut tries = 0;
        let test = Wait::silent("test", None);
        let got = wait_for(&test, || {
            tries += 1;
            if tries < 3 { Err(Fault::new(Code::NotReady, "starting").into()) } else { Ok(tries) }
        });
        assert_eq!(got.unwrap(), 3);
        let refused = wait_for::<()>(&test, || Err(Fault::new(Code::Exists, "index 0 is taken").into()));
        assert!(format!("{:#}", refused.unwrap_err()).contains("index 0 is taken"));
        let (sender, receiver) = std::sync::mpsc::channel();
        sender.send(Event::Stop(Manner::Polite)).unwrap();
        let refuse = || Err(anyhow::anyhow!("connection refused"));
        let stopped = wait_for::<()>(&Wait::silent("test", Some(&receiver)), refuse);
        assert!(stopped.unwrap_err().to_string().contains("asked to stop"));
        // Runs one try and returns its result.
        let mut tries = 0;
        let over = wait_for::<()>(&Wait { max: Duration::ZERO, ..Wait::silent("test", None) }, || {
            tries += 1;
            refuse()
        });
        let over = over.unwrap_err().to_string();
        assert!(tries == 1 && over.contains("gave up after 0 s: connection refused"), "{tries}: {over}");
    }

    #[test]
    fn the_same_reason_is_said_less_and_less_and_another_at_once() {
        let mut said = None;
        assert!(is_due(&mut said, "a"));
        assert!(!is_due(&mut said, "a"));
        assert!(is_due(&mut said, "b"));
        let long_ago = Instant::now().checked_sub(SAY_EACH).unwrap();
        said.as_mut().unwrap().at = long_ago;
        assert!(is_due(&mut said, "b"), "after a pause");
        assert_eq!(said.as_ref().map(|s| s.pause), Some(2 * SAY_EACH));
        let (tried, again) =
            ("not sent: refused (next attempt in 7 ms)", "not sent: refused (being tried again)");
        assert_eq!(reason_of(&anyhow::anyhow!(tried)), reason_of(&anyhow::anyhow!(again)));
    }

    #[test]
    fn a_new_target_of_a_wrong_file_system_is_refused_before_it_is_made() {
        let mut map = ClusterMap::empty();
        for (uuid, name) in [(1, "home"), (2, "new")] {
            let mdt = Register {
                fs_name: name.into(),
                is_mdt: true,
                index: 0,
                uuid: Uuid([uuid; 16]),
                target: types::TargetId(0),
                bytes_total: 1 << 30,
                node_name: "host".into(),
                nids: vec![],
                second: false,
                rack: String::new(),
                apart: Apart::Server,
            };
            let fresh = mgmt::Fresh { fs_uuid: Uuid([uuid; 16]), secret: Uuid([uuid; 16]) };
            map = mgmt::apply_register(&map, &mdt, &fresh).unwrap().0;
        }
        // The file system remains when its MDT is removed from the map.
        let new = map.fs_named("new").unwrap().id;
        map.targets.retain(|t| t.fs != new);
        assert!(judge_name(&map, Role::Ost, false, "home").is_ok());
        let wrong = judge_name(&map, Role::Ost, false, "hom").unwrap_err();
        assert!(is_final(&wrong) && wrong.to_string().contains("it has: home, new"), "{wrong}");
        let second = judge_name(&map, Role::Mdt, false, "home").unwrap_err();
        assert!(is_final(&second) && second.to_string().contains("has its MDT already"), "{second}");
        assert!(
            judge_name(&map, Role::Mdt, false, "new").is_ok()
                && judge_name(&map, Role::Mdt, false, "another").is_ok()
        );
        // A second member makes no file system.
        assert!(judge_name(&map, Role::Mdt, true, "home").is_ok());
        let wrong = judge_name(&map, Role::Mdt, true, "hom").unwrap_err();
        assert!(is_final(&wrong) && wrong.to_string().contains("it has: home, new"), "{wrong}");
        // Servers may start in any order.
        let early = judge_name(&ClusterMap::empty(), Role::Ost, false, "home").unwrap_err();
        assert!(!is_final(&early), "{early}");
    }

    /// A management service that does not lead, or does. It counts what it is asked.
    struct Fake {
        leads: bool,
        asked: AtomicUsize,
    }

    impl Service for Fake {
        fn serve(&self, _: &Header, _: &[u8], _: &[u8], answer: &mut net::Answer<'_>) {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let refused =
                Fault::new(Code::NotReady, format!("{}: another one does", wire::mgmt::NOT_LEADING));
            let head = match self.leads {
                true => wire::ReplyHead::done(types::Seq(0), types::Seq(0)),
                false => wire::ReplyHead::refused(&refused, types::Seq(0)),
            };
            let reply = wire::mgmt::HeartbeatReply { version: 7 };
            answer.body = wire::encode_reply(&head, self.leads.then_some(&reply));
        }
    }

    /// mgs-M5.
    #[test]
    fn the_management_service_that_leads_is_found_and_remembered() {
        let fakes = [false, false, true].map(|leads| Arc::new(Fake { leads, asked: AtomicUsize::new(0) }));
        let servers = fakes.each_ref().map(|fake| {
            let hub = net::Hub::new();
            hub.add(MGS, fake.clone());
            net::Server::listen_at(&["127.0.0.1:0".to_owned()], hub, net::Limits::default(), None).unwrap()
        });
        let mut nids: Vec<String> = servers.iter().map(|server| server.nid().to_string()).collect();
        // One is not there at all.
        nids.insert(0, "127.0.0.1:1@tcp0".into());
        let beat = wire::mgmt::Heartbeat { node: types::NodeId(1), targets: vec![], leaving: false };
        let asked = || fakes.each_ref().map(|fake| fake.asked.load(Ordering::Relaxed));
        let mgs = MgsPeers::at(Fabric::new(None), nids.clone());
        assert_eq!(mgs.ask(&beat).unwrap().version, 7);
        assert_eq!((mgs.ask(&beat).unwrap().version, asked()), (7, [1, 1, 2]), "the second time at once");
        // A member's request has a second for all of them.
        let member = MgsPeers::at(Fabric::new(None), nids.clone());
        let deadline = Instant::now() + Duration::from_secs(1);
        assert_eq!(member.ask_within(&beat, deadline).unwrap().version, 7);
        assert_eq!(asked(), [2, 2, 3]);
        // The reason of one that does not lead says more than the silence of another one.
        nids.truncate(2);
        let refused = MgsPeers::at(Fabric::new(None), nids).ask(&beat).unwrap_err();
        assert!(!is_final(&refused) && format!("{refused:#}").contains("does not lead"), "{refused:#}");
        servers.iter().for_each(|server| server.stop());
    }

    #[test]
    fn uuids_are_of_version_4_and_differ() {
        let (a, b) = (new_uuid().unwrap(), new_uuid().unwrap());
        assert_ne!(a, b);
        assert_eq!(a.to_string().as_bytes()[14], b'4');
    }
}
