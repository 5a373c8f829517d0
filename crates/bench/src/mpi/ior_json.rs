//! `-O summaryFormat=JSON`: the JSON that IOR 4 prints in place of its table, with the names that scripts read. Fields that only
//! MPI-IO or refused options would change have IOR's defaults.

use serde_json::{Map, Value, json};

use super::ior::{Ior, Rows, mib};
use super::table::{Moment, Spread, file_system};
use crate::record::Outcome;

/// The whole text.
pub fn text(ior: &Ior, rows: &Rows, command: &str, begun: &str) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let number = u8::from;
    let parameters = json!({
        "testID": 0, "refnum": ior.reference, "api": "POSIX", "platform": format!("{host}(Linux)"),
        "testFileName": ior.path, "deadlineForStonewall": ior.deadline.unwrap_or(0), "stoneWallingWearOut": 0,
        "maxTimeDuration": ior.minutes, "nodes": 1, "tasksPerNode": ior.tasks, "repetitions": ior.repeats,
        "multiFile": number(ior.many_files), "interTestDelay": ior.delay,
        "fsync": number(ior.flush == crate::job::Flush::End), "fsyncperwrite": number(ior.flush == crate::job::Flush::Each),
        "useExistingTestFile": number(ior.existing), "uniqueDir": 0, "singleXferAttempt": 0, "readFile": number(ior.read),
        "writeFile": number(ior.write), "filePerProc": number(ior.own_files), "reorderTasks": number(ior.reorder),
        "reorderTasksRandom": 0, "reorderTasksRandomSeed": 0, "randomOffset": number(ior.random),
        "checkWrite": number(ior.check_write), "checkRead": number(ior.check_read), "keepFile": number(ior.keep),
        "verbose": ior.verbose, "collective": 0, "segmentCount": ior.segments, "transferSize": ior.transfer,
        "blockSize": ior.block,
    });
    let options: Map<String, Value> =
        ior.options().into_iter().map(|(name, value)| (name.to_owned(), plain(value))).collect();
    let said = file_system(&ior.path);
    let mut fs = said.split("   ").map(|part| part.rsplit(": ").next().unwrap_or_default());
    let fs = [(); 4].map(|()| fs.next());
    let test = json!({
        "TestID": 0, "StartTime": begun, "Path": ior.path, "Capacity": fs[0], "Used Capacity": fs[1],
        "Inodes": fs[2], "Used Inodes": fs[3],
        "Parameters": parameters, "Options": options, "Results": results(ior, rows),
    });
    let summary: Vec<Value> = [("write", &rows.write), ("read", &rows.read)]
        .into_iter()
        .filter(|(_, outcomes)| !outcomes.is_empty())
        .map(|(access, outcomes)| of_access(ior, access, outcomes))
        .collect();
    let whole = json!({
        "Version": concat!("stria ", env!("CARGO_PKG_VERSION")), "Began": begun, "Command line": command,
        "Machine": format!("Linux {host}"), "tests": [test], "summary": summary, "Finished": Moment::now().long(),
    });
    serde_json::to_string_pretty(&whole).expect("numbers, strings and lists")
}

/// Numbers as numbers.
fn plain(text: String) -> Value {
    text.parse::<u64>().map_or_else(|_| text.clone().into(), Value::from)
}

/// In the order in which they were measured: write and read of each repetition.
fn results(ior: &Ior, rows: &Rows) -> Vec<Value> {
    let most = rows.write.len().max(rows.read.len());
    let of = |access: &str, outcome: Option<&Outcome>| {
        let outcome = outcome?;
        let [rate, iops, latency, block, transfer, open, moved, close, total] = ior.cells(outcome);
        Some(json!({
            "access": access, "bwMiB": rate, "blockKiB": block, "xferKiB": transfer, "iops": iops, "latency": latency,
            "openTime": open, "wrRdTime": moved, "closeTime": close, "totalTime": total,
        }))
    };
    (0..most).flat_map(|n| [of("write", rows.write.get(n)), of("read", rows.read.get(n))]).flatten().collect()
}

fn of_access(ior: &Ior, access: &str, outcomes: &[Outcome]) -> Value {
    let spread = |of: fn(&Outcome) -> f64| {
        Spread::of(&outcomes.iter().map(|o| of(o) / o.seconds.max(1e-9)).collect::<Vec<_>>())
    };
    let (moved, ops) = (spread(|o| mib(o.bytes)), spread(|o| o.ops as f64));
    json!({
        "operation": access, "API": "POSIX", "TestID": 0, "ReferenceNumber": ior.reference,
        "segmentCount": ior.segments, "blockSize": ior.block, "transferSize": ior.transfer, "numTasks": ior.tasks,
        "tasksPerNode": ior.tasks, "repetitions": ior.repeats, "filePerProc": u8::from(ior.own_files),
        "reorderTasks": u8::from(ior.reorder), "taskPerNodeOffset": ior.offset, "reorderTasksRandom": 0,
        "reorderTasksRandomSeed": 0, "bwMaxMIB": moved.max, "bwMinMIB": moved.min, "bwMeanMIB": moved.mean,
        "bwStdMIB": moved.deviation, "OPsMax": ops.max, "OPsMin": ops.min, "OPsMean": ops.mean, "OPsSD": ops.deviation,
        "MeanTime": outcomes.iter().map(|o| o.seconds).sum::<f64>() / outcomes.len() as f64,
        "xsizeMiB": mib(outcomes[0].bytes),
    })
}
