//! Parameters of targets: what there is, their values as text, and which value holds.
//!
//! A target has a base value of each parameter: that of its configuration, of the file system, or the default. The cluster map may keep another
//! one (`set-param -P`), and the running target may have a third one until it ends (`set-param`).
//!
//! mgmt-PA1: the live value holds, otherwise the kept one, otherwise the base. Of kept entries that match a target the last one holds.
//! mgmt-PA2: a new kept value ends the live one.
//! mgmt-PA3: an entry of the map has a known parameter and a value within its bounds. An entry that a later one hides everywhere is dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use types::{Code, Fault, FsId, Size, TargetId};
use wire::map::{ClusterMap, KeptParam};
use wire::mgmt::ChangeParams;
use wire::params::{ParamLine, ParamListReply};

use crate::name::target_name;
use crate::nodemap::fits;
use crate::register::check_size;

/// Most entries of a map: one of each parameter for each of some hundred targets.
pub const PARAMS_MAX: usize = 4096;
/// Longest pattern of targets, in bytes.
const PATTERN_MAX: usize = 63;

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes per second; 0: no bound.
    Rate,
    Bytes,
    /// Milliseconds.
    Time,
    Flag,
    Level,
}

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Words of `Kind::Level`, from the fewest lines to the most. The value is the place.
pub const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// A parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Def {
    pub name: &'static str,
    pub kind: Kind,
    /// MDTs have it; OSTs have it.
    pub at: (bool, bool),
    pub least: u64,
    pub most: u64,
    /// False: it is kept in the map only, since no target looks at it.
    pub is_live: bool,
    pub text: &'static str,
}

