//! Limits of this process that the kernel sets (setrlimit(2)).

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use tracing::warn;

/// Raises the soft limit of open files to the hard one. Each port takes about a dozen descriptors, and the usual soft limit
/// of 1,024 is there for programs that call select(2), which srv6d does not.
pub fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(why) = raised {
        warn!(
            "the limit of open files stays as it is: {why}; `LimitNOFILE=` in the unit or `ulimit -n` in a shell raises it"
        );
    }
}

/// Lifts the limit of locked memory where the process may. False: there is one still, and without `CAP_IPC_LOCK` it holds.
pub fn raise_locked_memory() -> bool {
    setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_ok()
}

/// Files this process has open; 0 without /proc.
pub fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Files this process may have open.
pub fn most_open_files() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft)
}
