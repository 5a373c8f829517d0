//! Searches in the index. SQL narrows the candidates where it can; the tests themselves are those of the walk, so results are equal.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use find::{Context, Expr, Kind, Measure, Names, Part, Perm, Query, Stat, Striping, Subject, Test, Which};
use rusqlite::types::Value;
use types::Time;

use crate::Unusable;
use crate::change::Place;
use crate::db::{COLUMNS, Db, Inode, State, code, inode_of, nanos};

/// Shorter texts are in no trigram.
const TRIGRAM: usize = 3;

/// Prints what is found. False: the index is not complete.
pub fn run(path: &Path, words: &[std::ffi::OsString], json: bool) -> Result<bool> {
    let mut query = find::parse(words)
        .map_err(|why| Unusable(format!("find: {why}; `stria find --help` has all tests")))?;
    if json {
        query.show = find::Show::json();
    }
    if io::stdout().is_terminal() {
        query.show = query.show.for_terminal();
    }
    let db = Db::open_existing(path)?;
    // One moment of the index, however much is written meanwhile.
    let _moment = db.connection().unchecked_transaction()?;
    let is_complete = db.state()? == State::Following;
    if !is_complete {
        eprintln!(
            "stria: the index is being made, so files are missing; `stria index status` shows how far it is"
        );
    }
    if let Some(warning) = db.old(crate::follow::now_sec())? {
        eprintln!("stria: {warning}");
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let context = Context { now: SystemTime::now().into(), names: Names::default() };
    let mut is_good = is_complete;
    for start in &query.paths {
        match search(&db, &query, &context, start, &mut out) {
            Ok(()) => {}
            Err(error) if is_broken_pipe(&error) => return Ok(false),
            Err(error) if query.paths.len() > 1 => {
                eprintln!("stria: {error:#}");
                is_good = false;
            }
            Err(error) => return Err(error),
        }
    }
    match out.flush() {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| is_good).map_err(Into::into),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// A row of the index as the tests see it.
struct Hit<'a> {
    db: &'a Db,
    path: Vec<u8>,
    name: Vec<u8>,
    start_len: usize,
    depth: usize,
    parent: u64,
    inode: Inode,
}

impl Subject for Hit<'_> {
    fn path(&self) -> &[u8] {
        &self.path
    }
    fn name(&self) -> &[u8] {
        &self.name
    }
    fn start_len(&self) -> usize {
        self.start_len
    }
    fn parent(&self) -> u64 {
        self.parent
    }
    fn depth(&self) -> usize {
        self.depth
    }
    fn kind(&self) -> io::Result<Kind> {
        Ok(self.inode.kind)
    }
    fn stat(&self) -> io::Result<Stat> {
        Ok(self.inode.stat)
    }

    fn striping(&self) -> io::Result<Option<Striping>> {
        Ok(self.inode.striping.as_ref().map(|of| Striping {
            fid: String::new(),
            is_dir: false,
            inline_max: 0,
            osts: of.count,
            set: None,
            generation: (!of.is_inline).then_some(0),
            components: vec![Part {
                start: 0,
                end: None,
                stripe_count: of.count as i32,
                stripe_size: of.size,
                stripe_index: of.first,
                objects: of.osts.iter().map(|ost| (Some(*ost), String::new(), true)).collect(),
            }],
        }))
    }

    fn is_empty_directory(&self) -> io::Result<bool> {
        let sql = "SELECT 1 FROM entries WHERE parent = ?1 LIMIT 1";
        let mut found = self.db.connection().prepare_cached(sql).map_err(io::Error::other)?;
        found.exists([self.inode.stat.ino as i64]).map(|exists| !exists).map_err(io::Error::other)
    }

    fn target(&self) -> io::Result<Vec<u8>> {
        std::fs::read_link(OsStr::from_bytes(&self.path)).map(|to| to.as_os_str().as_bytes().to_vec())
    }
}

/// The directories at and below a start: how their paths are shown, and how deep they are. None: it is elsewhere.
struct Below<'a> {
    db: &'a Db,
    root: u64,
    known: HashMap<u64, Option<(Vec<u8>, usize)>>,
}

