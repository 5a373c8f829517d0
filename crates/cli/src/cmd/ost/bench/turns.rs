//! The schedule of the sides on the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};

use super::device::Written;
use super::engine::{Devices, Rig};
use super::fio::Fio;
use super::load::Figure;
use super::rows::{self, Row, Work};
use super::state::State;
use super::table::Line;

/// fio's soaks are shorter than the engine's: fio defers no work.
const FIO_SOAK_SHARE: f64 = 1.0 / 6.0;
/// The share of the soak time for a full or aged OST.
const STATE_SOAK_SHARE: f64 = 1.0 / 4.0;

pub struct Turns {
    pub devices: Devices,
    pub rows: Vec<&'static Row>,
    /// Bytes of the object, or of the span on the bare device.
    pub size: u64,
    pub pairs: u32,
    pub seconds: f64,
    pub soak_seconds: f64,
    pub states: Vec<State>,
    /// Operations that age an OST.
    pub age: u64,
    pub has_fio: bool,
    pub stop: Arc<AtomicBool>,
}

impl Turns {
    /// Runs all turns; returns the lines and the notes to print.
    pub fn run(&self) -> anyhow::Result<(Vec<Line>, Vec<String>)> {
        let mut lines = Vec::new();
        let mut notes = Vec::new();
        for state in [State::Fresh, State::Full, State::Aged].into_iter().filter(|s| self.states.contains(s))
        {
            let begin = lines.len();
            let empty = |row: &&'static Row| Line { row, state, engine: vec![], fio: vec![] };
            lines.extend(self.rows.iter().map(empty));
            for turn in 0..self.turns(state) {
                let lines = &mut lines[begin..];
                // Engine, fio, then fio, engine: drift of the machine affects both alike.
                let has_fio = self.has_fio && state == State::Fresh;
                if has_fio && turn % 2 == 1 {
                    self.fio_turn(turn, lines, &mut notes)?;
                }
                self.engine_turn(state, turn, lines)
                    .with_context(|| format!("the engine, {}", state.title()))?;
                if has_fio && turn % 2 == 0 {
                    self.fio_turn(turn, lines, &mut notes)?;
                }
            }
        }
        Ok((lines, notes))
    }

    /// Without the time for making and removing things.
    pub fn seconds_expected(&self) -> f64 {
        let of_state = |state: &State| {
            let sides = if self.has_fio && *state == State::Fresh { 2.0 } else { 1.0 };
            let soaks = self.rows.iter().filter(|r| r.is_soak()).count() as f64;
            let others = self.rows.len() as f64 - soaks;
            let soak = self.soak(*state) + (sides - 1.0) * self.soak_seconds * FIO_SOAK_SHARE;
            f64::from(self.turns(*state)) * sides * others * self.seconds + soaks * soak
        };
        self.states.iter().map(of_state).sum()
    }

    /// Half as many turns without a partner: they are compared with many fresh ones.
    fn turns(&self, state: State) -> u32 {
        if state == State::Fresh { self.pairs } else { self.pairs.div_ceil(2) }
    }

    fn soak(&self, state: State) -> f64 {
        self.soak_seconds * if state == State::Fresh { 1.0 } else { STATE_SOAK_SHARE }
    }

    fn engine_turn(&self, state: State, turn: u32, lines: &mut [Line]) -> anyhow::Result<()> {
        let written = Written::of(&self.devices)?;
        let rig = Rig::make(&self.devices, self.size, self.stop.clone())?;
        rig.prepare(state, self.age)?;
        self.check_stop()?;
        // The row that writes in order leaves the data that the others need, if it is long enough.
        if lines.first().is_some_and(|line| line.row.work != Work::Write) {
            rig.fill()?;
        }
        let mut is_half_full = false;
        for line in lines.iter_mut().filter(|line| turn == 0 || !line.row.is_soak()) {
            let row = line.row;
            // A burst begins with an empty log; a soak continues where a burst ended.
            if row.work == Work::Burst || (row.is_soak() && !is_half_full) {
                rig.settle()?;
            }
            if row.is_soak() && !is_half_full {
                rig.measure(rows::burst(), Duration::from_secs_f64(self.seconds), u64::MAX)?;
            }
            is_half_full = row.work == Work::Burst || row.is_soak();
            let seconds = if row.is_soak() { self.soak(state) } else { self.seconds };
            let before = written.bytes();
            let mut figure = rig.measure(row, Duration::from_secs_f64(seconds), turn.into())?;
            self.check_stop()?;
            figure.device_bytes = written.bytes().zip(before).map(|(after, before)| after - before);
            self.tell("engine", line, &figure);
            line.engine.push(figure);
            if row.work == Work::Write && row.name == "seq-write" {
                rig.fill()?;
            }
        }
        rig.end()
    }

    fn fio_turn(&self, turn: u32, lines: &mut [Line], notes: &mut Vec<String>) -> anyhow::Result<()> {
        let fio = Fio::new(&self.devices.main, self.size);
        fio.fill()?;
        for line in lines.iter_mut().filter(|line| turn == 0 || !line.row.is_soak()) {
            self.check_stop()?;
            let row = line.row;
            let seconds = if row.is_soak() { self.soak_seconds * FIO_SOAK_SHARE } else { self.seconds };
            match fio.measure(row, Duration::from_secs_f64(seconds), turn.into()) {
                Ok(figure) => {
                    self.tell("fio", line, &figure);
                    line.fio.push(figure);
                }
                // This row needs an ext4 and root; the others do not.
                Err(error) if row.work == Work::WriteFlush => {
                    notes.push(format!("{}: only the engine's side: {error:#}", row.title));
                }
                Err(error) => return Err(error.context(row.title)),
            }
        }
        Ok(())
    }

    fn check_stop(&self) -> anyhow::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("stopped by a signal; the content of the device is useless");
        }
        Ok(())
    }

    /// Shows progress.
    fn tell(&self, side: &str, line: &Line, figure: &Figure) {
        let row = line.row;
        let (value, unit) = (figure.value(row.unit), row.unit.name());
        eprintln!("{:<12} {side:<7} {:<38} {value:>10.1} {unit}", line.state.title(), row.title);
    }
}
