//! `analytics`: one page that shows what a file system holds, by size, age, owner and kind, and where; the same tables as CSV beside it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use find::{Kind, Names};
use rusqlite::Connection;
use types::size::human;
use types::{Civil, Time};

use crate::db::{Db, State, code};

/// Rows of a list of owners, kinds or directories.
const TOP: usize = 20;
const DAY: i64 = 86_400;
const STYLE: &str = include_str!("analytics.css");

/// One row of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    name: String,
    files: u64,
    bytes: u64,
}

struct Table {
    /// Of its CSV file.
    id: &'static str,
    title: &'static str,
    /// The sentence above the rows.
    says: String,
    first: &'static str,
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    files: u64,
    directories: u64,
    others: u64,
    bytes: u64,
    allocated: u64,
    inline: u64,
    /// Allocated beyond what files hold.
    slack: u64,
    /// Not allocated, though files extend over it.
    holes: u64,
}

/// Writes `index.html` and a CSV file for each table into `out`. False: the index is not complete.
pub fn run(path: &Path, out: &Path) -> Result<bool> {
    let db = Db::open_existing(path)?;
    let _moment = db.connection().unchecked_transaction()?;
    let now = std::time::SystemTime::now().into();
    let totals = totals_of(db.connection())?;
    let mut tables = vec![sizes(db.connection())?, ages(db.connection(), now)?, owners(db.connection())?];
    let (kinds, directories) = by_name_and_place(&db)?;
    tables.extend([kinds, directories, growth(db.connection())?]);
    private_dir(out).with_context(|| out.display().to_string())?;
    for table in &tables {
        let path = out.join(format!("{}.csv", table.id));
        write_private(&path, &csv(table)).with_context(|| path.display().to_string())?;
    }
    let mount = db.text("mount")?.unwrap_or_default();
    let is_complete = db.state()? == State::Following;
    let page = out.join("index.html");
    write_private(&page, &html(&mount, now, is_complete, &totals, &tables))
        .with_context(|| page.display().to_string())?;
    crate::say(page.display())?;
    Ok(is_complete)
}

