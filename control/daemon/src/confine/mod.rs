//! Reduces the privileges of a process of srv6d before its first packet: its capabilities, the right to gain new ones,
//! and the system calls that it does not need.
//!
//! It is called while the process has one thread: capabilities belong to a thread, and later threads inherit those of
//! the first one. Workers, which read packets from unknown senders, keep none. Four capabilities stay as long as the
//! daemon runs, because ports may be added and tables may grow at any time: an XDP program needs `CAP_BPF` and
//! `CAP_NET_ADMIN`, an AF_XDP socket `CAP_NET_RAW`. Into a program that is loaded without `CAP_PERFMON` the verifier puts
//! barriers against speculation, which make it take two to four times as long.

mod files;
mod syscalls;

use std::fmt::Display;
use std::fs;

use caps::{CapSet, Capability, CapsHashSet};
pub use files::{SETTINGS, only_change_below};
use srv6d_api::state::Privileges;

/// Capabilities that the daemon keeps.
pub const OF_THE_DAEMON: [Capability; 4] =
    [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_BPF, Capability::CAP_PERFMON];

/// Capabilities that the daemon keeps of those that it has. `CAP_SYS_ADMIN` stands in for `CAP_BPF` and `CAP_PERFMON` where
/// it has only that: container engines that are older than Linux 5.8 know neither, and their `privileged` has none.
///
/// # Errors
/// The kernel does not say which capabilities this thread has.
pub fn of_the_daemon() -> Result<Vec<Capability>, caps::errors::CapsError> {
    let held = caps::read(None, CapSet::Permitted)?;
    if held.contains(&Capability::CAP_BPF) || !held.contains(&Capability::CAP_SYS_ADMIN) {
        return Ok(OF_THE_DAEMON.to_vec());
    }
    Ok(vec![Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_SYS_ADMIN])
}

/// Capability that the guard process keeps; it deletes an interface and its routes.
pub const OF_THE_GUARD: [Capability; 1] = [Capability::CAP_NET_ADMIN];

/// Drops all capabilities of the process except these, sets `NoNewPrivs`, and installs the seccomp filter for all
/// threads. Returns one sentence for each step that failed: a kernel without seccomp can still forward.
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

/// Refuses further connections to services of this machine over Unix sockets, for all threads. Returns what failed.
pub fn refuse_local_streams() -> Option<String> {
    let failure = syscalls::refuse_local_streams().err()?;
    Some(format!("cannot refuse connections over Unix sockets: {failure}"))
}

/// Drops all capabilities of the calling thread except these.
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
    // Without CAP_SETPCAP the bounding set stays as it is; NoNewPrivs makes it meaningless.
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

/// Reads the privileges of this process.
pub fn privileges() -> Privileges {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let statuses: Vec<String> = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).collect();
    let of_all = |key: &str, value: &str| {
        !statuses.is_empty() && statuses.iter().all(|status| field(status, key) == Some(value))
    };
    let sets = statuses.iter().filter_map(|status| u64::from_str_radix(field(status, "CapEff")?, 16).ok());
    let effective = sets.fold(0, |all, set| all | set);
    let held = caps::all().into_iter().filter(|cap| effective >> cap.index() & 1 == 1);
    let mut capabilities: Vec<String> = held.map(|cap| cap.to_string()).collect();
    capabilities.sort();
    Privileges {
        uid: nix::unistd::geteuid().as_raw(),
        capabilities,
        no_new_privs: of_all("NoNewPrivs", "1"),
        seccomp: of_all("Seccomp", "2"),
        landlock: files::is_restricted(),
        threads: statuses.len(),
    }
}

/// Whether the process has no more privileges than the daemon needs.
pub fn is_least(privileges: &Privileges) -> bool {
    let has = |cap: Capability| privileges.capabilities.contains(&cap.to_string());
    let stands_in = |name: &String| *name == Capability::CAP_SYS_ADMIN.to_string() && !has(Capability::CAP_BPF);
    let needed = |name: &String| OF_THE_DAEMON.iter().any(|cap| cap.to_string() == *name) || stands_in(name);
    privileges.no_new_privs && privileges.seccomp && privileges.capabilities.iter().all(needed)
}

fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()))
}
