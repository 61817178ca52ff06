//! `emulate` of `[[port]]`: a port that is a link with a rate.

use std::time::Duration;

use serde::{Serialize, Serializer};
use srv6d_emulate::{Chance, Ecn, LEAST_RATE, MOST_DELAY, MOST_OVERHEAD, MOST_PACKETS, MOST_RATE};
use toml::Spanned;
use toml::de::DeValue;

use super::schema::Optional;
use super::table::{Record, Table};
use super::value::{Refusal, Value, unfit, unsigned};

/// Longest queue in bytes: 50 ms at the highest rate.
const LONGEST_QUEUE: u64 = 10_000_000_000;

/// `emulate` of `[[port]]`.
#[derive(Clone, Debug, Serialize)]
pub struct Emulate {
    /// Bits per second on the wire.
    pub rate: Spanned<Rate>,
    /// Length of the queue in bytes, default 256000.
    pub queue: Optional<u64>,
    /// Largest number of packets in the port, default 512.
    pub packets: Optional<usize>,
    /// Bytes that a packet takes on the wire besides its frame, default 24.
    pub overhead: Optional<u32>,
    /// Time on the wire, default 0.
    pub delay: Optional<WireTime>,
    /// Share of the packets that get lost, default 0.
    pub loss: Optional<Share>,
    /// How packets are marked; default: never.
    pub ecn: Option<EcnMarking>,
}

/// `ecn` of `emulate`.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum EcnMarking {
    /// The name of a rule.
    Profile(Spanned<EcnProfile>),
    /// The rule itself.
    Rule(EcnRule),
}

crate::keywords! {
    /// Rules of marking that are used elsewhere.
    EcnProfile {
        /// 30 kB, 120 kB, 20 %: for rates at which labs run.
        Lab = "lab",
        /// 1 MiB, 2 MiB, 5 %: SONiC's queue profile for lossless traffic.
        AzureLossless = "azure-lossless",
        /// 400 kB, 1600 kB, 20 %: for links of 100 Gbit/s, from HPCC's simulations.
        Hpcc100g = "hpcc-100g",
    }
}

impl EcnProfile {
    /// Returns the rule.
    pub fn rule(self) -> Ecn {
        let rule = |min, max, probability| Ecn {
            min,
            max,
            probability: Chance::of(probability),
            non_ect: srv6d_emulate::NonEct::Drop,
        };
        match self {
            Self::Lab => rule(30_000, 120_000, 0.2),
            Self::AzureLossless => rule(1 << 20, 2 << 20, 0.05),
            Self::Hpcc100g => rule(400_000, 1_600_000, 0.2),
        }
    }
}

/// A rule of marking.
#[derive(Clone, Debug, Serialize)]
pub struct EcnRule {
    /// Depth of the queue in bytes up to which nothing is marked.
    pub min: Optional<u64>,
    /// Depth from which everything is marked.
    pub max: Optional<u64>,
    /// Chance of a mark just below `max`, default 1.
    pub probability: Optional<Share>,
    /// Round-trip time of the fabric, instead of `min` and `max`: both are what DCTCP takes.
    pub rtt: Optional<WireTime>,
    /// What becomes of packets whose transport does not support ECN, default `drop`.
    pub non_ect: Optional<NonEct>,
}

crate::keywords! {
    /// Packets that should be marked and do not support ECN.
    NonEct {
        /// They are dropped.
        Drop = "drop",
        /// They go on.
        Pass = "pass",
    }
}

impl Record for Emulate {
    const HEADER: &'static str = "emulate";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let rate = table.required("rate");
        let queue = table.number("queue", 1..=LONGEST_QUEUE);
        let packets = table.number("packets", 8..=MOST_PACKETS as u64);
        let overhead = table.number("overhead", 0..=MOST_OVERHEAD.into());
        let delay = table.optional("delay");
        let loss = table.optional("loss");
        let ecn = table.word_or_record("ecn").map(|ecn| ecn.map_or_else(EcnMarking::Rule, EcnMarking::Profile));
        table.never(
            "pfc",
            "srv6d has no priority flow control: AF_XDP has no priorities, NICs consume pause frames (ethertype 0x8808) \
             themselves, and a pause cannot reach a socket",
            "remove it; `queue` and `ecn` say what happens when the port is congested",
        );
        Some(Self { rate: rate?, queue, packets, overhead, delay, loss, ecn })
    }
}

