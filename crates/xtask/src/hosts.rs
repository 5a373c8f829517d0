//! `cargo xtask hosts`: a site of several hosts (`testkit::hosts`) for a command or for a person.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use signal_hook::consts::{SIGINT, SIGTERM};
use testkit::hosts::{Part, Plan, Site};

/// The one cluster; its file systems are `fs0`, `fs1` and so on.
const CLUSTER: &str = "alpha";
/// The host of the management service.
const MGS_HOST: &str = "m0";
const LOOK_EACH: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
#[command(after_help = "\
Without routers, clients are on all nets, and the file systems take turns among the nets, or are on all with --rails. With routers, clients are on tcp0 only, file
systems on the other nets, and routers on all.

The command and its environment: STRIA_BIN, STRIA_SITE (the directory with configurations and logs), STRIA_MGS, STRIA_TLS (an administrator's
certificate, or off), STRIA_HOSTS, STRIA_CLIENTS and STRIA_MOUNTS (lists with spaces). And for each host, as for c0: ON_c0 (begins a command
line that runs there), NS_c0 (its namespace), ADDR_c0 (its addresses) and MOUNT_c0 (its mounts, in the order of file systems).

Example: cargo xtask hosts
Example: cargo xtask hosts --clients 4 --rate 100 -- fio --directory=... job.fio
Example: cargo xtask hosts -- sh -c '$ON_c0 $STRIA_BIN status --mgs $STRIA_MGS'")]
pub struct Settings {
    /// Nets, tcp0 and so on [default: 1, 2 with routers or rails].
    #[arg(long)]
    nets: Option<usize>,
    /// Client hosts; each mounts every file system.
    #[arg(long, default_value_t = 2)]
    clients: usize,
    /// Server hosts of each file system; the first also has its MDS.
    #[arg(long, default_value_t = 2)]
    servers: usize,
    /// File systems, all with one management service.
    #[arg(long, default_value_t = 1)]
    fs: usize,
    /// Router hosts between the clients' net and the others.
    #[arg(long, default_value_t = 0)]
    routers: usize,
    /// Every host is on every net, so that servers have several rails. Without routers.
    #[arg(long)]
    rails: bool,
    /// Limit of each host's link in MiB/s, each direction by itself [default: none].
    #[arg(long, value_name = "MiB/s")]
    rate: Option<u64>,
    /// Connections without TLS.
    #[arg(long)]
    no_tls: bool,
    /// OSTs of each server.
    #[arg(long, default_value_t = 2)]
    osts: usize,
    /// Size of each OST, a sparse file.
    #[arg(long, default_value = "4G")]
    ost_size: String,
    /// Where configurations, logs and images lie; default: a directory below the system's temporary one.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// A command to run, on no host; the site ends with it.
    #[arg(last = true)]
    command: Vec<String>,
}

pub fn run(bin: &Path, settings: &Settings) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let plan = settings.plan()?;
    let mut site = Site::make(bin, &super::work_dir(settings.dir.clone()), plan)?;
    for host in site.hosts().hosts() {
        for net in host.nets() {
            site.hosts().set_rate(host.name(), net, settings.rate)?;
        }
    }
    site.start_all()?;
    print!("{}", table(&site)?);
    println!("configurations and logs: {}", site.dir().display());
    let outcome = match settings.command.split_first() {
        Some((program, args)) => {
            let mut command = Command::new(program);
            command.args(args).envs(environment(&site)?);
            let child = command.spawn().with_context(|| program.clone())?;
            wait_for(child, &stop).and_then(|status| match status.success() {
                true => Ok(()),
                false => bail!("{program}: {status}"),
            })
        }
        None => wait_for_person(&site, &stop),
    };
    let is_interrupted = stop.load(Ordering::SeqCst);
    let parts = match is_interrupted {
        // Ctrl-C has reached all processes of the terminal.
        true => Ok(()),
        false => site.ensure_all_run().and_then(|()| site.stop_all()),
    };
    outcome.and(parts)
}

