//! What a worker needs of its ports.

use srv6d_srv6::Frames;
use srv6d_wire::{Extent, Packet};

/// Ports of one worker, by socket number.
pub trait Io {
    /// One received packet, owned. It ends in [`send`](Self::send) or [`recycle`](Self::recycle).
    type Frame;

    /// Sockets, with gaps counted.
    fn sockets(&self) -> usize;

    /// Receives up to `max` packets of one socket into `out`.
    fn receive(&mut self, socket: usize, max: usize, out: &mut Vec<Self::Frame>);

    /// The bytes of a packet.
    fn packet<'f>(&self, frame: &'f mut Self::Frame) -> Packet<'f>;

    /// The bytes of a packet, and beside them the checksum's sum of the first bytes in further buffers: of as many as
    /// are asked for, or as there are. See [`srv6d_srv6::FurtherSum`].
    fn packet_and_further<'f>(&'f self, frame: &'f mut Self::Frame) -> (Packet<'f>, impl Fn(usize) -> u64 + 'f);

    /// Length of a packet in bytes, further buffers included.
    fn packet_len(&self, frame: &Self::Frame) -> usize;

    /// Takes over where a packet is now in its first buffer, and the further ones or not.
    fn place(&self, frame: &mut Self::Frame, at: Extent, keep_tail: bool);

    /// Queues packets, one after the other.
    ///
    /// # Errors
    /// There is no such socket, or no room for this one, which comes back. What follows it was not asked for yet.
    fn send(&mut self, socket: usize, frames: &mut impl Iterator<Item = Self::Frame>) -> Result<(), Self::Frame>;

    /// Takes a packet's memory back.
    fn recycle(&mut self, frame: Self::Frame);

    /// Sends what was queued.
    fn flush(&mut self, socket: usize);
}

/// The frames of ports, as the straight way takes them.
#[derive(Debug)]
pub struct Buffers<'i, I>(pub &'i I);

impl<I: Io> Frames for Buffers<'_, I> {
    type Frame = I::Frame;

    #[inline]
    fn packet<'f>(&self, frame: &'f mut I::Frame) -> Packet<'f> {
        self.0.packet(frame)
    }

    #[inline]
    fn place(&self, frame: &mut I::Frame, at: Extent, keep_tail: bool) {
        self.0.place(frame, at, keep_tail);
    }
}
