//! Parameters of targets and of mounts: what there is, their values as text, and which value holds.
//!
//! A target has a base value of each parameter: that of its configuration, of the file system, or the default. The cluster map may keep another
//! one (`set-param -P`), and the running target may have a third one until it ends (`set-param`). A mount is the same, and all mounts of a file
//! system have one name. An option of a mount is more than a base value: its user chose it for this mount.
//!
//! mgmt-PA1: the live value holds, otherwise the mount's option, otherwise the kept one, otherwise the base. Of kept entries that match a target
//! the last one holds.
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
    /// A value is the place of its word. Words past `Def::most` are shown, but cannot be set.
    Word(&'static [&'static str]),
}

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Levels of log lines, from the fewest to the most.
pub const LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace"];
/// Values of `jobid_var`. A mount option may name another variable; the last word stands for that.
pub const JOBIDS: &[&str] = &[
    "auto",
    "disable",
    "procname_uid",
    "cgroup",
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "JOB_ID",
    "variable",
];

/// The kinds of processes that may have a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Mdt,
    Ost,
    /// The mounts of a file system.
    Client,
}

impl Scope {
    pub fn of_target(is_mdt: bool) -> Scope {
        if is_mdt { Scope::Mdt } else { Scope::Ost }
    }
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Scope::Mdt => "MDT",
            Scope::Ost => "OST",
            Scope::Client => "client",
        }
    }
}

/// A parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Def {
    pub name: &'static str,
    pub kind: Kind,
    pub at: &'static [Scope],
    pub least: u64,
    pub most: u64,
    /// False: it is kept in the map only, since no target looks at it.
    pub is_live: bool,
    pub text: &'static str,
}

