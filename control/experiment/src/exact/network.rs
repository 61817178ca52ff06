//! Real frames between the applications of a simulation.

use super::{APPLICATIONS, Knowledge, frame};
use srv6d_dataplane::memory::MemoryFrame;

use crate::agenda::{Event, Ps};
use crate::exact::node::Handed;
use crate::failure::RunError;
use crate::job::Job;
use crate::settings::ChoiceRule;
use crate::shape::Place;
use crate::simulation::{Packet, Simulation};

impl Simulation<'_> {
    /// Hands the frame of a packet to the srv6d of its host.
    pub(crate) fn send_frame(&mut self, packet: Packet, now: Ps) {
        let between = self.endpoints(packet.queue_pair);
        let len = self.cut.len(packet.sequence);
        let Some(exact) = &mut self.exact else { return };
        let node = exact.host(between.source);
        exact.nodes[node].receive(APPLICATIONS, frame::frame(between, packet, len));
        self.wake(node, now);
    }

    /// Lets a node make a round at this time.
    pub(crate) fn wake(&mut self, node: u32, at: Ps) {
        if self.exact.as_mut().is_some_and(|exact| exact.is_earlier(node, at)) {
            self.agenda.add(at, Event::Round { node });
        }
    }

    /// Makes the round of a node, and hands on what comes out of it.
    pub(crate) fn round(&mut self, node: u32, now: Ps) {
        let Some(exact) = &mut self.exact else { return };
        if exact.nodes[node].due != Some(now) {
            return;
        }
        exact.nodes[node].due = None;
        let Handed { sent, dropped } = exact.nodes[node].round(now);
        for (at, frame) in sent {
            let port = self.exact.as_ref().and_then(|exact| exact.port(node, u32::try_from(at).ok()?));
            match port {
                Some(port) => self.carry(port, frame, now),
                None => self.deliver_frame(&frame, now),
            }
        }
        if !dropped.is_empty() {
            self.note_losses(node, now);
        }
        for packet in dropped.iter().filter_map(frame::packet) {
            self.answer(packet, true, now);
        }
        let Some(exact) = &mut self.exact else { return };
        if exact.nodes[node].has_received() {
            self.wake(node, now);
        } else if let Some(at) = exact.nodes[node].next_event() {
            self.wake(node, at.max(now));
        }
    }

    /// Takes a frame to the node at the other end of a link.
    fn carry(&mut self, port: u32, frame: MemoryFrame, now: Ps) {
        if let Some(packet) = frame::packet(&frame) {
            if let Place::LeafUp { spine, .. } = self.shape.place(port)
                && !packet.is_repeated
                && self.queue_pairs[packet.queue_pair].leaves_in_order(packet.sequence)
            {
                self.note_spine(packet.queue_pair, spine);
            }
            if let Some(emulation) = self.exact.as_ref().map(|exact| exact.links[port].emulation) {
                self.watched(port, emulation, packet, now);
            }
        }
        let Some(exact) = &mut self.exact else { return };
        let (node, socket) = exact.receiver(port);
        exact.nodes[node].receive(socket, frame);
        self.wake(node, now);
    }

    fn deliver_frame(&mut self, frame: &MemoryFrame, now: Ps) {
        if let Some(packet) = frame::packet(frame) {
            self.deliver(packet, now);
        }
    }

    /// Records the time if the faulty link has lost packets.
    fn note_losses(&mut self, node: u32, now: Ps) {
        let Some(exact) = &self.exact else { return };
        let of_node = self.faulty().into_iter().flatten().filter(|port| exact.owner(*port) == node);
        let lost: u64 = of_node.map(|port| exact.lost_by(port)).sum();
        let known = &mut self.tally.lost_at_fault;
        let is_more = if let Some((_, before)) = known.iter_mut().find(|(of, _)| *of == node) {
            std::mem::replace(before, lost) < lost
        } else {
            known.push((node, lost));
            lost > 0
        };
        if is_more {
            self.tally.last_loss = Some(now);
        }
    }

    /// Configures nodes with what the routing and the planner know.
    pub(crate) fn configure(&mut self, which: impl Fn(u32) -> bool, now: Ps) {
        let Some(mut exact) = self.exact.take() else { return };
        let nodes: Vec<u32> = exact.numbers().filter(|node| which(*node)).collect();
        let done: Result<(), RunError> =
            self.with_knowledge(|knowledge| nodes.iter().try_for_each(|node| exact.configure(*node, knowledge)));
        self.exact = Some(exact);
        self.failure = self.failure.take().or(done.err());
        for node in nodes {
            self.wake(node, now);
        }
    }

    /// Calls a function with what the routing and the planner know.
    pub(crate) fn with_knowledge<T>(&self, with: impl FnOnce(&Knowledge<'_>) -> T) -> T {
        let link = |leaf, spine| self.leaves.known(leaf, spine);
        let destinations = |host| {
            let of_host = self.jobs.as_slice().iter().filter(|job| job.source == host);
            let spine = |job: &Job| {
                let is_local = self.shape.leaf_of(job.destination) == self.shape.leaf_of(host);
                let given = self.queue_pairs[job.first_pair].spine;
                given.filter(|_| self.mode.rule == ChoiceRule::Placed && !is_local)
            };
            let mut all: Vec<(u32, Option<u32>)> = of_host.map(|job| (job.destination, spine(job))).collect();
            all.sort_unstable();
            all.dedup_by_key(|(destination, _)| *destination);
            all
        };
        with(&Knowledge { link: &link, destinations: &destinations })
    }
}
