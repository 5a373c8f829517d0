//! A client and an MDT: names, attributes, layouts, inline content.

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
/// Takes the set-id bits away, as a change of content does; also who does not own the file may. `mode` is not looked at.
pub const SET_KILLPRIV: u32 = 32;
/// The times named are the present moment. With both, who may write sets them, and an append-only file takes them.
pub const SET_TOUCH: u32 = 64;
/// Bits of `Inode::flags`, numbered as `chattr`'s (`FS_IOC_GETFLAGS`).
pub const FLAG_IMMUTABLE: u32 = 0x10;
pub const FLAG_APPEND: u32 = 0x20;
pub const FLAG_NODUMP: u32 = 0x40;
pub const FLAG_NOATIME: u32 = 0x80;
/// All that are kept; others are `Unsupported`.
pub const FLAGS_KEPT: u32 = FLAG_IMMUTABLE | FLAG_APPEND | FLAG_NODUMP | FLAG_NOATIME;
/// Bits of `Rename::flags`, numbered as the kernel's.
pub const RENAME_NOREPLACE: u32 = 1;
pub const RENAME_EXCHANGE: u32 = 2;
/// Leaves a whiteout at the old name, in the same step: a character device 0:0, by which overlayfs marks what is removed.
pub const RENAME_WHITEOUT: u32 = 4;
/// Fids of a `GetAttrs`: with layouts of many stripes their inodes fit a reply.
pub const FIDS_MAX: usize = 1024;
/// `SetXattr::flags`, numbered as the kernel's.
pub const XATTR_CREATE: u32 = 1;
pub const XATTR_REPLACE: u32 = 2;

