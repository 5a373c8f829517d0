//! `bakeoff SIDE DIR run FILES CACHE_MIB` prints one JSON line of figures; `open`, `check`, `write` and `judge` serve run.py.

mod libs;
mod ours;
mod store;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use disk::FileDisk;
use kv::{Batch, Value};
use store::{Behind, Look, Side};
use types::Key;

const IN_DIRECTORY: u64 = 1000;
/// As `meta` makes them, of a name of twelve letters.
const ENTRY_BYTES: usize = 18;
const INODE_BYTES: usize = 30;

pub fn file_disk(path: &Path, bytes: u64) -> FileDisk {
    match path.exists() {
        true => FileDisk::open(path),
        false => FileDisk::create(path, bytes),
    }
    .expect("a file")
}

fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn key(parts: &[&[u8]]) -> Key {
    let (mut bytes, mut len) = ([0; 23], 0);
    for part in parts {
        bytes[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    Key::new(&bytes[..len]).expect("short")
}
fn entry(directory: u64, file: u64) -> Key {
    key(&[&[1], &(500 + directory).to_be_bytes(), &mixed(file + 1).to_be_bytes(), &[0]])
}
fn inode(file: u64) -> Key {
    key(&[&[2], &(1 << 32 | file).to_be_bytes()])
}
fn value(of: u64, len: usize) -> Value {
    let mut bytes = vec![0; len];
    bytes[..8].copy_from_slice(&of.to_le_bytes());
    Value::new(&bytes)
}

fn create(batch: &mut Batch, seq: u64, directory: u64, file: u64) {
    batch.put(entry(directory, file), value(file, ENTRY_BYTES));
    batch.put(inode(file), value(file, INODE_BYTES));
    touch(batch, seq, directory);
}
fn remove(batch: &mut Batch, seq: u64, directory: u64, file: u64) {
    batch.delete(entry(directory, file));
    batch.delete(inode(file));
    touch(batch, seq, directory);
}
fn touch(batch: &mut Batch, seq: u64, directory: u64) {
    batch.put(key(&[&[2], &(500 + directory).to_be_bytes()]), value(seq, INODE_BYTES));
    batch.put(key(&[&[10], &[1]]), value(seq, 9));
}

fn cpu_us() -> f64 {
    // SAFETY: `usage` is plain data and large enough.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let of = |t: libc::timeval| t.tv_sec as f64 * 1e6 + t.tv_usec as f64;
    of(usage.ru_utime) + of(usage.ru_stime)
}

fn rss_mib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") / 256
}

fn disk_mib(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).expect("a directory");
    let of = |e: std::fs::DirEntry| match e.metadata() {
        Ok(m) if m.is_dir() => disk_mib(&e.path()),
        Ok(m) => m.blocks() / 2048,
        Err(_) => 0,
    };
    entries.flatten().map(of).sum()
}

/// Rows of one side: wall time and processor time (of all its threads) of one operation, in microseconds.
struct Rows(String);

impl Rows {
    fn put(&mut self, name: &str, value: impl std::fmt::Display) {
        let comma = if self.0.is_empty() { "" } else { ", " };
        write!(self.0, "{comma}\"{name}\": {value}").expect("a string");
    }
    fn time(&mut self, name: &str, n: u64, f: impl FnOnce()) {
        let (cpu, begin) = (cpu_us(), Instant::now());
        f();
        let (wall, cpu) = (begin.elapsed().as_secs_f64() * 1e6, cpu_us() - cpu);
        self.put(name, format_args!("[{:.3}, {:.3}]", wall / n as f64, cpu / n as f64));
        eprintln!("{name}: {:.2} us, cpu {:.2}", wall / n as f64, cpu / n as f64);
    }
}

fn stat(look: &impl Look, directory: u64, file: u64) {
    let mut sum = 0;
    assert!(look.get(&entry(directory, file), &mut |v| sum += v.len()), "file {file}");
    assert!(look.get(&inode(file), &mut |v| sum += v.len()), "inode {file}");
    black_box(sum);
}

/// A file at random with exponent 0.9: the tenth power of a uniform number.
fn zipf(n: u64, files: u64) -> u64 {
    let u = (mixed(n) >> 11) as f64 / (1u64 << 53) as f64;
    mixed((files as f64 * u.powi(10)) as u64) % files
}

