//! The report of `stria up`: what is up, where its files are, and how to go on.

use std::path::Path;

use serde::Serialize;

use super::{Up, pair};
use crate::cluster::Cluster;
use crate::cmd::status;
use crate::rundir::RunDir;
use crate::shell;
use types::size::human;

/// The report of a file system that is up.
#[derive(Debug, Serialize)]
pub struct Started {
    fsname: String,
    dir: String,
    state: &'static str,
    pid: u32,
    /// Duration of the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    mount: Option<String>,
    log: String,
    /// The page of metrics of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    targets: Vec<Made>,
    /// Processes of a pair.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<pair::Process>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Made {
    name: String,
    /// Size of the image, which takes space on the disk as it fills.
    bytes: u64,
    image: String,
}

impl Started {
    pub fn lines(&self, json: bool) -> Vec<String> {
        if json {
            return vec![serde_json::to_string(self).expect("its fields have a JSON form")];
        }
        let (dir, name) = (&self.dir, &self.fsname);
        let mut lines = vec![match self.seconds {
            Some(seconds) => format!("{} file system '{name}' in {dir} ({seconds:.1} s)", self.state),
            None => format!("file system '{name}' in {dir} is up already, served by pid {}", self.pid),
        }];
        lines.extend(self.targets.iter().map(|t| {
            let short = t.name.rsplit('-').next().unwrap_or(&t.name);
            format!("  {short:<7}  {:>7}  {}", human(t.bytes), t.image)
        }));
        lines.extend(self.servers.iter().map(|server| format!("  {server}")));
        lines.push(match &self.mount {
            Some(mount) => format!("  mounted on {mount}"),
            None => "  not mounted (no --mount)".into(),
        });
        lines.push(format!("  log        {}", self.log));
        lines.extend(self.metrics.iter().map(|address| format!("  metrics    {address}")));
        let dir = shell::word(&self.dir);
        lines.push(format!("look with: stria status --dir {dir}   stop with: stria down --dir {dir}"));
        lines
    }
}

/// Where a page of metrics is.
pub fn address(page: &watch::Page) -> String {
    format!("http://{}/metrics", page.address())
}

impl Up {
    pub(super) fn started(
        &self,
        cluster: &Cluster,
        run: &RunDir,
        state: &'static str,
        pid: u32,
        mount: Option<&Path>,
        notes: Vec<String>,
    ) -> Started {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let of_one = (cluster.mdts + cluster.osts).max(1);
        let targets = cluster.images(&self.dir).into_iter().zip(0..).map(|(image, n)| {
            let n = n % of_one;
            let (is_mdt, index, bytes) = match u32::checked_sub(n, cluster.mdts) {
                None => (true, n, cluster.mdt_size.0),
                Some(index) => (false, index, cluster.ost_size.0),
            };
            Made { name: status::target_name(&cluster.fsname, is_mdt, index), bytes, image: text(&image) }
        });
        Started {
            fsname: cluster.fsname.clone(),
            dir: text(&self.dir),
            state,
            pid,
            seconds: None,
            metrics: None,
            mount: mount.map(text),
            log: text(&run.log()),
            targets: targets.collect(),
            servers: vec![],
            notes,
        }
    }
}
