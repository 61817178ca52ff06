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

/// Length of a header without options.
pub const LEN: usize = 20;
/// Offset of the TTL field.
pub const TTL: usize = 8;

/// A view of an IPv4 header. Options, if any, follow behind the 20 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; LEN]);

impl<'a> Header<'a> {
    /// Parses the header at the beginning of `bytes`. Returns `None` unless the version is 4, the IHL says 20 bytes or
    /// more, and all of the header is there.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header = Self(bytes.first_chunk()?);
        (header.0[0] >> 4 == 4 && header.header_len() >= LEN && header.header_len() <= bytes.len()).then_some(header)
    }

    /// Wraps a header of which the caller knows that its version is 4 and that it is no longer than the packet.
    #[inline]
    pub const fn known(bytes: &'a [u8; LEN]) -> Self {
        Self(bytes)
    }

    /// Length of the header with options, in bytes.
    #[inline]
    pub const fn header_len(self) -> usize {
        ((self.0[0] & 0x0f) as usize) * 4
    }

    /// Type of service byte: DSCP and ECN.
    #[inline]
    pub const fn tos(self) -> u8 {
        self.0[1]
    }

    /// Length of header and payload, in bytes.
    #[inline]
    pub const fn total_len(self) -> usize {
        u16::from_be_bytes([self.0[2], self.0[3]]) as usize
    }

    /// Whether the Don't Fragment flag is set.
    #[inline]
    pub const fn dont_fragment(self) -> bool {
        self.0[6] & 0x40 != 0
    }

    /// Whether this is a fragment other than the first.
    #[inline]
    pub const fn has_offset(self) -> bool {
        u16::from_be_bytes([self.0[6], self.0[7]]) & 0x1fff != 0
    }

    /// Whether this is any fragment: it has an offset, or more fragments follow.
    #[inline]
    pub const fn is_fragment(self) -> bool {
        u16::from_be_bytes([self.0[6], self.0[7]]) & 0x3fff != 0
    }

    /// Time to live.
    #[inline]
    pub const fn ttl(self) -> u8 {
        self.0[8]
    }

    /// Protocol number of the header behind this one.
    #[inline]
    pub const fn protocol(self) -> u8 {
        self.0[9]
    }

    /// Source address as a number (converted from big-endian).
    #[inline]
    pub const fn source(self) -> u32 {
        u32::from_be_bytes([self.0[12], self.0[13], self.0[14], self.0[15]])
    }

    /// Destination address as a number (converted from big-endian).
    #[inline]
    pub const fn destination(self) -> u32 {
        u32::from_be_bytes([self.0[16], self.0[17], self.0[18], self.0[19]])
    }
}

/// Option that ends the list, and option of one byte that fills it up (RFC 791 section 3.1).
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
/// Loose and strict source route (RFC 791 section 3.1).
const SOURCE_ROUTES: [u8; 2] = [131, 137];

/// Whether the header at the beginning of `bytes` has an option with a source route. An option whose length is wrong
/// ends the list: no router finds an option behind it.
pub fn has_source_route(bytes: &[u8]) -> bool {
    let Some(header) = Header::parse(bytes) else { return false };
    let mut options = bytes.get(LEN..header.header_len()).unwrap_or_default();
    loop {
        options = match *options {
            [] | [END_OF_OPTIONS, ..] => return false,
            [kind, ..] if SOURCE_ROUTES.contains(&kind) => return true,
            [NO_OPERATION, ref rest @ ..] => rest,
            [_, len, ..] if len >= 2 => options.get(usize::from(len)..).unwrap_or_default(),
            _ => return false,
        }
    }
}

/// Decrements the TTL and corrects the header checksum (RFC 1624). The TTL is the upper half of its 16-bit word, so the
/// sum of the words falls by 0x0100; the checksum is the complement of the sum and rises by the same amount.
#[inline]
pub fn spend_ttl(header: &mut [u8; LEN]) {
    header[TTL] = header[TTL].wrapping_sub(1);
    let sum = u32::from(u16::from_be_bytes([header[10], header[11]])) + 0x0100;
    // In ones' complement a carry is added at the lower end, and 0xffff is a second form of zero, which becomes 0 here.
    let [_, _, high, low] = (sum + u32::from(sum >= 0xffff)).to_be_bytes();
    [header[10], header[11]] = [high, low];
}

/// Writes TOS and TTL and corrects the header checksum (RFC 1624).
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
    fn a_source_route_is_found_behind_other_options() {
        let with = |options: &[u8]| {
            let mut header = vec![0u8; LEN];
            header[0] = 0x45 + u8::try_from(options.len() / 4).unwrap();
            has_source_route(&[&header, options].concat())
        };
        for found in [
            [131, 7, 4, 10, 0, 0, 1, 0],
            [137, 7, 4, 10, 0, 0, 1, 0],
            [1, 131, 7, 4, 10, 0, 0, 1],
            [148, 4, 0, 0, 131, 3, 4, 0],
            [131; 8],
        ] {
            assert!(with(&found), "{found:?}");
        }
        for none in [
            [1; 8],
            [0, 131, 7, 4, 10, 0, 0, 1],
            [148, 4, 0, 0, 0, 0, 0, 0],
            [7, 7, 4, 131, 131, 131, 131, 0],
            [7, 0, 131, 7, 4, 10, 0, 0],
            [7, 1, 131, 7, 4, 10, 0, 0],
            [7, 200, 131, 7, 4, 10, 0, 0],
            [1, 1, 1, 1, 1, 1, 1, 7],
        ] {
            assert!(!with(&none), "{none:?}");
        }
        assert!(!with(&[]));
        assert!(!has_source_route(&[0x46; 20]), "the options are not there");
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
