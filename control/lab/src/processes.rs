//! Processes of a lab: those that it has started, and others that run in its namespaces.

use srv6d_netns as netns;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use srv6d_process::Process;

/// Longest wait for the end of processes after SIGTERM, on which srv6d drains. Those that are still running afterwards
/// get SIGKILL.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// Ends processes. Returns those that cannot be ended.
pub fn end(processes: &[Process]) -> Vec<Process> {
    send(processes, Signal::SIGTERM);
    // A process that is stopped would not handle SIGTERM.
    send(processes, Signal::SIGCONT);
    wait(processes);
    kill(processes)
}

/// Kills processes. Returns those that are still running.
pub fn kill(processes: &[Process]) -> Vec<Process> {
    send(processes, Signal::SIGKILL);
    wait(processes);
    processes.iter().copied().filter(|process| process.alive()).collect()
}

fn wait(processes: &[Process]) {
    let deadline = Instant::now() + GONE_WITHIN;
    while processes.iter().any(|process| process.alive()) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal to those processes that are running.
pub fn send(processes: &[Process], signal: Signal) {
    for process in processes.iter().filter(|process| process.alive()) {
        // The process may end between the check and the signal.
        let _ = signal::kill(Pid::from_raw(process.pid), signal);
    }
}

/// Returns the processes that run in any of these namespaces, like `ip netns pids`, except this process and its
/// ancestors: the user may type `lab down` inside a node.
pub fn inside(namespaces: &[String]) -> Vec<Process> {
    let identity = |file: &Path| fs::metadata(file).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let wanted: Vec<_> = namespaces.iter().filter_map(|name| identity(&netns::path(name))).collect();
    let spared = ancestry();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let here = pids.filter(|pid| {
        let namespace = identity(Path::new(&format!("/proc/{pid}/ns/net")));
        namespace.is_some_and(|namespace| wanted.contains(&namespace)) && !spared.contains(pid)
    });
    here.filter_map(Process::of).collect()
}

/// Returns the ids of this process, its parent, and so on.
fn ancestry() -> Vec<u32> {
    let mut pids = vec![std::process::id()];
    while let Some(parent) = pids.last().and_then(|pid| parent(*pid)).filter(|pid| !pids.contains(pid)) {
        pids.push(parent);
    }
    pids
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok().filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn this_process_and_its_parents_are_spared() {
        let ancestry = ancestry();
        assert_eq!(ancestry.first(), Some(&std::process::id()));
        assert!(ancestry.contains(&std::os::unix::process::parent_id()));
    }

    #[test]
    fn a_process_that_ignores_sigterm_is_ended() {
        let mut child = std::process::Command::new("sh").args(["-c", "trap '' TERM; sleep 60 & wait"]).spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert_eq!(end(&[process]), []);
        assert!(!process.alive());
        child.wait().unwrap();
    }
}
