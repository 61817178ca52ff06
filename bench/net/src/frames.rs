//! Frames that the generator sends, and what the DUT has to make of them.

use std::net::Ipv6Addr;

use etherparse::PacketBuilder;

/// Ethernet address of the generator.
pub const GENERATOR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Ethernet address of the DUT's port towards the generator.
pub const IN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Ethernet address of the DUT's port towards the sink.
pub const OUT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
/// Ethernet address of the sink.
pub const SINK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 4];

/// Source address of test packets.
pub const SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 1);
/// Destination address of test packets.
pub const DESTINATION: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 1);
/// Carrier that encapsulation writes: uN and uDT6 of the next node.
pub const CARRIER: Ipv6Addr = Ipv6Addr::new(0xfcbb, 0, 2, 0xfe06, 0, 0, 0, 0);
/// Carrier as it arrives at the DUT to be shifted: the DUT's uN, then [`CARRIER`]'s uSIDs.
pub const CARRIER_HERE: Ipv6Addr = Ipv6Addr::new(0xfcbb, 0, 1, 2, 0xfe06, 0, 0, 0);
/// Carrier that ends at the DUT.
pub const CARRIER_END: Ipv6Addr = Ipv6Addr::new(0xfcbb, 0, 1, 0xfe06, 0, 0, 0, 0);

const ETHERNET: usize = 14;
const IPV6: usize = 40;
const UDP: usize = 8;
/// Bytes behind the UDP header that hold the complement of the flow.
const FLOW: usize = 2;
/// Bytes of a time stamp: a magic number and the time.
pub const STAMP: usize = 16;

/// Work that a DUT does on each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Redirects any frame from port to port.
    Cross,
    /// Forwards plain IPv6.
    Forward,
    /// Encapsulates: H.Encaps.Red with one segment.
    Encapsulate,
    /// Shifts the carrier: End with NEXT-CSID (uN).
    Shift,
    /// Decapsulates and looks up: End.DT6.
    Decapsulate,
}

/// Size of frames in bytes, without the Ethernet checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Size {
    /// All frames have this size.
    Bytes(usize),
    /// A mix: seven frames of 64 bytes, four of 570, one of 1500.
    Imix,
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Imix => f.write_str("IMIX"),
        }
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("imix") {
            return Ok(Self::Imix);
        }
        match text.parse() {
            Ok(bytes @ 64..=9000) => Ok(Self::Bytes(bytes)),
            _ => Err(format!("{text:?} is no frame size: write 64 to 9000, or imix")),
        }
    }
}

/// Lengths of the mix in the order in which they are sent. No two long frames follow each other.
const IMIX: [usize; 12] = [64, 570, 64, 64, 570, 64, 1500, 64, 570, 64, 570, 64];

/// Returns the length by which a size (as named in reports) is sorted. A mix has its mean length.
pub fn mean_length(size: &str) -> f64 {
    match size.parse() {
        Ok(Size::Imix) => IMIX.iter().sum::<usize>() as f64 / IMIX.len() as f64,
        Ok(Size::Bytes(bytes)) => bytes as f64,
        Err(_) => f64::MAX,
    }
}

impl Work {
    /// Returns the frames to send, which are repeated from the start. A frame that is too short for the headers (and
    /// for the stamp, if requested) gets the shortest possible length.
    pub fn frames(self, size: Size, stamped: bool) -> Vec<Vec<u8>> {
        let of = |bytes: usize| self.frame(bytes.max(self.shortest(stamped)));
        match size {
            Size::Bytes(bytes) => vec![of(bytes)],
            Size::Imix => IMIX.iter().map(|&bytes| of(bytes)).collect(),
        }
    }

    /// Returns the length of the shortest frame: Ethernet, the IPv6 headers, UDP, the flow, the stamp.
    pub fn shortest(self, stamped: bool) -> usize {
        let behind = FLOW + if stamped { STAMP } else { 0 };
        (self.udp_offset() + UDP + behind).max(64)
    }

    /// Returns the offset of the UDP header.
    pub fn udp_offset(self) -> usize {
        ETHERNET + if self.outer().is_some() { 2 * IPV6 } else { IPV6 }
    }

    /// Returns the destination in the outer header of frames that are sent, if they have one.
    fn outer(self) -> Option<Ipv6Addr> {
        match self {
            Self::Cross | Self::Forward | Self::Encapsulate => None,
            Self::Shift => Some(CARRIER_HERE),
            Self::Decapsulate => Some(CARRIER_END),
        }
    }

