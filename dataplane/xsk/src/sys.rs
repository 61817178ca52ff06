//! The system calls on a socket's descriptor that xsk-rs does not make.

use std::io;
use std::os::fd::RawFd;
use std::sync::Once;

unsafe extern "C" {
    /// bpf/libbpf.h, which libxdp-sys links and does not declare. The type of the callback does not matter to who
    /// passes none.
    fn libbpf_set_print(print: Option<unsafe extern "C" fn()>) -> Option<unsafe extern "C" fn()>;
}

/// libbpf and libxdp write what they think to standard error, by themselves. Every failure comes back as an error,
/// too, and that one says what to do.
pub(crate) fn quiet_libraries() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: exchanges one pointer atomically; none means no output.
        unsafe { libbpf_set_print(None) };
        // SAFETY: the same.
        unsafe { libxdp_sys::libxdp_set_print(None) };
    });
}

/// Gives free memory back to the kernel. aya reads the kernel's type information to load a program, 20 MB for a moment,
/// and what was allocated behind it meanwhile would keep the heap that large.
pub(crate) fn give_back_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: concerns pages without a live allocation alone; the allocator locks its arenas itself.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// An unbound socket answers ENXIO. Sockets are unbound by the deletion of
/// their device alone.
pub(crate) fn is_unbound(fd: RawFd) -> bool {
    send_nothing(fd).is_err_and(|why| why.raw_os_error() == Some(libc::ENXIO))
}

/// sendto(2) without data: "look at the tx ring".
pub(crate) fn send_nothing(fd: RawFd) -> io::Result<()> {
    // SAFETY: no memory is handed over: both pointers are null with length 0.
    let sent = unsafe { libc::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// linux/if_xdp.h since 6.17; libc does not have it yet.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// Lets one wake-up send so many packets in copy mode; without, and before Linux 6.17, 32.
pub(crate) fn set_tx_budget(fd: RawFd, packets: u32) {
    set_option(fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, packets);
}

/// Asks for the cache lines in which most packets have all their headers. Another core has just written them.
#[inline]
pub(crate) fn prefetch_headers(packet: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..2 {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint: no address makes it fault, and it reads nothing that anybody could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(packet.as_ptr().wrapping_add(64 * line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = packet;
}

/// recvfrom(2) without a buffer: "look at the fill ring". Its answer says
/// nothing that the rings do not.
pub(crate) fn kick_rx(fd: RawFd) {
    // SAFETY: no memory is handed over: all pointers are null with length 0.
    unsafe {
        libc::recvfrom(fd, std::ptr::null_mut(), 0, libc::MSG_DONTWAIT, std::ptr::null_mut(), std::ptr::null_mut())
    };
}

/// What the kernel has counted at an AF_XDP socket. Kernels before 5.9 leave the last three numbers at 0.
pub(crate) fn xdp_statistics(fd: RawFd) -> Option<libc::xdp_statistics> {
    // SAFETY: six integers, for which zero is a value.
    let mut counts: libc::xdp_statistics = unsafe { std::mem::zeroed() };
    let mut len = libc::socklen_t::try_from(size_of_val(&counts)).ok()?;
    // SAFETY: a live struct and its size; the kernel writes that many bytes at most.
    let code =
        unsafe { libc::getsockopt(fd, libc::SOL_XDP, libc::XDP_STATISTICS, (&raw mut counts).cast(), &raw mut len) };
    (code == 0).then_some(counts)
}

/// libxdp does not: a child process would keep the queue bound after us.
pub(crate) fn close_on_exec(fd: RawFd) {
    // SAFETY: three numbers, no memory.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
}

/// Sets a socket option of one u32. False: refused.
pub(crate) fn set_option(fd: RawFd, level: libc::c_int, option: libc::c_int, value: u32) -> bool {
    // SAFETY: the pointer is to a live local of the size handed over with it.
    let failed = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), 4) };
    failed == 0
}

/// Reads a socket option of one u32. None: the kernel does not have it.
pub(crate) fn option(fd: RawFd, level: libc::c_int, option: libc::c_int) -> Option<u32> {
    let (mut value, mut size) = (0_u32, 4);
    // SAFETY: both pointers are to live locals, and the second says how large the first is.
    let failed = unsafe { libc::getsockopt(fd, level, option, (&raw mut value).cast(), &raw mut size) };
    (failed == 0).then_some(value)
}

/// Where the parts of a socket's rings are in their mappings.
pub(crate) fn mmap_offsets(fd: RawFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: all of it are numbers, for which zero will do.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let size = size_of_val(&offsets);
    let mut written = libc::socklen_t::try_from(size).unwrap_or_default();
    let to = (&raw mut offsets).cast();
    // SAFETY: both pointers are to live locals, and the second says how large the first is.
    let failed = unsafe { libc::getsockopt(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, to, &raw mut written) };
    match failed {
        // Before Linux 5.4 it wrote less, and no flags.
        0 if written as usize == size => Ok(offsets),
        0 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
