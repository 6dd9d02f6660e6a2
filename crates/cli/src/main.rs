//! The `rxsteer` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    rxsteer::run(std::env::args_os()).into()
}
