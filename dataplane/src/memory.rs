//! Ports in memory: for tests and benches of the very step that runs on AF_XDP.

use std::collections::VecDeque;

use srv6d_wire::Packet;

use crate::io::Io;

/// Room of a frame, as an AF_XDP chunk has it behind the kernel's headroom.
pub const ROOM: usize = 3840;

/// A packet in memory. Bytes behind it are 0xa5, so that a stale byte shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    room: Box<[u8]>,
    head: usize,
    tail: Vec<u8>,
}

impl Frame {
    /// A frame with these bytes; what does not leave 256 bytes of room becomes the tail.
    pub fn new(bytes: &[u8]) -> Self {
        const SPLIT_AT: usize = 2048;
        let head = if bytes.len() > ROOM - 256 { SPLIT_AT } else { bytes.len() };
        let (front, tail) = bytes.split_at_checked(head).unwrap_or((bytes, &[]));
        let mut room = vec![0xa5; ROOM].into_boxed_slice();
        if let Some(slot) = room.get_mut(..front.len()) {
            slot.copy_from_slice(front);
        }
        Self { room, head: front.len(), tail: tail.to_vec() }
    }

    /// All bytes of the packet.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.room.get(..self.head).unwrap_or_default().to_vec();
        bytes.extend(&self.tail);
        bytes
    }

    /// Writes `bytes` over the head without giving memory back or taking any.
    pub fn refill(&mut self, bytes: &[u8]) {
        if let Some(slot) = self.room.get_mut(..bytes.len()) {
            slot.copy_from_slice(bytes);
            self.head = bytes.len();
        }
    }
}

/// Ports in memory.
#[derive(Debug, Default)]
pub struct Memory {
    ports: Vec<MemoryPort>,
    /// Frames given back: what was dropped.
    pub recycled: Vec<Frame>,
}

/// One port: what waits to be received, and what was sent.
#[derive(Debug, Default)]
pub struct MemoryPort {
    /// To be received.
    pub rx: VecDeque<Frame>,
    /// Sent.
    pub tx: Vec<Frame>,
    /// How many more packets can be sent; `None`: any number.
    pub room: Option<usize>,
}

impl MemoryPort {
    #[cold]
    fn send_what_fits(&mut self, frames: &mut impl Iterator<Item = Frame>) -> Result<(), Frame> {
        let room = self.room.unwrap_or(usize::MAX);
        let before = self.tx.len();
        self.tx.extend(frames.take(room));
        self.room = Some(before + room - self.tx.len());
        frames.next().map_or(Ok(()), Err)
    }
}

impl Memory {
    /// `count` ports.
    pub fn new(count: usize) -> Self {
        Self { ports: (0..count).map(|_| MemoryPort::default()).collect(), recycled: Vec::new() }
    }

    /// A port.
    pub fn port(&mut self, socket: usize) -> Option<&mut MemoryPort> {
        self.ports.get_mut(socket)
    }

    /// Takes what was sent, with the socket it left through.
    pub fn take_sent(&mut self) -> Vec<(usize, Frame)> {
        let ports = self.ports.iter_mut().enumerate();
        ports.flat_map(|(socket, port)| port.tx.drain(..).map(move |frame| (socket, frame))).collect()
    }
}

impl Io for Memory {
    type Frame = Frame;

    fn sockets(&self) -> usize {
        self.ports.len()
    }

    fn receive(&mut self, socket: usize, max: usize, out: &mut Vec<Frame>) {
        if let Some(port) = self.ports.get_mut(socket) {
            let count = port.rx.len().min(max);
            out.extend(port.rx.drain(..count));
        }
    }

    fn packet<'f>(&self, frame: &'f mut Frame) -> Packet<'f> {
        Packet::new(&mut frame.room, frame.head, frame.tail.len())
    }

    fn packet_len(&self, frame: &Frame) -> usize {
        frame.head + frame.tail.len()
    }

    fn resize(&self, frame: &mut Frame, head: usize, keep_tail: bool) {
        frame.head = head;
        if !keep_tail {
            frame.tail.clear();
        }
    }

    fn send(&mut self, socket: usize, frames: &mut impl Iterator<Item = Frame>) -> Result<(), Frame> {
        match self.ports.get_mut(socket) {
            Some(MemoryPort { tx, room: None, .. }) => tx.extend(frames),
            Some(port) => return port.send_what_fits(frames),
            None => return frames.next().map_or(Ok(()), Err),
        }
        Ok(())
    }

    fn recycle(&mut self, frame: Frame) {
        self.recycled.push(frame);
    }

    fn flush(&mut self, _socket: usize) {}
}
