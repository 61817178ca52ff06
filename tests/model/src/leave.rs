//! Ways for a packet to leave the node: through next hops, to the kernel, and back to the sender.

use std::net::IpAddr;

use etherparse::EtherType;
use srv6d_srv6::desired::{Desired, Hop, Mac, PortId, Role, RouteAction};
use srv6d_srv6::{DropReason, Verdict};

use crate::forward::{End, Travel};
use crate::icmp::{self, Message};
use crate::lookup::{Match, UsableHops, look_up, usable_hops};
use crate::packet::Ip;
use crate::{Counted, Counts, Outcome};

/// Length of the shortest Ethernet frame in bytes, without its checksum.
const MIN_FRAME: usize = 60;

/// A next hop whose MAC address is known and whose port is up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextHop {
    pub(crate) port: PortId,
    pub(crate) neighbor: IpAddr,
    pub(crate) mac: Mac,
}

/// How a reply to the sender leaves.
enum ReplyEgress {
    /// Through a next hop; the last field is the size of the largest packet that fits.
    Through(NextHop, Ip, usize),
    Kernel(Ip),
}

impl Travel<'_> {
    /// Chooses one of the next hops that are ready.
    pub(crate) fn next_hop(&mut self, hops: &[Hop], destination: IpAddr) -> Result<NextHop, End> {
        let (ready, is_ready) = match usable_hops(self.desired, hops, destination) {
            UsableHops::Ready(ready) => (ready, true),
            UsableHops::Wait(wait) => (wait, false),
            UsableHops::Down => return Err(End::Drop(DropReason::AdjDown)),
        };
        let (port, neighbor) = self.choices.pick(&ready).ok_or(End::Drop(DropReason::AdjDown))?;
        match self.desired.neighbors.get(&(port, neighbor)) {
            Some(&mac) if is_ready => Ok(NextHop { port, neighbor, mac }),
            _ => Err(End::Hold(port, neighbor)),
        }
    }

    pub(crate) fn send(&mut self, hops: &[Hop], destination: IpAddr) -> Result<End, End> {
        let next_hop = self.next_hop(hops, destination)?;
        self.fits(self.mtu(next_hop.port), 0)?;
        self.fill_checksum();
        Ok(self.leave(next_hop, self.packet.clone()))
    }

    /// Counts the packet at its next hop and sends it.
    pub(crate) fn leave(&mut self, NextHop { port, neighbor, mac }: NextHop, packet: Ip) -> End {
        let name = self.desired.ports.get(usize::from(port.0)).map_or_else(String::new, |port| port.name.clone());
        self.count(Counted::NextHop(name, neighbor), packet.bytes().len());
        End::Send(port, mac, packet)
    }

    /// Checks that the packet with `overhead` more bytes is no larger than `mtu`; otherwise the sender learns which
    /// size would fit.
    pub(crate) fn fits(&self, mtu: usize, overhead: usize) -> Result<(), End> {
        if self.packet.bytes().len() + overhead <= mtu {
            return Ok(());
        }
        let room = mtu.saturating_sub(overhead);
        let message = match &self.packet {
            Ip::V6(_) => Message::TooBig(room.max(1280)),
            Ip::V4(packet) if packet.header.dont_fragment => Message::TooBig(room),
            Ip::V4(_) => return Err(End::Drop(DropReason::PacketTooBig)),
        };
        Err(End::Tell(DropReason::PacketTooBig, message))
    }

    pub(crate) fn mtu(&self, port: PortId) -> usize {
        self.desired.ports.get(usize::from(port.0)).map_or(0, |port| port.mtu as usize)
    }

    /// Fills in TCP and UDP checksums if the senders on this port leave them unfinished.
    pub(crate) fn fill_checksum(&mut self) {
        if self.port.fill_checksum {
            icmp::fill_transport_checksum(&mut self.packet);
        }
    }

    pub(crate) fn finish(mut self, end: End, frame: &[u8]) -> Outcome {
        let desired = self.desired;
        match end {
            End::Drop(reason) => untouched(Verdict::Drop(reason), frame),
            End::Hold(port, neighbor) => untouched(Verdict::Hold(port, neighbor), frame),
            End::Send(port, mac, packet) => {
                let (verdict, frame) = (Verdict::Tx(device(desired, port)), ip_frame(desired, port, mac, &packet));
                Outcome { verdict, frame, counts: self.counts }
            }
            End::Kernel(packet) => match kernel_frame(desired, &packet) {
                Some((device, frame)) => Outcome { verdict: Verdict::Kernel(device), frame, counts: self.counts },
                None => untouched(Verdict::Drop(DropReason::NoHostPort), frame),
            },
            End::Echo(reply) => match self.answer(reply) {
                Ok((device, frame)) => Outcome { verdict: Verdict::Echo(device), frame, counts: self.counts },
                Err(reason) => untouched(Verdict::Drop(reason), frame),
            },
            End::Tell(reason, message) => match icmp::error(&self, message).and_then(|error| self.answer(error).ok()) {
                Some((device, frame)) => {
                    Outcome { verdict: Verdict::Error(reason, device), frame, counts: Counts::new() }
                }
                None => untouched(Verdict::Drop(reason), frame),
            },
        }
    }

    /// Returns device and frame of an answer to the sender of this packet.
    fn answer(&mut self, answer: Ip) -> Result<(u16, Vec<u8>), DropReason> {
        match self.way_back(answer) {
            ReplyEgress::Kernel(answer) => kernel_frame(self.desired, &answer).ok_or(DropReason::NoHostPort),
            ReplyEgress::Through(next_hop, ..) if next_hop.mac.is_group() => Err(DropReason::L2Multicast),
            ReplyEgress::Through(next_hop, answer, mtu) if answer.bytes().len() <= mtu => {
                let frame = ip_frame(self.desired, next_hop.port, next_hop.mac, &answer);
                Ok((device(self.desired, next_hop.port), frame))
            }
            ReplyEgress::Through(..) => Err(DropReason::PacketTooBig),
        }
    }

    /// Finds the way back to the sender: the same way as for any other packet to it or, without such a way, back to the
    /// station that sent the frame.
    fn way_back(&mut self, answer: Ip) -> ReplyEgress {
        let sender = answer.destination();
        match look_up(self.desired, self.table, sender) {
            Some(Match::Local | Match::Route(RouteAction::Kernel)) => return ReplyEgress::Kernel(answer),
            Some(Match::Route(RouteAction::Via(hops))) => {
                if let Ok(next_hop) = self.next_hop(hops, sender) {
                    return ReplyEgress::Through(next_hop, answer, self.mtu(next_hop.port));
                }
            }
            Some(Match::Steer(steer)) => {
                if let Some((next_hop, outer, mtu)) = self.encapsulated_answer(steer, &answer) {
                    return ReplyEgress::Through(next_hop, outer, mtu);
                }
            }
            _ => {}
        }
        if self.port.role == Role::Kernel {
            return ReplyEgress::Kernel(answer);
        }
        let back = NextHop { port: self.port_id, neighbor: sender, mac: self.from };
        ReplyEgress::Through(back, answer, self.mtu(self.port_id))
    }
}

