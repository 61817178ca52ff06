//! Senders and receivers of the demonstration: a TCP transfer with a hash, a UDP stream with sequence numbers.
//!
//! Each prints one JSON object per line. A UDP datagram has this form:
//!
//! ```text
//! | sequence number, 8 bytes | total, 8 bytes | filling |
//!                             total: 0, or 1 if an answer is asked for; once the stream has ended, the number sent
//! ```
//!
//! An answer repeats the first 16 bytes.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use signal_hook::consts::SIGTERM;

use super::window::{Window, timed_out};

/// Longest wait for the other side.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The end of a stream may overtake datagrams that a busy node still has in a queue. So a datagram counts as lost only
/// after nothing has arrived for this long.
const LATE: Duration = Duration::from_secs(2);
const BETWEEN_GOODBYES: Duration = Duration::from_millis(50);
/// Number of bytes written at once.
const CHUNK: usize = 64 * 1024;
/// Size of the receive buffer for datagrams in bytes.
const UDP_BUFFER: usize = 32 * 1024 * 1024;
/// Value of the total in a datagram that asks for an answer.
const ASKS: u64 = 1;
/// Length of sequence number and total in bytes.
pub(super) const UDP_HEADER: usize = 16;

/// Reports that a receiver is listening.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Address on which it listens.
    pub listening: SocketAddr,
}

/// Report about a TCP connection from one side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpReport {
    /// Number of bytes.
    pub bytes: u64,
    /// SHA-256 of the bytes, in hexadecimal.
    pub sha256: String,
    /// Seconds from the first byte to the last.
    pub seconds: f64,
}

/// Report of a UDP sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpSent {
    /// Number of numbered datagrams, including refused ones.
    pub sent: u64,
    /// The part of them that the sender's own kernel refused because there was no route.
    pub refused: u64,
    /// Number of datagrams that only told the receiver that the stream has ended.
    pub closing: u64,
}

/// Report of a UDP receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpReport {
    /// Number of datagrams that the sender has sent, as it says.
    pub sent: u64,
    /// Number of different datagrams received.
    pub received: u64,
    /// Number of datagrams that never arrived.
    pub lost: u64,
    /// Number of datagrams that arrived again.
    pub duplicated: u64,
    /// Number of datagrams that arrived after one with a higher sequence number.
    pub reordered: u64,
    /// Number of sequence numbers from the first datagram that never arrived to the last one, both included. Datagrams
    /// in between that did arrive count, too.
    #[serde(default)]
    pub lost_within: u64,
}

/// Prints a report as one line.
pub(super) fn report<T: Serialize>(value: &T) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    writeln!(out)?;
    out.flush()
}

/// Repeats a call that was interrupted. A call on a socket with a timeout fails with EINTR when the process is stopped
/// and continued, as in a container that is paused, even if no signal is handled (signal(7)).
fn whatever_interrupts<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Receives one connection until its end.
pub fn tcp_receive(listen: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    report(&Listening { listening: listener.local_addr()? })?;
    let (mut stream, _) = accept(&listener)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let begin = Instant::now();
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; CHUNK]);
    loop {
        let length = whatever_interrupts(|| stream.read(&mut buffer))?;
        let Some(chunk) = buffer.get(..length).filter(|chunk| !chunk.is_empty()) else { break };
        hash.update(chunk);
        bytes += chunk.len() as u64;
    }
    report(&TcpReport { bytes, sha256: hexadecimal(&hash.finalize()), seconds: begin.elapsed().as_secs_f64() })
}

/// Accepts a connection, with a time limit.
pub(super) fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                stream.set_nonblocking(false)?;
                return Ok((stream, peer));
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock || Instant::now() > deadline => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Returns a flag that SIGTERM sets; the stream then ends early.
fn end_of_stream() -> io::Result<Arc<AtomicBool>> {
    let enough = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&enough))?;
    Ok(enough)
}

