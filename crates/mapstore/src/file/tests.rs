//! Crashes, as the files that they leave; damage; two users.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicU32, Ordering};

use types::crc::crc32c;

use super::*;
use crate::conformance::{check, sample};

/// A directory of its own for each test, removed with its content at the end.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("stria-mapstore-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        Dir(path)
    }
    fn put(&self, name: &str, bytes: &[u8]) {
        fs::create_dir_all(&self.0).expect("made");
        fs::write(self.0.join(name), bytes).expect("written");
    }
    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).expect("read")
    }
    fn load(&self) -> ClusterMap {
        FileStore::open(&self.0).expect("opened").load().expect("loaded")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn conforms() {
    let dirs = Mutex::new(Vec::new());
    check(&|| {
        let dir = Dir::new();
        let store = FileStore::open(&dir.0).expect("opened");
        dirs.lock().expect("no panic").push(dir);
        Box::new(store)
    });
}

#[test]
fn what_was_stored_is_there_after_reopening() {
    let dir = Dir::new();
    for version in 1..=4 {
        let store = FileStore::open(&dir.0).expect("opened");
        store.compare_and_swap(version - 1, &sample(version)).expect("stored");
        drop(store);
        assert_eq!(dir.load(), sample(version));
        assert_eq!(dir.bytes("map.a"), encode(&sample(version)));
        assert_eq!(dir.bytes("map.b"), encode(&sample(version)));
        let mode = fs::metadata(dir.0.join("map.a")).expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "no other user may read the secrets in it");
    }
}

#[test]
fn f1_a_change_needs_no_new_space() {
    let dir = Dir::new();
    let store = FileStore::open(&dir.0).expect("opened");
    let change = |from: u64| store.compare_and_swap(from, &sample(from + 1)).expect("stored");
    (0..3).for_each(change);
    let files = || {
        let of = |name: &str| fs::metadata(dir.0.join(name)).expect("there");
        let mut files = ["map.a", "map.b", TEMPORARY].map(of).map(|meta| (meta.ino(), 512 * meta.blocks()));
        files.sort_unstable();
        files
    };
    let before = files();
    assert!(before.iter().all(|(_, bytes)| *bytes >= RESERVED_BYTES_MIN), "{before:?}");
    for from in 3..9 {
        change(from);
        assert_eq!(files(), before, "the three files change places");
    }
    assert_eq!(store.load().expect("loaded"), sample(9));
}

