//! `stria list-param`, `get-param`, `set-param`: parameters of running targets and of mounts, live or kept in the cluster map.

mod at_mount;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use mgmt::params::{Def, PARAMS, Param, Scope, client_name, names};
use mgmt::target_name;
use serde::Serialize;
use types::TargetId;
use wire::map::{KeptParam, Target};
use wire::mgmt::ChangeParams;
use wire::params::{LiveParam, ParamLine, ParamList, ParamListReply, ParamSet};

use crate::cmd::manage::Place;
use crate::exit::{Exit, Failure};
use crate::mounts;
use crate::reach::{self, Management, Reach, Service};
use at_mount::AtMount;

/// Longest wait for targets to take a kept value, and time between two looks.
const TAKES_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EACH: Duration = Duration::from_millis(100);

/// Which cluster. Nothing: that of a mount on this host.
#[derive(Debug, Args)]
pub(super) struct On {
    /// The directory of a running `stria up`.
    #[arg(long, conflicts_with_all = ["mgs", "mount"])]
    dir: Option<PathBuf>,
    /// The management service: NID[,NID...].
    #[arg(long, value_name = "NID", value_parser = Service::parse, conflicts_with = "mount")]
    mgs: Option<Service>,
    /// A path on a mount. Without any of these: the mount on this host.
    #[arg(long, value_name = "PATH")]
    mount: Option<PathBuf>,
}

impl On {
    pub fn manage(self) -> anyhow::Result<Management> {
        Ok(self.manage_with_mount()?.0)
    }

    /// Also the mount by which the cluster is known.
    fn manage_with_mount(self) -> anyhow::Result<(Management, Option<AtMount>)> {
        let mount = match (&self.dir, &self.mgs, self.mount) {
            (None, None, None) => Some(only_mount()?),
            (.., mount) => mount,
        };
        let at = mount.as_deref().map(reach::mount_of).transpose()?.map(AtMount::new);
        Ok((Place::of(self.dir, self.mgs, mount).manage()?, at))
    }
}

/// The mount of a host that has mounts of one cluster only.
pub(super) fn only_mount() -> anyhow::Result<PathBuf> {
    match one_of_each(mounts::ours()).as_slice() {
        [only] => Ok(only.point.clone()),
        [] => {
            let why = "no file system of Stria is mounted here, so the cluster is not known";
            Err(Failure::unusable("the cluster", why, "give --mgs, --dir or --mount").into())
        }
        several => {
            let why = format!("{} file systems are mounted here", several.len());
            Err(Failure::unusable("the cluster", why, "name one: --mount PATH").into())
        }
    }
}

/// One mount of each file system, in the order of their sources.
fn one_of_each(mut all: Vec<mounts::Mount>) -> Vec<mounts::Mount> {
    all.sort_by(|a, b| a.source.cmp(&b.source));
    all.dedup_by(|a, b| a.source == b.source);
    all
}

/// List the parameters of targets and mounts: their names, values that can be set, and meanings.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria list-param 'resync.*'")]
pub struct ListParam {
    /// Names, in which * stands for any characters; without one all.
    #[arg(value_name = "NAME")]
    patterns: Vec<String>,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

/// Show values of parameters at running targets and mounts, one TARGET.NAME=VALUE a line.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria get-param 'home-OST*.resync.rate' --mount /mnt/home
Example: stria get-param log.level --mgs 10.0.0.5@tcp
Example: stria get-param 'mount.*' --mount /mnt/home     (of this mount; with --mgs the kept values)
Exit codes: 0 they are shown; 1 a target did not answer; 2 nothing could be asked.")]
pub struct GetParam {
    /// TARGET.NAME, or NAME of all targets. `*` stands for any characters. The mounts of a file system are FSNAME-client.
    #[arg(value_name = "PATTERN", required = true)]
    patterns: Vec<String>,
    /// Values alone.
    #[arg(short = 'n')]
    values: bool,
    #[command(flatten)]
    on: On,
    /// JSON output: also what is kept, live and the base.
    #[arg(short = 'j', long)]
    json: bool,
}

/// Set parameters of targets and mounts. The values hold until the targets' servers or this mount end; with -P they are kept in the cluster
/// map, and also targets that are down or new take them, and all mounts.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria set-param 'home-OST*.resync.rate=200M' --mount /mnt/home
Example: stria set-param -P 'home-*.commit.interval=500ms' --mgs 10.0.0.5@tcp
Example: stria set-param -P -d 'home-*.commit.interval' --mgs 10.0.0.5@tcp
Example: stria set-param -P home-client.mount.read_ahead=16M --mgs 10.0.0.5@tcp
Example: stria set-param mount.jobid_var=cgroup --mount /mnt/home     (of this mount alone)
Exit codes: 0 the targets have them; 1 a target did not take one; 2 nothing was set.")]
pub struct SetParam {
    /// TARGET.NAME=VALUE, or NAME=VALUE for all targets. `*` stands for any characters. The mounts of a file system are FSNAME-client. With -d
    /// without =VALUE.
    #[arg(value_name = "PATTERN=VALUE", required = true)]
    words: Vec<String>,
    /// Keep them in the cluster map.
    #[arg(short = 'P', long)]
    persistent: bool,
    /// Take live values back; with -P also the kept ones.
    #[arg(short = 'd', long = "default")]
    default: bool,
    #[command(flatten)]
    on: On,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

/// Parameters of some targets: what a pattern means.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Meant {
    targets: String,
    params: Vec<Param>,
}

impl Meant {
    /// `TARGET.NAME`, or `NAME` of all targets.
    fn parse(pattern: &str) -> Result<Meant, Failure> {
        let of_all = Param::matching(pattern);
        if !of_all.is_empty() {
            return Ok(Meant { targets: "*".into(), params: of_all });
        }
        let (targets, name) = pattern.split_once('.').unwrap_or(("", pattern));
        let params = Param::matching(name);
        if params.is_empty() || targets.is_empty() {
            let next = "`stria list-param` shows them";
            return Err(Failure::unusable(format!("{pattern:?}"), "it names no parameter", next));
        }
        Ok(Meant { targets: targets.into(), params })
    }