/// Sends `bytes` bytes that depend on `seed`, or fewer if SIGTERM comes. Waits until the receiver has closed the
/// connection.
pub fn tcp_send(to: SocketAddr, bytes: u64, seed: u64) -> io::Result<()> {
    let enough = end_of_stream()?;
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let begin = Instant::now();
    let (mut hash, mut left, mut words) = (Sha256::new(), bytes, XorShift(2 * seed + 1));
    let mut buffer = Vec::with_capacity(CHUNK);
    while left > 0 && !enough.load(Ordering::Relaxed) {
        let length = left.min(CHUNK as u64);
        buffer.clear();
        while (buffer.len() as u64) < length {
            buffer.extend_from_slice(&words.next().to_le_bytes());
        }
        buffer.truncate(usize::try_from(length).unwrap_or(CHUNK));
        hash.update(&buffer);
        stream.write_all(&buffer)?;
        left -= length;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.read_exact(&mut [0]).or_else(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Ok(()),
        _ => Err(error),
    })?;
    let bytes = bytes - left;
    report(&TcpReport { bytes, sha256: hexadecimal(&hash.finalize()), seconds: begin.elapsed().as_secs_f64() })
}

/// Marsaglia's xorshift64. It makes contents that differ for each transfer, without a file.
struct XorShift(u64);

impl XorShift {
    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing into a String cannot fail
        text
    })
}

/// Parameters of a UDP sender.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct UdpStream {
    to: SocketAddr,
    /// Datagrams per second.
    rate: u32,
    seconds: f64,
    /// Size of a datagram in bytes.
    size: usize,
    /// Number of source ports that are used in turn, so that a hash spreads the datagrams.
    #[arg(default_value_t = 1, conflicts_with = "window")]
    flows: u16,
    /// Number of datagrams that may be on their way at a time. If the machine is too busy, the stream becomes slower,
    /// and datagrams are not lost in queues that nothing had the time to empty.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    window: Option<u64>,
}

/// Sends evenly spaced datagrams, and then tells the receiver how many they were. A datagram that the kernel refuses
/// because there is no route at that moment counts as lost. SIGTERM ends the stream early.
pub fn udp_send(stream: &UdpStream) -> io::Result<()> {
    let UdpStream { to, rate, seconds, size, flows, window } = *stream;
    let enough = end_of_stream()?;
    let sockets: Vec<UdpSocket> = (0..flows.max(1)).map(|_| connected(to)).collect::<io::Result<_>>()?;
    let begin = Instant::now();
    let (mut sent, mut refused) = (0, 0);
    let mut window = window.map(Window::new);
    for socket in sockets.iter().cycle() {
        if begin.elapsed().as_secs_f64() >= seconds || enough.load(Ordering::Relaxed) {
            break;
        }
        let asks = match &mut window {
            Some(window) => window.wait(socket, sent)?,
            None => false,
        };
        refused += u64::from(!accepted(socket, &datagram(sent, if asks { ASKS } else { 0 }, size))?);
        sent += 1;
        let due = begin + Duration::from_secs(1) / rate.max(1) * u32::try_from(sent).unwrap_or(u32::MAX);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let closing = say_goodbye(&connected(to)?, sent)?;
    report(&UdpSent { sent, refused, closing })
}

fn connected(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if to.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket)
}

/// Sends a datagram. Returns false if there is no route at that moment.
fn accepted(socket: &UdpSocket, datagram: &[u8]) -> io::Result<bool> {
    match socket.send(datagram) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable) => {
            Ok(false)
        }
        done => done.map(|_| true),
    }
}

