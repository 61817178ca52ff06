//! Tests that follow carriers hop by hop through random fabrics with the packet path's own code. The carriers visit the
//! nodes of the path in their order, and the packet that arrives is the one that was sent.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test stops at the first surprise")]

mod fabric;
mod node;

use std::net::Ipv6Addr;

use etherparse::{IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder};
use fabric::{Fabric, Function, Style};
use node::Node;
use proptest::prelude::*;
use srv6d_controller::compose::{Options, compose};
use srv6d_controller::document::{Topology, Vertex};
use srv6d_controller::sid::Family;

/// The packet that one host sends and the other receives.
#[derive(Clone, Debug)]
struct Inner {
    family: Family,
    traffic_class: u8,
    /// Payload that is long enough that no frame is padded.
    payload: Vec<u8>,
}

const PAYLOAD: [u8; 24] = *b"whatever the hosts send.";

impl Inner {
    fn packet(&self, hop_limit: u8) -> Vec<u8> {
        let udp_len = u16::try_from(8 + self.payload.len()).unwrap();
        let mut packet = Vec::new();
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], node::APPLICATION_MAC);
        match self.family {
            Family::V6 => {
                let header = Ipv6Header {
                    traffic_class: self.traffic_class,
                    flow_label: Ipv6FlowLabel::ZERO,
                    payload_length: udp_len,
                    next_header: IpNumber::UDP,
                    hop_limit,
                    source: fabric::source_v6().octets(),
                    destination: fabric::destination_v6().octets(),
                };
                let ip = ethernet.ip(etherparse::IpHeaders::Ipv6(header, etherparse::Ipv6Extensions::default()));
                ip.udp(4000, 4791).write(&mut packet, &self.payload).unwrap();
            }
            Family::V4 => {
                let (source, destination) = (fabric::SOURCE_V4.octets(), fabric::DESTINATION_V4.octets());
                let mut header = Ipv4Header::new(udp_len, hop_limit, IpNumber::UDP, source, destination).unwrap();
                header.dscp = (self.traffic_class >> 2).try_into().unwrap();
                let ip = ethernet.ip(etherparse::IpHeaders::Ipv4(header, etherparse::Ipv4Extensions::default()));
                ip.udp(4000, 4791).write(&mut packet, &self.payload).unwrap();
            }
        }
        packet
    }
}

fn inner() -> impl Strategy<Value = Inner> {
    let family = prop_oneof![Just(Family::V6), Just(Family::V4)];
    (family, 0u8..64, prop::collection::vec(any::<u8>(), PAYLOAD.len()..80)).prop_map(|(family, dscp, payload)| Inner {
        family,
        traffic_class: dscp << 2,
        payload,
    })
}

/// Composes the carriers, sends the packet into the first node, and follows it.
fn walk(fabric: &Fabric, inner: &Inner, full_srh: bool) {
    let topology = Topology::read(&fabric.topology()).unwrap();
    let ids = fabric.walk_ids();
    let vertices: Vec<&Vertex> = ids.iter().map(|id| &topology.vertices[id]).collect();
    let options = Options {
        algo: 0,
        family: inner.family,
        strict: fabric.is_strict(),
        function: (fabric.function == Function::Configured).then_some(fabric::FUNCTION),
    };
    let composed = compose(&vertices, &topology, &options).unwrap();
    assert_eq!(composed.visits, fabric.walk_names());
    let nodes: Vec<Node> = (0..fabric.usids.len()).map(|number| Node::of(fabric, number)).collect();
    let host = Node::source(fabric, inner.family, &composed.segments, full_srh);
    let (mut frame, device) = host.forward(&inner.packet(64), node::APPLICATION);
    assert_eq!(device, node::UPLINK);
    check_outer(&frame, inner.family, composed.segments[0], composed.segments.len() > 1 || full_srh);
    let mut here = fabric.walk[0];
    let mut came_in = fabric.host_port(here);
    let mut visited = vec![here];
    loop {
        let (out, device) = nodes[here].forward(&frame, came_in);
        frame = out;
        if device == fabric.host_port(here) {
            break;
        }
        (here, came_in) = fabric.other_end(here, device);
        visited.push(here);
        assert!(visited.len() <= fabric.walk.len(), "astray: {visited:?}, not {:?}", fabric.walk);
    }
    assert_eq!(visited, fabric.walk, "{:?}", composed.segments);
    // The first and the last router decrement the hop limit of the inner packet.
    assert_eq!(frame[14..], inner.packet(62)[14..], "{:?}", composed.segments);
}

fn check_outer(frame: &[u8], family: Family, carrier: Ipv6Addr, has_srh: bool) {
    let next_header = match (has_srh, family) {
        (true, _) => 43,
        (false, Family::V6) => 41,
        (false, Family::V4) => 4,
    };
    assert_eq!(frame[14 + 6], next_header);
    assert_eq!(frame[14 + 24..14 + 40], carrier.octets());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_carrier_arrives_over_its_own_path(fabric in fabric::any(), inner in inner(), full_srh: bool) {
        // Without a label, the function in a host's document is for IPv6.
        prop_assume!(fabric.function != Function::Host || inner.family == Family::V6);
        walk(&fabric, &inner, full_srh);
    }
}

/// Tests that the seventh uSID begins another carrier, because six uSIDs fill one.
#[test]
fn the_edge_of_a_carrier_is_crossed_in_every_style() {
    for family in [Family::V6, Family::V4] {
        let inner = Inner { family, traffic_class: 0xb8, payload: PAYLOAD.to_vec() };
        for style in [Style::Loose, Style::Strict, Style::Planes] {
            for len in 1..=15 {
                for full_srh in [false, true] {
                    walk(&Fabric::line(style, Function::Own, len), &inner, full_srh);
                }
            }
        }
    }
}

#[test]
fn every_way_to_say_the_function_decapsulates() {
    for function in Function::ALL {
        for style in [Style::Loose, Style::Strict] {
            // Without a label, the function in a host's document is for IPv6.
            let families: &[Family] =
                if function == Function::Host { &[Family::V6] } else { &[Family::V6, Family::V4] };
            for &family in families {
                let inner = Inner { family, traffic_class: 0, payload: PAYLOAD.to_vec() };
                for len in 1..=8 {
                    walk(&Fabric::line(style, function, len), &inner, false);
                }
            }
        }
    }
}
