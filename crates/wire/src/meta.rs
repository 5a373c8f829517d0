//! Names, attributes, layouts and inline content, between a client and an MDT.

use types::*;

use crate::Empty;
use crate::codec::{Bytes, bodies, calls};
use crate::object::Capability;

/// Bits of `SetAttr::valid`.
pub const SET_MODE: u32 = 1;
pub const SET_UID: u32 = 2;
pub const SET_GID: u32 = 4;
pub const SET_ATIME: u32 = 8;
pub const SET_MTIME: u32 = 16;
/// Clears the set-id bits, as a change of content does. Also allowed to a caller that is not the owner. `mode` is ignored.
pub const SET_KILLPRIV: u32 = 32;
/// The given times are the present moment. With both times, a caller with write permission may set them, and an append-only file accepts
/// them.
pub const SET_TOUCH: u32 = 64;
/// Bits of `Inode::flags`, with the numbers of `chattr` (`FS_IOC_GETFLAGS`).
pub const FLAG_IMMUTABLE: u32 = 0x10;
pub const FLAG_APPEND: u32 = 0x20;
pub const FLAG_NODUMP: u32 = 0x40;
pub const FLAG_NOATIME: u32 = 0x80;
/// All flags that the MDT keeps; others are `Unsupported`.
pub const FLAGS_KEPT: u32 = FLAG_IMMUTABLE | FLAG_APPEND | FLAG_NODUMP | FLAG_NOATIME;
/// Bits of `Rename::flags`, with the kernel's numbers.
pub const RENAME_NOREPLACE: u32 = 1;
pub const RENAME_EXCHANGE: u32 = 2;
/// Leaves a whiteout at the old name in the same step: a character device 0:0, with which overlayfs marks a removed name.
pub const RENAME_WHITEOUT: u32 = 4;
/// Most fids of a `LeaseDir`.
pub const LEASED_FIDS_MAX: u32 = 1024;
/// Most fids of a `GetAttrs`: their inodes fit a reply even with layouts of many stripes.
pub const FIDS_MAX: usize = 1024;
/// Bits of `SetXattr::flags`, with the kernel's numbers.
pub const XATTR_CREATE: u32 = 1;
pub const XATTR_REPLACE: u32 = 2;

impl StripeComponent {
    /// The default striping: one stripe up to 64 MiB, four up to 1 GiB, then all, capped.
    pub fn progressive() -> Vec<StripeComponent> {
        use types::layout::{PROGRESSIVE_COUNTS, PROGRESSIVE_ENDS, WIDE_MAX};
        let component =
            |end, stripe_count| StripeComponent { end, stripe_size: 0, stripe_count, start: u16::MAX };
        let ends = PROGRESSIVE_ENDS.iter().zip(PROGRESSIVE_COUNTS);
        let narrow = ends.map(|(end, count)| component(*end, count));
        narrow.chain([component(u64::MAX, WIDE_MAX as u16)]).collect()
    }
}

