//! The cost of the table with as many records as an MDT of a million files has: times and memory, to compare two builds.
//! `cargo test --release -p stria-kv --test measure -- --ignored --nocapture`; `STRIA_FILES` sets the number of files.

use std::hint::black_box;
use std::sync::Arc;

use disk::MemDisk;
use kv::{Batch, Engine, Medium, Table, Value, View};
use types::{Key, Seq};

const IN_DIRECTORY: u64 = 1000;
/// Keys as `meta` makes them, for a name of twelve letters.
const ENTRY_BYTES: usize = 18;
const INODE_BYTES: usize = 30;

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
    key(&[&[2], &(10_000 + file).to_be_bytes()])
}

fn value(of: u64, len: usize) -> Value {
    let mut bytes = vec![0; len];
    bytes[..8].copy_from_slice(&of.to_le_bytes());
    Value::new(&bytes)
}

fn create(table: &Table, seq: u64, directory: u64, file: u64) {
    let mut batch = Batch::new();
    batch.put(entry(directory, file), value(file, ENTRY_BYTES));
    batch.put(inode(file), value(file, INODE_BYTES));
    batch.put(key(&[&[2], &(500 + directory).to_be_bytes()]), value(seq, INODE_BYTES));
    batch.put(key(&[&[10], &[1]]), value(seq, 9));
    table.apply(Seq(seq), batch);
}

fn remove(table: &Table, seq: u64, directory: u64, file: u64) {
    let mut batch = Batch::new();
    batch.delete(entry(directory, file));
    batch.delete(inode(file));
    batch.put(key(&[&[2], &(500 + directory).to_be_bytes()]), value(seq, INODE_BYTES));
    batch.put(key(&[&[10], &[1]]), value(seq, 9));
    table.apply(Seq(seq), batch);
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

/// Nanoseconds of processor time of this thread.
fn run_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("this is Linux");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// Nanoseconds for each of `n` times.
fn each(n: u64, mut f: impl FnMut(u64)) -> u64 {
    let begin = run_ns();
    (0..n).for_each(&mut f);
    (run_ns() - begin) / n
}

/// Checkpoints of leaves: of all leaves, of those that a hundredth of the files changed, and opening one.
fn on_a_medium(files: u64) {
    let disk = Arc::new(MemDisk::new(2 << 30));
    let medium = |checkpoint| Medium {
        disk: disk.clone(),
        slots: [0..1 << 30, 1 << 30..2 << 30],
        checkpoint,
        cache_bytes: std::sync::Arc::new(u64::MAX.into()),
        troubles: Arc::default(),
    };
    let table = Table::over(medium(None)).expect("it is empty");
    (0..files).for_each(|n| create(&table, n, n / IN_DIRECTORY, n));
    let checkpoint = || {
        let (begin, mut stream) = (run_ns(), Vec::new());
        table.checkpoint(&table.snapshot(), &mut std::iter::empty(), &mut stream).expect("memory takes it");
        table.end_checkpoint(true);
        ((run_ns() - begin) / 1_000_000, stream)
    };
    let (all_ms, _) = checkpoint();
    let directories = files / IN_DIRECTORY;
    (0..files / 100).for_each(|n| create(&table, files + n, mixed(n) % directories, files + n));
    let (some_ms, stream) = checkpoint();
    let begin = run_ns();
    let opened = Table::over(medium(Some(0..stream.len() as u64))).expect("it has a checkpoint");
    let opened = opened.open(Seq(2 * files), &mut &stream[..], &mut |_, _| false).expect("it is whole");
    let open_ms = (run_ns() - begin) / 1_000_000;
    assert_eq!(opened.figures().size, table.figures().size);
    println!(
        "on a medium: {} MB in leaves, {} KB in the head; checkpoint of all {all_ms} ms, after {} creates anywhere {some_ms} ms; open {open_ms} ms",
        table.snapshot().medium_bytes() / 1_000_000,
        stream.len() / 1000,
        files / 100,
    );
}

#[test]
#[ignore = "it measures, and takes half a minute"]
fn measure() {
    let files: u64 = std::env::var("STRIA_FILES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let directories = files / IN_DIRECTORY;
    let before = resident_bytes();
    let table = Table::new();
    // One directory after the other, as trees are made.
    let load = each(files, |n| create(&table, n, n / IN_DIRECTORY, n));
    let memory = resident_bytes() - before;

    let directory_of = |n: u64| n / IN_DIRECTORY;
    let stat = |n: u64| {
        let view = table.reader();
        black_box(view.get(&entry(directory_of(n), n)).expect("no damage").is_some());
        black_box(view.get(&inode(n)).expect("no damage").expect("it was made").len());
    };
    let uniform = each(1_000_000, |n| stat(mixed(n) % files));
    let hot = each(1_000_000, |n| stat(mixed(n) % 1000));
    let range = each(500, |n| {
        let mut left = 4096;
        let from = entry(mixed(n) % directories.saturating_sub(5).max(1), 0);
        let counted = table.reader().range(&from, &key(&[&[2]]), &mut |k, v| {
            black_box((k.as_bytes()[8], v.len()));
            left -= 1;
            left > 0
        });
        counted.expect("no damage");
    }) / 4096;

    let more = files / 5;
    let hot_create = each(more, |n| create(&table, files + n, directories + n / 10_000, files + n));
    let wide_create =
        each(more, |n| create(&table, files + more + n, mixed(n) % directories, files + more + n));
    let wide_remove =
        each(more, |n| remove(&table, files + 2 * more + n, mixed(n) % directories, files + more + n));
    let hot_remove =
        each(more, |n| remove(&table, files + 3 * more + n, directories + n / 10_000, files + n));
    let records = table.figures().size.records;
    assert_eq!(records, 2 * files + directories + more.div_ceil(10_000) + 1);

    on_a_medium(files);
    let begin = run_ns();
    let mut stream = Vec::new();
    table.checkpoint(&table.snapshot(), &mut std::iter::empty(), &mut stream).expect("memory takes it");
    let write_ms = (run_ns() - begin) / 1_000_000;
    let begin = run_ns();
    let opened = Table::new().open(Seq(9 * files), &mut &stream[..], &mut |_, _| false).expect("it is whole");
    let open_ms = (run_ns() - begin) / 1_000_000;
    assert_eq!(opened.figures().size.records, records);
    println!(
        "{files} files: {} B/file; ns: load {load}, stat uniform {uniform}, hot {hot}, range {range}/record, create in one directory \
         {hot_create}, in any {wide_create}, remove {hot_remove}, {wide_remove}; checkpoint {write_ms} ms, open {open_ms} ms",
        memory / files
    );
}
