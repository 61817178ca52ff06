//! Limits of this process that the kernel sets (setrlimit(2)).

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use tracing::warn;

/// Raises the soft limit of open files to the hard one. Each port needs about a dozen descriptors. The usual soft limit
/// of 1,024 protects programs that call select(2), which srv6d does not.
pub fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(why) = raised {
        warn!(
            "the limit of open files stays as it is: {why}; `LimitNOFILE=` in the unit or `ulimit -n` in a shell raises it"
        );
    }
}

/// Lifts the limit of locked memory if the process may do that. Returns false if the limit stays; then it applies
/// unless the process has `CAP_IPC_LOCK`.
pub fn raise_locked_memory() -> bool {
    setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_ok()
}

/// Number of files that this process has open; 0 without /proc.
pub fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Returns the largest number of files that this process may have open.
pub fn most_open_files() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft)
}
