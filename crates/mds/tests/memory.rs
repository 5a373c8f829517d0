//! How much memory an MDT takes, and what its bound costs: the ten million files in one directory with `STRIA_LONG=1` (by itself:
//! it prints rates, those of a hundredth of the files before it, and what the process takes; `STRIA_FILES` and `STRIA_MDT_CACHE`, in MiB,
//! set others), a hundredth of that else.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use disk::volume::{Kind, Label};
use disk::{Disk, FileDisk, SplitMix};
use mds::{Clock, FormatSpec, Mdt, MetaRules, Settings};
use net::{Answer, Fabric, Hub, Service};
use types::*;
use wire::check::{Check, CopyOut, Finding, Repair, Wrong};
use wire::codec::Bytes;
use wire::map::{ClusterMap, FileSystem, Mirror, Node, Target};
use wire::meta::{Counts, Create, GetAttr, Lookup, MakeDir, ReadDir, Unlink};
use wire::mgmt::RegisterReply;
use wire::session::{Attach, AttachReply, Claims, TargetStat, next_sequence};
use wire::{Header, Request, decode_reply};

const FS_UUID: Uuid = Uuid([7; 16]);

fn label() -> Label {
    Label {
        kind: Kind::Mdt,
        fs_name: "stria".into(),
        fs_uuid: Uuid::default(),
        uuid: Uuid([3; 16]),
        target: TargetId(0),
        index: 0,
        mirror: MirrorId(0),
        epoch: Epoch(0),
    }
}

/// This MDT alone: empty files need no OST.
fn registered() -> RegisterReply {
    let (fs, mirror, node, epoch, target) = (FsId(1), MirrorId(1), NodeId(1), Epoch(1), TargetId(1));
    let file_system = FileSystem {
        id: fs,
        name: "stria".into(),
        uuid: FS_UUID,
        secret: FS_UUID,
        inline_max: 65536,
        commit_interval_ms: 1000,
    };
    let uuid = label().uuid;
    let mdt = Target { id: target, fs, is_mdt: true, index: 0, uuid, node, mirror, state: 1, bytes_total: 0 };
    let map = ClusterMap {
        version: 1,
        file_systems: vec![file_system],
        nodes: vec![Node { id: node, name: "node".into(), nids: vec![], rack: String::new() }],
        targets: vec![mdt],
        mirrors: vec![Mirror::alone(mirror, fs, true, epoch, target)],
        ..ClusterMap::empty()
    };
    RegisterReply { target, index: 0, mirror, epoch, node, map }
}

/// A client's half of the talk, by one slot.
struct Client {
    mdt: Arc<Mdt>,
    session: SessionId,
    sequence: u32,
}

impl Client {
    fn start(disk: &Arc<FileDisk>, cache_bytes: u64) -> Client {
        Client::with(disk, Settings { cache_bytes, ..Settings::default() })
    }

    fn with(disk: &Arc<FileDisk>, settings: Settings) -> Client {
        let mdt = Mdt::open(disk.clone(), settings).unwrap();
        mdt.join(&registered(), Fabric::new(Some(Hub::new()))).unwrap();
        let mut client = Client { mdt, session: SessionId(0), sequence: 0 };
        let (fs_uuid, session, uuid, name) = (FS_UUID, SessionId(0), Uuid([1; 16]), "test".into());
        let (observer, own_locks, claims) = (false, false, Claims::All);
        let ticket = wire::object::Mac::default();
        let attach = Attach { fs_uuid, client: uuid, session, name, observer, own_locks, claims, ticket };
        let AttachReply { session, slots, .. } = client.ask(&attach);
        Client { session, sequence: slots.first().copied().unwrap_or(0), ..client }
    }

    fn ask<R: Request>(&mut self, request: &R) -> R::Reply {
        self.try_ask(request).unwrap()
    }

