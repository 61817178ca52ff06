//! File descriptors: the check that there are enough for one more port.
//!
//! It takes place before a port is opened. A port that runs out of descriptors half-way fails with misleading errors,
//! and would leave none for the management socket.

use nix::sys::resource::{Resource, getrlimit};

use super::DataplaneError;

/// Number of descriptors of a port besides its sockets: program, maps, link.
const OF_A_PROGRAM: u64 = 12;
/// Number of descriptors of a port for each worker: an AF_XDP socket, and another one that libxdp opens.
const OF_A_SOCKET: u64 = 2;
/// Number of descriptors left for everything else: management, metrics, controllers, and the loading of a program.
const RESERVED: u64 = 64;

/// Refuses a port for which there are too few descriptors.
pub(super) fn check(device: &str, workers: usize) -> Result<(), DataplaneError> {
    let needed = OF_A_PROGRAM + OF_A_SOCKET * workers as u64;
    match (in_use(), getrlimit(Resource::RLIMIT_NOFILE)) {
        (Some(in_use), Ok((limit, _))) if in_use + needed + RESERVED > limit => {
            Err(DataplaneError::TooFewDescriptors { device: device.to_owned(), in_use, limit, needed })
        }
        // Without /proc the port is tried.
        _ => Ok(()),
    }
}

fn in_use() -> Option<u64> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}