/// Makes a directory that only its owner reads (index-I5): the page names directories below closed ones. One that is there keeps its mode.
fn private_dir(out: &Path) -> io::Result<()> {
    if let Some(above) = out.parent() {
        fs::create_dir_all(above)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(out) {
        Err(_) if out.is_dir() => Ok(()),
        other => other,
    }
}

/// A file that was opened to others stays open to them when it is written anew.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

fn totals_of(db: &Connection) -> Result<Totals> {
    let sql = "SELECT sum(kind = ?1), sum(kind = ?2), sum(kind NOT IN (?1, ?2)), sum(size) FILTER (WHERE kind = ?1),
        sum(blocks * 512) FILTER (WHERE kind = ?1), sum(inline = 1), sum(max(blocks * 512 - size, 0)) FILTER (WHERE kind = ?1),
        sum(max(size - blocks * 512, 0)) FILTER (WHERE kind = ?1) FROM inodes";
    Ok(db.query_row(sql, [code(Kind::File), code(Kind::Directory)], |row| {
        let number = |n: usize| row.get::<_, Option<i64>>(n).map(|value| value.unwrap_or(0) as u64);
        Ok(Totals {
            files: number(0)?,
            directories: number(1)?,
            others: number(2)?,
            bytes: number(3)?,
            allocated: number(4)?,
            inline: number(5)?,
            slack: number(6)?,
            holes: number(7)?,
        })
    })?)
}

/// Files by bounds of a column: each row has those from one bound on, up to the next.
fn by_bounds(db: &Connection, column: &str, bounds: &[(i64, &str)]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (n, (from, name)) in bounds.iter().enumerate() {
        let below = bounds.get(n + 1).map_or(i64::MAX, |(next, _)| *next);
        let sql = format!(
            "SELECT count(*), coalesce(sum(size), 0) FROM inodes WHERE kind = ?1 AND {column} >= ?2 AND {column} < ?3"
        );
        let row = db.query_row(&sql, [code(Kind::File), *from, below], |row| {
            Ok(Row {
                name: (*name).into(),
                files: row.get::<_, i64>(0)? as u64,
                bytes: row.get::<_, i64>(1)? as u64,
            })
        })?;
        rows.push(row);
    }
    Ok(rows)
}

fn sizes(db: &Connection) -> Result<Table> {
    let bounds = [
        (0, "empty"),
        (1, "below 4 KiB"),
        (4 << 10, "4 to 64 KiB"),
        (64 << 10, "64 KiB to 1 MiB"),
        (1 << 20, "1 to 16 MiB"),
        (16 << 20, "16 to 256 MiB"),
        (256 << 20, "256 MiB to 4 GiB"),
        (4 << 30, "4 to 64 GiB"),
        (64 << 30, "64 GiB and above"),
    ];
    let rows = by_bounds(db, "size", &bounds)?;
    let files: u64 = rows.iter().map(|row| row.files).sum();
    let small: u64 = rows[..4].iter().map(|row| row.files).sum();
    let bytes: u64 = rows.iter().map(|row| row.bytes).sum();
    let of_small: u64 = rows[..4].iter().map(|row| row.bytes).sum();
    let says = format!(
        "{} of the files are below 1 MiB, and hold {} of the bytes.",
        percent(small, files),
        percent(of_small, bytes)
    );
    Ok(Table { id: "sizes", title: "Sizes", says, first: "size", rows })
}

fn ages(db: &Connection, now: Time) -> Result<Table> {
    let at = |days: i64| (now.sec - days * DAY).saturating_mul(1_000_000_000);
    // From the oldest on, as times are; shown from the newest on.
    let bounds = [
        (i64::MIN, "two years and more"),
        (at(730), "one to two years"),
        (at(365), "90 to 365 days"),
        (at(90), "30 to 90 days"),
        (at(30), "7 to 30 days"),
        (at(7), "1 to 7 days"),
        (at(1), "the last day"),
    ];
    let mut rows = by_bounds(db, "mtime", &bounds)?;
    let bytes: u64 = rows.iter().map(|row| row.bytes).sum();
    let old = rows[0].bytes + rows[1].bytes;
    rows.reverse();
    let says = format!("{} of the bytes did not change for a year.", percent(old, bytes));
    Ok(Table { id: "ages", title: "Last change of the content", says, first: "age", rows })
}

fn owners(db: &Connection) -> Result<Table> {
    let names = Names::default();
    let sql =
        "SELECT uid, count(*), sum(size) FROM inodes WHERE kind = ?1 GROUP BY uid ORDER BY 3 DESC, 2 DESC";
    let mut found = db.prepare(sql)?;
    let rows = found.query_map([code(Kind::File)], |row| {
        let uid: u32 = row.get(0)?;
        let name = names.user(uid).unwrap_or_else(|| uid.to_string());
        Ok(Row { name, files: row.get::<_, i64>(1)? as u64, bytes: row.get::<_, i64>(2)? as u64 })
    })?;
    let rows: Vec<Row> = rows.collect::<rusqlite::Result<_>>()?;
    let bytes = rows.iter().map(|row| row.bytes).sum();
    let says = match rows.first() {
        Some(first) => {
            format!(
                "Of {} owners, {} has {} of the bytes.",
                rows.len(),
                first.name,
                percent(first.bytes, bytes)
            )
        }
        None => "There are no files.".into(),
    };
    Ok(Table { id: "owners", title: "Owners", says, first: "user", rows: top(rows) })
}

/// The largest ones, and all others as one row.
fn top(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by(|a, b| (b.bytes, b.files, &a.name).cmp(&(a.bytes, a.files, &b.name)));
    if rows.len() > TOP {
        let rest = rows.split_off(TOP);
        rows.push(Row {
            name: format!("{} others", rest.len()),
            files: rest.iter().map(|row| row.files).sum(),
            bytes: rest.iter().map(|row| row.bytes).sum(),
        });
    }
    rows
}

/// The text behind the last dot of a name, in small letters.
fn ending(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    match text.rsplit_once('.') {
        Some((before, after)) if !before.is_empty() && (1..=12).contains(&after.chars().count()) => {
            format!(".{}", after.to_lowercase())
        }
        _ => "(none)".into(),
    }
}

fn by_name_and_place(db: &Db) -> Result<(Table, Table)> {
    let (mut kinds, mut own): (HashMap<String, Row>, HashMap<u64, Row>) = Default::default();
    // A file with several names counts once, where its first is.
    let sql = "SELECT e.parent, e.name, i.size FROM entries e JOIN inodes i ON i.ino = e.ino
        WHERE i.kind = ?1 AND (i.nlink = 1 OR e.id = (SELECT min(id) FROM entries WHERE ino = e.ino))";
    let mut found = db.connection().prepare(sql)?;
    let mut rows = found.query([code(Kind::File)])?;
    while let Some(row) = rows.next()? {
        let (parent, name, size) =
            (row.get::<_, i64>(0)? as u64, row.get::<_, Vec<u8>>(1)?, row.get::<_, i64>(2)? as u64);
        let kind = ending(&name);
        let kind = kinds.entry(kind.clone()).or_insert_with(|| Row { name: kind, ..Row::default() });
        for row in [kind, own.entry(parent).or_default()] {
            row.files += 1;
            row.bytes += size;
        }
    }
    let kinds: Vec<Row> = kinds.into_values().collect();
    let says = format!("{} endings of names.", kinds.len());
    let kinds = Table {
        id: "types",
        title: "Kinds of files, by the ending of the name",
        says,
        first: "ending",
        rows: top(kinds),
    };
    Ok((kinds, directories(db, own)?))
}

/// Directories with all that is below them.
fn directories(db: &Db, own: HashMap<u64, Row>) -> Result<Table> {
    let root = db.root()?;
    let mut above: HashMap<u64, (u64, Vec<u8>)> = HashMap::new();
    let sql =
        "SELECT e.ino, e.parent, e.name FROM entries e JOIN inodes i ON i.ino = e.ino WHERE i.kind = ?1";
    let mut found = db.connection().prepare(sql)?;
    let mut rows = found.query([code(Kind::Directory)])?;
    while let Some(row) = rows.next()? {
        above.insert(row.get::<_, i64>(0)? as u64, (row.get::<_, i64>(1)? as u64, row.get(2)?));
    }
    // From each directory up to the root. Deeper ones than this are in a loop that a change has not closed yet.
    let way = |ino: u64| {
        let next = |at: &u64| (*at != root).then(|| above.get(at).map(|(parent, _)| *parent)).flatten();
        std::iter::successors(Some(ino), next).take(4096)
    };
    let mut all: HashMap<u64, Row> = HashMap::new();
    for (ino, row) in &own {
        for at in way(*ino) {
            let sum = all.entry(at).or_default();
            sum.files += row.files;
            sum.bytes += row.bytes;
        }
    }
    all.remove(&root);
    let name = |ino: u64| {
        let mut names: Vec<String> = way(ino)
            .filter_map(|at| above.get(&at).map(|(_, name)| String::from_utf8_lossy(name).into_owned()))
            .collect();
        names.reverse();
        format!("/{}", names.join("/"))
    };
    let mut rows: Vec<(u64, Row)> = all.into_iter().collect();
    rows.sort_by_key(|(ino, row)| (std::cmp::Reverse((row.bytes, row.files)), *ino));
    rows.truncate(TOP);
    let rows = rows.into_iter().map(|(ino, row)| Row { name: name(ino), ..row }).collect();
    let says =
        "With all that is below them, so a directory is in the row of the one that holds it, too.".into();
    Ok(Table { id: "directories", title: "Largest directories", says, first: "directory", rows })
}

fn growth(db: &Connection) -> Result<Table> {
    let mut found = db.prepare("SELECT day, files, bytes FROM history ORDER BY day DESC LIMIT 31")?;
    let rows = found.query_map([], |row| {
        let Civil { year, month, day, .. } = Civil::of(row.get::<_, i64>(0)? * DAY);
        let name = format!("{year:04}-{month:02}-{day:02}");
        Ok(Row { name, files: row.get::<_, i64>(1)? as u64, bytes: row.get::<_, i64>(2)? as u64 })
    })?;
    let mut rows: Vec<Row> = rows.collect::<rusqlite::Result<_>>()?;
    rows.reverse();
    let says = match (rows.first(), rows.last()) {
        (Some(first), Some(last)) if first != last => {
            let (sign, by) = match last.bytes >= first.bytes {
                true => ("more", last.bytes - first.bytes),
                false => ("less", first.bytes - last.bytes),
            };
            format!("{} {sign} than on {}.", human(by), first.name)
        }
        _ => "The index notes the sums once a day. From the second day on this shows the growth.".into(),
    };
    Ok(Table { id: "growth", title: "Growth", says, first: "day (UTC)", rows })
}

fn percent(part: u64, all: u64) -> String {
    match all {
        0 => "0 %".into(),
        _ => format!("{:.0} %", part as f64 * 100.0 / all as f64),
    }
}

fn csv(table: &Table) -> String {
    let mut text = format!("{},files,bytes\n", table.first);
    for row in &table.rows {
        let _ = writeln!(text, "\"{}\",{},{}", row.name.replace('"', "\"\""), row.files, row.bytes);
    }
    text
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

fn html(mount: &str, now: Time, is_complete: bool, totals: &Totals, tables: &[Table]) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>What {0} holds</title><style>{STYLE}</style></head><body><h1>What {0} holds</h1>",
        escaped(mount)
    );
    let incomplete = if is_complete { "" } else { " The index is being made, so files are missing." };
    let _ =
        write!(page, "<p class=\"when\">{} UTC.{incomplete}</p><div class=\"cards\">", Civil::of(now.sec));
    let average = totals.bytes.checked_div(totals.files).unwrap_or(0);
    for (name, value, more) in [
        ("Files", totals.files.to_string(), format!("{} on average", human(average))),
        ("Directories", totals.directories.to_string(), format!("{} symlinks and others", totals.others)),
        ("Content", human(totals.bytes), format!("{} allocated", human(totals.allocated))),
        (
            "Waste",
            human(totals.slack),
            format!("allocated beyond the content; {} of holes", human(totals.holes)),
        ),
        (
            "In the MDT",
            totals.inline.to_string(),
            format!("{} of the files", percent(totals.inline, totals.files)),
        ),
    ] {
        let _ = write!(page, "<div class=\"card\"><b>{name}</b><span>{value}</span><i>{more}</i></div>");
    }
    page += "</div><main>";
    for table in tables {
        add_table(&mut page, table);
    }
    page += "</main></body></html>\n";
    page
}