    /// Those of its parameters that the target has.
    fn at(&self, reach: &Reach, target: &Target) -> Vec<Param> {
        self.in_scope(&name_of(reach, target), Scope::of_target(target.is_mdt))
    }

    /// Those that the mounts of the file system have.
    fn of_mounts(&self, reach: &Reach) -> Vec<Param> {
        self.in_scope(&client_name(&reach.file_system().name), Scope::Client)
    }

    fn in_scope(&self, name: &str, scope: Scope) -> Vec<Param> {
        match names(&self.targets, name) {
            true => self.params.iter().copied().filter(|param| param.is_at(scope)).collect(),
            false => vec![],
        }
    }
}

fn name_of(reach: &Reach, target: &Target) -> String {
    target_name(&reach.file_system().name, target.is_mdt, target.index)
}

/// A value at a target or mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Line {
    target: String,
    /// `None`: mounts.
    id: Option<u32>,
    name: &'static str,
    /// The one that holds, as text.
    value: String,
    /// "live", "option", "kept" or "base".
    from: &'static str,
    base: String,
    kept: Option<String>,
    /// By an option of the mount.
    option: Option<String>,
    live: Option<String>,
}

impl Line {
    fn of(target: String, id: TargetId, param: Param, line: &ParamLine) -> Line {
        let def = param.def();
        let text = |value: &u64| def.show(*value);
        Line {
            target,
            id: Some(id.0),
            name: def.name,
            value: text(&line.value),
            from: match (line.live, line.kept) {
                (Some(_), _) => "live",
                (None, Some(_)) => "kept",
                (None, None) => "base",
            },
            base: text(&line.base),
            kept: line.kept.as_ref().map(text),
            option: None,
            live: line.live.as_ref().map(text),
        }
    }
}

/// The lines of what is meant, by target. Targets that do not answer are told, and the last of them is the failure.
fn look(systems: &[Reach], meant: &[Meant], at: Option<&AtMount>) -> (Vec<Line>, Option<Failure>) {
    let (mut lines, mut silent) = (vec![], None);
    for reach in systems {
        match at_mount::lines(reach, meant, at) {
            Ok(of_mounts) => lines.extend(of_mounts),
            Err(e) => {
                eprintln!("stria: {e:#}");
                let next = "`stria status` shows what is up";
                silent = Some(Failure::failed("the mount", "it did not answer", next));
            }
        }
        let targets: Vec<&Target> = reach
            .targets()
            .into_iter()
            .filter(|target| meant.iter().any(|one| !one.at(reach, target).is_empty()))
            .collect();
        let answers = reach.ask_all(&targets, |target| reach.ask(target.id, &ParamList {}));
        for (target, answer) in targets.into_iter().zip(answers) {
            match answer {
                Ok(reply) => lines.extend(lines_of(reach, target, meant, &reply)),
                Err(e) => {
                    let name = mgmt::member_name(&reach.map, target);
                    eprintln!("stria: {name}: {e:#}");
                    let next = "`stria status` shows the target";
                    silent = Some(Failure::failed(name, "it did not answer", next));
                }
            }
        }
    }
    (lines, silent)
}

