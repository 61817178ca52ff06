//! The slow path: every rule for every packet.
//!
//! `decide` only reads: it follows the packet from header to header and SID to SID, and each `?` is one named,
//! counted way out. [`edit`](crate::edit) then writes once. A refused packet is untouched.
//!
//! ```text
//! parse ─► look up ─► SID?   shift, next segment, decapsulate ─┐
//!             ▲       steer? encapsulate ─────────────► write ─► Tx
//!             │       route? ─────────────────────────► write ─► Tx
//!             └───────────── again ◄───────────────────────────┘
//! ```

mod admit;
mod endpoint;
mod finish;
mod headers;
mod leave;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use srv6d_wire::{Packet, checksum, eth, ipv4, ipv6};

use crate::balance::{Balancer, Chosen};
use crate::desired::{Mac, PortId, Role, UnknownSid};
use crate::edit;
use crate::fast::{self, LookUpResult};
use crate::flow::FlowHash;
use crate::icmp::Notice;
use crate::limiter::Limiter;
use crate::reason::DropReason;
use crate::tables::{Adjacency, PathEntry, PortEntry, Tables, Target, VrfIndex};
use crate::tally::Tally;
use crate::trail::{Event, Trail};

use finish::Ending;
pub(crate) use leave::ready_member;

/// Largest number of own SIDs in one packet: six uSIDs of a carrier, and more for segment lists and inner packets.
const MAX_SIDS: usize = 16;
/// Largest number of encapsulations that are removed from one packet.
const MAX_NESTING: u8 = 2;

/// The verdict on a packet. The bytes of the packet have been changed accordingly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet leaves through this port, the untagged one of a device.
    Tx(u16),
    /// The packet has become an answer to its sender: an ICMP error for this reason. It leaves through the port.
    Error(DropReason, u16),
    /// The packet has become an echo reply. It leaves through the port.
    Echo(u16),
    /// The packet is for the kernel of this node. It leaves through the port that is the own veth.
    Kernel(u16),
    /// The packet is dropped. Its bytes are untouched.
    Drop(DropReason),
    /// The next hop is not resolved. The packet is kept, its bytes are untouched, and it is handed in again when
    /// tables change.
    Hold(PortId, IpAddr),
}

/// The ways out of [`SlowPath::decide`] that are not forwarding.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Out {
    Drop(DropReason),
    /// The packet is dropped, and the sender is told if the rules allow it.
    Tell(DropReason, Notice),
    Hold(PortId, IpAddr),
    /// The packet goes to the kernel, beginning with the current layer.
    Kernel,
    /// The echo request whose ICMP header is at this offset is answered.
    Echo(usize),
}

/// The way out by which a packet is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Egress<'t> {
    Routed(&'t Adjacency),
    Encapsulated(&'t PathEntry, &'t Adjacency, FlowHash),
}

/// The IP header that the slow path has arrived at, with the fields that will be written to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    /// Offset of the header in the frame.
    pub(crate) at: usize,
    /// Offset behind the packet, by its own length field.
    pub(crate) end: usize,
    pub(crate) is_v6: bool,
    pub(crate) vrf: VrfIndex,
    pub(crate) source: u128,
    pub(crate) destination: u128,
    pub(crate) hop_limit: u8,
    /// Whether the hop limit has been decremented already. Forwarding does not do it again.
    pub(crate) hop_spent: bool,
    pub(crate) traffic_class: u8,
    /// Next header or protocol of the fixed header, as received.
    pub(crate) protocol: u8,
    pub(crate) srh: SrhEdit,
}

/// The change to the SRH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SrhEdit {
    None,
    SegmentsLeft { at: usize, value: u8 },
    Remove { at: usize, len: usize, named_at: usize, next_header: u8 },
}

impl Layer {
    /// Length of the IP packet when it leaves, in bytes.
    pub(crate) fn len(&self) -> usize {
        let removed = if let SrhEdit::Remove { len, .. } = self.srh { len } else { 0 };
        (self.end - self.at).saturating_sub(removed)
    }

