//! Packets as a pcapng stream, which the daemon sends and `srv6d capture` writes.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};
use srv6d_dataplane::capture::{Capture, Captured, Fate};
use srv6d_pcap::{Packet, Stream};
use tracing::info;

use srv6d_api::Direction;

/// Largest number of interfaces in a pcapng file.
const MOST_INTERFACES: usize = 1024;
/// Longest wait for a packet before the stream is flushed and the client's connection is checked.
const REST: Duration = Duration::from_millis(50);
/// How much later than others the copies of the XDP program may come.
const LATE: Duration = Duration::from_millis(10);
/// Largest number of packets that wait for earlier ones.
const MOST_WAITING: usize = 16_384;

/// Returns the frame with this number, from 1, of a capture in a file: pcap or pcapng, of Ethernet.
///
/// # Errors
/// What is wrong with the file, or that it has fewer frames, or that the frame is longer than `longest` bytes or was not
/// captured whole.
pub fn nth_frame(mut from: impl BufRead, number: u64, longest: usize) -> Result<Vec<u8>, String> {
    let magic = from.fill_buf().map_err(|why| format!("cannot be read: {why}"))?.first().copied();
    let found =
        if magic == Some(FIRST_BYTE_OF_PCAPNG) { nth_of_pcapng(from, number) } else { nth_of_pcap(from, number) };
    let (bytes, length) = found?.ok_or_else(|| format!("the capture has fewer than {number} packets"))?;
    if bytes.len() < length {
        return Err(format!("packet {number} was cut to {} of {length} bytes: capture it whole", bytes.len()));
    }
    if bytes.len() > longest {
        return Err(format!("packet {number} has {} bytes, and a port takes {longest} at most", bytes.len()));
    }
    Ok(bytes)
}

/// A frame as captured, and its length on the wire.
type Recorded = (Vec<u8>, usize);
const FIRST_BYTE_OF_PCAPNG: u8 = 0x0a;

fn no_ethernet(link: DataLink) -> String {
    format!("the capture is of {link:?}, not of Ethernet: capture on a port, not on `any`")
}

fn damaged(why: &PcapError) -> String {
    format!("is no capture, or a damaged one: {why}")
}

fn nth_of_pcap(from: impl Read, number: u64) -> Result<Option<Recorded>, String> {
    let mut reader = PcapReader::new(from).map_err(|why| damaged(&why))?;
    if reader.header().datalink != DataLink::ETHERNET {
        return Err(no_ethernet(reader.header().datalink));
    }
    for at in 1.. {
        match reader.next_packet().transpose().map_err(|why| damaged(&why))? {
            Some(packet) if at == number => return Ok(Some((packet.data.into_owned(), packet.orig_len as usize))),
            Some(_) => {}
            None => break,
        }
    }
    Ok(None)
}

fn nth_of_pcapng(from: impl Read, number: u64) -> Result<Option<Recorded>, String> {
    let mut reader = PcapNgReader::new(from).map_err(|why| damaged(&why))?;
    let mut at = 0;
    let mut links: Vec<DataLink> = Vec::new();
    while let Some(block) = reader.next_block().transpose().map_err(|why| damaged(&why))? {
        let (bytes, length, interface) = match block {
            // A file may be several captures, one behind the other. Each has interfaces of its own.
            Block::SectionHeader(_) => {
                links.clear();
                continue;
            }
            Block::InterfaceDescription(interface) => {
                if links.len() == MOST_INTERFACES {
                    return Err(format!("the capture has more than {MOST_INTERFACES} interfaces"));
                }
                links.push(interface.linktype);
                continue;
            }
            Block::EnhancedPacket(packet) => (packet.data, packet.original_len, packet.interface_id),
            Block::SimplePacket(packet) => (packet.data, packet.original_len, 0),
            _ => continue,
        };
        at += 1;
        if at < number {
            continue;
        }
        let link = usize::try_from(interface).ok().and_then(|interface| links.get(interface)).copied();
        return match link {
            Some(DataLink::ETHERNET) => Ok(Some((bytes.into_owned(), length as usize))),
            Some(other) => Err(no_ethernet(other)),
            None => Err(format!("packet {number} is of an interface that the capture does not describe")),
        };
    }
    Ok(None)
}

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
    let mut waiting = Vec::new();
    while is_open(stream)? {
        let mut next = capture.next(if waiting.is_empty() { REST } else { LATE });
        while let Some(packet) = next {
            waiting.extend(Some(packet).filter(is_asked));
            next = if waiting.len() < MOST_WAITING { capture.next(Duration::ZERO) } else { None };
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for packet in in_order(&mut waiting, now) {
            pcap.packet(&described(packet, devices))?;
        }
        pcap.flush()?;
    }
    Ok(())
}

/// Removes the packets that nothing earlier can follow, in the order of their times. Copies of the XDP program come later than
/// those of workers.
fn in_order(waiting: &mut Vec<Captured>, now: Duration) -> impl Iterator<Item = Captured> {
    waiting.sort_by_key(|packet| packet.time);
    let is_full = waiting.len() >= MOST_WAITING;
    let ripe = if is_full { waiting.len() } else { waiting.partition_point(|packet| packet.time + LATE <= now) };
    waiting.drain(..ripe)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 12).unwrap_or_default().to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    }

    /// Returns a section of a pcapng file with an interface of this type, and a packet of four bytes.
    fn section(link: u8, packet: [u8; 4]) -> Vec<u8> {
        let header = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
        let captured = [&[0; 12][..], &[4, 0, 0, 0, 4, 0, 0, 0], &packet].concat();
        [block(0x0a0d_0d0a, &header), block(1, &[link, 0, 0, 0, 0, 0, 0, 0]), block(6, &captured)].concat()
    }

    #[test]
    fn packets_stand_in_the_order_of_their_times() {
        let packet = |millis| Captured {
            socket: 0,
            fate: None,
            time: Duration::from_millis(millis),
            sent: true,
            length: 1,
            bytes: vec![0],
        };
        let mut waiting = [20, 18, 25, 19].map(packet).to_vec();
        let mut taken = |now: u64| -> Vec<u128> {
            in_order(&mut waiting, Duration::from_millis(now)).map(|packet| packet.time.as_millis()).collect()
        };
        assert_eq!([taken(30), taken(30), taken(99)], [vec![18, 19, 20], vec![], vec![25]]);
        let mut many = vec![packet(1000); MOST_WAITING];
        assert_eq!(in_order(&mut many, Duration::ZERO).count(), MOST_WAITING, "there is no room for more");
    }

    #[test]
    fn each_section_of_a_file_has_interfaces_of_its_own() {
        const RAW: u8 = 101;
        const ETHERNET: u8 = 1;
        let file = [section(RAW, *b"last"), section(ETHERNET, *b"this")].concat();
        assert_eq!(nth_frame(&file[..], 2, 16), Ok(b"this".to_vec()));
        assert!(nth_frame(&file[..], 1, 16).is_err_and(|why| why.contains("not of Ethernet")));
    }
}