fn lines_of(reach: &Reach, target: &Target, meant: &[Meant], reply: &ParamListReply) -> Vec<Line> {
    let is_meant = |param: &Param| meant.iter().any(|one| one.at(reach, target).contains(param));
    let known = PARAMS.iter().copied().filter(is_meant);
    known
        .filter_map(|param| {
            let line = reply.params.iter().find(|line| line.name == param.def().name)?;
            Some(Line::of(name_of(reach, target), target.id, param, line))
        })
        .collect()
}

/// Members of a mirror have one name: their lines are one where they are equal, else each has its id.
fn text_of(lines: &[Line], values: bool) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    for line in lines {
        let of_name = lines.iter().filter(|l| l.target == line.target && l.name == line.name);
        let (count, is_one) = of_name.fold((0, true), |(n, same), l| (n + 1, same && l.value == line.value));
        let target = match is_one || count < 2 {
            true => line.target.clone(),
            false => format!("{}:{}", line.target, line.id.unwrap_or(0)),
        };
        let text = match values {
            true => line.value.clone(),
            false => format!("{target}.{}={}", line.name, line.value),
        };
        let is_first = lines
            .iter()
            .find(|l| l.target == line.target && l.name == line.name)
            .is_some_and(|first| first.id == line.id);
        if is_first || !is_one {
            out.push(text);
        }
    }
    out
}

fn show(lines: &[Line], values: bool, json: bool) -> anyhow::Result<()> {
    match json {
        true => outln!("{}", serde_json::to_string_pretty(lines)?),
        false => text_of(lines, values).iter().for_each(|line| outln!("{line}")),
    }
    Ok(())
}

fn none_of(patterns: &[String]) -> Failure {
    let next = "`stria status` lists the targets, and FSNAME-client are the mounts; `stria list-param` tells which have a parameter";
    Failure::unusable(patterns.join(", "), "no target has that", next)
}

impl ListParam {
    pub fn run(self) -> anyhow::Result<Exit> {
        let is_meant = |param: &&Param| {
            let of = |pattern: &String| Param::matching(pattern).contains(param);
            self.patterns.is_empty() || self.patterns.iter().any(of)
        };
        let shown: Vec<&Def> = PARAMS.iter().filter(is_meant).map(|param| param.def()).collect();
        if shown.is_empty() {
            let next = "`stria list-param` shows all";
            return Err(
                Failure::unusable(self.patterns.join(", "), "no parameter has that name", next).into()
            );
        }
        match self.json {
            true => {
                let lines: Vec<ListLine> = shown.into_iter().map(ListLine::of).collect();
                outln!("{}", serde_json::to_string_pretty(&lines)?);
            }
            false => {
                for def in shown {
                    let line = ListLine::of(def);
                    let head = format!("{}  ({}; {})", line.name, line.at.join(", "), line.values);
                    outln!("{}", bench::wrap::wrap(&head, 4));
                    outln!("{}", bench::wrap::wrap(&format!("    {}", line.text), 4));
                }
            }
        }
        Ok(Exit::Done)
    }
}

#[derive(Debug, Serialize)]
struct ListLine {
    name: &'static str,
    /// "MDT", "OST", "client".
    at: Vec<&'static str>,
    values: String,
    live: bool,
    text: &'static str,
}

impl ListLine {
    fn of(def: &Def) -> ListLine {
        ListLine {
            name: def.name,
            at: def.at.iter().map(|scope| scope.word()).collect(),
            values: def.values(),
            live: def.is_live,
            text: def.text,
        }
    }
}

impl GetParam {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let meant = self.patterns.iter().map(|p| Meant::parse(p)).collect::<Result<Vec<_>, _>>()?;
        let (management, at) = self.on.manage_with_mount()?;
        let (lines, silent) = look(&management.file_systems(), &meant, at.as_ref());
        if lines.is_empty() && silent.is_none() {
            return Err(none_of(&self.patterns).into());
        }
        show(&lines, self.values, self.json)?;
        silent.map_or(Ok(Exit::Done), |failure| Err(failure.into()))
    }
}

/// The wish of a word of `set-param`.
#[derive(Clone, Debug)]
struct Wish {
    meant: Meant,
    /// By parameter; no value: the base one.
    values: Vec<(Param, Option<u64>)>,
}

