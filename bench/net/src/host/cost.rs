//! CPU time of one packet of an application, from the sender's call to the receiver's.
//!
//! One thread owns both ends. Over a veth the kernel does all the work of a packet within the call that sends it: encapsulation, the
//! way over the link, decapsulation, and the way into the receiver's socket. So the thread's CPU time is all of it, and nothing
//! else is in it. Kernel and srv6d have a pair of namespaces each, and take turns every few milliseconds: what disturbs the
//! machine disturbs both. Ratios are taken within a turn.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::{Bed, Kind, Plan};
use crate::BenchError;
use crate::affinity::{available, pin};
use crate::statistics::Spread;

/// The calling thread, for [`pin`].
const THIS_THREAD: i32 = 0;
/// Number of turns of each row, for each round.
const TURNS: u16 = 30;
/// Datagrams, or requests, of one turn.
const PACKETS: u32 = 1000;
/// Bytes of one call that writes to a stream, and number of these calls in one turn.
const WRITE: usize = 65_536;
const WRITES: usize = 50;
/// Bytes of a small datagram.
const SMALL: [u8; 22] = [0; 22];

/// A kind of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Small datagrams: 64 bytes with all headers of IPv4, 84 with those of IPv6.
    Datagrams,
    /// One byte to the far end by TCP, and one back.
    Requests,
    /// A TCP stream.
    Stream,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Datagrams => "a small datagram",
            Self::Requests => "a request of one byte and its response, TCP",
            Self::Stream => "a byte of a TCP stream",
        }
    }
}

/// Seconds of CPU time of each turn, for one packet, request or byte.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Kind of traffic.
    pub what: What,
    /// Kind of packets, and of path.
    pub kind: Kind,
    /// MTU of the link in bytes.
    pub mtu: u32,
    /// By the kernel's own encapsulation.
    pub kernel: Vec<f64>,
    /// By srv6d with its defaults.
    pub srv6d: Vec<f64>,
}

impl Cost {
    /// Returns the ratio of srv6d's time to the kernel's: the median of all turns, and the quartiles.
    pub fn ratio(&self) -> Option<Spread> {
        let pairs = self.srv6d.iter().zip(&self.kernel).filter(|&(_, &kernel)| kernel > 0.0);
        Spread::of_many(pairs.map(|(srv6d, kernel)| srv6d / kernel))
    }

    /// Returns the row of the table.
    pub fn line(&self) -> Vec<String> {
        let kind = match self.kind {
            Kind::Plain | Kind::Small => "IPv6",
            Kind::Srh => "IPv6 with an SRH",
            Kind::V4 => "IPv4",
        };
        let ratio = self.ratio().map_or_else(|| "-".to_owned(), |ratio| ratio.shown(1.0, 2));
        vec![format!("{}, {kind}, MTU {}", self.what.name(), self.mtu), ratio]
    }
}

/// Returns the rows: all kinds of traffic, over IPv6, over IPv4, and by a path with an SRH.
fn rows() -> impl Iterator<Item = (What, Kind)> {
    let kinds = [Kind::Plain, Kind::V4, Kind::Srh];
    kinds.into_iter().flat_map(|kind| [What::Datagrams, What::Requests, What::Stream].map(|what| (what, kind)))
}

/// Measures all rows on one core. The two beds are ready: the kernel encapsulates in one, srv6d in the other.
pub(super) fn measure(plan: &Plan<'_>, kernel: &Bed, srv6d: &Bed, mtu: u32) -> Result<Vec<Cost>, BenchError> {
    let on_one_core = || {
        available().last().map_or(Ok(()), |&core| pin(THIS_THREAD, core))?;
        measure_here(plan, kernel, srv6d, mtu)
    };
    let ended = std::thread::scope(|scope| scope.spawn(on_one_core).join());
    ended.unwrap_or_else(|_| Err(BenchError("the measuring thread died".to_owned())))
}

fn measure_here(plan: &Plan<'_>, kernel: &Bed, srv6d: &Bed, mtu: u32) -> Result<Vec<Cost>, BenchError> {
    let mut costs = Vec::new();
    for ((what, kind), port) in rows().zip(5400..) {
        let mut ends = [Ends::connect(kernel, what, kind, port)?, Ends::connect(srv6d, what, kind, port)?];
        let mut cost = Cost { what, kind, mtu, kernel: Vec::new(), srv6d: Vec::new() };
        for _ in 0..plan.rounds.saturating_mul(TURNS) {
            if plan.is_interrupted() {
                return Err(BenchError("interrupted".to_owned()));
            }
            let [kernel, srv6d] = &mut ends;
            cost.kernel.push(kernel.turn()?);
            cost.srv6d.push(srv6d.turn()?);
        }
        costs.push(cost);
    }
    Ok(costs)
}

