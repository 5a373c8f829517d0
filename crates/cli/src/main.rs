//! `stria`: every server, the mount and every tool of the file system, in one binary.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should"))]

#[macro_use]
mod output;
mod claims;
mod cluster;
mod cmd;
mod config;
mod detach;
mod df;
mod exit;
mod logs;
mod memory;
mod mountlog;
mod mounts;
mod nets;
mod options;
mod reach;
mod rundir;
mod scratch;
mod serve;
mod shell;
mod space;
mod stop;
#[cfg(test)]
mod testdir;
mod tls;
mod xattr;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = cmd::arguments(std::env::args_os().collect());
    let ended = match cmd::Guard::asked(&args) {
        Some(guard) => guard.run(),
        None => cmd::Cli::parse_from(args).command.run(),
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(err) => {
            logs::tell(&format!("stria: {}", exit::line_of(&err)));
            exit::code_of(&err).into()
        }
    }
}
