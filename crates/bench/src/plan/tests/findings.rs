//! Each thing that can be wrong with a plan is found, and said with its place and what to do.

use super::super::*;

/// A plan that is in order.
const GOOD: &str = r#"
name = "example"
title = "t"
about = "a"
[scales.small]
repeats = [1, 3]
budget-seconds = 60
values = { threads = [1, 2], total = "8M" }

[[steps]]
id = "files"
title = "t"
needs = ["direct", "uring"]
sweep = { threads = "$threads" }
data = { transfer = "4K", total = "$total", direct = true, depth = 4 }
[[steps.phases]]
name = "write"
data = { op = "write" }
[[steps.phases]]
name = "read"
cold = true
data = { op = "read" }

[[steps]]
id = "names"
title = "t"
names = { items-per-dir = 10, write = 100, read = 100 }
[[steps.phases]]
name = "create"
workers = 2
names = { op = "create" }
[[steps.phases]]
name = "read"
workers = 2
names = { op = "read" }

[[figures]]
id = "figure"
title = "t"
kind = "lines"
x = "threads"
unit = "MB/s"
series = [{ name = "write", step = "files", phase = "write" }]
published = [{ series = "write", x = 1, value = 2.0, where = "there" }]

[[tables]]
id = "table"
title = "t"
kind = "rates"
rows = [{ name = "read", step = "files", phase = "read", at = { threads = 2 }, unit = "MB/s", per = "threads", published = { value = 1.0 } }]
"#;

