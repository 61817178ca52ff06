//! The `srv6d` command once more: cargo builds the programs of a package for its own tests only.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    srv6d::cli::main()
}