fn run<S: Side>(dir: &Path, files: u64, cache_bytes: u64) {
    let mut rows = Rows(String::new());
    let side = S::open(dir, cache_bytes);
    let mut seq = 0;
    let mut apply = |batch: Batch| {
        seq += 1;
        side.apply(seq, batch);
    };
    let directories = files / IN_DIRECTORY;
    let apply_each = |n: u64, per: u64, apply: &mut dyn FnMut(Batch), f: &dyn Fn(&mut Batch, u64)| {
        let mut batch = Batch::new();
        for i in 0..n {
            f(&mut batch, i);
            if (i + 1) % per == 0 {
                apply(std::mem::take(&mut batch));
            }
        }
        if !batch.0.is_empty() {
            apply(batch);
        }
    };
    rows.time("load", files, || {
        apply_each(files, 16, &mut apply, &|b, n| create(b, n, n / IN_DIRECTORY, n));
    });
    let begin = Instant::now();
    side.persist();
    rows.put("persist_ms", begin.elapsed().as_millis());
    rows.put("rss_mib", rss_mib());
    rows.put("disk_mib", disk_mib(dir));

    let reads = 1_000_000.min(files);
    let stats = |from: u64, n: u64, which: &dyn Fn(u64) -> u64| {
        for i in from..from + n {
            let file = which(i);
            stat(&side.reader(), file / IN_DIRECTORY, file);
        }
    };
    let uniform = |n: u64| mixed(n) % files;
    stats(0, reads / 10, &uniform);
    rows.time("stat_uniform", reads, || stats(0, reads, &uniform));
    rows.time("stat_zipf", reads, || stats(0, reads, &|n| zipf(n, files)));
    rows.time("stat_2_threads", reads, || {
        std::thread::scope(|s| {
            s.spawn(|| stats(7 << 32, reads / 2, &|n| mixed(n) % files));
            stats(9 << 32, reads / 2, &|n| mixed(n) % files);
        });
    });
    let lists = 300.min(directories);
    rows.time("readdirplus", lists * IN_DIRECTORY, || {
        for n in 0..lists {
            let directory = mixed(n) % directories;
            let (from, to) = (entry_bound(directory), entry_bound(directory + 1));
            let (look, mut listed) = (side.reader(), Vec::new());
            look.range(&from, &to, &mut |_, v| {
                listed.push(u64::from_le_bytes(v[..8].try_into().expect("eight")));
                true
            });
            assert_eq!(listed.len() as u64, IN_DIRECTORY);
            for file in listed {
                assert!(look.get(&inode(file), &mut |v| {
                    black_box(v.len());
                }));
            }
        }
    });

    let more = (files / 5).min(200_000);
    let anywhere = |n: u64| mixed(n) % directories;
    rows.time("create", more, || {
        apply_each(more, 1, &mut apply, &|b, n| create(b, n, anywhere(n), files + n));
    });
    rows.time("create_16", more, || {
        apply_each(more, 16, &mut apply, &|b, n| create(b, n, anywhere(n), files + more + n));
    });
    rows.time("mixed", more, || {
        // 70 % stat, 20 % readdir of 20 entries, 5 % creates, 5 % removes of those.
        for n in 0..more {
            match mixed(n ^ 0x5555) % 20 {
                0 => {
                    let mut batch = Batch::new();
                    create(&mut batch, n, anywhere(n), files + 2 * more + n);
                    apply(batch);
                }
                1 => {
                    let mut batch = Batch::new();
                    remove(&mut batch, n, anywhere(n / 2), files + n / 2);
                    apply(batch);
                }
                2..6 => {
                    let (directory, mut left) = (uniform(n) / IN_DIRECTORY, 20);
                    side.reader().range(&entry_bound(directory), &entry_bound(directory + 1), &mut |_, v| {
                        black_box(v.len());
                        left -= 1;
                        left > 0
                    });
                }
                _ => stats(n, 1, &uniform),
            }
        }
    });
    rows.time("remove", more, || {
        apply_each(more, 1, &mut apply, &|b, n| remove(b, n, anywhere(n), files + more + n));
    });

    // Stalls: creates and stats each on a thread while a checkpoint is made of all that changed.
    let (done, worst_get) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut worst_apply = Duration::ZERO;
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut n = 0;
            while !done.load(Ordering::Relaxed) {
                let begin = Instant::now();
                stats(n, 1, &uniform);
                worst_get.fetch_max(begin.elapsed().as_micros() as u64, Ordering::Relaxed);
                n += 1;
            }
        });
        let begin = Instant::now();
        let persist = s.spawn(|| side.persist());
        let mut n = 0;
        while !persist.is_finished() {
            let mut batch = Batch::new();
            create(&mut batch, n, anywhere(n), 2 * files + n);
            let begin = Instant::now();
            apply(batch);
            worst_apply = worst_apply.max(begin.elapsed());
            n += 1;
        }
        rows.put("persist_changed_ms", begin.elapsed().as_millis());
        done.store(true, Ordering::Relaxed);
    });
    rows.put("worst_apply_us", worst_apply.as_micros());
    rows.put("worst_get_us", worst_get.load(Ordering::Relaxed));
    rows.put("rss_end_mib", rss_mib());
    let begin = Instant::now();
    side.close();
    rows.put("close_ms", begin.elapsed().as_millis());
    rows.put("disk_end_mib", disk_mib(dir));
    println!("{{{}}}", rows.0);
}

fn entry_bound(directory: u64) -> Key {
    key(&[&[1], &(500 + directory).to_be_bytes()])
}

/// Milliseconds until the first stat was answered.
fn open<S: Side>(dir: &Path, cache_bytes: u64) {
    let begin = Instant::now();
    let side = S::open(dir, cache_bytes);
    stat(&side.reader(), 0, 0);
    println!("{} {}", begin.elapsed().as_millis(), side.seq());
}

