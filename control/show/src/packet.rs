//! One line about a packet: addresses from the outermost header to the innermost one, and the ports.

use std::net::IpAddr;

use etherparse::{
    Ipv6ExtensionSlice, LaxNetSlice, LaxPacketHeaders, LaxSlicedPacket, TransportSlice, VlanSlice, ip_number,
};

/// Largest number of IP headers, one inside the other, that are shown.
const NESTING: usize = 4;

/// Describes a frame. Bytes that are cut short or wrong end the line where they are.
pub fn summary(frame: &[u8]) -> String {
    let Ok(packet) = LaxSlicedPacket::from_ethernet(frame) else { return "too short for Ethernet".to_owned() };
    let tag = match packet.vlan() {
        Some(VlanSlice::SingleVlan(tag)) => format!("vlan {}, ", tag.vlan_identifier().value()),
        Some(VlanSlice::DoubleVlan(tags)) => format!("vlan {}, ", tags.outer.vlan_identifier().value()),
        None => String::new(),
    };
    let ether_type = LaxPacketHeaders::from_ethernet(frame).ok().and_then(|headers| match headers.link {
        Some(etherparse::LinkHeader::Ethernet2(header)) => Some(header.ether_type.0),
        _ => None,
    });
    match packet.net {
        Some(LaxNetSlice::Ipv4(_) | LaxNetSlice::Ipv6(_)) => {
            format!("{tag}{}, {} bytes", layers(&packet, NESTING), frame.len())
        }
        Some(LaxNetSlice::Arp(_)) => format!("{tag}ARP"),
        None => format!("{tag}type 0x{:04x}, {} bytes", ether_type.unwrap_or_default(), frame.len()),
    }
}

/// Describes an IP packet and what it carries.
fn layers(packet: &LaxSlicedPacket<'_>, depth: usize) -> String {
    let (addresses, payload) = match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            let text = format!("{} > {} ttl {}", header.source_addr(), header.destination_addr(), header.ttl());
            (text, ip.payload())
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            let (source, destination) = (header.source_addr(), header.destination_addr());
            let text = format!("{source} > {destination} hlim {}", header.hop_limit());
            let extensions = ip.extensions().clone().into_iter();
            let routing = extensions.filter_map(|extension| match extension {
                Ipv6ExtensionSlice::Routing(routing) => routing.slice().get(3).copied(),
                _ => None,
            });
            (routing.fold(text, |text, left| format!("{text}, routing header with {left} segments left")), ip.payload())
        }
        _ => return "no IP".to_owned(),
    };
    let is_ip = matches!(payload.ip_number, ip_number::IPV6 | ip_number::IPV4) && !payload.fragmented;
    let inner = match (&packet.transport, LaxSlicedPacket::from_ip(payload.payload)) {
        (None, Ok(inner)) if is_ip && depth > 1 => format!("[{}]", layers(&inner, depth - 1)),
        (Some(TransportSlice::Udp(udp)), _) => format!("UDP {} > {}", udp.source_port(), udp.destination_port()),
        (Some(TransportSlice::Tcp(tcp)), _) => format!("TCP {} > {}", tcp.source_port(), tcp.destination_port()),
        (Some(TransportSlice::Icmpv6(icmp)), _) => format!("ICMPv6 type {} code {}", icmp.type_u8(), icmp.code_u8()),
        (Some(TransportSlice::Icmpv4(icmp)), _) => format!("ICMP type {} code {}", icmp.type_u8(), icmp.code_u8()),
        _ => format!("protocol {}", payload.ip_number.0),
    };
    format!("{addresses}, {inner}")
}

/// Returns source and destination of the outermost IP header of a frame.
pub fn addresses(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match LaxSlicedPacket::from_ethernet(frame).ok()?.net? {
        LaxNetSlice::Ipv4(ip) => Some((ip.header().source_addr().into(), ip.header().destination_addr().into())),
        LaxNetSlice::Ipv6(ip) => Some((ip.header().source_addr().into(), ip.header().destination_addr().into())),
        LaxNetSlice::Arp(_) => None,
    }
}

/// Formats bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// Reads pairs of hexadecimal digits, as answers of the daemon have them, up to the first other character.
pub fn bytes_of(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    pairs.map_while(byte).collect()
}

/// Formats at most `most` bytes, sixteen on a line, with their offsets.
pub fn dump(bytes: &[u8], most: usize) -> String {
    let shown = bytes.get(..most).unwrap_or(bytes);
    let lines = shown.chunks(16).enumerate().map(|(number, line)| {
        let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("  {:04x}  {}\n", number * 16, digits.join(" "))
    });
    let rest = bytes.len() - shown.len();
    let more = if rest > 0 { format!("  and {rest} more bytes\n") } else { String::new() };
    lines.chain([more]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_described_up_to_where_they_are_right() {
        let carrier = "0200000000010200000000aa86dd6000000000200440fcbb000001000000000000000000000120010db8000000000000000000000001";
        let text = summary(&bytes_of(carrier));
        assert!(text.starts_with("fcbb:0:100::1 > 2001:db8::1 hlim 64, protocol 4, 54 bytes"), "{text}");
        assert_eq!(summary(&[1, 2]), "too short for Ethernet");
        assert_eq!(summary(&bytes_of("0200000000010200000000aa88cc0000")), "type 0x88cc, 16 bytes");
        assert_eq!(bytes_of("0aff0"), [0x0a, 0xff]);
        assert_eq!(bytes_of("0aéé"), [0x0a]);
        assert_eq!(dump(&[1; 18], 17), format!("  0000 {}\n  0010  01\n  and 1 more bytes\n", " 01".repeat(16)));
    }
}