impl Below<'_> {
    fn directory(&mut self, ino: u64) -> Result<Option<(Vec<u8>, usize)>> {
        let (mut way, mut at) = (Vec::new(), ino);
        let mut found = loop {
            if let Some(known) = self.known.get(&at) {
                break known.clone();
            }
            let above = if at == self.root { None } else { self.db.places_of(at)?.into_iter().next() };
            match above {
                Some(place) if way.len() <= 4096 => {
                    way.push((at, place.name));
                    at = place.parent;
                }
                _ => break None,
            }
        };
        for (ino, name) in way.into_iter().rev() {
            found = found.map(|(path, depth)| (joined(&path, &name), depth + 1));
            self.known.insert(ino, found.clone());
        }
        Ok(found)
    }
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.last() == Some(&b'/') { b"" } else { b"/" };
    [directory, slash, name].concat()
}

fn search(db: &Db, query: &Query, context: &Context, start: &OsStr, out: &mut impl Write) -> Result<()> {
    let (root, shown) = (db.root()?, start.as_bytes());
    let ino = start_of(db, root, Path::new(start))?;
    let mut below = Below { db, root, known: HashMap::from([(ino, Some((shown.to_vec(), 0)))]) };
    let mut piece = Vec::new();
    let mut test = |hit: &Hit<'_>| -> Result<()> {
        if hit.depth >= query.depth_min && hit.depth <= query.depth_max && query.expr.holds(hit, context)? {
            query.show.add(&mut piece, hit, context)?;
            out.write_all(&piece)?;
            piece.clear();
        }
        Ok(())
    };
    let sql = format!("SELECT {COLUMNS} FROM inodes i WHERE i.ino = ?1");
    let inode = db.connection().query_row(&sql, [ino as i64], |row| inode_of(row, 0)).context("the start")?;
    let name = Path::new(start).file_name().unwrap_or(start).as_bytes().to_vec();
    test(&Hit { db, path: shown.to_vec(), name, start_len: shown.len(), depth: 0, parent: 0, inode })?;
    let (condition, values) = narrow(&query.expr, context.now).unwrap_or(("1".into(), Vec::new()));
    let sql = format!(
        "SELECT e.parent, e.name, {COLUMNS} FROM entries e JOIN inodes i ON i.ino = e.ino WHERE {condition}"
    );
    let mut found = db.connection().prepare(&sql)?;
    let mut rows = found.query(rusqlite::params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        let parent = row.get::<_, i64>(0)? as u64;
        let Some((directory, depth)) = below.directory(parent)? else { continue };
        let name: Vec<u8> = row.get(1)?;
        let (path, depth, inode) = (joined(&directory, &name), depth + 1, inode_of(row, 2)?);
        test(&Hit { db, path, name, start_len: shown.len(), depth, parent, inode })?;
    }
    Ok(())
}

/// The directory or file in the index at which a path begins.
fn start_of(db: &Db, root: u64, path: &Path) -> Result<u64> {
    let mount = PathBuf::from(db.text("mount")?.context("the index has no mount")?);
    // A symlink that is given as a start is itself the start, as in a walk.
    let absolute = std::path::absolute(path)?;
    let real = match (absolute.parent().map(std::fs::canonicalize), absolute.file_name()) {
        (Some(Ok(above)), Some(name)) => above.join(name),
        _ => std::fs::canonicalize(&absolute).unwrap_or(absolute),
    };
    let not_below = || {
        Unusable(format!(
            "{}: it is not below {}, which is indexed; give a path there, or search without -db",
            path.display(),
            mount.display()
        ))
    };
    let below = real.strip_prefix(&mount).map_err(|_| not_below())?;
    let mut at = root;
    for name in below.iter() {
        let place = Place { parent: at, name: name.as_bytes().to_vec() };
        at = db.at(&place)?.with_context(|| {
            format!("{}: the index has no such file; it may be a few seconds behind", path.display())
        })?;
    }
    Ok(at)
}

type Condition = (String, Vec<Value>);

