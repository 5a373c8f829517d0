//! Samplers: commands that print a line of JSON with numbers now and then, beside the run.
//!
//! bench-SA1. A sampler that cannot be started, ends or prints no numbers is a warning of the record. It never fails a phase.
//! bench-SA2. A sample has the time at which its line came, since the run's begin, by this machine's clock.

pub mod flat;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::record::{Line, Samples, Warning};

/// Samples of one sampler in a run: a day at one a second. Later ones are dropped.
const SAMPLES_MAX: usize = 90_000;
/// Numbers in one line.
const FIELDS_MAX: usize = 512;
/// Output that stays open so long after its sampler was killed is left.
const END_WAIT: Duration = Duration::from_secs(1);
/// Of a message that a sampler left.
const WORDS_MAX: usize = 300;

/// All samplers of a run.
pub struct Samplers {
    all: Vec<Sampler>,
}

struct Sampler {
    shown: String,
    /// `None`: it could not be started, or its end was told.
    running: Option<Running>,
    samples: usize,
    /// The last line of its errors.
    said: String,
    warnings: Vec<String>,
}

struct Running {
    child: Child,
    heard: Receiver<Heard>,
    /// It was ended here: its end is no warning.
    is_over: bool,
}

enum Heard {
    Numbers(f64, Vec<(String, f64)>),
    /// A line without numbers.
    Words(String),
    /// A line of its errors.
    Error(String),
    Ended,
}

impl Samplers {
    /// `program` is started for the word `stria`. `begun`: the run's begin.
    pub fn start(commands: &[Vec<String>], program: &Path, begun: Instant) -> Samplers {
        Samplers { all: commands.iter().map(|words| Sampler::start(words, program, begun)).collect() }
    }

    /// New output since the last time, as lines of the record.
    pub fn drain(&mut self) -> Vec<Line> {
        self.all.iter_mut().flat_map(Sampler::drain).collect()
    }

    /// Ends them; the next `drain` has their last lines.
    pub fn end(&mut self) {
        self.all.iter_mut().for_each(Sampler::end);
    }
}

impl Sampler {
    fn start(words: &[String], program: &Path, begun: Instant) -> Sampler {
        let mut sampler = Sampler {
            shown: words.join(" "),
            running: None,
            samples: 0,
            said: String::new(),
            warnings: Vec::new(),
        };
        match Running::start(words, program, begun) {
            Ok(running) => sampler.running = Some(running),
            Err(error) => sampler.warn(&format!("it cannot be started: {error:#}")),
        }
        sampler
    }

    fn warn(&mut self, why: &str) {
        self.warnings.push(format!("sampler {}: {why}", self.shown));
    }

    fn drain(&mut self) -> Vec<Line> {
        let mut samples = Samples { sampler: self.shown.clone(), ..Samples::default() };
        let heard: Vec<Heard> = match &self.running {
            // The thread that listens ends with the output. Something in the background may hold that open.
            Some(Running { is_over: true, heard, .. }) => {
                std::iter::from_fn(|| heard.recv_timeout(END_WAIT).ok()).collect()
            }
            Some(running) => running.heard.try_iter().collect(),
            None => Vec::new(),
        };
        for heard in heard {
            match heard {
                Heard::Numbers(at, numbers) if self.samples < SAMPLES_MAX => {
                    self.samples += 1;
                    if self.samples == SAMPLES_MAX {
                        self.warn(&format!("only its first {SAMPLES_MAX} lines are kept"));
                    }
                    add(&mut samples, at, numbers);
                }
                Heard::Numbers(..) => {}
                Heard::Words(words) if self.warnings.is_empty() => {
                    self.warn(&format!("a line of it has no number: {words}"));
                }
                Heard::Words(_) => {}
                Heard::Error(line) => self.said = line,
                Heard::Ended if self.running.as_ref().is_some_and(|running| running.is_over) => {
                    if self.samples == 0 && self.warnings.is_empty() {
                        self.warn(&format!("it printed nothing{}", self.last_words()));
                    }
                }
                Heard::Ended => {
                    let status = self.running.take().and_then(|mut running| running.child.wait().ok());
                    let status = status.map(|status| format!(" ({status})")).unwrap_or_default();
                    self.warn(&format!("it ended during the run{status}{}", self.last_words()));
                }
            }
        }
        self.running.take_if(|running| running.is_over);
        let warnings = std::mem::take(&mut self.warnings).into_iter();
        let mut lines: Vec<Line> = warnings.map(|text| Line::Warning(Warning { text })).collect();
        if !samples.rows.is_empty() {
            lines.push(Line::Samples(samples));
        }
        lines
    }

    fn last_words(&self) -> String {
        if self.said.is_empty() { String::new() } else { format!("; it last said: {}", self.said) }
    }

