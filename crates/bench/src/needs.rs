//! What steps of plans need, and whether it is there.

use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::plan::schema::Need;

/// What is missing, as a sentence for people; `None` if it is there.
pub fn missing(need: Need, dir: &Path) -> Option<String> {
    let program = |name: &str| {
        (!is_program(name))
            .then(|| format!("the program {name} is not there: install it, or run without this step"))
    };
    let part = |what: &str| Some(format!("{what}: this part does not exist yet"));
    match need {
        Need::Fio => program("fio"),
        Need::Ior => program("ior"),
        Need::Mdtest => program("mdtest"),
        Need::Iozone => program("iozone"),
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

fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
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
        assert!(is_program("sh") && !is_program("no-such-program"));
        let dir = std::env::temp_dir();
        assert!(missing(Need::Routers, &dir).is_some_and(|why| why.contains("routers")));
        assert_eq!(missing(Need::Uring, &dir), None);
    }
}
