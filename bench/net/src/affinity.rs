//! Threads on cores.

use std::fs;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::BenchError;
use crate::netns::{run, tool};

/// Cores this process may use, in order.
pub fn available() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false)).collect()
}

/// Puts a thread on one core. 0: the calling thread.
pub fn pin(thread: i32, core: usize) -> Result<(), BenchError> {
    let mut set = CpuSet::new();
    set.set(core)
        .and_then(|()| sched_setaffinity(Pid::from_raw(thread), &set))
        .map_err(|why| BenchError::of(format!("put thread {thread} on core {core}"), why))
}

/// Gives a thread a place in the queue: -20 is the first, 0 what everybody has.
pub fn renice(thread: i32, nice: i32) -> Result<(), BenchError> {
    run(tool("renice").args(["-n", &nice.to_string(), "-p", &thread.to_string()])).map(drop)
}

/// Kernel threads that receive on a device in threaded mode: `napi/<device>-<number>`.
pub fn napi_threads(device: &str) -> Vec<i32> {
    let prefix = format!("napi/{device}-");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_one = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end().starts_with(&prefix))
    };
    numbers.filter(is_one).collect()
}
