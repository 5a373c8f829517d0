//! `stria gateway … list` and `status`: the entries of the model, and whether the server serves them.

use serde_json::{Value, json};

use super::model::{Entry, Kind, Seen};
use super::places::Places;
use super::{host, mounted};
use crate::exit::Exit;

/// A problem, its reason and the next step.
struct Problem {
    what: String,
    why: String,
    next: String,
}

pub fn list<K: Kind>(kind: Option<&K>, at: &Places, is_json: bool) -> anyhow::Result<Exit> {
    let entries = kind.map(K::entries).unwrap_or_default();
    if is_json {
        let mut value = head(kind, at);
        value[format!("{}s", K::ENTRY)] = serde_json::to_value(&entries)?;
        outln!("{}", serde_json::to_string_pretty(&value)?);
    } else if kind.is_none() {
        outln!("no {} gateway is enabled here", K::NAME.to_uppercase());
    } else {
        out!("{}", table::<K>(&entries, None));
    }
    Ok(Exit::Done)
}

pub fn status<K: Kind>(kind: &K, at: &Places, is_json: bool) -> anyhow::Result<Exit> {
    let mount_state = mounted::state(&kind.mount().point);
    let pid = host::pid(at);
    let (states, problems) = problems(kind, at, mount_state, pid);
    let state = match (pid, problems.is_empty()) {
        (None, _) => "stopped",
        (Some(_), true) => "serving",
        (Some(_), false) => "failing",
    };
    let entries = kind.entries();
    if is_json {
        let mut value = head(Some(kind), at);
        value["state"] = json!(state);
        value["pid"] = json!(pid);
        value["mount_state"] = serde_json::to_value(mount_state)?;
        let lines = entries.iter().zip(&states).map(|(entry, state)| {
            let mut line = serde_json::to_value(entry)?;
            let (served, why) = match state {
                Seen::Served => (Some(true), None),
                Seen::Hidden => (None, None),
                Seen::Not(why) => (Some(false), Some(why)),
            };
            line["served"] = json!(served);
            line["why"] = json!(why);
            Ok(line)
        });
        value[format!("{}s", K::ENTRY)] = Value::Array(lines.collect::<serde_json::Result<_>>()?);
        let told = problems.iter().map(|p| json!({ "what": p.what, "why": p.why, "next": p.next }));
        value["problems"] = told.collect();
        outln!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        let process = pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
        outln!("{} gateway: {state}{process}, port {}", K::NAME.to_uppercase(), kind.server().port);
        let whose = if kind.mount().source.is_some() { ", the gateway's own" } else { "" };
        let how = mounted::trouble(mount_state).unwrap_or("mounted");
        outln!("mount: {}{whose}: {how}", kind.mount().point.display());
        out!("{}", table::<K>(&entries, Some(&states)));
        for p in &problems {
            outln!("PROBLEM: {}: {}; {}", p.what, p.why, p.next);
        }
    }
    Ok(if problems.is_empty() { Exit::Done } else { Exit::Findings })
}

/// The fields of the gateway as a whole.
fn head<K: Kind>(kind: Option<&K>, at: &Places) -> Value {
    let Some(kind) = kind else { return json!({ "gateway": K::NAME, "enabled": false }) };
    json!({
        "gateway": K::NAME,
        "enabled": true,
        "mount": kind.mount().point,
        "source": kind.mount().source,
        "port": kind.server().port,
        "bind": kind.server().bind,
        "config": at.config(),
        "log": at.log(),
    })
}