impl StripeComponent {
    /// What a file gets where nothing was set: one stripe up to 64 MiB, four up to 1 GiB, then all, capped.
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
    /// Attributes with what a client needs beside them.
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
    /// Several at once, up to `FIDS_MAX`: each as by `GetAttr`, `None` if there is none.
    GetAttrs { fids: Vec<Fid> }
    GetAttrsReply { inodes: Vec<Option<Inode>> }
    /// Changes what `valid` names; ctime becomes `now`. Sizes are changed by `Truncate`.
    /// `held`, with `SET_KILLPRIV`: as in `Truncate`.
    SetAttr { fid: Fid, valid: u32, mode: u32, uid: u32, gid: u32, atime: Time, mtime: Time, now: Time,
        held: Option<Capability>, cred: Cred,
    }
    /// Makes a regular file or a special one. With `exclusive` an existing name is `Exists`; without, an existing regular
    /// file is returned as `Open` would (`made` false). `umask` counts unless the directory has a default ACL; so in `MakeDir`.
    Create { parent: Fid, name: Bytes, kind: Kind, mode: u32, umask: u32, rdev: u32, exclusive: bool, read: bool, write: bool,
        append: bool, now: Time, cred: Cred,
        /// 0; in a replay, the fid that the first answer gave.
        want: Fid,
    }
    CreateReply { made: bool, open: OpenReply }
    /// Makes a regular file whose content comes along, as bulk, and opens it for writing; an existing name is `Exists`. All in one
    /// entry, or nothing: `NeedLayout` if it is longer than `inline_max`. `now` is when it was made, `written` when its bytes were.
    CreateWith { parent: Fid, name: Bytes, mode: u32, umask: u32, crcs: Vec<u32>, now: Time, written: Time, cred: Cred,
        /// As in `Create`.
        want: Fid,
    }
    MakeDir { parent: Fid, name: Bytes, mode: u32, umask: u32, now: Time, cred: Cred, want: Fid }
    Symlink { parent: Fid, name: Bytes, target: Bytes, now: Time, cred: Cred, want: Fid }
    Link { fid: Fid, parent: Fid, name: Bytes, now: Time, cred: Cred }
    /// Removes a name. With `held` (the client has the file open) the last link leaves an orphan that `Release` ends.
    Unlink { parent: Fid, name: Bytes, held: bool, now: Time, cred: Cred }
    /// What lost its name, with the links left; who still has it open can be told of it when it is gone (`nlink` 0).
    UnlinkReply { attr: Attr,
        /// It has no name any more, and is an orphan of the asking session until `Release`.
        kept: bool,
    }
    /// Removes an empty directory; `held` as in `Unlink`.
    RemoveDir { parent: Fid, name: Bytes, held: bool, now: Time, cred: Cred }
    /// With `hold` what is replaced and loses its last name becomes an orphan, which `Release` ends.
    Rename { parent: Fid, name: Bytes, new_parent: Fid, new_name: Bytes, flags: u32, hold: bool, now: Time, cred: Cred,
        /// 0; in a replay, the whiteout that the first answer named.
        want: Fid,
    }
    RenameReply {
        /// The file that lost its name, if any (links left in `nlink`).
        replaced: Option<UnlinkReply>,
        /// What was made at the old name; 0: nothing.
        whiteout: Fid,
    }
    ReadLink { fid: Fid }
    ReadLinkReply { target: Bytes }
    /// Entries with cookies above `cookie`, in cookie order; `.` and `..` are the client's to add (`parent` serves `..`).
    ReadDir { dir: Fid, cookie: u64, max: u32, plus: bool, cred: Cred }
    ReadDirReply { parent: Fid, entries: Vec<DirEntry>, more: bool }
    DirEntry { name: Bytes, fid: Fid, kind: Kind, cookie: u64, inode: Option<Inode> }
    GetXattr { fid: Fid, name: Bytes, cred: Cred }
    GetXattrReply { value: Bytes }
    SetXattr { fid: Fid, name: Bytes, value: Bytes, flags: u32, now: Time, cred: Cred }
    RemoveXattr { fid: Fid, name: Bytes, now: Time, cred: Cred }
    ListXattr { fid: Fid, cred: Cred }
    ListXattrReply { names: Vec<Bytes> }
    /// Opens by fid. `write` on a file with objects marks it as being written by this session (`FileState::Writing`).
    /// `truncate` empties it (`O_TRUNC`): its old objects, if any, go to the purge list, in the same entry.
    /// `held`, here and below: what an earlier open of this session gave. It proves the right to go on where the MDT judges
    /// each request itself, whatever became of the file's permissions since; elsewhere it may be absent.
    Open {
        fid: Fid,
        /// What a new descriptor is to do, which `cred` must be allowed to. None of them: only a renewal.
        read: bool,
        write: bool,
        append: bool,
        truncate: bool,
        /// The capability shall be good for writing, too, for descriptors that there are.
        keep_write: bool,
        held: Option<Capability>,
        now: Time,
        cred: Cred,
    }
    OpenReply { inode: Inode, cap: Option<Capability> }
    /// As `Open` for reading only, or (without `read`) as a renewal for descriptors that only read. Nothing is changed, so it is asked
    /// of the published state and waits for no other request. Among several sessions it may count as open from then on whatever
    /// the answer is: who asks says `Close` in any case.
    /// With `read`, content that lies here and is no longer than `want` comes along, as bulk.
    OpenRead { fid: Fid, read: bool, held: Option<Capability>, cred: Cred, want: u32 }
    /// `None`: more than a look is needed (a dead session left the file unfinished; a common lease is to be drawn; its last name is just
    /// being taken); ask by `Open`.
    OpenReadReply {
        open: Option<OpenReply>,
        /// There if the content came along: of its fragments.
        crcs: Option<Vec<u32>>,
    }
    /// The last descriptor of an orphan is closed: it may go. Fine for a fid that is no orphan.
    Release { fid: Fid }
    /// Content of an inline file: bulk in the reply, cut at the file's size.
    ReadInline { fid: Fid, offset: u64, len: u32, held: Option<Capability> }
    ReadInlineReply { crcs: Vec<u32>, size: u64 }
    /// Writes bulk bytes into an inline file; its size and mtime follow. `NeedLayout` if it would end past `inline_max`;
    /// `NotInline` if the file has objects by now.
    /// `in_section`: nobody else changes the file meanwhile, since the client has a section of its own or is alone. Who has none is refused
    /// with `NeedSection` while the file is growing out of its record (rule meta-O4).
    WriteInline {
        fid: Fid,
        place: Place,
        in_section: bool,
        /// Of the fragments of the bulk, counted from its beginning wherever it goes.
        crcs: Vec<u32>,
        now: Time,
        held: Option<Capability>,
    }
    WriteInlineReply { attr: Attr }
    /// An inline file outgrows its record. For an empty file the layout is switched at once (`switched`); else the client
    /// copies all bytes to the objects, flushes them, and calls `Switch` (rule meta-O4).
    /// `avoid`: mirrors without room; the layout names them only if the striping does, or if there are no others.
    Grow { fid: Fid, now: Time, held: Option<Capability>, avoid: Vec<MirrorId> }
    GrowReply { inode: Inode, layout: Layout, cap: Capability, switched: bool }
    /// Ends rule meta-O4: the objects of `generation` hold the content and are flushed. Drops the inline bytes.
    Switch { fid: Fid, generation: Generation, written: Vec<WrittenBits>, now: Time, held: Option<Capability> }
    SwitchReply { inode: Inode }
    /// Everything of a file from `from` on goes to other mirrors than those to `avoid`, which have no room (decision 0050). No object of
    /// this `generation` has bytes or reserved space at or past `from`, and objects of at most the first `keep` components exist. The
    /// generation stays. `Stale` if the layout has not `components` components any more; `NoSpace` if the tail cannot move.
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
    /// The size, mtime and written bits that flushed bytes have proven (rule plan-O3). `done`: nobody writes any more.
    /// The size only rises here, unless the file is in state `Truncating`, where it is set.
    /// With `hint` the bytes are not flushed: the size is shown to other sessions and proves nothing (`FileState::Shared`).
    Settle {
        fid: Fid,
        generation: Generation,
        size: u64,
        blocks: u64,
        mtime: Time,
        written: Vec<WrittenBits>,
        done: bool,
        hint: bool,
        /// As in `Open`: good for writing.
        held: Option<Capability>,
    }
    SettleReply { attr: Attr }
    WrittenBits { component: u16, bits: Vec<u64> }
    /// Sets the size. Inline files and growth: done in this entry. To 0 with objects: new generation, done. Shrinking with
    /// objects: state `Truncating`, flushed before the reply; the client cuts the objects, flushes them and settles.
    Truncate { fid: Fid, size: u64, now: Time, held: Option<Capability>, cred: Cred }
    TruncateReply { inode: Inode, cap: Option<Capability>, pending: bool }
    /// Striping of a directory (inherited by what is made in it) or of an empty file; text form as `stria setstripe` makes it.
    SetStripe { fid: Fid, spec: Option<StripeSpec>, now: Time, cred: Cred }
    GetStripe { fid: Fid }
    GetStripeReply { spec: Option<StripeSpec>, inode: Inode, inline_max: u32 }
    /// What a user asks for; the MDT makes a layout from it when bytes need one.
    StripeSpec {
        components: Vec<StripeComponent>,
        /// `None` = the file system's.
        inline_max: Option<u32>,
    }
    /// `fallocate` of inline content. With `erase` its bytes become zeros, with `allocate` space is kept for them; `grow`: the file
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
    /// The first byte of inline content at or after `offset` that was written, and the first that was not.
    SeekInline { fid: Fid, offset: u64, held: Option<Capability> }
    SeekInlineReply {
        data: Option<u64>,
        hole: u64,
        size: u64,
        /// Bit p: space is kept for page p, and it was not written.
        reserved: u64,
    }
    StripeComponent {
        end: u64,
        /// 0 = default.
        stripe_size: u32,
        /// 0 = default, 65,535 (`-1`) = all.
        stripe_count: u16,
        /// Index of the OST to start with, or 65,535 (`-1`): the MDT chooses.
        start: u16,
    }
    /// A path of a fid by parent hints, for damage lists and tools.
    PathOf { fid: Fid }
    PathOfReply { path: Bytes }
    /// All paths of a fid that its parent hints know, 256 at most.
    PathsOf { fid: Fid }
    /// `names` is how many the file has: more than there are paths if it has more links than hints, or if the paths are longer than an
    /// answer may be.
    PathsOfReply { names: u32, paths: Vec<Bytes> }
    /// What lies in a directory, and in it and all below it, as of the last entry. Who asks may list and search the directory.
    Counts { fid: Fid, cred: Cred }
    CountsReply { own: Contents, tree: Contents }
    /// Inodes by the directory of their first name, and what they take: sizes of files and symlinks, blocks of 512 bytes of all but
    /// directories. Sums are modulo 2^64.
    Contents { files: u64, dirs: u64, others: u64, bytes: u64, blocks: u64 }
    /// Sets a file's or directory's flags to exactly these. Root changes `FLAG_IMMUTABLE` and `FLAG_APPEND`, the owner the others.
    SetFlags { fid: Fid, flags: u32, now: Time, cred: Cred }
    /// Makes a regular file without a name (`O_TMPFILE`), open for reading and writing: an orphan of this session, which `Link`
    /// gives its first name unless it was made `exclusive`.
    Tmpfile { parent: Fid, mode: u32, umask: u32, exclusive: bool, now: Time, cred: Cred,
        /// 0; in a replay, the fid that the first answer gave.
        want: Fid,
    }
    /// Everything of the name space in key order, for fsck: records after `after`.
    Scan { after: Bytes, max: u32 }
    ScanReply { records: Vec<ScanRecord>, last: Bytes, more: bool }
}

