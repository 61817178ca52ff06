//! Bytes of a heartbeat.
//!
//! ```text
//!  0 "SRQH" | 4 version 1 | 5 flags | 6 role | 7 number of entries n
//!  8 node id, 12 sequence, 16 sender's clock in ns (8), 24 period in ms (2), 26 boot id (2)
//! 28 n entries of 16: neighbour id (4), band, flags, load (2), queue (2), ifindex (2), capacity in Mbit/s (4)
//!    with flag 04: key id (4), HMAC-SHA-256 of everything before it (32)
//! ```
//!
//! All numbers are in network byte order.

use crate::auth::{Key, SIGNATURE};
use crate::reject::Reject;

/// Largest number of entries of a heartbeat.
pub const MOST_ENTRIES: usize = 64;

const MAGIC: [u8; 4] = *b"SRQH";
const VERSION: u8 = 1;
const HEADER: usize = 28;
const ENTRY: usize = 16;

const PERIODIC: u8 = 1;
const CHANGE: u8 = 2;
const SIGNED: u8 = 4;
const DRAINING: u8 = 8;
const FLAGS: u8 = PERIODIC | CHANGE | SIGNED | DRAINING;

const UP: u8 = 1;
const VALID: u8 = 2;
const BEST_BAND: u8 = 7;
/// A share of 100 %, in hundredths of a percent.
const ALL: u16 = 10_000;

/// The role of a node that sends heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends heartbeats, but does not choose by the heartbeats of others.
    Helper,
    /// It sends heartbeats, and chooses by the heartbeats of others.
    Both,
}

/// A heartbeat: what a node says of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Whether it was sent because a period was over.
    pub is_periodic: bool,
    /// Whether it was sent because something has changed.
    pub is_change: bool,
    /// Whether the node is about to leave, so that others should avoid it.
    pub is_draining: bool,
    /// The role of the node.
    pub role: Role,
    /// The node's BGP identifier. It is not 0.
    pub node: u32,
    /// Sequence number: one more than in the heartbeat before (RFC 1982).
    pub sequence: u32,
    /// The sender's clock in nanoseconds. Nobody compares it with another clock.
    pub clock: u64,
    /// Milliseconds after which the next heartbeat comes at the latest.
    pub period: u16,
    /// Number that is another one after each start of the sender.
    pub boot: u16,
    /// The ports, at most [`MOST_ENTRIES`].
    pub entries: Vec<Entry>,
}

/// An entry: what a node says of the port to one of its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// BGP identifier of the neighbour. It is not 0.
    pub neighbor: u32,
    /// Quality by the load alone, 0 to 7, which is only shown to people. 7 is the best.
    pub band: u8,
    /// Whether the link is up.
    pub is_up: bool,
    /// Whether load and queue are known.
    pub is_valid: bool,
    /// Average load, in hundredths of a percent.
    pub load: u16,
    /// Average share of the queue that is full, in hundredths of a percent. A port whose queue cannot be seen repeats
    /// its load here, so that receivers judge it by the load alone.
    pub queue: u16,
    /// Interface index of the port at the sender.
    pub ifindex: u16,
    /// Capacity in Mbit/s.
    pub capacity: u32,
}

impl Heartbeat {
    /// Returns the bytes of the heartbeat, signed if there is a key. Entries beyond [`MOST_ENTRIES`] are left out.
    pub fn encode(&self, key: Option<&Key>) -> Vec<u8> {
        let entries = self.entries.get(..MOST_ENTRIES).unwrap_or(&self.entries);
        let mut bytes = Vec::with_capacity(HEADER + ENTRY * entries.len() + SIGNATURE);
        bytes.extend(MAGIC);
        bytes.extend([VERSION, self.flags(key.is_some()), self.role.number()]);
        bytes.extend(u8::try_from(entries.len()));
        bytes.extend(self.node.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.clock.to_be_bytes());
        bytes.extend(self.period.to_be_bytes());
        bytes.extend(self.boot.to_be_bytes());
        for entry in entries {
            entry.encode(&mut bytes);
        }
        if let Some(key) = key {
            key.sign(&mut bytes);
        }
        bytes
    }

    fn flags(&self, is_signed: bool) -> u8 {
        flag(self.is_periodic, PERIODIC)
            | flag(self.is_change, CHANGE)
            | flag(is_signed, SIGNED)
            | flag(self.is_draining, DRAINING)
    }

