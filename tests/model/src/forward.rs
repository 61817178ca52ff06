//! From a received frame to a verdict.

use std::net::IpAddr;

use etherparse::{EtherType, Ethernet2Header, IpNumber, SingleVlanHeader};
use ipnet::IpNet;
use srv6d_srv6::model::{Desired, Hop, Mac, Port, PortId, Role, RouteAction, TableId, UnknownSid};
use srv6d_srv6::{DropReason, Verdict};

use crate::choices::Choices;
use crate::icmp::{self, Message};
use crate::lookup::{Match, Ways, in_block, look_up, ways};
use crate::packet::{Ip, Malformed};
use crate::{Counted, Counts, Outcome};

/// SIDs of this node that one packet may visit.
const MAX_ROUNDS: usize = 16;
/// Shortest Ethernet frame, without its checksum.
const MIN_FRAME: usize = 60;

/// How a packet ends.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Sent through a port, to that station.
    Send(PortId, Mac, Ip),
    /// To the kernel.
    Kernel(Ip),
    /// An echo reply to the sender.
    Echo(Ip),
    /// Gone.
    Drop(DropReason),
    /// Gone, and the sender is told why.
    Tell(DropReason, Message),
    /// Kept until the neighbour is resolved.
    Hold(PortId, IpAddr),
}

impl From<Malformed> for End {
    fn from(_: Malformed) -> Self {
        Self::Drop(DropReason::Malformed)
    }
}

/// A next hop that is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextHop {
    pub(crate) port: PortId,
    pub(crate) neighbor: IpAddr,
    mac: Mac,
}

/// A packet on its way through the node.
pub(crate) struct Travel<'d> {
    pub(crate) desired: &'d Desired,
    pub(crate) choices: &'d mut Choices,
    /// Port it came in through.
    pub(crate) port: &'d Port,
    pub(crate) port_id: PortId,
    ethernet: Ethernet2Header,
    /// As it is now.
    pub(crate) packet: Ip,
    /// As it was received, or as it came out of its outer packet: what an error quotes.
    pub(crate) received: Ip,
    /// VRF it is looked up in.
    pub(crate) table: TableId,
    /// Its hop limit has been decremented here.
    pub(crate) hop_taken: bool,
    pub(crate) rounds: usize,
    /// Outer packets taken off.
    pub(crate) layers_off: usize,
    /// IP length of what was received.
    pub(crate) received_len: usize,
    pub(crate) counts: Counts,
}

/// What becomes of a frame.
pub(crate) fn receive(desired: &Desired, choices: &mut Choices, device: u16, frame: &[u8]) -> Outcome {
    match enter(desired, choices, device, frame) {
        Err(verdict) => Outcome { verdict, frame: frame.to_vec(), counts: Counts::new() },
        Ok(Entered::NotIp(ethertype, payload)) => {
            let bytes = |host: PortId, to: Mac| ethernet_frame(desired, host, to, ethertype, &payload);
            to_kernel(desired, frame, bytes)
        }
        Ok(Entered::Ip(mut travel)) => {
            let end = match travel.walk() {
                Ok(end) | Err(end) => end,
            };
            travel.finish(end, frame)
        }
    }
}

enum Entered<'d> {
    NotIp(EtherType, Vec<u8>),
    Ip(Box<Travel<'d>>),
}

