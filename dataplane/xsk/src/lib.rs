//! AF_XDP ports: packet memory, sockets, and the XDP program that decides
//! which packets of a port come here and which stay with the kernel.
//!
//! ```text
//!            Program (on each port)                    Umem (one per worker)
//!   NIC ──► claim.c ── not claimed ──► kernel           ▲ pool of free chunks
//!              │ claimed                                │
//!              └────► Socket (one per port and queue) ──┴──► Frame (one packet)
//! ```
//!
//! Order at start: [`Umem::new`], [`Program::attach`], [`Socket::open`], [`Program::set_claims`],
//! [`Program::set_socket`]. Packets of a queue without a socket go to the kernel, so no order loses a packet. When the
//! process dies, the kernel removes the bpf_link behind [`Program`], and the port belongs to the kernel again.
//!
//! # One UMEM, several ports
//!
//! libxdp binds the first socket of a UMEM on the UMEM's own file descriptor and closes that only with the UMEM. Every
//! later socket is bound with `XDP_SHARED_UMEM` to that descriptor. This has three consequences:
//!
//! * **Open the socket of an interface that lives as long as the process first.** Once the first socket's device is
//!   deleted, the kernel refuses every further bind with EBADF. Later sockets may be opened and closed freely.
//! * The first socket fixes the modes of the UMEM: copy or zero-copy, and multi-buffer. A UMEM whose first socket is on
//!   a veth is a copy-mode UMEM; zero-copy NICs need a UMEM whose first socket is on such a NIC. [`Umem::copy_of`]
//!   moves a packet between two such UMEMs of a worker.
//! * Closing the first socket does not free its queue; dropping the UMEM does.
//!
//! This is the only crate of the workspace with `unsafe` in it. Its own rule: the holder of a [`Frame`] owns the bytes,
//! and the rings' `Copy` descriptors never leave the crate.

#![allow(clippy::doc_markdown)] // AF_XDP is a name, not code

pub mod arrivals;
mod busy_poll;
mod claim_program;
mod claims;
pub mod device_features;
mod error;
mod ethtool;
mod feature_changes;
mod frame;
mod hand_over;
mod huge_pages;
mod kernel_memory;
mod losses;
mod modes;
mod open;
pub mod probe;
mod program;
mod socket;
mod sys;
mod tag_program;
pub mod test_run;
mod tx_ring;
mod umem;
mod wait;
pub mod xdp_offload;

pub use busy_poll::{BusyPollWatch, BusyPolling};
pub use claim_program::{Capacity, ClaimProgram, Rules, View};
pub use error::XskError;
pub use feature_changes::FeatureChanges;
pub use frame::{CHUNK, Frame, FurtherChunks, MAX_CHUNKS, MAX_PUSH, ROOM};
pub use hand_over::QueueHandOver;
pub use huge_pages::in_huge_pages;
pub use kernel_memory::kernel_memory;
pub use losses::LossWatch;
pub use modes::Mode;
pub use program::{Counts, Program, ProgramSettings};
pub use socket::{Rings, Socket, SocketStats};
pub use umem::{Accounting, Umem, UmemHandle, UmemRings};
pub use wait::{Waker, Woken, wait};

use std::error::Error;
use std::io;

/// Returns the operating system's error somewhere in the chain of an error.
fn os_error(mut error: &(dyn Error + 'static)) -> Option<io::Error> {
    loop {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(io::Error::from_raw_os_error(code));
        }
        error = error.source()?;
    }
}

/// Returns the kernel's index of an interface in the caller's network namespace.
fn ifindex(ifname: &str) -> Result<u32, XskError> {
    nix::net::if_::if_nametoindex(ifname)
        .map_err(|why| XskError::NoInterface { ifname: ifname.to_owned(), why: why.into() })
}

fn ifindex_exists(ifindex: u32) -> bool {
    // On failure if_indextoname returns a null pointer, which nix takes for success with an empty name.
    nix::net::if_::if_indextoname(ifindex).is_ok_and(|name| !name.is_empty())
}