impl Record for EcnRule {
    const HEADER: &'static str = "ecn";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        Some(Self {
            min: table.number("min", 0..=LONGEST_QUEUE),
            max: table.number("max", 0..=LONGEST_QUEUE),
            probability: table.optional("probability"),
            rtt: table.optional("rtt"),
            non_ect: table.optional("non_ect"),
        })
    }
}

/// A rate in bit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rate(pub u64);

/// Units of rates, with the number of zeros that each stands for.
const UNITS: [(&str, u32); 5] = [("Tbit", 12), ("Gbit", 9), ("Mbit", 6), ("kbit", 3), ("bit", 0)];

impl Rate {
    /// Returns the rate of a text such as `100Mbit` or `1.6Tbit/s`, exactly.
    fn parse(text: &str) -> Option<u64> {
        let text = text.trim();
        let text = text.strip_suffix("/s").unwrap_or(text);
        let (number, zeros) = UNITS.iter().find_map(|(unit, zeros)| Some((text.strip_suffix(unit)?, *zeros)))?;
        let (whole, part) = number.trim().split_once('.').unwrap_or((number.trim(), ""));
        let digits = whole.chars().chain(part.chars()).all(|digit| digit.is_ascii_digit());
        let missing = zeros.checked_sub(u32::try_from(part.len()).ok()?)?;
        let all: u64 = Some(format!("{whole}{part}")).filter(|_| digits && !whole.is_empty())?.parse().ok()?;
        all.checked_mul(10_u64.pow(missing))
    }
}

impl Value for Rate {
    fn expected() -> String {
        "a rate from \"1Mbit\" to \"1.6Tbit\", e.g. \"100Mbit\"".into()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, Refusal> {
        let (rate, shown) = match value {
            DeValue::String(text) => (Self::parse(text), format!("{text:?}")),
            DeValue::Integer(text) => (unsigned(value), text.to_string()),
            other => (None, super::value::type_name(other).to_owned()),
        };
        let fits = |rate: &u64| (LEAST_RATE..=MOST_RATE).contains(rate);
        rate.filter(fits).map(Self).ok_or_else(|| unfit::<Self>(&shown))
    }
}

/// A time on a wire: up to a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireTime(pub Duration);

impl Value for WireTime {
    fn expected() -> String {
        "a time up to \"1s\", e.g. \"50us\" or \"2ms\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        let time = humantime::parse_duration(text).ok().filter(|time| time.as_nanos() <= MOST_DELAY.into());
        time.map(Self).ok_or_else(|| unfit::<Self>(&format!("{text:?}")))
    }
}

impl Serialize for WireTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}

/// A share from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share(pub f64);

impl Value for Share {
    fn expected() -> String {
        "a share from 0 to 1, without quotes, e.g. 0.01".into()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, Refusal> {
        let (text, shown) = match value {
            DeValue::Float(number) => (number.as_str(), number.to_string()),
            DeValue::Integer(number) => (number.as_str(), number.to_string()),
            other => ("", super::value::type_name(other).to_owned()),
        };
        let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
        share.map(Self).ok_or_else(|| unfit::<Self>(&shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_exact() {
        let rates = ["1Mbit", "1.6Tbit", "97000003bit", "97.000003 Mbit", "10Gbit/s", "2500kbit"].map(Rate::parse);
        let expected = [1_000_000, 1_600_000_000_000, 97_000_003, 97_000_003, 10_000_000_000, 2_500_000];
        assert_eq!(rates, expected.map(Some));
        for wrong in
            ["", "100", "Mbit", ".5Gbit", "1.5bit", "-1Mbit", "1e3Mbit", "99999999999Tbit", "100MB", "1.2.3Mbit"]
        {
            assert_eq!(Rate::parse(wrong), None, "{wrong}");
        }
    }
}
