//! The last packets of each drop reason.
//!
//! A worker writes, and control reads at the same time. A record has a version, which is odd while it is written; whoever
//! reads a record and finds another version afterwards leaves it out. All of it is atomic numbers: no lock, no allocation.
//! A flood of drops costs little, because only a few records per reason are written in a millisecond.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use srv6d_srv6::DropReason;

/// Number of packets that are kept of each reason.
pub const KEPT: usize = 4;
/// Number of bytes that are kept of each packet.
pub const HEAD: usize = 128;
const WORDS: usize = HEAD / size_of::<u64>();
/// Time in nanoseconds within which at most [`KEPT`] packets of a reason are recorded.
const PERIOD: u64 = 1_000_000;

/// The place and the time at which a packet is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Nanoseconds of the worker's clock.
    pub(crate) now: u64,
    /// Socket that it was received by, or that it was about to leave by.
    pub(crate) socket: usize,
    /// Whether the packet was about to leave: its bytes are those that would have been sent.
    pub(crate) is_leaving: bool,
}

/// A dropped packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The reason.
    pub reason: DropReason,
    /// Time since the drop. The worker's clock stands still during a round.
    pub age: Duration,
    /// Number of the socket.
    pub(crate) socket: usize,
    /// Whether it was about to leave by the socket; otherwise it was received there.
    pub is_leaving: bool,
    /// Length of the packet in bytes.
    pub length: usize,
    /// Its first bytes, [`HEAD`] at most.
    pub head: Vec<u8>,
}

#[derive(Debug)]
struct Record {
    version: AtomicU64,
    now: AtomicU64,
    /// Socket number, and in the lowest bit whether the packet was about to leave.
    place: AtomicU64,
    length: AtomicU64,
    head_len: AtomicU64,
    head: [AtomicU64; WORDS],
}

/// The records of one reason.
#[derive(Debug)]
struct Reason {
    /// Number of records written so far. The next one is written at this number modulo [`KEPT`].
    written: AtomicU64,
    /// Beginning of the present period, and the number of records written in it.
    since: AtomicU64,
    in_period: AtomicU64,
    records: [Record; KEPT],
}

/// The last drops of one worker.
#[derive(Debug)]
pub(crate) struct LastDrops {
    /// Start of the worker's clock, to within a few milliseconds.
    started: Instant,
    reasons: Box<[Reason]>,
}

impl Default for LastDrops {
    fn default() -> Self {
        let number = AtomicU64::default;
        let record = || Record {
            version: number(),
            now: number(),
            place: number(),
            length: number(),
            head_len: number(),
            head: array::from_fn(|_| number()),
        };
        let reason = |_| Reason {
            written: number(),
            since: number(),
            in_period: number(),
            records: array::from_fn(|_| record()),
        };
        Self { started: Instant::now(), reasons: DropReason::ALL.into_iter().map(reason).collect() }
    }
}

impl LastDrops {
    /// Records a packet, unless enough packets of its reason have been recorded just now. `length` is the length of the
    /// whole packet, further buffers included.
    pub(crate) fn note(&self, reason: DropReason, place: Place, bytes: &[u8], length: usize) {
        if let Some(reason) = self.reasons.get(reason.index())
            && reason.has_room(place.now)
        {
            reason.write(place, bytes, length);
        }
    }

    /// Returns the packets: reason by reason, the oldest first.
    pub(crate) fn read(&self) -> Vec<Dropped> {
        let now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let all = DropReason::ALL.into_iter().zip(&self.reasons);
        all.flat_map(|(reason, records)| records.in_order().filter_map(move |record| record.read(reason, now)))
            .collect()
    }
}

impl Reason {
    fn has_room(&self, now: u64) -> bool {
        if now.saturating_sub(self.since.load(Ordering::Relaxed)) >= PERIOD {
            self.since.store(now, Ordering::Relaxed);
            self.in_period.store(0, Ordering::Relaxed);
        }
        let in_period = self.in_period.load(Ordering::Relaxed);
        self.in_period.store(in_period + 1, Ordering::Relaxed);
        in_period < KEPT as u64
    }

    fn write(&self, place: Place, bytes: &[u8], length: usize) {
        let written = self.written.load(Ordering::Relaxed);
        self.written.store(written + 1, Ordering::Relaxed);
        let at = usize::try_from(written % KEPT as u64).unwrap_or(0);
        if let Some(record) = self.records.get(at) {
            record.write(place, bytes, length);
        }
    }