/// Tells the receiver that the stream has ended. This message may be lost like any other, so it is repeated until the
/// receiver confirms it. Returns how often it was sent.
fn say_goodbye(socket: &UdpSocket, sent: u64) -> io::Result<u64> {
    socket.set_read_timeout(Some(BETWEEN_GOODBYES))?;
    let deadline = Instant::now() + PATIENCE;
    for said in 1.. {
        if Instant::now() >= deadline {
            break;
        }
        let answer = socket.send(&datagram(u64::MAX, sent, UDP_HEADER)).and_then(|_| socket.recv(&mut [0; UDP_HEADER]));
        match answer {
            Ok(_) => return Ok(said),
            // The receiver has got the message and ended; only its answer was lost.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(said),
            Err(error) if timed_out(&error) => {}
            // There is no route at the moment.
            Err(_) => thread::sleep(BETWEEN_GOODBYES),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the receiver does not confirm the end of the stream"))
}

fn datagram(sequence: u64, total: u64, size: usize) -> Vec<u8> {
    let mut bytes = [sequence.to_be_bytes(), total.to_be_bytes()].concat();
    bytes.resize(size.max(UDP_HEADER), 0);
    bytes
}

/// Returns sequence number and total of a datagram.
pub(super) fn numbers(datagram: &[u8]) -> Option<(u64, u64)> {
    let (sequence, rest) = datagram.split_first_chunk()?;
    let (total, _) = rest.split_first_chunk()?;
    Some((u64::from_be_bytes(*sequence), u64::from_be_bytes(*total)))
}

/// Receives one stream to its end and counts its datagrams.
pub fn udp_receive(listen: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind(listen)?;
    // Losses in the receiver's own buffer would say nothing about the network, so it is large. Only root may exceed
    // net.core.rmem_max.
    setsockopt(&socket, RcvBufForce, &UDP_BUFFER).or_else(|_| setsockopt(&socket, RcvBuf, &UDP_BUFFER))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    report(&Listening { listening: socket.local_addr()? })?;
    let (mut tally, mut buffer, mut end) = (SequenceCounts::default(), [0; 2048], None);
    while end != Some(tally.seen.len() as u64) {
        let (length, peer) = match whatever_interrupts(|| socket.recv_from(&mut buffer)) {
            Err(error) if end.is_some() && timed_out(&error) => break,
            received => received?,
        };
        let Some((sequence, total)) = buffer.get(..length).and_then(numbers) else { continue };
        if total > 0 {
            // A failure to send the answer is ignored: the sender asks again.
            let _ = socket.send_to(&datagram(sequence, total, UDP_HEADER), peer);
        }
        if sequence == u64::MAX {
            end = Some(total);
            socket.set_read_timeout(Some(LATE))?;
        } else {
            tally.count(sequence);
        }
    }
    report(&tally.finish(end.unwrap_or_default()))
}

/// Counts of the sequence numbers received.
#[derive(Debug, Default)]
struct SequenceCounts {
    seen: HashSet<u64>,
    highest: Option<u64>,
    report: UdpReport,
}

impl SequenceCounts {
    fn count(&mut self, sequence: u64) {
        if !self.seen.insert(sequence) {
            self.report.duplicated += 1;
        } else if self.highest.is_some_and(|highest| sequence < highest) {
            self.report.reordered += 1;
        }
        self.highest = self.highest.max(Some(sequence));
    }

    fn finish(self, sent: u64) -> UdpReport {
        let received = self.seen.len() as u64;
        let is_lost = |sequence: &u64| !self.seen.contains(sequence);
        let lost_within = match ((0..sent).find(is_lost), (0..sent).rfind(is_lost)) {
            (Some(first), Some(last)) => last - first + 1,
            _ => 0,
        };
        UdpReport { sent, received, lost: sent.saturating_sub(received), lost_within, ..self.report }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tally_tells_loss_duplicates_and_reordering_apart() {
        let mut tally = SequenceCounts::default();
        for sequence in [0, 1, 1, 4, 3, 5] {
            tally.count(sequence);
        }
        // The numbers 2 and 6 are missing.
        let expected = UdpReport { sent: 7, received: 5, lost: 2, duplicated: 1, reordered: 1, lost_within: 5 };
        assert_eq!(tally.finish(7), expected);
    }

    #[test]
    fn clean_stream_has_nothing_to_report() {
        let mut tally = SequenceCounts::default();
        (0..1000).for_each(|sequence| tally.count(sequence));
        let clean = UdpReport { sent: 1000, received: 1000, ..UdpReport::default() };
        assert_eq!(tally.finish(1000), clean);
    }

    #[test]
    fn datagram_begins_with_its_numbers() {
        let bytes = datagram(0x0102, 3, 20);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0]);
        assert_eq!(numbers(&bytes), Some((0x0102, 3)));
        assert_eq!(numbers(&[0; UDP_HEADER - 1]), None);
    }
}
