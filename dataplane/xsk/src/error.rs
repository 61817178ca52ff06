//! Errors of this crate, each with its fix. None of them arises in the packet path.

use std::io;

use thiserror::Error;

/// The fix for a process in a user namespace of its own.
pub(crate) const USER_NAMESPACE: &str =
    "run srv6d in the initial user namespace: as root of the machine, or in a container that is not rootless";

/// The fix if the process or the system has no file descriptor left.
pub(crate) const TOO_FEW_DESCRIPTORS: &str =
    "raise the limit of open files (`LimitNOFILE=` in the unit, `ulimit -n` in a shell)";

/// A failure to set up or change an AF_XDP port. The text names the error, its place and what to do about it.
#[derive(Debug, Error)]
pub enum XskError {
    /// The packet memory could not be made or registered.
    #[error("cannot make a UMEM of {frames} frames ({mib} MiB): {why}. Fix: {fix}")]
    Umem {
        /// Number of chunks asked for.
        frames: u32,
        /// Size of the memory asked for, in MiB.
        mib: u32,
        /// What the kernel said.
        why: String,
        /// What to change.
        fix: &'static str,
    },
    /// A ring size is not a power of two, or zero.
    #[error("{ring} ring of {size} entries: a ring's size must be a power of two, at least 1")]
    RingSize {
        /// `fill`, `completion`, `rx` or `tx`.
        ring: &'static str,
        /// The size asked for.
        size: u32,
    },
    /// There is no interface of this name in the network namespace of the caller.
    #[error("{ifname}: no such interface in this network namespace ({why})")]
    NoInterface {
        /// The name asked for.
        ifname: String,
        /// What the kernel said.
        why: io::Error,
    },
    /// The kernel refused to bind a socket.
    #[error("{ifname} queue {queue}: cannot bind an AF_XDP socket ({tried}): {why}. Fix: {fix}")]
    Bind {
        /// The port.
        ifname: String,
        /// The queue.
        queue: u32,
        /// The modes tried.
        tried: String,
        /// The kernel's last answer.
        why: io::Error,
        /// What to change.
        fix: &'static str,
    },
    /// The packet memory lost the socket that carries it.
    #[error(
        "{ifname} queue {queue}: this packet memory binds no more sockets: {why}. Fix: restart srv6d, \
         and keep the interface whose socket is opened first for as long as it runs"
    )]
    FirstSocket {
        /// The port.
        ifname: String,
        /// The queue.
        queue: u32,
        /// Whether the device was deleted or all sockets were closed.
        why: &'static str,
    },
    /// The tx ring of a socket cannot be reached.
    #[error(
        "{ifname} queue {queue}: cannot find the tx ring of its AF_XDP socket: {why}. Fix: mount /proc where srv6d runs \
         (`mount -t proc proc /proc`), and let it read /proc/self"
    )]
    TxRing {
        /// The port.
        ifname: String,
        /// The queue.
        queue: u32,
        /// What the kernel said.
        why: io::Error,
    },
    /// The port's packets are too long for the packet memory: its sockets send single chunks only.
    #[error(
        "{ifname} queue {queue}: packets of MTU {mtu} take several chunks, and the first socket of this packet memory \
         sends but one. Fix: lower the MTU to 3822, or stay in copy mode"
    )]
    SingleBuffer {
        /// The port.
        ifname: String,
        /// The queue.
        queue: u32,
        /// The port's MTU.
        mtu: usize,
    },
    /// The XDP program could not be loaded or attached.
    #[error("{ifname}: cannot {what} the XDP program: {why}. Fix: {fix}")]
    Program {
        /// The port.
        ifname: String,
        /// The step that failed, `load` or `attach`.
        what: &'static str,
        /// What the kernel said.
        why: String,
        /// What to change.
        fix: &'static str,
    },
    /// The port already has an XDP program that srv6d did not attach, and which it leaves alone.
    #[error(
        "{ifname}: XDP program {id} ({name}) is already attached and is left alone. Fix: remove it \
         first (`ip link set dev {ifname} xdp off`, in generic mode `xdpgeneric off`, `bpftool link detach`, or stop the \
         program that owns it), or take {ifname} out of the configuration"
    )]
    ForeignProgram {
        /// The port.
        ifname: String,
        /// The kernel's id of the program.
        id: u32,
        /// The name of the program, or why the name is not known.
        name: String,
    },
    /// A BPF map of the port could not be changed.
    #[error("{ifname}: cannot {what}: {why}")]
    Map {
        /// The port.
        ifname: String,
        /// What was to be changed.
        what: String,
        /// What the kernel said.
        why: String,
    },
    /// An ethtool request failed.
    #[error("{ifname}: ethtool {what}: {why}")]
    Ethtool {
        /// The interface.
        ifname: String,
        /// The request.
        what: &'static str,
        /// What the kernel said.
        why: io::Error,
    },
}
