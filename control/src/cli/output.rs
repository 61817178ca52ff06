//! What commands print, and how they fail.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use serde::Serialize;
use srv6d_controller::text::escaped_lines;

use crate::api::client::AskError;
use crate::daemon::RunError;

/// The run failed.
const FAILED: u8 = 1;
/// Wrong usage, or an invalid configuration.
const INVALID: u8 = 2;
/// It is not running (the Linux Standard Base's status of a service).
const STOPPED: u8 = 3;

/// Why a command did not do what it was told, as it is printed on standard error.
#[derive(Debug)]
pub struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// The run failed: exit status 1.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: FAILED }
    }

    /// The configuration or the usage is at fault: exit status 2.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: INVALID }
    }

    /// Everything is said already: exit status 1 and no more words.
    pub fn silent() -> Self {
        Self::failed("")
    }

    /// Everything is said and done already: exit status 0.
    pub fn done() -> Self {
        Self { message: String::new(), status: 0 }
    }

    /// What is asked about does not run: exit status 3, as init scripts have it.
    pub fn stopped() -> Self {
        Self { message: String::new(), status: STOPPED }
    }

    /// Prints it, and says the exit status.
    pub fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            let mut stderr = io::stderr().lock();
            // Nobody is left to be told that standard error is closed.
            drop(writeln!(stderr, "{}", escaped_lines(self.message.trim_end())));
        }
        ExitCode::from(self.status)
    }
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        Self::failed(format!("error: {error}"))
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            // Diagnostics begin with "error:" themselves, each with its place.
            RunError::Invalid(_) => Self::invalid(error.to_string()),
            RunError::Unreadable { .. } => Self::invalid(format!("error: {error}")),
            _ => Self::failed(format!("error: {error}")),
        }
    }
}

/// Prints `text`. A reader that has seen enough (`srv6d show ports | head -1`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    print_on(text).map(drop)
}

/// The same, where more is to come. False: the reader has seen enough.
pub fn print_on(text: &str) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::failed(format!("error: cannot write to standard output: {error}"))),
    }
}

/// Prints `value` as indented JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::failed(format!("error: cannot write JSON: {error}")))?;
    print(&format!("{text}\n"))
}

/// Writes a long `value` as JSON while it is made, on one line.
pub fn write_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    let written = serde_json::to_writer(&mut stdout, value).map_err(io::Error::from);
    match written.and_then(|()| writeln!(stdout)).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("error: cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