macro_rules! params {
    ($($(#[doc = $text:literal])+ $param:ident = $name:literal, $kind:ident, $at:expr, $least:expr, $most:expr;)*) => {
        /// The parameters of targets.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Param { $($(#[doc = $text])+ $param,)* }
        /// In the order of `Param`.
        pub const DEFS: &[Def] = &[$(Def {
            name: $name, kind: Kind::$kind, at: $at, least: $least, most: $most,
            is_live: !matches!(Param::$param, Param::DrainPause), text: concat!($($text),+).trim_ascii(),
        },)*];
        /// In the order of `DEFS`.
        pub const PARAMS: &[Param] = &[$(Param::$param,)*];
    };
}

const MDT: (bool, bool) = (true, false);
const OST: (bool, bool) = (false, true);
const BOTH: (bool, bool) = (true, true);

params! {
    /// Time between flushes of acknowledged changes in the background. A power loss of all servers can lose the last ones that no program synced.
    CommitInterval = "commit.interval", Time, BOTH, 10, 60_000;
    /// A drain of the OST moves no files while it is on.
    DrainPause = "drain.pause", Flag, OST, 0, 1;
    /// New files of up to so many bytes are kept in their inode at the MDT; 0: none.
    InlineMax = "inline.max", Bytes, MDT, 0, types::INLINE_MAX as u64;
    /// Log lines of the whole process of the target, of this level and graver ones.
    LogLevel = "log.level", Level, BOTH, 0, 4;
    /// Memory for records of the MDT. Those that were not used lately are read from the medium.
    RecordMemory = "record.memory", Bytes, MDT, 1 << 20, 1 << 40;
    /// The other member of the mirror is not filled while it is on. It stays out of sync until then.
    ResyncPause = "resync.pause", Flag, BOTH, 0, 1;
    /// Most bytes per second that the other member of the mirror is filled with; 0: no limit.
    ResyncRate = "resync.rate", Rate, BOTH, 0, 1 << 40;
    /// Time from the end of one scrub of the MDT's records to the next; 0: on request only. The first one begins an hour after the start.
    ScrubEvery = "scrub.every", Time, MDT, 0, 365 * DAY_MS;
    /// Most bytes per second that a scrub of the MDT's records reads; 0: no limit.
    ScrubRate = "scrub.rate", Rate, MDT, 0, 1 << 40;
    /// Writes of fewer bytes go to the log first, and to their place later.
    SmallWriteMax = "small_write.max", Bytes, OST, 0, 1 << 20;
    /// Memory for small writes that are not at their place yet.
    SmallWriteMemory = "small_write.memory", Bytes, OST, 1 << 20, 1 << 36;
}

impl Param {
    pub fn def(self) -> &'static Def {
        &DEFS[self as usize]
    }
    pub fn named(name: &str) -> Option<Param> {
        PARAMS.iter().copied().find(|param| param.def().name == name)
    }
    /// Those whose names match; `*` stands for any characters.
    pub fn matching(pattern: &str) -> Vec<Param> {
        PARAMS.iter().copied().filter(|param| fits(pattern.as_bytes(), param.def().name.as_bytes())).collect()
    }
    pub fn is_at(self, is_mdt: bool) -> bool {
        let (mdt, ost) = self.def().at;
        if is_mdt { mdt } else { ost }
    }
}

impl Def {
    /// The value of its text. Errors: what is wrong, for people.
    pub fn parse(&self, text: &str) -> Result<u64, String> {
        let value = match self.kind {
            Kind::Rate | Kind::Bytes => text.parse::<Size>()?.0,
            Kind::Time => time_of(text)?,
            Kind::Flag => match text {
                "on" | "1" | "true" => 1,
                "off" | "0" | "false" => 0,
                _ => return Err(format!("'{text}' is not on or off")),
            },
            Kind::Level => match LEVELS.iter().position(|level| *level == text) {
                Some(at) => at as u64,
                None => return Err(format!("'{text}' is no level: write {}", LEVELS.join(", "))),
            },
        };
        match value < self.least || value > self.most {
            false => Ok(value),
            true => {
                Err(format!("{text} is not between {} and {}", self.show(self.least), self.show(self.most)))
            }
        }
    }

    /// The values that can be set, for people.
    pub fn values(&self) -> String {
        let (least, most) = (self.show(self.least), self.show(self.most));
        match self.kind {
            Kind::Rate => format!("bytes per second up to {most}"),
            Kind::Bytes => format!("bytes from {least} to {most}"),
            Kind::Time => format!("time from {least} to {most}"),
            Kind::Flag => "on or off".into(),
            Kind::Level => LEVELS.join(", "),
        }
    }

    /// The text of a value; reading it gives the value again.
    pub fn show(&self, value: u64) -> String {
        match self.kind {
            Kind::Rate | Kind::Bytes => Size(value).to_string(),
            Kind::Time if value > 0 && value.is_multiple_of(DAY_MS) => format!("{}d", value / DAY_MS),
            Kind::Time if value > 0 && value.is_multiple_of(HOUR_MS) => format!("{}h", value / HOUR_MS),
            Kind::Time if value > 0 && value.is_multiple_of(1000) => format!("{}s", value / 1000),
            Kind::Time => format!("{value}ms"),
            Kind::Flag => if value == 0 { "off" } else { "on" }.into(),
            Kind::Level => LEVELS.get(value as usize).copied().unwrap_or("?").into(),
        }
    }
}

fn time_of(text: &str) -> Result<u64, String> {
    let refuse =
        || format!("'{text}' is no time: write a number with ms, s, m, h or d, such as 500ms or 28d");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| refuse())?;
    let ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => HOUR_MS,
        "d" => DAY_MS,
        _ => return Err(refuse()),
    };
    number.checked_mul(ms).ok_or_else(refuse)
}

/// True if `pattern` has the target of this name; `*` stands for any characters.
pub fn names(pattern: &str, target: &str) -> bool {
    fits(pattern.as_bytes(), target.as_bytes())
}

/// The value that the map keeps for a target (mgmt-PA1). `None`: none.
pub fn kept(map: &ClusterMap, target: TargetId, param: Param) -> Option<u64> {
    let me = map.target(target)?;
    let fs = map.fs(me.fs)?;
    let name = target_name(&fs.name, me.is_mdt, me.index);
    kept_for(map, me.fs, &name, param)
}

fn kept_for(map: &ClusterMap, fs: FsId, target: &str, param: Param) -> Option<u64> {
    let is_its = |entry: &&KeptParam| {
        entry.fs == fs && entry.name == param.def().name && names(&entry.targets, target)
    };
    map.params.iter().rev().find(is_its).and_then(|entry| entry.value)
}

