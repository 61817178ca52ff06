//! Ethernet II headers with at most one 802.1Q tag that names a VLAN. Priority tags may stand in front of it.

use crate::be16;

/// `EtherType` of IPv4.
pub const IPV4: u16 = 0x0800;
/// `EtherType` of IPv6.
pub const IPV6: u16 = 0x86dd;
/// Tag protocol identifier of 802.1Q.
pub const VLAN: u16 = 0x8100;
/// Tag protocol identifier of 802.1ad service tags.
pub const SERVICE_VLAN: u16 = 0x88a8;
/// Offset of the type, or of the first tag.
pub const TYPE_AT: usize = 12;
/// Length of a tag.
pub const TAG_LEN: usize = 4;
/// Length of an untagged header.
pub const LEN: usize = 14;
/// Length of a header with one tag.
pub const VLAN_LEN: usize = 18;
/// Shortest frame without FCS.
pub const MIN_FRAME: usize = 60;

/// A parsed Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Destination MAC address.
    pub destination: [u8; 6],
    /// Source MAC address.
    pub source: [u8; 6],
    /// VLAN ID of the tag; `None` if no tag names a VLAN.
    pub vlan: Option<u16>,
    /// `EtherType` behind all tags.
    pub ether_type: u16,
    /// Length of the header: 14 bytes, and 4 more for each tag.
    pub len: usize,
}

/// Number of priority tags (tags with VID 0) that may stand in front of the header's type or VLAN tag. A priority tag
/// carries a priority and belongs to no VLAN (IEEE 802.1Q section 6.9).
const PRIORITY_TAGS: usize = 2;
const VID: u16 = 0x0fff;

/// Parses the header. Returns `None` if `frame` is shorter than its header.
#[inline]
pub fn parse(frame: &[u8]) -> Option<Header> {
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *frame.first_chunk::<LEN>()?;
    let untagged = (None, u16::from_be_bytes([t0, t1]), LEN);
    let (vlan, ether_type, len) = match untagged.1 {
        VLAN | SERVICE_VLAN => behind_tags(frame, untagged)?,
        _ => untagged,
    };
    Some(Header { destination: [d0, d1, d2, d3, d4, d5], source: [s0, s1, s2, s3, s4, s5], vlan, ether_type, len })
}

/// Returns the VID, the type and the header length behind the tags that this module reads. It does not read an 802.1ad
/// service tag that names a VLAN: that is left in place as an unknown type.
fn behind_tags(frame: &[u8], untagged: (Option<u16>, u16, usize)) -> Option<(Option<u16>, u16, usize)> {
    let (_, mut ether_type, mut len) = untagged;
    for priority_tags in 0..=PRIORITY_TAGS {
        if !matches!(ether_type, VLAN | SERVICE_VLAN) {
            break;
        }
        let (vid, behind) = (be16(frame, len)? & VID, be16(frame, len + 2)?);
        match (vid, ether_type) {
            (0, _) if priority_tags < PRIORITY_TAGS => (ether_type, len) = (behind, len + TAG_LEN),
            (0, _) | (_, SERVICE_VLAN) => break,
            _ => return Some((Some(vid), behind, len + TAG_LEN)),
        }
    }
    Some((None, ether_type, len))
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
    fn priority_tags_name_no_vlan() {
        let frame = |tags: &[(u16, u16)]| {
            let mut frame = vec![0; 12];
            for &(kind, tci) in tags {
                frame.extend([kind.to_be_bytes(), tci.to_be_bytes()].concat());
            }
            frame.extend([0x86, 0xdd]);
            frame
        };
        let read = |tags: &[(u16, u16)]| parse(&frame(tags)).map(|header| (header.vlan, header.ether_type, header.len));
        assert_eq!(read(&[(VLAN, 0xe000)]), Some((None, IPV6, 18)));
        assert_eq!(read(&[(SERVICE_VLAN, 0)]), Some((None, IPV6, 18)));
        assert_eq!(read(&[(SERVICE_VLAN, 0), (VLAN, 0xe000)]), Some((None, IPV6, 22)));
        assert_eq!(read(&[(VLAN, 0), (VLAN, 7)]), Some((Some(7), IPV6, 22)));
        assert_eq!(read(&[(SERVICE_VLAN, 7)]), Some((None, SERVICE_VLAN, 14)));
        assert_eq!(read(&[(VLAN, 0); 3]), Some((None, VLAN, 22)), "a third one is no IP");
    }

    #[test]
    fn cut_short() {
        assert_eq!(parse(&[0; 13]), None);
        let mut frame = [0u8; 17];
        frame[12..14].copy_from_slice(&[0x81, 0x00]);
        assert_eq!(parse(&frame), None);
    }
}
