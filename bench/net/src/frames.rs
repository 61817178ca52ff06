//! What the generator sends, and what has to come out.

use std::net::Ipv6Addr;

use etherparse::PacketBuilder;

/// Ethernet addresses: generator, the DUT's two ports, sink.
pub const GENERATOR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The DUT's port towards the generator.
pub const IN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The DUT's port towards the sink.
pub const OUT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
/// The sink.
pub const SINK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 4];

/// Where test packets come from.
pub const SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 1);
/// Where they go.
pub const DESTINATION: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 1);
/// The carrier that encapsulation writes: the next node's uN, and its uDT6.
pub const CARRIER: Ipv6Addr = Ipv6Addr::new(0xfcbb, 0, 2, 0xfe06, 0, 0, 0, 0);
/// The same, one node earlier: the DUT's uN in front.
pub const CARRIER_HERE: Ipv6Addr = Ipv6Addr::new(0xfcbb, 0, 1, 2, 0xfe06, 0, 0, 0);
/// A carrier that ends at the DUT.
pub const CARRIER_END: Ipv6Addr = Ipv6Addr::new(0xfcbb, 0, 1, 0xfe06, 0, 0, 0, 0);

const ETHERNET: usize = 14;
const IPV6: usize = 40;
const UDP: usize = 8;
/// Room for the complement of the flow.
const FLOW: usize = 2;
/// Magic and time of a stamped frame.
pub const STAMP: usize = 16;

/// What a DUT is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// From port to port, whatever it is.
    Cross,
    /// Forward plain IPv6.
    Forward,
    /// H.Encaps.Red with one segment.
    Encapsulate,
    /// End with NEXT-CSID (uN): shift the carrier.
    Shift,
    /// End.DT6: decapsulate, look up.
    Decapsulate,
}

/// How long frames are, in bytes without the checksum that Ethernet adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Size {
    /// All the same.
    Bytes(usize),
    /// Seven of 64, four of 570, one of 1500.
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

/// Lengths in the order they are sent, mixed so that no two long ones follow each other.
const IMIX: [usize; 12] = [64, 570, 64, 64, 570, 64, 1500, 64, 570, 64, 570, 64];

/// Length by which a size, as reports name it, takes its place among the others: a mix has its mean length.
pub fn mean_length(size: &str) -> f64 {
    match size.parse() {
        Ok(Size::Imix) => IMIX.iter().sum::<usize>() as f64 / IMIX.len() as f64,
        Ok(Size::Bytes(bytes)) => bytes as f64,
        Err(_) => f64::MAX,
    }
}

impl Work {
    /// Frames to send, one after the other, then from the start. A length below what the headers take (and the stamp, if
    /// asked for) becomes that.
    pub fn frames(self, size: Size, stamped: bool) -> Vec<Vec<u8>> {
        let of = |bytes: usize| self.frame(bytes.max(self.shortest(stamped)));
        match size {
            Size::Bytes(bytes) => vec![of(bytes)],
            Size::Imix => IMIX.iter().map(|&bytes| of(bytes)).collect(),
        }
    }

    /// Shortest frame: Ethernet, the IPv6 headers, UDP, the flow, the stamp.
    pub fn shortest(self, stamped: bool) -> usize {
        let behind = FLOW + if stamped { STAMP } else { 0 };
        (self.udp_offset() + UDP + behind).max(64)
    }

    /// Where the UDP header is.
    pub fn udp_offset(self) -> usize {
        ETHERNET + if self.outer().is_some() { 2 * IPV6 } else { IPV6 }
    }

    /// Destination of the outer header of what is sent.
    fn outer(self) -> Option<Ipv6Addr> {
        match self {
            Self::Cross | Self::Forward | Self::Encapsulate => None,
            Self::Shift => Some(CARRIER_HERE),
            Self::Decapsulate => Some(CARRIER_END),
        }
    }

    /// Bytes that the frame grows by.
    pub fn growth(self) -> isize {
        match self {
            Self::Cross | Self::Forward | Self::Shift => 0,
            Self::Encapsulate => 40,
            Self::Decapsulate => -40,
        }
    }

    /// Destination address in the first IPv6 header of what comes out.
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

/// IPv6 and UDP with so many bytes behind them. The first two are the complement of the source port: the generator
/// changes both, and the checksum stays what it is.
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
