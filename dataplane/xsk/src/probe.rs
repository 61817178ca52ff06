//! Finds out what prevents or slows AF_XDP on this machine, for `srv6d doctor`. It only reads.

use std::fs;
use std::mem::offset_of;

use nix::sys::resource::{Resource, getrlimit};

use crate::device_features::{self, Features};
use crate::{XskError, ethtool};

/// Returns whether this process is in a user namespace of its own. If it is, its capabilities do not count where the
/// kernel loads programs and locks memory (user_namespaces(7)).
pub fn in_user_namespace() -> bool {
    const INITIAL: [&str; 3] = ["0", "0", "4294967295"];
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.split_whitespace().ne(INITIAL))
}

/// A capability that srv6d needs, and whether this process has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// Name as in capabilities(7).
    pub name: &'static str,
    /// Purpose for which srv6d needs it.
    pub what_for: &'static str,
    /// Whether it is in the effective set of this process.
    pub held: bool,
}

/// The XDP program on an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    /// The kernel's id of the program.
    pub id: u32,
    /// Whether it runs in generic mode.
    pub generic: bool,
}

/// What the machine offers for AF_XDP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Version of the kernel, as `uname -r` prints it.
    pub kernel: String,
    /// The capabilities that are needed.
    pub capabilities: Vec<Capability>,
    /// Soft limit of locked memory in bytes; `None` if it is unlimited. It applies only to processes without
    /// `CAP_IPC_LOCK`.
    pub memlock: Option<u64>,
    /// Whether this process is exempt from that limit (`CAP_IPC_LOCK`).
    pub memlock_exempt: bool,
    /// Whether the kernel has AF_XDP sockets. `None` if that could not be tried (no `CAP_NET_RAW`).
    pub xdp_sockets: Option<bool>,
    /// The answer of [`speculation_barriers`].
    pub speculation_barriers: bool,
    /// Whether the BPF just-in-time compiler is on. `None` if the file is not readable.
    pub jit: Option<bool>,
}

/// What one interface offers for AF_XDP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface.
    pub ifname: String,
    /// Name of the driver.
    pub driver: String,
    /// Number of receive queues.
    pub queues: u32,
    /// Largest possible number of queue pairs; 0 if the driver does not tell.
    pub most_queues: u32,
    /// MTU in bytes.
    pub mtu: usize,
    /// Offloads that change what a socket sees.
    pub features: Features,
    /// The XDP program that is on it now.
    pub program: Option<Attached>,
    /// Whether the driver says that it has zero-copy. `None` if the kernel does not tell.
    pub zero_copy: Option<bool>,
    /// What happens to frames that an XDP program redirects into it. `None` if the kernel does not tell.
    pub takes_redirect: Option<TakesRedirect>,
    /// Sizes of its hardware queues. `None` if the driver does not tell.
    pub rings: Option<Rings>,
    /// How it puts off receive interrupts. `None` if the driver does not tell.
    pub coalescing: Option<Coalescing>,
}

/// Numbers of descriptors of one receive and one transmit queue of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rings {
    /// Descriptors of a receive queue.
    pub receive: u32,
    /// Descriptors of a transmit queue.
    pub transmit: u32,
}

/// How an interface puts off receive interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coalescing {
    /// Whether the driver chooses the delay by the traffic.
    pub is_adaptive: bool,
    /// The delay in microseconds, if the driver does not choose it.
    pub microseconds: u32,
}

/// Whether an interface sends the frames that an XDP program redirects into it. A frame that it does not accept is
/// lost, and no counter of the interface shows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TakesRedirect {
    /// Whether it accepts frames in one buffer. A veth does so if its peer has NAPI, because of a native XDP program or
    /// of generic receive offload.
    pub frames: bool,
    /// Whether it accepts frames in several buffers, too.
    pub multi_buffer: bool,
}

/// Examines the machine.
pub fn machine() -> Machine {
    let effective = effective_capabilities();
    let cap = |name, number: u32, what_for| Capability { name, what_for, held: effective >> number & 1 == 1 };
    Machine {
        kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
        capabilities: vec![
            cap("CAP_NET_ADMIN", 12, "attach XDP programs, set offloads, program neighbours and routes"),
            cap("CAP_NET_RAW", 13, "open AF_XDP sockets"),
            cap("CAP_BPF", 39, "create BPF maps and load the XDP program"),
        ],
        memlock: memlock(),
        memlock_exempt: effective >> 14 & 1 == 1,
        xdp_sockets: xdp_sockets(),
        speculation_barriers: speculation_barriers(),
        jit: read("/proc/sys/net/core/bpf_jit_enable").map(|on| on != "0"),
    }
}

/// Examines one interface of the caller's network namespace.
pub fn interface(ifname: &str) -> Result<Interface, XskError> {
    let query = query(crate::ifindex(ifname)?);
    Ok(Interface {
        ifname: ifname.to_owned(),
        driver: device_features::driver(ifname)?,
        queues: ethtool::queues(ifname)?,
        most_queues: ethtool::most_channels(ifname),
        mtu: ethtool::mtu(ifname)?,
        features: device_features::features(ifname)?,
        program: query.as_ref().and_then(program_of),
        // If there is no flag at all, the kernel has no netdev genetlink family.
        zero_copy: query.and_then(features).map(|flags| flags & ZERO_COPY != 0),
        takes_redirect: query.and_then(features).map(redirect_of),
        rings: ethtool::rings(ifname),
        coalescing: ethtool::coalescing(ifname),
    })
}

