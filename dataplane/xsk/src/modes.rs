//! The modes of a socket, and how the mode in use is found out.

use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use xsk_rs::config::BindFlags;

use crate::frame::ROOM;

/// How packets get from the device to a socket and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The best of the three modes below that the device offers. It can only be asked for and is never a result.
    Auto,
    /// The device reads and writes the UMEM itself.
    ZeroCopy,
    /// XDP runs in the driver, and packets are copied to and from the UMEM.
    Native,
    /// XDP runs on socket buffers in the kernel's stack. This works with every device, and is slow.
    Generic,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::ZeroCopy => "zero-copy",
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// Waits between attempts to bind a queue that is busy, 2.5 s in sum. After a socket was closed, binding its queue
/// fails with EBUSY until the kernel's work item has released it, which takes about 100 ms.
pub(crate) const BUSY_WAITS: [Duration; 8] = [
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(120),
    Duration::from_millis(300),
    Duration::from_millis(500),
    Duration::from_millis(700),
    Duration::from_millis(800),
];

/// Length of an Ethernet header with one tag.
const LINK_HEADER: usize = 18;

/// One way to bind a socket, with a name that users read.
pub(crate) struct Attempt {
    pub(crate) flags: BindFlags,
    pub(crate) zero_copy: bool,
    pub(crate) multi_buffer: bool,
}

impl Attempt {
    fn new(zero_copy: bool, multi_buffer: bool) -> Self {
        let mut flags = BindFlags::XDP_USE_NEED_WAKEUP;
        flags |= if zero_copy { BindFlags::XDP_ZEROCOPY } else { BindFlags::XDP_COPY };
        if multi_buffer {
            flags |= BindFlags::XDP_USE_SG;
        }
        Self { flags, zero_copy, multi_buffer }
    }

    pub(crate) fn name(&self) -> &'static str {
        match (self.zero_copy, self.multi_buffer) {
            (true, true) => "zero-copy, multi-buffer",
            (true, false) => "zero-copy, single-buffer",
            (false, true) => "copy, multi-buffer",
            (false, false) => "copy, single-buffer",
        }
    }
}

/// Whether every packet of a port with this MTU fits into one chunk, with its Ethernet header and one tag.
pub(crate) fn fits_one_chunk(mtu: usize) -> bool {
    mtu + LINK_HEADER <= ROOM
}

/// Returns the ways to bind, best first. Zero-copy without multi-buffer is useful only if every packet fits into one
/// chunk.
pub(crate) fn attempts(asked: Mode, generic: bool, mtu: usize) -> Vec<Attempt> {
    let mut list = Vec::new();
    let zero_copy = match asked {
        Mode::Auto => !generic,
        Mode::ZeroCopy => true,
        Mode::Native | Mode::Generic => false,
    };
    if zero_copy {
        list.push(Attempt::new(true, true));
        if fits_one_chunk(mtu) {
            list.push(Attempt::new(true, false));
        }
    }
    if asked != Mode::ZeroCopy {
        list.push(Attempt::new(false, true));
        list.push(Attempt::new(false, false));
    }
    list
}

/// Whether a bind error means that this mode is not available, so that the next attempt may succeed.
pub(crate) fn mode_refused(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL))
}

/// Whether the kernel made this bound socket a zero-copy one.
pub(crate) fn is_zero_copy(fd: RawFd) -> bool {
    let mut flags: u32 = 0;
    let mut len: libc::socklen_t = 4;
    // SAFETY: both pointers are to live locals, and `len` is the size of what the first points to; XDP_OPTIONS writes
    // one u32.
    let failed =
        unsafe { libc::getsockopt(fd, libc::SOL_XDP, libc::XDP_OPTIONS, (&raw mut flags).cast(), &raw mut len) };
    failed == 0 && flags & libc::XDP_OPTIONS_ZEROCOPY != 0
}

/// Returns what to do about a bind error that occurs in every mode.
pub(crate) fn fix_for(why: &io::Error) -> &'static str {
    match why.raw_os_error() {
        Some(libc::EBUSY) => {
            "another AF_XDP socket has this queue: stop the program that owns it, or configure \
             another queue"
        }
        Some(libc::EPERM | libc::EACCES) => {
            "give the process CAP_NET_RAW and CAP_NET_ADMIN (systemd: AmbientCapabilities=)"
        }
        Some(libc::EBADF | libc::EINVAL) => "check that the queue exists (`ethtool -l`)",
        Some(libc::ENOBUFS | libc::ENOMEM) => "raise the limit of locked memory (systemd: LimitMEMLOCK=infinity)",
        Some(libc::EMFILE | libc::ENFILE) => crate::error::TOO_FEW_DESCRIPTORS,
        Some(libc::ENODEV) => "the interface was deleted meanwhile: create it again",
        Some(libc::EOPNOTSUPP) => "ask for mode `auto`, which takes what the driver has",
        _ => "see `srv6d doctor`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(asked: Mode, generic: bool, mtu: usize) -> Vec<&'static str> {
        attempts(asked, generic, mtu).iter().map(Attempt::name).collect()
    }

    #[test]
    fn auto_falls_from_zero_copy_to_single_buffer_copy() {
        assert_eq!(
            names(Mode::Auto, false, 1500),
            ["zero-copy, multi-buffer", "zero-copy, single-buffer", "copy, multi-buffer", "copy, single-buffer"]
        );
    }

    #[test]
    fn jumbo_prefers_copy_to_losing_long_packets() {
        assert_eq!(
            names(Mode::Auto, false, 9000),
            ["zero-copy, multi-buffer", "copy, multi-buffer", "copy, single-buffer"]
        );
        assert_eq!(names(Mode::ZeroCopy, false, 3822).len(), 2, "3840 bytes with Ethernet and a tag");
        assert_eq!(names(Mode::ZeroCopy, false, 3823).len(), 1);
    }

    #[test]
    fn no_zero_copy_under_a_generic_program() {
        assert_eq!(names(Mode::Auto, true, 1500), ["copy, multi-buffer", "copy, single-buffer"]);
    }

    #[test]
    fn zero_copy_asked_for_is_never_copy() {
        assert_eq!(names(Mode::ZeroCopy, false, 9000), ["zero-copy, multi-buffer"]);
    }
}
