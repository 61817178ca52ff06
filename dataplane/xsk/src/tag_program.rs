//! The claim program for one device, which asks the driver for VLAN tags that stand beside frames (`bpf/tags.c`).
//!
//! A NIC that strips tags, and a veth whose peer inserts them, give an XDP program frames without them. Since Linux 6.8
//! `bpf_xdp_metadata_rx_vlan_tag` tells of the tag, to a program that was loaded for that very device
//! (`BPF_F_XDP_DEV_BOUND_ONLY`). aya loads no such programs, so libbpf does. It uses the maps of the claim program.
//!
//! ```text
//! frame ─► this program ── a tag beside it? ── yes ─► claimed? ─► the tag is written into the frame ─► socket
//!                │ no
//!                ▼
//!          `front`: srv6d_offload, where it is on the port ─► claim.c of all ports
//! ```

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use crate::claim_program::ClaimProgram;

/// What `bpf/tags.c` was compiled to.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tags.o"));
const PROGRAM: &CStr = c"srv6d_claim";
const FRONT: &CStr = c"front";
/// `linux/bpf.h`.
const BPF_F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;

/// The program, loaded for one device.
#[derive(Debug)]
pub(crate) struct TagProgram {
    program: OwnedFd,
    front: OwnedFd,
}

impl TagProgram {
    /// # Errors
    /// The kernel is older than Linux 6.8 or has no BTF, or the driver does not tell of tags.
    pub(crate) fn load(claims: &ClaimProgram, ifindex: u32) -> io::Result<Self> {
        let object = Object::open()?;
        for (name, fd) in claims.map_fds()? {
            object.reuse_map(name, fd.as_fd())?;
        }
        object.bind_to(ifindex)?;
        object.load()?;
        Ok(Self { program: object.program_fd()?, front: object.map_fd(FRONT)? })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// The program that frames without such a tag go to; `None`: they are claimed here.
    pub(crate) fn set_front(&self, program: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let (map, key) = (self.front.as_raw_fd(), 0_u32);
        let key = (&raw const key).cast();
        let code = match program.map(|program| program.as_raw_fd()) {
            Some(fd) => {
                // SAFETY: key and value are live integers of the sizes that the map has.
                unsafe { libxdp_sys::bpf_map_update_elem(map, key, (&raw const fd).cast(), 0) }
            }
            // SAFETY: the key is a live integer of the size that the map has.
            None => match unsafe { libxdp_sys::bpf_map_delete_elem(map, key) } {
                code if code == -libc::ENOENT => 0,
                code => code,
            },
        };
        checked(code)
    }
}

/// An object file that libbpf has read.
struct Object(NonNull<libxdp_sys::bpf_object>);

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: libbpf gave the pointer, and nobody else closes it.
        unsafe { libxdp_sys::bpf_object__close(self.0.as_ptr()) };
    }
}

impl Object {
    fn open() -> io::Result<Self> {
        crate::sys::quiet_libraries();
        // SAFETY: the bytes live as long as the process; no options.
        let object =
            unsafe { libxdp_sys::bpf_object__open_mem(OBJECT.as_ptr().cast(), OBJECT.len() as _, std::ptr::null()) };
        NonNull::new(object).map(Self).ok_or_else(io::Error::last_os_error)
    }

    fn reuse_map(&self, name: &CStr, fd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: the object lives, the name ends with a zero; libbpf keeps a copy of the descriptor.
        checked(unsafe { libxdp_sys::bpf_map__reuse_fd(self.map(name)?, fd.as_raw_fd()) })
    }

    fn map(&self, name: &CStr) -> io::Result<*mut libxdp_sys::bpf_map> {
        // SAFETY: the object lives, the name ends with a zero.
        let map = unsafe { libxdp_sys::bpf_object__find_map_by_name(self.0.as_ptr(), name.as_ptr()) };
        if map.is_null() { Err(io::ErrorKind::NotFound.into()) } else { Ok(map) }
    }

    fn program(&self) -> io::Result<*mut libxdp_sys::bpf_program> {
        // SAFETY: the object lives, the name ends with a zero.
        let program = unsafe { libxdp_sys::bpf_object__find_program_by_name(self.0.as_ptr(), PROGRAM.as_ptr()) };
        if program.is_null() { Err(io::ErrorKind::NotFound.into()) } else { Ok(program) }
    }

    fn bind_to(&self, ifindex: u32) -> io::Result<()> {
        let program = self.program()?;
        // SAFETY: the program belongs to the object, which lives and is not loaded yet.
        unsafe { libxdp_sys::bpf_program__set_ifindex(program, ifindex) };
        // SAFETY: the same.
        let flags = unsafe { libxdp_sys::bpf_program__flags(program) } | BPF_F_XDP_DEV_BOUND_ONLY;
        // SAFETY: the same.
        checked(unsafe { libxdp_sys::bpf_program__set_flags(program, flags) })
    }

    fn load(&self) -> io::Result<()> {
        // SAFETY: the object lives.
        checked(unsafe { libxdp_sys::bpf_object__load(self.0.as_ptr()) })
    }

    fn program_fd(&self) -> io::Result<OwnedFd> {
        // SAFETY: the program belongs to the object, which lives.
        owned(unsafe { libxdp_sys::bpf_program__fd(self.program()?) })
    }

    fn map_fd(&self, name: &CStr) -> io::Result<OwnedFd> {
        // SAFETY: the map belongs to the object, which lives.
        owned(unsafe { libxdp_sys::bpf_map__fd(self.map(name)?) })
    }
}

fn checked(code: i32) -> io::Result<()> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) }
}

/// A copy of a descriptor that an object owns.
fn owned(fd: i32) -> io::Result<OwnedFd> {
    checked(fd)?;
    // SAFETY: takes a number; what comes back is a new descriptor or an error.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made the descriptor just now, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}