/// Whether this interface sends what is redirected into it at present; a veth's peer may change that at any time.
/// `None` if there is no such interface or the kernel does not tell.
pub fn takes_redirect(ifname: &str) -> Option<TakesRedirect> {
    query(crate::ifindex(ifname).ok()?).and_then(features).map(redirect_of)
}

/// Flags of linux/netdev.h, `NETDEV_XDP_ACT_...`.
const NDO_XMIT: u64 = 1 << 2;
const ZERO_COPY: u64 = 1 << 3;
const NDO_XMIT_SG: u64 = 1 << 6;

/// Returns the interface's feature flags. If there is no flag at all, the kernel has no netdev genetlink family (before
/// Linux 6.3), and the result is `None`.
fn features(query: libxdp_sys::bpf_xdp_query_opts) -> Option<u64> {
    (query.feature_flags != 0).then_some(query.feature_flags)
}

fn redirect_of(flags: u64) -> TakesRedirect {
    let frames = flags & NDO_XMIT != 0;
    TakesRedirect { frames, multi_buffer: frames && flags & NDO_XMIT_SG != 0 }
}

/// Returns the name of a loaded program, or why the name is not known.
pub fn program_name(id: u32) -> String {
    for program in aya::programs::loaded_programs() {
        match program {
            Ok(info) if info.id() == id => {
                return info.name_as_str().unwrap_or_default().to_owned();
            }
            Ok(_) => {}
            // This needs CAP_SYS_ADMIN, which the daemon gives up.
            Err(_) => return format!("`bpftool prog show id {id}` tells its name"),
        }
    }
    "gone meanwhile".to_owned()
}

/// Returns the XDP program on an interface, in whatever mode.
pub(crate) fn attached(ifindex: u32) -> Option<Attached> {
    query(ifindex).as_ref().and_then(program_of)
}

fn program_of(query: &libxdp_sys::bpf_xdp_query_opts) -> Option<Attached> {
    let ids = [query.prog_id, query.drv_prog_id, query.hw_prog_id, query.skb_prog_id];
    let id = ids.into_iter().find(|&id| id != 0)?;
    Some(Attached { id, generic: id == query.skb_prog_id })
}

/// Size of the options up to the end of the last member. The four bytes of padding behind it hold whatever was on the
/// stack, and libbpf refuses options whose unknown bytes are not zero. Then a foreign program would not be detected.
const QUERY_SIZE: usize = offset_of!(libxdp_sys::bpf_xdp_query_opts, xdp_zc_max_segs) + size_of::<u32>();

fn query(ifindex: u32) -> Option<libxdp_sys::bpf_xdp_query_opts> {
    query_of_size(ifindex, QUERY_SIZE)
}

fn query_of_size(ifindex: u32, sz: usize) -> Option<libxdp_sys::bpf_xdp_query_opts> {
    crate::sys::quiet_libraries();
    let mut opts = libxdp_sys::bpf_xdp_query_opts {
        sz: sz.min(QUERY_SIZE),
        prog_id: 0,
        drv_prog_id: 0,
        hw_prog_id: 0,
        skb_prog_id: 0,
        attach_mode: 0,
        feature_flags: 0,
        xdp_zc_max_segs: 0,
    };
    let ifindex = i32::try_from(ifindex).ok()?;
    // SAFETY: `opts` is a live struct whose first member holds its size, as libbpf requires of option structs.
    let failed = unsafe { libxdp_sys::bpf_xdp_query(ifindex, 0, &raw mut opts) };
    (failed == 0).then_some(opts)
}

/// Returns whether the verifier puts barriers against speculation into the programs that this process loads. It does without
/// `CAP_PERFMON`, unless `CAP_SYS_ADMIN` stands in (`perfmon_capable` in include/linux/capability.h).
pub fn speculation_barriers() -> bool {
    let effective = effective_capabilities();
    [CAP_PERFMON, CAP_SYS_ADMIN].iter().all(|cap| effective >> cap & 1 == 0)
}

/// Numbers of capabilities (include/uapi/linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;

fn effective_capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

fn memlock() -> Option<u64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    (soft != nix::sys::resource::RLIM_INFINITY).then_some(soft)
}

fn xdp_sockets() -> Option<bool> {
    // SAFETY: the call takes three numbers and accesses no memory of ours.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd >= 0 {
        // SAFETY: the descriptor was made just now and belongs to nobody else.
        unsafe { libc::close(fd) };
        return Some(true);
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EPERM) => None,
        _ => Some(false),
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed test may panic
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described_without_privileges() {
        let machine = machine();
        assert!(machine.kernel.contains('.'), "{}", machine.kernel);
        assert_eq!(machine.capabilities.len(), 3);
    }

    /// This is no test of its own: [`libbpf_says_nothing`] runs it and reads its output.
    #[test]
    fn child_with_options_that_libbpf_dislikes() {
        let loopback = crate::ifindex("lo").unwrap();
        assert!(query_of_size(loopback, 4).is_none(), "shorter than any version of the options");
    }

    #[test]
    fn libbpf_says_nothing() {
        let child = "probe::tests::child_with_options_that_libbpf_dislikes";
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", child, "--nocapture"])
            .output()
            .unwrap();
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }

    #[test]
    fn libbpf_takes_the_options_whatever_was_on_the_stack() {
        fn scribble() {
            std::hint::black_box([0xa5_u8; 4096]);
        }
        let loopback = crate::ifindex("lo").unwrap();
        for _ in 0..10 {
            scribble();
            assert!(query(loopback).is_some());
        }
    }
}