    /// Reads the IP header at `at`. `limit` is the offset behind the last byte of the frame.
    fn parse(frame: &[u8], at: usize, limit: usize, is_v6: bool, vrf: VrfIndex) -> Result<Self, Out> {
        const MALFORMED: Out = Out::Drop(DropReason::Malformed);
        let bytes = frame.get(at..).ok_or(MALFORMED)?;
        let layer = if is_v6 {
            let header = ipv6::Header::parse(bytes).ok_or(MALFORMED)?;
            Self {
                at,
                end: at + ipv6::LEN + header.payload_len(),
                is_v6,
                vrf,
                source: header.source(),
                destination: header.destination(),
                hop_limit: header.hop_limit(),
                hop_spent: false,
                traffic_class: header.traffic_class(),
                protocol: header.next_header(),
                srh: SrhEdit::None,
            }
        } else {
            let header = ipv4::Header::parse(bytes).ok_or(MALFORMED)?;
            // RFC 1812 section 5.2.2: length and checksum are checked before any other field is used.
            let whole = bytes.get(..header.header_len()).ok_or(MALFORMED)?;
            if header.total_len() < header.header_len() || checksum::of(whole) != 0 {
                return Err(MALFORMED);
            }
            Self {
                at,
                end: at + header.total_len(),
                is_v6,
                vrf,
                source: u128::from(header.source()) << 96,
                destination: u128::from(header.destination()) << 96,
                hop_limit: header.ttl(),
                hop_spent: false,
                traffic_class: header.tos(),
                protocol: header.protocol(),
                srh: SrhEdit::None,
            }
        };
        if layer.end <= limit { Ok(layer) } else { Err(MALFORMED) }
    }

    /// Returns true for a multicast or broadcast destination. A subnet's broadcast address is in the table as an
    /// address of the node.
    fn is_to_many(&self, tables: &Tables) -> bool {
        match ip(self.is_v6, self.destination) {
            IpAddr::V6(address) => address.is_multicast(),
            IpAddr::V4(address) if address.is_multicast() || address.is_broadcast() => true,
            IpAddr::V4(_) => tables.look_up(self.vrf, false, self.destination) == Some(Target::Local),
        }
    }

    fn source_ip(&self) -> IpAddr {
        ip(self.is_v6, self.source)
    }
}

pub(crate) fn ip(is_v6: bool, bits: u128) -> IpAddr {
    if is_v6 { Ipv6Addr::from_bits(bits).into() } else { Ipv4Addr::from_bits((bits >> 96) as u32).into() }
}

/// The state of the slow path for one packet.
pub(crate) struct Progress {
    pub(crate) layer: Layer,
    nesting: u8,
    hits: [u32; MAX_SIDS],
    hit_count: usize,
    ecn_unused: bool,
    /// Choices that policies have made: of a path, and of a next hop.
    chosen: [Option<Chosen>; 2],
}

/// The state that a worker's slow path keeps from packet to packet.
#[derive(Debug, Default)]
pub struct SlowState {
    /// Limits of ICMP errors.
    pub limiter: Limiter,
    /// Flows of groups that choose by state.
    pub balancer: Balancer,
}

/// One packet on its way through the tables.
pub(crate) struct SlowPath<'t, 'f, 'p> {
    pub(crate) tables: &'t Tables,
    balancer: &'p mut Balancer,
    now: u64,
    pub(crate) frame: &'f [u8],
    pub(crate) port: &'t PortEntry,
    pub(crate) source_mac: Mac,
    pub(crate) progress: &'p mut Progress,
    /// The trail that steps are added to, if somebody asked for it.
    pub(crate) trail: Option<&'p Trail>,
}

/// Returns the sum, as of [`checksum::sum`], of the given number of bytes of a packet that lie in further buffers.
///
/// It is called only if a checksum over the whole packet matters: for an echo request to a SID in several buffers.
pub type FurtherSum<'a> = &'a dyn Fn(usize) -> u64;

/// Decides about a frame and writes it.
///
/// `device` is the untagged port the frame came in through. `now` is in nanoseconds of a clock that never goes back.
/// Further buffers are not read, so an echo request in several buffers has a wrong checksum. [`slow_path`] reads
/// them.
pub fn forward_one(
    tables: &Tables,
    tally: &Tally,
    state: &mut SlowState,
    now: u64,
    device: u16,
    packet: &mut Packet<'_>,
) -> Verdict {
    let found = LookUpResult::of(tables, device, packet);
    match fast::write_one(tables, tally, packet, found) {
        Some(device) => Verdict::Tx(device),
        None => slow_path(tables, tally, state, now, device, packet, &|_| 0),
    }
}

