//! What the tables in force would do with a frame.

use srv6d_srv6::tally::Slots;
use srv6d_srv6::trail::TrailStep;
use srv6d_srv6::{Explanation, Frames, Tables, Verdict, is_plain};
use srv6d_wire::{Extent, Packet};

use crate::io::Io;
use crate::memory::{Memory, MemoryFrame};

/// Number of bytes of room in front of and behind a packet of which only the first bytes are known.
const HEADROOM: usize = 256;

/// The treatment of a frame, with the reasons for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The steps through the tables.
    pub steps: Vec<TrailStep>,
    /// The verdict.
    pub verdict: Verdict,
    /// The frame afterwards. A frame that is dropped or held is as it was.
    pub bytes: Vec<u8>,
    /// Whether the fast path forwards the frame.
    pub is_plain: bool,
}

/// Returns what a worker does with a frame that it receives on the port `device`. A copy of the frame is used: nothing
/// is counted, held or sent.
///
/// The time of a worker plays no part: limits of ICMP errors are not reached.
pub fn explain(tables: &Tables, slots: &Slots, device: u16, frame: &[u8]) -> Explained {
    let io = Memory::default();
    let mut copy = MemoryFrame::new(frame);
    let is_plain = is_plain(tables, device, &mut io.packet(&mut copy));
    let mut copy = MemoryFrame::new(frame);
    let (mut packet, further) = io.packet_and_further(&mut copy);
    let Explanation { steps, verdict } = srv6d_srv6::explain(tables, slots, device, &mut packet, &further);
    let (at, keep_tail) = (packet.extent(), packet.tail_len() > 0);
    drop(further);
    io.place(&mut copy, at, keep_tail);
    Explained { steps, verdict, bytes: copy.bytes(), is_plain }
}

/// Like [`explain`], for a packet of `length` bytes of which only the first ones are known. `is_plain` is always false.
pub fn explain_head(tables: &Tables, slots: &Slots, device: u16, head: &[u8], length: usize) -> Explained {
    let mut room = vec![0; HEADROOM + head.len() + HEADROOM];
    if let Some(place) = room.get_mut(HEADROOM..HEADROOM + head.len()) {
        place.copy_from_slice(head);
    }
    let at = Extent { start: HEADROOM, len: head.len() };
    let mut packet = Packet::at(&mut room, at, length.saturating_sub(head.len()));
    let Explanation { steps, verdict } = srv6d_srv6::explain(tables, slots, device, &mut packet, &|_| 0);
    Explained { steps, verdict, bytes: packet.bytes().to_vec(), is_plain: false }
}
