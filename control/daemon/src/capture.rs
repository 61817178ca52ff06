//! Packets as a pcap stream, which the daemon sends and `srv6d capture` writes.

use std::io::{self, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, PcapError, TsResolution};
use srv6d_dataplane::capture::Capture;
use tracing::info;

use srv6d_api::Direction;

/// Length of the longest packet that is written whole. It is the limit of tcpdump, too.
const SNAPLEN: u32 = 262_144;
/// Longest wait for a packet before the stream is flushed and the client's connection is checked.
const REST: Duration = Duration::from_millis(50);

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
    while is_open(stream)? {
        let mut next = capture.next(REST);
        while let Some(packet) = next {
            if direction.is_none_or(|direction| (direction == Direction::Out) == packet.sent) {
                pcap.packet(packet.time, &packet.bytes, packet.length)?;
            }
            next = capture.next(Duration::ZERO);
        }
        pcap.flush()?;
    }
    Ok(())
}

/// Whether the client is still connected. It sends nothing after its request, so if there is something to read, it is
/// the end of the stream.
fn is_open(stream: &UnixStream) -> io::Result<bool> {
    use std::os::fd::AsFd;
    let mut fds = [nix::poll::PollFd::new(stream.as_fd(), nix::poll::PollFlags::POLLIN)];
    Ok(nix::poll::poll(&mut fds, nix::poll::PollTimeout::ZERO)? == 0)
}
