//! Which versions a read accepts: as few as what was done before allows.

use super::super::*;
use crate::job::Work;

/// The versions that the last phase accepts, or the finding about the plan.
fn accepted(phases: &[&str], environment: &Environment) -> Result<Vec<u64>, String> {
    let step = r#"
name = "versions"
title = "t"
about = "a"
[scales.small]
repeats = [1, 1]
budget-seconds = 60
values = { devices = 2 }
[[steps]]
id = "s"
title = "t"
data = { transfer = "64K", block = "1M", op = "write" }
"#;
    let phases = phases.iter().enumerate();
    let phases: Vec<String> = phases
        .map(|(n, words)| format!("[[steps.phases]]\nname = \"p{n}\"\nworkers = 2\n{words}\n"))
        .collect();
    let plan: Plan = toml::from_str(&(step.to_owned() + &phases.concat())).unwrap();
    let steps = expand(&plan, "small", environment).map_err(|found| found.to_string())?;
    match &steps[0].points[0].phases.last().unwrap().parts.last().unwrap().job.work {
        Work::Data(data) => Ok(data.accept.clone()),
        Work::Names(_) => panic!("the last phase is of data"),
    }
}

const WRITE: &str = "data = {}";
const OVER: &str = "data = { overwrite = true }";
const READ: &str = "data = { op = \"read\" }";
/// Two parts that overwrite all of a file at the same time.
const TWO: &str = r#"together = [{ name = "a", data = { overwrite = true } }, { name = "b", data = { overwrite = true } }]"#;

/// An overwrite of everything that is lost shows: what was there before is not accepted.
#[test]
fn only_what_may_still_be_there_is_accepted() {
    let table: [(&[&str], &[u64]); 13] = [
        (&[WRITE, READ], &[1]),
        (&[WRITE, OVER, READ], &[2]),
        (&[WRITE, OVER, OVER, READ], &[3]),
        (&[WRITE, "data = { overwrite = true, order = \"random\" }", READ], &[2]),
        // Not everything, or not for certain.
        (&[WRITE, "seconds = 1\ndata = { overwrite = true }", READ], &[1, 2]),
        // The cut file is no whole number of larger transfers, so its end keeps the old version.
        (&["seconds = 1\ndata = {}", "data = { overwrite = true, transfer = \"1M\" }", READ], &[1, 2]),
        (&[WRITE, "data = { overwrite = true, ops = 3, order = \"random\" }", READ], &[1, 2]),
        (&[WRITE, "data = { op = \"mixed\", read-percent = 50 }", READ], &[1, 2]),
        // Of the half that was overwritten only the new, of the whole both.
        (&[WRITE, "data = { overwrite = true, block = \"512K\" }", READ], &[1, 2]),
        (
            &[
                WRITE,
                "data = { overwrite = true, block = \"512K\" }",
                "data = { op = \"read\", block = \"512K\" }",
            ],
            &[2],
        ),
        // Of two concurrent writers, either may have been the last, also for a read-back by one of them.
        (&[WRITE, TWO, READ], &[2, 3]),
        (&[WRITE, TWO], &[3, 2]),
        (
            &[
                WRITE,
                r#"together = [{ name = "a", data = { overwrite = true } }, { name = "b", data = { op = "read" } }]"#,
            ],
            &[1, 2],
        ),
    ];
    for (phases, want) in table {
        assert_eq!(accepted(phases, &super::machines()[0]).unwrap(), want, "{phases:?}");
    }
}

#[test]
fn what_a_limit_may_have_left_out_of_a_device_is_not_taken_for_written() {
    let targets = vec!["/dev/a".into(), "/dev/b".into()];
    let given = Environment { targets, target_bytes: 1 << 30, ..super::machines()[0].clone() };
    let fill = r#"data = { files = "given" }"#;
    let cut = "seconds = 1\ndata = { files = \"given\", overwrite = true }";
    let read = r#"data = { files = "given", op = "read" }"#;
    assert_eq!(accepted(&[fill, read], &given).unwrap(), [1]);
    assert_eq!(accepted(&[fill, cut, read], &given).unwrap(), [1, 2]);
    assert_eq!(accepted(&[cut, fill, read], &given).unwrap(), [2]);
    let said = accepted(&[cut, read], &given).unwrap_err();
    assert!(said.contains("reaches to byte 1048576 and 0 are written for certain"), "{said}");
    // Files in place of devices: a first write that is stopped makes them too short.
    let short = "seconds = 1\ndata = { files = \"given\" }";
    let said = accepted(&[short, read], &super::machines()[0]).unwrap_err();
    assert!(said.contains("may have been stopped"), "{said}");
}
