//! A packet inside its buffer.
//!
//! ```text
//! room  |  front  |      bytes       |    room behind    |        further buffers: tail_len bytes
//!       0       start               end               room.len()
//! ```

use std::ops::Range;

/// A packet whose start and end can move within the room of its first buffer.
///
/// Only the first buffer is ever parsed. Of further buffers only the length is known.
#[derive(Debug)]
pub struct Packet<'a> {
    room: &'a mut [u8],
    start: usize,
    end: usize,
    tail: usize,
}

/// Position of a packet in its first buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the packet's first byte from the beginning of the buffer.
    pub start: usize,
    /// Number of bytes of the packet in the first buffer.
    pub len: usize,
}

/// The error that the buffer has no room for the headers to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl<'a> Packet<'a> {
    /// Creates a packet of `len` bytes at the beginning of `room`, with `tail` more bytes in further buffers. `len` is
    /// cut to the length of `room`.
    pub fn new(room: &'a mut [u8], len: usize, tail: usize) -> Self {
        let len = len.min(room.len());
        Self::at(room, Extent { start: 0, len }, tail)
    }

    /// Like [`new`](Self::new), but the packet may begin anywhere in `room`. The caller makes sure that the extent lies
    /// inside `room`. Headers that are put in front go into the headroom there, so the packet does not move.
    #[inline]
    pub const fn at(room: &'a mut [u8], Extent { start, len }: Extent, tail: usize) -> Self {
        Self { room, start, end: start + len, tail }
    }

    /// Returns the packet's present position in the first buffer.
    #[inline]
    pub const fn extent(&self) -> Extent {
        Extent { start: self.start, len: self.end - self.start }
    }

    /// Returns the packet's bytes in the first buffer.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.room.get(self.start..self.end).unwrap_or_default()
    }

    /// Returns the first `N` bytes of the first buffer, or `None` if the packet has fewer there.
    #[inline]
    pub fn head<const N: usize>(&self) -> Option<&[u8; N]> {
        if self.end - self.start < N { None } else { self.room.get(self.start..self.start + N)?.first_chunk() }
    }

    /// Returns the packet's bytes in the first buffer for writing.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.room.get_mut(self.start..self.end).unwrap_or_default()
    }

    /// Length of the packet in bytes, further buffers included.
    #[inline]
    pub const fn total_len(&self) -> usize {
        self.end - self.start + self.tail
    }

    /// Number of bytes in further buffers.
    #[inline]
    pub const fn tail_len(&self) -> usize {
        self.tail
    }

    /// Makes `n` bytes of room in front. Their contents are undefined until they are written.
    ///
    /// # Errors
    /// [`NoRoom`]; the packet is unchanged then.
    #[inline]
    pub fn push_front(&mut self, n: usize) -> Result<(), NoRoom> {
        if n > self.start {
            let distance = n - self.start;
            if self.room.len() - self.end < distance {
                return Err(NoRoom);
            }
            self.room.copy_within(self.start..self.end, n);
            self.end += distance;
            self.start = n;
        }
        self.start -= n;
        Ok(())
    }

    /// Returns true if `push` bytes can be put in front after `pull` bytes have been removed there.
    #[inline]
    pub const fn fits(&self, pull: usize, push: usize) -> bool {
        push.saturating_sub(self.start + pull) <= self.room.len() - self.end
    }

    /// Removes `pull` bytes from the front and makes room for `push` bytes there, in one move. Returns the packet's
    /// bytes in the first buffer; the contents of the new room are undefined until they are written.
    ///
    /// # Errors
    /// [`NoRoom`] if there is no room or the packet is shorter than `pull`; the packet is unchanged then.
    #[inline]
    pub fn replace_front(&mut self, pull: usize, push: usize) -> Result<&mut [u8], NoRoom> {
        let from = self.start + pull;
        if from > self.end {
            return Err(NoRoom);
        }
        if push > from {
            slide(self.room, from..self.end, push)?;
            (self.start, self.end) = (0, self.end - from + push);
        } else {
            self.start = from - push;
        }
        self.room.get_mut(self.start..self.end).ok_or(NoRoom)
    }

    /// Like [`replace_front`](Self::replace_front), but for lengths that are known at compile time, and it returns only
    /// the first `N` bytes of the resulting packet. Returns `None` if the packet is shorter than that or has no room.
    #[inline]
    pub fn replace_head<const PULL: usize, const PUSH: usize, const N: usize>(&mut self) -> Option<&mut [u8; N]> {
        const { assert!(N >= PUSH, "what is put in front is asked for") };
        if self.end - self.start + PUSH < N + PULL {
            return None;
        }
        if self.start + PULL < PUSH {
            self.replace_front(PULL, PUSH).ok()?;
        } else {
            self.start = self.start + PULL - PUSH;
        }
        self.room.get_mut(self.start..self.start + N)?.first_chunk_mut()
    }

    /// Removes `n` bytes from the front, but no more than the first buffer holds.
    #[inline]
    pub fn pull_front(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
    }

    /// Removes `n` bytes at `offset` by moving the bytes in front of them.
    pub fn cut(&mut self, offset: usize, n: usize) {
        let from = self.start;
        if self.start + offset + n <= self.end {
            self.room.copy_within(from..from + offset, from + n);
            self.start += n;
        }
    }

    /// Cuts off everything behind the first `len` bytes. If the cut would fall into a further buffer, nothing happens:
    /// the bytes stay as a trailer that the IP length does not cover.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if self.start + len <= self.end {
            self.end = self.start + len;
            self.tail = 0;
        }
    }

    /// Pads the packet with zeros to `len` bytes, as far as the first buffer has room. A packet with further buffers
    /// stays as it is.
    pub fn pad_to(&mut self, len: usize) {
        let end = (self.start + len).min(self.room.len());
        if self.tail == 0 && end > self.end {
            if let Some(pad) = self.room.get_mut(self.end..end) {
                pad.fill(0);
            }
            self.end = end;
        }
    }
}

