//! Our own engines: the table of packed leaves, and a plain imbl map as the table was before.

use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::FileDisk;
use imbl::OrdMap;
use kv::{Batch, Engine, Medium, Miss, Table, Value, View};
use parking_lot::RwLock;
use types::{Key, Seq};

use crate::store::{Look, Side};

/// Slots as of a medium that has room for two copies of all.
fn slot_bytes() -> u64 {
    std::env::var("SLOT_MIB").map_or(3 << 30, |mib| mib.parse::<u64>().expect("a number") << 20)
}

pub struct Leaves {
    table: Table,
    disk: Arc<FileDisk>,
    head: PathBuf,
    seq: AtomicU64,
}

impl Side for Leaves {
    type Reader<'a> = Seen<'a>;

    fn open(dir: &Path, _: u64) -> Leaves {
        let (leaves, head) = (dir.join("leaves"), dir.join("head"));
        let disk = Arc::new(crate::file_disk(&leaves, 2 * slot_bytes()));
        let mut stream = Vec::new();
        if let Ok(mut file) = File::open(&head) {
            file.read_to_end(&mut stream).expect("the head");
        }
        let checkpoint = (!stream.is_empty()).then(|| 0..stream.len() as u64);
        let slots = [0..slot_bytes(), slot_bytes()..2 * slot_bytes()];
        let mut table = Table::over(Medium { disk: disk.clone(), slots, checkpoint }).expect("a medium");
        let mut seq = 0;
        if let Some((at, mut rest)) = stream.split_first_chunk::<8>() {
            seq = u64::from_le_bytes(*at);
            table = table.open(Seq(seq), &mut rest, &mut |_, _| false).expect("a whole head");
        }
        Leaves { table, disk, head, seq: AtomicU64::new(seq) }
    }

    fn reader(&self) -> Self::Reader<'_> {
        Seen { table: &self.table, view: self.table.reader() }
    }

    fn apply(&self, seq: u64, batch: Batch) {
        self.table.apply(Seq(seq), batch);
        self.seq.store(seq, Ordering::Relaxed);
    }

    fn persist(&self) {
        let snap = self.table.snapshot();
        let mut stream = snap.seq().0.to_le_bytes().to_vec();
        self.table.checkpoint(&snap, &mut std::iter::empty(), &mut stream).expect("room");
        disk::Disk::flush(&*self.disk).expect("a flush");
        let new = self.head.with_extension("new");
        let mut file = File::create(&new).expect("a file");
        file.write_all(&stream).and_then(|()| file.sync_all()).expect("the head");
        std::fs::rename(&new, &self.head).expect("a name");
        File::open(self.head.parent().expect("a directory")).and_then(|d| d.sync_all()).expect("a sync");
        self.table.end_checkpoint(true);
    }

    fn seq(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    fn close(self) {
        self.persist();
    }
}

pub struct Seen<'a> {
    table: &'a Table,
    view: <Table as Engine>::Reader<'a>,
}

impl Look for Seen<'_> {
    fn get(&self, key: &Key, f: &mut dyn FnMut(&[u8])) -> bool {
        loop {
            match self.view.get(key) {
                Ok(value) => return value.map(|v: Cow<'_, [u8]>| f(&v)).is_some(),
                Err(Miss::Absent(what)) => self.table.load(what).expect("a sound medium"),
                Err(Miss::Damage(damage)) => panic!("{damage}"),
            }
        }
    }
    /// What was absent is loaded, and the walk goes on behind the last record that was shown.
    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        let mut last = None;
        loop {
            let (begin, skip) = (last.unwrap_or(*from), last);
            let walked = self.view.range(&begin, to, &mut |k, v| {
                if skip == Some(*k) {
                    return true;
                }
                last = Some(*k);
                f(k.as_bytes(), v)
            });
            match walked {
                Ok(()) => return,
                Err(Miss::Absent(what)) => self.table.load(what).expect("a sound medium"),
                Err(Miss::Damage(damage)) => panic!("{damage}"),
            }
        }
    }
}

/// One map of imbl behind a lock; a checkpoint is a stream of all records.
pub struct Imbl {
    map: RwLock<Arc<(OrdMap<Key, Value>, u64)>>,
    file: PathBuf,
}

pub struct ImblReader(Arc<(OrdMap<Key, Value>, u64)>);

impl Side for Imbl {
    type Reader<'a> = ImblReader;

    fn open(dir: &Path, _: u64) -> Imbl {
        let file = dir.join("records");
        let (mut map, mut seq) = (OrdMap::new(), 0);
        if let Ok(bytes) = std::fs::read(&file) {
            let (at, mut rest) = bytes.split_first_chunk::<8>().expect("a whole stream");
            seq = u64::from_le_bytes(*at);
            while let [key_len, more @ ..] = rest {
                let (key, more) = more.split_at(*key_len as usize);
                let (head, more) = more.split_first_chunk::<8>().expect("a whole stream");
                let crc = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
                let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
                let (value, more) = more.split_at(len as usize);
                map.insert(Key::new(key).expect("short"), Value::stored(value, crc));
                rest = more;
            }
        }
        Imbl { map: RwLock::new(Arc::new((map, seq))), file }
    }

    fn reader(&self) -> ImblReader {
        ImblReader(self.map.read().clone())
    }

    fn apply(&self, seq: u64, batch: Batch) {
        let mut map = self.map.read().0.clone();
        for change in batch.0 {
            match change.value {
                Some(value) => map.insert(change.key, value),
                None => map.remove(&change.key),
            };
        }
        *self.map.write() = Arc::new((map, seq));
    }

    fn persist(&self) {
        let state = self.map.read().clone();
        let new = self.file.with_extension("new");
        let mut out = std::io::BufWriter::with_capacity(1 << 20, File::create(&new).expect("a file"));
        out.write_all(&state.1.to_le_bytes()).expect("a write");
        for (key, value) in &state.0 {
            let mut record = vec![key.as_bytes().len() as u8];
            record.extend_from_slice(key.as_bytes());
            record.extend_from_slice(&value.crc().to_le_bytes());
            record.extend_from_slice(&(value.raw().len() as u32).to_le_bytes());
            record.extend_from_slice(value.raw());
            out.write_all(&record).expect("a write");
        }
        out.into_inner().expect("a write").sync_all().expect("a sync");
        std::fs::rename(&new, &self.file).expect("a name");
    }

    fn seq(&self) -> u64 {
        self.map.read().1
    }

    fn close(self) {
        self.persist();
    }
}

impl Look for ImblReader {
    fn get(&self, key: &Key, f: &mut dyn FnMut(&[u8])) -> bool {
        self.0.0.get(key).map(|v| f(v.verified(key).expect("no damage"))).is_some()
    }
    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        for (key, value) in self.0.0.range(*from..*to) {
            if !f(key.as_bytes(), value.verified(key).expect("no damage")) {
                return;
            }
        }
    }
}