/// The map with kept values changed. `None`: it is as wanted already.
pub fn change_params(map: &ClusterMap, request: &ChangeParams) -> Result<Option<ClusterMap>, Fault> {
    let invalid = |why: String| Fault::new(Code::Invalid, why);
    let mut next = map.clone();
    for change in &request.changes {
        if map.fs(change.fs).is_none() {
            return Err(invalid(format!("no file system {} is in the cluster map", change.fs)));
        }
        let pattern = &change.targets;
        if pattern.is_empty() || pattern.len() > PATTERN_MAX || !pattern.is_ascii() {
            return Err(invalid(format!("{pattern:?} is no name of targets, as home-OST0003 or home-OST*")));
        }
        let param = Param::named(&change.name).ok_or_else(|| {
            invalid(format!("no parameter {:?}; `stria list-param` shows them", change.name))
        })?;
        let def = param.def();
        if let Some(value) = change.value.filter(|value| *value < def.least || *value > def.most) {
            let why = format!(
                "{}: {} is not between {} and {}",
                def.name,
                def.show(value),
                def.show(def.least),
                def.show(def.most)
            );
            return Err(invalid(why));
        }
        // mgmt-PA3: those that this one hides, or takes back.
        let is_hidden = |entry: &KeptParam| {
            entry.fs == change.fs
                && entry.name == change.name
                && (entry.targets == *pattern || names(pattern, &entry.targets))
        };
        let hides_less = |entry: &KeptParam| {
            entry.fs == change.fs && entry.name == change.name && !is_hidden(entry) && entry.value.is_some()
        };
        // A value that is taken back for some targets of a wider entry: an entry without a value says so.
        let needs_mark = change.value.is_some() || next.params.iter().any(hides_less);
        next.params.retain(|entry| !is_hidden(entry));
        if needs_mark {
            next.params.push(change.clone());
        }
    }
    if next.params == map.params {
        return Ok(None);
    }
    if next.params.len() > PARAMS_MAX {
        return Err(invalid(format!(
            "the cluster map keeps at most {PARAMS_MAX} values; use patterns, or take some back"
        )));
    }
    next.version += 1;
    check_size(&next)?;
    Ok(Some(next))
}

/// The values of one target that are not the base ones. Reading one is a load.
pub struct Params {
    /// The values that hold, by `Param`; `u64::MAX`: the base.
    held: [AtomicU64; DEFS.len()],
    layers: Mutex<Layers>,
    /// Told after each change.
    told: Mutex<Vec<Told>>,
}

type Told = Box<dyn Fn(&Params) -> bool + Send>;

#[derive(Default)]
struct Layers {
    version: u64,
    kept: [Option<u64>; DEFS.len()],
    live: [Option<u64>; DEFS.len()],
}

const BASE: u64 = u64::MAX;

impl Default for Params {
    fn default() -> Params {
        Params {
            held: [const { AtomicU64::new(BASE) }; DEFS.len()],
            layers: Mutex::default(),
            told: Mutex::default(),
        }
    }
}

impl std::fmt::Debug for Params {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let set = PARAMS.iter().filter_map(|param| Some((param.def().name, self.get(*param)?)));
        f.debug_map().entries(set).finish()
    }
}

impl Params {
    /// `None`: the base value holds.
    pub fn get(&self, param: Param) -> Option<u64> {
        Some(self.held[param as usize].load(Ordering::Relaxed)).filter(|value| *value != BASE)
    }
    pub fn is_on(&self, param: Param) -> bool {
        self.get(param) == Some(1)
    }

    /// `told` is called now, and after each change until it returns false.
    pub fn on_change(&self, told: impl Fn(&Params) -> bool + Send + 'static) {
        let mut all = lock(&self.told);
        if told(self) {
            all.push(Box::new(told));
        }
    }

    /// The value of now, as long as the cell is in use elsewhere.
    pub fn cell(&self, param: Param, base: u64) -> Arc<AtomicU64> {
        let cell = Arc::new(AtomicU64::new(base));
        let followed = Arc::downgrade(&cell);
        self.on_change(move |params| {
            let cell = followed.upgrade();
            cell.iter().for_each(|cell| cell.store(params.get(param).unwrap_or(base), Ordering::Relaxed));
            cell.is_some()
        });
        cell
    }

    /// Takes the values that a newer map keeps for the target.
    pub fn follow(&self, map: &ClusterMap, target: TargetId) {
        {
            let mut layers = lock(&self.layers);
            if map.version <= layers.version {
                return;
            }
            layers.version = map.version;
            for param in PARAMS {
                let (at, kept) = (*param as usize, kept(map, target, *param));
                if layers.kept[at] != kept {
                    // mgmt-PA2.
                    (layers.kept[at], layers.live[at]) = (kept, None);
                }
            }
            self.hold(&layers);
        }
        self.tell();
    }