bodies! {
    /// Attributes, with the other fields that a client needs.
    Inode {
        attr: Attr,
        /// `None`: inline (or not a regular file).
        layout: Option<Layout>,
        state: FileState,
        /// `FLAG_*`.
        flags: u32,
    }
    Lookup { parent: Fid, name: Bytes, cred: Cred }
    GetAttr { fid: Fid }
    /// Reads several inodes, up to `FIDS_MAX`: each as by `GetAttr`, `None` if it does not exist.
    GetAttrs { fids: Vec<Fid> }
    GetAttrsReply { inodes: Vec<Option<Inode>> }
    /// Changes the attributes in `valid`; ctime becomes `now`. Sizes are changed by `Truncate`. `held`, with `SET_KILLPRIV`: as in
    /// `Truncate`.
    SetAttr { fid: Fid, valid: u32, mode: u32, uid: u32, gid: u32, atime: Time, mtime: Time, now: Time,
        held: Option<Capability>, cred: Cred,
    }
    /// Makes a regular or special file. With `exclusive` an existing name is `Exists`. Without it an existing regular file is returned as
    /// by `Open` (`made` false). `umask` applies unless the directory has a default ACL; so in `MakeDir`.
    Create { parent: Fid, name: Bytes, kind: Kind, mode: u32, umask: u32, rdev: u32, exclusive: bool, read: bool, write: bool,
        append: bool, now: Time, cred: Cred,
        /// 0; in a replay, the fid of the first answer.
        want: Fid,
    }
    CreateReply { made: bool, open: OpenReply }
    /// Makes a regular file with its content, which comes as bulk, and opens it for writing. An existing name is `Exists`. One log entry
    /// has all of it. `NeedLayout` if the content is longer than `inline_max`. `now` is the time of making, `written` that of the
    /// content.
    CreateWith { parent: Fid, name: Bytes, mode: u32, umask: u32, crcs: Vec<u32>, now: Time, written: Time, cred: Cred,
        /// As in `Create`; also a fid that `LeaseDir` gave.
        want: Fid,
    }
    /// Asks for the right to make and remove files in a directory before the MDT hears of it, and for fids of new files.
    LeaseDir { dir: Fid, count: u32 }
    /// `count` fids from `first` on, of which each is used once. 0: the client tells the MDT of each change at once.
    LeaseDirReply { first: Fid, count: u32,
        /// Content up to this many bytes lies inline in the directory's new files.
        inline_max: u32,
        /// The number of the lease. 0: there is none, since the client is alone.
        number: u64,
    }
    /// All changes in the directory are shipped, and no more are made before the MDT hears of them.
    LeaveDir { dir: Fid, number: u64 }
    /// Asks to be told of changes of names in a directory, also of one that another session changes again and again.
    WatchDir { dir: Fid }
    /// `is_told`: the session holds the directory's lease.
    WatchDirReply { is_told: bool }
    MakeDir { parent: Fid, name: Bytes, mode: u32, umask: u32, now: Time, cred: Cred, want: Fid }
    Symlink { parent: Fid, name: Bytes, target: Bytes, now: Time, cred: Cred, want: Fid }
    Link { fid: Fid, parent: Fid, name: Bytes, now: Time, cred: Cred }
    /// Removes a name. With `held` (the client has the file open) the last link leaves an orphan, which `Release` ends.
    Unlink { parent: Fid, name: Bytes, held: bool, now: Time, cred: Cred }
    /// The file that lost its name, with the links left. `nlink` 0: its last name is gone.
    UnlinkReply { attr: Attr,
        /// The file has no name any more, and is an orphan of this session until `Release`.
        kept: bool,
    }
    /// Removes an empty directory; `held` as in `Unlink`.
    RemoveDir { parent: Fid, name: Bytes, held: bool, now: Time, cred: Cred }
    /// Renames. With `hold` a replaced file that loses its last name becomes an orphan, which `Release` ends.
    Rename { parent: Fid, name: Bytes, new_parent: Fid, new_name: Bytes, flags: u32, hold: bool, now: Time, cred: Cred,
        /// 0; in a replay, the whiteout of the first answer.
        want: Fid,
    }
    RenameReply {
        /// The file that lost its name, if any (links left in `nlink`).
        replaced: Option<UnlinkReply>,
        /// The whiteout made at the old name; 0 if there is none.
        whiteout: Fid,
    }
    ReadLink { fid: Fid }
    ReadLinkReply { target: Bytes }
    /// Reads entries with cookies above `cookie`, in cookie order. The client adds `.` and `..` itself (`parent` is that of `..`).
    ReadDir { dir: Fid, cookie: u64, max: u32, plus: bool, cred: Cred }
    ReadDirReply { parent: Fid, entries: Vec<DirEntry>, more: bool }
    DirEntry { name: Bytes, fid: Fid, kind: Kind, cookie: u64, inode: Option<Inode> }
    GetXattr { fid: Fid, name: Bytes, cred: Cred }
    GetXattrReply { value: Bytes }
    SetXattr { fid: Fid, name: Bytes, value: Bytes, flags: u32, now: Time, cred: Cred }
    RemoveXattr { fid: Fid, name: Bytes, now: Time, cred: Cred }
    ListXattr { fid: Fid, cred: Cred }
    ListXattrReply { names: Vec<Bytes> }
    /// Opens by fid. `write` on a file with objects marks it as written by this session (`FileState::Writing`). `truncate` empties it
    /// (`O_TRUNC`): its old objects, if any, go to the purge list, in the same entry. `held`, here and below: the capability of an
    /// earlier open in this session. Where the MDT checks each request itself, it proves the right to continue even if the file's
    /// permissions have changed since. Elsewhere it may be absent.
    Open {
        fid: Fid,
        /// The access modes of a new descriptor, which `cred` must have the right to. None: only a renewal.
        read: bool,
        write: bool,
        append: bool,
        truncate: bool,
        /// The capability must also allow writing, for descriptors that exist already.
        keep_write: bool,
        held: Option<Capability>,
        now: Time,
        cred: Cred,
    }
    OpenReply { inode: Inode, cap: Option<Capability> }
    /// Opens for reading only, or (without `read`) renews the capability of descriptors that only read. It changes nothing, so the MDT
    /// answers from the published state without waiting for other requests. Among several sessions the file may count as open from then
    /// on whatever the answer is, so the client sends `Close` in any case. With `read`, inline content of at most `want` bytes comes with
    /// the reply, as bulk.
    OpenRead { fid: Fid, read: bool, held: Option<Capability>, cred: Cred, want: u32 }
    /// `None`: the MDT must do more than read (a file of an evicted session needs recovery; a common lease must be assigned; the last
    /// name is being removed). The client then sends `Open`.
    OpenReadReply {
        open: Option<OpenReply>,
        /// CRCs of the content's fragments, if it comes with the reply.
        crcs: Option<Vec<u32>>,
    }
    /// Releases an orphan: its last descriptor is closed, so it may be removed. No error if the fid is not an orphan.
    Release { fid: Fid }
    /// Reads content of an inline file. The reply has it as bulk, cut at the file's size.
    ReadInline { fid: Fid, offset: u64, len: u32, held: Option<Capability> }
    ReadInlineReply { crcs: Vec<u32>, size: u64 }
    /// Writes bulk bytes into an inline file, and updates its size and mtime. `NeedLayout` if it would end past `inline_max`; `NotInline`
    /// if the file has objects by now. `in_section`: no other client changes the file meanwhile, since this client has a section of its
    /// own or is alone. Without one it is refused with `NeedSection` during an inline-to-object migration (rule meta-O4).
    WriteInline {
        fid: Fid,
        place: Place,
        in_section: bool,
        /// CRCs of the bulk's fragments, counted from its beginning whatever the offset in the file.
        crcs: Vec<u32>,
        now: Time,
        held: Option<Capability>,
    }
    WriteInlineReply { attr: Attr }
    /// Begins an inline-to-object migration. An empty file gets its layout at once (`switched`). Otherwise the client copies all bytes to
    /// the objects, flushes them, and calls `Switch` (rule meta-O4). `avoid`: mirrors without free space. The layout names them only if
    /// the striping does, or if there are no others.
    Grow { fid: Fid, now: Time, held: Option<Capability>, avoid: Vec<MirrorId> }
    GrowReply { inode: Inode, layout: Layout, cap: Capability, switched: bool }
    /// Ends a migration (rule meta-O4): the objects of `generation` hold the content and are flushed. Drops the inline bytes.
    Switch { fid: Fid, generation: Generation, written: Vec<WrittenBits>, now: Time, held: Option<Capability> }
    SwitchReply { inode: Inode }
    /// Moves the tail of a file, from `from` on, to mirrors outside `avoid`, which have no free space (decision 0050). The caller
    /// guarantees two facts. No object of this `generation` has bytes or reserved space at or past `from`; only objects of the first
    /// `keep` components may exist. The generation stays. `Stale` if the layout no longer has `components` components; `NoSpace` if the
    /// tail cannot move.
    MoveTail {
        fid: Fid,
        generation: Generation,
        components: u16,
        from: u64,
        keep: u16,
        avoid: Vec<MirrorId>,
        now: Time,
        held: Option<Capability>,
    }
    MoveTailReply { inode: Inode }
    /// Begins the migration of a file with objects: gives a pending layout of a new generation, without draining OSTs. The caller has the
    /// exclusive lease `token`, or is alone (0). It copies all bytes to the new objects, flushes them, and calls `CutOver` under the same
    /// lease. `cap`, here and in the next calls, needs `RIGHT_ADMIN`. `Stale` if the layout is no longer of `generation`.
    Migrate { fid: Fid, cap: Capability, generation: Generation, token: u64, avoid: Vec<MirrorId>, now: Time }
    /// `cap`: the right to write the new objects.
    MigrateReply { inode: Inode, layout: Layout, cap: Capability }
    /// Ends a migration (rule meta-M1): the objects of `generation` have the whole content of those of `from`, and are flushed. The layout
    /// changes, and the old objects go to the purge list, in one entry.
    CutOver {
        fid: Fid,
        cap: Capability,
        from: Generation,
        generation: Generation,
        token: u64,
        /// Size of the content that was copied. The migration is refused if it is not the recorded one.
        size: u64,
        /// Used by the new objects.
        blocks: u64,
        written: Vec<WrittenBits>,
        now: Time,
    }
    CutOverReply { inode: Inode }
    /// Abandons the pending layout of `generation`: its objects go to the purge list. No error if the file has no such layout. Generation 0:
    /// any, of an inline file whose growth was abandoned.
    DropPending { fid: Fid, cap: Capability, generation: Generation, token: u64 }
    /// Replaces draining mirrors in the present layout, at stripes that have no object. The caller guarantees that: no object of `generation`
    /// exists on a mirror of `empty`. The generation stays. `Stale` if the layout is another one by now.
    Repoint {
        fid: Fid,
        cap: Capability,
        generation: Generation,
        components: u16,
        token: u64,
        empty: Vec<MirrorId>,
        now: Time,
    }
    RepointReply { inode: Inode }
    /// Updates size, mtime and written bits that flushed bytes have proven (rule plan-O3). `done`: the session no longer writes. The size
    /// only rises here, unless the file is in state `Truncating`, where it is set. With `hint` the bytes are not flushed: the size is
    /// shown to other sessions and proves nothing (`FileState::Shared`). With `is_part` other sessions may write the file, too: the
    /// session knows only what it wrote itself, and `blocks` is what that has added (decision 0055).
    Settle {
        fid: Fid,
        generation: Generation,
        size: u64,
        blocks: u64,
        mtime: Time,
        written: Vec<WrittenBits>,
        done: bool,
        hint: bool,
        is_part: bool,
        /// As in `Open`, with the right to write.
        held: Option<Capability>,
    }
    SettleReply { attr: Attr }
    WrittenBits { component: u16, bits: Vec<u64> }
    /// Sets the size. Inline files, growth: complete with this entry. To 0 with objects: a new generation, complete. A shrink with
    /// objects: state `Truncating`, flushed before the reply; the client then cuts the objects, flushes and settles them.
    Truncate { fid: Fid, size: u64, now: Time, held: Option<Capability>, cred: Cred }
    TruncateReply { inode: Inode, cap: Option<Capability>, pending: bool }
    /// Sets the striping of a directory (inherited by new files in it) or of an empty file. `stria setstripe` defines the text form.
    SetStripe { fid: Fid, spec: Option<StripeSpec>, now: Time, cred: Cred }
    GetStripe { fid: Fid }
    GetStripeReply { spec: Option<StripeSpec>, inode: Inode, inline_max: u32 }
    /// The striping that a user asks for. The MDT makes a layout from it when the file needs objects.
    StripeSpec {
        components: Vec<StripeComponent>,
        /// `None` = the file system's.
        inline_max: Option<u32>,
    }
    /// Performs `fallocate` on inline content. `erase` makes the bytes zeros, `allocate` reserves space for them; with `grow` the file
    /// reaches to the end of the range afterwards.
    AllocateInline {
        fid: Fid,
        offset: u64,
        len: u64,
        erase: bool,
        allocate: bool,
        grow: bool,
        now: Time,
        held: Option<Capability>,
    }
    AllocateInlineReply { attr: Attr }
    /// Finds the first written byte of inline content at or after `offset`, and the first that was not written.
    SeekInline { fid: Fid, offset: u64, held: Option<Capability> }
    SeekInlineReply {
        data: Option<u64>,
        hole: u64,
        size: u64,
        /// Bit p: page p has reserved space and was not written.
        reserved: u64,
    }
    StripeComponent {
        end: u64,
        /// 0 = default.
        stripe_size: u32,
        /// 0 = default, 65,535 (`-1`) = all.
        stripe_count: u16,
        /// Index of the first OST, or 65,535 (`-1`): the MDT chooses.
        start: u16,
    }
    /// Reads one path of a fid by parent hints, for damage lists and tools.
    PathOf { fid: Fid }
    PathOfReply { path: Bytes }
    /// Reads all paths of a fid by its parent hints, 256 at most.
    PathsOf { fid: Fid }
    /// `names` is the file's number of names. It exceeds the number of paths if the file has more links than hints, or if the paths are
    /// longer than a reply.
    PathsOfReply { names: u32, paths: Vec<Bytes> }
    /// Counts the content of a directory, and of its whole tree, as of the last entry. The caller needs the right to list and search the
    /// directory.
    Counts { fid: Fid, cred: Cred }
    CountsReply { own: Contents, tree: Contents }
    /// Inodes by the directory of their first name, with their sizes: bytes of files and symlinks, blocks of 512 bytes of all but
    /// directories. Sums are modulo 2^64.
    Contents { files: u64, dirs: u64, others: u64, bytes: u64, blocks: u64 }
    /// Sets a file's or directory's flags to exactly these. Only root may change `FLAG_IMMUTABLE` and `FLAG_APPEND`; the owner may change
    /// the others.
    SetFlags { fid: Fid, flags: u32, now: Time, cred: Cred }
    /// Makes a regular file without a name (`O_TMPFILE`), open for reading and writing. It is an orphan of this session. `Link` can give
    /// it its first name unless it was made `exclusive`.
    Tmpfile { parent: Fid, mode: u32, umask: u32, exclusive: bool, now: Time, cred: Cred,
        /// 0; in a replay, the fid of the first answer.
        want: Fid,
    }
    /// Reads the records of the name space in key order, after `after`, for fsck.
    Scan { after: Bytes, max: u32 }
    ScanReply { records: Vec<ScanRecord>, last: Bytes, more: bool }
}

