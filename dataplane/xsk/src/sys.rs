//! System calls on a socket's descriptor that xsk-rs does not make.

use std::io;
use std::os::fd::RawFd;
use std::sync::Once;

unsafe extern "C" {
    /// Function of bpf/libbpf.h, which libxdp-sys links and does not declare. The type of the callback does not matter
    /// to a caller that passes none.
    fn libbpf_set_print(print: Option<unsafe extern "C" fn()>) -> Option<unsafe extern "C" fn()>;
}

/// Stops libbpf and libxdp from writing messages to standard error. Every failure is returned as an error, too, and
/// that error says what to do.
pub(crate) fn quiet_libraries() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the call exchanges one pointer atomically; a null pointer means no output.
        unsafe { libbpf_set_print(None) };
        // SAFETY: this call does the same for libxdp.
        unsafe { libxdp_sys::libxdp_set_print(None) };
    });
}

/// Gives free memory back to the kernel. To load a program, aya reads the kernel's type information, which takes 20 MB
/// for a moment; memory that was allocated behind it meanwhile would keep the heap that large.
pub(crate) fn give_back_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call concerns only pages without a live allocation; the allocator locks its arenas itself.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Whether a socket is no longer bound: the kernel then answers ENXIO. Only the deletion of the device unbinds a
/// socket.
pub(crate) fn is_unbound(fd: RawFd) -> bool {
    send_nothing(fd).is_err_and(|why| why.raw_os_error() == Some(libc::ENXIO))
}

/// Calls sendto(2) without data, which asks the kernel to look at the tx ring.
pub(crate) fn send_nothing(fd: RawFd) -> io::Result<()> {
    // SAFETY: no memory is handed over: both pointers are null with length 0.
    let sent = unsafe { libc::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Constant of linux/if_xdp.h since Linux 6.17, which libc does not have yet.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// Sets how many packets one wake-up sends in copy mode. Without it, and before Linux 6.17, the number is 32.
pub(crate) fn set_tx_budget(fd: RawFd, packets: u32) {
    set_option(fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, packets);
}

/// Prefetches the cache lines in which most packets have all their headers. Another core has just written them.
#[inline]
pub(crate) fn prefetch_headers(packet: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..2 {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: this is a hint: no address makes it fault, and it has no visible effect on memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(packet.as_ptr().wrapping_add(64 * line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = packet;
}

/// Calls recvfrom(2) without a buffer, which asks the kernel to look at the fill ring. The result is ignored: it says
/// nothing that the rings do not show.
pub(crate) fn kick_rx(fd: RawFd) {
    // SAFETY: no memory is handed over: all pointers are null with length 0.
    unsafe {
        libc::recvfrom(fd, std::ptr::null_mut(), 0, libc::MSG_DONTWAIT, std::ptr::null_mut(), std::ptr::null_mut())
    };
}

/// Returns the kernel's counters of an AF_XDP socket. Kernels before 5.9 leave the last three numbers at 0.
pub(crate) fn xdp_statistics(fd: RawFd) -> Option<libc::xdp_statistics> {
    // SAFETY: the struct consists of six integers, for which zero is a value.
    let mut counts: libc::xdp_statistics = unsafe { std::mem::zeroed() };
    let mut len = libc::socklen_t::try_from(size_of_val(&counts)).ok()?;
    // SAFETY: the pointers are to a live struct and its size; the kernel writes that many bytes at most.
    let code =
        unsafe { libc::getsockopt(fd, libc::SOL_XDP, libc::XDP_STATISTICS, (&raw mut counts).cast(), &raw mut len) };
    (code == 0).then_some(counts)
}

/// Sets the close-on-exec flag, which libxdp does not: otherwise a child process would keep the queue bound after this
/// process has ended.
pub(crate) fn close_on_exec(fd: RawFd) {
    // SAFETY: the call takes three numbers and no memory.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
}

/// Sets a socket option of one u32. Returns false if the kernel refuses.
pub(crate) fn set_option(fd: RawFd, level: libc::c_int, option: libc::c_int, value: u32) -> bool {
    // SAFETY: the pointer is to a live local of the size handed over with it.
    let failed = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), 4) };
    failed == 0
}

/// Reads a socket option of one u32. Returns `None` if the kernel does not have it.
pub(crate) fn option(fd: RawFd, level: libc::c_int, option: libc::c_int) -> Option<u32> {
    let (mut value, mut size) = (0_u32, 4);
    // SAFETY: both pointers are to live locals, and the second says how large the first is.
    let failed = unsafe { libc::getsockopt(fd, level, option, (&raw mut value).cast(), &raw mut size) };
    (failed == 0).then_some(value)
}

/// Returns the offsets of the parts of a socket's rings in their mappings.
pub(crate) fn mmap_offsets(fd: RawFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: all members are numbers, for which zero is a value.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let size = size_of_val(&offsets);
    let mut written = libc::socklen_t::try_from(size).unwrap_or_default();
    let to = (&raw mut offsets).cast();
    // SAFETY: both pointers are to live locals, and the second says how large the first is.
    let failed = unsafe { libc::getsockopt(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, to, &raw mut written) };
    match failed {
        // Before Linux 5.4 the kernel wrote a shorter struct without flags.
        0 if written as usize == size => Ok(offsets),
        0 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