    /// Sets or ends live values. `is_mdt`: the kind of the target. Nothing is changed if one is refused.
    pub fn set(&self, changes: &[wire::params::LiveParam], is_mdt: bool) -> Result<(), Fault> {
        let invalid = |why: String| Err(Fault::new(Code::Invalid, why));
        let mut wanted = Vec::new();
        for change in changes {
            let Some(param) = Param::named(&change.name).filter(|param| param.is_at(is_mdt)) else {
                return invalid(format!(
                    "this target has no parameter {:?}; `stria list-param` shows them",
                    change.name
                ));
            };
            let def = param.def();
            if !def.is_live {
                return invalid(format!("{} is kept in the cluster map only: give -P", def.name));
            }
            if change.value.is_some_and(|value| value < def.least || value > def.most) {
                return invalid(format!("{} is out of its bounds; `stria list-param` shows them", def.name));
            }
            wanted.push((param, change.value));
        }
        {
            let mut layers = lock(&self.layers);
            wanted.into_iter().for_each(|(param, value)| layers.live[param as usize] = value);
            self.hold(&layers);
        }
        self.tell();
        Ok(())
    }

    /// All parameters of a target of this kind. `base` gives the base value.
    pub fn list(&self, is_mdt: bool, base: impl Fn(Param) -> u64) -> ParamListReply {
        // Before the lock: the caller of `follow` may hold one that `base` takes.
        let bases: Vec<(Param, u64)> =
            PARAMS.iter().filter(|param| param.is_at(is_mdt)).map(|param| (*param, base(*param))).collect();
        let layers = lock(&self.layers);
        let line = |(param, base): (Param, u64)| {
            let (kept, live) = (layers.kept[param as usize], layers.live[param as usize]);
            ParamLine {
                name: param.def().name.into(),
                value: live.or(kept).unwrap_or(base),
                base,
                kept,
                live,
            }
        };
        ParamListReply { params: bases.into_iter().map(line).collect() }
    }

    /// mgmt-PA1.
    fn hold(&self, layers: &Layers) {
        for (at, held) in self.held.iter().enumerate() {
            held.store(layers.live[at].or(layers.kept[at]).unwrap_or(BASE), Ordering::Relaxed);
        }
    }

    fn tell(&self) {
        lock(&self.told).retain(|told| told(self));
    }
}

