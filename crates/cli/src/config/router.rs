//! The configuration of `stria router`.

use std::path::PathBuf;

use net::nid::Nid;
use serde::{Deserialize, Serialize};

use super::{Config, check_mgs, key, metrics_key, toml_of};
use crate::nets::Nets;
use crate::serve::metrics::check_address;

/// Circuits at once, unless the configuration says otherwise.
const CIRCUITS_MAX: u32 = 16_384;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Router {
    pub listen: Vec<String>,
    #[serde(default = "dir")]
    pub dir: PathBuf,
    #[serde(default = "circuits_max")]
    pub circuits_max: u32,
    #[serde(default)]
    pub routes: Vec<String>,
    #[serde(default)]
    pub metrics: Option<String>,
    pub cluster: Vec<Cluster>,
}

/// A cluster whose hosts may pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    pub mgs: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
}

fn dir() -> PathBuf {
    "/var/lib/stria/router".into()
}
fn circuits_max() -> u32 {
    CIRCUITS_MAX
}

impl Config for Router {
    fn example() -> Router {
        Router {
            listen: vec!["127.0.0.1:7020@tcp0".into(), "127.0.0.1:7021@tcp1".into()],
            dir: dir(),
            circuits_max: CIRCUITS_MAX,
            routes: vec![],
            metrics: None,
            cluster: vec![Cluster { mgs: vec!["127.0.0.1:7010@tcp1".into()], tls: None }],
        }
    }

    fn print(&self) -> String {
        let head = "# stria router --config FILE: joins nets; hosts reach servers on another net through it (docs/routers.md).\n\n";
        let comment = "One address for each net that it joins: address:port@net.";
        let listen = key(comment, "listen", toml_of(&self.listen));
        let comment = "Directory of its control socket, and of the cluster maps that it knew last.";
        let dir = key(comment, "dir", toml_of(&self.dir));
        let circuits =
            key("Circuits at once: each connection through it is one.", "circuits_max", self.circuits_max);
        let comment = "Ways to management services by other routers: \"tcp2 via 10.1.0.9:7020@tcp1\".";
        let routes = key(comment, "routes", toml_of(&self.routes));
        let mut out = [head, &*listen, &dir, &circuits, &routes, &metrics_key(&self.metrics)].concat();
        out += "# Clusters whose hosts may pass. `mgs`: NIDs of a management service. `tls`: folder with this router's certificate of\n\
                # that cluster (`stria cluster add-node HOST --role router`), or \"off\". Default: /etc/stria/tls if it is there, else off.\n";
        for cluster in &self.cluster {
            out += &format!("[[cluster]]\nmgs = {}\n", toml_of(&cluster.mgs));
            out += &match &cluster.tls {
                Some(dir) => format!("tls = {}\n\n", toml_of(dir)),
                None => "# tls = \"/etc/stria/tls\"\n\n".to_owned(),
            };
        }
        out
    }

    fn check(&self) -> Result<(), String> {
        for address in &self.listen {
            Nid::parse(address).map_err(|e| format!("`listen`: {e}"))?;
            if !address.contains('@') || address.starts_with("unix:") {
                return Err(format!("`listen`: {address:?} has no net; write address:port@net"));
            }
        }
        if self.listen.len() < 2 {
            return Err("`listen` must have an address on each of two nets at least".to_owned());
        }
        if self.circuits_max == 0 {
            return Err("`circuits_max` is 0: no host could pass".to_owned());
        }
        if self.cluster.is_empty() {
            return Err("there is no [[cluster]]: no host could pass".to_owned());
        }
        Nets::of(&[], &self.routes)?;
        check_address(self.metrics.as_ref())?;
        self.cluster.iter().try_for_each(|cluster| check_mgs(&cluster.mgs))
    }
}
