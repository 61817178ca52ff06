//! Ports in memory, for tests and benches of the same step that runs on AF_XDP.

use std::collections::VecDeque;

use srv6d_srv6::Frames;
use srv6d_wire::{Extent, Packet, checksum};

use crate::io::Io;

/// Length of the headroom in front of a received packet, as in an AF_XDP chunk.
const HEADROOM: usize = 256;
/// Length of the room behind the headroom, for the first part of a received packet.
pub const ROOM: usize = 3840;

/// A packet in memory. Bytes behind it are 0xa5, so that a stale byte shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFrame {
    room: Box<[u8]>,
    /// Offset of the packet in `room`, and its length there.
    at: [u32; 2],
    tail: Vec<u8>,
}

impl MemoryFrame {
    /// Creates a frame with these bytes, as received. Bytes beyond the room become the tail.
    pub fn new(bytes: &[u8]) -> Self {
        let (head, tail) = bytes.split_at_checked(ROOM).unwrap_or((bytes, &[]));
        let room = vec![0xa5; HEADROOM + ROOM].into_boxed_slice();
        let mut frame = Self { room, at: [0; 2], tail: tail.to_vec() };
        frame.refill(head);
        frame
    }

    /// Returns all bytes of the packet.
    pub fn bytes(&self) -> Vec<u8> {
        let Extent { start, len } = self.extent();
        let mut bytes = self.room.get(start..start + len).unwrap_or_default().to_vec();
        bytes.extend(&self.tail);
        bytes
    }

    /// Returns the last bytes of the packet. `None`: it is shorter.
    pub fn last<const COUNT: usize>(&self) -> Option<[u8; COUNT]> {
        let Extent { start, len } = self.extent();
        let head = self.room.get(start..start + len).unwrap_or_default();
        let mut bytes = head.iter().chain(&self.tail).rev();
        let mut last = [0; COUNT];
        for byte in last.iter_mut().rev() {
            *byte = *bytes.next()?;
        }
        Some(last)
    }

    /// Returns the packet at the very beginning of a buffer, so that a header in front of it moves the packet. The
    /// position is not recorded in the frame.
    #[inline]
    pub fn without_headroom(&mut self) -> Packet<'_> {
        let Extent { len, .. } = self.extent();
        Packet::at(self.room.get_mut(HEADROOM..).unwrap_or_default(), Extent { start: 0, len }, self.tail.len())
    }

    /// Writes `bytes` as received over the head. It neither allocates nor frees memory.
    pub fn refill(&mut self, bytes: &[u8]) {
        if let Some(slot) = self.room.get_mut(HEADROOM..HEADROOM + bytes.len()) {
            slot.copy_from_slice(bytes);
            self.place(Extent { start: HEADROOM, len: bytes.len() });
        }
    }

    fn extent(&self) -> Extent {
        let [start, len] = self.at.map(|bytes| bytes as usize);
        Extent { start, len }
    }

    #[allow(clippy::cast_possible_truncation, reason = "it lies in the room")]
    fn place(&mut self, at: Extent) {
        self.at = [at.start as u32, at.len as u32];
    }
}

/// Ports in memory.
#[derive(Debug, Default)]
pub struct Memory {
    ports: Vec<MemoryPort>,
    /// Frames given back, which are those of dropped packets.
    pub recycled: Vec<MemoryFrame>,
}

/// One port: the packets to be received, and those sent.
#[derive(Debug, Default)]
pub struct MemoryPort {
    /// Packets to be received.
    pub rx: VecDeque<MemoryFrame>,
    /// Packets sent.
    pub tx: Vec<MemoryFrame>,
    /// Number of further packets that can be sent. `None` means any number.
    pub room: Option<usize>,
}

impl MemoryPort {
    #[cold]
    fn send_what_fits(&mut self, frames: &mut impl Iterator<Item = MemoryFrame>) -> Result<(), MemoryFrame> {
        let room = self.room.unwrap_or(usize::MAX);
        let before = self.tx.len();
        self.tx.extend(frames.take(room));
        self.room = Some(before + room - self.tx.len());
        frames.next().map_or(Ok(()), Err)
    }
}

impl Memory {
    /// Creates `count` ports.
    pub fn new(count: usize) -> Self {
        Self { ports: (0..count).map(|_| MemoryPort::default()).collect(), recycled: Vec::new() }
    }

    /// Returns a port.
    pub fn port(&mut self, socket: usize) -> Option<&mut MemoryPort> {
        self.ports.get_mut(socket)
    }

    /// Takes the sent packets, each with the socket it left through.
    pub fn take_sent(&mut self) -> Vec<(usize, MemoryFrame)> {
        let ports = self.ports.iter_mut().enumerate();
        ports.flat_map(|(socket, port)| port.tx.drain(..).map(move |frame| (socket, frame))).collect()
    }
}

impl Frames for Memory {
    type Frame = MemoryFrame;

    fn packet<'f>(&self, frame: &'f mut MemoryFrame) -> Packet<'f> {
        let at = frame.extent();
        Packet::at(&mut frame.room, at, frame.tail.len())
    }

    fn place(&self, frame: &mut MemoryFrame, at: Extent, keep_tail: bool) {
        frame.place(at);
        if !keep_tail {
            frame.tail.clear();
        }
    }
}

impl Io for Memory {
    fn sockets(&self) -> usize {
        self.ports.len()
    }

    fn receive(&mut self, socket: usize, max: usize, out: &mut Vec<MemoryFrame>) {
        if let Some(port) = self.ports.get_mut(socket) {
            let count = port.rx.len().min(max);
            out.extend(port.rx.drain(..count));
        }
    }

    fn packet_and_further<'f>(&'f self, frame: &'f mut MemoryFrame) -> (Packet<'f>, impl Fn(usize) -> u64 + 'f) {
        let at = frame.extent();
        let MemoryFrame { room, tail, .. } = frame;
        let tail = tail.as_slice();
        (Packet::at(room, at, tail.len()), move |len| checksum::sum_of_segments([tail], len))
    }

    fn packet_len(&self, frame: &MemoryFrame) -> usize {
        frame.extent().len + frame.tail.len()
    }

    fn send(&mut self, socket: usize, frames: &mut impl Iterator<Item = MemoryFrame>) -> Result<(), MemoryFrame> {
        match self.ports.get_mut(socket) {
            Some(MemoryPort { tx, room: None, .. }) => tx.extend(frames),
            Some(port) => return port.send_what_fits(frames),
            None => return frames.next().map_or(Ok(()), Err),
        }
        Ok(())
    }

    fn recycle(&mut self, frame: MemoryFrame) {
        self.recycled.push(frame);
    }

    fn flush(&mut self, _socket: usize) {}
}
