//! IPv4 header (RFC 791).
//!
//! ```text
//!  | 4 | IHL |   TOS      |        total length          |
//!  |      identification  | flags |   fragment offset    |
//!  |   TTL   |  protocol  |       header checksum        |
//!  |                     source                          |
//!  |                     destination                     |
//! ```

use crate::checksum;

/// Length without options.
pub const LEN: usize = 20;
/// Offset of the TTL.
pub const TTL: usize = 8;

/// A header; options follow behind the 20 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; LEN]);

impl<'a> Header<'a> {
    /// The header at the beginning of `bytes`: version 4, an IHL of 20 bytes or more, all of it there.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header = Self(bytes.first_chunk()?);
        (header.0[0] >> 4 == 4 && header.header_len() >= LEN && header.header_len() <= bytes.len()).then_some(header)
    }

    /// A header whose version is known, and that it is no longer than the packet.
    #[inline]
    pub const fn known(bytes: &'a [u8; LEN]) -> Self {
        Self(bytes)
    }

    /// With options, in bytes.
    #[inline]
    pub const fn header_len(self) -> usize {
        ((self.0[0] & 0x0f) as usize) * 4
    }

    /// DSCP and ECN.
    #[inline]
    pub const fn tos(self) -> u8 {
        self.0[1]
    }

    /// Header and payload.
    #[inline]
    pub const fn total_len(self) -> usize {
        u16::from_be_bytes([self.0[2], self.0[3]]) as usize
    }

    /// Don't Fragment.
    #[inline]
    pub const fn dont_fragment(self) -> bool {
        self.0[6] & 0x40 != 0
    }

    /// Not the first fragment.
    #[inline]
    pub const fn has_offset(self) -> bool {
        u16::from_be_bytes([self.0[6], self.0[7]]) & 0x1fff != 0
    }

    /// Any fragment: an offset, or more to come.
    #[inline]
    pub const fn is_fragment(self) -> bool {
        u16::from_be_bytes([self.0[6], self.0[7]]) & 0x3fff != 0
    }

    /// Time to live.
    #[inline]
    pub const fn ttl(self) -> u8 {
        self.0[8]
    }

    /// Protocol of what follows.
    #[inline]
    pub const fn protocol(self) -> u8 {
        self.0[9]
    }

    /// Source, big-endian.
    #[inline]
    pub const fn source(self) -> u32 {
        u32::from_be_bytes([self.0[12], self.0[13], self.0[14], self.0[15]])
    }

    /// Destination, big-endian.
    #[inline]
    pub const fn destination(self) -> u32 {
        u32::from_be_bytes([self.0[16], self.0[17], self.0[18], self.0[19]])
    }
}

/// Spends one hop. What the sum loses the checksum, its complement, gains (RFC 1624): the TTL is the upper half of its word.
#[inline]
pub fn spend_ttl(header: &mut [u8; LEN]) {
    header[TTL] = header[TTL].wrapping_sub(1);
    let sum = u32::from(u16::from_be_bytes([header[10], header[11]])) + 0x0100;
    // A carry comes in again at the other end, and so does all ones, which is zero.
    let [_, _, high, low] = (sum + u32::from(sum >= 0xffff)).to_be_bytes();
    [header[10], header[11]] = [high, low];
}

/// Writes TOS and TTL and keeps the header checksum right (RFC 1624).
#[inline]
pub fn set_tos_ttl(header: &mut [u8; LEN], tos: u8, ttl: u8) {
    let old_first = u16::from_be_bytes([header[0], header[1]]);
    let old_ttl = u16::from_be_bytes([header[8], header[9]]);
    header[1] = tos;
    header[8] = ttl;
    let new_first = u16::from_be_bytes([header[0], header[1]]);
    let new_ttl = u16::from_be_bytes([header[8], header[9]]);
    let sum = u16::from_be_bytes([header[10], header[11]]);
    let sum = checksum::replace(checksum::replace(sum, old_first, new_first), old_ttl, new_ttl);
    let [high, low] = sum.to_be_bytes();
    header[10] = high;
    header[11] = low;
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)] // a failed test may panic
mod tests {
    use super::*;

    #[test]
    fn ttl_and_tos_keep_the_checksum() {
        let mut header = [0x45, 0xb9, 0, 0x30, 0, 1, 0, 0, 64, 17, 0x49, 0xfe, 1, 1, 1, 1, 44, 2, 2, 2];
        set_tos_ttl(&mut header, 0xb9, 63);
        assert_eq!(&header[10..12], [0x4a, 0xfe]);
        set_tos_ttl(&mut header, 0xbb, 63);
        assert_eq!(checksum::of(&header), 0);
    }

    #[test]
    fn a_spent_ttl_is_in_any_checksum() {
        let mut header = [0x45, 0xb9, 0, 0x30, 0, 1, 0, 0, 64, 17, 0, 0, 1, 1, 1, 1, 44, 2, 2, 2];
        for sum in 0..=u16::MAX {
            (header[8], [header[10], header[11]]) = (64, sum.to_be_bytes());
            spend_ttl(&mut header);
            assert_eq!(
                (header[8], [header[10], header[11]]),
                (63, checksum::replace(sum, 0x4011, 0x3f11).to_be_bytes())
            );
        }
    }

    #[test]
    fn options_must_be_there() {
        let mut bytes = [0u8; 24];
        bytes[0] = 0x46;
        assert!(Header::parse(&bytes[..20]).is_none());
        assert!(Header::parse(&bytes).is_some());
        bytes[0] = 0x44;
        assert!(Header::parse(&bytes).is_none());
    }
}
