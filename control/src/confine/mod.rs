//! What a process of srv6d gives up before its first packet: capabilities, the right to gain new ones, and the system calls
//! that it does not need.
//!
//! Called while the process has one thread: capabilities belong to a thread, and later threads inherit what the first one
//! has. Workers, which read packets of strangers, keep none. The three that stay are needed as long as the daemon runs, because ports come later, too: an XDP program takes
//! `CAP_BPF` and `CAP_NET_ADMIN`, an AF_XDP socket `CAP_NET_RAW`.

mod syscalls;

use std::fmt::Display;
use std::fs;

use caps::{CapSet, Capability, CapsHashSet};
use serde::{Deserialize, Serialize};

/// Capabilities of the daemon.
pub const OF_THE_DAEMON: [Capability; 3] = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_BPF];

/// Capability of the guard process, which deletes an interface and its routes.
pub const OF_THE_GUARD: [Capability; 1] = [Capability::CAP_NET_ADMIN];

/// Keeps only these capabilities of those that the process has, sets `NoNewPrivs`, and installs the seccomp filter for all
/// threads. Returns what could not be done, one sentence each: a kernel without seccomp still forwards.
pub fn confine(keep: &[Capability]) -> Vec<String> {
    let mut failures = Vec::new();
    let mut note = |what: &str, why: &dyn Display| failures.push(format!("cannot {what}: {why}"));
    if let Err(why) = drop_capabilities(keep) {
        note("give up capabilities", &why);
    }
    if let Err(why) = nix::sys::prctl::set_no_new_privs() {
        note("set NoNewPrivs", &why);
    }
    if let Err(why) = syscalls::install() {
        note("install the seccomp filter", &why);
    }
    failures
}

/// Keeps only these capabilities of those that the calling thread has.
pub fn keep_of_this_thread(keep: &[Capability]) {
    let reduced = caps::read(None, CapSet::Permitted).and_then(|held| {
        let kept: CapsHashSet = held.into_iter().filter(|cap| keep.contains(cap)).collect();
        caps::set(None, CapSet::Effective, &kept)?;
        caps::set(None, CapSet::Permitted, &kept)
    });
    if let Err(why) = reduced {
        tracing::warn!("a thread keeps capabilities that it does not need: {why}");
    }
}

fn drop_capabilities(keep: &[Capability]) -> Result<(), caps::errors::CapsError> {
    let kept: CapsHashSet = caps::read(None, CapSet::Permitted)?.into_iter().filter(|cap| keep.contains(cap)).collect();
    // Without CAP_SETPCAP the bounding set stays: NoNewPrivs makes it meaningless.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for cap in caps::all().into_iter().filter(|cap| !kept.contains(cap)) {
            if caps::has_cap(None, CapSet::Bounding, cap).unwrap_or(false) {
                caps::drop(None, CapSet::Bounding, cap)?;
            }
        }
    }
    caps::clear(None, CapSet::Ambient)?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    caps::clear(None, CapSet::Inheritable)
}

/// What a process runs with, as the kernel says: the weakest of its threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Privileges {
    /// Effective user id.
    pub uid: u32,
    /// Capabilities that some thread has.
    pub capabilities: Vec<String>,
    /// No thread can gain privileges by executing a program.
    pub no_new_privs: bool,
    /// Every thread has a seccomp filter.
    pub seccomp: bool,
    /// Threads.
    pub threads: usize,
}

impl Privileges {
    /// Those of this process.
    pub fn read() -> Self {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let statuses: Vec<String> =
            tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).collect();
        let of_all = |key: &str, value: &str| {
            !statuses.is_empty() && statuses.iter().all(|status| field(status, key) == Some(value))
        };
        let sets = statuses.iter().filter_map(|status| u64::from_str_radix(field(status, "CapEff")?, 16).ok());
        let effective = sets.fold(0, |all, set| all | set);
        let held = caps::all().into_iter().filter(|cap| effective >> cap.index() & 1 == 1);
        let mut capabilities: Vec<String> = held.map(|cap| cap.to_string()).collect();
        capabilities.sort();
        Self {
            uid: nix::unistd::geteuid().as_raw(),
            capabilities,
            no_new_privs: of_all("NoNewPrivs", "1"),
            seccomp: of_all("Seccomp", "2"),
            threads: statuses.len(),
        }
    }

    /// It has no more than the daemon needs.
    pub fn is_least(&self) -> bool {
        let needed = |name: &String| OF_THE_DAEMON.iter().any(|cap| cap.to_string() == *name);
        self.no_new_privs && self.seccomp && self.capabilities.iter().all(needed)
    }
}

fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()))
}