/// Ethernet, VLAN tag, and the port that is meant.
fn enter<'d>(
    desired: &'d Desired,
    choices: &'d mut Choices,
    device: u16,
    frame: &[u8],
) -> Result<Entered<'d>, Verdict> {
    let drop = Verdict::Drop;
    let (ethernet, rest) = Ethernet2Header::from_slice(frame).map_err(|_| drop(DropReason::Malformed))?;
    let (vid, ethertype, payload) = if ethernet.ether_type == EtherType::VLAN_TAGGED_FRAME {
        let (tag, rest) = SingleVlanHeader::from_slice(rest).map_err(|_| drop(DropReason::Malformed))?;
        (Some(tag.vlan_id.value()), tag.ether_type, rest)
    } else {
        (None, ethernet.ether_type, rest)
    };
    let mut ports = (0u16..).zip(&desired.ports);
    let found = ports.find(|(_, port)| port.device == device && port.vlan == vid);
    let (index, port) = found.ok_or(drop(DropReason::Vlan))?;
    let destination = Mac(ethernet.destination);
    if !destination.is_group() && destination != port.mac {
        return Err(drop(DropReason::NotOurMac));
    }
    let is_v6 = match ethertype {
        EtherType::IPV6 => true,
        EtherType::IPV4 => false,
        _ if port.role == Role::Kernel => return Err(drop(DropReason::EtherType)),
        _ => return Ok(Entered::NotIp(ethertype, payload.to_vec())),
    };
    let packet = Ip::parse(is_v6, payload).map_err(|Malformed| drop(DropReason::Malformed))?;
    let received_len = packet.bytes().len();
    Ok(Entered::Ip(Box::new(Travel {
        desired,
        choices,
        port,
        port_id: PortId(index),
        ethernet,
        received: packet.clone(),
        packet,
        table: port.table,
        hop_taken: false,
        rounds: 0,
        layers_off: 0,
        received_len,
        counts: Counts::new(),
    })))
}

