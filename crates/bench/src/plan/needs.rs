//! What a step needs, and what of it this machine has not got. Needs of the measured file system are known only where it is.

use std::os::unix::fs::PermissionsExt;

use super::schema::{Need, Step};

impl Need {
    /// As plans write it.
    pub fn word(self) -> &'static str {
        match self {
            Need::Fio => "fio",
            Need::Ior => "ior",
            Need::Mdtest => "mdtest",
            Need::Iozone => "iozone",
            Need::Hosts => "hosts",
            Need::Routers => "routers",
            Need::Mirrors => "mirrors",
            Need::Preload => "preload",
            Need::TwoFileSystems => "two-file-systems",
            Need::Direct => "direct",
            Need::Uring => "uring",
        }
    }

    /// Why it is not there, as far as this machine alone tells.
    pub fn missing(self) -> Option<String> {
        match self {
            Need::Fio | Need::Ior | Need::Mdtest | Need::Iozone => {
                (!is_program(self.word())).then(|| format!("the program {} is not installed", self.word()))
            }
            Need::Hosts => Some("workers run on one host".into()),
            Need::Routers => Some("there are no routers".into()),
            Need::Mirrors => Some("there are no mirrors".into()),
            Need::Preload => Some("there is no preload library".into()),
            Need::TwoFileSystems => Some("one file system is measured at a time".into()),
            Need::Direct | Need::Uring => None,
        }
    }
}

/// Why the step cannot be run here: all reasons, or nothing.
pub fn missing(step: &Step) -> Option<String> {
    let reasons: Vec<String> = step.needs.iter().filter_map(|need| need.missing()).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

fn is_program(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |path: &std::path::Path| {
        path.metadata().is_ok_and(|at| at.is_file() && at.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&paths).any(|dir| is_there(&dir.join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_plans() {
        let all = [
            (Need::Fio, "fio"),
            (Need::TwoFileSystems, "two-file-systems"),
            (Need::Direct, "direct"),
            (Need::Iozone, "iozone"),
        ];
        for (need, word) in all {
            assert_eq!(serde_json::to_value(need).unwrap(), word);
            assert_eq!(need.word(), word);
        }
        assert!(is_program("sh") && !is_program("no-such-program"));
    }
}
