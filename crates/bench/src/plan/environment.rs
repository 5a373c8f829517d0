//! The machine that a plan is expanded for: memory, processors, files or devices to be used, values set by hand.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::schema::{Quantities, Quantity};

/// What a plan is expanded for.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Bytes of memory.
    pub ram: u64,
    pub cpus: u32,
    /// Files or devices that `files = "given"` means, absolute, and the bytes of the smallest. Their content is overwritten.
    pub targets: Vec<PathBuf>,
    pub target_bytes: u64,
    /// `--set threads=1,2,4`: over what the scale says.
    pub overrides: BTreeMap<String, Quantities>,
}

impl Environment {
    /// This machine.
    pub fn here() -> Environment {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Environment { ram: memory_bytes().unwrap_or(1 << 30), cpus, ..Environment::default() }
    }

    pub fn with_targets(mut self, targets: &[PathBuf]) -> Result<Environment> {
        for target in targets {
            let path = target.canonicalize().with_context(|| target.display().to_string())?;
            let bytes = bytes_of(&path).with_context(|| path.display().to_string())?;
            ensure!(bytes > 0, "{} has no bytes: give it the length that is to be used", path.display());
            self.target_bytes = if self.targets.is_empty() { bytes } else { self.target_bytes.min(bytes) };
            self.targets.push(path);
        }
        Ok(self)
    }

    /// `threads=1,2,4` or `total=8G`.
    pub fn set(&mut self, text: &str) -> Result<()> {
        let (name, values) = text.split_once('=').with_context(|| format!("'{text}' is not NAME=VALUE"))?;
        let mut values: Vec<Quantity> = values.split(',').map(|value| quantity(value.trim())).collect();
        let value =
            if values.len() == 1 { Quantities::One(values.remove(0)) } else { Quantities::Many(values) };
        self.overrides.insert(name.trim().to_string(), value);
        Ok(())
    }
}

fn quantity(text: &str) -> Quantity {
    let real = || text.parse().ok().filter(|_| text.starts_with(|c: char| c.is_ascii_digit()));
    match text.parse() {
        Ok(whole) => Quantity::Whole(whole),
        Err(_) => real().map_or_else(|| Quantity::Text(text.to_string()), Quantity::Real),
    }
}

fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix("kB")?;
    Some(kib.trim().parse::<u64>().ok()? * 1024)
}

/// By its end: a block device's length is not in its attributes.
fn bytes_of(path: &Path) -> Result<u64> {
    Ok(File::open(path)?.seek(SeekFrom::End(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_set_as_numbers_sizes_and_lists() {
        let mut environment = Environment::default();
        for text in ["threads=1,2, 4", "total=8G", "share=0.5", "ram = 7"] {
            environment.set(text).unwrap();
        }
        let many = [1, 2, 4].map(Quantity::Whole).to_vec();
        assert_eq!(environment.overrides["threads"], Quantities::Many(many));
        assert_eq!(environment.overrides["total"], Quantities::One(Quantity::Text("8G".into())));
        assert_eq!(environment.overrides["share"], Quantities::One(Quantity::Real(0.5)));
        assert_eq!(environment.overrides["ram"], Quantities::One(Quantity::Whole(7)));
        assert!(environment.set("threads").is_err());
    }

    #[test]
    fn this_machine_has_memory_and_targets_their_smallest_length() {
        assert!(Environment::here().ram > 1 << 20 && Environment::here().cpus > 0);
        let dir = std::env::temp_dir().join(format!("stria-bench-targets.{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let paths = [dir.join("a"), dir.join("b")];
        std::fs::write(&paths[0], vec![0; 9000]).unwrap();
        std::fs::write(&paths[1], vec![0; 5000]).unwrap();
        let environment = Environment::default().with_targets(&paths).unwrap();
        assert_eq!((environment.targets.len(), environment.target_bytes), (2, 5000));
        std::fs::write(&paths[1], []).unwrap();
        assert!(Environment::default().with_targets(&paths).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
