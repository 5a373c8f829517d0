//! Memory held warm while something is measured: on virtual machines that give free pages back to their host, touching them again
//! costs seconds of CPU per GiB and swamps every figure. A process of ours holds all but about 1 GiB of free memory and gives
//! pieces back as the workload needs them.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Result;

const PIECE: usize = 128 << 20;
const LOW: u64 = 800 << 20;
const HIGH: u64 = 1300 << 20;

/// The holding process and the dirty limits as they were; both go back on drop.
pub struct Warm {
    child: Child,
    before: Vec<(String, String)>,
}

impl Warm {
    /// Starts the holder and pins the kernel's dirty limits, so that write-back starts at the same point on every run.
    pub fn start() -> Result<Warm> {
        let mut before = Vec::new();
        for (name, value) in [("dirty_bytes", 4800u64 << 20), ("dirty_background_bytes", 2400 << 20)] {
            for key in [name.to_owned(), name.replace("bytes", "ratio")] {
                let path = format!("/proc/sys/vm/{key}");
                before.push((path.clone(), fs::read_to_string(path)?));
            }
            fs::write(format!("/proc/sys/vm/{name}"), value.to_string())?;
        }
        let child =
            Command::new(std::env::current_exe()?).arg("hold-memory").stdin(Stdio::piped()).spawn()?;
        for _ in 0..600 {
            if free_bytes()? < HIGH + PIECE as u64 {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(Warm { child, before })
    }

    /// Waits until memory that the last step freed is held again.
    pub fn settle(&self) -> Result<()> {
        for _ in 0..30 {
            if free_bytes()? < HIGH + PIECE as u64 {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A limit in bytes and one as ratio exclude each other: writing 0 is refused, the other one resets it.
        for (path, value) in self.before.iter().filter(|(_, v)| v.trim() != "0") {
            let _ = fs::write(path, value);
        }
    }
}

fn free_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find(|l| l.starts_with("MemFree")).unwrap_or_default();
    Ok(line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) << 10)
}

/// The holder's life: ends when its standard input does, so never outlives its parent.
pub fn hold() -> Result<()> {
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    let _ = rustix::process::nice(-10);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    let mut held: Vec<Vec<u8>> = Vec::new();
    loop {
        let free = free_bytes()?;
        if free < LOW {
            let give = ((LOW - free) as usize / PIECE + 1).min(held.len());
            held.truncate(held.len() - give);
        } else if free > HIGH {
            let mut piece = vec![0u8; PIECE];
            // A zeroed allocation is untouched until written: touch each page.
            piece.chunks_mut(4096).for_each(|page| page[0] = 1);
            held.push(piece);
            continue;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