impl Travel<'_> {
    fn walk(&mut self) -> Result<End, End> {
        if self.packet.bytes().len() > self.port.mtu as usize {
            return Err(End::Drop(DropReason::Oversize));
        }
        if self.is_link_business() {
            return Ok(End::Kernel(self.packet.clone()));
        }
        self.admit()?;
        self.look_up_and_go()
    }

    /// Multicast, link-local and neighbour discovery (RFC 4861: hop limit 255) keep the link alive: not to be forwarded.
    fn is_link_business(&self) -> bool {
        match (self.packet.destination(), &self.packet) {
            (IpAddr::V6(to), Ip::V6(packet)) => {
                let is_icmp = packet.header.next_header == IpNumber::IPV6_ICMP;
                let kind = packet.payload.first().copied().unwrap_or_default();
                let discovery = is_icmp && packet.header.hop_limit == 255 && (133..=137).contains(&kind);
                to.is_multicast() || to.is_unicast_link_local() || discovery
            }
            (IpAddr::V4(to), _) => to.is_multicast() || to.is_broadcast() || to.is_link_local(),
            (IpAddr::V6(_), Ip::V4(_)) => false,
        }
    }

    /// Who may send what to whom.
    fn admit(&self) -> Result<(), End> {
        if Mac(self.ethernet.destination).is_group() {
            return Err(End::Drop(DropReason::L2Multicast));
        }
        let source = self.packet.source();
        if icmp::is_nobody(source) {
            return Err(End::Drop(DropReason::BadSource));
        }
        let may_send = |prefix: &IpNet| prefix.contains(&source);
        if !self.port.allowed_sources.is_empty() && !self.port.allowed_sources.iter().any(may_send) {
            return Err(End::Drop(DropReason::AclSource));
        }
        let reason = match self.port.role {
            Role::Edge => DropReason::AclEdge,
            Role::Host => DropReason::AclPath,
            Role::Fabric | Role::Kernel => return Ok(()),
        };
        let IpAddr::V6(destination) = self.packet.destination() else { return Ok(()) };
        let allowed = self.port.allowed_carriers.iter().any(|prefix| prefix.contains(&destination));
        if in_block(self.desired, destination) && !allowed { Err(End::Drop(reason)) } else { Ok(()) }
    }

    /// One lookup after the other, until the packet leaves.
    pub(crate) fn look_up_and_go(&mut self) -> Result<End, End> {
        loop {
            let destination = self.packet.destination();
            match look_up(self.desired, self.table, destination) {
                None => return Err(no_route(DropReason::NoRoute, self.desired.policy.icmp_unreachable)),
                Some(Match::Local | Match::Unknown(UnknownSid::Punt)) => return Ok(End::Kernel(self.packet.clone())),
                Some(Match::Unknown(unknown)) => {
                    return Err(no_route(DropReason::UnknownSid, unknown == UnknownSid::Icmp));
                }
                Some(Match::Route(action)) => return self.route(action, destination),
                Some(Match::Steer(steer)) => return self.encapsulate(steer),
                Some(Match::Sid(sid)) => {
                    self.rounds += 1;
                    if self.rounds > MAX_ROUNDS {
                        return Err(End::Drop(DropReason::Rounds));
                    }
                    if let Some(end) = self.at_sid(sid)? {
                        return Ok(end);
                    }
                }
            }
        }
    }

    fn route(&mut self, action: &RouteAction, destination: IpAddr) -> Result<End, End> {
        match action {
            RouteAction::Blackhole => Err(End::Drop(DropReason::Blackhole)),
            RouteAction::Unreachable => Err(no_route(DropReason::Unreachable, true)),
            RouteAction::Kernel => Ok(End::Kernel(self.packet.clone())),
            RouteAction::Via(hops) => {
                self.take_hop()?;
                self.send(hops, destination)
            }
        }
    }

    /// Forwarding costs one hop, unless a SID has taken it, or the node itself is the sender.
    pub(crate) fn take_hop(&mut self) -> Result<(), End> {
        let own = self.port.role == Role::Kernel && !self.desired.tunnel.decrement_local && self.layers_off == 0;
        if self.hop_taken || own {
            return Ok(());
        }
        self.sid_takes_hop()
    }

    /// A SID with something to do costs one hop in each round.
    pub(crate) fn sid_takes_hop(&mut self) -> Result<(), End> {
        let hop_limit = self.packet.hop_limit();
        if *hop_limit <= 1 {
            return Err(End::Tell(DropReason::HopLimit, Message::TimeExceeded));
        }
        *hop_limit -= 1;
        self.hop_taken = true;
        Ok(())
    }

    pub(crate) fn count(&mut self, counted: Counted, bytes: usize) {
        let (packets, total) = self.counts.entry(counted).or_default();
        *packets += 1;
        *total += bytes as u64;
    }

    /// One of the next hops that are ready.
    pub(crate) fn next_hop(&mut self, hops: &[Hop], destination: IpAddr) -> Result<NextHop, End> {
        let (ready, is_ready) = match ways(self.desired, hops, destination) {
            Ways::Ready(ready) => (ready, true),
            Ways::Wait(wait) => (wait, false),
            Ways::Down => return Err(End::Drop(DropReason::AdjDown)),
        };
        let (port, neighbor) = self.choices.pick(&ready).ok_or(End::Drop(DropReason::AdjDown))?;
        match self.desired.neighbors.get(&(port, neighbor)) {
            Some(&mac) if is_ready => Ok(NextHop { port, neighbor, mac }),
            _ => Err(End::Hold(port, neighbor)),
        }
    }

    pub(crate) fn send(&mut self, hops: &[Hop], destination: IpAddr) -> Result<End, End> {
        let next_hop = self.next_hop(hops, destination)?;
        self.fill_checksum();
        self.fits(next_hop.port, 0)?;
        Ok(self.leave(next_hop, self.packet.clone()))
    }

    /// Out, and counted.
    pub(crate) fn leave(&mut self, NextHop { port, neighbor, mac }: NextHop, packet: Ip) -> End {
        let name = self.desired.ports.get(usize::from(port.0)).map_or_else(String::new, |port| port.name.clone());
        self.count(Counted::NextHop(name, neighbor), packet.bytes().len());
        End::Send(port, mac, packet)
    }

    /// The packet and `overhead` more bytes pass the port; else its sender learns what would.
    pub(crate) fn fits(&self, port: PortId, overhead: usize) -> Result<(), End> {
        let mtu = self.desired.ports.get(usize::from(port.0)).map_or(0, |port| port.mtu as usize);
        if self.packet.bytes().len() + overhead <= mtu {
            return Ok(());
        }
        let room = mtu.saturating_sub(overhead);
        Err(match &self.packet {
            Ip::V6(_) => End::Tell(DropReason::PacketTooBig, Message::TooBig(room.max(1280))),
            Ip::V4(packet) if packet.header.dont_fragment => End::Tell(DropReason::PacketTooBig, Message::TooBig(room)),
            Ip::V4(_) => End::Drop(DropReason::PacketTooBig),
        })
    }

    /// The sender left TCP and UDP checksums unfinished.
    pub(crate) fn fill_checksum(&mut self) {
        if self.port.fill_checksum && self.layers_off == 0 {
            icmp::fill_transport_checksum(&mut self.packet);
        }
    }

    fn finish(self, end: End, frame: &[u8]) -> Outcome {
        let desired = self.desired;
        let untouched = |verdict| Outcome { verdict, frame: frame.to_vec(), counts: Counts::new() };
        let device = |port: PortId| desired.ports.get(usize::from(port.0)).map_or(0, |port| port.device);
        match end {
            End::Drop(reason) => untouched(Verdict::Drop(reason)),
            End::Hold(port, neighbor) => untouched(Verdict::Hold(port, neighbor)),
            End::Send(port, mac, packet) => {
                let frame = ip_frame(desired, port, mac, &packet);
                Outcome { verdict: Verdict::Tx(device(port)), frame, counts: self.counts }
            }
            End::Kernel(packet) => {
                let bytes = |host: PortId, mac: Mac| ip_frame(desired, host, mac, &packet);
                let outcome = to_kernel(desired, frame, bytes);
                if matches!(outcome.verdict, Verdict::Kernel(_)) {
                    return Outcome { counts: self.counts, ..outcome };
                }
                outcome
            }
            End::Echo(reply) => {
                let (port, mac) = self.way_back();
                let frame = ip_frame(desired, port, mac, &reply);
                Outcome { verdict: Verdict::Echo(device(port)), frame, counts: self.counts }
            }
            End::Tell(reason, message) => match icmp::error(&self, message) {
                None => untouched(Verdict::Drop(reason)),
                Some(error) => {
                    let (port, mac) = self.way_back();
                    let frame = ip_frame(desired, port, mac, &error);
                    Outcome { verdict: Verdict::Error(reason, device(port)), frame, counts: Counts::new() }
                }
            },
        }
    }

    /// Towards the sender by its route, or back to the station the frame came from.
    fn way_back(&self) -> (PortId, Mac) {
        let back = (self.port_id, Mac(self.ethernet.source));
        let sender = self.received.source();
        let Some(Match::Route(RouteAction::Via(hops))) = look_up(self.desired, self.table, sender) else {
            return back;
        };
        let Ways::Ready(ready) = ways(self.desired, hops, sender) else { return back };
        let found = ready.first().and_then(|hop| Some((hop.0, *self.desired.neighbors.get(hop)?)));
        found.unwrap_or(back)
    }
}

