//! Senders and receivers of the demonstration: a TCP transfer with a hash, a UDP stream with sequence numbers.
//!
//! Each prints one JSON object per line. UDP datagram:
//!
//! ```text
//! | sequence number, 8 bytes | total, 8 bytes | filling |
//!                             total: 0, or 1 where an answer is asked for; the number sent, once the stream has ended
//! ```
//!
//! An answer is the first 16 bytes again.

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

/// Nothing waits longer than this for the other side.
const PATIENCE: Duration = Duration::from_secs(30);
/// The end of a stream may overtake datagrams that a busy node still has in a queue: nothing is said to be lost before
/// nothing has come for so long.
const LATE: Duration = Duration::from_secs(2);
const BETWEEN_GOODBYES: Duration = Duration::from_millis(50);
/// Bytes written at once.
const CHUNK: usize = 64 * 1024;
/// Receive buffer for datagrams, bytes.
const UDP_BUFFER: usize = 32 * 1024 * 1024;
/// The total of a datagram that asks for an answer.
const ASKS: u64 = 1;
/// Sequence number and total.
pub(super) const UDP_HEADER: usize = 16;

/// A receiver can be sent to from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Where.
    pub listening: SocketAddr,
}

/// What went through a TCP connection, seen from one side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpReport {
    /// Bytes.
    pub bytes: u64,
    /// SHA-256 of them, in hexadecimal.
    pub sha256: String,
    /// From the first byte to the last.
    pub seconds: f64,
}

/// What a UDP sender sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpSent {
    /// Numbered datagrams, refused ones included.
    pub sent: u64,
    /// Those among them that the sender's own kernel refused for want of a route.
    pub refused: u64,
    /// Datagrams that only told the receiver that the stream has ended.
    pub closing: u64,
}

/// What a UDP receiver received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpReport {
    /// Datagrams that the sender says it sent.
    pub sent: u64,
    /// Different datagrams received.
    pub received: u64,
    /// Datagrams that never came.
    pub lost: u64,
    /// Datagrams that came again.
    pub duplicated: u64,
    /// Datagrams that came after one with a higher sequence number.
    pub reordered: u64,
    /// From the first datagram that never came to the last one, both included, the ones between that did come too.
    #[serde(default)]
    pub lost_within: u64,
}

fn report<T: Serialize>(value: &T) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    writeln!(out)?;
    out.flush()
}

/// A call on a socket with a timeout ends with EINTR when the process is stopped and goes on, as in a container that is
/// paused, although nobody handles a signal (signal(7)). Then it is made again.
fn whatever_interrupts<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Receives one connection to its end.
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

/// `accept`, but not for ever.
fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
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

/// Set once SIGTERM says that a stream is to end before its time.
fn end_of_stream() -> io::Result<Arc<AtomicBool>> {
    let enough = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&enough))?;
    Ok(enough)
}

/// Sends `bytes` bytes that depend on `seed`, or fewer if SIGTERM comes, and waits until the receiver has closed the
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

/// Marsaglia's xorshift64: content that no two transfers share, without a file.
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
        let _ = write!(text, "{byte:02x}"); // a String takes everything
        text
    })
}

/// What a UDP sender is to do.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct UdpStream {
    to: SocketAddr,
    /// Datagrams a second.
    rate: u32,
    seconds: f64,
    /// Bytes of a datagram.
    size: usize,
    /// Ports that they are sent from in turn, so that a hash spreads them.
    #[arg(default_value_t = 1, conflicts_with = "window")]
    flows: u16,
    /// Datagrams that may be on their way at a time. On a machine that is too busy the stream is slower then, and its
    /// datagrams are not lost in queues that nobody had the time to empty.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    window: Option<u64>,
}

/// Sends datagrams, evenly spaced, then says how many they were. One that the kernel refuses, because there is no route
/// at that moment, is one that was lost. SIGTERM ends the stream before its time.
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

/// Sends; false when there is no route at that moment.
fn accepted(socket: &UdpSocket, datagram: &[u8]) -> io::Result<bool> {
    match socket.send(datagram) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable) => {
            Ok(false)
        }
        done => done.map(|_| true),
    }
}

/// The end may be lost like anything else, so it is repeated until the receiver confirms it; how often it was said.
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
            // It has heard it and gone: its answer was lost.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(said),
            Err(error) if timed_out(&error) => {}
            // There is no route at that moment.
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

/// Sequence number and total of a datagram.
pub(super) fn numbers(datagram: &[u8]) -> Option<(u64, u64)> {
    let (sequence, rest) = datagram.split_first_chunk()?;
    let (total, _) = rest.split_first_chunk()?;
    Some((u64::from_be_bytes(*sequence), u64::from_be_bytes(*total)))
}

/// Counts one stream to its end.
pub fn udp_receive(listen: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind(listen)?;
    // What the receiver's own buffer loses says nothing about the network. Only root may go beyond net.core.rmem_max.
    setsockopt(&socket, RcvBufForce, &UDP_BUFFER).or_else(|_| setsockopt(&socket, RcvBuf, &UDP_BUFFER))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    report(&Listening { listening: socket.local_addr()? })?;
    let (mut tally, mut buffer, mut end) = (Tally::default(), [0; 2048], None);
    while end != Some(tally.seen.len() as u64) {
        let (length, peer) = match whatever_interrupts(|| socket.recv_from(&mut buffer)) {
            Err(error) if end.is_some() && timed_out(&error) => break,
            received => received?,
        };
        let Some((sequence, total)) = buffer.get(..length).and_then(numbers) else { continue };
        if total > 0 {
            // Whoever asks asks again: an answer that finds no way is no reason to end.
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

/// Sequence numbers seen.
#[derive(Debug, Default)]
struct Tally {
    seen: HashSet<u64>,
    highest: Option<u64>,
    report: UdpReport,
}

impl Tally {
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
        let mut tally = Tally::default();
        for sequence in [0, 1, 1, 4, 3, 5] {
            tally.count(sequence);
        }
        // 2 and 6 are missing.
        let expected = UdpReport { sent: 7, received: 5, lost: 2, duplicated: 1, reordered: 1, lost_within: 5 };
        assert_eq!(tally.finish(7), expected);
    }

    #[test]
    fn clean_stream_has_nothing_to_report() {
        let mut tally = Tally::default();
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