/// The state of each entry, and all problems, the first cause first.
fn problems<K: Kind>(
    kind: &K,
    at: &Places,
    mount: mounted::State,
    pid: Option<u32>,
) -> (Vec<Seen>, Vec<Problem>) {
    let name = format!("stria gateway {}", K::NAME);
    let mut problems = Vec::new();
    let mut tell = |what: String, why: String, next: String| problems.push(Problem { what, why, next });

    // 1. The mount.
    if let Some(why) = mounted::trouble(mount) {
        let next = mounted::next_step(kind.mount(), mount, K::NAME);
        tell(kind.mount().point.display().to_string(), why.into(), next);
    }
    // 2. The configuration.
    if std::fs::read_to_string(at.config()).is_ok_and(|text| text != kind.config(at)) {
        let why = "it was changed by hand".to_owned();
        tell(
            at.config().display().to_string(),
            why,
            format!("`{name} enable` writes it anew; --include keeps lines of your own"),
        );
    } else if !at.config().exists() {
        tell(
            at.config().display().to_string(),
            "it is missing".into(),
            format!("`{name} enable --now` writes it anew"),
        );
    }
    // 3. The server.
    let entries = kind.entries();
    let Some(pid) = pid else {
        let why = match host::pid_in_file(at) {
            Some(old) => format!("the server does not run: pid {old} is gone"),
            None => "the server does not run".to_owned(),
        };
        let next = format!("`{name} enable --now` starts it; its log is {}", at.log().display());
        tell(K::SERVER.into(), why, next);
        return (vec![Seen::Not("the server does not run".into()); entries.len()], problems);
    };
    if host::holds_an_earlier_mount(pid) {
        let why = "the server holds files of an earlier mount".to_owned();
        tell(K::SERVER.into(), why, format!("`{name} enable --now` starts it anew"));
    }
    // 4. Each entry. Its directory is checked first, since it explains the server's answer.
    if mount != mounted::State::Mounted {
        return (vec![Seen::Not("its mount is not there".to_owned()); entries.len()], problems);
    }
    let look = format!("look at its log, {}; `{name} enable --now` starts it anew", at.log().display());
    let served = kind.served(at).unwrap_or_else(|e| {
        tell(K::SERVER.into(), format!("pid {pid} does not answer: {e}"), look.clone());
        vec![Seen::Not("the server does not answer".into()); entries.len()]
    });
    let state = |(entry, said): (&Entry, Seen)| {
        let what = format!("{} {}", K::ENTRY, entry.name);
        if let Err(mounted::Unfit { why, .. }) = mounted::check(entry, &kind.mount().point) {
            let next = format!("correct the directory, or `{name} disable --{} {}`", K::ENTRY, entry.name);
            problems.push(Problem { what, why: format!("{}: {why}", entry.directory.display()), next });
            return Seen::Not(why);
        }
        if let Seen::Not(why) = &said {
            problems.push(Problem { what, why: why.clone(), next: look.clone() });
        }
        said
    };
    let states = entries.iter().zip(served).map(state).collect();
    (states, problems)
}

/// The table fits a hundred columns, unless names are longer.
fn table<K: Kind>(entries: &[Entry], states: Option<&[Seen]>) -> String {
    let mut rows = vec![vec![
        K::ENTRY.to_uppercase(),
        "DIRECTORY".into(),
        "ACCESS".into(),
        "SQUASH".into(),
        "HOSTS".into(),
    ]];
    rows[0].push(if states.is_some() { "STATE".into() } else { "OPTIONS".into() });
    for (at, entry) in entries.iter().enumerate() {
        let hosts = if entry.hosts.is_empty() { "every host".to_owned() } else { entry.hosts.join(" ") };
        let last = match states.and_then(|s| s.get(at)) {
            Some(Seen::Served) => "served".to_owned(),
            Some(Seen::Hidden) => "hidden here".to_owned(),
            Some(Seen::Not(_)) => "NOT SERVED".to_owned(),
            None => entry.options.join(" "),
        };
        let directory = entry.directory.display().to_string();
        rows.push(vec![
            entry.name.clone(),
            directory,
            entry.access.into(),
            entry.squash.clone(),
            hosts,
            last,
        ]);
    }
    let widths: Vec<usize> =
        (0..rows[0].len()).map(|c| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::model::Nfs;
    use super::super::words;
    use super::*;
    use std::path::Path;

    #[test]
    fn exports_are_shown_in_columns() {
        let point = Path::new("/mnt/s");
        let text = ["/a:ro,hosts=10.0.0.0/8,hosts=*.site,groups=server", "/projects"];
        let nfs = Nfs {
            protocols: vec![3],
            last_id: 0,
            grace_sec: 90,
            mount: super::super::model::Mount { point: point.into(), source: None, options: vec![] },
            server: super::super::model::Server { port: 2049, bind: None, include: None },
            exports: text.iter().map(|t| words::export(t, point).unwrap()).collect(),
        };
        let want = "\
EXPORT     DIRECTORY        ACCESS  SQUASH  HOSTS              OPTIONS
/a         /mnt/s/a         ro      root    10.0.0.0/8 *.site  groups=server
/projects  /mnt/s/projects  rw      root    every host
";
        assert_eq!(table::<Nfs>(&nfs.entries(), None), want);
        let states = [Seen::Served, Seen::Not("why".to_owned())];
        let shown = table::<Nfs>(&nfs.entries(), Some(&states));
        assert!(
            shown.lines().nth(1).unwrap().ends_with("served") && shown.ends_with("NOT SERVED\n"),
            "{shown}"
        );
    }
}
