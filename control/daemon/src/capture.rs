//! Packets as a pcapng stream, which the daemon sends and `srv6d capture` writes.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use srv6d_dataplane::capture::{Capture, Captured, Fate};
use srv6d_pcap::{Packet, Sorter, Stream};
use tracing::info;

use srv6d_api::Direction;

/// Longest wait for a packet before the stream is flushed and the client's connection is checked.
const REST: Duration = Duration::from_millis(50);
/// How much later than others the copies of the XDP program may come.
const LATE: Duration = Duration::from_millis(10);

/// Largest number of captures at a time: each one is a thread and slows its port down.
const CAPTURES: usize = 16;
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// Permission to run one of the `CAPTURES`.
#[derive(Debug)]
pub struct Turn(());

impl Turn {
    /// Returns `None` if the largest number of captures is running.
    pub fn take() -> Option<Self> {
        let more = |now| (now < CAPTURES).then_some(now + 1);
        UNDER_WAY.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(|_| Self(()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Devices by the number of their sockets.
pub type Devices = BTreeMap<usize, String>;

/// Sends copies of packets to a client until the client closes the connection. `captured` names what is captured, for the
/// log.
pub fn send_in_background(
    turn: Turn,
    stream: UnixStream,
    capture: Capture,
    devices: Devices,
    direction: Option<Direction>,
    captured: String,
) {
    let sending = std::thread::Builder::new().name("srv6d-capture".to_owned()).spawn(move || {
        let _turn = turn;
        info!("{captured}: packets are being captured");
        let sent = send(&stream, &capture, &devices, direction);
        let why = sent.err().map_or_else(String::new, |why| format!(" ({why})"));
        info!("{captured}: end of the capture{why}, {} packets did not fit into its queue", capture.lost());
    });
    if let Err(why) = sending {
        info!("no capture: {why}");
    }
}

fn send(stream: &UnixStream, capture: &Capture, devices: &Devices, direction: Option<Direction>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut pcap = Stream::new(stream)?;
    let is_asked = |packet: &Captured| direction.is_none_or(|direction| (direction == Direction::Out) == packet.sent);
    // Copies of the XDP program come later than those of workers.
    let mut sorter = Sorter::new(LATE);
    while is_open(stream)? {
        let mut next = capture.next(if sorter.is_empty() { REST } else { LATE });
        while let Some(packet) = next {
            if is_asked(&packet) {
                sorter.push(described(packet, devices));
            }
            next = if sorter.is_full() { None } else { capture.next(Duration::ZERO) };
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        while let Some(packet) = sorter.pop(now) {
            pcap.packet(&packet)?;
        }
        pcap.flush()?;
    }
    // A client that asks for no more gets what was captured until then. One that has gone needs nothing.
    while let Some(packet) = capture.next(Duration::ZERO).filter(|_| !sorter.is_full()) {
        if is_asked(&packet) {
            sorter.push(described(packet, devices));
        }
    }
    let rest = std::iter::from_fn(|| sorter.take()).try_for_each(|packet| pcap.packet(&packet).map(drop));
    drop(rest.and_then(|()| pcap.flush()));
    Ok(())
}

/// Returns a packet with the name of its device, and with what became of it.
fn described(captured: Captured, devices: &Devices) -> Packet {
    Packet {
        interface: devices.get(&captured.socket).cloned().unwrap_or_default(),
        time: captured.time,
        sent: Some(captured.sent),
        bytes: captured.bytes,
        length: captured.length,
        comment: captured.fate.map(|fate| told(fate, devices)),
    }
}

fn told(fate: Fate, devices: &Devices) -> String {
    match fate {
        Fate::Sent(socket) => match socket.and_then(|socket| devices.get(&socket)) {
            Some(device) => format!("sent by {device}"),
            None => "sent".to_owned(),
        },
        Fate::Kernel => "to the kernel of this node".to_owned(),
        Fate::Error(reason) => format!("answered with an ICMP error: {}", reason.name()),
        Fate::Echo => "answered with an echo reply".to_owned(),
        Fate::Dropped(reason) => format!("dropped: {}", reason.name()),
        Fate::Held => "waits for a neighbour".to_owned(),
    }
}

/// Whether the client is still connected. It sends nothing after its request, so if there is something to read, it is
/// the end of the stream.
fn is_open(stream: &UnixStream) -> io::Result<bool> {
    use std::os::fd::AsFd;
    let mut fds = [nix::poll::PollFd::new(stream.as_fd(), nix::poll::PollFlags::POLLIN)];
    Ok(nix::poll::poll(&mut fds, nix::poll::PollTimeout::ZERO)? == 0)
}
