//! The `srv6d` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    srv6d::cli::main()
}