/// Creates until it is killed.
fn again<S: Side>(dir: &Path, files: u64, cache_bytes: u64) {
    let side = S::open(dir, cache_bytes);
    println!("open");
    for n in 0.. {
        let mut batch = Batch::new();
        create(&mut batch, n, mixed(n) % (files / IN_DIRECTORY), 4 * files + n);
        side.apply(side.seq() + 1, batch);
    }
}

/// Random batches, compared with a plain map, over closes and opens.
fn check<S: Side>(dir: &Path, cache_bytes: u64) {
    let mut model = BTreeMap::<Key, Vec<u8>>::new();
    let (mut seq, mut draw) = (0, 0);
    let mut random = |below: u64| {
        draw += 1;
        mixed(draw) % below
    };
    for life in 0..4 {
        let side = S::open(dir, cache_bytes);
        assert_eq!(side.seq(), seq, "life {life}");
        for _ in 0..1500 {
            let mut batch = Batch::new();
            for _ in 0..1 + random(8) {
                let k = key(&[&random(900).to_be_bytes()]);
                if random(10) < 6 {
                    let v = vec![random(256) as u8; random(200) as usize];
                    batch.put(k, Value::new(&v));
                    model.insert(k, v);
                } else {
                    batch.delete(k);
                    model.remove(&k);
                }
            }
            seq += 1;
            side.apply(seq, batch);
            let some = key(&[&random(900).to_be_bytes()]);
            let mut got = None;
            side.reader().get(&some, &mut |v| got = Some(v.to_vec()));
            assert_eq!(got.as_ref(), model.get(&some));
        }
        let mut all = Vec::new();
        side.reader().range(&Key::default(), &key(&[&[0xff]]), &mut |k, v| {
            all.push((k.to_vec(), v.to_vec()));
            true
        });
        assert!(all.iter().map(|(k, v)| (&k[..], v)).eq(model.iter().map(|(k, v)| (k.as_bytes(), v))));
        side.close();
    }
    println!("conforms");
}

fn some_key(seq: u64, n: u64) -> Key {
    key(&[&((mixed(seq * 20 + n) as u16) & 0x7fff).to_be_bytes()])
}

/// For power loss: batches with a sum that a judge can check, a persist after each 20th; tells what is durable.
fn write<S: Side>(dir: &Path, batches: u64) {
    let side = S::open(dir, 64 << 20);
    for seq in 1..=batches {
        let mut batch = Batch::new();
        (0..20).for_each(|n| batch.put(some_key(seq, n), value(seq, 200)));
        batch.put(key(&[&[0x80, 0, 0]]), value(seq, 8));
        side.apply(seq, batch);
        if seq % 20 == 0 {
            side.persist();
            println!("durable {seq}");
            std::fs::File::open(dir.join("mark")).ok();
        }
    }
    std::process::exit(0);
}

/// After power loss: the state is that after some whole batch, `from` at least.
fn judge<S: Side>(dir: &Path, from: u64) {
    let side = S::open(dir, 64 << 20);
    let seq = side.seq();
    assert!(seq >= from, "entry {seq} is the last, {from} was durable");
    let mut model = BTreeMap::new();
    for seq in 1..=seq {
        for n in 0..20 {
            model.insert(some_key(seq, n).as_bytes().to_vec(), seq);
        }
        model.insert(vec![0x80, 0, 0], seq);
    }
    let mut all = BTreeMap::new();
    side.reader().range(&Key::default(), &key(&[&[0x90]]), &mut |k, v| {
        all.insert(k.to_vec(), u64::from_le_bytes(v[..8].try_into().expect("eight")));
        true
    });
    assert!(all == model, "not the state of entry {seq}");
    println!("sound {seq}");
}

fn told<S: Side>(args: &[String]) {
    let dir = PathBuf::from(&args[1]);
    let number = |n: usize| args.get(n).and_then(|a| a.parse::<u64>().ok()).expect("a number");
    match &args[2][..] {
        "run" => run::<S>(&dir, number(3), number(4) << 20),
        "open" => open::<S>(&dir, number(3) << 20),
        "again" => again::<S>(&dir, number(3), number(4) << 20),
        "check" => check::<S>(&dir, 64 << 20),
        "write" => write::<S>(&dir, number(3)),
        "judge" => judge::<S>(&dir, number(3)),
        other => panic!("no such thing: {other}"),
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[0][..] {
        "leaves" => told::<ours::Leaves>(&args),
        "imbl" => told::<ours::Imbl>(&args),
        #[cfg(feature = "redb")]
        "redb" => told::<Behind<libs::redb_side::Redb, 0>>(&args),
        #[cfg(feature = "redb")]
        "redb-map" => told::<Behind<libs::redb_side::Redb, 4096>>(&args),
        #[cfg(feature = "heed")]
        "lmdb-map" => told::<Behind<libs::heed_side::Lmdb, 4096>>(&args),
        #[cfg(feature = "fjall")]
        "fjall" => told::<Behind<libs::fjall_side::Fjall, 0>>(&args),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => told::<Behind<libs::rocks_side::Rocks, 0>>(&args),
        other => panic!("no such side: {other}"),
    }
}
