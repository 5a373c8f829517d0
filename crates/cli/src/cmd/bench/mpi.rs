//! `stria bench ior` and `stria bench mdtest`: the command lines of these programs, without MPI.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use bench::crew::{Crew, Stopped};
use bench::mpi::ior::Ior;
use bench::mpi::mdtest::Mdtest;
use bench::mpi::{Bench, Form, Page, Refused};
use clap::Args;

use crate::exit::{Exit, Failure};

/// IOR's command line: -a POSIX -w -r -b -t -s -F -o -e -C -k -i and others; -np N says how many workers. Prints IOR's table.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria bench ior -np 8 -a POSIX -w -r -F -C -e -t 1m -b 1g -o /mnt/stria/file
         stria bench ior -np 4 -w -k -z -t 4k -b 64m --posix.odirect -o /mnt/stria/file
docs/bench-tools.md lists the options that are understood."
)]
pub struct IorArgs {
    /// IOR 4's JSON, as `-O summaryFormat=JSON`; before IOR's own options.
    #[arg(short = 'j', long)]
    json: bool,
    /// As IOR takes them; sizes with k, m, g. -np N: workers, which are processes of this host.
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
    options: Vec<String>,
}

/// mdtest's command line: -d -n -I -b -z -L -u -F -D -w -e -y -N -i -C -T -E -r and others; -np N says how many workers. Prints its table.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria bench mdtest -np 8 -d /mnt/stria/md -i 1 -b 16 -z 1 -L -I 1024 -y -u -t -F -w 4K -e 4K
         stria bench mdtest -np 16 -d /mnt/stria/md -i 2 -n 1000 -u
docs/bench-tools.md lists the options that are understood."
)]
pub struct MdtestArgs {
    /// JSON output; before mdtest's own options.
    #[arg(short = 'j', long)]
    json: bool,
    /// As mdtest takes them; sizes with K, M, G. -np N: workers, which are processes of this host.
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
    options: Vec<String>,
}

impl IorArgs {
    pub fn run(self) -> anyhow::Result<Exit> {
        let json = self.json.then(|| ["-O", "summaryFormat=JSON"].map(String::from)).into_iter().flatten();
        let options: Vec<String> = self.options.into_iter().chain(json).collect();
        let ior = Ior::parse(&options).map_err(|e| said("bench ior", e))?;
        with_workers("bench ior", |bench| ior.run(bench))
    }
}

impl MdtestArgs {
    pub fn run(self) -> anyhow::Result<Exit> {
        let mdtest = Mdtest::parse(&self.options).map_err(|e| said("bench mdtest", e))?;
        let form = if self.json { Form::Json } else { Form::Table };
        with_workers("bench mdtest", |bench| mdtest.run(bench, form))
    }
}

/// Adds the next step to an error that names none.
fn said(what: &str, error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Refused>() {
        Ok(Refused { why, next }) => Failure::unusable(what, why, next).into(),
        Err(error) => error,
    }
}

fn with_workers(what: &str, run: impl FnOnce(&mut Bench<'_>) -> anyhow::Result<()>) -> anyhow::Result<Exit> {
    refuse_mpi(what, |name| std::env::var_os(name).is_some())?;
    let stop = Arc::new(AtomicBool::new(false));
    super::stop_by_signals(&stop)?;
    let program = std::env::current_exe().context("finding this program")?;
    let workers = super::run::workers(&program);
    let mut crew = Crew::new(workers, PathBuf::from("/"), stop);
    let command: Vec<String> = std::env::args().collect();
    let mut page = std::io::stdout().lock();
    let mut bench =
        Bench { runner: &mut crew, page: Page { to: &mut page }, command: bench::tools::quoted(&command) };
    match run(&mut bench) {
        Ok(()) => Ok(Exit::Done),
        // The partial result is printed, but the run is incomplete.
        Err(error) if error.is::<Stopped>() => {
            Err(Failure::failed(what, "stopped by a signal", "the table has what was measured until then")
                .into())
        }
        Err(error) => Err(said(what, error)),
    }
}

/// Under mpirun each task would start its own workers, and measure all others with them.
fn refuse_mpi(what: &str, is_set: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    match ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"].into_iter().find(|name| is_set(name)) {
        None => Ok(()),
        Some(name) => Err(Failure::unusable(
            what,
            format!("it was started by mpirun ({name} is set), once for each task"),
            "start it without mpirun; -np N gives it N workers",
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ior: IorArgs,
    }

    #[test]
    fn options_with_dashes_of_all_kinds_pass_as_they_are() {
        let words = ["-posix", "-vv", "-np", "4", "-b=1m", "--posix.odirect", "-h", "-o", "/d/f", "-C"];
        let line = Line::try_parse_from(["ior"].into_iter().chain(words));
        assert_eq!(line.map_err(|e| e.to_string()).unwrap_or_else(|e| panic!("{e}")).ior.options, words);
    }

    #[test]
    fn json_before_the_options_is_ours() {
        let line =
            Line::try_parse_from(["ior", "-j", "-np", "2", "-j", "1"]).unwrap_or_else(|e| panic!("{e}"));
        assert!(line.ior.json && line.ior.options == ["-np", "2", "-j", "1"], "{:?}", line.ior);
    }

    #[test]
    fn under_mpirun_it_says_what_to_do() {
        assert!(refuse_mpi("bench ior", |_| false).is_ok());
        let error = refuse_mpi("bench ior", |name| name == "PMI_SIZE").unwrap_err();
        assert_eq!(crate::exit::code_of(&error), Exit::Unusable);
        assert!(error.to_string().contains("-np N"), "{error}");
    }

    #[test]
    fn an_option_that_is_not_understood_is_an_unusable_command() {
        let options = vec!["-c".to_owned()];
        let error = IorArgs { json: false, options }.run().unwrap_err();
        assert_eq!(crate::exit::code_of(&error), Exit::Unusable);
        assert!(error.to_string().starts_with("bench ior: -c is not understood here; "), "{error}");
    }
}
