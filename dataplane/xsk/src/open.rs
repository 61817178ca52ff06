//! Opens a socket: chooses mode and flags, and explains the choice.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use xsk_rs::config::{Interface, LibxdpFlags, SocketConfig};
use xsk_rs::{CompQueue, FillQueue, RxQueue, TxQueue};

use crate::frame::ROOM;
use crate::modes::{self, Attempt, Mode};
use crate::socket::{Rings, Socket};
use crate::sys::{close_on_exec, is_unbound, set_tx_budget};
use crate::tx_ring::TxRing;
use crate::umem::{self, Shared, Umem, UmemHandle};
use crate::{XskError, ethtool};

/// Number of packets that one wake-up sends in copy mode. It is larger than a burst, so that a flush takes one system
/// call.
const TX_BUDGET: u32 = 256;

impl Socket {
    /// Opens `queue` of `ifname` in `mode` or, with [`Mode::Auto`], in the best mode that the device has. The port's
    /// [`Program`](crate::Program) must be attached first: generic XDP excludes zero-copy, and this function looks at
    /// the attached program to see it.
    ///
    /// Blocks and retries for up to 2.5 s if the queue was released a moment ago. The first
    /// [`rx_burst`](Self::rx_burst) gives the kernel its chunks; nothing is received before that.
    pub fn open(umem: &Umem, ifname: &str, queue: u32, mode: Mode, rings: Rings) -> Result<Self, XskError> {
        Self::open_on(&umem.handle(), ifname, queue, mode, rings)
    }

    /// Like [`open`](Self::open), but for a thread that does not own the UMEM.
    pub fn open_on(umem: &UmemHandle, ifname: &str, queue: u32, mode: Mode, rings: Rings) -> Result<Self, XskError> {
        crate::sys::quiet_libraries();
        let shared = &umem.0;
        let ifindex = crate::ifindex(ifname)?;
        let mtu = ethtool::mtu(ifname)?;
        let generic = mode == Mode::Generic || crate::probe::attached(ifindex).is_some_and(|on| on.generic);
        let sizes = (umem::ring("rx", rings.rx)?, umem::ring("tx", rings.tx)?);

        // Only one socket is opened at a time: the first to bind fixes the modes for the others.
        let mut anchor = shared.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = anchor.and_then(|fd| carries_no_more(shared, fd)) {
            return Err(XskError::FirstSocket { ifname: ifname.to_owned(), queue, why });
        }
        // A later socket inherits the flags of the first.
        let single = anchor.is_some() && !shared.multi_buffer.load(Relaxed);
        if mode == Mode::ZeroCopy && single && !modes::fits_one_chunk(mtu) {
            return Err(XskError::SingleBuffer { ifname: ifname.to_owned(), queue, mtu });
        }
        let mut log = Vec::new();
        let mut last = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        for attempt in modes::attempts(mode, generic, mtu) {
            if anchor.is_some() && !attempt.multi_buffer {
                continue; // the kernel ignores the flags of later sockets
            }
            match bind(shared, ifname, queue, sizes, &attempt) {
                Ok(bound) => {
                    let first = anchor.is_none();
                    let fd = bound.0.fd().as_raw_fd();
                    close_on_exec(fd);
                    // The kernel refuses a budget that is larger than the ring.
                    set_tx_budget(fd, rings.tx.min(TX_BUDGET));
                    if first {
                        *anchor = Some(fd);
                        shared.multi_buffer.store(attempt.multi_buffer, Relaxed);
                    }
                    let zero_copy = modes::is_zero_copy(fd);
                    if mode == Mode::ZeroCopy && !zero_copy {
                        log.push("the first socket of the UMEM is in copy mode".to_owned());
                        break;
                    }
                    let (rx, tx, fill, completion) = bound;
                    let tx = TxRing::of(tx, rings.tx).map_err(|why| XskError::TxRing {
                        ifname: ifname.to_owned(),
                        queue,
                        why,
                    })?;
                    shared.socket_bound(ifindex, queue);
                    let reason = reason(mode, &log, first, zero_copy, generic, shared, mtu);
                    let chosen = (name(zero_copy, generic), reason);
                    let rings = (rx, tx, fill, completion);
                    return Ok(Self::new(shared, rings, ifname, ifindex, queue, chosen));
                }
                Err(why) => {
                    log.push(format!("{}: {why}", attempt.name()));
                    let give_up = !modes::mode_refused(&why);
                    last = why;
                    if give_up {
                        break;
                    }
                }
            }
        }
        Err(XskError::Bind {
            ifname: ifname.to_owned(),
            queue,
            tried: log.join("; "),
            fix: modes::fix_for(&last),
            why: last,
        })
    }
}