#[test]
fn every_point_of_a_crash_leaves_the_old_or_the_new_map() {
    let (old, new) = (encode(&sample(4)), encode(&sample(5)));
    let torn = &new[..new.len() / 2];
    // name, map.a, map.b, map.tmp, the version that is then there
    type Bytes<'a> = Option<&'a [u8]>;
    let table: [(&str, Bytes<'_>, Bytes<'_>, Bytes<'_>, u64); 8] = [
        ("before", Some(&old), Some(&old), None, 4),
        ("temporary torn", Some(&old), Some(&old), Some(torn), 4),
        ("temporary whole", Some(&old), Some(&old), Some(&new), 4),
        ("first renamed", Some(&new), Some(&old), None, 5),
        ("second's temporary torn", Some(&new), Some(&old), Some(torn), 5),
        ("done", Some(&new), Some(&new), None, 5),
        ("the very first change, first renamed", Some(&new), None, None, 5),
        ("the very first change, nothing renamed", None, None, Some(&new), 0),
    ];
    for (name, a, b, tmp, version) in table {
        let dir = Dir::new();
        for (file, bytes) in [("map.a", a), ("map.b", b), ("map.tmp", tmp)] {
            if let Some(bytes) = bytes {
                dir.put(file, bytes);
            }
        }
        fs::create_dir_all(&dir.0).expect("made");
        let store = FileStore::open(&dir.0).expect(name);
        assert_eq!(store.load().expect(name).version, version, "{name}");
        assert_eq!(store.take_warning(), None, "{name}: a crash is no damage");
        if version > 0 {
            assert_eq!(dir.bytes("map.a"), dir.bytes("map.b"), "{name}");
        }
        // And it goes on from there.
        store.compare_and_swap(version, &sample(version + 1)).expect(name);
        drop(store);
        assert_eq!(dir.load(), sample(version + 1), "{name}");
    }
}

#[test]
fn one_damaged_copy_is_put_right_and_told() {
    for victim in COPIES {
        let dir = Dir::new();
        FileStore::open(&dir.0).expect("opened").compare_and_swap(0, &sample(1)).expect("stored");
        let mut bytes = dir.bytes(victim);
        bytes[40] ^= 1;
        dir.put(victim, &bytes);
        let store = FileStore::open(&dir.0).expect("the other copy is whole");
        assert_eq!(store.load().expect("loaded"), sample(1));
        let warning = store.take_warning().expect("told");
        assert!(warning.contains(victim) && warning.contains("checksum"), "{warning}");
        assert_eq!(dir.bytes(victim), encode(&sample(1)));
    }
}

/// A whole file of a form that a later release may have.
fn of_form(form: u16) -> Vec<u8> {
    let mut bytes = encode(&sample(9));
    bytes[8..10].copy_from_slice(&form.to_le_bytes());
    let sum = crc32c(&bytes[..28]).rotate_left(1) ^ crc32c(&bytes[32..]);
    bytes[28..32].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn a_copy_of_another_release_is_refused_and_left_alone() {
    let (older, newer) = (encode(&sample(8)), of_form(FORM_VERSION + 1));
    for (a, b) in [(&newer, &older), (&older, &newer), (&newer, &newer)] {
        let dir = Dir::new();
        dir.put("map.a", a);
        dir.put("map.b", b);
        let refused = FileStore::open(&dir.0).expect_err("what it says is not known");
        assert!(matches!(refused, StoreError::OtherForm { form: 7, known: 6, .. }), "{refused}");
        assert_eq!((&dir.bytes("map.a"), &dir.bytes("map.b")), (a, b), "nothing is put right");
    }
    // A flipped bit there is damage like any other.
    let dir = Dir::new();
    let mut flipped = encode(&sample(9));
    flipped[8] ^= 4;
    dir.put("map.a", &flipped);
    dir.put("map.b", &older);
    assert_eq!(dir.load(), sample(8));
}

#[test]
fn a_map_lost_in_both_copies_is_never_taken_for_empty() {
    let good = encode(&sample(3));
    let cut = &good[..10];
    for (a, b) in [(Some(cut), Some(cut)), (Some(cut), None), (None, Some(&b""[..]))] {
        let dir = Dir::new();
        for (file, bytes) in [("map.a", a), ("map.b", b)] {
            if let Some(bytes) = bytes {
                dir.put(file, bytes);
            }
        }
        let refused = FileStore::open(&dir.0).expect_err("damaged");
        assert!(matches!(refused, StoreError::Damaged { .. }), "{refused}");
    }
}

#[test]
fn a_failed_write_is_looked_at_again() {
    let dir = Dir::new();
    let store = FileStore::open(&dir.0).expect("opened");
    store.compare_and_swap(0, &sample(1)).expect("stored");
    // A directory in the way of the second copy's rename: the first copy is committed, the answer is an error.
    fs::remove_file(dir.0.join("map.b")).expect("removed");
    fs::create_dir_all(dir.0.join("map.b/x")).expect("made");
    let failed = store.compare_and_swap(1, &sample(2));
    assert!(matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");
    assert!(store.load().is_err(), "nothing is said of a store in doubt");
    fs::remove_dir_all(dir.0.join("map.b")).expect("removed");
    assert_eq!(store.load().expect("readable again"), sample(2));
    assert!(matches!(store.compare_and_swap(1, &sample(2)), Err(StoreError::Conflict { found: 2, .. })));
}

#[test]
fn two_users_are_one_too_many() {
    let dir = Dir::new();
    let first = FileStore::open(&dir.0).expect("opened");
    assert!(matches!(FileStore::open(&dir.0), Err(StoreError::InUse { .. })));
    assert!(matches!(FileStore::delete(&dir.0), Err(StoreError::InUse { .. })));
    drop(first);
    FileStore::open(&dir.0).expect("opened");
}

/// A child between fork and exec shares the descriptors of its parent.
#[test]
fn a_dropped_store_is_free_though_a_child_still_has_its_descriptors() {
    let dir = Dir::new();
    let store = FileStore::open(&dir.0).expect("opened");
    let of_child = store._lock.0.try_clone().expect("a second descriptor of the same open file");
    drop(store);
    FileStore::open(&dir.0).expect("free");
    drop(of_child);
}

#[test]
fn deleting_takes_what_is_ours() {
    let dir = Dir::new();
    FileStore::delete(&dir.0).expect("nothing there is fine");
    FileStore::open(&dir.0).expect("opened").compare_and_swap(0, &sample(1)).expect("stored");
    dir.put("note", b"of somebody");
    FileStore::delete(&dir.0).expect("deleted");
    assert_eq!(dir.bytes("note"), b"of somebody");
    assert!(!dir.0.join("map.a").exists() && !dir.0.join("lock").exists());
    fs::remove_file(dir.0.join("note")).expect("removed");
    FileStore::open(&dir.0).expect("opened");
    FileStore::delete(&dir.0).expect("deleted");
    assert!(!dir.0.exists());
}
