//! Settings of an emulated port.

/// Lowest rate in bit/s.
pub const LEAST_RATE: u64 = 1_000_000;
/// Highest rate in bit/s.
pub const MOST_RATE: u64 = 1_600_000_000_000;
/// Largest number of packets that a queue may be allowed to hold.
pub const MOST_PACKETS: usize = 16_384;
/// Largest number of bytes that every packet takes on the wire besides its frame.
pub const MOST_OVERHEAD: u32 = 64;
/// Longest delay in nanoseconds.
pub const MOST_DELAY: u64 = 1_000_000_000;

/// Settings of an emulated port: rate, queue, marks, delay and loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emulation {
    /// Bits per second on the wire, overhead included. It is not 0.
    pub rate: u64,
    /// Largest number of bytes, overhead included, that are not yet on the wire.
    pub queue: u64,
    /// Largest number of packets in the queue and in the delay together.
    pub packets: usize,
    /// Bytes that a packet takes on the wire besides its frame: preamble, FCS and gap are 24.
    pub overhead: u32,
    /// Time in nanoseconds from the last bit on the wire to the other end.
    pub delay: u64,
    /// Chance that a packet is lost on the wire.
    pub loss: Chance,
    /// How packets are marked. `None`: never.
    pub ecn: Option<Ecn>,
}

impl Emulation {
    /// Creates the settings of a port with this rate, and with defaults for everything else.
    pub const fn of_rate(rate: u64) -> Self {
        Self { rate, queue: 256_000, packets: 512, overhead: 24, delay: 0, loss: Chance::NEVER, ecn: None }
    }

    /// Returns the number of bytes that counts as a full queue: the depth from which every packet is marked, or else
    /// the size of the queue.
    pub fn full_queue(&self) -> u64 {
        self.ecn.map_or(self.queue, |ecn| ecn.max)
    }
}

/// ECN marking by the depth of the queue at the moment, as for DCTCP (RFC 8257).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecn {
    /// Depth in bytes up to which nothing is marked.
    pub min: u64,
    /// Depth in bytes from which everything is marked.
    pub max: u64,
    /// Chance of a mark just below `max`. It grows linearly from 0 at `min`.
    pub probability: Chance,
    /// What becomes of a packet that should be marked and does not support ECN.
    pub non_ect: NonEct,
}

impl Ecn {
    /// Returns the chance of a mark at this depth of the queue in bytes.
    pub(crate) fn chance(&self, depth: u64) -> Chance {
        if depth <= self.min {
            return Chance::NEVER;
        }
        if depth >= self.max {
            return Chance::ALWAYS;
        }
        let (above, width) = (u128::from(depth - self.min), u128::from(self.max - self.min));
        let part = u128::from(self.probability.0) * above / width;
        Chance(u64::try_from(part).unwrap_or(Chance::ALWAYS.0))
    }
}

/// What becomes of a packet that should be marked and does not support ECN (Not-ECT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonEct {
    /// It is dropped.
    #[default]
    Drop,
    /// The packet is sent unmarked.
    Pass,
}

/// A probability, in parts of 2³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(u64);

impl Chance {
    /// The probability 0.
    pub const NEVER: Self = Self(0);
    /// The probability 1.
    pub const ALWAYS: Self = Self(1 << 32);

    /// Converts a probability. Numbers below 0 count as 0, numbers above 1 as 1.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value lies between 0 and 2^32")]
    pub fn of(probability: f64) -> Self {
        Self((probability.clamp(0.0, 1.0) * 4_294_967_296.0).round() as u64)
    }

    /// Returns the probability as a number from 0 to 1.
    #[allow(clippy::cast_precision_loss, reason = "33 bits fit")]
    pub fn probability(self) -> f64 {
        self.0 as f64 / 4_294_967_296.0
    }

    /// Returns true if the event happens when this random number is drawn.
    pub(crate) fn happens(self, draw: u32) -> bool {
        u64::from(draw) < self.0
    }
}
