//! Assigns work to cores.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::BenchError;

/// Where the receiving sides of the two veth pairs run. Every figure depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SinkPlacement {
    /// The sink's receive work runs on whichever core of the DUT sends, which is the default of a veth.
    SinkOnDutCore,
    /// The sink receives on a core of its own (threaded NAPI).
    SinkOnOwnCore,
    /// All work of the DUT, from receiving at its first port to the receive work of the sink, runs on one core
    /// (deferred NAPI).
    OneCore,
    /// The DUT's receive work runs on the generator's core, as on a veth with default settings. Used to measure
    /// latency.
    Inline,
}

impl SinkPlacement {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SinkOnDutCore => "sink on DUT's core",
            Self::SinkOnOwnCore => "sink on own core",
            Self::OneCore => "all on one core",
            Self::Inline => "inline",
        }
    }

    /// Returns an explanation for reports.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::SinkOnDutCore => {
                "the DUT's first port receives on a core of its own (threaded NAPI), the worker of an AF_XDP DUT has \
                 another, and the sink's receive work runs on whichever of them sends: veth's default"
            }
            Self::SinkOnOwnCore => "the same, and the sink receives on a core of its own (threaded NAPI)",
            Self::OneCore => {
                "receive work of the DUT's first port (deferred NAPI), DUT, and the sink's receive work share one core; \
                 offered are 0.5, 0.7 and 1 million packets per second, and a flood, one after the other, and what \
                 counts is the one of which most arrives: a flood leaves a worker on this core nothing (receive \
                 livelock), and serves the kernel best"
            }
            Self::Inline => "receive work runs on the sender's core, step by step: veth without any setting",
        }
    }
}

/// The place where the receive work of a port runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receive {
    /// The receive work runs on the core that sends.
    OnSender,
    /// The receive work runs in a kernel thread on this core.
    Thread(usize),
    /// The receive work runs on this core, started by a timer.
    Deferred(usize),
}

/// A placement on the cores of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Cores of the generator.
    pub generators: Vec<usize>,
    /// Receive work of the DUT's first port.
    pub ingress: Receive,
    /// Cores of the DUT's workers.
    pub workers: Vec<usize>,
    /// Receive work of the sink.
    pub sink: Receive,
}

impl Layout {
    /// Returns the layout of a placement for one worker, or an error if there are too few cores.
    pub fn of(placement: SinkPlacement, cores: &[usize]) -> Result<Self, BenchError> {
        let core = |index: usize| {
            cores.get(index).copied().ok_or_else(|| {
                let (name, needed, have) = (placement.name(), placement.cores(), cores.len());
                BenchError(format!("placement `{name}` needs {needed} cores and there are {have}"))
            })
        };
        core(placement.cores() - 1)?;
        let generators = vec![core(0)?];
        Ok(match placement {
            SinkPlacement::SinkOnDutCore => Self {
                generators,
                ingress: Receive::Thread(core(1)?),
                workers: vec![core(2)?],
                sink: Receive::OnSender,
            },
            SinkPlacement::SinkOnOwnCore => Self {
                generators,
                ingress: Receive::Thread(core(1)?),
                workers: vec![core(2)?],
                sink: Receive::Thread(core(3)?),
            },
            SinkPlacement::OneCore => Self {
                generators,
                ingress: Receive::Deferred(core(1)?),
                workers: vec![core(1)?],
                sink: Receive::OnSender,
            },
            SinkPlacement::Inline => {
                Self { generators, ingress: Receive::OnSender, workers: vec![core(1)?], sink: Receive::OnSender }
            }
        })
    }

    /// Returns a layout with this number of workers, queues and generator cores. The generator cores also receive for
    /// the DUT.
    pub fn queues(workers: usize, cores: &[usize]) -> Result<Self, BenchError> {
        let (generators, rest) = cores.split_at_checked(workers).unwrap_or((cores, &[]));
        let Some(workers) = rest.get(..workers).filter(|workers| !workers.is_empty()) else {
            let have = cores.len();
            return Err(BenchError(format!("{workers} workers need {} cores and there are {have}", 2 * workers)));
        };
        Ok(Self {
            generators: generators.to_vec(),
            ingress: Receive::OnSender,
            workers: workers.to_vec(),
            sink: Receive::OnSender,
        })
    }

    /// Returns whether a worker has its core to itself, so that it may poll without a pause.
    pub fn worker_is_alone(&self) -> bool {
        let receives = |receive: Receive| match receive {
            Receive::OnSender => None,
            Receive::Thread(core) | Receive::Deferred(core) => Some(core),
        };
        let others = [receives(self.ingress), receives(self.sink)];
        !self.workers.iter().any(|worker| others.contains(&Some(*worker)) || self.generators.contains(worker))
    }

    /// Returns the layout of a row whose packets pass no worker, so that other work on a worker's core is not
    /// attributed to the row.
    #[must_use]
    pub fn without_workers(self) -> Self {
        Self { workers: Vec::new(), ..self }
    }

