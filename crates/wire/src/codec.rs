//! Encodes and decodes values by hand: little-endian, in field order, lengths as u32, no padding.

use types::*;

/// The bytes are malformed: too short, too long, or a value outside its type. Carries the name of the part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed {0}")]
pub struct Malformed(pub &'static str);

/// Reads values from a byte slice, never past its end.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(Malformed("length"))?;
        self.rest = rest;
        Ok(head)
    }
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let (byte, rest) = self.rest.split_first().ok_or(Malformed("length"))?;
        self.rest = rest;
        Ok(*byte)
    }
    /// Fails if unread bytes remain.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed("trailing bytes")) }
    }
}

/// Nearly every message fits. A buffer that grows is moved, and the allocator then takes the lock of the thread that allocated it
/// (decision 0037).
const FIRST_BYTES: usize = 256;

/// A value with exactly one byte form.
pub trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed>;

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIRST_BYTES);
        self.put(&mut out);
        assert!(out.len() <= u32::MAX as usize, "a length fits its field");
        out
    }
    /// Decodes a whole slice; unread bytes are an error.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(bytes);
        let v = Self::get(&mut r)?;
        r.end()?;
        Ok(v)
    }
}

macro_rules! ints {
    ($($t:ty),*) => {$(
        impl Wire for $t {
            fn put(&self, out: &mut Vec<u8>) { out.extend_from_slice(&self.to_le_bytes()); }
            fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
                let b = r.take(size_of::<$t>())?;
                Ok(<$t>::from_le_bytes(b.try_into().expect("take gave that many bytes")))
            }
        }
    )*};
}
ints!(u8, u16, u32, u64, i64);

macro_rules! newtypes {
    ($($t:ident),*) => {$(
        impl Wire for $t {
            fn put(&self, out: &mut Vec<u8>) { self.0.put(out); }
            fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> { Ok($t(Wire::get(r)?)) }
        }
    )*};
}
newtypes!(Fid, TargetId, MirrorId, NodeId, SessionId, FsId, Epoch, Seq, Incarnation, Generation, Shard);

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::get(r)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("bool")),
        }
    }
}

impl Wire for () {
    fn put(&self, _: &mut Vec<u8>) {}
    fn get(_: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(())
    }
}

/// A byte string: u32 length, bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}
impl std::ops::Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
impl From<&[u8]> for Bytes {
    fn from(b: &[u8]) -> Bytes {
        Bytes(b.to_vec())
    }
}
impl Wire for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).put(out);
        out.extend_from_slice(&self.0);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let n = u32::get(r)? as usize;
        Ok(Bytes(r.take(n)?.to_vec()))
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let n = u32::get(r)? as usize;
        String::from_utf8(r.take(n)?.to_vec()).map_err(|_| Malformed("utf-8"))
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        for v in self {
            v.put(out);
        }
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let n = u32::get(r)? as usize;
        // Every element takes at least one byte, so a count above the remaining bytes is false. The capacity follows the bytes at hand,
        // not the claimed count.
        if n > r.remaining() {
            return Err(Malformed("count"));
        }
        let mut out = Vec::with_capacity(n.min(r.remaining() / size_of::<T>().max(1) + 1));
        for _ in 0..n {
            out.push(T::get(r)?);
        }
        Ok(out)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(v) = self {
            v.put(out);
        }
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(if bool::get(r)? { Some(T::get(r)?) } else { None })
    }
}

impl Wire for Uuid {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Uuid(r.take(16)?.try_into().expect("take gave 16 bytes")))
    }
}

impl Wire for Time {
    fn put(&self, out: &mut Vec<u8>) {
        self.sec.put(out);
        self.nsec.put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (sec, nsec) = (i64::get(r)?, u32::get(r)?);
        if nsec > 999_999_999 {
            return Err(Malformed("nanoseconds"));
        }
        Ok(Time { sec, nsec })
    }
}

impl Wire for Kind {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Kind::from_u8(u8::get(r)?).ok_or(Malformed("kind"))
    }
}

impl Wire for ObjectId {
    fn put(&self, out: &mut Vec<u8>) {
        self.fid.put(out);
        self.generation.put(out);
        self.component.put(out);
        self.stripe.put(out);
        self.snapshot.put(out);
        0u32.put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let o = ObjectId {
            fid: Wire::get(r)?,
            generation: Wire::get(r)?,
            component: Wire::get(r)?,
            stripe: Wire::get(r)?,
            snapshot: Wire::get(r)?,
        };
        if o.snapshot != 0 || u32::get(r)? != 0 {
            return Err(Malformed("reserved bytes of an object id"));
        }
        Ok(o)
    }
}

impl Wire for Cred {
    fn put(&self, out: &mut Vec<u8>) {
        self.uid.put(out);
        self.gid.put(out);
        self.groups.put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let c = Cred { uid: Wire::get(r)?, gid: Wire::get(r)?, groups: Wire::get(r)? };
        if c.groups.len() > Cred::GROUPS_MAX {
            return Err(Malformed("groups"));
        }
        Ok(c)
    }
}