    fn end(&mut self) {
        if let Some(running) = &mut self.running {
            running.is_over = true;
            running.end();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running {
            running.end();
        }
    }
}

impl Running {
    fn end(&mut self) {
        kill_process_group(Pid::from_child(&self.child), Signal::KILL).ok();
        self.child.wait().ok();
    }

    fn start(words: &[String], program: &Path, begun: Instant) -> anyhow::Result<Running> {
        let (first, arguments) = words.split_first().ok_or_else(|| anyhow::anyhow!("it has no word"))?;
        // The program itself, wherever it was started from.
        let program = if first == "stria" { program } else { Path::new(first) };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or_else(|| anyhow::anyhow!("its output is no pipe"))?;
        let (sender, heard) = channel();
        let (errors, said) = (child.stderr.take(), sender.clone());
        let errors = std::thread::Builder::new().name("samples-errors".into()).spawn(move || {
            let lines = errors.map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok);
            lines.for_each(|line| drop(said.send(Heard::Error(line.chars().take(WORDS_MAX).collect()))));
        })?;
        std::thread::Builder::new().name("samples".into()).spawn(move || {
            listen(BufReader::new(output), begun, &sender);
            // Its last words come before its end.
            errors.join().ok();
            sender.send(Heard::Ended).ok();
        })?;
        Ok(Running { child, heard, is_over: false })
    }
}

fn listen(output: impl BufRead, begun: Instant, to: &Sender<Heard>) {
    for line in output.lines().map_while(Result::ok) {
        let at = begun.elapsed().as_secs_f64();
        let numbers = flat::numbers(&line, FIELDS_MAX);
        let heard = match numbers.is_empty() {
            false => Heard::Numbers(at, numbers),
            true => Heard::Words(line.chars().take(WORDS_MAX).collect()),
        };
        if to.send(heard).is_err() {
            return;
        }
    }
}

/// A row of samples. Fields that no earlier line had come behind the others, which have no value for them.
fn add(samples: &mut Samples, at: f64, numbers: Vec<(String, f64)>) {
    let mut row = vec![None; samples.fields.len()];
    for (name, value) in numbers {
        let place = samples.fields.iter().position(|known| *known == name).unwrap_or_else(|| {
            samples.fields.push(name);
            row.push(None);
            samples.fields.len() - 1
        });
        row[place] = Some(value);
    }
    samples.rows.push((at, row));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        crate::hosts::words(text).unwrap()
    }

    /// Waits for the end of a sampler that ends by itself.
    fn run(text: &str) -> (Vec<Samples>, Vec<String>) {
        let mut samplers = Samplers::start(&[words(text)], Path::new("/bin/false"), Instant::now());
        let (mut samples, mut warnings) = (Vec::new(), Vec::new());
        while samplers.all[0].running.is_some() || !samplers.all[0].warnings.is_empty() {
            for line in samplers.drain() {
                match line {
                    Line::Samples(some) => samples.push(some),
                    Line::Warning(warning) => warnings.push(warning.text),
                    other => panic!("{other:?}"),
                }
            }
            std::thread::yield_now();
        }
        (samples, warnings)
    }

    #[test]
    fn numbers_are_kept_with_their_time_and_an_end_is_a_warning() {
        let (samples, warnings) = run(r#"printf '{"a":1,"b":{"c":2.5}}\n{"b":{"c":3},"d":4}\n'"#);
        let mut rows = Vec::new();
        for some in &samples {
            for (at, values) in &some.rows {
                assert!(*at >= 0.0);
                let named = some.fields.iter().cloned().zip(values.iter().copied());
                rows.push(named.filter_map(|(name, value)| Some((name, value?))).collect::<Vec<_>>());
            }
        }
        let named = |all: &[(&str, f64)]| all.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect::<Vec<_>>();
        assert_eq!(rows, [named(&[("a", 1.0), ("b.c", 2.5)]), named(&[("b.c", 3.0), ("d", 4.0)])]);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("it ended during the run (exit status: 0)"), "{warnings:?}");
    }

    #[test]
    fn a_sampler_that_does_not_work_is_a_warning() {
        let (samples, warnings) = run("no-such-sampler --interval 1");
        assert!(
            samples.is_empty() && warnings[0].contains("no-such-sampler --interval 1: it cannot be started")
        );
        let (_, warnings) = run("ls /no-such-dir");
        assert!(warnings[0].contains("it last said: ls: "), "{warnings:?}");
        let (_, warnings) = run("echo no numbers here");
        assert!(warnings[0].contains("has no number: no numbers here"), "{warnings:?}");
        let mut samplers = Samplers::start(&[words("sleep 1000")], Path::new("/"), Instant::now());
        assert_eq!(samplers.drain().len(), 0);
        samplers.end();
        let lines = samplers.drain();
        assert!(
            matches!(&lines[..], [Line::Warning(w)] if w.text.ends_with("it printed nothing")),
            "{lines:?}"
        );
    }
}
