//! One rank of a ring all-reduce over TCP, the traffic of the demonstration's job.
//!
//! Every rank has a vector of `ranks` chunks. In each step it sends one chunk to the next rank, and gets one from the
//! rank before: first to add it to its own (reduce-scatter), then to take it over (all-gather). After `2 (ranks - 1)` steps
//! every rank has the sum of all vectors. A step cannot begin before the one before has ended at the neighbour, so the
//! slowest link decides how long the job takes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use super::traffic::{PATIENCE, accept, report};

/// Size of the send buffer in bytes, which bounds what is on its way: the flows of three ranks fit into one queue of an
/// emulated port, so that no time goes by with retransmissions.
const SEND_BUFFER: usize = 48 * 1024;
/// Time between two attempts to reach a rank that does not listen yet.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);
/// Bytes of one number of the vector.
const WORD: usize = size_of::<u64>();

/// Arguments of one rank.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Rank {
    /// Address of this rank, on which it listens and from which it sends.
    own: SocketAddr,
    /// Address of the next rank.
    next: SocketAddr,
    /// Number of this rank, from 0.
    number: usize,
    /// Number of ranks.
    #[arg(value_parser = clap::value_parser!(u16).range(2..=64))]
    ranks: u16,
    /// Bytes of a chunk, rounded down to whole numbers of 8 bytes.
    #[arg(value_parser = clap::value_parser!(u32).range(8..=1_048_576))]
    bytes: u32,
    /// How many times the vectors are summed, one all-reduce after the other.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
}

/// Report of rank 0 that a step is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepDone {
    /// Number of the step, from 1.
    pub step: usize,
    /// Microseconds that it took.
    pub micros: u64,
}

/// Report of a rank whose sums are right.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingReport {
    /// Seconds from the moment at which all ranks were there to the last sum.
    pub seconds: f64,
}

/// Takes part in all-reduces, and checks every sum.
///
/// # Errors
/// A neighbour keeps silent or ends, or a sum is wrong.
pub fn run(arguments: &Rank) -> io::Result<()> {
    let Rank { own, next, number, ranks, bytes, rounds } = *arguments;
    let (ranks, words) = (usize::from(ranks), usize::try_from(bytes).unwrap_or(usize::MAX) / WORD);
    let listener = TcpListener::bind(own)?;
    let mut to_next = connect(own, next)?;
    let (mut from_previous, _) = accept(&listener)?;
    from_previous.set_read_timeout(Some(PATIENCE))?;
    let mut exchange = |chunk: &[u64]| exchange(&mut to_next, &mut from_previous, chunk);

    // A step of a rank ends only after the previous rank has begun that step, so after this many steps all ranks are there.
    for _ in 1..ranks {
        exchange(&[0])?;
    }
    let begin = Instant::now();
    let mut last = begin;
    for round in 0..usize::from(rounds) {
        let mut vector = Vector::new(number, ranks, words);
        for step in 0..vector.steps() {
            let received = exchange(vector.to_send(step))?;
            vector.take(step, &received);
            if number == 0 {
                let (now, done) = (Instant::now(), round * vector.steps() + step + 1);
                let micros = u64::try_from((now - last).as_micros()).unwrap_or(u64::MAX);
                report(&StepDone { step: done, micros })?;
                last = now;
            }
        }
        if !vector.is_summed() {
            return Err(io::Error::other("a sum of the all-reduce is wrong"));
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    report(&RingReport { seconds })
}

/// Connects from the rank's own address. The other rank may not listen yet.
fn connect(own: SocketAddr, next: SocketAddr) -> io::Result<TcpStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let socket = Socket::new(Domain::for_address(next), Type::STREAM, None)?;
        socket.set_send_buffer_size(SEND_BUFFER)?;
        socket.set_tcp_nodelay(true)?;
        socket.bind(&SocketAddr::new(own.ip(), 0).into())?;
        match socket.connect_timeout(&next.into(), PATIENCE) {
            Ok(()) => {
                socket.set_write_timeout(Some(PATIENCE))?;
                return Ok(socket.into());
            }
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => thread::sleep(BETWEEN_ATTEMPTS),
        }
    }
}

