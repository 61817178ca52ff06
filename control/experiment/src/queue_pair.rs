//! A queue pair: the sender of packets that take one path at a time.

use srv6d_srv6::flow::{FlowHash, inner_v6};
use srv6d_wire::{ipv6, protocol};

/// UDP port of `RoCEv2`.
pub(crate) const ROCE_V2: u16 = 4791;
/// Length of the headers that a flow is known by: IPv6, UDP and the first 8 bytes of the BTH.
const HEADERS: usize = 40 + 8 + 8;

/// How a transfer, or a step of a ring, is cut into packets. All transfers of a run are cut alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Number of packets of one queue pair for one step.
    pub packets: u32,
    /// Length of a full frame.
    pub frame: u32,
    /// Length of the last frame of a step.
    pub last: u32,
}

/// Shortest frame.
const SHORTEST: u32 = 60;

impl Cut {
    /// Divides the bytes of a step among queue pairs, and cuts each share into frames.
    pub fn of(bytes: u64, queue_pairs: u32, frame: u32) -> Self {
        let bytes = bytes.div_ceil(queue_pairs.max(1).into()).max(1);
        let packets = bytes.div_ceil(frame.into());
        let last = bytes - (packets - 1) * u64::from(frame);
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self { packets: narrow(packets), frame, last: narrow(last).max(SHORTEST.min(frame)) }
    }

    /// Returns the length of a packet.
    pub const fn len(self, sequence: u32) -> u32 {
        if sequence % self.packets == self.packets - 1 { self.last } else { self.frame }
    }

    /// Returns the step that a packet belongs to.
    pub const fn step(self, sequence: u32) -> u32 {
        sequence / self.packets
    }
}

/// A queue pair.
#[derive(Clone, Debug)]
pub(crate) struct QueuePair {
    pub job: u32,
    /// UDP source port of its packets.
    pub port: u16,
    /// Number of the queue pair at the receiver, 24 bits.
    pub number: u32,
    /// Hash of its packets at the leaf of its source.
    pub flow: FlowHash,
    /// Spine of its last packet, or of all its packets if it is placed.
    pub spine: Option<u32>,
    /// Number of packets that it may have sent by now.
    pub granted: u32,
    /// Number of the next packet.
    next: u32,
    /// Number of packets without an answer.
    unanswered: u32,
    /// Packets that got lost and are to be sent again.
    lost: Vec<u32>,
    /// One more than the highest number that has left its leaf.
    left: u32,
    /// One more than the highest number that has arrived.
    arrived: u32,
}

impl QueuePair {
    /// Creates a queue pair that may not send yet.
    pub fn new(job: u32, (port, number): (u16, u32), flow: FlowHash) -> Self {
        Self {
            job,
            port,
            number,
            flow,
            spine: None,
            granted: 0,
            next: 0,
            unanswered: 0,
            lost: Vec::new(),
            left: 0,
            arrived: 0,
        }
    }

    /// Takes the number of the packet to be sent next. Also returns whether the packet has been sent before. `None`:
    /// there is nothing to send, or the window is full.
    pub fn take(&mut self, window: u32) -> Option<(u32, bool)> {
        if self.unanswered >= window {
            return None;
        }
        let again = self.lost.pop();
        let sequence = again.or_else(|| (self.next < self.granted).then_some(self.next))?;
        self.unanswered += 1;
        if again.is_none() {
            self.next += 1;
        }
        Some((sequence, again.is_some()))
    }

    /// Takes the answer about a packet.
    pub fn answered(&mut self, sequence: u32, is_lost: bool) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if is_lost {
            self.lost.push(sequence);
        }
    }

    /// Notes that a packet leaves its leaf. Returns true if no later packet has left before. A packet that had to wait
    /// for its uplink leaves after later ones that took another uplink, and its spine is not the present choice.
    pub fn leaves_in_order(&mut self, sequence: u32) -> bool {
        let is_next = sequence >= self.left;
        self.left = self.left.max(sequence + 1);
        is_next
    }

    /// Notes the arrival of a packet. Returns true if a later one has arrived before it.
    pub fn arrive(&mut self, sequence: u32) -> bool {
        let is_late = sequence < self.arrived;
        self.arrived = self.arrived.max(sequence + 1);
        is_late
    }
}

