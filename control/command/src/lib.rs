//! What the commands of srv6d share: output, failures with their exit status, files that a user names, and captures.

#![forbid(unsafe_code)]

pub mod capture;
pub mod output;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use clap::builder::FalseyValueParser;

pub use output::Failure;

/// Name of the environment variable for `--unconfined`.
pub const UNCONFINED: &str = "SRV6D_UNCONFINED";

/// Options about the privileges that a daemon keeps.
#[derive(Debug, Args)]
pub struct Privileges {
    /// Keep all privileges: no capabilities are given up, and there is no seccomp filter
    #[arg(long, env = UNCONFINED, value_parser = FalseyValueParser::new())]
    pub unconfined: bool,
}

/// Returns a flag that these signals set, in place of ending the process.
///
/// # Errors
/// The kernel does not let them be handled.
pub fn stop_flag(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, Arc::clone(&flag))
            .map_err(|why| Failure::failed(format!("error: cannot handle signals: {why}")))?;
    }
    Ok(flag)
}

/// The reason why a file that the user has named cannot be read, and the fix.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// The reason, which names the file.
    pub what: String,
    /// The fix.
    pub fix: &'static str,
}

impl From<Unreadable> for Failure {
    fn from(Unreadable { what, fix }: Unreadable) -> Self {
        Self::invalid(format!("error: {what}\nfix: {fix}"))
    }
}

/// Reads a file that the user has named.
///
/// # Errors
/// It cannot be read, or is no text.
pub fn read(file: &Path) -> Result<String, Unreadable> {
    srv6d_text::read_text_or_pipe(file).map_err(|error| {
        let fix = match error.kind() {
            ErrorKind::InvalidData => "name a file of text, in UTF-8",
            ErrorKind::InvalidInput => "name a file of text of at most 16 MiB",
            _ => "name a file that exists and can be read",
        };
        Unreadable { what: format!("cannot read {}: {error}", file.display()), fix }
    })
}
