//! Answers zebra that a route is in the forwarding plane: the answer is the same route with the offload flag set. Zebra
//! waits for it with `--asic-offload=notify_on_offload`.

use std::net::IpAddr;

use netlink_packet_core::{Emitable, NLM_F_REQUEST};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteScope, RouteType,
};
use srv6d_kernel_routes::rtnetlink::message::NEW_ROUTE;

use crate::event::{RouteKey, Vrf};
use crate::frame::HEADER as FRAME_HEADER;

/// Length of a netlink message header in bytes.
const MESSAGE_HEADER: usize = 16;
/// `RTM_F_OFFLOAD`. It is defined here because the netlink library uses that name for a flag of next hops, which is
/// another bit.
const OFFLOAD: u32 = 0x4000;
/// First table number that does not fit into the table field of the route header.
const SMALL_TABLE: u32 = 256;

/// Makes the frame that tells zebra that a route is in force. Zebra finds the route by prefix, table and protocol.
pub fn offloaded(key: &RouteKey, protocol: u8) -> Vec<u8> {
    let table = match key.vrf {
        Vrf::Default => 0,
        Vrf::Number(number) => number,
    };
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: if key.prefix.addr().is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 },
        destination_prefix_length: key.prefix.prefix_len(),
        table: u8::try_from(table).unwrap_or(0),
        protocol: protocol.into(),
        scope: RouteScope::Universe,
        kind: RouteType::Unicast,
        flags: RouteFlags::from_bits_retain(OFFLOAD),
        ..RouteHeader::default()
    };
    message.attributes.push(RouteAttribute::Destination(match key.prefix.addr() {
        IpAddr::V4(v4) => RouteAddress::Inet(v4),
        IpAddr::V6(v6) => RouteAddress::Inet6(v6),
    }));
    if table >= SMALL_TABLE {
        message.attributes.push(RouteAttribute::Table(table));
    }
    framed(&message)
}

fn framed(message: &RouteMessage) -> Vec<u8> {
    let body = message.buffer_len();
    let length = MESSAGE_HEADER + body;
    let mut frame = vec![1, 1];
    frame.extend_from_slice(&u16::try_from(FRAME_HEADER + length).unwrap_or(u16::MAX).to_be_bytes());
    frame.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    frame.extend_from_slice(&NEW_ROUTE.to_ne_bytes());
    frame.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    frame.extend_from_slice(&[0; 8]); // sequence and port number
    let mut bytes = vec![0; body];
    message.emit(&mut bytes);
    frame.append(&mut bytes);
    frame
}