/// Returns the outcome for a frame that was not changed.
pub(crate) fn untouched(verdict: Verdict, frame: &[u8]) -> Outcome {
    Outcome { verdict, frame: frame.to_vec(), counts: Counts::new() }
}

/// Sends a frame that is not IP to the kernel through srv6d's own veth. Except for the Ethernet addresses it is as
/// received.
pub(crate) fn as_it_is(desired: &Desired, frame: &[u8]) -> Outcome {
    let Some(host) = desired.host else { return untouched(Verdict::Drop(DropReason::NoHostPort), frame) };
    let behind = frame.get(12..).unwrap_or_default();
    let frame = padded([&host.kernel_mac.0, &own_mac(desired, host.port).0, behind].concat());
    Outcome { verdict: Verdict::Kernel(device(desired, host.port)), frame, counts: Counts::new() }
}

fn device(desired: &Desired, port: PortId) -> u16 {
    desired.ports.get(usize::from(port.0)).map_or(port.0, |port| port.device)
}

fn own_mac(desired: &Desired, port: PortId) -> Mac {
    desired.ports.get(usize::from(port.0)).map_or_else(Mac::default, |port| port.mac)
}

/// Makes a frame to the kernel through srv6d's own veth, if there is one.
fn kernel_frame(desired: &Desired, packet: &Ip) -> Option<(u16, Vec<u8>)> {
    let host = desired.host?;
    Some((device(desired, host.port), ip_frame(desired, host.port, host.kernel_mac, packet)))
}

fn ip_frame(desired: &Desired, port: PortId, to: Mac, packet: &Ip) -> Vec<u8> {
    let ethertype = if matches!(packet, Ip::V6(_)) { EtherType::IPV6 } else { EtherType::IPV4 };
    let mut frame = [to.0, own_mac(desired, port).0].concat();
    if let Some(vid) = desired.ports.get(usize::from(port.0)).and_then(|port| port.vlan) {
        frame.extend(EtherType::VLAN_TAGGED_FRAME.0.to_be_bytes());
        frame.extend(vid.to_be_bytes());
    }
    frame.extend(ethertype.0.to_be_bytes());
    frame.extend(packet.bytes());
    padded(frame)
}

fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(frame.len().max(MIN_FRAME), 0);
    frame
}
