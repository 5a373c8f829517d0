//! Ids. A count, an index, an offset and an id are different types; these are the ids.

use std::fmt;

macro_rules! id {
    ($(#[$m:meta])* $name:ident($inner:ty), $fmt:literal) => {
        $(#[$m])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, $fmt, self.0) }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, $fmt, self.0) }
        }
    };
}

id!(/// A file: 16 bits of allocating shard, 48 bits of counter. It is the POSIX inode number and is never reused.
    /// Only `map.mdt_of(fid)` gives its location.
    Fid(u64), "{:#x}");
id!(/// A target (MDT or OST); an id is never used twice in a file system's life.
    TargetId(u32), "{}");
id!(/// A mirror: the group of 1 or 2 targets that hold the same content; layouts name mirrors, not targets.
    MirrorId(u32), "{}");
id!(/// A node of the fabric; the cluster map resolves it to NIDs.
    NodeId(u64), "n{}");
id!(/// A client's registration with the file system.
    SessionId(u64), "s{:x}");
id!(/// A file system within an MGS.
    FsId(u32), "{}");
id!(/// A mirror's version number, raised by the MGS at every change of members, states or primary.
    Epoch(u32), "e{}");
id!(/// A log entry's number within a target; with the epoch it names the entry.
    Seq(u64), "{}");
id!(/// Taken anew whenever a target starts without proof of a clean stop. Durable, rises only.
    Incarnation(u32), "i{}");
id!(/// A layout's version: raised whenever a file gets new objects, so that old ones are never mistaken for them.
    Generation(u32), "g{}");
id!(/// A partition of the name space.
    Shard(u16), "{}");

impl Fid {
    /// The root directory: FUSE's fixed root inode number, the first of shard 0.
    pub const ROOT: Fid = Fid(1);
    /// The first fid that a new file system hands out.
    pub const FIRST: u64 = 16;

    pub fn new(shard: Shard, counter: u64) -> Fid {
        assert!(counter < 1 << 48, "fid counter is 48 bits");
        Fid((shard.0 as u64) << 48 | counter)
    }
    /// The shard that allocated this fid. The inode's present location does not follow from it.
    pub fn allocating_shard(self) -> Shard {
        Shard((self.0 >> 48) as u16)
    }
    pub fn counter(self) -> u64 {
        self.0 & ((1 << 48) - 1)
    }
}

/// The bytes of one stripe of one file. 24 bytes on wire and disk; `snapshot` is reserved and zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectId {
    pub fid: Fid,
    pub generation: Generation,
    pub component: u16,
    pub stripe: u16,
    pub snapshot: u32,
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}.{}.{}", self.fid.0, self.generation.0, self.component, self.stripe)
    }
}
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A file system's, target's or client's universally unique id; printed in the usual 8-4-4-4-12 form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, b) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{b:02x}")?;
        }
        Ok(())
    }
}
impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
