//! Waits until every XDP program run that began before a given moment has ended.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread::JoinHandle;
use std::{io, ptr};

/// A map of maps that no program reads. A system call that changes such a map returns only when every program that was
/// running at that moment has ended (`maybe_wait_bpf_programs` in the kernel's kernel/bpf/syscall.c). The map serves no
/// other purpose. The call takes some ten milliseconds, so it runs on a thread of its own.
pub(super) struct Grace {
    maps: Maps,
    waiting: Option<JoinHandle<io::Result<()>>>,
}

struct Maps {
    inner: OwnedFd,
    outer: OwnedFd,
}

impl Grace {
    pub(super) fn new() -> io::Result<Self> {
        let inner = make(libxdp_sys::bpf_map_type_BPF_MAP_TYPE_ARRAY, None)?;
        let outer = make(libxdp_sys::bpf_map_type_BPF_MAP_TYPE_ARRAY_OF_MAPS, Some(&inner))?;
        Ok(Self { maps: Maps { inner, outer }, waiting: None })
    }

    /// Begins to wait for the programs that run now.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        let maps = Maps { inner: self.maps.inner.try_clone()?, outer: self.maps.outer.try_clone()? };
        let thread = std::thread::Builder::new().name("srv6d-grace".to_owned());
        self.waiting = Some(thread.spawn(move || maps.exchange())?);
        Ok(())
    }

    /// Blocks until every program that ran at the last [`begin`](Self::begin) has ended.
    pub(super) fn end(&mut self) -> io::Result<()> {
        match self.waiting.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(waited)) => waited,
            Some(Err(_)) => Err(io::Error::other("the waiting thread panicked")),
        }
    }
}

impl Maps {
    fn exchange(&self) -> io::Result<()> {
        let (key, value) = (0_u32, self.inner.as_raw_fd());
        // SAFETY: the two pointers are to live integers of the sizes that the map was made with, and are only read.
        let code = unsafe {
            libxdp_sys::bpf_map_update_elem(
                self.outer.as_raw_fd(),
                (&raw const key).cast(),
                (&raw const value).cast(),
                0,
            )
        };
        if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) }
    }
}

/// Creates a map with one entry whose key and value have four bytes each.
fn make(kind: libxdp_sys::bpf_map_type, inner: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    // SAFETY: all members are numbers and pointers that may be null.
    let mut options: libxdp_sys::bpf_map_create_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options);
    options.inner_map_fd = inner.map_or(0, |inner| inner.as_raw_fd().cast_unsigned());
    // SAFETY: a null name is allowed; `options` is live, and its first member holds its size.
    let fd = unsafe { libxdp_sys::bpf_map_create(kind, ptr::null(), 4, 4, 1, &raw const options) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel made the descriptor just now, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
