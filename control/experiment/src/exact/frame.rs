//! Frames of the exact mode: `RoCEv2` packets of applications, whose last bytes say which packet of a queue pair they are.

use etherparse::{IpHeaders, Ipv6Extensions, Ipv6Header, PacketBuilder, ip_number};
use srv6d_dataplane::memory::MemoryFrame;

use super::addresses::{application, kernel_mac, packet_mac};
use crate::queue_pair::{Endpoints, ROCE_V2};
use crate::simulation::Packet;

/// ECN field of a packet whose transport supports ECN: ECT(0).
const ECT: u8 = 2;
/// Hop limit of a new packet.
const HOP_LIMIT: u8 = 64;
/// Length of the outer header that the host adds.
const OUTER: usize = 40;
/// Length of the Ethernet, IPv6 and UDP headers of the application's packet.
const HEADERS: usize = 14 + 40 + 8;
/// Length of the base transport header (IBTA, BTH).
const BTH: usize = 12;
/// Length of the number of a packet.
const NUMBER: usize = 9;
/// Opcode of a reliable connection that sends a message in one packet.
const SEND_ONLY: u8 = 0x04;

/// Makes the frame of a packet, as an application's kernel hands it to srv6d. The frame has `len` bytes after
/// encapsulation, or more if the headers alone are longer than that.
pub(super) fn frame(between: Endpoints, packet: Packet, len: u32) -> MemoryFrame {
    let Endpoints { source, destination, port, queue_pair } = between;
    let payload = payload(queue_pair, packet, len as usize);
    let header = Ipv6Header {
        traffic_class: ECT,
        payload_length: 0,
        hop_limit: HOP_LIMIT,
        next_header: ip_number::UDP,
        source: application(source).octets(),
        destination: application(destination).octets(),
        ..Ipv6Header::default()
    };
    let builder = PacketBuilder::ethernet2(kernel_mac(source).0, packet_mac(source).0)
        .ip(IpHeaders::Ipv6(header, Ipv6Extensions::default()))
        .udp(port, ROCE_V2);
    let mut bytes = Vec::with_capacity(builder.size(payload.len()));
    // Writing into a vector fails only for a payload that is too long for UDP, and no frame is that long.
    let _ = builder.write(&mut bytes, &payload);
    MemoryFrame::new(&bytes)
}

fn payload(queue_pair: u32, packet: Packet, len: usize) -> Vec<u8> {
    let mut payload = vec![0; len.saturating_sub(OUTER + HEADERS).max(BTH + NUMBER)];
    let [_, number @ ..] = queue_pair.to_be_bytes();
    let [_, psn @ ..] = packet.sequence.to_be_bytes();
    let bth = [&[SEND_ONLY, 0, 0xff, 0xff, 0][..], &number, &[0], &psn].concat();
    payload.iter_mut().zip(bth).for_each(|(byte, value)| *byte = value);
    let id = [&packet.queue_pair.to_be_bytes()[..], &packet.sequence.to_be_bytes(), &[u8::from(packet.is_repeated)]];
    payload.iter_mut().rev().zip(id.concat().into_iter().rev()).for_each(|(byte, value)| *byte = value);
    payload
}

/// Returns the packet that a frame carries, wherever it is on its way.
pub(super) fn packet(frame: &MemoryFrame) -> Option<Packet> {
    let id: [u8; NUMBER] = frame.last()?;
    let (queue_pair, rest) = id.split_first_chunk::<4>()?;
    let (sequence, is_repeated) = rest.split_first_chunk::<4>()?;
    Some(Packet {
        queue_pair: u32::from_be_bytes(*queue_pair),
        sequence: u32::from_be_bytes(*sequence),
        is_marked: false,
        is_repeated: is_repeated == [1],
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use super::*;

    const BETWEEN: Endpoints = Endpoints { source: 3, destination: 9, port: 50_000, queue_pair: 0x0012_3456 };

    #[test]
    fn a_frame_says_which_packet_it_carries() {
        let sent = Packet { queue_pair: 7, sequence: 0x0102_0304, is_marked: false, is_repeated: true };
        for len in [60, 123, 124, 1554, 9216] {
            let frame = frame(BETWEEN, sent, len);
            assert_eq!(packet(&frame), Some(sent));
            assert_eq!(frame.bytes().len(), (len as usize).max(OUTER + HEADERS + BTH + NUMBER) - OUTER);
        }
    }

    #[test]
    fn a_frame_is_what_roce_looks_like() {
        let sent = Packet { queue_pair: 0, sequence: 5, is_marked: false, is_repeated: false };
        let bytes = frame(BETWEEN, sent, 1554).bytes();
        let parsed = etherparse::SlicedPacket::from_ethernet(&bytes).unwrap();
        let Some(etherparse::TransportSlice::Udp(udp)) = parsed.transport else { unreachable!("{parsed:?}") };
        assert_eq!((udp.source_port(), udp.destination_port()), (50_000, 4791));
        assert_eq!(udp.payload().get(..12).unwrap(), [4, 0, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0, 0, 0, 5]);
    }
}
