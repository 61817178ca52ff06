//! Forwards a received frame and comes to a verdict.

use std::net::IpAddr;

use srv6d_srv6::DropReason;
use srv6d_srv6::desired::{Desired, Mac, Port, PortId, Role, RouteAction, TableId, UnknownSid};

use crate::choices::Choices;
use crate::enter::{Entered, admit, enter};
use crate::icmp::Message;
use crate::leave::{as_it_is, untouched};
use crate::lookup::{Match, look_up};
use crate::packet::{Ip, Malformed};
use crate::{Counted, Counts, Outcome};

/// How the processing of a packet ends.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// It is sent through a port to this station.
    Send(PortId, Mac, Ip),
    /// It is given to the kernel.
    Kernel(Ip),
    /// It is answered with this echo reply.
    Echo(Ip),
    /// It is dropped.
    Drop(DropReason),
    /// It is dropped, and the sender gets this ICMP error.
    Tell(DropReason, Message),
    /// It is held until the neighbour is resolved.
    Hold(PortId, IpAddr),
}

impl From<Malformed> for End {
    fn from(_: Malformed) -> Self {
        Self::Drop(DropReason::Malformed)
    }
}

/// A packet on its way through the node, with what is known about it.
pub(crate) struct Travel<'d> {
    pub(crate) desired: &'d Desired,
    pub(crate) choices: &'d mut Choices,
    /// Port on which it was received.
    pub(crate) port: &'d Port,
    pub(crate) port_id: PortId,
    /// Station that sent the frame.
    pub(crate) from: Mac,
    /// The packet in its present form.
    pub(crate) packet: Ip,
    /// The packet as it was received, or as it came out of its outer packet. Errors quote this form.
    pub(crate) received: Ip,
    /// Table in which it is looked up.
    pub(crate) table: TableId,
    /// Whether its hop limit has been decremented here.
    pub(crate) hop_taken: bool,
    /// Number of SIDs of this node that it has visited.
    pub(crate) rounds: usize,
    /// Number of outer packets that have been removed.
    pub(crate) layers_off: usize,
    /// The SRH that was changed or removed here, given by its distance from the end of the packet.
    pub(crate) changed_srh: Option<usize>,
    /// Offset and length of the header that has been removed.
    pub(crate) removed: Option<(usize, usize)>,
    /// IP length of the received packet.
    pub(crate) received_len: usize,
    pub(crate) counts: Counts,
}

/// Forwards a frame and returns the outcome.
pub(crate) fn receive(desired: &Desired, choices: &mut Choices, device: u16, frame: &[u8]) -> Outcome {
    let Entered { port, port_id, ethernet, packet } = match enter(desired, device, frame) {
        Ok(entered) => entered,
        Err(verdict) => return untouched(verdict, frame),
    };
    let Some(packet) = packet else { return as_it_is(desired, frame) };
    let mut travel = Travel {
        desired,
        choices,
        port,
        port_id,
        from: Mac(ethernet.source),
        received: packet.clone(),
        table: port.table,
        hop_taken: false,
        rounds: 0,
        layers_off: 0,
        changed_srh: None,
        removed: None,
        received_len: packet.bytes().len(),
        counts: Counts::new(),
        packet,
    };
    let admitted = admit(desired, port, Mac(ethernet.destination), &travel.packet);
    let end = match admitted.and_then(|()| travel.look_up_and_go()) {
        Ok(end) | Err(end) => end,
    };
    travel.finish(end, frame)
}

impl Travel<'_> {
    /// Looks the packet up, again and again if SIDs require it, until it leaves.
    fn look_up_and_go(&mut self) -> Result<End, End> {
        loop {
            let destination = self.packet.destination();
            match look_up(self.desired, self.table, destination) {
                None => return Err(no_route(DropReason::NoRoute, self.desired.policy.icmp_unreachable)),
                Some(Match::Local) => return Ok(self.at_own_address()),
                Some(Match::Unknown(UnknownSid::Punt)) => return self.leave_to_kernel(),
                Some(Match::Unknown(unknown)) => {
                    return Err(no_route(DropReason::UnknownSid, unknown == UnknownSid::Icmp));
                }
                Some(Match::Route(action)) => return self.route(action, destination),
                Some(Match::Steer(steer)) => return self.encapsulate(steer),
                Some(Match::Sid(sid)) => {
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
            RouteAction::Kernel => self.leave_to_kernel(),
            RouteAction::Via(hops) => {
                self.take_hop()?;
                self.send(hops, destination)
            }
        }
    }

    /// Gives the packet to the kernel, except directly from outside the domain: there, the XDP program decides what
    /// goes to the kernel.
    fn leave_to_kernel(&self) -> Result<End, End> {
        if self.port.role.is_outside() && (self.rounds == 0 || self.layers_off > 0) {
            return Err(End::Drop(DropReason::NoRoute));
        }
        Ok(End::Kernel(self.packet.clone()))
    }

    /// Decrements the hop limit for forwarding, unless a SID has done so or the node itself is the sender.
    pub(crate) fn take_hop(&mut self) -> Result<(), End> {
        let own = self.port.role == Role::Kernel && !self.desired.tunnel.decrement_local && self.layers_off == 0;
        if self.hop_taken || own {
            return Ok(());
        }
        self.sid_takes_hop()
    }

    /// Decrements the hop limit for a SID; each SID that processes the packet does so.
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
}

fn no_route(reason: DropReason, tell: bool) -> End {
    if tell { End::Tell(reason, Message::Unreachable) } else { End::Drop(reason) }
}
