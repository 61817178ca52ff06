//! `[[balance]]`: a policy by which a group chooses among its next hops or paths.

use std::time::Duration;

use serde::{Serialize, Serializer};
use srv6d_balance::Flows;
use toml::Spanned;

use super::emulate::Share;
use super::schema::Optional;
use super::table::{Record, Table};
use super::value::{Refusal, Value, unfit};

/// Name of the plain hash, which can stand wherever a policy is named.
pub const HASH: &str = "hash";

/// `[[balance]]`.
#[derive(Clone, Debug, Serialize)]
pub struct Balance {
    /// Name by which others refer to it.
    pub name: Spanned<String>,
    /// The rule by which a flow gets a member.
    pub mode: Spanned<BalanceMode>,
    /// Idle time after which a flow may get another member, default 256 µs.
    pub gap: Optional<ShortTime>,
    /// Number of flows that each worker remembers, default 4096.
    pub flows: Optional<usize>,
    /// The rule that turns a score into a band, default `available`.
    pub band: Optional<BandRule>,
    /// Score in permille up to which a relative band is the best, default 200.
    pub low: Optional<u16>,
    /// Score in permille from which a relative band is the worst, default 900.
    pub high: Optional<u16>,
    /// Share of the load in a score, in percent, default 50.
    pub rate_weight: Optional<u8>,
    /// Time between two samples of a port, default 1 ms.
    pub sample: Optional<ShortTime>,
    /// Moves within a flowlet; default: none.
    pub reactive: Option<Reactive>,
    /// Whether flows may be reordered, default `refuse`.
    pub reorder: Optional<Reorder>,
    /// The measure that counts as the capacity of a link, default `capacity`.
    pub metric: Optional<WeightMetric>,
}

crate::keywords! {
    /// The rule by which a flow gets a member.
    BalanceMode {
        /// A random number decides after each gap.
        Flowlet = "flowlet",
        /// The best band decides after each gap.
        Adaptive = "adaptive",
        /// The best band decides after each gap. A band is the worse one of two: that of the own link and that of the
        /// links behind the next hop.
        Global = "global",
        /// The hash decides, with weights from the capacities of links.
        Weighted = "weighted",
    }
}

crate::keywords! {
    /// The measure that counts as the capacity of a link.
    WeightMetric {
        /// The whole capacity.
        Capacity = "capacity",
        /// The part of the capacity that the load leaves.
        Available = "available",
    }
}

crate::keywords! {
    /// The rule that turns a score into a band.
    BandRule {
        /// The band follows from the capacity that is left.
        Available = "available",
        /// The band follows from the score alone.
        Relative = "relative",
    }
}

crate::keywords! {
    /// Whether flows may be reordered.
    Reorder {
        /// Policies that may reorder flows are refused.
        Refuse = "refuse",
        /// Policies that may reorder flows are accepted.
        Accept = "accept",
    }
}

/// `reactive` of `[[balance]]`.
#[derive(Clone, Debug, Serialize)]
pub struct Reactive {
    /// Number of bands by which the best member has to be better, default 2.
    pub delta: Optional<u8>,
    /// Chance that a packet then moves its flow, default 0.01.
    pub probability: Optional<Share>,
}

impl Record for Balance {
    const HEADER: &'static str = "[[balance]]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let name = table.required("name");
        let mode = table.required("mode");
        let gap = table.optional("gap");
        let flows = table.number("flows", Flows::LEAST as u64..=Flows::MOST as u64);
        let band = table.optional("band");
        let low = table.number("low", 0..=999);
        let high = table.number("high", 1..=1000);
        let rate_weight = table.number("rate_weight", 0..=100);
        let sample = table.optional("sample");
        let reactive = table.optional_record("reactive");
        let reorder = table.optional("reorder");
        let metric = table.optional("metric");
        Some(Self {
            name: name?,
            mode: mode?,
            gap,
            flows,
            band,
            low,
            high,
            rate_weight,
            sample,
            reactive,
            reorder,
            metric,
        })
    }
}

impl Record for Reactive {
    const HEADER: &'static str = "reactive";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        Some(Self { delta: table.number("delta", 1..=7), probability: table.optional("probability") })
    }
}

/// A time from 1 µs to 10 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortTime(pub Duration);

impl Value for ShortTime {
    fn expected() -> String {
        "a time from \"1us\" to \"10s\", e.g. \"256us\" or \"2ms\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        let bounds = Duration::from_micros(1)..=Duration::from_secs(10);
        let time = humantime::parse_duration(text).ok().filter(|time| bounds.contains(time));
        time.map(Self).ok_or_else(|| unfit::<Self>(&format!("{text:?}")))
    }
}

impl Serialize for ShortTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}
