//! A progress line on stderr; nothing if that is no terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::kind::Kind;

pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub fn new(wanted: bool, samples: usize) -> Progress {
        let target = if wanted { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(samples as u64), target);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed}, about {eta} left)");
        bar.set_style(style.expect("the template is fixed and tested"));
        Progress { bar }
    }

    pub fn begin(&self, kind: Kind, repeat: usize, repeats: usize) {
        self.bar.set_message(format!("{}, {repeat} of {repeats}", kind.title()));
    }

    pub fn step(&self) {
        self.bar.inc(1);
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
