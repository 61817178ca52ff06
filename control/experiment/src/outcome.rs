//! The outcome of a simulation: the result of the run, calculated from its counts.
#![allow(clippy::cast_precision_loss, reason = "counts become shares and times to be shown")]

use crate::agenda::{PS_PER_SECOND, Ps};
use crate::faults::ps;
use crate::job::Job;
use crate::result::{Drops, Percentiles, Run};
use crate::simulation::{Load, RunOutcome, Simulation};

const MS_PER_SECOND: f64 = 1000.0;

fn seconds(time: Ps) -> f64 {
    time as f64 / PS_PER_SECOND as f64
}

fn ms(time: Ps) -> f64 {
    seconds(time) * MS_PER_SECOND
}

/// Returns `part` as a share of `whole`, or 0 if `whole` is 0.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Simulation<'_> {
    /// Returns the outcome of a run that ended at this time.
    pub(crate) fn outcome(self, end: Ps) -> RunOutcome {
        let completions_ms = self.completions();
        let transfers = self.jobs.as_slice().len();
        let is_complete = self.tally.complete == transfers;
        let (drops, marked) = self.drops();
        let begin = self.case.fault.as_ref().map_or(0, |fault| ps(fault.at));
        let run = Run {
            case: self.case.name.clone(),
            mode: self.mode.name.clone(),
            seed: self.seed,
            hosts: self.shape.host_count(),
            transfers,
            complete: self.tally.complete,
            goodput: if is_complete && end > 0 { self.ideal / seconds(self.last_of_traffic(end)) } else { 0.0 },
            seconds: seconds(end),
            completion_ms: Percentiles::of(&completions_ms),
            victim: self.victim(),
            packets: self.tally.arrived,
            reordered: share(self.tally.reordered, self.tally.arrived),
            drops,
            ce_marked: share(marked, self.tally.arrived),
            busiest_by_mean: self.busiest_by_mean(),
            moves: self.tally.moves,
            recovery_ms: self.tally.last_loss.map(|last| ms(last.saturating_sub(begin))),
            events: self.agenda.made(),
        };
        RunOutcome { run, completions_ms, load: self.load() }
    }

    /// Returns the completion times of all transfers, in ascending order.
    fn completions(&self) -> Vec<f64> {
        let of_job = |job: &Job| job.done.map(|done| ms(done - job.start));
        let mut times: Vec<f64> = self.jobs.as_slice().iter().filter_map(of_job).collect();
        times.sort_unstable_by(f64::total_cmp);
        times
    }

    /// Returns the time at which the last transfer was complete, apart from the one beside an incast.
    fn last_of_traffic(&self, end: Ps) -> Ps {
        let jobs = self.jobs.as_slice().iter().filter(|job| !job.is_victim);
        jobs.filter_map(|job| job.done).max().unwrap_or(end)
    }

    fn victim(&self) -> Option<f64> {
        let victim = self.jobs.as_slice().iter().find(|job| job.is_victim)?;
        let ideal = self.case.bytes as f64 * 8.0 / self.fabric.host_rate as f64;
        victim.done.map(|done| seconds(done - victim.start) / ideal)
    }

    /// Returns the drops of all ports, and the number of marks.
    fn drops(&self) -> (Drops, u64) {
        if let Some(exact) = &self.exact {
            let [queue_full, wire_loss, port_down, marked] = exact.drops();
            return (Drops { queue_full, wire_loss, port_down }, marked);
        }
        let mut drops = Drops::default();
        let mut marked = 0;
        for ported in self.ports.as_slice() {
            let counts = ported.port.counts();
            drops.queue_full += counts.queue_full;
            drops.wire_loss += counts.wire_loss;
            drops.port_down += counts.port_down;
            marked += counts.ce_marked;
        }
        (drops, marked)
    }

    /// Returns the load of the busiest link between switches, divided by the mean load of all of them; 0 if none
    /// carried anything.
    fn busiest_by_mean(&self) -> f64 {
        let sent_and_rate = |port| {
            if let Some(exact) = &self.exact {
                return exact.load(port);
            }
            let port = &self.ports[port].port;
            (port.counts().sent_bytes, port.emulation().rate)
        };
        let links = (0..self.shape.link_count()).map(sent_and_rate);
        let loads: Vec<f64> = links.map(|(sent, rate)| sent as f64 / rate.max(1) as f64).collect();
        let mean = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
        if mean > 0.0 { loads.iter().copied().fold(0.0, f64::max) / mean } else { 0.0 }
    }

    fn load(&self) -> Option<Load> {
        let heat = self.tally.heat.as_ref()?;
        let loads = heat.loads(self.fabric.link_rate);
        let names = (0..self.shape.link_count()).map(|port| self.shape.name(port));
        Some(Load { span: heat.seconds(), links: names.zip(loads).collect() })
    }
}
