//! The interface of a worker to its ports.

use srv6d_srv6::Frames;
use srv6d_wire::Packet;

/// The ports of one worker, by socket number. A received frame is owned, and ends in [`send`](Self::send) or
/// [`recycle`](Self::recycle).
pub trait Io: Frames {
    /// Number of sockets, unused numbers included.
    fn sockets(&self) -> usize;

    /// Receives up to `max` packets of one socket into `out`.
    fn receive(&mut self, socket: usize, max: usize, out: &mut Vec<Self::Frame>);

    /// Returns the bytes of a packet, and a function that sums up, for a checksum, the given number of bytes in
    /// further buffers, or all of them if there are fewer. See [`srv6d_srv6::FurtherSum`].
    fn packet_and_further<'f>(&'f self, frame: &'f mut Self::Frame) -> (Packet<'f>, impl Fn(usize) -> u64 + 'f);

    /// Returns the length of a packet in bytes, further buffers included.
    fn packet_len(&self, frame: &Self::Frame) -> usize;

    /// Queues packets to be sent, one after the other.
    ///
    /// # Errors
    /// Returns the packet that could not be queued, because there is no such socket or no room. The packets behind it
    /// stay in the iterator.
    fn send(&mut self, socket: usize, frames: &mut impl Iterator<Item = Self::Frame>) -> Result<(), Self::Frame>;

    /// Takes back the memory of a packet.
    fn recycle(&mut self, frame: Self::Frame);

    /// Sends the queued packets.
    fn flush(&mut self, socket: usize);

    /// Says in the hand-over of this number that whatever was received so far has left, if that is so.
    fn finish(&mut self, _number: u32) {}
}