/// Moves `bytes` to offset `to`. This is rarely needed. As a function of its own that takes its arguments by value, it
/// lets the caller keep the packet in registers.
#[cold]
#[inline(never)]
fn slide(room: &mut [u8], bytes: Range<usize>, to: usize) -> Result<(), NoRoom> {
    if to + bytes.len() > room.len() {
        return Err(NoRoom);
    }
    room.copy_within(bytes, to);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)] // a failed test may panic
mod tests {
    use super::*;

    #[test]
    fn push_slides_only_as_far_as_it_must() {
        let mut room = [0xa5; 16];
        room[..4].copy_from_slice(&[1, 2, 3, 4]);
        let mut packet = Packet::new(&mut room, 4, 0);
        packet.pull_front(1);
        assert_eq!(packet.push_front(3), Ok(()));
        packet.bytes_mut()[..3].copy_from_slice(&[7, 8, 9]);
        assert_eq!(packet.bytes(), [7, 8, 9, 2, 3, 4]);
        assert_eq!(packet.extent(), Extent { start: 0, len: 6 });
    }

    #[test]
    fn nothing_moves_where_there_is_headroom() {
        let mut room = [0xa5; 16];
        room[8..12].copy_from_slice(&[1, 2, 3, 4]);
        let mut packet = Packet::at(&mut room, Extent { start: 8, len: 4 }, 0);
        packet.replace_front(2, 6).unwrap()[..6].fill(7);
        assert_eq!(packet.bytes(), [7, 7, 7, 7, 7, 7, 3, 4]);
        assert_eq!(packet.extent(), Extent { start: 4, len: 8 });
        packet.pull_front(6);
        assert_eq!((packet.push_front(1), packet.extent()), (Ok(()), Extent { start: 9, len: 3 }));
        assert_eq!(room[10..], [3, 4, 0xa5, 0xa5, 0xa5, 0xa5]);
        assert_eq!(Packet::at(&mut room, Extent { start: 20, len: 4 }, 0).bytes(), []);
    }

    #[test]
    fn push_without_room_changes_nothing() {
        let mut room = [1, 2, 3, 4];
        let mut packet = Packet::new(&mut room, 3, 0);
        assert_eq!(packet.push_front(2), Err(NoRoom));
        assert_eq!(packet.bytes(), [1, 2, 3]);
        assert_eq!(packet.push_front(1), Ok(()));
        assert_eq!(&packet.bytes()[1..], [1, 2, 3]);
    }

    #[test]
    fn what_is_in_front_is_replaced() {
        let mut room = [1, 2, 3, 4, 0xa5, 0xa5];
        let mut packet = Packet::new(&mut room, 4, 0);
        assert_eq!(packet.replace_front(2, 5), Err(NoRoom));
        assert_eq!(packet.replace_front(5, 0), Err(NoRoom));
        assert_eq!(packet.bytes(), [1, 2, 3, 4]);
        packet.replace_front(2, 4).unwrap()[..4].copy_from_slice(&[5, 6, 7, 8]);
        assert_eq!(packet.bytes(), [5, 6, 7, 8, 3, 4]);
        assert_eq!(packet.replace_front(3, 1).unwrap()[1..], [8, 3, 4]);
        assert_eq!(packet.extent(), Extent { start: 2, len: 4 });
    }

    #[test]
    fn cut_closes_the_gap() {
        let mut room = [1, 2, 3, 4, 5];
        let mut packet = Packet::new(&mut room, 5, 0);
        packet.cut(1, 2);
        assert_eq!(packet.bytes(), [1, 4, 5]);
    }

    #[test]
    fn truncate_counts_further_buffers() {
        let mut room = [0; 8];
        let mut packet = Packet::new(&mut room, 8, 100);
        packet.truncate(50);
        assert_eq!(packet.total_len(), 108);
        packet.truncate(6);
        assert_eq!((packet.total_len(), packet.tail_len()), (6, 0));
    }

    #[test]
    fn padding_is_zero() {
        let mut room = [0xa5; 8];
        let mut packet = Packet::new(&mut room, 2, 0);
        packet.pad_to(6);
        assert_eq!(packet.bytes(), [0xa5, 0xa5, 0, 0, 0, 0]);
    }
}