    fn try_ask<R: Request>(&mut self, request: &R) -> Result<R::Reply, Fault> {
        let mut head = Header { call: R::CALL, session: self.session, ..Header::default() };
        if R::MUTATES && self.session != SessionId(0) {
            self.sequence = next_sequence(self.sequence);
            head.sequence = self.sequence;
        }
        let mut bulk = Buf::new();
        let mut answer = Answer::new(head, &mut bulk);
        self.mdt.serve(&head, &request.to_bytes(), &[], &mut answer);
        decode_reply::<R::Reply>(&answer.body).unwrap().1
    }

    fn create(&mut self, parent: Fid, n: u64) {
        assert!(self.try_create(parent, n).unwrap().made);
    }

    fn try_create(&mut self, parent: Fid, n: u64) -> Result<wire::meta::CreateReply, Fault> {
        self.try_ask(&Create {
            parent,
            name: name(n),
            kind: types::Kind::File,
            mode: 0o644,
            umask: 0,
            rdev: 0,
            exclusive: true,
            read: false,
            write: true,
            append: false,
            now: Time::new(1_700_000_000, 0),
            cred: Cred::root(),
            want: Fid(0),
        })
    }

    fn remove(&mut self, parent: Fid, n: u64) {
        let (name, cred) = (name(n), Cred::root());
        self.ask(&Unlink { parent, name, held: false, now: Time::new(2, 0), cred });
    }

    fn dir(&mut self, name: &str) -> Fid {
        let made = self.ask(&MakeDir {
            parent: Fid::ROOT,
            name: Bytes(name.into()),
            mode: 0o755,
            umask: 0,
            now: Time::new(1, 0),
            cred: Cred::root(),
            want: Fid(0),
        });
        made.attr.fid
    }

    /// The numbers of a directory's files; `Err`: how far it came.
    fn list(&mut self, dir: Fid) -> Result<BTreeSet<u64>, BTreeSet<u64>> {
        let (mut cookie, mut listed) = (0, BTreeSet::new());
        loop {
            let page = ReadDir { dir, cookie, max: 1024, plus: true, cred: Cred::root() };
            let Ok(page) = self.try_ask(&page) else { return Err(listed) };
            for entry in &page.entries {
                assert!(entry.inode.is_some());
                let name = std::str::from_utf8(&entry.name.0).unwrap();
                assert!(listed.insert(name[1..].parse().unwrap()));
            }
            match page.entries.last() {
                Some(last) if page.more => cookie = last.cookie,
                _ => return Ok(listed),
            }
        }
    }
}

/// A medium of a new MDT.
fn formatted(bytes: u64) -> Arc<FileDisk> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("stria-mdt-memory-{}-{number}", std::process::id()));
    let disk = Arc::new(FileDisk::create(path.clone(), bytes).unwrap());
    std::fs::remove_file(path).unwrap();
    let spec = FormatSpec::for_size(label(), disk.size());
    Mdt::format(disk.clone(), &spec, true, &MetaRules, Time::new(1, 0)).unwrap();
    disk
}

fn name(n: u64) -> Bytes {
    Bytes(format!("f{n:09}").into_bytes())
}