/// A `Lookup` whose name borrows from the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupRef<'a> {
    pub parent: Fid,
    pub name: &'a [u8],
    pub cred: Cred,
}

impl<'a> LookupRef<'a> {
    /// Decodes the body of a `Lookup`. Errors: malformed bytes.
    pub fn from_bytes(body: &'a [u8]) -> Result<LookupRef<'a>, crate::Malformed> {
        use crate::codec::Wire;
        let mut r = crate::Reader::new(body);
        let parent = Wire::get(&mut r)?;
        let len = u32::get(&mut r)? as usize;
        let it = LookupRef { parent, name: r.take(len)?, cred: Wire::get(&mut r)? };
        r.end()?;
        Ok(it)
    }
}

/// The position of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    At(u64),
    /// After the last byte, wherever that is when the MDT carries the write out.
    End,
    /// At this offset, but only up to the file's end: the file does not grow.
    Within(u64),
}

/// The state of a regular file's content at the MDT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FileState {
    /// Size, times and written bits in the record are current.
    #[default]
    Settled,
    /// A session writes the objects. The current size is that session's own, or a glimpse of the objects if it died.
    Writing(SessionId),
    /// A shrink to `size` is in progress: the objects may still be longer. A client that finds this state completes the shrink.
    Truncating { session: SessionId, size: u64 },
    /// Several sessions write, or may. The size in the record is what they reported while the generation counter `era` lasts. After it (a
    /// session died, or the MDT restarted) only `proven` bytes are certain, and a glimpse of the objects gives the rest.
    Shared { era: u64, proven: u64 },
}

