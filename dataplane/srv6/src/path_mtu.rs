//! Path MTU discovery: `ICMPv6` Packet Too Big messages of routers about packets that this node encapsulated (RFC
//! 2473 sections 7.1 and 8.1, RFC 8201).
//!
//! ```text
//! | Ethernet | IPv6 to us | ICMPv6 2, MTU | quoted: outer IPv6 [ SRH ] | inner packet ...
//!                                           source: ours, destination: what is left of the path's carrier
//! ```
//!
//! The message is believed only if this node would have sent the quoted packet: the quoted inner packet leads to a
//! path by prefix and flow, and the quoted outer header is that of the path. An attacker has to know all of that, and
//! can at worst reduce the MTU of a path to 1280 bytes.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use smoltcp::wire::Icmpv6Packet;
use srv6d_wire::srh::Routing;
use srv6d_wire::{Packet, be32, eth, ipv4, ipv6, protocol};

use crate::carrier::SegmentList;
use crate::desired::{Desired, PortId};
use crate::flow::{self, FlowHash};
use crate::tables::{Adjacency, PathEntry, Tables, Target, VrfIndex};
use crate::tally::Slots;

const PACKET_TOO_BIG: u8 = 2;
/// Length of type, code, checksum and MTU of a Packet Too Big message.
const ICMP_HEADER: usize = 8;
/// Block length of an F3216 carrier, for segments outside of every configured block.
const F3216_BLOCK: u8 = 32;

/// A path with a smaller MTU than was known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// Slot of the path's counters.
    pub path: u32,
    /// Largest outer packet, in bytes.
    pub mtu: u32,
}

impl PathMtu {
    /// Returns the smallest learned MTU for each list of segments. Paths that no longer exist are left out.
    pub fn by_segments(
        learned: impl IntoIterator<Item = Self>,
        slots: &Slots,
        desired: &Desired,
    ) -> BTreeMap<SegmentList, u32> {
        let mut by_slot = BTreeMap::new();
        for Self { path, mtu } in learned {
            let known = by_slot.entry(path as usize).or_insert(mtu);
            *known = mtu.min(*known);
        }
        let mut smallest = BTreeMap::new();
        let paths = desired.steers.iter().flat_map(|steer| &steer.paths).filter(|_| !by_slot.is_empty());
        for path in paths {
            if let Some(&mtu) = slots.paths.find(&path.name).and_then(|slot| by_slot.get(&slot)) {
                let known = smallest.entry(path.segments.clone()).or_insert(mtu);
                *known = mtu.min(*known);
            }
        }
        smallest
    }
}

/// Returns true if a frame that came in by this device was sent by a node of the domain, or by this node.
pub fn comes_from_domain(tables: &Tables, device: u16, frame: &[u8]) -> bool {
    let untagged = tables.port(PortId(device));
    let port = match eth::parse(frame).and_then(|header| header.vlan) {
        None => untagged,
        Some(vid) => {
            let tagged = untagged.and_then(|port| port.tagged.iter().find(|(tag, _)| *tag == vid));
            tagged.and_then(|(_, port)| tables.port(*port))
        }
    };
    port.is_some_and(|port| !port.role.is_outside())
}

/// Returns the paths whose MTU this frame reduces; for nearly all frames there are none.
///
/// `comes_from_domain` is the result of [`comes_from_domain`] for the frame. A frame from outside is not believed,
/// because whoever receives a packet of this node could reduce the MTU of the whole path. If the sources of the
/// domain are configured, no other source is believed either. An MTU below the least one of the policy is never
/// believed.
pub fn learned<'a>(
    tables: &'a Tables,
    packet: &'a Packet<'_>,
    comes_from_domain: bool,
) -> impl Iterator<Item = PathMtu> + use<'a> {
    let whole = (packet.tail_len() == 0 && comes_from_domain).then(|| packet.bytes());
    let quote = whole.and_then(|frame| Quote::parse(frame, tables.tunnel.hash_qp));
    let quote = quote.filter(|quote| quote.is_believed(tables));
    let vrfs = 0..VrfIndex::try_from(tables.vrfs.len()).unwrap_or(VrfIndex::MAX);
    quote.into_iter().flat_map(move |quote| vrfs.clone().filter_map(move |vrf| quote.path(tables, vrf)))
}

/// A Packet Too Big message with the packet it quotes.
#[derive(Clone, Copy, Debug)]
struct Quote {
    /// The router that sent the message.
    sender: u128,
    mtu: usize,
    source: u128,
    destination: u128,
    inner_is_v6: bool,
    inner_destination: u128,
    flow: FlowHash,
}