fn number(name: &str, unset: u64) -> u64 {
    std::env::var(name).ok().map_or(unset, |text| text.parse().expect("a number"))
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Rates of each tenth of the work, and of all of it, in thousands per second.
struct Windows {
    what: &'static str,
    each: u64,
    began: Instant,
    last: Instant,
    rates: Vec<f64>,
}

impl Windows {
    fn new(what: &'static str, all: u64) -> Windows {
        Windows { what, each: all / 10, began: Instant::now(), last: Instant::now(), rates: vec![] }
    }
    /// So many are done.
    fn at(&mut self, done: u64) {
        if done / self.each > self.rates.len() as u64 {
            self.rates.push(self.each as f64 / self.last.elapsed().as_secs_f64() / 1e3);
            self.last = Instant::now();
        }
    }
    /// The rate of all.
    fn tell(&self, mdt: &Mdt) -> f64 {
        let all = (self.each * self.rates.len() as u64) as f64 / (self.last - self.began).as_secs_f64() / 1e3;
        let rates: Vec<String> = self.rates.iter().map(|rate| format!("{rate:.0}")).collect();
        let figures = mdt.figures();
        println!(
            "       {:<8} {} thousand per second; {} of {} MiB, {} loads, {} evictions, process {} MiB",
            self.what,
            rates.join(" "),
            figures.memory_bytes >> 20,
            figures.memory_bytes_max >> 20,
            figures.loads,
            figures.evictions,
            resident_bytes() >> 20
        );
        all
    }
}

/// The tidier gets there: what changed since the last checkpoint may be beyond the bound.
fn comes_within_its_bound(mdt: &Mdt) {
    mdt.checkpoint().unwrap();
    let began = Instant::now();
    while mdt.figures().memory_bytes > mdt.figures().memory_bytes_max / 8 * 9 {
        assert!(began.elapsed() < Duration::from_secs(120), "{:?}", mdt.figures());
        std::thread::yield_now();
    }
}

/// Memory limit of an MDT with ten million files.
const PROCESS_BYTES_MAX: u64 = 2 << 30;

#[test]
fn memory_does_not_grow_with_the_number_of_files() {
    let is_long = std::env::var_os("STRIA_LONG").is_some();
    let files = number("STRIA_FILES", if is_long { 10_000_000 } else { 100_000 });
    let cache_bytes = number("STRIA_MDT_CACHE", if is_long { 1024 } else { 3 }) << 20;
    // To hold the rates against, and so often that one is seen to be no accident.
    let few: Vec<_> = (0..if is_long { 5 } else { 0 }).map(|_| life(files / 100, cache_bytes)).collect();
    let all = life(files, cache_bytes);
    for (at, (what, rate)) in all.iter().enumerate().filter(|_| is_long) {
        let mut of_few: Vec<f64> = few.iter().map(|rates| rates[at].1).collect();
        of_few.sort_by(f64::total_cmp);
        let median = of_few[of_few.len() / 2];
        println!(
            "       {what:<8} {rate:.0}; of a hundredth {of_few:.0?}; {:.2} of its median",
            rate / median
        );
    }
}

/// Files are made, listed twice, looked at, made once more around a crash, and removed. What that was, and its rate.
fn life(files: u64, cache_bytes: u64) -> Vec<(&'static str, f64)> {
    let (mut rates, disk) = (Vec::new(), formatted(files * 1024 + (256 << 20)));
    let mut client = Client::start(&disk, cache_bytes);
    let dir = client.dir("d");
    let mut windows = Windows::new("create", files);
    for n in 0..files {
        client.create(dir, n);
        windows.at(n + 1);
    }
    rates.push(("create", windows.tell(&client.mdt)));
    comes_within_its_bound(&client.mdt);
    let figures = client.mdt.figures();
    assert!(figures.size.bytes < 4 * cache_bytes || figures.evictions > 100);
    assert!(figures.moves > 0, "the thread that moves changes to the tree did nothing");

    // A clean stop: nothing is read but the head.
    client.mdt.stop(true).unwrap();
    drop(client);
    let began = Instant::now();
    let mut client = Client::start(&disk, cache_bytes);
    println!("       a start after a clean stop: {:?}", began.elapsed());

    let list = |client: &mut Client| {
        let mut windows = Windows::new("list", files);
        let (mut cookie, mut listed) = (0, 0);
        loop {
            let page = client.ask(&ReadDir { dir, cookie, max: 4096, plus: true, cred: Cred::root() });
            assert!(page.entries.iter().all(|entry| entry.inode.is_some()));
            listed += page.entries.len() as u64;
            windows.at(listed);
            match page.entries.last() {
                Some(last) if page.more => cookie = last.cookie,
                _ => break,
            }
        }
        (listed, windows.tell(&client.mdt))
    };
    for what in ["list", "again"] {
        let (listed, rate) = list(&mut client);
        assert_eq!(listed, files);
        rates.push((what, rate));
        comes_within_its_bound(&client.mdt);
    }

    let mut windows = Windows::new("stat", files / 4);
    let mut random = SplitMix::new(7);
    for n in 0..files / 4 {
        client.ask(&Lookup { parent: dir, name: name(random.below(files)), cred: Cred::root() });
        windows.at(n + 1);
    }
    rates.push(("stat", windows.tell(&client.mdt)));
    comes_within_its_bound(&client.mdt);

    // Of what comes after the checkpoint a start brings the leaves that it changed.
    for n in 0..files / 10 {
        client.create(dir, files + n);
    }
    client.mdt.flush().unwrap();
    client.mdt.stop(false).unwrap();
    drop(client);
    let began = Instant::now();
    let mut client = Client::start(&disk, cache_bytes);
    println!("       a start after a crash: {:?}", began.elapsed());
    let files = files + files / 10;

    let mut windows = Windows::new("remove", files);
    for n in 0..files {
        client.remove(dir, n);
        windows.at(n + 1);
    }
    rates.push(("remove", windows.tell(&client.mdt)));
    assert!(resident_bytes() <= PROCESS_BYTES_MAX, "{} bytes", resident_bytes());
    let page = client.ask(&ReadDir { dir, cookie: 0, max: 4096, plus: true, cred: Cred::root() });
    assert!(page.entries.is_empty());
    comes_within_its_bound(&client.mdt);
    client.mdt.stop(true).unwrap();
    rates
}

/// Half of what some thousand files take.
const TIGHT: u64 = 200 << 10;

/// Also when the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Files come and go while checkpoints are made one after the other, with less memory than they take: names that come to nothing while a
/// checkpoint has them, and those that stay.
#[test]
fn files_come_and_go_around_checkpoints() {
    let disk = formatted(64 << 20);
    let mut client = Client::start(&disk, TIGHT);
    let (dir, mut random) = (client.dir("d"), SplitMix::new(3));
    let mut there: BTreeSet<u64> = (0..6000).collect();
    there.iter().for_each(|n| client.create(dir, *n));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|s| {
        let mdt = client.mdt.clone();
        let is_over = &is_over;
        s.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                mdt.checkpoint().unwrap();
            }
        });
        let _end = Ends(is_over);
        for round in 0..6000u64 {
            let n = random.below(8000);
            if there.contains(&n) {
                client.remove(dir, n);
                if round % 3 > 0 {
                    client.create(dir, n);
                } else {
                    there.remove(&n);
                }
            } else {
                client.create(dir, n);
                if round % 3 > 0 {
                    client.remove(dir, n);
                } else {
                    there.insert(n);
                }
            }
            if round % 1500 == 0 {
                assert_eq!(client.list(dir).as_ref(), Ok(&there), "round {round}");
            }
        }
    });
    // Nothing that was taken back keeps a leaf in memory: with it all that may goes.
    comes_within_its_bound(&client.mdt);
    assert_eq!(client.list(dir).as_ref(), Ok(&there));
    let figures = client.mdt.figures();
    assert!(figures.loads > 100 && figures.evictions > 100 && figures.broken == 0, "{figures:?}");
    client.mdt.stop(false).unwrap();
    drop(client);
    let mut client = Client::start(&disk, TIGHT);
    assert_eq!(client.list(dir).as_ref(), Ok(&there));
    assert_eq!(fsck(&mut client), []);
    client.mdt.stop(true).unwrap();
}