/// One record of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanRecord {
    Entry {
        parent: Fid,
        name: Bytes,
        fid: Fid,
        kind: Kind,
    },
    Inode {
        inode: Inode,
        inline_bytes: u64,
        parents: Vec<Fid>,
        pending: Option<Layout>,
    },
    Orphan {
        fid: Fid,
        session: SessionId,
    },
    /// A layout whose objects wait for the purge.
    Dead {
        fid: Fid,
        layout: Layout,
    },
}

impl crate::codec::Wire for FileState {
    fn put(&self, out: &mut Vec<u8>) {
        match *self {
            FileState::Settled => out.push(0),
            FileState::Writing(s) => {
                out.push(1);
                s.put(out);
            }
            FileState::Truncating { session, size } => {
                out.push(2);
                session.put(out);
                size.put(out);
            }
            FileState::Shared { era, proven } => {
                out.push(3);
                era.put(out);
                proven.put(out);
            }
        }
    }
    fn get(r: &mut crate::Reader<'_>) -> Result<Self, crate::Malformed> {
        use crate::codec::Wire;
        Ok(match u8::get(r)? {
            0 => FileState::Settled,
            1 => FileState::Writing(Wire::get(r)?),
            2 => FileState::Truncating { session: Wire::get(r)?, size: Wire::get(r)? },
            3 => FileState::Shared { era: Wire::get(r)?, proven: Wire::get(r)? },
            _ => return Err(crate::Malformed("file state")),
        })
    }
}

