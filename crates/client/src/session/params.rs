//! Parameters of a mount: the client takes those that the cluster map keeps, and a user of this host may see and set them at the mount.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mgmt::params::{Param, Params, Scope};
use types::{Code, Cred, Fault};
use wire::map::ClusterMap;
use wire::params::LiveParam;

use crate::Fs;

impl Fs {
    /// Every call ends within this time.
    pub(crate) fn op_timeout(&self) -> Duration {
        Duration::from_millis(self.op_timeout_ms.load(Ordering::Relaxed))
    }

    /// Takes each later change. Values of before are taken now.
    pub(crate) fn follow_params(self: &Arc<Fs>) {
        let Some(tuned) = &self.settings.params else { return };
        let (fs, base) = (Arc::downgrade(self), tuned.base);
        tuned.params.on_change(move |params| {
            let Some(fs) = fs.upgrade() else { return false };
            let value = |param| params.get(param).unwrap_or_else(|| base(param));
            fs.op_timeout_ms.store(value(Param::MountOpTimeout), Ordering::Relaxed);
            fs.behind.set_bytes_max(value(Param::MountWriteBehind) as usize);
            fs.fabric.set_dead_after(Duration::from_millis(value(Param::MountDeadAfter)));
            true
        });
    }

    /// Takes the values that a newer map keeps.
    pub(crate) fn take_kept(&self, map: &ClusterMap) {
        let params = self.params();
        params.into_iter().for_each(|params| params.follow_for_mount(map, self.id.fs));
    }

    fn params(&self) -> Option<&Arc<Params>> {
        self.settings.params.as_ref().map(|tuned| &tuned.params)
    }

    /// The values as JSON: numbers, for `stria get-param`.
    pub(crate) fn params_json(&self) -> Result<String, Fault> {
        let tuned = self.settings.params.as_ref().ok_or(Code::NoData)?;
        let number = |value: Option<u64>| value.map_or("null".to_owned(), |value| value.to_string());
        let mut out = String::from("[");
        for shown in tuned.params.shown(Scope::Client, tuned.base) {
            let comma = if out.len() > 1 { "," } else { "" };
            let (name, value, base) = (shown.param.def().name, shown.value, shown.base);
            let (given, kept, live) = (number(shown.given), number(shown.kept), number(shown.live));
            let _ = write!(
                out,
                r#"{comma}{{"name":"{name}","value":{value},"base":{base},"given":{given},"kept":{kept},"live":{live}}}"#
            );
        }
        out.push(']');
        Ok(out)
    }

    /// Sets live values, or ends them: `NAME=NUMBER` or `NAME`, each on a line. All or none.
    pub(crate) fn set_params(&self, text: &[u8], cred: &Cred) -> Result<(), Fault> {
        if cred.uid != 0 {
            return Err(Fault::new(Code::Perm, "only root sets parameters of a mount"));
        }
        let invalid = || Fault::new(Code::Invalid, "parameters are lines of NAME=NUMBER, or NAME");
        let text = std::str::from_utf8(text).map_err(|_| invalid())?;
        let change = |line: &str| {
            let (name, value) = match line.split_once('=') {
                Some((name, number)) => (name, Some(number.parse().map_err(|_| invalid())?)),
                None => (line, None),
            };
            Ok(LiveParam { name: name.to_owned(), value })
        };
        let changes = text.lines().map(change).collect::<Result<Vec<_>, Fault>>()?;
        self.params().ok_or(Code::NoData)?.set(&changes, Scope::Client)?;
        tracing::info!(?changes, "parameters of this mount were set");
        Ok(())
    }
}