/// A condition that holds for every row for which the tests hold. None: there is none that narrows.
fn narrow(expr: &Expr, now: Time) -> Option<Condition> {
    match expr {
        Expr::Test(test) => of_test(test, now),
        Expr::Not(_) => None,
        Expr::And(all) => joined_by(" AND ", all.iter().filter_map(|one| narrow(one, now)).collect()),
        Expr::Or(any) => {
            joined_by(" OR ", any.iter().map(|one| narrow(one, now)).collect::<Option<Vec<_>>>()?)
        }
    }
}

fn joined_by(word: &str, all: Vec<Condition>) -> Option<Condition> {
    if all.is_empty() {
        return None;
    }
    let (texts, values): (Vec<String>, Vec<Vec<Value>>) = all.into_iter().unzip();
    Some((format!("({})", texts.join(word)), values.concat()))
}

fn of_test(test: &Test, now: Time) -> Option<Condition> {
    match test {
        Test::False => Some(("0".into(), Vec::new())),
        Test::Kinds(kinds) => {
            let codes: Vec<String> = kinds.iter().map(|kind| code(*kind).to_string()).collect();
            Some((format!("i.kind IN ({})", codes.join(",")), Vec::new()))
        }
        Test::Name(glob) => {
            let literal = glob.literal();
            (literal.chars().count() >= TRIGRAM).then(|| {
                let phrase = format!("\"{}\"", literal.replace('"', "\"\""));
                ("e.id IN (SELECT rowid FROM names WHERE names MATCH ?)".into(), vec![Value::Text(phrase)])
            })
        }
        Test::Size(measure) => between("i.size", measure.bounds()),
        Test::Blocks(measure) => between("i.blocks * 512", measure.bounds()),
        Test::Links(measure) => between("i.nlink", measure.bounds()),
        Test::Perm(Perm::Exactly(mode)) => plain(format!("i.mode = {mode}")),
        Test::Perm(Perm::All(mode)) => plain(format!("i.mode & {mode} = {mode}")),
        Test::Perm(Perm::Any(mode)) if *mode != 0 => plain(format!("i.mode & {mode} <> 0")),
        Test::Empty => {
            let (file, directory) = (code(Kind::File), code(Kind::Directory));
            plain(format!("(i.kind = {file} AND i.size = 0 OR i.kind = {directory})"))
        }
        Test::StripeCount(measure) => between("i.stripes", measure.bounds()),
        Test::StripeSize(measure) => between("i.stripe_size", measure.bounds()),
        Test::Inline => plain("i.inline = 1".into()),
        Test::Uid(measure) => between("i.uid", measure.bounds()),
        Test::Gid(measure) => between("i.gid", measure.bounds()),
        Test::Inode(measure) => between("i.ino", measure.bounds()),
        Test::Age(which, measure) => between(column(*which), times(measure, now)),
        Test::Newer(which, than) => Some((format!("{} > {}", column(*which), nanos(*than)), Vec::new())),
        _ => None,
    }
}

/// Ages as times: the older, the earlier.
fn times(measure: &Measure, now: Time) -> (Option<i128>, Option<i128>) {
    let (youngest, oldest) = measure.bounds();
    let before = |age: i128| i128::from(nanos(now)) - age;
    (oldest.map(before), youngest.map(before))
}

fn column(which: Which) -> &'static str {
    match which {
        Which::Access => "i.atime",
        Which::Change => "i.ctime",
        Which::Content => "i.mtime",
        Which::Birth => "i.btime",
    }
}

fn plain(text: String) -> Option<Condition> {
    Some((text, Vec::new()))
}

fn between(column: &str, (least, greatest): (Option<i128>, Option<i128>)) -> Option<Condition> {
    let within = |n: i128| n.clamp(i64::MIN.into(), i64::MAX.into());
    let least = least.map(|least| format!("{column} >= {}", within(least)));
    let greatest = greatest.map(|greatest| format!("{column} <= {}", within(greatest)));
    let all: Vec<String> = least.into_iter().chain(greatest).collect();
    (!all.is_empty()).then(|| (all.join(" AND "), Vec::new()))
}