/// Forwards any packet, as [`forward_one`] does after the fast path ([`write_one`](crate::write_one)) has refused it.
pub fn slow_path(
    tables: &Tables,
    tally: &Tally,
    state: &mut SlowState,
    now: u64,
    device: u16,
    packet: &mut Packet<'_>,
    further: FurtherSum<'_>,
) -> Verdict {
    slow_path_to(tables, tally, (state, now), device, (packet, further), None, Out::Hold)
}

/// Handles a packet that has waited for its neighbour in vain. It waits no more, and its sender is told if the policy
/// says so (RFC 4861 section 7.2.2).
pub fn give_up(
    tables: &Tables,
    tally: &Tally,
    state: &mut SlowState,
    now: u64,
    device: u16,
    packet: &mut Packet<'_>,
    further: FurtherSum<'_>,
) -> Verdict {
    slow_path_to(tables, tally, (state, now), device, (packet, further), None, |_, _| {
        if tables.policy.icmp_unreachable {
            tell(DropReason::NoNeigh, Notice::NoNeighbor)
        } else {
            Out::Drop(DropReason::NoNeigh)
        }
    })
}

/// Runs the slow path. `unresolved` decides about a packet whose neighbour is not resolved.
pub(crate) fn slow_path_to(
    tables: &Tables,
    tally: &Tally,
    (SlowState { limiter, balancer }, now): (&mut SlowState, u64),
    device: u16,
    (packet, further): (&mut Packet<'_>, FurtherSum<'_>),
    trail: Option<&Trail>,
    unresolved: impl FnOnce(PortId, IpAddr) -> Out,
) -> Verdict {
    let frame = packet.bytes();
    let (header, port) = match enter(tables, device, frame) {
        Ok(entered) => entered,
        Err(reason) => return Verdict::Drop(reason),
    };
    if let Some(trail) = trail {
        trail.note(Event::Arrived(port.id));
    }
    if !matches!(header.ether_type, eth::IPV6 | eth::IPV4) {
        return not_ip(tables, port, packet);
    }
    let layer = match outermost(tables, &header, port, packet) {
        Ok(layer) => layer,
        Err(reason) => return Verdict::Drop(reason),
    };
    let received = layer.len();
    let mut progress = Progress::at(layer);
    let source_mac = Mac(header.source);
    let mut slow = SlowPath { tables, balancer, now, frame, port, source_mac, progress: &mut progress, trail };
    let ending = match slow.decide() {
        Ok(egress) => Ok(Ending::Send(egress)),
        Err(Out::Hold(port, neighbor)) => slow.ending(unresolved(port, neighbor), limiter, further),
        Err(out) => slow.ending(out, limiter, further),
    };
    let ending = match ending {
        Ok(ending) => ending,
        Err(verdict) => return verdict,
    };
    finish::write(tables, tally, packet, (&progress, received), ending, port.fill_checksum)
        .unwrap_or_else(Verdict::Drop)
}

/// Returns the outermost IP header of a frame.
#[inline]
fn outermost(
    tables: &Tables,
    header: &eth::Header,
    port: &PortEntry,
    packet: &Packet<'_>,
) -> Result<Layer, DropReason> {
    let is_v6 = header.ether_type == eth::IPV6;
    let layer = Layer::parse(packet.bytes(), header.len, packet.total_len(), is_v6, port.vrf)
        .map_err(|_| DropReason::Malformed)?;
    if Mac(header.destination).is_group() && port.role != Role::Kernel && !layer.is_to_many(tables) {
        return Err(DropReason::L2Multicast);
    }
    let hop_spent = port.role == Role::Kernel && !tables.tunnel.decrement_local;
    Ok(Layer { hop_spent, ..layer })
}

/// Reads Ethernet header and VLAN tag. Returns the logical port that the frame belongs to.
#[inline]
fn enter<'t>(tables: &'t Tables, device: u16, frame: &[u8]) -> Result<(eth::Header, &'t PortEntry), DropReason> {
    let header = eth::parse(frame).ok_or(DropReason::Malformed)?;
    let device = tables.port(PortId(device)).ok_or(DropReason::Vlan)?;
    let port = match header.vlan {
        None if device.vlan.is_none() => device,
        None => return Err(DropReason::Vlan),
        Some(vid) => {
            let tagged = device.tagged.iter().find(|(tag, _)| *tag == vid).ok_or(DropReason::Vlan)?;
            tables.port(tagged.1).ok_or(DropReason::Vlan)?
        }
    };
    let destination = Mac(header.destination);
    if destination == port.mac || destination.is_group() || port.role == Role::Kernel {
        Ok((header, port))
    } else {
        Err(DropReason::NotOurMac)
    }
}

