//! Ethernet II with at most one 802.1Q tag.

use crate::be16;

/// `EtherType` of IPv4.
pub const IPV4: u16 = 0x0800;
/// `EtherType` of IPv6.
pub const IPV6: u16 = 0x86dd;
/// Tag protocol identifier of 802.1Q.
pub const VLAN: u16 = 0x8100;
/// Length of an untagged header.
pub const LEN: usize = 14;
/// Length of a tagged header.
pub const VLAN_LEN: usize = 18;
/// Shortest frame without FCS.
pub const MIN_FRAME: usize = 60;

/// A parsed Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Destination.
    pub destination: [u8; 6],
    /// Source.
    pub source: [u8; 6],
    /// VID of the tag, if there is one.
    pub vlan: Option<u16>,
    /// Type behind the tag.
    pub ether_type: u16,
    /// 14, or 18 with a tag.
    pub len: usize,
}

/// Reads the header. `None`: fewer bytes than a header has.
#[inline]
pub fn parse(frame: &[u8]) -> Option<Header> {
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *frame.first_chunk::<LEN>()?;
    let outer = u16::from_be_bytes([t0, t1]);
    let (vlan, ether_type, len) = if outer == VLAN {
        (Some(be16(frame, LEN)? & 0x0fff), be16(frame, LEN + 2)?, VLAN_LEN)
    } else {
        (None, outer, LEN)
    };
    Some(Header { destination: [d0, d1, d2, d3, d4, d5], source: [s0, s1, s2, s3, s4, s5], vlan, ether_type, len })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)] // a failed test may panic
mod tests {
    use super::*;

    #[test]
    fn untagged_and_tagged() {
        let mut frame = [0u8; 18];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        let header = parse(&frame).unwrap();
        assert_eq!((header.ether_type, header.vlan, header.len), (IPV6, None, 14));
        frame[12..18].copy_from_slice(&[0x81, 0x00, 0xe0, 0x64, 0x08, 0x00]);
        let header = parse(&frame).unwrap();
        assert_eq!((header.ether_type, header.vlan, header.len), (IPV4, Some(100), 18));
    }

    #[test]
    fn cut_short() {
        assert_eq!(parse(&[0; 13]), None);
        let mut frame = [0u8; 17];
        frame[12..14].copy_from_slice(&[0x81, 0x00]);
        assert_eq!(parse(&frame), None);
    }
}