/// The rings of a bound socket.
type Bound = (RxQueue, TxQueue, FillQueue, CompQueue);

/// Binds in one mode and waits while the queue is still being released.
fn bind(
    shared: &Arc<Shared>,
    ifname: &str,
    queue: u32,
    (rx, tx): (xsk_rs::config::QueueSize, xsk_rs::config::QueueSize),
    attempt: &Attempt,
) -> io::Result<Bound> {
    let interface: Interface = ifname.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let config = SocketConfig::builder()
        .rx_queue_size(rx)
        .tx_queue_size(tx)
        .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
        .bind_flags(attempt.flags)
        .build();
    let mut waits = modes::BUSY_WAITS.into_iter();
    loop {
        // SAFETY: libxdp loads no program (INHIBIT_PROG_LOAD), which is the condition for binding a pair of device and
        // queue again.
        let made = unsafe { xsk_rs::Socket::new(config, &shared.region, &interface, queue) };
        let why = match made {
            Ok((tx, rx, Some((fill, completion)))) => return Ok((rx, tx, fill, completion)),
            // This UMEM already has a socket on this queue, and that one owns the rings.
            Ok((_, _, None)) => return Err(io::Error::from_raw_os_error(libc::EBUSY)),
            Err(why) => crate::os_error(&why).unwrap_or_else(|| io::Error::other(why.to_string())),
        };
        match waits.next() {
            Some(wait) if why.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(wait),
            _ => return Err(why),
        }
    }
}

fn name(zero_copy: bool, generic: bool) -> Mode {
    match (zero_copy, generic) {
        (true, _) => Mode::ZeroCopy,
        (false, true) => Mode::Generic,
        (false, false) => Mode::Native,
    }
}

/// Returns why this mode is in use, as text for users. The text is empty if the mode is the one asked for.
fn reason(
    asked: Mode,
    log: &[String],
    first: bool,
    zero_copy: bool,
    generic: bool,
    shared: &Shared,
    mtu: usize,
) -> String {
    let mut parts = Vec::new();
    if zero_copy {
        parts.push("the driver reads and writes packet memory itself".to_owned());
    } else if generic {
        parts.push("the XDP program runs in generic mode".to_owned());
    } else if !first && asked == Mode::Auto {
        parts.push("packets are copied, as by the first socket of this packet memory".to_owned());
    }
    parts.extend(log.iter().map(|refused| format!("the driver refused {refused}")));
    if !shared.multi_buffer.load(Relaxed) && !modes::fits_one_chunk(mtu) {
        parts.push(format!("packets over {ROOM} bytes are dropped: the driver has no multi-buffer mode (MTU {mtu})"));
    }
    parts.join("; ")
}

/// Returns why the UMEM with this first socket takes no further socket. libxdp would try to bind on the UMEM's own
/// descriptor and fail with an error that explains nothing.
fn carries_no_more(shared: &Shared, first: RawFd) -> Option<&'static str> {
    if is_unbound(first) {
        return Some("the interface of its first socket was deleted");
    }
    (shared.sockets.load(Relaxed) == 0).then_some("all its sockets were closed")
}