fn fsck(client: &mut Client) -> Vec<Finding> {
    let (mut run, mut seen, mut all) = (0, 0, vec![]);
    loop {
        let said = client.ask(&Check { cap: object::cap::make_admin(&FS_UUID, 1 << 40), run, seen });
        (run, seen) = (said.run, seen + said.findings.len() as u32);
        all.extend(said.findings);
        if said.done {
            return all;
        }
    }
}

type Page = [u8; PAGE_SIZE];

/// First pages of leaves, of older states too. Not the log.
fn leaves(disk: &Arc<FileDisk>) -> Vec<(u64, Page)> {
    let slots = disk::volume::Volume::open(disk.clone()).unwrap().layout().slots;
    let read = |at| {
        let mut page = [0; PAGE_SIZE];
        disk.read_at(&mut page, at).unwrap();
        (at, page)
    };
    let pages = (slots[0].start..slots[1].end).step_by(PAGE_SIZE).map(read);
    pages.filter(|(_, page)| page.starts_with(b"SKL1")).collect()
}

/// Each leaf that has these bytes rots, wherever it lies.
fn rot(disk: &Arc<FileDisk>, victim: &[u8]) -> Vec<(u64, Page)> {
    let mut was = leaves(disk);
    was.retain(|(at, page)| {
        let found = page.windows(victim.len()).position(|bytes| bytes == victim);
        if let Some(found) = found {
            let mut page = *page;
            page[found] ^= 1;
            disk.write_at(&page, *at).unwrap();
        }
        found.is_some()
    });
    assert!(!was.is_empty());
    was
}

