//! Random trees: what `find` of GNU finds, this search finds.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use find::{Context, Names, parse, walk};

/// SplitMix64 (Steele, Lea, Flood 2014). The generator of the test kit would bring all of a cluster with it.
struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Rng {
        Rng(seed)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }
}

struct Tree(PathBuf);

impl Tree {
    /// About 200 entries of all kinds that need no privilege.
    fn new(rng: &mut Rng, name: &str) -> Tree {
        let root = std::env::temp_dir().join(format!("stria-find-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).expect("a new directory");
        let mut dirs = vec![root.clone()];
        let names =
            ["a.h5", "B.txt", "ä b", ".hidden", "x[1]", "new\nline", "data", "*", "-name", "core.123"];
        for n in 0..200 {
            let dir = &dirs[rng.below(dirs.len() as u64) as usize];
            let name = names[rng.below(names.len() as u64) as usize];
            let path = dir.join(if rng.below(2) == 0 { name.to_owned() } else { format!("{name}{n}") });
            if path.symlink_metadata().is_ok() {
                continue;
            }
            match rng.below(10) {
                0 | 1 => {
                    fs::create_dir(&path).expect("a directory");
                    dirs.push(path);
                    continue;
                }
                2 => symlink("nowhere", &path).expect("a symlink"),
                3 => {
                    let args = [path.as_os_str()];
                    assert!(Command::new("mkfifo").arg("--").args(args).status().expect("mkfifo").success());
                }
                _ => fill(rng, &path),
            }
        }
        Tree(root)
    }
}

fn fill(rng: &mut Rng, path: &Path) {
    let file = File::create(path).expect("a file");
    let size = [0, 1, 511, 512, 513, 1024, 4096, 1 << 20, (1 << 20) + 1][rng.below(9) as usize];
    file.set_len(size).expect("room");
    // Never at a whole minute: the searches do not begin at the same moment.
    let ago = Duration::from_secs(30 + 60 * rng.below(60 * 24 * 5));
    file.set_modified(SystemTime::now() - ago).expect("a time");
    let mode = [0o644, 0o600, 0o755, 0o444, 0o666, 0o4755][rng.below(6) as usize];
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn test(rng: &mut Rng, root: &Path) -> Vec<String> {
    let mut pick = |all: &[&str]| all[rng.below(all.len() as u64) as usize].to_owned();
    let file = root.join("reference").display().to_string();
    let test = pick(&[
        "-name", "-iname", "-path", "-type", "-size", "-perm", "-mtime", "-mmin", "-links", "-empty",
        "-newer", "-uid", "-true", "-newermt", "-user",
    ]);
    let value = match test.as_str() {
        "-name" => {
            pick(&["*.h5", "a*", "?*", "[aB]*", "[!a]*", "*[0-9]", ".*", "x[[]1]", "\\*", "*\n*", "ä?b"])
        }
        "-iname" => pick(&["*.H5", "b.TXT*", "Ä*", "[b-c]*"]),
        "-path" => pick(&["*/data/*", "*d*", "*/.hidden*"]),
        "-type" => pick(&["f", "d", "l", "p", "f,l", "s"]),
        "-size" => pick(&["0c", "+0c", "-513c", "1k", "+1k", "1M", "2M", "+1M", "1b", "2b", "1025c"]),
        "-perm" => pick(&["644", "-400", "/222", "-u+w", "u=rw,go=r", "/u+s", "-4000", "/000"]),
        "-mtime" => pick(&["0", "1", "+1", "-2", "+3", "-1"]),
        "-mmin" => pick(&["+90", "-3000", "+0", "-1"]),
        "-links" => pick(&["1", "+1", "-3", "2"]),
        "-newer" => file,
        "-newermt" => pick(&["2020-01-01", "2100-01-01"]),
        "-uid" => pick(&["0", "+0"]),
        "-user" => "root".into(),
        _ => return vec![test],
    };
    vec![test, value]
}

fn expression(rng: &mut Rng, root: &Path, depth: u32) -> Vec<String> {
    let mut words = Vec::new();
    match if depth == 0 { 0 } else { rng.below(6) } {
        0 | 1 => words = test(rng, root),
        2 => {
            words.push("!".into());
            words.extend(expression(rng, root, 0));
        }
        3 => {
            words.extend(expression(rng, root, depth - 1));
            words.extend(expression(rng, root, depth - 1));
        }
        _ => {
            words.push("(".into());
            words.extend(expression(rng, root, depth - 1));
            words.push("-o".into());
            words.extend(expression(rng, root, depth - 1));
            words.push(")".into());
        }
    }
    words
}

/// The results, each ended by NUL, in their order.
fn sorted(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut all: Vec<String> = text.split('\0').filter(|one| !one.is_empty()).map(str::to_owned).collect();
    all.sort();
    all
}

fn assert_equal(words: &[OsString]) {
    let (own, want) = (sorted(&ours(words)), sorted(&theirs(words)));
    let more: Vec<_> = own.iter().filter(|one| !want.contains(one)).take(3).collect();
    let less: Vec<_> = want.iter().filter(|one| !own.contains(one)).take(3).collect();
    assert!(own == want, "{words:?}\nfound only by us: {more:#?}\nfound only by find: {less:#?}");
}

fn ours(words: &[OsString]) -> Vec<u8> {
    let query = parse(words).unwrap_or_else(|why| panic!("{words:?}: {why}"));
    let context = Context { now: SystemTime::now().into(), names: Names::default() };
    let mut all = Vec::new();
    let take = |piece: &[u8]| {
        all.extend_from_slice(piece);
        Ok(())
    };
    let found = walk(&query, &context, take, |path, error| panic!("{}: {error}", path.display()));
    assert!(found.is_ok_and(|found| found.errors == 0));
    all
}

fn theirs(words: &[OsString]) -> Vec<u8> {
    let out = Command::new("find").env("LC_ALL", "C.UTF-8").env("TZ", "UTC").args(words).output();
    let out = out.expect("find of GNU is there");
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

#[test]
fn random_searches_find_what_find_finds() {
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let tree = Tree::new(&mut rng, &format!("random{seed}"));
        fs::write(tree.0.join("reference"), "x").expect("a file");
        for _ in 0..60 {
            let mut words = vec![tree.0.display().to_string()];
            if rng.below(3) == 0 {
                words.extend(["-maxdepth".into(), rng.below(4).to_string()]);
            }
            if rng.below(4) == 0 {
                words.extend(["-mindepth".into(), rng.below(2).to_string()]);
                if let Some(at) = words.iter().position(|w| w == "-maxdepth") {
                    words[at + 1] = "3".into();
                }
            }
            words.extend(expression(&mut rng, &tree.0, 3));
            words.push("-print0".into());
            let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
            assert_equal(&words);
        }
    }
}

#[test]
fn formats_show_what_find_shows() {
    let mut rng = Rng::new(7);
    let tree = Tree::new(&mut rng, "formats");
    let format = "%p|%P|%H|%f|%h|%d|%s|%b|%k|%i|%n|%u|%g|%U|%G|%m|%M|%y|%l|%T@|%-12s|%6s|%06s\\0";
    let words: Vec<OsString> =
        [tree.0.as_os_str(), "-printf".as_ref(), format.as_ref()].map(Into::into).to_vec();
    assert_equal(&words);
}

#[test]
fn trees_deeper_than_a_path_may_be_are_walked() {
    let tree = Tree(std::env::temp_dir().join(format!("stria-find-deep-{}", std::process::id())));
    fs::create_dir_all(&tree.0).expect("a directory");
    let name = "d".repeat(200);
    let mut at =
        rustix::fs::open(&tree.0, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).expect("open");
    for _ in 0..30 {
        rustix::fs::mkdirat(&at, &name, 0o755.into()).expect("mkdir");
        at = rustix::fs::openat(&at, &name, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty())
            .expect("open");
    }
    let words: Vec<OsString> =
        [tree.0.as_os_str(), "-type".as_ref(), "d".as_ref(), "-print0".as_ref()].map(Into::into).to_vec();
    assert_eq!(sorted(&ours(&words)).len(), 31);
}

#[test]
fn an_error_of_the_output_ends_the_walk() {
    let tree = Tree::new(&mut Rng::new(9), "output");
    let query = parse(&[tree.0.clone().into_os_string()]).expect("a path");
    let context = Context { now: SystemTime::now().into(), names: Names::default() };
    let refused = walk(&query, &context, |_| Err(io::ErrorKind::BrokenPipe.into()), |_, _| {});
    assert_eq!(refused.map_err(|e| e.kind()), Err(io::ErrorKind::BrokenPipe));
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_is_found() {
    let tree = Tree::new(&mut Rng::new(11), "missing");
    let words = [tree.0.clone().into_os_string(), tree.0.join("no such entry").into_os_string()];
    let query = parse(&words).expect("paths");
    let context = Context { now: SystemTime::now().into(), names: Names::default() };
    let told = std::sync::Mutex::new(Vec::new());
    let tell = |path: &Path, error: &io::Error| {
        told.lock().expect("no panic").push((path.to_owned(), error.kind()));
    };
    let found = walk(&query, &context, |_| Ok(()), tell).expect("the output takes all");
    assert_eq!(found.errors, 1);
    assert!(found.matches > 20, "{found:?}");
    assert_eq!(
        told.into_inner().expect("no panic"),
        [(tree.0.join("no such entry"), io::ErrorKind::NotFound)]
    );
}
