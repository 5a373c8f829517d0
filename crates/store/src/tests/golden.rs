//! A whole OST as bytes: the next release opens what this one wrote, and a change of the format fails the test.
//!
//! The file beside has the sectors that are not zero: each its number (u64) and its 512 bytes. After a change of the format on purpose:
//! `STRIA_GOLDEN=1 cargo test -p stria-store golden` writes it anew.

use std::path::Path;

use disk::SECTOR_BYTES;

use super::life::Shape;
use super::ops::Reach;
use super::*;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/golden/ost.sectors");
/// Of the last release without mirror seqs, filled in the same way.
const FILE_V5: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/golden/ost.v5.sectors");
/// Of the last release that had the objects in the checkpoint's stream.
const FILE_V4: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/golden/ost.v4.sectors");

fn shape() -> Shape {
    let reach = Reach { offset_max: 0, write_max: 0 };
    Shape { has_log_medium: false, log_bytes: 64 << 10, data_bytes: 1 << 20, reach }
}

/// Every kind of thing that an OST can hold, some of it in the checkpoint and some in the log only.
fn fill(store: &Engine) {
    let origin = |sequence| Some(Origin { session: SESSION, slot: 3, sequence });
    store.begin_session(SESSION).unwrap();
    write(store, id(1), 0, &pattern(1, 20_480), origin(1)).unwrap();
    write(store, id(2), 4096, &pattern(2, 8192), None).unwrap();
    write(store, id(1), 5000, b"a part, in the log only", origin(2)).unwrap();
    write(store, id(3), 100, b"to be removed", None).unwrap();
    store.fence(id(4), 1 << 32 | 7).unwrap();
    store.set_scrub(crate::records::scrub_state::sample()).unwrap();
    let damage = Damage {
        object: id(2),
        offset: 8192,
        kind: DamageKind::Checksum,
        found_sec: 1_700_000_000,
        is_repaired: false,
    };
    store.record_damage(damage).unwrap();
    store.note_service(1_600_000_000);
    store.checkpoint().unwrap();
    store.destroy(&[id(3)], None).unwrap();
    write(store, id(1), 8192, &pattern(3, 4096), origin(3)).unwrap();
    store.truncate(&Truncate { object: id(2), len: 10_000, lease: 5, gate: &anyone, origin: None }).unwrap();
    let (mtime, lease, gate, origin) = (Time::new(9, 9), 0, &anyone, None);
    let (object, offset, len) = (id(5), 4096, 8192);
    store.reserve(&Reserve { object, offset, len, end: 20_000, mtime, lease, gate, origin }).unwrap();
    let punch =
        Punch { object: id(1), offset: 16_384, len: 4096, leave: Leave::Hole, mtime, lease, gate, origin };
    store.punch(&punch).unwrap();
    store.flush().unwrap();
}

/// The store's content, as text.
fn told(store: &Engine) -> String {
    let mut out = String::new();
    for (id, attrs) in store.list(None, 100).unwrap().0 {
        let mut bytes = vec![];
        while (bytes.len() as u64) < attrs.len {
            bytes.extend(read(store, id, bytes.len() as u64, 1 << 20).unwrap().unwrap());
        }
        out += &format!("{id} {attrs:?} {:08x}\n", types::crc::crc32c(&bytes));
    }
    out += &format!(
        "{} {:?} {:?}\n",
        store.lease(id(4)).unwrap(),
        store.slots(SESSION).map(|s| (s[3].sequence, s[3].answer)),
        store.damage()
    );
    out += &format!("{:?} {:?} {:?}\n", store.scrub(), store.label(), store.vol.last_seq());
    out
}

fn sectors(medium: &SimDisk) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sector = [0; SECTOR_BYTES];
    for n in 0..medium.size() / SECTOR_BYTES as u64 {
        medium.read_at(&mut sector, n * SECTOR_BYTES as u64).unwrap();
        if sector != [0; SECTOR_BYTES] {
            out.extend_from_slice(&n.to_le_bytes());
            out.extend_from_slice(&sector);
        }
    }
    out
}