fn no_route(reason: DropReason, tell: bool) -> End {
    if tell { End::Tell(reason, Message::Unreachable) } else { End::Drop(reason) }
}

/// Through srv6d's own veth, if there is one.
fn to_kernel(desired: &Desired, frame: &[u8], bytes: impl Fn(PortId, Mac) -> Vec<u8>) -> Outcome {
    let (verdict, frame) = match desired.host {
        None => (Verdict::Drop(DropReason::NoHostPort), frame.to_vec()),
        Some(host) => {
            let device = desired.ports.get(usize::from(host.port.0)).map_or(host.port.0, |port| port.device);
            (Verdict::Kernel(device), bytes(host.port, host.kernel_mac))
        }
    };
    Outcome { verdict, frame, counts: Counts::new() }
}

fn ip_frame(desired: &Desired, port: PortId, to: Mac, packet: &Ip) -> Vec<u8> {
    let ethertype = if matches!(packet, Ip::V6(_)) { EtherType::IPV6 } else { EtherType::IPV4 };
    ethernet_frame(desired, port, to, ethertype, &packet.bytes())
}

fn ethernet_frame(desired: &Desired, port: PortId, to: Mac, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let (mac, vlan) =
        desired.ports.get(usize::from(port.0)).map_or_else(Default::default, |port| (port.mac, port.vlan));
    let mut frame = [to.0, mac.0].concat();
    if let Some(vid) = vlan {
        frame.extend(EtherType::VLAN_TAGGED_FRAME.0.to_be_bytes());
        frame.extend(vid.to_be_bytes());
    }
    frame.extend(ethertype.0.to_be_bytes());
    frame.extend(payload);
    frame.resize(frame.len().max(MIN_FRAME), 0);
    frame
}