impl Settings {
    fn plan(&self) -> Result<Plan> {
        let nets = self.nets.unwrap_or(if self.routers > 0 || self.rails { 2 } else { 1 });
        ensure!(nets > 0, "--nets 0: hosts need a net");
        ensure!(self.routers == 0 || nets > 1, "--routers join nets: give --nets 2 or more");
        ensure!(self.routers == 0 || !self.rails, "--rails and --routers: give one of the two");
        ensure!(
            self.fs > 0 && self.servers > 0,
            "a site needs a file system and a server: --fs 1 --servers 1"
        );
        let nets: Vec<String> = (0..nets).map(|n| format!("tcp{n}")).collect();
        let nets: Vec<&str> = nets.iter().map(String::as_str).collect();
        let (client_nets, server_nets) = match self.routers {
            0 => (&nets[..], &nets[..]),
            _ => nets.split_at(1),
        };
        let mut plan = Plan::new().osts(self.osts, &self.ost_size);
        if self.no_tls {
            plan = plan.without_tls();
        }
        plan = self.client_hosts().iter().fold(plan, |plan, host| plan.host(host, client_nets));
        plan = self.router_hosts().iter().fold(plan, |plan, host| plan.host(host, &nets).router(host));
        // Nets without a file system need no management service.
        let used = &server_nets[..server_nets.len().min(self.fs)];
        plan = plan.host(MGS_HOST, used).cluster(CLUSTER, MGS_HOST);
        for n in 0..self.fs {
            let fs = format!("{CLUSTER}/fs{n}");
            let hosts: Vec<String> =
                (0..self.servers).map(|m| format!("s{}", n * self.servers + m)).collect();
            let on = if self.rails { server_nets } else { &server_nets[n % used.len()..][..1] };
            plan = hosts.iter().fold(plan, |plan, host| plan.host(host, on));
            let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
            plan = plan.fs(&fs, hosts[0], &hosts);
            plan = self.client_hosts().iter().fold(plan, |plan, host| plan.mount(&fs, host));
        }
        Ok(plan)
    }

    fn client_hosts(&self) -> Vec<String> {
        (0..self.clients).map(|n| format!("c{n}")).collect()
    }
    fn router_hosts(&self) -> Vec<String> {
        (0..self.routers).map(|n| format!("r{n}")).collect()
    }
}