/// Each third leaf of inodes rots.
fn rot_inodes(disk: &Arc<FileDisk>) {
    let mut all = leaves(disk);
    // What all its keys begin with is a kind, and more.
    all.retain(|(_, page)| page[6] > 1 && page[16] == meta::keys::INODE);
    assert!(all.len() > 9, "{} leaves", all.len());
    for (at, mut page) in all.into_iter().skip(2).step_by(3) {
        page[PAGE_SIZE / 4] ^= 1;
        disk.write_at(&page, at).unwrap();
    }
}

/// A medium on which an MDT with so many files in one directory was stopped.
fn with_files(files: u64) -> (Arc<FileDisk>, Fid) {
    let disk = formatted(64 << 20);
    let mut client = Client::start(&disk, 64 << 20);
    let dir = client.dir("d");
    (0..files).for_each(|n| client.create(dir, n));
    client.mdt.stop(true).unwrap();
    (disk, dir)
}

/// Inodes are given up: names that led there go, and all sums are what is left.
#[test]
fn inodes_that_are_lost_can_be_given_up() {
    let (disk, dir) = with_files(3000);
    rot_inodes(&disk);
    let mut client = Client::start(&disk, 64 << 20);
    let (found, left) = repair(&mut client);
    assert!(found.iter().filter(|f| f.repair.contains("given up")).count() > 1, "{found:?}");
    assert_eq!(left, []);
    let there = client.list(dir).unwrap();
    assert!(there.len() < 3000 && there.len() > 1000, "{}", there.len());
    let counted = client.ask(&Counts { fid: dir, cred: Cred::root() });
    assert_eq!(counted.own.files, there.len() as u64);
    let gone = (0..3000).find(|n| !there.contains(n)).unwrap();
    client.create(dir, gone);
    client.mdt.stop(false).unwrap();
    drop(client);
    let mut client = Client::start(&disk, 64 << 20);
    assert_eq!(client.list(dir).unwrap().len(), there.len() + 1);
    assert_eq!(fsck(&mut client), []);
    client.mdt.stop(true).unwrap();
}

/// As `stria fsck --repair`: until nothing is left that has a repair. What was found first, and what is left.
fn repair(client: &mut Client) -> (Vec<Finding>, Vec<Finding>) {
    let found = fsck(client);
    let cap = || object::cap::make_admin(&FS_UUID, 1 << 40);
    let mut left = found.clone();
    for _ in 0..16 {
        let has_repair = |finding: &Finding| !finding.repair.is_empty();
        let repairs: Vec<_> = (0..left.len()).filter(|n| has_repair(&left[*n])).collect();
        if repairs.is_empty() {
            break;
        }
        let run = 0;
        repairs.iter().for_each(|n| _ = client.ask(&Repair { cap: cap(), run, number: *n as u32 }));
        left = fsck(client);
    }
    (found, left)
}