fn image_of(golden: &[u8], bytes: u64) -> Arc<SimDisk> {
    let image = SimDisk::new(bytes);
    for sector in golden.chunks_exact(8 + SECTOR_BYTES) {
        let n = u64::from_le_bytes(sector[..8].try_into().unwrap());
        image.write_at(&sector[8..], n * SECTOR_BYTES as u64).unwrap();
    }
    Arc::new(image)
}

/// It is opened, and has leaves from the first checkpoint on; killed before that or during it, it is still what it was.
#[test]
fn an_ost_of_the_form_before_is_taken_over() {
    let medium = shape().format();
    let store = Engine::open(medium.clone()).unwrap();
    fill(&store);
    let want = told(&store);
    let image = image_of(&std::fs::read(FILE_V4).unwrap(), medium.size());
    image.record();
    let taken = Engine::open(image.clone()).unwrap();
    assert_eq!(told(&taken), want);
    taken.checkpoint().unwrap();
    super::world::check_books(&taken).unwrap();
    assert!(!taken.index.leaves_now().leaves.is_empty() && taken.old_stream.lock().is_none());
    let recording = image.take_recording().unwrap();
    for cut in 0..=image.events() {
        let cut = Arc::new(recording.crash_at(cut, Crash::KeepAll));
        assert_eq!(told(&Engine::open(cut).unwrap()), want);
    }
    taken.checkpoint().unwrap();
    taken.close().unwrap();
    assert_eq!(told(&Engine::open(image).unwrap()), want);
}

/// Its log seqs become mirror seqs, and new entries go on above. Entries of before are not shipped.
#[test]
fn an_ost_without_mirror_seqs_goes_on_above_its_log_seqs() {
    let medium = shape().format();
    let store = Engine::open(medium.clone()).unwrap();
    fill(&store);
    let want = told(&store);
    let image = image_of(&std::fs::read(FILE_V5).unwrap(), medium.size());
    let taken = Engine::open(image.clone()).unwrap();
    assert_eq!(told(&taken), want);
    let last = taken.last_seq();
    assert_eq!(last, taken.vol.last_seq(), "the last entry of the log is public");
    assert_eq!((taken.flushed_seq(), taken.first_seq()), (last, Seq(last.0 + 1)));
    let damage =
        Damage { object: id(1), offset: 0, kind: DamageKind::Missing, found_sec: 1, is_repaired: false };
    taken.record_damage(damage).unwrap();
    let done = write(&taken, id(9), 0, b"new", None).unwrap();
    assert_eq!(done.seq, Seq(last.0 + 1), "damage takes no mirror seq");
    let again = Engine::open(Arc::new(image.crash(Crash::KeepAll))).unwrap();
    assert_eq!((again.last_seq(), again.first_seq()), (done.seq, done.seq));
    again.checkpoint().unwrap();
    again.close().unwrap();
    let again = Engine::open(image).unwrap();
    assert_eq!(again.last_seq(), done.seq);
}

#[test]
fn a_golden_ost_is_opened_and_made_again_to_the_byte() {
    let medium = shape().format();
    let store = Engine::open(medium.clone()).unwrap();
    fill(&store);
    let (made, want) = (sectors(&medium), told(&store));
    if std::env::var_os("STRIA_GOLDEN").is_some() {
        std::fs::create_dir_all(Path::new(FILE).parent().unwrap()).unwrap();
        std::fs::write(FILE, &made).unwrap();
    }
    let golden = std::fs::read(FILE).unwrap();
    assert!(made == golden, "the format has changed: see this file's head");
    // 1. As after a kill.
    let image = image_of(&golden, medium.size());
    let opened = Engine::open(image.clone()).unwrap();
    assert_eq!(told(&opened), want);
    assert!(opened.overlay.pages() > 0 && opened.usage().log_bytes_used > 0, "some of it is in the log");
    // 2. And after a clean stop of who opened it.
    opened.close().unwrap();
    drop(opened);
    assert_eq!(told(&Engine::open(image).unwrap()), want);
}
