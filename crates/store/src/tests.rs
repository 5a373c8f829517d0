//! The engine as a whole: the model test, crashes, the order rules by name, full media, many threads.

mod campaign;
mod compare;
mod crash;
mod discard;
mod faults;
mod fill;
mod full;
mod golden;
mod grants;
mod index;
mod life;
mod lost_end;
mod map;
mod mirror;
mod model;
mod ops;
mod pair;
mod parallel;
mod patches;
mod promises;
mod repair;
mod reserve;
mod rot;
mod rules;
mod scrub;
mod stats;
mod survey;
mod tail;
mod world;

use std::sync::Arc;

use disk::volume::{Kind, Label};
use disk::{Crash, Disk, SimDisk};
use types::crc::{fragment_crcs, verify_fragments};
use types::*;

use crate::state::engine::Engine;
use crate::*;

/// Log 1 MiB, two slots of 3 MiB, and about this much data with the volume's head.
const MEDIUM_BYTES: u64 = 14 << 20;
const PLACING: Settings = Settings {
    patch_bytes_max: 0,
    patch_new_bytes_max: 0,
    patch_whole: true,
    overlay_bytes_max: 1 << 20,
    write_unit: 4096,
    index_bytes_max: 1 << 20,
    leaf_bytes: 32 << 10,
};
const SESSION: SessionId = SessionId(77);

fn label() -> Label {
    Label {
        kind: Kind::Ost,
        fs_name: "test".into(),
        fs_uuid: Uuid([1; 16]),
        uuid: Uuid([2; 16]),
        target: TargetId(3),
        index: 0,
        mirror: MirrorId(3),
        epoch: Epoch(1),
    }
}

fn id(n: u64) -> ObjectId {
    ObjectId { fid: Fid(100 + n), generation: Generation(1), component: 0, stripe: 0, snapshot: 0 }
}

fn anyone(_: &Attrs) -> Result<(), Fault> {
    Ok(())
}

/// A store on a medium that can lose power.
struct Rig {
    disk: Arc<SimDisk>,
    store: Engine,
    settings: Settings,
}

impl Rig {
    fn new() -> Rig {
        Rig::sized(MEDIUM_BYTES)
    }
    fn sized(bytes: u64) -> Rig {
        let disk = Arc::new(SimDisk::new(bytes));
        Engine::format(&*disk, label(), false).unwrap();
        Rig::open(disk)
    }
    fn open(disk: Arc<SimDisk>) -> Rig {
        Rig::open_with(disk, Settings::default())
    }
    fn open_with(disk: Arc<SimDisk>, settings: Settings) -> Rig {
        Rig { store: Engine::open_with(disk.clone(), settings).unwrap(), disk, settings }
    }
    fn crashed(&self, crash: Crash) -> Rig {
        Rig::open_with(Arc::new(self.disk.crash(crash)), self.settings)
    }
    /// Every write goes to pages of its own at once.
    fn placing() -> Rig {
        let rig = Rig::new();
        Rig::open_with(rig.disk.clone(), PLACING)
    }

    fn write(&self, object: ObjectId, offset: u64, data: &[u8]) -> Result<Done, StoreError> {
        self.write_as(object, offset, data, None)
    }
    fn write_as(
        &self,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        origin: Option<Origin>,
    ) -> Result<Done, StoreError> {
        write(&self.store, object, offset, data, origin)
    }
    fn truncate(&self, object: ObjectId, len: u64) -> Result<Done, StoreError> {
        self.store.truncate(&Truncate { object, len, lease: 0, gate: &anyone, origin: None })
    }
    fn read(&self, object: ObjectId, offset: u64, len: u32) -> Result<Option<Vec<u8>>, StoreError> {
        read(&self.store, object, offset, len)
    }
    /// The whole object.
    fn content(&self, object: ObjectId) -> Option<Vec<u8>> {
        let len = self.store.stat(object).unwrap()?.len;
        let mut all = Vec::new();
        while (all.len() as u64) < len {
            all.extend(self.read(object, all.len() as u64, 1 << 20).unwrap().unwrap());
        }
        Some(all)
    }
    fn seal(&self) {
        self.store.seal().unwrap()
    }
    /// Medium offset of a page of an object.
    fn place(&self, object: ObjectId, page: u32) -> u64 {
        self.store.destage_all().unwrap();
        let site = self.store.index.get(&object).unwrap().read().extents.site(page).unwrap();
        self.store.at(site.page)
    }
    fn flip(&self, at: u64) {
        let mut byte = [0];
        self.disk.read_at(&mut byte, at).unwrap();
        self.disk.write_at(&[byte[0] ^ 0x10], at).unwrap();
    }
}

fn write(
    store: &Engine,
    object: ObjectId,
    offset: u64,
    data: &[u8],
    origin: Option<Origin>,
) -> Result<Done, StoreError> {
    let crcs = fragment_crcs(offset, data);
    let mtime = Time::new(offset as i64 + 1, 0);
    store.write(&Write {
        object,
        offset,
        data,
        crcs: &crcs,
        mtime,
        lease: 0,
        gate: &anyone,
        origin,
        holder: None,
    })
}

/// Reads and checks that the CRCs handed out are those of the bytes.
fn read(store: &Engine, object: ObjectId, offset: u64, len: u32) -> Result<Option<Vec<u8>>, StoreError> {
    let (mut buf, mut crcs) = (Buf::new(), Vec::new());
    let exists = store.read(&Read { object, offset, len, gate: &anyone }, &mut buf, &mut crcs)?;
    assert_eq!(verify_fragments(offset, &buf, &crcs), Ok(()), "CRCs of a read at {offset}");
    Ok(exists.then(|| buf.to_vec()))
}

/// Bytes that tell where they were written and by whom.
fn pattern(salt: u64, len: usize) -> Vec<u8> {
    let mut rng = disk::SplitMix::new(salt);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    out.truncate(len);
    out
}