/// mds-G1: an admin gives up what is lost. Then nothing is lost, or there, and it stays so through the log, also where the leaf is sound again.
#[test]
fn what_is_lost_can_be_given_up() {
    for heals in [false, true] {
        let (disk, dir) = with_files(3000);
        let was = rot(&disk, &name(1234).0);
        let mut client = Client::start(&disk, 64 << 20);
        assert!(client.list(dir).is_err());
        let (found, left) = repair(&mut client);
        assert!(
            matches!(&found[..], [f] if f.what.contains("are lost") && f.repair.contains("given up")),
            "{found:?}"
        );
        assert_eq!(left, []);
        let mut there = client.list(dir).unwrap();
        assert!(there.len() < 3000 && there.len() > 2850 && !there.contains(&1234));
        // They are in lost+found, for their inodes are there.
        let lookup = Lookup { parent: Fid::ROOT, name: Bytes(b"lost+found".to_vec()), cred: Cred::root() };
        let found = client.ask(&lookup).attr.fid;
        let counted = client.ask(&Counts { fid: found, cred: Cred::root() });
        assert_eq!(counted.own.files, 3000 - there.len() as u64);
        client.create(dir, 1234);
        there.insert(1234);
        client.mdt.stop(false).unwrap();
        drop(client);
        if heals {
            was.iter().for_each(|(at, page)| disk.write_at(page, *at).unwrap());
        }
        for _ in 0..2 {
            let mut client = Client::start(&disk, 64 << 20);
            assert_eq!(client.list(dir).as_ref(), Ok(&there));
            assert_eq!(fsck(&mut client), []);
            client.mdt.stop(true).unwrap();
        }
    }
}

/// kv-K9: a leaf that rots is told as damage of its records, fsck comes to its end behind it, and all others are as they were.
#[test]
fn what_rots_keeps_nobody_from_the_rest() {
    let disk = formatted(64 << 20);
    let mut client = Client::start(&disk, 64 << 20);
    let (dir, other) = (client.dir("d"), client.dir("other"));
    (0..3000).for_each(|n| client.create(dir, n));
    (0..300).for_each(|n| client.create(other, n));
    client.mdt.stop(true).unwrap();
    drop(client);
    // The leaf with one of its names.
    rot(&disk, &name(1234).0);
    let mut client = Client::start(&disk, 64 << 20);
    let lost: BTreeSet<u64> = (0..3000)
        .filter(|n| {
            let lookup = Lookup { parent: dir, name: name(*n), cred: Cred::root() };
            client.try_ask(&lookup).is_err_and(|fault| {
                assert!(fault.code == Code::Damaged, "{fault}");
                true
            })
        })
        .collect();
    assert!(lost.contains(&1234) && lost.len() < 150, "{lost:?}");
    assert!(client.list(dir).is_err(), "a name that is lost is no name that is gone");
    assert_eq!(client.list(other), Ok((0..300).collect()));
    // A name in it is refused, and others are not.
    assert_eq!(client.try_create(dir, 1234).unwrap_err().code, Code::Damaged);
    client.create(other, 300);
    (0..3000).filter(|n| !lost.contains(n) && n % 2 == 0).for_each(|n| client.remove(dir, n));
    let found = fsck(&mut client);
    let damaged: Vec<_> = found.iter().filter(|f| f.wrong == Wrong::DamagedRecord).collect();
    assert!(matches!(&damaged[..], [f] if f.what.contains("are lost")), "{damaged:?}");
    // Records in the damaged ranges yield no findings.
    let others: Vec<_> =
        found.iter().map(|f| f.wrong).filter(|wrong| *wrong != Wrong::DamagedRecord).collect();
    assert_eq!(others, []);
    client.mdt.stop(true).unwrap();
    drop(client);
    let mut client = Client::start(&disk, 64 << 20);
    assert_eq!(client.list(other), Ok((0..301).collect()));
    assert!(client.list(dir).is_err());
    client.mdt.stop(true).unwrap();
}

