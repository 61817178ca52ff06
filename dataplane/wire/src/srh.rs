//! Segment routing header (RFC 8754 section 2).
//!
//! ```text
//!  | next header | hdr ext len | type 4 | segments left |
//!  | last entry  |    flags    |          tag           |
//!  |  Segment[0] (16): the LAST segment                 |
//!  |  ...                                               |
//!  |  TLVs                                              |
//! ```

/// Routing type of the SRH.
pub const TYPE: u8 = 4;
/// Bytes in front of the segment list.
pub const FIXED_LEN: usize = 8;
/// Offset of Segments Left.
pub const SEGMENTS_LEFT: usize = 3;

/// A view of a routing header of any type. All of its bytes are there.
#[derive(Clone, Copy, Debug)]
pub struct Routing<'a> {
    fixed: &'a [u8; FIXED_LEN],
    bytes: &'a [u8],
}

impl<'a> Routing<'a> {
    /// Parses the header at the beginning of `bytes`. Returns `None` if it runs past their end.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let fixed = bytes.first_chunk::<FIXED_LEN>()?;
        let len = FIXED_LEN + usize::from(fixed[1]) * 8;
        Some(Self { fixed, bytes: bytes.get(..len)? })
    }

    /// Protocol number of the header that follows.
    pub const fn next_header(self) -> u8 {
        self.fixed[0]
    }

    /// Header extension length: 8-byte units behind the first 8 bytes.
    pub const fn ext_len(self) -> u8 {
        self.fixed[1]
    }

    /// Length of the whole header in bytes.
    pub const fn len(self) -> usize {
        self.bytes.len()
    }

    /// Always false: a header has at least 8 bytes.
    pub const fn is_empty(self) -> bool {
        false
    }

    /// Routing type.
    pub const fn routing_type(self) -> u8 {
        self.fixed[2]
    }

    /// Segments Left field.
    pub const fn segments_left(self) -> u8 {
        self.fixed[3]
    }

    /// Last Entry field.
    pub const fn last_entry(self) -> u8 {
        self.fixed[4]
    }

    /// Returns `Segment[index]`, or `None` if it lies outside the header.
    pub fn segment(self, index: u8) -> Option<u128> {
        let offset = FIXED_LEN + usize::from(index) * 16;
        self.bytes.get(offset..)?.first_chunk().map(|bytes| u128::from_be_bytes(*bytes))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)] // a failed test may panic
mod tests {
    use super::*;

    #[test]
    fn a_header_longer_than_its_bytes_is_none() {
        let bytes = [41, 2, 4, 1, 0, 0, 0, 0];
        assert!(Routing::parse(&bytes).is_none());
        let mut whole = [0u8; 24];
        whole[..8].copy_from_slice(&bytes);
        whole[23] = 7;
        let header = Routing::parse(&whole).unwrap();
        assert_eq!((header.segment(0), header.segment(1)), (Some(7), None));
    }
}