impl Wish {
    fn parse(word: &str, takes_back: bool) -> Result<Wish, Failure> {
        let refuse = |why: String| {
            Failure::unusable(format!("{word:?}"), why, "`stria list-param` shows what can be set")
        };
        if takes_back {
            let meant = Meant::parse(word)?;
            let values = meant.params.iter().map(|param| (*param, None)).collect();
            return Ok(Wish { meant, values });
        }
        let (pattern, text) = word.split_once('=').ok_or_else(|| refuse("it has no =VALUE".into()))?;
        let meant = Meant::parse(pattern)?;
        let value = |param: &Param| Ok((*param, Some(param.def().parse(text).map_err(refuse)?)));
        let values = meant.params.iter().map(value).collect::<Result<_, Failure>>()?;
        Ok(Wish { meant, values })
    }
}

impl SetParam {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let wishes: Vec<Wish> =
            self.words.iter().map(|word| Wish::parse(word, self.default)).collect::<Result<_, _>>()?;
        let needs_map = wishes.iter().flat_map(|w| &w.values).find(|(param, _)| !param.def().is_live);
        if let (Some((param, _)), false) = (needs_map, self.persistent) {
            let why = "it is kept in the cluster map only";
            return Err(Failure::unusable(param.def().name, why, "give -P").into());
        }
        let (management, at) = self.on.manage_with_mount()?;
        let systems = management.file_systems();
        let meant: Vec<Meant> = wishes.iter().map(|wish| wish.meant.clone()).collect();
        let of_mounts =
            systems.iter().flat_map(|reach| at_mount::meant(reach, &meant)).collect::<Vec<Param>>();
        let is_target =
            systems.iter().any(|reach| reach.targets().iter().any(|t| !live(reach, t, &wishes).is_empty()));
        if !is_target && of_mounts.is_empty() {
            return Err(none_of(&self.words).into());
        }
        if self.persistent {
            keep(&management, &systems, &wishes)?;
        }
        let (mut refused, mut is_at_mount) = (None, false);
        for reach in &systems {
            let changes = live_of_mounts(reach, &wishes);
            if !changes.is_empty() {
                is_at_mount |= at_mount::set(reach, changes, at.as_ref(), self.persistent)?;
            }
            for target in reach.targets() {
                let mut changes = live(reach, target, &wishes);
                if self.persistent {
                    // The kept value is to hold.
                    changes
                        .retain(|change| Param::named(&change.name).is_some_and(|param| param.def().is_live));
                    changes.iter_mut().for_each(|change| change.value = None);
                }
                // Others need not be up.
                if changes.is_empty() {
                    continue;
                }
                let done = reach.ask(target.id, &ParamSet { changes });
                if let Err(e) = done.map(drop) {
                    let name = mgmt::member_name(&reach.map, target);
                    let next = match self.persistent {
                        true => "it takes the kept value when it is back",
                        false => "`stria status` shows the target",
                    };
                    eprintln!("stria: {name}: {e:#}; {next}");
                    refused = Some(Failure::failed(name, "it did not take the value", next));
                }
            }
        }
        if let (Some(param), false) = (of_mounts.first(), self.persistent || is_target || is_at_mount) {
            let why = "a mount takes a live value on its own host only";
            let next = "give --mount PATH on that host, or -P for all mounts";
            return Err(Failure::unusable(param.def().name, why, next).into());
        }
        let (lines, silent) = match self.persistent {
            true => await_kept(&management, &meant, &wishes, at.as_ref()),
            false => look(&systems, &meant, at.as_ref()),
        };
        show(&lines, false, self.json)?;
        match refused.or(silent) {
            // It is in the map, which is the promise.
            None => Ok(Exit::Done),
            Some(_) if self.persistent => Ok(Exit::Findings),
            Some(failure) => Err(failure.into()),
        }
    }
}

/// The changes of a target.
fn live(reach: &Reach, target: &Target, wishes: &[Wish]) -> Vec<LiveParam> {
    changes(wishes, |meant| meant.at(reach, target))
}

fn live_of_mounts(reach: &Reach, wishes: &[Wish]) -> Vec<LiveParam> {
    changes(wishes, |meant| meant.of_mounts(reach))
}

fn changes(wishes: &[Wish], at: impl Fn(&Meant) -> Vec<Param>) -> Vec<LiveParam> {
    let mut changes: Vec<LiveParam> = vec![];
    for wish in wishes {
        let at = at(&wish.meant);
        for (param, value) in wish.values.iter().filter(|(param, _)| at.contains(param)) {
            changes.push(LiveParam { name: param.def().name.into(), value: *value });
        }
    }
    changes
}

