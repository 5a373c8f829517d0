//! Two clients of one file system whose servers lose power, alone or with the clients.

mod common;

use std::sync::Arc;
use std::time::Duration;

use client::{Fs, Handle, OpenFlags};
use common::{Cluster, Wiring, pattern, read};
use disk::{Crash, SplitMix};
use types::{Cred, Fid};

const PAGE: usize = 4096;
const PAGES: usize = 60;
const FILES: usize = 3;

/// Counts of the long form when `STRIA_LONG` is set.
fn count(short: u64, long: u64) -> u64 {
    if std::env::var_os("STRIA_LONG").is_some() { long } else { short }
}

/// Files that two clients have open, and what they must hold.
struct Shared {
    cluster: Cluster,
    clients: [Arc<Fs>; 2],
    files: Vec<SharedFile>,
    rng: SplitMix,
}

struct SharedFile {
    fid: Fid,
    handles: [Handle; 2],
    /// Per page, what it may hold after a loss of power: what is durable, then each write since.
    pages: Vec<Vec<Vec<u8>>>,
    size: usize,
    durable_size: usize,
}

impl Shared {
    /// Files with no bytes, durable.
    fn new(seed: u64) -> Shared {
        let mut cluster = Cluster::quiet(Wiring::Tcp, 2);
        cluster.sessions_live(Duration::from_millis(1000));
        let clients = [cluster.mount_lazy(), cluster.mount_lazy()];
        let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
        let files = (0..FILES)
            .map(|n| {
                let name = format!("shared{n}");
                let made = clients[n % 2].create(Fid::ROOT, name.as_bytes(), 0o644, flags, &Cred::root());
                let (attr, first) = made.expect("create");
                let second = clients[(n + 1) % 2].open(attr.fid, OpenFlags::read_write()).expect("open").0;
                clients[n % 2].fsync(first, false).expect("fsync");
                let mut handles = [first, second];
                handles.rotate_left(n % 2);
                SharedFile {
                    fid: attr.fid,
                    handles,
                    pages: vec![vec![vec![0; PAGE]]; PAGES],
                    size: 0,
                    durable_size: 0,
                }
            })
            .collect();
        Shared { cluster, clients, files, rng: SplitMix::new(seed) }
    }

    fn below(&mut self, n: usize) -> usize {
        (self.rng.next_u64() % n as u64) as usize
    }

    /// One client writes a page, which the other may have written last.
    fn write(&mut self) {
        let (who, file) = (self.below(2), self.below(FILES));
        // Some files stay small, and inline.
        let page = if file == 0 { self.below(4) } else { self.below(8) * (PAGES / 8) };
        let data = pattern(self.rng.next_u64(), PAGE);
        let f = &mut self.files[file];
        self.clients[who].write(f.handles[who], (page * PAGE) as u64, &data).expect("write");
        f.pages[page].push(data);
        f.size = f.size.max((page + 1) * PAGE);
    }

    fn fsync(&mut self) {
        let (who, file) = (self.below(2), self.below(FILES));
        self.fsync_of(who, file);
    }
    /// It counts for what both have written.
    fn fsync_of(&mut self, who: usize, file: usize) {
        let f = &mut self.files[file];
        self.clients[who].fsync(f.handles[who], false).expect("fsync");
        f.pages.iter_mut().for_each(|past| drop(past.drain(..past.len() - 1)));
        f.durable_size = f.size;
    }

    /// As both see them, with nothing lost.
    fn check(&self, when: &str) {
        for (who, fs) in self.clients.iter().enumerate() {
            for (n, f) in self.files.iter().enumerate() {
                let all = read(fs, f.handles[who], 0, PAGES * PAGE).expect("read");
                assert_eq!(all.len(), f.size, "{when}: client {who}, file {n}");
                for (page, got) in all.chunks(PAGE).enumerate() {
                    let is_last = f.pages[page].last().is_some_and(|last| got == last);
                    assert!(is_last, "{when}: client {who}, file {n}, page {page}");
                }
            }
        }
    }