impl crate::codec::Wire for Place {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, offset) = match *self {
            Place::At(offset) => (0, offset),
            Place::End => (1, 0),
            Place::Within(offset) => (2, offset),
        };
        out.push(kind);
        offset.put(out);
    }
    fn get(r: &mut crate::Reader<'_>) -> Result<Self, crate::Malformed> {
        Ok(match (u8::get(r)?, u64::get(r)?) {
            (0, offset) => Place::At(offset),
            (1, 0) => Place::End,
            (2, offset) => Place::Within(offset),
            _ => return Err(crate::Malformed("place")),
        })
    }
}

impl crate::codec::Wire for ScanRecord {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            ScanRecord::Entry { parent, name, fid, kind } => {
                out.push(1);
                parent.put(out);
                name.put(out);
                fid.put(out);
                kind.put(out);
            }
            ScanRecord::Inode { inode, inline_bytes, parents, pending } => {
                out.push(2);
                inode.put(out);
                inline_bytes.put(out);
                parents.put(out);
                pending.put(out);
            }
            ScanRecord::Orphan { fid, session } => {
                out.push(3);
                fid.put(out);
                session.put(out);
            }
            ScanRecord::Dead { fid, layout } => {
                out.push(4);
                fid.put(out);
                layout.put(out);
            }
        }
    }
    fn get(r: &mut crate::Reader<'_>) -> Result<Self, crate::Malformed> {
        use crate::codec::Wire;
        Ok(match u8::get(r)? {
            1 => ScanRecord::Entry {
                parent: Wire::get(r)?,
                name: Wire::get(r)?,
                fid: Wire::get(r)?,
                kind: Wire::get(r)?,
            },
            2 => ScanRecord::Inode {
                inode: Wire::get(r)?,
                inline_bytes: Wire::get(r)?,
                parents: Wire::get(r)?,
                pending: Wire::get(r)?,
            },
            3 => ScanRecord::Orphan { fid: Wire::get(r)?, session: Wire::get(r)? },
            4 => ScanRecord::Dead { fid: Wire::get(r)?, layout: Wire::get(r)? },
            _ => return Err(crate::Malformed("scan record")),
        })
    }
}

