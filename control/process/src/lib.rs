//! Processes as `/proc` shows them.

use std::fs;

use serde::{Deserialize, Serialize};

/// A process, identified so that it cannot be confused with a later one that has the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub started: u64,
}

impl Process {
    /// Returns the process that has `pid` now.
    pub fn of(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        Some(Self { pid, started: stat(pid)?.started })
    }

    /// Whether the process is still running; a zombie is not. A process that was killed counts as running while other
    /// threads of it have not ended, although its first thread is a zombie already: it still has its files, locks and
    /// ports.
    pub fn alive(self) -> bool {
        let now = stat(self.pid).filter(|now| now.started == self.started);
        now.is_some_and(|now| !matches!(now.state, 'Z' | 'X') || now.threads > 1)
    }
}

/// Whether a process is stopped, by a signal or by a debugger.
pub fn is_stopped(pid: i32) -> bool {
    stat(pid).is_some_and(|now| matches!(now.state, 'T' | 't'))
}

/// Fields of `/proc/PID/stat`.
struct Stat {
    state: char,
    threads: u32,
    started: u64,
}

/// Reads `/proc/PID/stat`. Its second field, the command name, may contain spaces and parentheses.
fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The rest begins with field 3, the state; field 20 is the number of threads, 22 the start time.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let threads = fields.nth(16)?.parse().ok()?;
    let started = fields.nth(1)?.parse().ok()?;
    Some(Stat { state, threads, started })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn this_process_is_alive_and_another_start_time_is_not() {
        let me = Process::of(std::process::id()).unwrap();
        assert!(me.alive());
        assert!(!Process { started: me.started + 1, ..me }.alive());
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while process.alive() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(!process.alive(), "ended, and nobody waited for it yet");
        child.wait().unwrap();
    }
}
