//! Restricts which files a process may change, with Landlock (Linux 5.13).

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use landlock::{
    ABI, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, path_beneath_rules,
};

/// Directories of the settings of interfaces that the daemon makes. Other settings of the kernel, such as
/// `kernel.core_pattern`, would let it run a program as root.
pub const SETTINGS: [&str; 2] = ["/proc/sys/net/ipv4/conf", "/proc/sys/net/ipv6/conf"];

static IS_RESTRICTED: AtomicBool = AtomicBool::new(false);

/// Lets the process, and the threads that it starts later, change files in these directories only, and execute none.
/// Files that are open already stay as they are. Returns false if the kernel has no Landlock.
///
/// # Errors
/// The kernel has Landlock and refuses the rules.
pub fn only_change_below(directories: &[PathBuf]) -> Result<bool, RulesetError> {
    // Later versions of the interface add rights that have to do with devices and sockets.
    let changes = AccessFs::from_write(ABI::V3);
    let ruleset = Ruleset::default().handle_access(changes | AccessFs::Execute)?.create()?;
    let status = ruleset.add_rules(path_beneath_rules(directories, changes))?.restrict_self()?;
    let is_restricted = status.ruleset != RulesetStatus::NotEnforced;
    IS_RESTRICTED.store(is_restricted, Ordering::Relaxed);
    Ok(is_restricted)
}

/// Whether [`only_change_below`] has restricted this process.
pub fn is_restricted() -> bool {
    IS_RESTRICTED.load(Ordering::Relaxed)
}
