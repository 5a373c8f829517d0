//! Tests, and their combination.

use std::io;

use types::Time;

use crate::glob::Glob;
use crate::measure::Measure;
use crate::names::Names;
use crate::perm::Perm;
use crate::striping::Striping;

/// Kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

impl Kind {
    pub const ALL: [(Kind, char); 7] = [
        (Kind::File, 'f'),
        (Kind::Directory, 'd'),
        (Kind::Symlink, 'l'),
        (Kind::Fifo, 'p'),
        (Kind::Socket, 's'),
        (Kind::CharDevice, 'c'),
        (Kind::BlockDevice, 'b'),
    ];

    /// As `-type` names it.
    pub fn letter(self) -> char {
        Kind::ALL.iter().find(|(kind, _)| *kind == self).map_or('?', |(_, letter)| *letter)
    }

    /// The first letter of `ls -l`.
    pub fn in_listing(self) -> char {
        if self == Kind::File { '-' } else { self.letter() }
    }
}

/// The answer of `stat`. Sizes are bytes, blocks are of 512 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    pub ino: u64,
    /// The 12 bits of permissions.
    pub mode: u32,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub blocks: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    /// None: the file system does not keep it.
    pub btime: Option<Time>,
}

/// The questions of tests. Answers that cost a request are asked for only by tests that need them.
pub trait Subject {
    fn path(&self) -> &[u8];
    /// The last component of the path; of a start, as it was given.
    fn name(&self) -> &[u8];
    /// Bytes of the start that the path begins with.
    fn start_len(&self) -> usize;
    /// Inode number of its directory; 0 of a start.
    fn parent(&self) -> u64;
    fn depth(&self) -> usize;
    /// Inode number. Of a listed entry its directory tells it, though `stat` may fail.
    fn ino(&self) -> io::Result<u64> {
        self.stat().map(|stat| stat.ino)
    }
    fn kind(&self) -> io::Result<Kind>;
    fn stat(&self) -> io::Result<Stat>;
    /// None: it is no file or directory of Stria.
    fn striping(&self) -> io::Result<Option<Striping>>;
    /// Of a directory: it has no entries.
    fn is_empty_directory(&self) -> io::Result<bool>;
    /// Of a symlink.
    fn target(&self) -> io::Result<Vec<u8>>;
}

/// One of the times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Access,
    Change,
    Content,
    Birth,
}

impl Which {
    pub fn of(self, stat: &Stat) -> Option<Time> {
        match self {
            Which::Access => Some(stat.atime),
            Which::Change => Some(stat.ctime),
            Which::Content => Some(stat.mtime),
            Which::Birth => stat.btime,
        }
    }
}

/// Values that all tests of a search share.
pub struct Context {
    /// Ages count from here.
    pub now: Time,
    pub names: Names,
}

#[derive(Clone, Debug)]
pub enum Test {
    True,
    False,
    Name(Glob),
    Path(Glob),
    Kinds(Vec<Kind>),
    Empty,
    /// Bytes.
    Size(Measure),
    /// Bytes that are allocated.
    Blocks(Measure),
    Links(Measure),
    Inode(Measure),
    Uid(Measure),
    Gid(Measure),
    NoUser,
    NoGroup,
    Perm(Perm),
    /// Nanoseconds.
    Age(Which, Measure),
    Newer(Which, Time),
    StripeCount(Measure),
    /// Bytes.
    StripeSize(Measure),
    StripeIndex(Vec<i64>),
    Ost(Vec<u32>),
    Inline,
}

#[derive(Clone, Debug)]
pub enum Expr {
    Test(Test),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
}

impl Expr {
    /// Errors are those of the subject's answers.
    pub fn holds(&self, of: &impl Subject, context: &Context) -> io::Result<bool> {
        match self {
            Expr::Test(test) => test.holds(of, context),
            Expr::Not(inner) => Ok(!inner.holds(of, context)?),
            Expr::And(all) => {
                for one in all {
                    if !one.holds(of, context)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expr::Or(any) => {
                for one in any {
                    if one.holds(of, context)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

impl Test {
    fn holds(&self, of: &impl Subject, context: &Context) -> io::Result<bool> {
        let striping = || Ok::<_, io::Error>(of.striping()?.filter(|striping| !striping.is_dir));
        Ok(match self {
            Test::True => true,
            Test::False => false,
            Test::Name(glob) => glob.matches(of.name()),
            Test::Path(glob) => glob.matches(of.path()),
            Test::Kinds(kinds) => kinds.contains(&of.kind()?),
            Test::Empty => match of.kind()? {
                Kind::File => of.stat()?.size == 0,
                Kind::Directory => of.is_empty_directory()?,
                _ => false,
            },
            Test::Size(measure) => measure.holds(of.stat()?.size.into()),
            Test::Blocks(measure) => measure.holds(i128::from(of.stat()?.blocks) * 512),
            Test::Links(measure) => measure.holds(of.stat()?.nlink.into()),
            Test::Inode(measure) => measure.holds(of.stat()?.ino.into()),
            Test::Uid(measure) => measure.holds(of.stat()?.uid.into()),
            Test::Gid(measure) => measure.holds(of.stat()?.gid.into()),
            Test::NoUser => context.names.user(of.stat()?.uid).is_none(),
            Test::NoGroup => context.names.group(of.stat()?.gid).is_none(),
            Test::Perm(perm) => perm.holds(of.stat()?.mode),
            Test::Age(which, measure) => {
                let age = |time: Time| nanos(context.now) - nanos(time);
                which.of(&of.stat()?).is_some_and(|time| measure.holds(age(time)))
            }
            Test::Newer(which, than) => which.of(&of.stat()?).is_some_and(|time| time > *than),
            Test::StripeCount(measure) => striping()?.is_some_and(|s| measure.holds(s.count().into())),
            Test::StripeSize(measure) => {
                let size = |s: &Striping| s.part_in_use().map(|part| part.stripe_size);
                striping()?.and_then(|s| size(&s)).is_some_and(|size| measure.holds(size.into()))
            }
            Test::StripeIndex(indexes) => {
                let index = |s: &Striping| s.part_in_use().and_then(|part| part.stripe_index);
                striping()?.and_then(|s| index(&s)).is_some_and(|index| indexes.contains(&index))
            }
            Test::Ost(indexes) => {
                striping()?.is_some_and(|s| s.osts_in_use().any(|ost| indexes.contains(&ost)))
            }
            Test::Inline => striping()?.is_some_and(|s| s.is_inline()),
        })
    }
}

fn nanos(time: Time) -> i128 {
    i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec)
}