calls! {
    0x0201 Lookup => Inode, read;
    0x0202 GetAttr => Inode, read;
    0x0203 SetAttr => Inode, mutate;
    0x0204 Create => CreateReply, mutate;
    0x0205 MakeDir => Inode, mutate;
    0x0206 Symlink => Inode, mutate;
    0x0207 Link => Inode, mutate;
    0x0208 Unlink => UnlinkReply, mutate;
    0x0209 RemoveDir => UnlinkReply, mutate;
    0x020a Rename => RenameReply, mutate;
    0x020b ReadLink => ReadLinkReply, read;
    0x020c ReadDir => ReadDirReply, read;
    0x020d GetXattr => GetXattrReply, read;
    0x020e SetXattr => Empty, mutate;
    0x020f RemoveXattr => Empty, mutate;
    0x0210 ListXattr => ListXattrReply, read;
    0x0211 Open => OpenReply, mutate;
    0x0212 Release => Empty, mutate;
    0x0213 ReadInline => ReadInlineReply, bulk;
    0x0215 Grow => GrowReply, mutate;
    0x0216 Switch => SwitchReply, mutate;
    0x0217 Settle => SettleReply, mutate;
    0x0218 Truncate => TruncateReply, mutate;
    0x0219 SetStripe => Empty, mutate;
    0x021a GetStripe => GetStripeReply, read;
    0x021b PathOf => PathOfReply, read;
    0x021c Scan => ScanReply, read;
    0x0230 SetFlags => Inode, mutate;
    0x0231 Tmpfile => OpenReply, mutate;
    0x0232 OpenRead => OpenReadReply, read;
    0x0233 CreateWith => OpenReply, mutate;
    0x0234 WriteInline => WriteInlineReply, mutate;
    0x0236 GetAttrs => GetAttrsReply, read;
    0x0237 Counts => CountsReply, read;
    0x0238 PathsOf => PathsOfReply, read;
    0x0239 MoveTail => MoveTailReply, mutate;
    0x023a LeaseDir => LeaseDirReply, read;
    0x023b LeaveDir => Empty, read;
    0x023c WatchDir => WatchDirReply, read;
    0x023d Migrate => MigrateReply, mutate;
    0x023e CutOver => CutOverReply, mutate;
    0x023f DropPending => Empty, mutate;
    0x0240 Repoint => RepointReply, mutate;
    0x0250 AllocateInline => AllocateInlineReply, mutate;
    0x0251 SeekInline => SeekInlineReply, read;
}
