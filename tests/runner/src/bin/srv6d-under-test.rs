//! The `srv6d` command as a program of this package: cargo builds programs for the tests of their own package only.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    srv6d::cli::main()
}
