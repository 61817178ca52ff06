//! Judges trials: pure functions of what was counted.

use serde::{Deserialize, Serialize};

/// A generator that sends less than this share of the requested rate is the limit.
const GENERATOR_KEEPS_UP: f64 = 0.97;
/// A DUT that forwards more than this share of a flood was not overloaded.
const FLOODED: f64 = 0.98;
/// A sink that loses more than this share of the frames that reach it in a flood is the limit.
const SINK_KEEPS_UP: f64 = 0.02;
/// A trial is disturbed if a measured thread waited for its core for more than this share of the time.
const QUIET: f64 = 0.02;

/// Counters of one trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Requested packets per second; `None`: a flood.
    pub requested: Option<f64>,
    /// Packets per second that left the generator.
    pub offered: f64,
    /// Packets per second that reached the sink.
    pub forwarded: f64,
    /// Frames sent in the whole trial.
    pub sent: u64,
    /// Frames that reached the sink, including those in rings at the end of the traffic.
    pub received: u64,
    /// Frames that were lost because the sink's ring was full.
    pub lost_at_sink: u64,
    /// Length of the measured part, in seconds.
    pub seconds: f64,
    /// Share of that time in which a generator or NAPI thread, or a worker with its own core, waited for its core.
    pub waited: f64,
    /// Share of that time that a hypervisor gave to other machines.
    pub stolen: f64,
    /// CPU seconds, per second, of all cores on which DUT and sink work.
    pub cpu: f64,
    /// CPU seconds, per second, of the generator's cores that do not work for DUT or sink.
    pub cpu_generator: f64,
    /// Frames that DUT and sink carried per CPU second of their cores.
    pub per_cpu_second: f64,
}

/// Judgement of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum TrialVerdict {
    /// The DUT was measured, and lost this share of the packets.
    Measured {
        /// Share of the sent frames that were lost.
        loss: f64,
    },
    /// The generator was the limit, so that the forwarded rate is a lower bound.
    GeneratorLimited,
    /// The trial has no figure of the DUT.
    Void {
        /// Reason.
        why: Why,
    },
}

/// Why a trial is void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The generator did not run: it had no core.
    NothingSent,
    /// More arrived than was sent.
    MoreThanSent,
    /// The sink's ring was full, so that the sink was the limit.
    SinkLimited,
}

impl Why {
    /// Returns an explanation for users.
    pub fn text(self) -> &'static str {
        match self {
            Self::NothingSent => "nothing was sent",
            Self::MoreThanSent => "more arrived than was sent",
            Self::SinkLimited => "the sink was the limit",
        }
    }
}

impl Counted {
    /// Returns the share of sent frames that did not arrive.
    pub fn loss(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.sent.saturating_sub(self.received) as f64 / self.sent as f64 }
    }

    /// Judges the trial. A void trial is recognised first, because without a measurement there is neither loss nor
    /// rate.
    pub fn verdict(&self) -> TrialVerdict {
        let reached_sink = self.received + self.lost_at_sink;
        if self.sent == 0 {
            return TrialVerdict::Void { why: Why::NothingSent };
        }
        if self.received > self.sent {
            return TrialVerdict::Void { why: Why::MoreThanSent };
        }
        // A trial at a rate is judged by its loss, and frames lost at the sink are not lost by the DUT.
        let kept_up = if self.requested.is_some() { 0.0 } else { SINK_KEEPS_UP };
        if self.lost_at_sink as f64 > kept_up * reached_sink as f64 {
            return TrialVerdict::Void { why: Why::SinkLimited };
        }
        let limited = match self.requested {
            Some(requested) => self.offered < GENERATOR_KEEPS_UP * requested,
            None => self.forwarded > FLOODED * self.offered,
        };
        if limited {
            return TrialVerdict::GeneratorLimited;
        }
        TrialVerdict::Measured { loss: self.loss() }
    }

    /// Returns whether other processes used the cores, so that the trial is worth repeating.
    pub fn is_disturbed(&self) -> bool {
        self.waited > QUIET || self.stolen > QUIET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the counters of a trial at a rate in which everything went well.
    fn good() -> Counted {
        Counted {
            requested: Some(1e6),
            offered: 1e6,
            forwarded: 1e6,
            sent: 1_000_000,
            received: 1_000_000,
            seconds: 1.0,
            ..Counted::default()
        }
    }

    #[test]
    fn nothing_lost_is_measured_as_that() {
        assert_eq!(good().verdict(), TrialVerdict::Measured { loss: 0.0 });
        assert_eq!(Counted { received: 999_000, ..good() }.verdict(), TrialVerdict::Measured { loss: 0.001 });
    }

    #[test]
    fn a_generator_that_sent_too_little_is_called_the_limit() {
        assert_eq!(Counted { offered: 0.96e6, ..good() }.verdict(), TrialVerdict::GeneratorLimited);
        // With or without loss, the trial says nothing about the requested rate.
        assert_eq!(Counted { offered: 0.5e6, received: 10, ..good() }.verdict(), TrialVerdict::GeneratorLimited);
    }

    #[test]
    fn a_flood_that_all_arrives_was_none() {
        let flood = Counted { requested: None, offered: 9e6, forwarded: 1e6, received: 110_000, ..good() };
        assert_eq!(flood.verdict(), TrialVerdict::Measured { loss: 0.89 });
        assert_eq!(Counted { forwarded: 8.9e6, ..flood }.verdict(), TrialVerdict::GeneratorLimited);
    }

    #[test]
    fn void_is_never_loss() {
        let void = |counted: Counted| match counted.verdict() {
            TrialVerdict::Void { why } => Some(why),
            _ => None,
        };
        assert_eq!(void(Counted { sent: 0, received: 0, ..good() }), Some(Why::NothingSent));
        assert_eq!(void(Counted { received: 1_000_001, ..good() }), Some(Why::MoreThanSent));
        assert_eq!(void(Counted { received: 900_000, lost_at_sink: 100_000, ..good() }), Some(Why::SinkLimited));
        // An occasional burst does not make the sink the limit of a flood. At a requested rate, one frame lost at the
        // sink makes the trial void.
        let flood = Counted { requested: None, offered: 9e6, received: 900_000, lost_at_sink: 9_000, ..good() };
        assert_eq!(void(flood), None);
        assert_eq!(void(Counted { received: 999_999, lost_at_sink: 1, ..good() }), Some(Why::SinkLimited));
    }

    #[test]
    fn who_waits_for_a_core_of_its_own_is_disturbed() {
        assert!(!good().is_disturbed() && !Counted { waited: 0.01, ..good() }.is_disturbed());
        assert!(Counted { waited: 0.05, ..good() }.is_disturbed() && Counted { stolen: 0.05, ..good() }.is_disturbed());
    }
}
