//! Options of measurements whose workers are on hosts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bench::crew::Root;
use bench::hosts::{self, Command, HOST, Hosts, SILENCE};
use clap::Args;

/// How this program reaches a host if the user does not say.
const LAUNCH: &str = "ssh {host}";
/// Words that make this program a host's end.
pub const SERVE: [&str; 2] = ["bench", "host"];

#[derive(Debug, Default, Args)]
pub struct HostArgs {
    /// Hosts whose workers take part, with commas between: h1,h2. Without it the workers are on this machine.
    #[arg(long, value_name = "HOSTS")]
    pub hosts: Option<String>,
    /// The command that reaches a host; {host} is its name. It is split into words as by a shell, and started without one [default:
    /// "ssh {host}"].
    #[arg(long, value_name = "COMMAND")]
    pub launch: Option<String>,
    /// Path of stria on the hosts [default: that of this program].
    #[arg(long, value_name = "PATH")]
    pub host_program: Option<PathBuf>,
    /// A host that says nothing for so long fails its phase [default: 30].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(3..=86_400))]
    pub host_timeout: Option<u64>,
}

/// The hosts of a run, with the command as it was given.
pub struct Given {
    pub hosts: Option<Hosts>,
    pub launch: String,
}

impl HostArgs {
    /// The hosts of these options, or else of the plan.
    pub fn given(&self, of_plan: &[String], launch_of_plan: Option<&str>, program: &Path) -> Result<Given> {
        let names = match &self.hosts {
            Some(text) => hosts::names(text).context("--hosts")?,
            None => of_plan.to_vec(),
        };
        let launch = self.launch.as_deref().or(launch_of_plan).unwrap_or(LAUNCH).to_owned();
        if names.is_empty() {
            let options = [self.launch.is_some(), self.host_program.is_some(), self.host_timeout.is_some()];
            anyhow::ensure!(
                !options.contains(&true),
                "--launch and the like are for hosts: name some with --hosts"
            );
            return Ok(Given { hosts: None, launch });
        }
        hosts::check_names(&names).context("hosts")?;
        let program = self.host_program.clone().unwrap_or_else(|| program.to_owned());
        let command = Command::new(&launch, names.len(), program, &SERVE).context("--launch")?;
        let hosts = Hosts {
            names,
            dial: Arc::new(command),
            silence: self.host_timeout.map_or(SILENCE, Duration::from_secs),
            version: env!("CARGO_PKG_VERSION").into(),
        };
        Ok(Given { hosts: Some(hosts), launch })
    }
}

/// A directory to measure. With `{host}` in it this program uses the first host's.
pub fn root(dir: &Path, hosts: Option<&Hosts>) -> Result<Root> {
    let text = dir.display().to_string();
    let first = hosts.and_then(|hosts| hosts.names.first());
    let here = match (text.contains(HOST), first) {
        (false, _) => dir.to_owned(),
        (true, Some(first)) => PathBuf::from(hosts::on_host(&text, first)),
        (true, None) => anyhow::bail!("--dir {text}: {HOST} is for hosts: name some with --hosts"),
    };
    let on_hosts = std::path::absolute(dir).with_context(|| text.clone())?.display().to_string();
    Ok(Root { here, on_hosts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_those_of_the_options_or_else_of_the_plan() {
        let of_plan = ["p1".to_owned()];
        let program = Path::new("/usr/bin/stria");
        let args = HostArgs { hosts: Some("h1,h2".into()), ..HostArgs::default() };
        let given = args.given(&of_plan, Some("srun -w {host}"), program).unwrap();
        assert_eq!((given.hosts.unwrap().names.len(), given.launch.as_str()), (2, "srun -w {host}"));
        let given = HostArgs::default().given(&of_plan, None, program).unwrap();
        let hosts = given.hosts.unwrap();
        assert_eq!((hosts.names[0].as_str(), hosts.dial.shown("p1").as_str()), ("p1", "ssh p1"));
        assert!(HostArgs::default().given(&[], None, program).unwrap().hosts.is_none());
        let lone = HostArgs { launch: Some("ssh {host}".into()), ..HostArgs::default() };
        assert!(lone.given(&[], None, program).is_err());
        let one =
            HostArgs { launch: Some("ssh h1".into()), hosts: Some("h1,h2".into()), ..HostArgs::default() };
        assert!(one.given(&[], None, program).is_err_and(|why| format!("{why:#}").contains("{host}")));
    }

    #[test]
    fn a_directory_of_each_host_is_the_first_ones_here() {
        let hosts = HostArgs { hosts: Some("h1,h2".into()), ..HostArgs::default() };
        let hosts = hosts.given(&[], None, Path::new("stria")).unwrap().hosts;
        let found = root(Path::new("/mnt/{host}/fs1"), hosts.as_ref()).unwrap();
        assert_eq!((found.here.to_str(), found.on_hosts.as_str()), (Some("/mnt/h1/fs1"), "/mnt/{host}/fs1"));
        assert!(root(Path::new("/mnt/{host}"), None).is_err());
        assert_eq!(root(Path::new("/mnt/fs"), None).unwrap().on_hosts, "/mnt/fs");
    }
}
