//! Samples how busy the ports of a worker are, for groups that choose by it.

use srv6d_balance::{Sample, Sampler};
use srv6d_srv6::desired::{Balancing, PortId};
use srv6d_srv6::{Balancer, PortState};

use crate::counters::WorkerCounters;
use crate::left_right::Snapshot;

/// Samplers of a worker's ports, by socket.
#[derive(Debug)]
pub(crate) struct Sampling {
    ports: Vec<Option<Sampled>>,
    interval: u64,
    /// Time of the next samples. `u64::MAX`: no samples are taken, because no group asks for them.
    due: u64,
}

#[derive(Debug)]
struct Sampled {
    device: u16,
    sampler: Sampler,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { ports: Vec::new(), interval: 0, due: u64::MAX }
    }
}

impl Sampling {
    /// Returns true if samples are to be taken.
    #[inline]
    pub(crate) const fn is_due(&self, now: u64) -> bool {
        now >= self.due
    }

    /// Follows the ports and the settings of a snapshot. `sent_bytes` is what a socket has sent so far. A port whose rate is
    /// not known has no sampler: it counts as idle.
    pub(crate) fn follow(&mut self, snapshot: &Snapshot, now: u64, sent_bytes: impl Fn(usize) -> u64) {
        let balancing = snapshot.tables.balancing();
        if !balancing.needs_samples() {
            *self = Self::default();
            return;
        }
        self.ports.resize_with(snapshot.wiring.port_of.len(), || None);
        for (socket, place) in self.ports.iter_mut().enumerate() {
            let device = snapshot.wiring.port_of.get(socket).copied().flatten();
            let limits = device.and_then(|device| Some((device, limits(snapshot, socket, device)?)));
            let Some((device, (rate, full_queue))) = limits else {
                *place = None;
                continue;
            };
            let weight = balancing.rate_weight;
            match place {
                Some(known) if known.device == device => known.sampler.change(rate, full_queue, weight),
                _ => {
                    let sampler = Sampler::new(rate, full_queue, weight, now, sent_bytes(socket));
                    *place = Some(Sampled { device, sampler });
                }
            }
        }
        self.interval = balancing.sample;
        self.due = now;
    }

    /// Takes a sample of every port, and tells the balancer and the counters. `shown` is what a socket shows.
    pub(crate) fn sample(
        &mut self,
        now: u64,
        balancer: &mut Balancer,
        counters: &WorkerCounters,
        shown: impl Fn(usize) -> Sample,
    ) {
        self.due = now.saturating_add(self.interval);
        for (socket, port) in self.ports.iter_mut().enumerate() {
            let Some(Sampled { device, sampler }) = port else { continue };
            sampler.sample(now, self.interval, shown(socket));
            counters.set_score(socket, sampler.score());
            balancer.set_port(*device, PortState { score: sampler.score(), rate: sampler.rate() });
        }
    }
}

/// Returns rate and full queue of a port. A port that is not emulated has no queue that could be seen.
fn limits(snapshot: &Snapshot, socket: usize, device: u16) -> Option<(u64, u64)> {
    let emulated = snapshot.wiring.emulated.get(socket).and_then(Option::as_ref);
    let of_link = |balancing: &Balancing| Some((*balancing.rates.get(&PortId(device))?, 0));
    let Some(emulated) = emulated else { return of_link(snapshot.tables.balancing()) };
    Some((emulated.emulation.rate, emulated.emulation.full_queue()))
}