/// A line per host.
fn table(site: &Site) -> Result<String> {
    let mut rows = vec![["host", "namespace", "addresses", "runs", "mounts"].map(str::to_owned)];
    for host in site.hosts().hosts() {
        let parts = site.running_on(host.name());
        let runs: Vec<String> = parts.iter().map(|part| format!("{} {}", part.verb(), place(part))).collect();
        rows.push([
            host.name().to_owned(),
            host.namespace().to_owned(),
            addresses(site, host.name())?.join(" "),
            runs.join(", "),
            mounts(site, host.name())?.join(" "),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    Ok(rows.iter().map(line).collect())
}

fn place(part: &Part) -> &str {
    let (cluster, name) = part.place();
    name.or(cluster).unwrap_or_default()
}

/// `10.0.0.1@tcp0` for each net of a host.
fn addresses(site: &Site, host: &str) -> Result<Vec<String>> {
    let host = site.host(host)?;
    host.nets().map(|net| Ok(format!("{}@{net}", host.address(net)?))).collect()
}

fn mounts(site: &Site, host: &str) -> Result<Vec<String>> {
    let parts = site.plan().parts();
    let of_host = parts.iter().filter_map(|part| match part {
        Part::Mount { fs, host: at } if at == host => Some(fs),
        _ => None,
    });
    of_host.map(|fs| Ok(site.mount(fs, host)?.display().to_string())).collect()
}

fn environment(site: &Site) -> Result<BTreeMap<String, String>> {
    let mut variables = BTreeMap::new();
    let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);
    let (mut hosts, mut clients, mut all_mounts) = (Vec::new(), Vec::new(), Vec::new());
    for host in site.hosts().hosts() {
        let (name, mounts) = (host.name(), mounts(site, host.name())?);
        set(&format!("NS_{name}"), host.namespace().to_owned());
        set(&format!("ON_{name}"), prefix(site, name)?);
        set(&format!("ADDR_{name}"), addresses(site, name)?.join(" "));
        hosts.push(name.to_owned());
        if !mounts.is_empty() {
            set(&format!("MOUNT_{name}"), mounts.join(" "));
            clients.push(name.to_owned());
        }
        all_mounts.extend(mounts);
    }
    set("STRIA_HOSTS", hosts.join(" "));
    set("STRIA_CLIENTS", clients.join(" "));
    set("STRIA_MOUNTS", all_mounts.join(" "));
    set("STRIA_MGS", site.plan().nids(&Part::mgs(CLUSTER))?.join(","));
    set("STRIA_TLS", site.administrator(CLUSTER)?.display().to_string());
    set("STRIA_BIN", site.bin().display().to_string());
    set("STRIA_SITE", site.dir().display().to_string());
    Ok(variables)
}

/// Begins a command line that runs on a host. Not `ip netns exec`, which hides the mounts that are made there.
fn prefix(site: &Site, host: &str) -> Result<String> {
    let nets = site.plan().nets_of(host).join(",");
    // Without spaces, since the shell takes the value apart.
    let routes: Vec<String> =
        site.plan().routes()?.iter().map(|route| format!("{}={}", route.to, route.gateway)).collect();
    let (routes, namespace) = (routes.join(";"), site.host(host)?.namespace());
    Ok(format!("nsenter --net=/run/netns/{namespace} -- env STRIA_NETS={nets} STRIA_ROUTES={routes}"))
}

/// Ctrl-C reaches the command by the terminal, and another signal is passed on to it.
fn wait_for(mut child: Child, stop: &AtomicBool) -> Result<ExitStatus> {
    let mut is_told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.load(Ordering::SeqCst) && !is_told {
            let pid = rustix::process::Pid::from_raw(child.id() as i32).context("pid")?;
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
            is_told = true;
        }
        std::thread::sleep(LOOK_EACH);
    }
}

/// Waits for Enter or a signal. The end of the input is no Enter: a site in the background waits for a signal.
fn wait_for_person(site: &Site, stop: &AtomicBool) -> Result<()> {
    if let Some(host) = site.hosts().hosts().first() {
        println!("a command on {}: {} COMMAND", host.name(), prefix(site, host.name())?);
    }
    println!("press Enter to take everything down");
    let (said, enter) = mpsc::channel();
    std::thread::Builder::new().name("enter".into()).spawn(move || {
        if io::stdin().read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0) {
            said.send(()).ok();
        }
    })?;
    while !stop.load(Ordering::SeqCst) {
        match enter.recv_timeout(LOOK_EACH) {
            Ok(()) => break,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK_EACH),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    fn plan(args: &[&str]) -> Result<Plan> {
        let line = <Line as clap::Parser>::parse_from([&["hosts"], args].concat());
        line.settings.plan().and_then(|plan| plan.check().map(|()| plan))
    }

    #[test]
    fn without_routers_every_client_is_on_every_net() {
        let plan = plan(&["--nets", "2", "--fs", "3", "--servers", "1", "--clients", "1"]).unwrap();
        assert_eq!(plan.spec().hosts().collect::<Vec<_>>(), ["c0", "m0", "s0", "s1", "s2"]);
        let nets = |host| plan.nets_of(host).join(" ");
        assert_eq!([nets("c0"), nets("m0")], ["tcp0 tcp1", "tcp0 tcp1"]);
        assert_eq!([nets("s0"), nets("s1"), nets("s2")], ["tcp0", "tcp1", "tcp0"]);
    }

    #[test]
    fn with_rails_every_host_is_on_every_net() {
        let plan = plan(&["--rails", "--fs", "2", "--servers", "1", "--clients", "1"]).unwrap();
        for host in ["c0", "s0", "s1"] {
            assert_eq!(plan.nets_of(host).join(" "), "tcp0 tcp1", "{host}");
        }
    }

    #[test]
    fn routers_stand_between_the_clients_net_and_the_servers_nets() {
        let plan = plan(&["--routers", "1", "--nets", "3", "--servers", "1", "--clients", "1"]).unwrap();
        let nets = |host| plan.nets_of(host).join(" ");
        assert_eq!([nets("c0"), nets("r0")], ["tcp0", "tcp0 tcp1 tcp2"]);
        assert_eq!([nets("m0"), nets("s0")], ["tcp1", "tcp1"]);
    }

    #[test]
    fn a_site_that_cannot_be_is_refused() {
        let refused = |args: &[&str]| plan(args).unwrap_err().to_string();
        assert!(refused(&["--routers", "1", "--nets", "1"]).contains("--nets 2"));
        assert!(refused(&["--routers", "1", "--rails"]).contains("give one of the two"));
        assert!(refused(&["--nets", "0"]).contains("hosts need a net"));
        assert!(refused(&["--fs", "0"]).contains("needs a file system"));
    }
}
