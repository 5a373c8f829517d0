//! The schedule of the sides on the device.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use net::Server;
use types::Word;

use super::client::{Client, Talk};
use super::ext4::OnExt4;
use super::load::{Figure, World};
use super::plain::{Echo, Table};
use super::rig::Rig;
use super::rows::{Row, Work};
use super::table::Line;
use super::together::connections;
use super::tree::Tree;
use crate::memory;

/// Bytes of the device for each inode of the ext4.
pub const INODE_BYTES: u64 = 4096;
/// Inodes for directories and for the file system itself.
const INODES_SPARE: u64 = 4096;
/// Sequences reserved for a client; no row sends more requests by one slot.
const SEQUENCES: u32 = 1 << 26;

pub struct Turns {
    pub device: PathBuf,
    pub device_bytes: u64,
    pub rows: Vec<&'static Row>,
    pub tree: Tree,
    /// Memory for the MDT's records.
    pub cache_bytes: u64,
    pub pairs: u32,
    pub seconds: f64,
    pub has_ext4: bool,
    pub addresses: bool,
    pub stop: Arc<AtomicBool>,
}

/// The side that has the device. It keeps the device if the next turn is its own again, and makes no new tree.
enum Holder {
    Nobody,
    Mdt(Box<Rig>),
    Ext4(Box<World<OnExt4>>),
}

impl Turns {
    /// Runs all turns; returns the lines and the notes to print.
    pub fn run(mut self) -> anyhow::Result<(Vec<Line>, Vec<String>)> {
        let mut lines: Vec<Line> =
            self.rows.iter().map(|row| Line { row, ours: vec![], other: vec![] }).collect();
        let (mut holder, mut notes, mut starts) = (Holder::Nobody, Vec::new(), Vec::new());
        self.has_ext4 &= self.rows.iter().any(|row| row.has_ext4());
        for turn in 0..self.pairs {
            // MDT, ext4, then ext4, MDT: drift of the machine affects both alike.
            for is_mdt in if turn % 2 == 0 { [true, false] } else { [false, true] } {
                if is_mdt {
                    self.mdt_turn(turn, &mut holder, &mut lines, &mut starts)?;
                } else if self.has_ext4
                    && let Err(error) = self.ext4_turn(turn, &mut holder, &mut lines)
                {
                    self.check_stop()?;
                    if turn > 0 {
                        return Err(error.context("ext4"));
                    }
                    // ext4 needs root and mkfs.ext4; the MDT does not.
                    notes.push(format!("only the MDT's side: {error:#}"));
                    self.has_ext4 = false;
                }
            }
        }
        let entries = self.tree.entries;
        let (start, list) =
            (span(starts.iter().map(|(start, _)| *start)), span(starts.iter().map(|(_, list)| *list)));
        notes.push(format!(
            "a start after a clean stop, with {entries} files: {start} s; the first listing of all after it, by one thread: {list} s"
        ));
        Ok((lines, notes))
    }

    /// Without the time for making trees and removing files.
    pub fn seconds_expected(&self) -> f64 {
        let runs = |row: &&Row| match row.work {
            Work::Scaling { .. } => 4.0,
            _ if row.has_ext4() && !self.has_ext4 => 1.0,
            _ => 2.0,
        };
        f64::from(self.pairs) * self.seconds * self.rows.iter().copied().map(|row| runs(&row)).sum::<f64>()
    }

