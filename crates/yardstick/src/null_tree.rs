//! The null file system's memory: names in hash tables, attributes, sizes, and no data.
//!
//! yardstick-T1. An inode stays while it has a link or the kernel counts lookups of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo};
use parking_lot::{Mutex, RwLock};

pub const ROOT: u64 = 1;
/// Enough that serving threads rarely meet at one lock.
const SHARDS: usize = 64;

pub struct Node {
    pub attr: Mutex<FileAttr>,
    /// Target of a symlink.
    pub target: Vec<u8>,
    /// Entries of a directory.
    pub names: Mutex<Names>,
    lookups: AtomicU64,
}

#[derive(Default)]
pub struct Names {
    by_name: HashMap<Arc<[u8]>, (u64, u64)>,
    /// By cookie, for listings: a listing continues at its cookie, also after names were created or removed.
    by_cookie: BTreeMap<u64, (Arc<[u8]>, u64)>,
    last_cookie: u64,
}

impl Names {
    pub fn get(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).map(|(ino, _)| *ino)
    }
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], u64)> {
        self.by_cookie.range(cookie + 1..).map(|(cookie, (name, ino))| (*cookie, &**name, *ino))
    }
    pub fn insert(&mut self, name: &[u8], ino: u64) {
        self.last_cookie += 1;
        let name: Arc<[u8]> = name.into();
        self.by_name.insert(name.clone(), (ino, self.last_cookie));
        self.by_cookie.insert(self.last_cookie, (name, ino));
    }
    pub fn remove(&mut self, name: &[u8]) -> Option<u64> {
        let (ino, cookie) = self.by_name.remove(name)?;
        self.by_cookie.remove(&cookie);
        Some(ino)
    }
}

pub struct Tree {
    shards: [RwLock<HashMap<u64, Arc<Node>>>; SHARDS],
    next: AtomicU64,
}

/// Default attributes.
pub fn blank(ino: u64, kind: FileType) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Tree {
    pub fn new() -> Tree {
        let tree = Tree { shards: std::array::from_fn(|_| RwLock::default()), next: AtomicU64::new(ROOT) };
        let root = tree.make(FileAttr { nlink: 2, ..blank(0, FileType::Directory) }, Vec::new());
        assert_eq!(root.attr.lock().ino.0, ROOT);
        tree
    }

    fn shard(&self, ino: u64) -> &RwLock<HashMap<u64, Arc<Node>>> {
        &self.shards[ino as usize % SHARDS]
    }

    pub fn get(&self, ino: u64) -> Result<Arc<Node>, Errno> {
        self.shard(ino).read().get(&ino).cloned().ok_or(Errno::ENOENT)
    }

    /// A node with a number of its own and the present time.
    pub fn make(&self, attr: FileAttr, target: Vec<u8>) -> Arc<Node> {
        let ino = self.next.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now();
        let attr = FileAttr { ino: INodeNo(ino), atime: now, mtime: now, ctime: now, crtime: now, ..attr };
        let node =
            Node { attr: Mutex::new(attr), target, names: Mutex::default(), lookups: AtomicU64::new(0) };
        let node = Arc::new(node);
        self.shard(ino).write().insert(ino, node.clone());
        node
    }

    /// Counts a lookup and shows the attributes.
    pub fn show(&self, node: &Node) -> FileAttr {
        node.lookups.fetch_add(1, Ordering::Relaxed);
        *node.attr.lock()
    }

    pub fn unlinked(&self, ino: u64) {
        if let Ok(node) = self.get(ino) {
            let mut attr = node.attr.lock();
            attr.nlink = if attr.kind == FileType::Directory { 0 } else { attr.nlink.saturating_sub(1) };
            drop(attr);
            self.drop_if_unused(ino, &node);
        }
    }

    pub fn forget(&self, ino: u64, lookups: u64) {
        if let Ok(node) = self.get(ino) {
            node.lookups.fetch_sub(lookups, Ordering::Relaxed);
            self.drop_if_unused(ino, &node);
        }
    }

    fn drop_if_unused(&self, ino: u64, node: &Node) {
        if node.attr.lock().nlink == 0 && node.lookups.load(Ordering::Relaxed) == 0 {
            self.shard(ino).write().remove(&ino);
        }
    }
}