/// Leaves with records that each start or each change needs rot, and it goes on without what else was in them.
#[test]
fn what_a_start_needs_is_there_twice() {
    let disk = formatted(64 << 20);
    let mut client = Client::start(&disk, 64 << 20);
    let dir = client.dir("d");
    (0..300).for_each(|n| client.create(dir, n));
    let inodes = |client: &mut Client| {
        let stat = client.ask(&TargetStat {});
        stat.files_total - stat.files_free
    };
    let before = inodes(&mut client);
    client.mdt.stop(true).unwrap();
    drop(client);
    // By the client's own id: with its session are ids, totals, and that directories are counted.
    rot(&disk, &[1; 16]);
    let mut client = Client::start(&disk, 64 << 20);
    assert_eq!(client.mdt.sessions().len(), 1, "that of before is lost, and has ended");
    assert_eq!(inodes(&mut client), before);
    client.mdt.checkpoint().unwrap();
    let new = client.dir("e");
    assert!(new.0 > dir.0 + 300, "no fid is given again");
    let leaves = client.mdt.figures().leaves;
    (0..600).for_each(|n| client.create(new, n));
    assert_eq!(client.list(new), Ok((0..600).collect()));
    let more = client.mdt.figures().leaves - leaves;
    assert!(more < 40, "{more} leaves for 600 files: what was made now was not lost before");
    let counts = client.ask(&Counts { fid: new, cred: Cred::root() });
    assert_eq!((counts.own.files, counts.tree.files), (600, 600));
    client.mdt.stop(true).unwrap();
    drop(client);
    // All leaves.
    rot(&disk, b"SKL1");
    let mut client = Client::start(&disk, 64 << 20);
    assert_eq!(inodes(&mut client), before + 601);
    assert_eq!(client.ask(&GetAttr { fid: Fid::ROOT }).attr.fid, Fid::ROOT);
    assert_eq!(client.try_create(Fid::ROOT, 1).unwrap_err().code, Code::Damaged, "there may be such a name");
    // Whatever is found lost later, and however often it starts.
    client.mdt.checkpoint().unwrap();
    client.mdt.stop(false).unwrap();
    drop(client);
    let mut client = Client::start(&disk, 64 << 20);
    assert_eq!(inodes(&mut client), before + 601);
    client.mdt.stop(true).unwrap();
}

/// A clock that a test hurries.
#[derive(Default)]
struct Hurried(AtomicU64, AtomicU64);

impl Clock for Hurried {
    fn boot_ms(&self) -> u64 {
        let step = self.1.load(Ordering::Relaxed);
        self.0.fetch_add(step, Ordering::Relaxed) + step
    }
    fn wall(&self) -> Time {
        Time::new(1_000_000, 0)
    }
}

/// A snapshot that fsck or a backup holds is dropped when a checkpoint needs its space.
#[test]
fn a_checkpoint_finds_room_whoever_goes_through_an_older_state() {
    let disk = formatted(16 << 20);
    let clock = Arc::new(Hurried::default());
    let settings = Settings { cache_bytes: 4 * TIGHT, clock: clock.clone(), ..Settings::default() };
    let mut client = Client::with(&disk, settings);
    // Three quarters of what it can hold.
    let (dir, mut files) = (client.dir("d"), 0);
    let is_low = |client: &mut Client| {
        let stat = client.ask(&TargetStat {});
        stat.bytes_free < stat.bytes_total / 6
    };
    while !is_low(&mut client) {
        (files..files + 200).for_each(|n| client.create(dir, n));
        files += 200;
        client.mdt.checkpoint().unwrap();
    }
    comes_within_its_bound(&client.mdt);
    // All leaves change after one of them began, and again after the other one did: with what is named there are three copies of all.
    let cap = object::cap::make_admin(&FS_UUID, 1 << 40);
    let copy = |run, after| CopyOut { cap: cap.clone(), run, after };
    let check = |run| Check { cap: cap.clone(), run, seen: 0 };
    let change_all = |client: &mut Client| {
        for n in 0..files {
            client.remove(dir, n);
            client.create(dir, n);
        }
        client.mdt.checkpoint().unwrap();
        comes_within_its_bound(&client.mdt);
    };
    let copied = client.ask(&copy(0, Bytes::default()));
    change_all(&mut client);
    clock.1.store(1000, Ordering::Relaxed);
    let checked = client.ask(&check(0));
    clock.1.store(0, Ordering::Relaxed);
    assert!(!copied.done && !checked.done);
    change_all(&mut client);
    let after = copied.records.last().unwrap().key.clone();
    for refused in [client.try_ask(&copy(copied.run, after)).err(), client.try_ask(&check(checked.run)).err()]
    {
        let refused = refused.unwrap();
        assert!(refused.code == Code::Stale && refused.detail.contains("begin anew"), "{refused}");
    }
    assert_eq!(client.list(dir), Ok((0..files).collect()));
    assert_eq!(fsck(&mut client), []);
    client.mdt.stop(true).unwrap();
}
