//! Metrics of real processes, as Debian's Prometheus finds them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::{Role, Wiring};

use super::semantics::wait_until;
use super::sys::ensure_eq;
use super::{Bench, Needs, Test, skip};

pub const OWN: &[(Needs, Test)] =
    &[(Needs::Only(Wiring::Pair), ("metrics::prometheus_finds_every_documented_metric", scraped))];

const STOP_MAX: Duration = Duration::from_secs(20);
/// Metrics of routers and of fillings: unit tests have their samples.
const NOT_HERE: [&str; 5] = [
    "stria_router_circuits",
    "stria_router_bytes_total",
    "stria_router_stall_seconds_total",
    "stria_router_refused_total",
    "stria_mirror_filled_ratio",
];
/// Calls that a client, a mirror and the management service make.
const CALLS: [&str; 5] = ["Create", "Write", "Letters", "Register", "Attach"];

/// A process that ends with this value.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body of a page. HTTP 1.0 has no pieces.
pub(super) fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
    stream.set_read_timeout(Some(STOP_MAX))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no body")?;
    ensure!(head.contains(" 200 "), "{path}: {head}");
    Ok(body.to_owned())
}

/// The value of an instant query, summed.
fn query(prometheus: &str, words: &str) -> Result<f64> {
    let text = get(prometheus, &format!("/api/v1/query?query={words}"))?;
    let answer: serde_json::Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let samples = answer["data"]["result"].as_array().cloned().unwrap_or_default();
    let value = |sample: &serde_json::Value| sample["value"][1].as_str()?.parse::<f64>().ok();
    Ok(samples.iter().filter_map(value).sum())
}

fn config_of(role: Role) -> Option<String> {
    match role {
        Role::Mgs => Some("mgs.toml".into()),
        Role::Mds => Some("mds.toml".into()),
        Role::SecondMds => Some("mds2.toml".into()),
        Role::Oss(n) => Some(format!("oss{n}.toml")),
        Role::Mount => Some("mount.toml".into()),
        Role::All | Role::SecondMgs | Role::SecondMount => None,
    }
}

/// Every documented metric is on a page of some process, and Prometheus takes all pages, with the alert rules of the packages.
fn scraped(b: &mut Bench) -> Result<()> {
    // 1. Each process gets the key, as an administrator adds it.
    let free = || TcpListener::bind("127.0.0.1:0").context("a port");
    let roles: Vec<(Role, String)> =
        b.cluster.roles().into_iter().filter_map(|role| Some((role, config_of(role)?))).collect();
    let ports: Vec<TcpListener> = roles.iter().map(|_| free()).collect::<Result<_>>()?;
    let addresses: Vec<String> =
        ports.iter().map(|port| Ok(port.local_addr()?.to_string())).collect::<Result<_>>()?;
    drop(ports);
    for (role, _) in roles.iter().rev() {
        b.cluster.terminate(*role, STOP_MAX)?;
    }
    for ((_, config), address) in roles.iter().zip(&addresses) {
        let mut file = File::options().append(true).open(b.cluster.dir.join(config))?;
        writeln!(file, "metrics = \"{address}\"")?;
    }
    b.cluster.start_all()?;
    b.cluster.wait_in_sync()?;
    // 2. Some work, and one after another all pages.
    let dir = b.dir("metrics")?;
    for n in 0..20 {
        fs::write(dir.join(format!("f{n}")), vec![n; 1 << 20])?;
    }
    File::open(dir.join("f0"))?.sync_all()?;
    let pages: Vec<String> =
        addresses.iter().map(|address| get(address, "/metrics")).collect::<Result<_>>()?;
    let names: BTreeSet<&str> = pages
        .iter()
        .flat_map(|page| page.lines().filter(|line| !line.starts_with('#')))
        .map(|line| line.split(['{', ' ']).next().unwrap_or_default())
        .collect();
    let documented = fs::read_to_string("docs/metrics.md").context("run from the root of the checkout")?;
    let rows = documented.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let mut count = 0;
    for (name, rest) in rows {
        count += 1;
        let found = match rest.contains("| histogram |") {
            true => names.contains(&*format!("{name}_bucket")),
            false => names.contains(name),
        };
        ensure_eq(found, !NOT_HERE.contains(&name), name)?;
    }
    ensure!(count > 40, "docs/metrics.md has {count} rows");
    for call in CALLS {
        let counts = |page: &String| {
            page.lines().any(|line| {
                line.starts_with("stria_request_seconds_count{")
                    && line.contains(&format!("call=\"{call}\""))
                    && !line.ends_with(" 0")
            })
        };
        ensure!(pages.iter().any(counts), "no process has counted {call}");
    }
    let written = pages.iter().flat_map(|page| page.lines()).find_map(|line| {
        line.strip_prefix("stria_mount_bytes_total{operation=\"write\"} ")?.parse::<f64>().ok()
    });
    ensure!(written.is_some_and(|bytes| bytes >= 20.0 * f64::from(1 << 20)), "the mount wrote {written:?}");
    // 3. Prometheus.
    if Command::new("prometheus")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_err()
    {
        return skip("prometheus is not installed (package prometheus)");
    }
    let _prometheus = start_prometheus(b, &addresses)?;
    let at = fs::read_to_string(b.cluster.dir.join("prometheus.address"))?;
    let all = addresses.len() as f64;
    wait_until("Prometheus has scraped all processes", || Ok(query(&at, "up").is_ok_and(|up| up == all)))?;
    let capacity = query(&at, "count(stria_target_capacity_bytes)")?;
    // Each target has two members: the MDT and four OSTs.
    ensure_eq(capacity, 10.0, "targets with a size")?;
    ensure_eq(query(&at, "sum(stria_mirror_in_sync)")?, 10.0, "members in sync")?;
    let rules = get(&at, "/api/v1/rules")?;
    ensure!(rules.contains("StriaMirrorNotInSync") && !rules.contains("\"health\":\"err\""), "{rules}");
    Ok(())
}

fn start_prometheus(b: &Bench, addresses: &[String]) -> Result<Ending> {
    let dir = &b.cluster.dir;
    let rules: PathBuf = fs::canonicalize(Path::new("packaging/prometheus/stria.rules.yml"))?;
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\nscrape_configs:\n  - job_name: stria\n    static_configs: [{{targets: ['{}']}}]\n",
        rules.display(),
        addresses.join("', '")
    );
    let file = dir.join("prometheus.yml");
    fs::write(&file, config)?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    fs::write(dir.join("prometheus.address"), &address)?;
    let log = File::create(dir.join("prometheus.log"))?;
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", dir.join("prometheus").display()));
    command.arg(format!("--web.listen-address={address}"));
    let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
    Ok(Ending(child))
}