/// A `Lookup` whose name is where the frame has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupRef<'a> {
    pub parent: Fid,
    pub name: &'a [u8],
    pub cred: Cred,
}

impl<'a> LookupRef<'a> {
    /// As `Lookup::from_bytes`.
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

/// Where the bytes of a write go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    At(u64),
    /// Behind the last byte, wherever that is when the MDT carries it out.
    End,
    /// As far as the file reaches: it makes it no longer.
    Within(u64),
}

/// A regular file's content as the MDT knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FileState {
    /// Size, times and written bits in the record are true.
    #[default]
    Settled,
    /// A session writes objects: the truth is its own, or a glimpse of the objects if it died.
    Writing(SessionId),
    /// A shrink to `size` is under way: the objects may still be longer. Whoever finds it so finishes it.
    Truncating { session: SessionId, size: u64 },
    /// Several sessions write, or may. The size in the record is what they said while `era` lasts; after it (a session died, or the
    /// MDT restarted) only `proven` bytes are sure, and a glimpse of the objects says the rest.
    Shared { era: u64, proven: u64 },
}

/// One finding of a scan.
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
    /// Objects that wait to be destroyed.
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
    0x0213 ReadInline => ReadInlineReply, read;
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
    0x0250 AllocateInline => AllocateInlineReply, mutate;
    0x0251 SeekInline => SeekInlineReply, read;
}
