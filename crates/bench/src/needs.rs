//! Checks whether the needs of plan steps are met on this machine.

use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::plan::Program;
use crate::plan::schema::Need;
use crate::tools::Found;

/// Describes an unmet need for the user; `None` if it is met.
pub fn missing(need: Need, dir: &Path, found: &mut Found) -> Option<String> {
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
        Need::Hosts => part("workers on several hosts"),
        Need::Routers => part("routers between networks"),
        Need::Mirrors => part("mirrors"),
        Need::Preload => part("the preload library"),
        Need::TwoFileSystems => part("two file systems at once"),
        Need::Direct => (!takes_direct(dir)).then(|| "the file system refuses O_DIRECT".into()),
        Need::Uring => {
            ring::Ring::new(1, 4096).err().map(|error| format!("io_uring is not to be had here: {error}"))
        }
    }
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
        assert!(missing(Need::Routers, &dir, &mut found).is_some_and(|why| why.contains("routers")));
        assert_eq!(missing(Need::Uring, &dir, &mut found), None);
        // Whichever of them this machine has.
        for (need, program) in [(Need::Fio, Program::Fio), (Need::Iozone, Program::Iozone)] {
            let why = missing(need, &dir, &mut found);
            let is_here = crate::tools::found(program);
            assert_eq!(found.here(program), is_here.as_deref());
            match is_here {
                Some(version) => assert!(why.is_none() && version.starts_with(program.title())),
                None => assert!(why.is_some_and(|why| why.contains(program.title()))),
            }
        }
    }
}
