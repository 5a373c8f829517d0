//! What tools say on their standard output.
//!
//! A reader that has seen enough closes its end (`stria fsck | head`): that ends the tool quietly. `print!` would panic.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::process::exit;

use crate::exit::Exit;

/// As `print!`, but the tool ends when nobody reads any more.
macro_rules! out {
    ($($what:tt)*) => { $crate::output::write(format_args!($($what)*)) };
}
/// As `println!`, but the tool ends when nobody reads any more.
macro_rules! outln {
    ($($what:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($what)*))) };
}

/// Only for commands that hold nothing: where it ends the process, nothing is dropped.
pub fn write(what: Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    if let Err(e) = stdout.write_fmt(what).and_then(|()| stdout.flush()) {
        if e.kind() != ErrorKind::BrokenPipe {
            eprintln!("stria: standard output: {e}; check where it goes");
        }
        // What was asked for was not told whole.
        exit(Exit::Findings as i32);
    }
}