/// Keeps the values in the map, for each file system that has a target that is meant, or whose mounts are.
fn keep(management: &Management, systems: &[Reach], wishes: &[Wish]) -> anyhow::Result<()> {
    let mut changes = vec![];
    for reach in systems {
        for wish in wishes {
            for (param, value) in &wish.values {
                let is_meant = |target: &&Target| wish.meant.at(reach, target).contains(param);
                if reach.targets().iter().any(is_meant) || wish.meant.of_mounts(reach).contains(param) {
                    let (targets, name) = (wish.meant.targets.clone(), param.def().name.into());
                    changes.push(KeptParam { fs: reach.fs, targets, name, value: *value });
                }
            }
        }
    }
    management.ask(&ChangeParams { changes })?;
    Ok(())
}

/// Waits until each target that answers has the kept values, which come with the next cluster map.
fn await_kept(
    management: &Management,
    meant: &[Meant],
    wishes: &[Wish],
    at: Option<&AtMount>,
) -> (Vec<Line>, Option<Failure>) {
    let until = Instant::now() + TAKES_WITHIN;
    let wanted = |line: &Line| {
        let mut values = wishes.iter().flat_map(|wish| &wish.values);
        // Of two words for one parameter the later one counts.
        let last = values.rfind(|(param, _)| param.def().name == line.name);
        last.is_none_or(|(param, value)| line.kept == value.map(|value| param.def().show(value)))
    };
    let mut systems = management.file_systems();
    // Without a mount the map tells the values of mounts.
    systems.iter_mut().for_each(|reach| _ = reach.refresh());
    loop {
        let (lines, silent) = look(&systems, meant, at);
        if lines.iter().all(wanted) || silent.is_some() || Instant::now() >= until {
            return (lines, silent);
        }
        std::thread::sleep(LOOK_EACH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mounts_of_one_file_system_count_once_also_with_another_between() {
        let mount = |source: &str, point: &str| mounts::Mount {
            point: point.into(),
            fs_type: mounts::FS_TYPE.into(),
            source: source.into(),
        };
        let all = vec![mount("a:/one", "/1"), mount("b:/two", "/2"), mount("a:/one", "/3")];
        let points: Vec<PathBuf> = one_of_each(all).into_iter().map(|mount| mount.point).collect();
        assert_eq!(points, ["/1", "/2"].map(PathBuf::from));
    }

    #[test]
    fn a_pattern_names_targets_and_parameters() {
        let meant = |text: &str| Meant::parse(text).map(|m| (m.targets, m.params));
        assert_eq!(meant("home-OST*.resync.rate").unwrap(), ("home-OST*".into(), vec![Param::ResyncRate]));
        assert_eq!(meant("resync.*").unwrap().1, [Param::ResyncPause, Param::ResyncRate]);
        assert_eq!(meant("*").unwrap(), ("*".into(), PARAMS.to_vec()));
        assert_eq!(meant("home-MDT0000.*").unwrap().0, "home-MDT0000");
        for bad in ["", "home-OST*", "home-OST*.speed", ".speed"] {
            assert!(meant(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wish_is_read_or_refused_with_the_reason() {
        let wish = Wish::parse("home-*.resync.rate=2M", false).unwrap();
        assert_eq!(wish.values, [(Param::ResyncRate, Some(2 << 20))]);
        assert_eq!(Wish::parse("resync.rate", true).unwrap().values, [(Param::ResyncRate, None)]);
        for (bad, why) in [
            ("resync.rate", "no =VALUE"),
            ("resync.rate=fast", "not a size"),
            ("commit.interval=9m", "not between 10ms and 60s"),
            // One value must suit all.
            ("resync.*=on", "not a size"),
        ] {
            assert!(Wish::parse(bad, false).unwrap_err().to_string().contains(why), "{bad}");
        }
    }

    #[test]
    fn equal_members_have_one_line_and_others_their_ids() {
        let line = |id, value: &str| Line {
            target: "home-OST0000".into(),
            id: Some(id),
            name: "resync.rate",
            value: value.into(),
            from: "live",
            base: "0".into(),
            kept: None,
            option: None,
            live: Some(value.into()),
        };
        assert_eq!(text_of(&[line(2, "1M"), line(5, "1M")], false), ["home-OST0000.resync.rate=1M"]);
        let differ = ["home-OST0000:2.resync.rate=1M", "home-OST0000:5.resync.rate=2M"];
        assert_eq!(text_of(&[line(2, "1M"), line(5, "2M")], false), differ);
        assert_eq!(text_of(&[line(2, "1M")], true), ["1M"]);
    }
}
