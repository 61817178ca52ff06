//! Output of commands, and their failures.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;
use srv6d_text::{escaped_json, escaped_lines, escaped_output};

use srv6d_api::client::AskError;
use srv6d_daemon::RunError;

/// Exit status: the command failed.
const FAILED: u8 = 1;
/// Exit status: wrong usage, or an invalid configuration.
const INVALID: u8 = 2;
/// Exit status: the daemon is not running (as the Linux Standard Base defines it for a service).
const STOPPED: u8 = 3;

/// The reason why a command failed, as printed on standard error, and its exit status.
#[derive(Debug)]
pub struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// Makes a failure with exit status 1: the command failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: FAILED }
    }

    /// Makes a failure with exit status 2: the configuration or the usage is at fault.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: INVALID }
    }

    /// Makes a failure with exit status 1 and without a message, because everything has been printed already.
    pub fn silent() -> Self {
        Self::failed("")
    }

    /// Makes a "failure" with exit status 0 and without a message, because the command is complete.
    pub fn done() -> Self {
        Self { message: String::new(), status: 0 }
    }

    /// Makes a failure with exit status 3 and without a message: the thing asked about is not running. Init scripts use
    /// this status.
    pub fn stopped() -> Self {
        Self { message: String::new(), status: STOPPED }
    }

    /// Prints the message and returns the exit status.
    pub fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            let mut stderr = io::stderr().lock();
            // An error is ignored: if standard error is closed, it cannot be reported.
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
            // Diagnostics already begin with "error:", each with its place.
            RunError::Invalid(_) => Self::invalid(error.to_string()),
            RunError::Unreadable { .. } => Self::invalid(format!("error: {error}")),
            _ => Self::failed(format!("error: {error}")),
        }
    }
}

/// Prints `text`, whose foreign names may have control characters: those are escaped, except line ends and tabs. It is no
/// error if the reader closes its end early (`srv6d show ports | head -1`).
pub fn print(text: &str) -> Result<(), Failure> {
    print_on(&escaped_output(text)).map(drop)
}

/// Prints contents of a file or a database as they are, because programs read them. On a terminal it is [`print()`].
pub fn print_data(text: &str) -> Result<(), Failure> {
    if io::stdout().is_terminal() { print(text) } else { print_on(text).map(drop) }
}

/// Prints output that continues, without escaping anything. Returns false if the reader has closed its end.
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
    print_on(&format!("{}\n", escaped_json(&text))).map(drop)
}

/// Writes `value` as JSON on one line without building the text in memory first, for long values.
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