fn add_table(page: &mut String, table: &Table) {
    let most = |of: fn(&Row) -> u64| table.rows.iter().map(of).max().unwrap_or(0).max(1);
    let (bytes, files) = (most(|row| row.bytes), most(|row| row.files));
    let _ = write!(
        page,
        "<section id=\"{0}\"><h2>{1}</h2><p>{2} <a href=\"{0}.csv\">CSV</a></p><table><thead><tr><th>{3}</th>\
         <th colspan=\"2\">content</th><th colspan=\"2\">files</th></tr></thead><tbody>",
        table.id,
        table.title,
        escaped(&table.says),
        table.first
    );
    for row in &table.rows {
        let bar = |part: u64, of: u64, class: &str| {
            if part == 0 {
                return "<td></td>".to_owned();
            }
            format!(
                "<td class=\"bar\"><div class=\"{class}\" style=\"width:{:.1}%\"></div></td>",
                part as f64 * 100.0 / of as f64
            )
        };
        let _ = write!(
            page,
            "<tr><th>{}</th><td>{}</td>{}<td>{}</td>{}</tr>",
            escaped(&row.name),
            human(row.bytes),
            bar(row.bytes, bytes, "bytes"),
            row.files,
            bar(row.files, files, "files")
        );
    }
    *page += "</tbody></table></section>";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_owner_reads_a_page_until_it_is_opened_to_others() {
        use std::os::unix::fs::PermissionsExt;
        let above = std::env::temp_dir().join(format!("stria-analytics-{}", std::process::id()));
        let (dir, file) = (above.join("page"), above.join("page/index.html"));
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        private_dir(&dir).expect("made");
        write_private(&file, "a").expect("written");
        assert_eq!((mode(&dir), mode(&file)), (0o700, 0o600));
        for (path, open) in [(&dir, 0o755), (&file, 0o644)] {
            fs::set_permissions(path, fs::Permissions::from_mode(open)).expect("opened");
        }
        private_dir(&dir).expect("it is there");
        write_private(&file, "b").expect("written anew");
        assert_eq!((mode(&dir), mode(&file)), (0o755, 0o644));
        fs::remove_dir_all(&above).expect("removed");
    }

    #[test]
    fn names_end_behind_their_last_dot() {
        for (name, want) in [
            ("a.H5", ".h5"),
            (".hidden", "(none)"),
            ("a.tar.gz", ".gz"),
            ("plain", "(none)"),
            ("a.", "(none)"),
            ("a.much-too-long-for-one", "(none)"),
        ] {
            assert_eq!(ending(name.as_bytes()), want, "{name}");
        }
    }

    #[test]
    fn the_largest_stand_first_and_the_rest_in_one_row() {
        let row = |n: u64| Row { name: n.to_string(), files: 1, bytes: n };
        let rows = top((0..30).map(row).collect());
        assert_eq!((rows.len(), rows[0].bytes), (TOP + 1, 29));
        assert_eq!(rows[TOP], Row { name: "10 others".into(), files: 10, bytes: (0..10).sum() });
    }

    #[test]
    fn names_of_files_cannot_write_the_page_or_a_column() {
        assert_eq!(escaped("<b>&\"\n"), "&lt;b&gt;&amp;&quot;\\n");
        let rows = vec![Row { name: "a\",b".into(), files: 1, bytes: 2 }];
        let table = Table { id: "x", title: "X", says: String::new(), first: "name", rows };
        assert_eq!(csv(&table), "name,files,bytes\n\"a\"\",b\",1,2\n");
    }
}