/// The fields that all packets of a queue pair have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoints {
    /// Host that sends.
    pub source: u32,
    /// Host that receives.
    pub destination: u32,
    /// UDP source port.
    pub port: u16,
    /// Number of the queue pair at the receiver.
    pub queue_pair: u32,
}

/// Returns the flow hash of a queue pair's packets. It is the daemon's hash, and is calculated from the headers of the packets.
pub(crate) fn flow_hash(source: u32, destination: u32, port: u16, number: u32) -> FlowHash {
    let mut bytes = [0; HEADERS];
    let address = |host: u32| (0xfcbb_0000_0800_u128 << 80 | u128::from(host)).to_be_bytes();
    let fields: [(usize, &[u8]); 6] = [
        (0, &[0x60]),
        (6, &[protocol::UDP]),
        (8, &address(source)),
        (24, &address(destination)),
        (40, &[port.to_be_bytes(), ROCE_V2.to_be_bytes()].concat()),
        (52, &number.to_be_bytes()),
    ];
    for (at, field) in fields {
        bytes.iter_mut().skip(at).zip(field).for_each(|(byte, value)| *byte = *value);
    }
    ipv6::Header::parse(&bytes).map(|header| inner_v6(&bytes, header, true)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_cut_into_frames() {
        let cut = Cut::of(100_000, 4, 1554);
        assert_eq!(cut, Cut { packets: 17, frame: 1554, last: 25_000 - 16 * 1554 });
        assert_eq!([15, 16, 17, 33].map(|sequence| cut.len(sequence)), [1554, 136, 1554, 136]);
        assert_eq!([16, 17].map(|sequence| cut.step(sequence)), [0, 1]);
        assert_eq!(Cut::of(1, 1, 1554), Cut { packets: 1, frame: 1554, last: SHORTEST });
        assert_eq!(Cut::of(3108, 1, 1554), Cut { packets: 2, frame: 1554, last: 1554 });
    }

    #[test]
    fn a_window_is_filled_and_what_got_lost_is_sent_again_first() {
        let mut pair = QueuePair::new(0, (0, 0), FlowHash::default());
        assert_eq!(pair.take(2), None, "nothing is granted");
        pair.granted = 3;
        assert_eq!([pair.take(2), pair.take(2), pair.take(2)], [Some((0, false)), Some((1, false)), None]);
        pair.answered(0, true);
        assert_eq!([pair.take(2), pair.take(2)], [Some((0, true)), None]);
        pair.answered(1, false);
        pair.answered(0, false);
        assert_eq!([pair.take(2), pair.take(2)], [Some((2, false)), None]);
    }

    #[test]
    fn a_packet_behind_a_later_one_is_late() {
        let mut pair = QueuePair::new(0, (0, 0), FlowHash::default());
        assert_eq!([0, 2, 1, 3].map(|sequence| pair.arrive(sequence)), [false, false, true, false]);
        assert_eq!([0, 2, 1, 3].map(|sequence| pair.leaves_in_order(sequence)), [true, true, false, true]);
    }

    #[test]
    fn queue_pairs_of_one_port_have_different_hashes() {
        assert_ne!(flow_hash(1, 2, 50_000, 1), flow_hash(1, 2, 50_000, 2));
        assert_ne!(flow_hash(1, 2, 50_000, 1), flow_hash(2, 1, 50_000, 1));
        assert_ne!(flow_hash(1, 2, 50_000, 1), flow_hash(1, 2, 50_001, 1));
        assert_eq!(flow_hash(1, 2, 50_000, 1), flow_hash(1, 2, 50_000, 1));
    }
}