    /// Returns the records, the oldest first. The order is wrong if one is being written.
    fn in_order(&self) -> impl Iterator<Item = &Record> {
        let next = usize::try_from(self.written.load(Ordering::Relaxed) % KEPT as u64).unwrap_or(0);
        self.records.iter().cycle().skip(next).take(KEPT)
    }
}

impl Record {
    fn write(&self, place: Place, bytes: &[u8], length: usize) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // No store below becomes visible before the odd version does.
        fence(Ordering::Release);
        let head = bytes.get(..HEAD).unwrap_or(bytes);
        self.now.store(place.now, Ordering::Relaxed);
        self.place.store((place.socket as u64) << 1 | u64::from(place.is_leaving), Ordering::Relaxed);
        self.length.store(length as u64, Ordering::Relaxed);
        self.head_len.store(head.len() as u64, Ordering::Relaxed);
        for (word, bytes) in self.head.iter().zip(head.chunks(size_of::<u64>())) {
            word.store(packed(bytes), Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }

    /// Returns the packet, or `None` if there is none yet or it is being written.
    fn read(&self, reason: DropReason, now: u64) -> Option<Dropped> {
        let version = self.version.load(Ordering::Acquire);
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (then, place, length, head_len) =
            (load(&self.now), load(&self.place), load(&self.length), load(&self.head_len));
        let mut head: Vec<u8> = self.head.iter().flat_map(|word| load(word).to_le_bytes()).collect();
        // No load above is made after the one below.
        fence(Ordering::Acquire);
        if version == 0 || version % 2 == 1 || self.version.load(Ordering::Relaxed) != version {
            return None;
        }
        head.truncate(usize::try_from(head_len).unwrap_or(HEAD));
        Some(Dropped {
            reason,
            age: Duration::from_nanos(now.saturating_sub(then)),
            socket: usize::try_from(place >> 1).unwrap_or(usize::MAX),
            is_leaving: place & 1 == 1,
            length: usize::try_from(length).unwrap_or(usize::MAX),
            head,
        })
    }
}

/// Returns up to 8 bytes as a number, the first one in its lowest bits.
fn packed(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(whole) => u64::from_le_bytes(*whole),
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test may panic")]
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    fn place(now: u64) -> Place {
        Place { now, socket: 3, is_leaving: false }
    }

    #[test]
    fn the_last_packets_of_a_reason_are_kept_with_their_first_bytes() {
        let drops = LastDrops::default();
        assert_eq!(drops.read(), []);
        for number in 0..6u8 {
            let bytes = vec![number; usize::from(number) * 40 + 3];
            drops.note(DropReason::NoRoute, place(u64::from(number) * PERIOD), &bytes, bytes.len() + 1);
        }
        drops.note(DropReason::HopLimit, Place { is_leaving: true, ..place(0) }, b"short", 5);
        let read = drops.read();
        let kept: Vec<_> = read.iter().map(|dropped| (dropped.reason, dropped.head.clone(), dropped.length)).collect();
        let of = |number: u8| {
            let length = usize::from(number) * 40 + 3;
            (DropReason::NoRoute, vec![number; length.min(HEAD)], length + 1)
        };
        assert_eq!(kept, [of(2), of(3), of(4), of(5), (DropReason::HopLimit, b"short".to_vec(), 5)]);
        assert_eq!((read[0].socket, read[0].is_leaving, read[4].is_leaving), (3, false, true));
    }

    #[test]
    fn a_flood_writes_a_few_records_in_a_millisecond() {
        let drops = LastDrops::default();
        let flood = |since: u64| {
            for number in 0..200u8 {
                drops.note(DropReason::NoRoute, place(since + u64::from(number) * 5_000), &[number], 1);
            }
        };
        let heads = || drops.read().into_iter().map(|dropped| dropped.head[0]).collect::<Vec<_>>();
        flood(0);
        assert_eq!(heads(), [0, 1, 2, 3]);
        flood(PERIOD);
        assert_eq!(drops.reasons[DropReason::NoRoute.index()].written.load(Ordering::Relaxed), 2 * KEPT as u64);
    }

    #[test]
    fn what_is_read_was_written_as_a_whole() {
        let (drops, is_over) = (LastDrops::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..200_000u64 {
                    let byte = (round % 251) as u8;
                    drops.note(DropReason::Vlan, place(round * PERIOD), &[byte; HEAD], usize::from(byte));
                }
                is_over.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                for dropped in drops.read() {
                    let byte = u8::try_from(dropped.length).unwrap();
                    assert_eq!(dropped.head, [byte; HEAD]);
                }
            }
        });
        assert_eq!(drops.read().len(), KEPT);
    }
}