    /// Returns the number of bytes by which the DUT makes a frame longer.
    pub fn growth(self) -> isize {
        match self {
            Self::Cross | Self::Forward | Self::Shift => 0,
            Self::Encapsulate => 40,
            Self::Decapsulate => -40,
        }
    }

    /// Returns the destination address in the first IPv6 header of the result.
    pub fn comes_out_for(self) -> Ipv6Addr {
        match self {
            Self::Cross | Self::Forward | Self::Decapsulate => DESTINATION,
            Self::Encapsulate | Self::Shift => CARRIER,
        }
    }

    fn frame(self, bytes: usize) -> Vec<u8> {
        let inner = inner(bytes.saturating_sub(self.udp_offset() + UDP));
        let Some(outer) = self.outer() else { return ethernet(&inner) };
        let length = u16::try_from(inner.len()).unwrap_or(u16::MAX);
        let header = etherparse::Ipv6Header {
            payload_length: length,
            next_header: etherparse::IpNumber::IPV6,
            hop_limit: 64,
            source: SOURCE.octets(),
            destination: outer.octets(),
            ..etherparse::Ipv6Header::default()
        };
        ethernet(&[header.to_bytes().as_slice(), &inner].concat())
    }
}

fn ethernet(packet: &[u8]) -> Vec<u8> {
    let header = etherparse::Ethernet2Header {
        source: GENERATOR_MAC,
        destination: IN_MAC,
        ether_type: etherparse::EtherType::IPV6,
    };
    [header.to_bytes().as_slice(), packet].concat()
}

/// Returns IPv6 and UDP headers and a payload of this length. The payload begins with the complement of the source
/// port: the generator changes both, so that the checksum stays valid.
fn inner(payload: usize) -> Vec<u8> {
    let port: u16 = 0x8000;
    let mut data = vec![0; payload.max(FLOW)];
    if let Some(flow) = data.get_mut(..FLOW) {
        flow.copy_from_slice(&(!port).to_be_bytes());
    }
    let mut packet = Vec::with_capacity(IPV6 + UDP + data.len());
    let built =
        PacketBuilder::ipv6(SOURCE.octets(), DESTINATION.octets(), 64).udp(port, 4789).write(&mut packet, &data);
    debug_assert!(built.is_ok(), "a vector takes everything");
    packet
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure is the test's failure")]

    use super::*;

    const ALL: [Work; 5] = [Work::Cross, Work::Forward, Work::Encapsulate, Work::Shift, Work::Decapsulate];

    #[test]
    fn frames_have_the_length_asked_for_or_the_shortest_there_is() {
        for work in ALL {
            assert_eq!(work.frames(Size::Bytes(1500), false)[0].len(), 1500, "{work:?}");
            assert_eq!(work.frames(Size::Bytes(9000), false)[0].len(), 9000, "{work:?}");
        }
        assert_eq!(Work::Forward.frames(Size::Bytes(64), false)[0].len(), 64);
        assert_eq!(Work::Shift.frames(Size::Bytes(64), false)[0].len(), 104);
        assert_eq!(Work::Shift.frames(Size::Bytes(64), true)[0].len(), 120);
    }

    #[test]
    fn imix_is_seven_to_four_to_one() {
        let frames = Work::Forward.frames(Size::Imix, false);
        let of = |bytes: usize| frames.iter().filter(|frame| frame.len() == bytes).count();
        assert_eq!((of(64), of(570), of(1500)), (7, 4, 1));
    }

    #[test]
    fn a_carrier_is_ipv6_in_ipv6_and_all_lengths_agree() {
        let frame = Work::Shift.frames(Size::Bytes(200), false).remove(0);
        let outer = etherparse::Ipv6Header::from_slice(&frame[14..]).unwrap();
        assert_eq!((outer.0.destination, usize::from(outer.0.payload_length)), (CARRIER_HERE.octets(), 200 - 54));
        let inner = etherparse::SlicedPacket::from_ip(outer.1).unwrap();
        let etherparse::TransportSlice::Udp(udp) = inner.transport.unwrap() else { panic!("no UDP") };
        assert_eq!((udp.source_port(), usize::from(udp.length())), (0x8000, 200 - 94));
    }

    #[test]
    fn a_size_is_a_number_or_imix() {
        assert_eq!("1500".parse(), Ok(Size::Bytes(1500)));
        assert_eq!("IMIX".parse(), Ok(Size::Imix));
        assert!("63".parse::<Size>().unwrap_err().contains("64 to 9000"));
        assert_eq!(Size::Imix.to_string().parse(), Ok(Size::Imix));
    }
}