/// Sends a chunk and receives one of the same length at the same time.
fn exchange(to: &mut TcpStream, from: &mut TcpStream, chunk: &[u64]) -> io::Result<Vec<u64>> {
    let bytes: Vec<u8> = chunk.iter().flat_map(|word| word.to_be_bytes()).collect();
    let mut received = vec![0; bytes.len()];
    let (sent, got) = thread::scope(|scope| {
        let sender = scope.spawn(|| to.write_all(&bytes));
        let got = from.read_exact(&mut received);
        (sender.join(), got)
    });
    sent.map_err(|_| io::Error::other("the sending thread died"))??;
    got?;
    Ok(received.chunks_exact(WORD).map(|word| word.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))).collect())
}

/// The vector of one rank.
#[derive(Debug)]
struct Vector {
    rank: usize,
    chunks: Vec<Vec<u64>>,
}

impl Vector {
    /// Makes the vector of a rank: each rank has other numbers.
    fn new(rank: usize, ranks: usize, words: usize) -> Self {
        let chunk = |chunk: usize| (0..words).map(|word| value(rank, chunk, word)).collect();
        Self { rank, chunks: (0..ranks).map(chunk).collect() }
    }

    fn ranks(&self) -> usize {
        self.chunks.len()
    }

    fn steps(&self) -> usize {
        2 * (self.ranks() - 1)
    }

    /// Number of the chunk that a rank sends in a step: first its own, then always the one that it got last.
    fn sent_by(&self, rank: usize, step: usize) -> usize {
        (rank + self.ranks() - step % self.ranks()) % self.ranks()
    }

    fn to_send(&self, step: usize) -> &[u64] {
        self.chunks.get(self.sent_by(self.rank, step)).map_or(&[], Vec::as_slice)
    }

    /// Takes what the rank before has sent in this step: adds it, or in the second half takes it over.
    fn take(&mut self, step: usize, received: &[u64]) {
        let previous = (self.rank + self.ranks() - 1) % self.ranks();
        let (place, is_partial) = (self.sent_by(previous, step), step < self.ranks() - 1);
        let Some(own) = self.chunks.get_mut(place) else { return };
        for (own, other) in own.iter_mut().zip(received) {
            *own = if is_partial { own.wrapping_add(*other) } else { *other };
        }
    }

    fn is_summed(&self) -> bool {
        let sum = |chunk, word| (0..self.ranks()).fold(0, |sum: u64, rank| sum.wrapping_add(value(rank, chunk, word)));
        let is_right =
            |(chunk, words): (usize, &Vec<u64>)| (0..).zip(words).all(|(word, own)| *own == sum(chunk, word));
        self.chunks.iter().enumerate().all(is_right)
    }
}

/// Number at one place of a rank's vector.
const fn value(rank: usize, chunk: usize, word: usize) -> u64 {
    ((rank as u64 + 1) << 40) + ((chunk as u64) << 20) + word as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
    use super::*;

    /// Runs all ranks in one process, and returns their results.
    fn reduced(ranks: usize) -> Vec<Vector> {
        let mut vectors: Vec<Vector> = (0..ranks).map(|rank| Vector::new(rank, ranks, 3)).collect();
        for step in 0..vectors[0].steps() {
            let sent: Vec<Vec<u64>> = vectors.iter().map(|vector| vector.to_send(step).to_vec()).collect();
            for (rank, vector) in vectors.iter_mut().enumerate() {
                vector.take(step, &sent[(rank + ranks - 1) % ranks]);
            }
        }
        vectors
    }

    #[test]
    fn every_rank_has_the_sum_in_the_end() {
        for ranks in [2, 3, 9] {
            assert!(reduced(ranks).iter().all(Vector::is_summed), "{ranks}");
        }
        let mut vectors = reduced(3);
        vectors[1].chunks[2][0] += 1;
        assert!(!vectors[1].is_summed());
        assert!(!Vector::new(0, 3, 3).is_summed());
    }

    #[test]
    fn ranks_on_this_machine_add_up_over_tcp() {
        let ports: Vec<SocketAddr> =
            (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()).collect();
        let ranks = (0..3).map(|number| Rank {
            own: ports[number],
            next: ports[(number + 1) % 3],
            number,
            ranks: 3,
            bytes: 100_000,
            rounds: 2,
        });
        let threads: Vec<_> = ranks.map(|rank| thread::spawn(move || run(&rank))).collect();
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    }
}