impl Quote {
    fn parse(frame: &[u8], hash_qp: bool) -> Option<Self> {
        let ethernet = eth::parse(frame).filter(|header| header.ether_type == eth::IPV6)?;
        let packet = frame.get(ethernet.len..)?;
        let header = ipv6::Header::parse(packet).filter(|header| header.next_header() == protocol::ICMPV6)?;
        let icmp = packet.get(ipv6::LEN..ipv6::LEN + header.payload_len())?;
        if icmp.first() != Some(&PACKET_TOO_BIG) {
            return None;
        }
        // RFC 8201 section 4: a message with an MTU below the smallest one of IPv6 is discarded.
        let mtu = be32(icmp, 4).map(|mtu| mtu as usize).filter(|&mtu| mtu >= ipv6::MIN_MTU)?;
        let message = Icmpv6Packet::new_checked(icmp).ok()?;
        let address = Ipv6Addr::from_bits;
        if !message.verify_checksum(&address(header.source()), &address(header.destination())) {
            return None;
        }
        let quote = Self::of_quoted(icmp.get(ICMP_HEADER..)?, (header.source(), mtu), hash_qp)?;
        // RFC 4443 section 2.4: an error goes to the source of the packet it is about.
        (quote.source == header.destination()).then_some(quote)
    }

    fn of_quoted(quoted: &[u8], (sender, mtu): (u128, usize), hash_qp: bool) -> Option<Self> {
        let outer = ipv6::Header::parse(quoted)?;
        let behind = quoted.get(ipv6::LEN..)?;
        let (next_header, inner) = if outer.next_header() == protocol::ROUTING {
            let routing = Routing::parse(behind)?;
            (routing.next_header(), behind.get(routing.len()..)?)
        } else {
            (outer.next_header(), behind)
        };
        let (inner_is_v6, inner_destination, flow) = match next_header {
            protocol::IPV6 => {
                let header = ipv6::Header::parse(inner)?;
                (true, header.destination(), flow::inner_v6(inner, header, hash_qp))
            }
            protocol::IPV4 => {
                let header = ipv4::Header::parse(inner)?;
                (false, u128::from(header.destination()) << 96, flow::v4(inner, header, hash_qp))
            }
            _ => return None,
        };
        let (source, destination) = (outer.source(), outer.destination());
        Some(Self { sender, mtu, source, destination, inner_is_v6, inner_destination, flow })
    }

    fn is_believed(&self, tables: &Tables) -> bool {
        let (domain, sender) = (&tables.policy.domain_sources, Ipv6Addr::from_bits(self.sender));
        let is_of_domain = domain.is_empty() || domain.iter().any(|prefix| prefix.contains(&sender));
        is_of_domain && self.mtu >= tables.policy.least_path_mtu as usize
    }

    /// Returns the path that the inner packet takes from this VRF, if the quoted outer header is that of the path.
    fn path(&self, tables: &Tables, vrf: VrfIndex) -> Option<PathMtu> {
        let Some(Target::Steer(steer)) = tables.look_up(vrf, self.inner_is_v6, self.inner_destination) else {
            return None;
        };
        let paths = tables.possible_paths(steer, self.flow);
        let mut ways = paths.flat_map(|path| {
            let members = path.group.map(|group| tables.possible_members(group, self.flow));
            members.into_iter().flatten().map(move |adjacency| (path, adjacency))
        });
        let (path, adjacency) = ways.find(|(path, adjacency)| self.is_sent_by(tables, path, adjacency))?;
        let is_smaller = self.mtu < path.mtu.min(adjacency.mtu);
        is_smaller.then_some(PathMtu { path: path.slot, mtu: u32::try_from(self.mtu).ok()? })
    }

    /// Returns true if the quoted outer header is that of packets on this path by this next hop.
    fn is_sent_by(&self, tables: &Tables, path: &PathEntry, adjacency: &Adjacency) -> bool {
        let own = if path.own_source { None } else { adjacency.source };
        let source = own.map(Ipv6Addr::to_bits).or_else(|| bits_at(path, 8));
        source == Some(self.source) && leads_to(tables, path, self.destination)
    }
}

/// Returns 16 bytes of the path's outer header.
fn bits_at(path: &PathEntry, offset: usize) -> Option<u128> {
    let bytes = path.header.get(..path.header_len)?.get(offset..)?;
    bytes.first_chunk().map(|bytes| u128::from_be_bytes(*bytes))
}

/// Returns true if a packet of the path can have this destination somewhere on the path: a segment, or a segment after
/// some shifts.
fn leads_to(tables: &Tables, path: &PathEntry, destination: u128) -> bool {
    let listed = (ipv6::LEN + 8..path.header_len).step_by(16);
    let segments = std::iter::once(ipv6::DESTINATION).chain(listed).filter_map(|offset| bits_at(path, offset));
    segments.into_iter().any(|segment| {
        let block = tables.blocks.iter().filter(|block| block.contains(&Ipv6Addr::from_bits(segment)));
        let len = block.map(ipnet::Ipv6Net::prefix_len).max().unwrap_or(F3216_BLOCK);
        shifts(segment, u32::from(len)).any(|active| active == destination)
    })
}

/// Returns the carrier, and the carrier after each possible number of shifts of 16 bits. The empty block is never
/// returned.
fn shifts(carrier: u128, block_len: u32) -> impl Iterator<Item = u128> {
    let block = carrier & u128::MAX.checked_shl(128 - block_len).unwrap_or(0);
    let shift = move |argument: &u128| argument.checked_shl(16);
    let arguments = std::iter::successors(carrier.checked_shl(block_len), shift).take_while(|&argument| argument != 0);
    arguments.map(move |argument| block | argument.checked_shr(block_len).unwrap_or(0))
}

#[cfg(test)]
mod tests;
