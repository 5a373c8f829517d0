//! The tree of files for the rows, and the interface of the sides: both have the same names.

use std::ffi::CStr;

use anyhow::Context;

use crate::cmd::measure::threads;

/// On ext4 each directory needs an open descriptor, so this is less than the default limit of a process.
const DIRS_MAX: u64 = 500;
/// Files per directory, unless there are too many files.
const FILES_PER_DIR: u64 = 1000;

/// The number of files and directories before the rows.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    pub entries: u64,
}

impl Tree {
    pub fn dirs(self) -> u64 {
        self.entries.div_ceil(FILES_PER_DIR).clamp(1, DIRS_MAX)
    }

    /// Directory and number within it of file `n`: neighbours lie in different directories.
    pub fn place(self, n: u64) -> (usize, u64) {
        ((n % self.dirs()) as usize, n / self.dirs())
    }

    fn files_of(self, dir: u64) -> u64 {
        (self.entries + self.dirs() - 1 - dir) / self.dirs()
    }
}

/// A letter and nine digits.
pub struct Name([u8; 11]);

impl Name {
    pub fn new(letter: u8, mut number: u64) -> Name {
        let mut text = [b'0'; 11];
        text[0] = letter;
        text[10] = 0;
        for digit in text[1..10].iter_mut().rev() {
            *digit += (number % 10) as u8;
            number /= 10;
        }
        Name(text)
    }
    pub fn file(number: u64) -> Name {
        Name::new(b'f', number)
    }
    pub fn bytes(&self) -> &[u8] {
        &self.0[..10]
    }
    pub fn c(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.0).expect("digits, then a zero")
    }
}

/// A file system under test.
pub trait Side: Sync {
    type Dir: Sync + Send;
    type Hand: Hand<Dir = Self::Dir>;

    /// A hand for the thread of this number, which only that thread uses.
    fn hand(&self, thread: usize) -> anyhow::Result<Self::Hand>;
    /// The directories of the tree.
    fn dirs(&self) -> &[Self::Dir];
    /// Makes all changes durable.
    fn flush(&self) -> anyhow::Result<()>;
}

/// One thread's connection to a side.
pub trait Hand {
    type Dir;

    /// Makes a directory in the root.
    fn make_dir(&mut self, name: &Name) -> anyhow::Result<Self::Dir>;
    fn create(&mut self, dir: &Self::Dir, name: &Name) -> anyhow::Result<()>;
    fn remove(&mut self, dir: &Self::Dir, name: &Name) -> anyhow::Result<()>;
    fn stat(&mut self, dir: &Self::Dir, name: &Name) -> anyhow::Result<()>;
    /// Lists all entries with their attributes; returns their number.
    fn list(&mut self, dir: &Self::Dir) -> anyhow::Result<u64>;
}

/// Makes the tree with one thread per processor, and returns its directories.
pub fn fill<S: Side>(
    side: &S,
    tree: Tree,
    stop: &std::sync::atomic::AtomicBool,
) -> anyhow::Result<Vec<S::Dir>> {
    let mut first = side.hand(0)?;
    let dirs: Vec<S::Dir> =
        (0..tree.dirs()).map(|n| first.make_dir(&Name::new(b'd', n))).collect::<anyhow::Result<_>>()?;
    drop(first);
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let work = |thread: usize, _| -> anyhow::Result<()> {
        let mut hand = side.hand(thread)?;
        for (dir, n) in dirs.iter().zip(0..).skip(thread).step_by(count) {
            for file in 0..tree.files_of(n) {
                hand.create(dir, &Name::file(file))?;
            }
            if stop.load(std::sync::atomic::Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    };
    threads::run(count, stop, work, || side.flush()).context("making the tree")?;
    Ok(dirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_one_place_and_is_made() {
        for entries in [1, 999, 1001, 2500, 1_000_003] {
            let tree = Tree { entries };
            assert_eq!((0..tree.dirs()).map(|d| tree.files_of(d)).sum::<u64>(), entries);
            for n in (0..entries).step_by(97).chain([entries - 1]) {
                let (dir, file) = tree.place(n);
                assert!(file < tree.files_of(dir as u64), "{n} of {entries}");
            }
        }
    }

    #[test]
    fn names_have_their_number() {
        assert_eq!(Name::new(b'd', 120).bytes(), b"d000000120");
        assert_eq!(Name::file(987_654_321).c(), c"f987654321");
    }
}
