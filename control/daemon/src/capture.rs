//! Packets as a pcap stream, which the daemon sends and `srv6d capture` writes.

use std::io::{self, BufRead, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};
use srv6d_dataplane::capture::{Capture, Captured};
use tracing::info;

use srv6d_api::Direction;

/// Length of the longest packet that is written whole. It is the limit of tcpdump, too.
const SNAPLEN: u32 = 262_144;
/// Largest number of interfaces in a pcapng file.
const MOST_INTERFACES: usize = 1024;
/// Longest wait for a packet before the stream is flushed and the client's connection is checked.
const REST: Duration = Duration::from_millis(50);
/// How much later than others the copies of the XDP program may come.
const LATE: Duration = Duration::from_millis(10);
/// Largest number of packets that wait for earlier ones.
const MOST_WAITING: usize = 16_384;

/// A pcap stream that can be flushed.
#[derive(Debug)]
pub struct PcapStream<W: Write> {
    writer: PcapWriter<Shared<W>>,
    buffer: Shared<W>,
}

/// The writer at the end of the stream. The pcap writer gives no access to its own writer, so it is shared.
#[derive(Debug)]
struct Shared<W: Write>(Arc<Mutex<BufWriter<W>>>);

impl<W: Write> Write for Shared<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

impl<W: Write> PcapStream<W> {
    /// Writes the header: Ethernet, timestamps in nanoseconds.
    ///
    /// # Errors
    /// The stream accepts no data.
    pub fn new(to: W) -> io::Result<Self> {
        let shared = Arc::new(Mutex::new(BufWriter::new(to)));
        let header = PcapHeader {
            snaplen: SNAPLEN,
            datalink: DataLink::ETHERNET,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(Shared(Arc::clone(&shared)), header).map_err(as_io)?;
        let mut stream = Self { writer, buffer: Shared(shared) };
        stream.flush()?;
        Ok(stream)
    }

    /// Writes one packet of which `bytes` were captured; its full length is `length`.
    ///
    /// # Errors
    /// The stream accepts no more data.
    pub fn packet(&mut self, time: Duration, bytes: &[u8], length: usize) -> io::Result<()> {
        // Readers refuse a stream with a packet whose length exceeds the longest one.
        let length = u32::try_from(length).unwrap_or(SNAPLEN).min(SNAPLEN);
        self.writer.write_packet(&PcapPacket::new(time, length, bytes)).map(drop).map_err(as_io)
    }

    /// Writes out everything that is buffered.
    ///
    /// # Errors
    /// The stream accepts no more data.
    pub fn flush(&mut self) -> io::Result<()> {
        self.buffer.flush()
    }
}

/// Copies a pcap stream packet by packet. If the stream ends within a packet, or a packet cannot be parsed, copying
/// ends there without an error.
///
/// # Errors
/// `to` accepts no more data.
pub fn copy(from: impl Read, to: &Mutex<PcapStream<impl Write>>) -> io::Result<()> {
    let Ok(mut reader) = PcapReader::new(from) else { return Ok(()) };
    while let Some(Ok(packet)) = reader.next_packet() {
        let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
        to.packet(packet.timestamp, &packet.data, packet.orig_len as usize)?;
        to.flush()?;
    }
    Ok(())
}

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

fn as_io(why: PcapError) -> io::Error {
    match why {
        PcapError::IoError(why) => why,
        other => io::Error::other(other),
    }
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

/// Sends copies of a port's packets to a client until the client closes the connection.
pub fn send_in_background(
    turn: Turn,
    stream: UnixStream,
    capture: Capture,
    direction: Option<Direction>,
    port: String,
) {
    let sending = std::thread::Builder::new().name("srv6d-capture".to_owned()).spawn(move || {
        let _turn = turn;
        info!("{port}: packets are being captured");
        let sent = send(&stream, &capture, direction);
        let why = sent.err().map_or_else(String::new, |why| format!(" ({why})"));
        info!("{port}: end of the capture{why}, {} packets did not fit into its queue", capture.lost());
    });
    if let Err(why) = sending {
        info!("no capture: {why}");
    }
}

fn send(stream: &UnixStream, capture: &Capture, direction: Option<Direction>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut pcap = PcapStream::new(stream)?;
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
            pcap.packet(packet.time, &packet.bytes, packet.length)?;
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
        let packet = |millis| Captured { time: Duration::from_millis(millis), sent: true, length: 1, bytes: vec![0] };
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
