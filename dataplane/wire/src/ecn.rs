//! The ECN field of the outermost IP header of a frame (RFC 3168 section 5).

use crate::{eth, ipv4, ipv6};

/// The field says that the packet met congestion.
pub const CE: u8 = 3;

/// Returns the ECN field. A frame without an IP header has none, as if its transport did not support ECN.
pub fn of(frame: &[u8]) -> u8 {
    let of_packet = |packet: &[u8], ether_type| match ether_type {
        eth::IPV6 => ipv6::Header::parse(packet).map(ipv6::Header::traffic_class),
        eth::IPV4 => ipv4::Header::parse(packet).map(ipv4::Header::tos),
        _ => None,
    };
    let found = eth::parse(frame).and_then(|header| of_packet(frame.get(header.len..)?, header.ether_type));
    found.unwrap_or_default() & 3
}

/// Writes CE, and corrects the checksum of an IPv4 header. A frame without an IP header stays as it is.
pub fn set_ce(frame: &mut [u8]) {
    let Some(header) = eth::parse(frame) else { return };
    let Some(packet) = frame.get_mut(header.len..) else { return };
    match header.ether_type {
        eth::IPV6 => {
            let class = ipv6::Header::parse(packet).map(ipv6::Header::traffic_class);
            if let (Some(class), Some(header)) = (class, packet.first_chunk_mut()) {
                ipv6::set_traffic_class(header, class | CE);
            }
        }
        eth::IPV4 => {
            let bytes = ipv4::Header::parse(packet).map(|header| (header.tos(), header.ttl()));
            if let (Some((tos, ttl)), Some(header)) = (bytes, packet.first_chunk_mut()) {
                ipv4::set_tos_ttl(header, tos | CE, ttl);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)] // a failed test may panic
mod tests {
    use super::*;
    use crate::checksum;

    fn frame(ether_type: [u8; 2], tag: &[u8], packet: &[u8]) -> Vec<u8> {
        [&[2; 12], tag, &ether_type, packet].concat()
    }

    #[test]
    fn ipv6_untagged_and_tagged() {
        let mut packet = [0; 40];
        ipv6::set_first_word(&mut packet, 0xb8 | 2, 0xf_1234);
        let mut plain = frame([0x86, 0xdd], &[], &packet);
        let before = plain.clone();
        assert_eq!(of(&plain), 2);
        set_ce(&mut plain);
        assert_eq!((of(&plain), plain[15] & 0x30), (3, 0x30));
        assert_eq!(ipv6::Header::parse(&plain[14..]).unwrap().flow_label(), 0xf_1234);
        assert_eq!(plain.iter().zip(&before).filter(|(a, b)| a != b).count(), 1, "one byte changes");
        let mut tagged = frame([0x86, 0xdd], &[0x81, 0, 0, 7], &packet);
        set_ce(&mut tagged);
        assert_eq!((of(&tagged), tagged[19] & 0x30), (3, 0x30));
    }

    #[test]
    fn ipv4_with_its_checksum() {
        for ecn in 0..4 {
            let mut packet = [0x45, 0x88 | ecn, 0, 20, 1, 2, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            let [high, low] = checksum::of(&packet).to_be_bytes();
            [packet[10], packet[11]] = [high, low];
            let mut plain = frame([8, 0], &[], &packet);
            assert_eq!(of(&plain), ecn);
            set_ce(&mut plain);
            assert_eq!((of(&plain), plain[15] >> 2), (3, 0x88 >> 2));
            assert_eq!(checksum::of(&plain[14..]), 0, "the checksum fits");
        }
    }

    #[test]
    fn what_is_no_ip_stays_as_it_is() {
        for mut other in [frame([8, 6], &[], &[0xff; 28]), vec![1; 13], frame([0x86, 0xdd], &[], &[0x60; 39])] {
            let before = other.clone();
            assert_eq!(of(&other), 0);
            set_ce(&mut other);
            assert_eq!(other, before);
        }
    }
}