    /// Reads a heartbeat. With a key, it has to be signed by that key; without one, a signature is not looked at.
    ///
    /// # Errors
    /// Returns why it is refused. The rules that need more than the bytes are those of [`Peers`](crate::Peers).
    pub fn decode(bytes: &[u8], key: Option<&Key>) -> Result<Self, Reject> {
        let (header, behind) = bytes.split_first_chunk::<HEADER>().ok_or(Reject::Length)?;
        let &[m0, m1, m2, m3, version, flags, role, count, ref rest @ ..] = header;
        refuse_if([m0, m1, m2, m3] != MAGIC, Reject::Magic)?;
        refuse_if(version != VERSION, Reject::Version)?;
        refuse_if(flags & !FLAGS != 0, Reject::Flag)?;
        let role = Role::of(role).ok_or(Reject::Role)?;
        let count = usize::from(count);
        refuse_if(count > MOST_ENTRIES, Reject::Entries)?;
        let is_signed = flags & SIGNED != 0;
        let signature = if is_signed { SIGNATURE } else { 0 };
        refuse_if(behind.len() != ENTRY * count + signature, Reject::Length)?;
        let (node, rest) = number(rest, u32::from_be_bytes)?;
        let (sequence, rest) = number(rest, u32::from_be_bytes)?;
        let (clock, rest) = number(rest, u64::from_be_bytes)?;
        let (period, rest) = number(rest, u16::from_be_bytes)?;
        let (boot, _) = number(rest, u16::from_be_bytes)?;
        refuse_if(node == 0, Reject::NoNode)?;
        if let Some(key) = key {
            refuse_if(!is_signed, Reject::Unsigned)?;
            refuse_if(!key.has_signed(bytes), Reject::Signature)?;
        }
        let entries = entries(behind.get(..ENTRY * count).ok_or(Reject::Length)?)?;
        Ok(Self {
            is_periodic: flags & PERIODIC != 0,
            is_change: flags & CHANGE != 0,
            is_draining: flags & DRAINING != 0,
            role,
            node,
            sequence,
            clock,
            period,
            boot,
            entries,
        })
    }
}

impl Role {
    const fn number(self) -> u8 {
        match self {
            Self::Helper => 1,
            Self::Both => 3,
        }
    }

    const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Helper),
            3 => Some(Self::Both),
            _ => None,
        }
    }
}

impl Entry {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.neighbor.to_be_bytes());
        bytes.extend([self.band, flag(self.is_up, UP) | flag(self.is_valid, VALID)]);
        for number in [self.load, self.queue, self.ifindex] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(self.capacity.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, Reject> {
        let (neighbor, rest) = number(bytes, u32::from_be_bytes)?;
        let ([band, flags], rest) = number(rest, |two: [u8; 2]| two)?;
        let (load, rest) = number(rest, u16::from_be_bytes)?;
        let (queue, rest) = number(rest, u16::from_be_bytes)?;
        let (ifindex, rest) = number(rest, u16::from_be_bytes)?;
        let (capacity, _) = number(rest, u32::from_be_bytes)?;
        refuse_if(neighbor == 0, Reject::NoNeighbor)?;
        refuse_if(band > BEST_BAND, Reject::Band)?;
        refuse_if(flags & !(UP | VALID) != 0, Reject::Flag)?;
        refuse_if(load > ALL || queue > ALL, Reject::Percent)?;
        let (is_up, is_valid) = (flags & UP != 0, flags & VALID != 0);
        Ok(Self { neighbor, band, is_up, is_valid, load, queue, ifindex, capacity })
    }
}

fn entries(bytes: &[u8]) -> Result<Vec<Entry>, Reject> {
    let entries: Vec<Entry> = bytes.chunks_exact(ENTRY).map(Entry::decode).collect::<Result<_, _>>()?;
    let mut neighbors: Vec<u32> = entries.iter().map(|entry| entry.neighbor).collect();
    neighbors.sort_unstable();
    refuse_if(neighbors.windows(2).any(|pair| matches!(pair, [one, other] if one == other)), Reject::NeighborTwice)?;
    Ok(entries)
}

const fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

fn refuse_if(is_wrong: bool, reject: Reject) -> Result<(), Reject> {
    if is_wrong { Err(reject) } else { Ok(()) }
}

/// Reads a number, and returns the bytes behind it.
fn number<const LEN: usize, T>(bytes: &[u8], of: impl Fn([u8; LEN]) -> T) -> Result<(T, &[u8]), Reject> {
    let (number, rest) = bytes.split_first_chunk().ok_or(Reject::Length)?;
    Ok((of(*number), rest))
}
