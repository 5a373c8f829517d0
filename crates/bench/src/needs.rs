//! Checks whether the needs of plan steps are met on this machine.

use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::plan::schema::{Need, Quantities, Quantity};
use crate::plan::{Environment, Program};
use crate::tools::Found;

/// Describes an unmet need for the user; `None` if it is met.
pub fn missing(need: Need, dir: &Path, environment: &Environment, found: &mut Found) -> Option<String> {
    let mut program = |program: Program| match found.here(program) {
        Some(_) => None,
        None => Some(format!(
            "the program {} is not there: install it, or run without this step",
            program.title()
        )),
    };
    let part = |what: &str| Some(format!("{what}: this part does not exist yet"));
    match need {
        Need::Fio => program(Program::Fio),
        Need::Ior => program(Program::Ior),
        Need::Mdtest => program(Program::Mdtest),
        Need::Iozone => program(Program::Iozone),
        Need::Hosts => (environment.hosts < 2)
            .then(|| "one host has all workers: name several with --hosts and --launch".into()),
        Need::Routers => (!has_routers(environment))
            .then(|| "no routers are between clients and servers: if there are, say --set routers=1".into()),
        Need::Mirrors => part("mirrors"),
        Need::Preload => part("the preload library"),
        Need::TwoFileSystems => (environment.file_systems < 2)
            .then(|| "one file system is given: name a directory on each of two with --dir".into()),
        Need::Direct => (!takes_direct(dir)).then(|| "the file system refuses O_DIRECT".into()),
        Need::Uring => {
            ring::Ring::new(1, 4096).err().map(|error| format!("io_uring is not to be had here: {error}"))
        }
    }
}

/// Only the user knows the way of the network; the number of routers is a label of the run.
fn has_routers(environment: &Environment) -> bool {
    let said = environment.overrides.get("routers");
    matches!(said, Some(Quantities::One(Quantity::Whole(routers))) if *routers > 0)
}

fn takes_direct(dir: &Path) -> bool {
    let path = dir.join(format!("stria-bench.{}.direct", std::process::id()));
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT;
    let opened = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
    std::fs::remove_file(&path).ok();
    opened.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found_and_what_is_not_is_named() {
        let (dir, mut found) = (std::env::temp_dir(), Found::default());
        let mut environment = Environment::default();
        let given = [Need::Routers, Need::Hosts, Need::TwoFileSystems];
        for (need, word) in given.into_iter().zip(["--set routers=1", "--hosts", "--dir"]) {
            let why = missing(need, &dir, &environment, &mut found);
            assert!(why.is_some_and(|why| why.contains(word)), "{need:?}");
        }
        (environment.hosts, environment.file_systems) = (2, 2);
        environment.overrides.insert("routers".into(), Quantities::One(Quantity::Whole(1)));
        assert!(given.iter().all(|need| missing(*need, &dir, &environment, &mut found).is_none()));
        assert_eq!(missing(Need::Uring, &dir, &environment, &mut found), None);
        // Whichever of them this machine has.
        for (need, program) in [(Need::Fio, Program::Fio), (Need::Iozone, Program::Iozone)] {
            let why = missing(need, &dir, &environment, &mut found);
            let is_here = crate::tools::found(program);
            assert_eq!(found.here(program), is_here.as_deref());
            match is_here {
                Some(version) => assert!(why.is_none() && version.starts_with(program.title())),
                None => assert!(why.is_some_and(|why| why.contains(program.title()))),
            }
        }
    }
}