    /// Clients and servers lose power; a third client finds each page old or new, and nothing missing that was durable.
    fn lose_power_and_judge(mut self, when: &str) {
        self.clients.iter().for_each(|fs| fs.abort());
        for n in 0..2 {
            let crash = self.any_crash();
            self.cluster.crash_ost(n, crash);
        }
        let crash = self.any_crash();
        self.cluster.crash_mdt(crash);
        let fs = self.cluster.mount();
        for (n, f) in self.files.iter().enumerate() {
            let h = fs.open(f.fid, OpenFlags::read_only()).expect("open").0;
            let all = read(&fs, h, 0, PAGES * PAGE).expect("read");
            assert!(
                (f.durable_size..=f.size).contains(&all.len()),
                "{when}: file {n} has {} of {} ({})",
                all.len(),
                f.size,
                f.durable_size
            );
            for (page, got) in all.chunks(PAGE).enumerate() {
                assert!(f.pages[page].iter().any(|one| got == one), "{when}: file {n}, page {page}");
            }
        }
        fs.shutdown().expect("shutdown");
    }

    fn any_crash(&mut self) -> Crash {
        let seed = self.rng.next_u64();
        match seed % 3 {
            0 => Crash::DropAll,
            1 => Crash::Writes(seed),
            _ => Crash::Sectors(seed),
        }
    }
}

/// [S-replay] [S-several-mounts] A server loses power while two clients write to the same files: both tell it again what it had
/// acknowledged to them.
#[test]
fn what_a_server_lost_both_clients_send_again() {
    for seed in 0..count(5, 100) {
        let mut shared = Shared::new(seed);
        let mut names: Vec<(String, Fid)> = Vec::new();
        for round in 0..3 {
            for n in 0..12 {
                shared.write();
                if shared.below(6) == 0 {
                    shared.fsync();
                }
                let fs = &shared.clients[n % 2];
                let name = format!("r{round}n{n}");
                let fid = fs.mkdir(Fid::ROOT, name.as_bytes(), 0o755, &Cred::root()).expect("mkdir").fid;
                assert!(names.iter().all(|(_, other)| *other != fid), "seed {seed}: fid {fid} twice");
                names.push((name, fid));
            }
            let crash = shared.any_crash();
            match shared.below(3) {
                2 => shared.cluster.crash_mdt(crash),
                n => shared.cluster.crash_ost(n, crash),
            }
            let when = format!("seed {seed}, round {round}");
            shared.check(&when);
            for (name, fid) in &names {
                for fs in &shared.clients {
                    assert_eq!(
                        fs.lookup(Fid::ROOT, name.as_bytes()).expect(&when).fid,
                        *fid,
                        "{when}: {name}"
                    );
                }
            }
        }
        for file in 0..FILES {
            let who = shared.below(2);
            shared.fsync_of(who, file);
        }
        shared.lose_power_and_judge(&format!("seed {seed}, in the end"));
    }
}

/// [S-power-loss] [S-fsync] [S-several-mounts] All power goes while two clients write to the same files.
#[test]
fn after_power_loss_each_page_that_two_clients_wrote_is_old_or_new() {
    for seed in 100..100 + count(6, 150) {
        let mut shared = Shared::new(seed);
        for _ in 0..20 + shared.below(60) {
            match shared.below(8) {
                0 => shared.fsync(),
                _ => shared.write(),
            }
        }
        shared.lose_power_and_judge(&format!("seed {seed}"));
    }
}

/// [S-replay] One that only waits, beside one that died with the MDT's power: what it did is there when the dead one's session has
/// ended, and its own has not.
#[test]
fn an_idle_client_tells_the_mdt_again_though_another_never_comes_back() {
    // Its keeper, which ends sessions, wakes as often as it flushes.
    let mut cluster = Cluster::new(Wiring::Tcp, 2);
    cluster.sessions_live(Duration::from_secs(1));
    let (a, b) = (cluster.mount_lazy(), cluster.mount_lazy());
    let names: Vec<String> = (0..100).map(|n| format!("idle{n}")).collect();
    for name in &names {
        a.mkdir(Fid::ROOT, name.as_bytes(), 0o755, &Cred::root()).expect("mkdir");
    }
    let session = a.session();
    b.abort();
    cluster.crash_mdt(Crash::DropAll);
    std::thread::sleep(Duration::from_secs(8));
    for name in &names {
        a.lookup(Fid::ROOT, name.as_bytes()).expect(name);
    }
    assert_eq!(a.session(), session, "nobody has ended it");
}
