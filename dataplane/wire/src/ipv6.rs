//! IPv6 header (RFC 8200 section 3).
//!
//! ```text
//!  0                   1                   2                   3
//!  | 6 | traffic class |           flow label                   |
//!  |       payload length         | next header  |  hop limit   |
//!  |                     source (16)                            |
//!  |                     destination (16)                       |
//! ```

/// Length of the fixed header.
pub const LEN: usize = 40;
/// Smallest MTU of a link (RFC 8200 section 5).
pub const MIN_MTU: usize = 1280;
/// Offset of the hop limit.
pub const HOP_LIMIT: usize = 7;
/// Offset of the source.
pub const SOURCE: usize = 8;
/// Offset of the destination.
pub const DESTINATION: usize = 24;
/// Offset of the next header.
pub const NEXT_HEADER: usize = 6;

/// A view of the fixed IPv6 header.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; LEN]);

impl<'a> Header<'a> {
    /// Parses the header at the beginning of `bytes`. Returns `None` unless there are 40 bytes and the version is 6.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        bytes.first_chunk().filter(|header| header[0] >> 4 == 6).map(Self)
    }

    /// Wraps a header of which the caller knows that its version is 6.
    #[inline]
    pub const fn known(bytes: &'a [u8; LEN]) -> Self {
        Self(bytes)
    }

    /// Traffic class: DSCP and ECN.
    #[inline]
    pub const fn traffic_class(self) -> u8 {
        self.0[0] << 4 | self.0[1] >> 4
    }

    /// Flow label, 20 bits.
    #[inline]
    pub const fn flow_label(self) -> u32 {
        u32::from_be_bytes([0, self.0[1] & 0x0f, self.0[2], self.0[3]])
    }

    /// Number of bytes behind the fixed header.
    #[inline]
    pub const fn payload_len(self) -> usize {
        u16::from_be_bytes([self.0[4], self.0[5]]) as usize
    }

    /// Protocol number of the header behind this one.
    #[inline]
    pub const fn next_header(self) -> u8 {
        self.0[6]
    }

    /// Hop limit.
    #[inline]
    pub const fn hop_limit(self) -> u8 {
        self.0[7]
    }

    /// Source address as a number (converted from big-endian).
    #[inline]
    pub fn source(self) -> u128 {
        address(self.0, 8)
    }

    /// Destination address as a number (converted from big-endian).
    #[inline]
    pub fn destination(self) -> u128 {
        address(self.0, DESTINATION)
    }
}

#[inline]
fn address(header: &[u8; LEN], offset: usize) -> u128 {
    header.get(offset..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u128::from_be_bytes(*bytes))
}

/// Writes the traffic class and leaves version and flow label alone.
#[inline]
pub fn set_traffic_class(header: &mut [u8; LEN], value: u8) {
    header[0] = 0x60 | value >> 4;
    header[1] = value << 4 | header[1] & 0x0f;
}

/// Writes version 6, traffic class and a 20-bit flow label.
#[inline]
pub fn set_first_word(header: &mut [u8; LEN], traffic_class: u8, flow_label: u32) {
    let word = 0x6000_0000 | u32::from(traffic_class) << 20 | flow_label & 0x000f_ffff;
    let [a, b, c, d] = word.to_be_bytes();
    header[0] = a;
    header[1] = b;
    header[2] = c;
    header[3] = d;
}

/// Writes the payload length.
#[inline]
pub fn set_payload_len(header: &mut [u8; LEN], len: u16) {
    let [high, low] = len.to_be_bytes();
    header[4] = high;
    header[5] = low;
}

/// Writes the destination.
#[inline]
pub fn set_destination(header: &mut [u8; LEN], destination: u128) {
    if let Some(slot) = header.last_chunk_mut::<16>() {
        *slot = destination.to_be_bytes();
    }
}

/// Whether an address is multicast (`ff00::/8`).
#[inline]
pub const fn is_multicast(address: u128) -> bool {
    address >> 120 == 0xff
}

/// Whether an address is link-local (`fe80::/10`).
#[inline]
pub const fn is_link_local(address: u128) -> bool {
    address >> 118 == 0x3fa
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)] // a failed test may panic
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_as_written() {
        let mut bytes = [0u8; LEN];
        set_first_word(&mut bytes, 0xb9, 0xa_bcde);
        set_payload_len(&mut bytes, 1234);
        set_destination(&mut bytes, 0xfcbb << 112 | 5);
        let header = Header::parse(&bytes).unwrap();
        assert_eq!((header.traffic_class(), header.flow_label()), (0xb9, 0xa_bcde));
        assert_eq!((header.payload_len(), header.destination()), (1234, 0xfcbb << 112 | 5));
        set_traffic_class(&mut bytes, 0x62);
        let header = Header::parse(&bytes).unwrap();
        assert_eq!((header.traffic_class(), header.flow_label()), (0x62, 0xa_bcde));
    }

    #[test]
    fn version_and_length_are_checked() {
        assert!(Header::parse(&[0x60; 39]).is_none());
        assert!(Header::parse(&[0x40; 40]).is_none());
    }

    #[test]
    fn scopes() {
        assert!(is_link_local(0xfe80 << 112 | 1) && is_link_local(0xfebf << 112));
        assert!(!is_link_local(0xfec0 << 112) && !is_link_local(0xfcbb << 112));
        assert!(is_multicast(0xff02 << 112 | 1) && !is_multicast(0xfe80 << 112));
    }
}
