//! Loads the claim program for one device; this version asks the driver for VLAN tags that stand beside frames
//! (`bpf/tags.c`).
//!
//! A NIC that strips tags, and a veth whose peer inserts them, give an XDP program frames without their tags. Since
//! Linux 6.8 `bpf_xdp_metadata_rx_vlan_tag` returns the tag, but only to a program that was loaded for that very device
//! (`BPF_F_XDP_DEV_BOUND_ONLY`). aya cannot load such programs, so libbpf does it. The program uses the maps of the
//! claim program.
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

/// The object file that `bpf/tags.c` was compiled to.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tags.o"));
const PROGRAM: &CStr = c"srv6d_claim";
const FRONT: &CStr = c"front";
/// Flag of `linux/bpf.h`.
const BPF_F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;

/// The program, loaded for one device.
#[derive(Debug)]
pub(crate) struct TagProgram {
    program: OwnedFd,
    front: OwnedFd,
}

impl TagProgram {
    /// Loads the program for the device with this index.
    ///
    /// # Errors
    /// The kernel is older than Linux 6.8 or has no BTF, or the driver does not report tags.
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

    /// Sets the program that gets frames without such a tag. With `None` this program itself claims them.
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

/// An object file that libbpf has parsed.
struct Object(NonNull<libxdp_sys::bpf_object>);

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: libbpf returned the pointer, and nobody else closes it.
        unsafe { libxdp_sys::bpf_object__close(self.0.as_ptr()) };
    }
}

impl Object {
    fn open() -> io::Result<Self> {
        crate::sys::quiet_libraries();
        // SAFETY: the bytes live as long as the process, and there are no options.
        let object =
            unsafe { libxdp_sys::bpf_object__open_mem(OBJECT.as_ptr().cast(), OBJECT.len() as _, std::ptr::null()) };
        NonNull::new(object).map(Self).ok_or_else(io::Error::last_os_error)
    }

    fn reuse_map(&self, name: &CStr, fd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: the object lives, and the name ends with a zero; libbpf keeps a copy of the descriptor.
        checked(unsafe { libxdp_sys::bpf_map__reuse_fd(self.map(name)?, fd.as_raw_fd()) })
    }

    fn map(&self, name: &CStr) -> io::Result<*mut libxdp_sys::bpf_map> {
        // SAFETY: the object lives, and the name ends with a zero.
        let map = unsafe { libxdp_sys::bpf_object__find_map_by_name(self.0.as_ptr(), name.as_ptr()) };
        if map.is_null() { Err(io::ErrorKind::NotFound.into()) } else { Ok(map) }
    }

    fn program(&self) -> io::Result<*mut libxdp_sys::bpf_program> {
        // SAFETY: the object lives, and the name ends with a zero.
        let program = unsafe { libxdp_sys::bpf_object__find_program_by_name(self.0.as_ptr(), PROGRAM.as_ptr()) };
        if program.is_null() { Err(io::ErrorKind::NotFound.into()) } else { Ok(program) }
    }

    fn bind_to(&self, ifindex: u32) -> io::Result<()> {
        let program = self.program()?;
        // SAFETY: the program belongs to the object, which lives and is not loaded yet.
        unsafe { libxdp_sys::bpf_program__set_ifindex(program, ifindex) };
        // SAFETY: as above.
        let flags = unsafe { libxdp_sys::bpf_program__flags(program) } | BPF_F_XDP_DEV_BOUND_ONLY;
        // SAFETY: as above.
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

/// Returns a copy of a descriptor that an object owns.
fn owned(fd: i32) -> io::Result<OwnedFd> {
    checked(fd)?;
    // SAFETY: the call takes a number and returns a new descriptor or an error.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made the descriptor just now, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use aya::programs::loaded_programs;

    use super::*;
    use crate::claim_program::Capacity;

    const PAGE: u64 = 4096;

    /// If the program outgrows its pages, it is moved, and the device keeps the old address: see `leave_room` in
    /// `bpf/claim.c`.
    #[test]
    #[ignore = "needs root"]
    fn the_verifier_has_room_to_rewrite_the_program_where_it_is() {
        srv6d_netns::move_thread_to_new().unwrap();
        let added = std::process::Command::new("ip").args(["link", "add", "tags0", "type", "veth"]).status();
        assert!(added.unwrap().success());
        let claims = ClaimProgram::load(Capacity { ports: 1, queues: 1 }).unwrap();
        let program = match TagProgram::load(&claims, crate::ifindex("tags0").unwrap()) {
            Ok(program) => program,
            Err(why) => return println!("SKIPPED: this kernel tells no program of VLAN tags: {why}"),
        };
        let fdinfo = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.fd().as_raw_fd())).unwrap();
        let value = |key: &str| -> u64 {
            let line = fdinfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap();
            line.trim().parse().unwrap()
        };
        let id = value("prog_id");
        let info = loaded_programs().filter_map(Result::ok).find(|info| u64::from(info.id()) == id).unwrap();
        let (pages, rewritten) = (value("memlock"), u64::from(info.size_translated().unwrap()));
        assert!(rewritten + PAGE <= pages, "{rewritten} bytes of instructions in {pages}: less than a page is left");
    }
}