/// A panic of another thread leaves values that hold.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::map;
    use wire::params::LiveParam;

    const FS: FsId = FsId(1);

    fn change(targets: &str, name: &str, value: Option<u64>) -> KeptParam {
        KeptParam { fs: FS, targets: targets.into(), name: name.into(), value }
    }

    fn changed(map: &ClusterMap, changes: &[KeptParam]) -> ClusterMap {
        let request = ChangeParams { changes: changes.to_vec() };
        change_params(map, &request).unwrap().expect("a change")
    }

    fn rates(map: &ClusterMap) -> [Option<u64>; 3] {
        [11, 12, 13].map(|id| kept(map, TargetId(id), Param::ResyncRate))
    }

    /// mgmt-PA1 and mgmt-PA3.
    #[test]
    fn the_last_entry_that_matches_holds_and_hidden_ones_are_dropped() {
        let map = changed(&map(), &[change("home-OST0001", "resync.rate", Some(7))]);
        assert_eq!((map.version, rates(&map)), (6, [None, None, Some(7)]));
        let map = changed(&map, &[change("home-OST*", "resync.rate", Some(9))]);
        assert_eq!((map.params.len(), rates(&map)), (1, [None, Some(9), Some(9)]));
        let map = changed(&map, &[change("home-OST0000", "resync.rate", Some(1))]);
        assert_eq!((map.params.len(), rates(&map)), (2, [None, Some(1), Some(9)]));
        // Taken back for one target of a wider entry.
        let map = changed(&map, &[change("home-OST0001", "resync.rate", None)]);
        assert_eq!((map.params.len(), rates(&map)), (3, [None, Some(1), None]));
        let same = ChangeParams { changes: vec![change("home-OST0001", "resync.rate", None)] };
        assert_eq!(change_params(&map, &same), Ok(None));
        let map = changed(&map, &[change("*", "resync.rate", None)]);
        assert_eq!((map.params.len(), rates(&map)), (0, [None, None, None]));
    }

    /// mgmt-PA3.
    #[test]
    fn unknown_names_and_values_out_of_bounds_are_refused() {
        for (bad, why) in [
            (change("home-OST*", "resync.speed", Some(1)), "list-param"),
            (change("home-OST*", "commit.interval", Some(1)), "between 10ms and 60s"),
            (change("", "resync.rate", Some(1)), "no name of targets"),
            (KeptParam { fs: FsId(9), ..change("*", "resync.rate", Some(1)) }, "no file system 9"),
        ] {
            let fault = change_params(&map(), &ChangeParams { changes: vec![bad] }).unwrap_err();
            assert!(fault.code == Code::Invalid && fault.detail.contains(why), "{fault}");
        }
    }

    /// `STRIA_PARAMS=write cargo test -p stria-mgmt` writes the table anew.
    #[test]
    fn the_document_has_all_parameters() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/parameters.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (head, _) = text.split_once("|---|---|---|---|\n").expect("the document has a table");
        let row = |def: &Def| {
            let at: Vec<_> = [(def.at.0, "MDT"), (def.at.1, "OST")]
                .into_iter()
                .filter_map(|(is, word)| is.then_some(word))
                .collect();
            let live = if def.is_live { "" } else { "; with -P only" };
            format!("| `{}` | {} | {}{live} | {} |\n", def.name, at.join(", "), def.values(), def.text)
        };
        let wanted = format!("{head}|---|---|---|---|\n{}", DEFS.iter().map(row).collect::<String>());
        if std::env::var_os("STRIA_PARAMS").is_some() {
            return std::fs::write(path, &wanted).unwrap();
        }
        assert!(
            wanted == text,
            "docs/parameters.md: STRIA_PARAMS=write cargo test -p stria-mgmt writes it anew"
        );
    }

    #[test]
    fn the_text_of_a_value_gives_it_again() {
        for param in PARAMS {
            let def = param.def();
            for value in [def.least, def.most, (def.least + def.most) / 2] {
                assert_eq!(def.parse(&def.show(value)), Ok(value), "{}", def.name);
            }
            assert!(def.text.ends_with('.') && Param::named(def.name) == Some(*param), "{}", def.name);
        }
        let time = Param::CommitInterval.def();
        assert_eq!((time.parse("1m"), time.parse("7500ms")), (Ok(60_000), Ok(7500)));
        for bad in ["", "10", "s", "-1s", "99999999999999999999s", "9ms", "2m", "2h"] {
            assert!(time.parse(bad).is_err(), "{bad}");
        }
        assert!(Param::LogLevel.def().parse("loud").unwrap_err().contains("debug"));
        assert_eq!(Param::matching("resync.*").len(), 2);
    }

    /// mgmt-PA1 and mgmt-PA2.
    #[test]
    fn a_live_value_holds_until_a_new_kept_one_comes() {
        let (params, map) = (Params::default(), map());
        let (seen, me) = (Arc::new(AtomicU64::new(0)), TargetId(12));
        let count = seen.clone();
        params.on_change(move |params| {
            count.store(params.get(Param::ResyncRate).unwrap_or(0), Ordering::Relaxed);
            true
        });
        let cell = params.cell(Param::ResyncRate, 5);
        assert_eq!(cell.load(Ordering::Relaxed), 5);
        let live = |value| LiveParam { name: "resync.rate".into(), value };
        params.set(&[live(Some(3))], false).unwrap();
        assert_eq!((params.get(Param::ResyncRate), seen.load(Ordering::Relaxed)), (Some(3), 3));
        params.follow(&map, me);
        assert_eq!(params.get(Param::ResyncRate), Some(3), "another change of the map");
        let kept = changed(&map, &[change("*", "resync.rate", Some(9))]);
        params.follow(&kept, me);
        assert_eq!((params.get(Param::ResyncRate), seen.load(Ordering::Relaxed)), (Some(9), 9));
        assert_eq!(cell.load(Ordering::Relaxed), 9);
        params.set(&[live(Some(4))], false).unwrap();
        params.follow(&map, me);
        assert_eq!(params.get(Param::ResyncRate), Some(4), "an older map");
        let list = params.list(false, |_| 11);
        let line = list.params.iter().find(|line| line.name == "resync.rate").unwrap();
        assert_eq!((line.value, line.base, line.kept, line.live), (4, 11, Some(9), Some(4)));
        assert!(list.params.iter().all(|line| line.name != "record.memory"), "an OST has none");
        params.set(&[live(None)], false).unwrap();
        assert_eq!(params.get(Param::ResyncRate), Some(9));
        let memory = LiveParam { name: "record.memory".into(), value: Some(1 << 30) };
        let refused = params.set(&[live(Some(1)), memory.clone()], false).unwrap_err();
        assert!(refused.detail.contains("record.memory"), "{refused}");
        assert_eq!(params.get(Param::ResyncRate), Some(9), "nothing is changed");
        assert!(params.set(&[LiveParam { value: Some(1), ..memory }], true).is_err());
    }
}