/// Both ends of a connection.
enum Ends {
    Datagrams(UdpSocket, UdpSocket),
    Requests(TcpStream, TcpStream),
    Stream(TcpStream, TcpStream),
}

impl Ends {
    fn connect(bed: &Bed, what: What, kind: Kind, port: u16) -> Result<Self, BenchError> {
        let to = SocketAddr::new(kind.far_end().parse().map_err(|why| BenchError::of(kind.far_end(), why))?, port);
        let error = |why| BenchError::of(to.to_string(), why);
        if what == What::Datagrams {
            let far = srv6d_netns::enter(&bed.far, || UdpSocket::bind(to).map_err(error))?;
            let any = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
            let near = srv6d_netns::enter(&bed.host, || {
                let socket = UdpSocket::bind(any).map_err(error)?;
                socket.connect(to).map_err(error).map(|()| socket)
            })?;
            far.set_nonblocking(true).map_err(error)?;
            return Ok(Self::Datagrams(near, far));
        }
        let listener = srv6d_netns::enter(&bed.far, || TcpListener::bind(to).map_err(error))?;
        let near = srv6d_netns::enter(&bed.host, || TcpStream::connect(to).map_err(error))?;
        let (far, _) = listener.accept().map_err(error)?;
        for end in [&near, &far] {
            end.set_nodelay(true).map_err(error)?;
        }
        if what == What::Requests {
            return Ok(Self::Requests(near, far));
        }
        for end in [&near, &far] {
            end.set_nonblocking(true).map_err(error)?;
        }
        Ok(Self::Stream(near, far))
    }

    /// Returns the CPU time of one packet, request or byte.
    fn turn(&mut self) -> Result<f64, BenchError> {
        let began = cpu_time()?;
        let sent = self.send().map_err(|why| BenchError::of("send", why))?;
        Ok((cpu_time()? - began) / sent)
    }

    /// Sends, and receives all of it. Returns how many packets, requests or bytes there were.
    fn send(&mut self) -> std::io::Result<f64> {
        match self {
            Self::Datagrams(near, far) => {
                let mut buffer = [0; SMALL.len()];
                for _ in 0..PACKETS {
                    near.send(&SMALL)?;
                    // With a busy receiver's core the datagram may not be there yet.
                    match far.recv(&mut buffer) {
                        Err(why) if why.kind() == ErrorKind::WouldBlock => {}
                        received => drop(received?),
                    }
                }
                Ok(PACKETS.into())
            }
            Self::Requests(near, far) => {
                let mut byte = [0];
                for _ in 0..PACKETS {
                    near.write_all(&byte)?;
                    far.read_exact(&mut byte)?;
                    far.write_all(&byte)?;
                    near.read_exact(&mut byte)?;
                }
                Ok(PACKETS.into())
            }
            Self::Stream(near, far) => stream(near, far),
        }
    }
}

fn stream(near: &mut TcpStream, far: &mut TcpStream) -> std::io::Result<f64> {
    let all = WRITE * WRITES;
    let (bytes, mut buffer) = (vec![0; WRITE], vec![0; 1 << 20]);
    let (mut sent, mut received) = (0, 0);
    while received < all {
        if sent < all {
            let next = bytes.get(..WRITE.min(all - sent)).unwrap_or_default();
            sent += none_yet(near.write(next))?;
        }
        received += none_yet(far.read(&mut buffer))?;
    }
    #[expect(clippy::cast_precision_loss, reason = "some megabytes")]
    Ok(all as f64)
}

fn none_yet(done: std::io::Result<usize>) -> std::io::Result<usize> {
    match done {
        Err(why) if why.kind() == ErrorKind::WouldBlock => Ok(0),
        done => done,
    }
}

fn cpu_time() -> Result<f64, BenchError> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_err(|why| BenchError::of("clock", why))?;
    Ok(std::time::Duration::from(time).as_secs_f64())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is the test's failure")]

    use super::*;

    #[test]
    fn a_ratio_is_that_of_turns_and_not_of_sums() {
        let cost = Cost {
            what: What::Requests,
            kind: Kind::V4,
            mtu: 1500,
            kernel: vec![1.0, 2.0, 100.0],
            srv6d: vec![2.0, 2.0, 50.0],
        };
        let row = cost.line();
        assert_eq!(row.first().unwrap(), "a request of one byte and its response, TCP, IPv4, MTU 1500");
        assert!((cost.ratio().unwrap().median - 1.0).abs() < f64::EPSILON);
    }
}