    fn files_max(&self) -> u64 {
        (self.device_bytes / INODE_BYTES).saturating_sub(self.tree.entries + INODES_SPARE) / 2
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn mdt_turn(
        &self,
        turn: u32,
        holder: &mut Holder,
        lines: &mut [Line],
        starts: &mut Vec<(f64, f64)>,
    ) -> anyhow::Result<()> {
        if !matches!(holder, Holder::Mdt(_)) {
            // The previous holder gives the device back first.
            *holder = Holder::Nobody;
            let rig =
                Rig::make(&self.device, self.tree, self.files_max(), self.cache_bytes, self.stop.clone());
            let rig = rig.context("the MDT")?;
            self.check_stop()?;
            starts.push((rig.start_seconds, rig.world.warm()?));
            if self.addresses {
                tell_words(&rig.served.words());
            }
            *holder = Holder::Mdt(Box::new(rig));
        }
        let Holder::Mdt(rig) = holder else { bail!("the MDT has the device") };
        for line in lines {
            self.check_stop()?;
            rig.settle()?;
            let row = line.row;
            let (mut ours, other) = match row.work {
                Work::Scaling { made_per_second } => self.scaling(rig, made_per_second, turn)?,
                _ if row.is_tcp() => self.tcp(rig, row, turn)?,
                _ => (rig.world.measure(row, self.time(), turn.into())?, None),
            };
            self.check_stop()?;
            ours.memory_bytes = memory::resident();
            tell("MDT", line, &ours);
            line.ours.push(ours);
            if let Some(other) = other {
                tell(row.against.title(), line, &other);
                line.other.push(other);
            }
        }
        rig.world.clear()
    }

    fn ext4_turn(&self, turn: u32, holder: &mut Holder, lines: &mut [Line]) -> anyhow::Result<()> {
        if !matches!(holder, Holder::Ext4(_)) {
            *holder = Holder::Nobody;
            let inodes = self.device_bytes / INODE_BYTES;
            let side = OnExt4::make(&self.device, inodes, self.tree, &self.stop)?;
            let world = World::new(side, self.tree, self.files_max(), true, self.stop.clone());
            world.warm()?;
            *holder = Holder::Ext4(Box::new(world));
        }
        let Holder::Ext4(world) = holder else { bail!("ext4 has the device") };
        for line in lines.iter_mut().filter(|line| line.row.has_ext4()) {
            self.check_stop()?;
            super::tree::Side::flush(&world.side)?;
            let mut figure = world.measure(line.row, self.time(), turn.into())?;
            figure.memory_bytes = world.side.memory_bytes();
            self.check_stop()?;
            tell("ext4", line, &figure);
            line.other.push(figure);
        }
        world.clear()
    }

    /// Alternates one and two threads, on the MDT and on a hash table.
    fn scaling(&self, rig: &mut Rig, per_second: u32, turn: u32) -> anyhow::Result<(Figure, Option<Figure>)> {
        let table = Table::new(self.tree.entries);
        let (time, seed) = (self.time(), turn.into());
        let ((ours, other), made) = rig.world.beside_writer(per_second, |world| {
            let one = world.stat(1, time, seed)?;
            let one_other = table.looks(1, time, seed, &self.stop)?;
            let two_other = table.looks(2, time, seed, &self.stop)?;
            let two = world.stat(2, time, seed)?;
            Ok((scaled(one, two), scaled(one_other, two_other)))
        })?;
        let beside = |figure| Figure { made_per_second: made, ..figure };
        Ok((beside(ours), Some(beside(other))))
    }

    /// A client process calls a server in this process: the MDT, and one that only replies.
    fn tcp(&self, rig: &mut Rig, row: &Row, turn: u32) -> anyhow::Result<(Figure, Option<Figure>)> {
        let creates = row.work == Work::Create;
        let server = Server::listen("127.0.0.1:0", rig.served.hub.clone())?;
        let echo = Echo::listen()?;
        rig.clients += 1;
        let to_mdt = Client {
            address: server.nid(),
            talk: if creates { Talk::Create } else { Talk::Stat },
            connections: connections(row.threads, row.together, creates),
            together: row.together,
            seconds: self.seconds,
            seed: turn.into(),
            entries: self.tree.entries,
            files_max: self.files_max(),
            session: rig.world.side.session.0,
            sequence: rig.clients.wrapping_mul(SEQUENCES),
            request_bytes: 0,
            reply_bytes: 0,
        };
        let to_mdt = to_mdt.with_sizes(super::asked::sizes(&rig.world.side, creates)?);
        let (address, talk, connections) = (echo.address.clone(), Talk::Echo, row.threads);
        let to_echo = Client { address, talk, connections, ..to_mdt.clone() };
        // Later sequences of this process come after all that the client will use.
        rig.world.side.raise(to_mdt.sequence.wrapping_add(SEQUENCES / 2));
        if turn.is_multiple_of(2) {
            let ours = to_mdt.started()?;
            return Ok((ours, Some(to_echo.started()?)));
        }
        let other = to_echo.started()?;
        Ok((to_mdt.started()?, Some(other)))
    }

    fn check_stop(&self) -> anyhow::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("stopped by a signal; the content of the device is useless");
        }
        Ok(())
    }
}

/// From the least to the greatest.
fn span(seconds: impl Iterator<Item = f64> + Clone) -> String {
    let [low, high] = [f64::min, f64::max].map(|of| seconds.clone().reduce(of).unwrap_or(0.0));
    format!("{low:.2} to {high:.2}")
}

/// The speed of two threads relative to one; all other fields are of two threads.
fn scaled(one: Figure, two: Figure) -> Figure {
    Figure { value: two.value / one.value, ..two }
}

/// In words of 8 bytes, the unit that a breakpoint watches.
fn tell_words(words: &[Word]) {
    eprintln!("process {}", std::process::id());
    for Word { name, address, bytes } in words {
        for piece in (address & !7..address + bytes).step_by(8) {
            eprintln!("mem:{piece:#x}/8:w {name}");
        }
    }
}

/// Shows progress.
fn tell(side: &str, line: &Line, figure: &Figure) {
    let row = line.row;
    eprintln!("{side:<10} {:<38} {:>12.2} {}", row.title, figure.value, row.unit());
}