macro_rules! params {
    ($($(#[doc = $text:literal])+ $param:ident = $name:literal, $kind:expr, $at:expr, $least:expr, $most:expr;)*) => {
        /// The parameters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Param { $($(#[doc = $text])+ $param,)* }
        /// In the order of `Param`.
        pub const DEFS: &[Def] = &[$(Def {
            name: $name, kind: $kind, at: $at, least: $least, most: $most,
            is_live: !matches!(Param::$param, Param::DrainPause), text: concat!($($text),+).trim_ascii(),
        },)*];
        /// In the order of `DEFS`.
        pub const PARAMS: &[Param] = &[$(Param::$param,)*];
    };
}

use Kind::{Bytes, Flag, Rate, Time, Word};
const MDT: &[Scope] = &[Scope::Mdt];
const OST: &[Scope] = &[Scope::Ost];
const BOTH: &[Scope] = &[Scope::Mdt, Scope::Ost];
const CLIENT: &[Scope] = &[Scope::Client];
/// Most bytes of `write_behind`: the memory of a host is not to be filled by one mount.
pub const WRITE_BEHIND_MAX: u64 = 8 << 30;
/// Most bytes of `read_ahead`, which each file that is read in order may take.
pub const READ_AHEAD_MAX: u64 = 1 << 30;

params! {
    /// Time between flushes of acknowledged changes in the background. A power loss of all servers can lose the last ones that no program synced.
    CommitInterval = "commit.interval", Time, BOTH, 10, 60_000;
    /// A drain of the OST moves no files while it is on.
    DrainPause = "drain.pause", Flag, OST, 0, 1;
    /// New files of up to so many bytes are kept in their inode at the MDT; 0: none.
    InlineMax = "inline.max", Bytes, MDT, 0, types::INLINE_MAX as u64;
    /// Log lines of the whole process of the target, of this level and graver ones.
    LogLevel = "log.level", Word(LEVELS), BOTH, 0, 4;
    /// Silence after which a server's host counts as dead, unless it accepts a new connection.
    MountDeadAfter = "mount.dead_after", Time, CLIENT, 100, 600_000;
    /// How the job of a program is found for `stria jobstats` and `stria top`. Only the mount option can name another variable.
    MountJobId = "mount.jobid_var", Word(JOBIDS), CLIENT, 0, 8;
    /// Time without an answer after which an operation fails with ETIMEDOUT.
    MountOpTimeout = "mount.op_timeout", Time, CLIENT, 1000, 86_400_000;
    /// Bytes that the kernel reads ahead of a program, for each open file; 0: none. Only mounts of root take it.
    MountReadAhead = "mount.read_ahead", Bytes, CLIENT, 0, READ_AHEAD_MAX;
    /// Most bytes of buffered writes that are on their way to the OSTs; 0: each write waits for its OSTs.
    MountWriteBehind = "mount.write_behind", Bytes, CLIENT, 0, WRITE_BEHIND_MAX;
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
    /// A comparison with the other member of the mirror stands still while it is on.
    VerifyPause = "verify.pause", Flag, OST, 0, 1;
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
    pub fn is_at(self, scope: Scope) -> bool {
        self.def().at.contains(&scope)
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
            Kind::Word(_) => match self.words().iter().position(|word| *word == text) {
                Some(at) => at as u64,
                None => return Err(format!("'{text}' is none of {}", self.words().join(", "))),
            },
        };
        match value < self.least || value > self.most {
            false => Ok(value),
            true => {
                Err(format!("{text} is not between {} and {}", self.show(self.least), self.show(self.most)))
            }
        }
    }

    /// Those that can be set.
    fn words(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Word(words) => &words[..words.len().min(self.most as usize + 1)],
            _ => &[],
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
            Kind::Word(_) => self.words().join(", "),
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
            Kind::Word(words) => words.get(value as usize).copied().unwrap_or("?").into(),
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

/// The name of all mounts of a file system.
pub fn client_name(fs: &str) -> String {
    format!("{fs}-client")
}

/// The value that the map keeps for the mounts of a file system (mgmt-PA1). `None`: none.
pub fn kept_for_mounts(map: &ClusterMap, fs: FsId, param: Param) -> Option<u64> {
    let name = client_name(&map.fs(fs)?.name);
    kept_for(map, fs, &name, param).filter(|_| param.is_at(Scope::Client))
}

/// The value that the map keeps for a target (mgmt-PA1). `None`: none.
pub fn kept(map: &ClusterMap, target: TargetId, param: Param) -> Option<u64> {
    let me = map.target(target)?;
    let fs = map.fs(me.fs)?;
    let name = target_name(&fs.name, me.is_mdt, me.index);
    kept_for(map, me.fs, &name, param).filter(|_| param.is_at(Scope::of_target(me.is_mdt)))
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
            return Err(invalid(format!(
                "{pattern:?} is no name of targets, as home-OST0003, home-OST* or home-client"
            )));
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

/// The values of one target or mount that are not the base ones. Reading one is a load.
pub struct Params {
    /// The values that hold, by `Param`; `u64::MAX`: the base.
    held: [AtomicU64; DEFS.len()],
    layers: Mutex<Layers>,
    /// Told after each change.
    told: Mutex<Vec<Told>>,
}

/// A parameter's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    pub param: Param,
    /// The one that holds.
    pub value: u64,
    pub base: u64,
    /// By an option of the mount.
    pub given: Option<u64>,
    pub kept: Option<u64>,
    pub live: Option<u64>,
}

type Told = Box<dyn Fn(&Params) -> bool + Send>;

#[derive(Default)]
struct Layers {
    version: u64,
    kept: [Option<u64>; DEFS.len()],
    /// Options of the mount.
    given: [Option<u64>; DEFS.len()],
    live: [Option<u64>; DEFS.len()],
}

impl Layers {
    /// mgmt-PA1.
    fn value(&self, at: usize) -> Option<u64> {
        self.live[at].or(self.given[at]).or(self.kept[at])
    }
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

    /// The parameters of a mount that has these options. Their values may be out of bounds, which hold for what is set later.
    pub fn of_mount(given: &[(Param, u64)]) -> Params {
        let params = Params::default();
        {
            let mut layers = lock(&params.layers);
            given.iter().for_each(|(param, value)| layers.given[*param as usize] = Some(*value));
            params.hold(&layers);
        }
        params
    }

    /// Takes the values that a newer map keeps for the target.
    pub fn follow(&self, map: &ClusterMap, target: TargetId) {
        self.take(map, |param| kept(map, target, param));
    }

    /// Takes the values that a newer map keeps for the mounts of a file system.
    pub fn follow_for_mount(&self, map: &ClusterMap, fs: FsId) {
        self.take(map, |param| kept_for_mounts(map, fs, param));
    }

    fn take(&self, map: &ClusterMap, kept: impl Fn(Param) -> Option<u64>) {
        {
            let mut layers = lock(&self.layers);
            if map.version <= layers.version {
                return;
            }
            layers.version = map.version;
            for param in PARAMS {
                let (at, kept) = (*param as usize, kept(*param));
                if layers.kept[at] != kept {
                    // mgmt-PA2.
                    (layers.kept[at], layers.live[at]) = (kept, None);
                }
            }
            self.hold(&layers);
        }
        self.tell();
    }

    /// Sets or ends live values. `scope`: that of the target or mount. Nothing is changed if one is refused.
    pub fn set(&self, changes: &[wire::params::LiveParam], scope: Scope) -> Result<(), Fault> {
        let invalid = |why: String| Err(Fault::new(Code::Invalid, why));
        let mut wanted = Vec::new();
        for change in changes {
            let Some(param) = Param::named(&change.name).filter(|param| param.is_at(scope)) else {
                let place = if scope == Scope::Client { "a mount" } else { "this target" };
                return invalid(format!(
                    "{place} has no parameter {:?}; `stria list-param` shows them",
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

    /// All parameters of a target of this kind, or of a mount. `base` gives the base value.
    pub fn shown(&self, scope: Scope, base: impl Fn(Param) -> u64) -> Vec<Shown> {
        // Before the lock: the caller of `follow` may hold one that `base` takes.
        let bases: Vec<(Param, u64)> =
            PARAMS.iter().filter(|param| param.is_at(scope)).map(|param| (*param, base(*param))).collect();
        let layers = lock(&self.layers);
        let shown = |(param, base): (Param, u64)| {
            let at = param as usize;
            let (given, kept, live) = (layers.given[at], layers.kept[at], layers.live[at]);
            Shown { param, value: layers.value(at).unwrap_or(base), base, given, kept, live }
        };
        bases.into_iter().map(shown).collect()
    }

    /// The same of a target, for tools.
    pub fn list(&self, scope: Scope, base: impl Fn(Param) -> u64) -> ParamListReply {
        let line = |Shown { param, value, base, kept, live, .. }: Shown| ParamLine {
            name: param.def().name.into(),
            value,
            base,
            kept,
            live,
        };
        ParamListReply { params: self.shown(scope, base).into_iter().map(line).collect() }
    }

    /// mgmt-PA1.
    fn hold(&self, layers: &Layers) {
        for (at, held) in self.held.iter().enumerate() {
            held.store(layers.value(at).unwrap_or(BASE), Ordering::Relaxed);
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
mod tests;