    /// Returns a description of what each core does.
    pub fn roles(&self) -> Vec<(usize, String)> {
        let receiver = |receive: Receive, role: &'static str| match receive {
            Receive::OnSender => None,
            Receive::Thread(core) | Receive::Deferred(core) => Some((core, role)),
        };
        let generators = self.generators.iter().map(|&core| (core, "generator"));
        let workers = self.workers.iter().map(|&core| (core, "worker"));
        let receivers = [receiver(self.ingress, "receives for DUT"), receiver(self.sink, "sink")];
        let mut roles: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for (core, role) in generators.chain(workers).chain(receivers.into_iter().flatten()) {
            roles.entry(core).or_default().push(role);
        }
        roles.into_iter().map(|(core, roles)| (core, roles.join(", "))).collect()
    }

    /// Returns the cores on which the DUT or the sink work, each once.
    pub fn measured(&self) -> Vec<usize> {
        let receivers = [self.ingress, self.sink].into_iter().filter_map(|receive| match receive {
            Receive::OnSender => None,
            Receive::Thread(core) | Receive::Deferred(core) => Some(core),
        });
        let inline = matches!(self.ingress, Receive::OnSender).then_some(&self.generators).into_iter().flatten();
        let mut cores: Vec<usize> = receivers.chain(self.workers.iter().copied()).chain(inline.copied()).collect();
        cores.sort_unstable();
        cores.dedup();
        cores
    }
}

impl SinkPlacement {
    /// Returns the packets per second of a flood; `None`: as many as possible. Where receive work and worker share a
    /// core, a flood would leave no time for the worker, so the load is limited to what a core may be able to forward.
    pub fn flood(self) -> Option<f64> {
        match self {
            Self::OneCore => Some(700_000.0),
            Self::SinkOnDutCore | Self::SinkOnOwnCore | Self::Inline => None,
        }
    }

    /// Returns the loads to offer in turn; the trial that forwards most counts. `None`: as many packets as possible.
    pub fn loads(self) -> &'static [Option<f64>] {
        match self {
            Self::OneCore => &[Some(500_000.0), Some(700_000.0), Some(1_000_000.0), None],
            Self::SinkOnDutCore | Self::SinkOnOwnCore | Self::Inline => &[None],
        }
    }

    /// Returns the number of cores needed with one worker.
    pub fn cores(self) -> usize {
        match self {
            Self::SinkOnDutCore => 3,
            Self::SinkOnOwnCore => 4,
            Self::OneCore | Self::Inline => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is the test's failure")]

    use super::*;

    #[test]
    fn two_cores_are_enough_for_one_core_and_for_no_more() {
        let layout = Layout::of(SinkPlacement::OneCore, &[4, 5]).unwrap();
        assert!(!layout.worker_is_alone());
        assert_eq!((layout.generators, layout.workers), (vec![4], vec![5]));
        let why = Layout::of(SinkPlacement::SinkOnDutCore, &[4, 5]).unwrap_err();
        assert_eq!(why.0, "placement `sink on DUT's core` needs 3 cores and there are 2");
        assert!(Layout::of(SinkPlacement::SinkOnOwnCore, &[0, 1, 2]).is_err());
    }

    #[test]
    fn every_core_that_carries_packets_behind_the_generator_is_measured_once() {
        let own = Layout::of(SinkPlacement::SinkOnOwnCore, &[0, 1, 2, 3]).unwrap();
        assert_eq!(own.measured(), [1, 2, 3]);
        let words = own.roles().into_iter().map(|(core, role)| format!("{core}: {role}")).collect::<Vec<_>>();
        assert_eq!(words, ["0: generator", "1: receives for DUT", "2: worker", "3: sink"]);
        let one = Layout::of(SinkPlacement::OneCore, &[0, 1, 2, 3]).unwrap();
        assert_eq!(one.measured(), [1]);
        assert_eq!(one.roles().last().unwrap(), &(1, "worker, receives for DUT".to_owned()));
        // Here the generator's core receives for the DUT.
        let inline = Layout::of(SinkPlacement::Inline, &[0, 1]).unwrap();
        assert_eq!(inline.measured(), [0, 1]);
    }

    #[test]
    fn a_row_without_a_worker_has_no_core_for_one() {
        let of = |placement| {
            let layout = Layout::of(placement, &[0, 1, 2, 3]).unwrap().without_workers();
            (layout.measured(), layout.roles().into_iter().map(|(_, role)| role).collect::<Vec<_>>().join("; "))
        };
        assert_eq!(of(SinkPlacement::SinkOnDutCore), (vec![1], "generator; receives for DUT".to_owned()));
        assert_eq!(of(SinkPlacement::SinkOnOwnCore), (vec![1, 3], "generator; receives for DUT; sink".to_owned()));
        assert_eq!(of(SinkPlacement::OneCore), (vec![1], "generator; receives for DUT".to_owned()));
        assert_eq!(of(SinkPlacement::Inline), (vec![0], "generator".to_owned()));
    }

    #[test]
    fn workers_take_as_many_generators() {
        assert_eq!(Layout::queues(2, &[0, 1, 2, 3]).unwrap().workers, [2, 3]);
        assert_eq!(Layout::queues(2, &[0, 1, 2]).unwrap_err().0, "2 workers need 4 cores and there are 3");
    }
}
