//! The standard output of tools.
//!
//! A reader may close its end early (`stria fsck
//! head`): the tool then ends quietly, where `print!` would panic.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::process::exit;

use crate::exit::Exit;

/// As `print!`, but the tool ends when its reader is gone.
macro_rules! out {
    ($($what:tt)*) => { $crate::output::write(format_args!($($what)*)) };
}
/// As `println!`, but the tool ends when its reader is gone.
macro_rules! outln {
    ($($what:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($what)*))) };
}

/// Only for commands that hold no resources: if it ends the process, no destructor runs.
pub fn write(what: Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    if let Err(e) = stdout.write_fmt(what).and_then(|()| stdout.flush()) {
        if e.kind() != ErrorKind::BrokenPipe {
            eprintln!("stria: standard output: {e}; check where it goes");
        }
        // The output is incomplete.
        exit(Exit::Findings as i32);
    }
}