/// Handles a frame that is not IP, such as ARP or LLDP. It goes to the kernel, and is dropped if the kernel itself has
/// sent it.
fn not_ip(tables: &Tables, port: &PortEntry, packet: &mut Packet<'_>) -> Verdict {
    if port.role == Role::Kernel {
        return Verdict::Drop(DropReason::EtherType);
    }
    edit::to_kernel_as_it_is(tables, packet).map_or_else(Verdict::Drop, Verdict::Kernel)
}

impl Progress {
    /// Returns the progress of a packet that has just arrived.
    #[inline]
    fn at(layer: Layer) -> Self {
        Self { layer, nesting: 0, hits: [0; MAX_SIDS], hit_count: 0, ecn_unused: false, chosen: [None; 2] }
    }

    #[inline]
    fn count(&self, tally: &Tally, bytes: usize) {
        for &slot in self.hits.iter().take(self.hit_count) {
            tally.sid(slot, 1, bytes);
        }
        if self.ecn_unused {
            tally.ecn_unused.add(1, bytes);
        }
        self.chosen.iter().flatten().for_each(|&chosen| tally.chosen(chosen));
    }
}

impl<'t> SlowPath<'t, '_, '_> {
    fn decide(&mut self) -> Result<Egress<'t>, Out> {
        self.admit()?;
        loop {
            match self.target()? {
                Target::Sid(index) => {
                    if let Some(egress) = self.endpoint(index)? {
                        return Ok(egress);
                    }
                }
                Target::Steer(index) => return self.encapsulate(index),
                Target::Route(group) | Target::Neighbor(group) => return self.route(group),
                Target::OnLink(port) => {
                    self.spend_hop()?;
                    return Err(self.unresolved(port));
                }
                Target::Unknown(UnknownSid::Drop) => return Err(Out::Drop(DropReason::UnknownSid)),
                Target::Unknown(UnknownSid::Icmp) => return Err(tell(DropReason::UnknownSid, Notice::NoRoute)),
                Target::Local => return Err(self.for_this_node()),
                Target::Kernel | Target::Unknown(UnknownSid::Punt) if self.is_as_sent_from_outside() => {
                    return Err(Out::Drop(DropReason::NoRoute));
                }
                Target::Kernel | Target::Unknown(UnknownSid::Punt) => return Err(Out::Kernel),
                Target::Blackhole => return Err(Out::Drop(DropReason::Blackhole)),
                Target::Unreachable => return Err(tell(DropReason::Unreachable, Notice::NoRoute)),
            }
        }
    }

    /// Returns true if the packet is still as a sender outside the domain has sent it, or is an inner packet.
    ///
    /// The XDP program has already left to the kernel the packets that the kernel may forward. The destination of any
    /// other packet might be a SID of the kernel, and so might that of an inner packet.
    fn is_as_sent_from_outside(&self) -> bool {
        self.port.role.is_outside() && (self.progress.hit_count == 0 || self.progress.nesting > 0)
    }

    /// Adds a step to the trail, if somebody asked for it. Workers never do.
    #[inline]
    fn note(&self, event: impl FnOnce() -> Event) {
        if let Some(trail) = self.trail {
            trail.note(event());
        }
    }

    fn target(&self) -> Result<Target, Out> {
        let Layer { vrf, is_v6, destination, .. } = self.progress.layer;
        let target = self.tables.look_up(vrf, is_v6, destination);
        self.note(|| Event::LookedUp { vrf, destination: ip(is_v6, destination), target });
        match target {
            Some(target) => Ok(target),
            None if self.tables.policy.icmp_unreachable => Err(tell(DropReason::NoRoute, Notice::NoRoute)),
            None => Err(Out::Drop(DropReason::NoRoute)),
        }
    }
}

fn tell(reason: DropReason, notice: Notice) -> Out {
    Out::Tell(reason, notice)
}

fn hop_limit() -> Out {
    tell(DropReason::HopLimit, Notice::TimeExceeded)
}
