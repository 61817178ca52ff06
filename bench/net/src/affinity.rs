//! Places threads on cores and sets their priorities.

use std::fs;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::BenchError;
use crate::netns::{run, tool};

/// Returns the cores that this process may use, in ascending order.
pub fn available() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false)).collect()
}

/// Pins a thread to one core. Thread 0 is the calling thread.
pub fn pin(thread: i32, core: usize) -> Result<(), BenchError> {
    let mut set = CpuSet::new();
    set.set(core)
        .and_then(|()| sched_setaffinity(Pid::from_raw(thread), &set))
        .map_err(|why| BenchError::of(format!("put thread {thread} on core {core}"), why))
}

/// Gives a thread priority over all ordinary threads of the machine (`SCHED_FIFO`). Nice values would not suffice: with
/// autogroups they count only within one session.
pub fn put_first(thread: i32) -> Result<(), BenchError> {
    run(tool("chrt").args(["--fifo", "--pid", "1", &thread.to_string()])).map(drop)
}

/// Threads at nice -20, in a session at nice -20 among all sessions. Dropping this value undoes both.
#[derive(Debug)]
pub struct Eager(Vec<i32>);

impl Eager {
    /// Changes these threads and the session of this process.
    pub fn make(threads: impl Iterator<Item = i32>) -> Result<Self, BenchError> {
        let eager = Self(threads.collect());
        // If this file does not exist, the kernel has no autogroups, and the nice values of the threads suffice.
        let _ = fs::write(AUTOGROUP, "-20");
        eager.0.iter().try_for_each(|&thread| renice(thread, -20))?;
        Ok(eager)
    }
}

impl Drop for Eager {
    fn drop(&mut self) {
        let _ = fs::write(AUTOGROUP, "0");
        for &thread in &self.0 {
            let _ = renice(thread, 0);
        }
    }
}

/// File with the priority of this session among all sessions.
const AUTOGROUP: &str = "/proc/self/autogroup";

fn renice(thread: i32, nice: i32) -> Result<(), BenchError> {
    run(tool("renice").args(["-n", &nice.to_string(), "-p", &thread.to_string()])).map(drop)
}

/// Returns the kernel thread that continues the interrupt work of a core when there is too much of it.
pub fn softirq_thread(core: usize) -> Option<i32> {
    let name = format!("ksoftirqd/{core}");
    threads(|comm| comm == name).first().copied()
}

/// Returns the kernel threads that receive on a device in threaded mode: `napi/<device>-<number>`.
pub fn napi_threads(device: &str) -> Vec<i32> {
    let prefix = format!("napi/{device}-");
    threads(|comm| comm.starts_with(&prefix))
}

fn threads(is_one: impl Fn(&str) -> bool) -> Vec<i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let named = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| is_one(comm.trim_end()));
    numbers.filter(named).collect()
}