fn check(text: &str) -> Vec<String> {
    let plan: Plan = toml::from_str(text).unwrap();
    match check::check(&plan, &super::machines()[0]) {
        Ok(()) => Vec::new(),
        Err(findings) => findings.list.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_good_plan_has_none() {
    assert_eq!(check(GOOD), Vec::<String>::new());
}

#[test]
fn each_mistake_is_found() {
    let table = [
        // Text to replace, its replacement, and the expected finding.
        (r#"name = "example""#, r#"name = "An Example""#, "name: 'An Example' does not do"),
        ("[1, 3]", "[3, 1]", "scale small, repeats: from 3 to 1 repeats"),
        ("[1, 3]", "[0, 1]", "scale small, repeats: from 0 to 1 repeats"),
        (r#"id = "names""#, r#"id = "files""#, "step files: there are two of this name"),
        (r#"name = "read""#, r#"name = "write""#, "step files, phase write: there are two of this name"),
        (
            r#"name = "write""#,
            r#"name = "w.x""#,
            "step files, phase w.x, name: its name is empty or has a point",
        ),
        (r#"needs = ["direct", "uring"]"#, "", "step files, phase write, data.direct: it needs direct"),
        (r#"needs = ["direct", "uring"]"#, r#"needs = ["direct"]"#, "data.depth: it needs uring"),
        (
            r#"id = "names""#,
            "id = \"names\"\nscales = [\"large\"]",
            "step names, scales: there is no scale large",
        ),
        (r#""4K", total"#, r#""4000", total"#, "data.transfer: direct I/O and transfers of 4000 bytes"),
        (r#"total = "$total", d"#, r#"block = 5000, d"#, "data.block: transfers of 4096 bytes do not divide"),
        (r#"total = "$total", d"#, "d", "data.block: it does not say how many bytes"),
        (r#"total = "$total", d"#, r#"total = "$all", d"#, "data.total: there is no variable $all"),
        (r#"total = "$total", d"#, r#"footprint = 2.0, total = 8192, d"#, "footprint of 2 is no share"),
        (r#"data = { op = "write" }"#, r#"data = { op = "erase" }"#, "data.op: 'erase' is not known"),
        (r#"data = { op = "write" }"#, r#"data = { op = "mixed" }"#, "data.op: a mix needs its share"),
        (r#"data = { op = "write" }"#, r#"data = { op = "write", order = "b" }"#, "data.order: 'b' is not"),
        (r#"data = { op = "write" }"#, r#"data = { op = "write", engine = "b" }"#, "data.engine: 'b' is not"),
        (r#"data = { op = "write" }"#, r#"data = { op = "write", flush = "b" }"#, "data.flush: 'b' is not"),
        (r#"data = { op = "write" }"#, r#"data = { op = "write", files = "b" }"#, "data.files: 'b' is not"),
        (
            r#"data = { op = "write" }"#,
            r#"data = { op = "write", name = "a/b" }"#,
            "data.name: 'a/b' is no plain",
        ),
        (r#"data = { op = "write" }"#, r#"data = { op = "write", speed = 1 }"#, "unknown field `speed`"),
        (r#"data = { op = "write" }"#, "", "step files, phase write: it must have one work"),
        (
            r#"data = { op = "write" }"#,
            "engine = \"dd\"\ndata = { op = \"write\" }",
            "engine: 'dd' is not known",
        ),
        (
            r#"data = { op = "write" }"#,
            "engine = \"fio\"\ndata = { op = \"write\" }",
            "engine: fio is used and the",
        ),
        (r#"data = { op = "write" }"#, "seconds = 0\ndata = { op = \"write\" }", "seconds: 0 is not above 0"),
        (r#"data = { op = "write" }"#, "workers = 0\ndata = { op = \"write\" }", "workers: no worker would"),
        (
            r#"data = { op = "write" }"#,
            r#"data = { op = "write", name = "b" }"#,
            "no phase of this step wrote",
        ),
        (r#"data = { op = "read" }"#, r#"data = { op = "read", total = "9M" }"#, "reaches to byte"),
        (
            r#"data = { op = "read" }"#,
            "workers = 3\ndata = { op = \"read\" }",
            "uses 3 files and 1 were written",
        ),
        (r#"sweep = { threads = "$threads" }"#, "sweep = { threads = [] }", "sweep.threads: it has no value"),
        (r#"sweep = { threads = "$threads" }"#, "", "is a list and one value is needed"),
        (r#"names = { op = "create" }"#, r#"names = { op = "touch" }"#, "names.op: 'touch' is not known"),
        (
            r#"names = { op = "create" }"#,
            r#"names = { op = "stat" }"#,
            "names.op: no phase of this step made",
        ),
        (
            r#"names = { op = "read" }"#,
            r#"names = { op = "read", read = 101 }"#,
            "reads 101 bytes and 100 were",
        ),
        (
            r#"names = { op = "read" }"#,
            r#"names = { op = "read", items-per-dir = 11 }"#,
            "more items than were made",
        ),
        (r#"names = { op = "read" }"#, r#"names = { op = "create" }"#, "the files are there already"),
        (r#"names = { op = "read" }"#, r#"names = { op = "remove-tree" }"#, "there are items in the tree"),
        (r#"names = { op = "read" }"#, r#"names = { op = "read", depth = 2 }"#, "was made in another shape"),
        (
            r#"x = "threads""#,
            r#"x = "size""#,
            "figure figure, series write, x: step files does not sweep size",
        ),
        (r#"x = "threads""#, "", "figure figure, x: its lines have no x"),
        (
            r#"step = "files", phase = "write""#,
            r#"step = "f", phase = "write""#,
            "series write, step: there is no step f",
        ),
        (r#"step = "files", phase = "write""#, r#"step = "files", phase = "w""#, "step files has no phase w"),
        (
            "at = { threads = 2 }",
            "at = { size = 2 }",
            "table table, row read, at: step files does not sweep size",
        ),
        ("at = { threads = 2 }", "at = { threads = 3 }", "threads of step files is 3 at no scale"),
        (r#"per = "threads""#, r#"per = "drives""#, "per: no scale has a variable drives"),
        (r#"kind = "rates""#, r#"kind = "peak""#, "per: only rates are divided"),
        ("{ value = 1.0 }", "{ best = 1.0 }", "published: 'best' is not known"),
        ("cold = true", "unmeasured = true", "phase read of step files is unmeasured"),
    ];
    for (what, changed, said) in table {
        assert!(GOOD.contains(what), "{what}");
        let found = check(&GOOD.replacen(what, changed, 1));
        assert!(found.iter().any(|line| line.contains(said)), "{what} -> {changed}: {found:#?}");
        assert!(found.iter().all(|line| line.contains("; ")), "no next step: {found:#?}");
    }
}

/// Nothing panics, wraps or is tried for ever; the field is named.
#[test]
fn hostile_values_are_refused_by_their_fields() {
    let huge = u64::MAX;
    let table = [
        (r#""4K", total"#, format!(r#""{huge}", total"#), "data.transfer: 1.8446744073709552e19 is too much"),
        (r#""4K", total"#, r#""7E", total"#.into(), "data.transfer: a transfer of"),
        (r#"total = "$total", d"#, r#"block = "15E", d"#.into(), "data.block: 1.7"),
        (
            r#"total = "$total", d"#,
            r#"block = "7E", d"#.into(),
            "data.block: 1 x 8070450532247928832 bytes of 2",
        ),
        (r#"total = "$total", d"#, r#"segments = "4E", block = "1G", d"#.into(), "data.segments: 4611"),
        (r#"total = "$total", d"#, r#"total = "8E * 8E", d"#.into(), "data.total: 8"),
        ("depth = 4", "depth = 4000000000".into(), "data.depth: a depth of 4000000000"),
        (
            r#"data = { op = "write" }"#,
            format!("workers = {}\ndata = {{ op = \"write\" }}", u32::MAX),
            "workers: 4294967295 workers",
        ),
        (
            "items-per-dir = 10",
            "items-per-dir = 9000000000000000000".into(),
            "names.items-per-dir: 1 directories of 9",
        ),
        (
            "items-per-dir = 10",
            "branch = 4000000000, depth = 200, items-per-dir = 10".into(),
            "names.depth: 18446744073709551615",
        ),
        (
            "items-per-dir = 10",
            "depth = 4294967295, items-per-dir = 10".into(),
            "names.depth: a tree of 4294967295 levels",
        ),
        (
            "items-per-dir = 10",
            "epochs = 4294967295, branch = 4294967295, depth = 1, items-per-dir = 10".into(),
            "names.depth: 4294967296 d",
        ),
        ("write = 100", "write = \"15E\"".into(), "names.write: 1.7"),
        ("write = 100", "write = \"2G\"".into(), "names.write: 2147483648 bytes are more than one call"),
    ];
    for (what, changed, said) in table {
        assert!(GOOD.contains(what), "{what}");
        let found = check(&GOOD.replacen(what, &changed, 1));
        assert!(found.iter().any(|line| line.contains(said)), "{what} -> {changed}: {found:#?}");
    }
}

#[test]
fn ids_of_steps_are_names_of_directories() {
    let long = "x".repeat(65);
    for id in ["", "..", "../../etc", "a/b", "A", "a b", "a\\u0000", long.as_str()] {
        let found = check(&GOOD.replace(r#"id = "names""#, &format!("id = \"{id}\"")));
        assert!(
            found.iter().any(|line| line.contains(", id: ") && line.contains("does not do")),
            "{id}: {found:#?}"
        );
    }
    let good = GOOD.replace(r#"id = "names""#, &format!("id = \"a-1{}\"", "x".repeat(61)));
    assert_eq!(check(&good), Vec::<String>::new());
}

#[test]
fn all_are_found_at_once_and_each_once() {
    let bad =
        GOOD.replace(r#"op = "write""#, r#"op = "erase""#).replace(r#"op = "create""#, r#"op = "touch""#);
    let found = check(&bad.replace("per = \"threads\"", "per = \"drives\""));
    assert_eq!(found.len(), 3, "{found:#?}");
}

#[test]
fn a_plan_of_unknown_words_and_an_unknown_scale_are_refused() {
    assert!(toml::from_str::<Plan>(&GOOD.replace("title", "titel")).is_err());
    let plan: Plan = toml::from_str(GOOD).unwrap();
    let said = expand(&plan, "large", &super::machines()[0]).unwrap_err().to_string();
    assert!(said.contains("there is no scale large; take one that there is (small)"), "{said}");
    let mut environment = super::machines()[0].clone();
    environment.overrides.insert("treads".into(), schema::Quantities::Many(Vec::new()));
    let said = expand(&plan, "small", &environment).unwrap_err().to_string();
    assert!(said.contains("no scale or sweep has a variable treads; take one of: threads, total"), "{said}");
}