impl Wire for Component {
    fn put(&self, out: &mut Vec<u8>) {
        self.end.put(out);
        self.stripe_size.put(out);
        self.mirrors.put(out);
        self.written.put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Component {
            end: Wire::get(r)?,
            stripe_size: Wire::get(r)?,
            mirrors: Wire::get(r)?,
            written: Wire::get(r)?,
        })
    }
}

impl Wire for Layout {
    fn put(&self, out: &mut Vec<u8>) {
        self.generation.put(out);
        self.components.put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let l = Layout { generation: Wire::get(r)?, components: Wire::get(r)? };
        if l.is_valid() { Ok(l) } else { Err(Malformed("layout")) }
    }
}

/// Declares bodies: structs whose byte form is their fields in order.
macro_rules! bodies {
    ($($(#[$m:meta])* $name:ident { $($(#[$fm:meta])* $f:ident: $t:ty),* $(,)? })*) => {$(
        $(#[$m])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$fm])* pub $f: $t,)* }
        impl $crate::codec::Wire for $name {
            #[allow(unused_variables, reason = "a body may have no fields")]
            fn put(&self, out: &mut Vec<u8>) { $(self.$f.put(out);)* }
            #[allow(unused_variables, reason = "a body may have no fields")]
            fn get(r: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::Malformed> {
                Ok($name { $($f: $crate::codec::Wire::get(r)?,)* })
            }
        }
    )*};
}
pub(crate) use bodies;

/// Ties request bodies to call numbers and reply bodies. A call marked `mutate` takes a slot and is logged. One marked `bulk` reads up to
/// `len` bytes, which come as bulk.
macro_rules! calls {
    ($($n:literal $name:ident => $reply:ty, $how:ident;)*) => {$(
        impl $crate::Request for $name {
            const CALL: u16 = $n;
            const MUTATES: bool = $crate::codec::mutates!($how);
            type Reply = $reply;
            $crate::codec::bulk_back!($how);
        }
    )*
        /// The call numbers of this conversation, with names, for traces and tests.
        pub const CALLS: &[(u16, &str)] = &[$(($n, stringify!($name)),)*];
    };
}
pub(crate) use calls;
/// Enums of one byte, by number.
macro_rules! numbered {
    ($($(#[$m:meta])* $name:ident, $what:literal { $($(#[$vm:meta])* $v:ident = $n:literal,)* })*) => {$(
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vm])* $v = $n,)* }
        impl $crate::codec::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(*self as u8);
            }
            fn get(r: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::Malformed> {
                match <u8 as $crate::codec::Wire>::get(r)? {
                    $($n => Ok($name::$v),)*
                    _ => Err($crate::codec::Malformed($what)),
                }
            }
        }
    )*};
}
pub(crate) use numbered;

macro_rules! mutates {
    (read) => {
        false
    };
    (bulk) => {
        false
    };
    (mutate) => {
        true
    };
}
pub(crate) use mutates;
macro_rules! bulk_back {
    (bulk) => {
        fn bulk_back(&self) -> u32 {
            self.len
        }
    };
    ($how:ident) => {};
}
pub(crate) use bulk_back;

/// Fid and kind; five words of 4 bytes, two of 8; four times.
const ATTR_BYTES: usize = 8 + 1 + 5 * 4 + 2 * 8 + 4 * 12;
const _: () = assert!(ATTR_BYTES == 81 + 12, "the last time ends the attributes");

/// Encodes all fields at once, since every reply about an inode has an `Attr`: field by field costs three times as much.
impl Wire for Attr {
    fn put(&self, out: &mut Vec<u8>) {
        let Attr { fid, kind, mode, uid, gid, nlink, rdev, size, blocks, atime, mtime, ctime, btime } = *self;
        let mut bytes = [0; ATTR_BYTES];
        bytes[..8].copy_from_slice(&fid.0.to_le_bytes());
        bytes[8] = kind as u8;
        for (word, at) in [mode, uid, gid, nlink, rdev].into_iter().zip((9..).step_by(4)) {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        for (word, at) in [size, blocks].into_iter().zip((29..).step_by(8)) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        for (time, at) in [atime, mtime, ctime, btime].into_iter().zip((45..).step_by(12)) {
            bytes[at..at + 8].copy_from_slice(&time.sec.to_le_bytes());
            bytes[at + 8..at + 12].copy_from_slice(&time.nsec.to_le_bytes());
        }
        out.extend_from_slice(&bytes);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let bytes: &[u8; ATTR_BYTES] = r.take(ATTR_BYTES)?.try_into().expect("take gave that many bytes");
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let time = |at: usize| match word(at + 8) {
            nsec @ ..=999_999_999 => Ok(Time { sec: long(at) as i64, nsec }),
            _ => Err(Malformed("nanoseconds")),
        };
        Ok(Attr {
            fid: Fid(long(0)),
            kind: Kind::from_u8(bytes[8]).ok_or(Malformed("kind"))?,
            mode: word(9),
            uid: word(13),
            gid: word(17),
            nlink: word(21),
            rdev: word(25),
            size: long(29),
            blocks: long(37),
            atime: time(45)?,
            mtime: time(57)?,
            ctime: time(69)?,
            btime: time(81)?,
        })
    }
}
