//! A traffic tool that runs in a node. It reports one JSON object per line.

use srv6d_netns as netns;
use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;

use super::error::LabError;
use super::fabric::{Attended, Lab, own_program};
use super::interrupt::Interrupt;
use super::traffic::Listening;

/// Longest wait for a tool.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A running traffic tool, which is ended when this value is dropped.
pub struct Tool {
    process: Attended,
    lines: Lines<BufReader<ChildStdout>>,
    name: String,
}

impl Tool {
    /// Starts `srv6d lab traffic ARGUMENTS` in a node.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(lab: &Lab, node: &str, arguments: &[&str]) -> Result<Self, LabError> {
        let program = own_program()?;
        let mut process = netns::enter(&lab.netns(node), || {
            let mut command = netns::tool(program);
            Attended::start(command.args(["lab", "traffic"]).args(arguments).stdout(Stdio::piped()))
        })?;
        let stdout = process.0.stdout.take().ok_or_else(|| LabError::Failed("a tool has no output".to_owned()))?;
        let name = format!("{} in {node}", arguments.first().copied().unwrap_or_default());
        Ok(Self { process, lines: BufReader::new(stdout).lines(), name })
    }

    /// Starts a receiver and waits until it listens. Returns the address on which it does.
    ///
    /// # Errors
    /// It cannot be started, or does not listen.
    pub fn receiver(lab: &Lab, node: &str, kind: &str, listen: SocketAddr) -> Result<(Self, SocketAddr), LabError> {
        let mut tool = Self::start(lab, node, &[kind, &listen.to_string()])?;
        let Listening { listening } = tool.next_line()?;
        Ok((tool, listening))
    }

    /// Waits for the end of the tool and returns its last report.
    ///
    /// # Errors
    /// It failed, did not end within [`PATIENCE`], or a signal asked to stop.
    pub fn finish<T: DeserializeOwned>(&mut self, interrupt: &Interrupt) -> Result<T, LabError> {
        let ended = interrupt.wait_for(PATIENCE, || {
            self.process.0.try_wait().map_err(|error| LabError::Failed(format!("{}: {error}", self.name)))
        })?;
        match ended {
            Some(status) if status.success() => self.next_line(),
            Some(status) => Err(LabError::Failed(format!("{} failed ({status})", self.name))),
            None => Err(LabError::Failed(format!("{} did not end within {} s", self.name, PATIENCE.as_secs()))),
        }
    }

    /// Asks the tool to end.
    pub fn stop(&self) {
        if let Ok(pid) = i32::try_from(self.process.0.id()) {
            // The tool may have ended by itself.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }

    /// Whether the tool has ended.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn has_ended(&mut self) -> Result<bool, LabError> {
        let status = self.process.0.try_wait();
        status.map(|status| status.is_some()).map_err(|error| LabError::Failed(format!("{}: {error}", self.name)))
    }

    /// Waits for the tool's next report.
    ///
    /// # Errors
    /// It has ended, or says something else.
    pub fn next_line<T: DeserializeOwned>(&mut self) -> Result<T, LabError> {
        let line = self.lines.next().and_then(Result::ok).unwrap_or_default();
        serde_json::from_str(&line).map_err(|error| LabError::Failed(format!("{} said {line:?}: {error}", self.name)))
    }
}
