//! Changes of the fabric while a simulation runs, and who learns of them.

use srv6d_emulate::Refusal;

use crate::agenda::{Event, Ps};
use crate::failure::RunError;
use crate::settings::{ChoiceRule, Direction};
use crate::shape::Place;
use crate::simulation::{Packet, Simulation};

impl Simulation<'_> {
    /// Returns the two ports of the link that has a fault.
    pub(crate) fn faulty(&self) -> [Option<u32>; 2] {
        let ports = self.case.fault.as_ref().map(|fault| {
            let (leaf, spine) = (fault.leaf, fault.spine);
            [Place::LeafUp { leaf, spine }, Place::SpineDown { spine, leaf }].map(|place| self.shape.port(place))
        });
        ports.map_or([None; 2], |ports| ports.map(Some))
    }

    /// Changes the link that has a fault.
    pub(crate) fn change(&mut self, step: u32, now: Ps) {
        let Some(fault) = &self.case.fault else { return };
        let Some(change) = fault.change(step) else { return };
        let healthy = self.fabric.link_port();
        for (number, direction) in self.faulty().into_iter().zip([Direction::Up, Direction::Down]) {
            let Some(number) = number else { continue };
            let emulation = if change.is_faulty { fault.port(healthy, direction) } else { healthy };
            let port = &mut self.ports[number].port;
            port.change(emulation, now.into());
            port.set_up(!(change.is_faulty && fault.is_outage()));
            let dropped: Vec<Packet> =
                if change.is_faulty && fault.is_outage() { port.drop_all(now.into()).collect() } else { Vec::new() };
            for packet in dropped {
                self.lost(number, packet, Refusal::PortDown, now);
            }
            self.wait(number);
            let is_up = self.ports[number].port.is_up();
            if let Some(exact) = &mut self.exact {
                exact.set_link(number, emulation, is_up);
                let owner = exact.owner(number);
                self.configure(|node| node == owner, now);
            }
            if direction == Direction::Up {
                self.leaves.set_rate(self.fabric, [fault.leaf, fault.spine], emulation.rate);
            }
        }
        match change.learnt {
            Some(0) => self.learn(step, now),
            Some(at) => self.agenda.add(at, Event::Learnt { step }),
            None => {}
        }
        if let Some(next) = fault.change(step + 1) {
            self.agenda.add(next.at, Event::Change { step: step + 1 });
        }
    }

    /// Lets the routing learn of a change, and the planner place again.
    pub(crate) fn learn(&mut self, step: u32, now: Ps) {
        let Some(fault) = &self.case.fault else { return };
        let Some(change) = fault.change(step) else { return };
        let healthy = self.fabric.link_port();
        let rate = |direction| if change.is_faulty { fault.port(healthy, direction).rate } else { healthy.rate };
        let rates = [Direction::Up, Direction::Down].map(rate);
        self.leaves.learn([fault.leaf, fault.spine], rates, !(change.is_faulty && fault.is_outage()));
        if self.mode.rule == ChoiceRule::Placed {
            // Without a placement, the paths stay as they are.
            let _ = self.place();
        }
        // By now the leaves know which spines lead where, and the hosts know the spines that the planner has chosen.
        self.configure(|_| true, now);
    }

    /// Gives the queue pairs of each job the spine that the planner has chosen.
    pub(crate) fn place(&mut self) -> Result<(), RunError> {
        let spines = self.leaves.placed(self.jobs.as_slice(), self.fabric.host_rate)?;
        for (spine, job) in spines.into_iter().zip(0..) {
            let first = self.jobs[job].first_pair;
            for pair in first..first + self.mode.queue_pairs {
                let before = self.queue_pairs[pair].spine.replace(spine);
                self.tally.moves += u64::from(before.is_some_and(|before| before != spine));
            }
        }
        Ok(())
    }
}
