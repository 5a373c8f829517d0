//! `stria ost waste`: the cost of sub-blocks of several sizes, by the engine's own allocator and without a medium.

use clap::Args;
use serde::Serialize;
use store::{MIXED_FILES, Mix, SubBlock};
use types::Size;
use types::size::human;

use crate::exit::{Exit, Failure};

/// Compare what a mix of files takes on an OST with sub-blocks as large as each write needs, and with fixed ones as other file systems
/// have them. Sizes are log-uniform: each doubling has as many files. Nothing is written.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria ost waste\nExample: stria ost waste --files 1000000 --min 4K --max 1M -j"
)]
pub struct Waste {
    #[arg(long, value_name = "N", default_value_t = MIXED_FILES.files, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    files: u64,
    /// Smallest file.
    #[arg(long, value_name = "SIZE", default_value_t = Size(MIXED_FILES.bytes_min))]
    min: Size,
    /// Largest file.
    #[arg(long, value_name = "SIZE", default_value_t = Size(MIXED_FILES.bytes_max))]
    max: Size,
    /// Files written at once.
    #[arg(long, value_name = "N", default_value_t = MIXED_FILES.streams as u64, value_parser = clap::value_parser!(u64).range(1..=1000))]
    streams: u64,
    /// Fixed sub-blocks to compare with: powers of two, 8K to 8M, separated by commas.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "8K,16K,32K,128K,256K")]
    sub_blocks: Vec<Size>,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

/// The result of one sub-block size.
#[derive(Debug, Serialize)]
struct Line {
    /// 0: as large as each write needs.
    sub_block_bytes: u64,
    bytes_stored: u64,
    bytes_allocated: u64,
    waste_percent: f64,
    fragments_per_file: f64,
}

/// The largest file: the imagined medium must have room for all files.
const BYTES_MAX: u64 = 1 << 30;

impl Waste {
    pub fn run(self) -> anyhow::Result<Exit> {
        if self.min.0 == 0 || self.min.0 > self.max.0 || self.max.0 > BYTES_MAX {
            let next = "give --min of 1 byte or more, and --max of that or more and 1G at most";
            return Err(Failure::unusable("waste", "these sizes are no range", next).into());
        }
        let mix = Mix {
            files: self.files,
            bytes_min: self.min.0,
            bytes_max: self.max.0,
            streams: self.streams as usize,
            ..MIXED_FILES
        };
        let mut lines = vec![self.line(&mix, SubBlock::default(), 0)];
        for size in &self.sub_blocks {
            let Some(sub_block) = SubBlock::of_bytes(size.0).filter(|s| *s != SubBlock::default()) else {
                let next = "give powers of two from 8K to 8M";
                return Err(Failure::unusable(human(size.0), "this is no fixed sub-block", next).into());
            };
            lines.push(self.line(&mix, sub_block, size.0));
        }
        match self.json {
            true => outln!("{}", serde_json::to_string_pretty(&lines)?),
            false => self.print(&lines),
        }
        Ok(Exit::Done)
    }

    fn line(&self, mix: &Mix, sub_block: SubBlock, sub_block_bytes: u64) -> Line {
        let w = mix.store(sub_block);
        Line {
            sub_block_bytes,
            bytes_stored: w.bytes_stored,
            bytes_allocated: w.bytes_allocated,
            waste_percent: w.percent(),
            fragments_per_file: w.fragments as f64 / self.files as f64,
        }
    }

    fn print(&self, lines: &[Line]) {
        let (min, max) = (human(self.min.0), human(self.max.0));
        outln!(
            "{} files of {min} to {max}, log-uniform, {} written at once: {} stored",
            self.files,
            self.streams,
            human(lines[0].bytes_stored)
        );
        outln!("{:<16}{:>12}{:>12}{:>10}{:>18}", "SUB-BLOCK", "ALLOCATED", "WASTE", "", "FRAGMENTS/FILE");
        for l in lines {
            let name = if l.sub_block_bytes == 0 { "as needed".into() } else { human(l.sub_block_bytes) };
            let waste = human(l.bytes_allocated - l.bytes_stored);
            let (allocated, percent) = (human(l.bytes_allocated), l.waste_percent);
            outln!("{name:<16}{allocated:>12}{waste:>12}{percent:>8.2} %{:>18.2}", l.fragments_per_file);
        }
    }
}
