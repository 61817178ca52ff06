//! The keys of an experiment's file.

use serde::Serialize;
use srv6d_config::{
    BandRule, EcnProfile, Optional, Rate, Reactive, Record, Share, ShortTime, Spanned, Table, WireTime,
};

/// Largest number of seeds.
const MOST_SEEDS: u64 = 1000;
/// Largest number of leaves, of spines, and of hosts at a leaf.
const MOST_NODES: u64 = 1024;
/// Longest frame in bytes.
const LONGEST_FRAME: u64 = 9216;
/// Longest queue, and largest window, in bytes.
const LONGEST_QUEUE: u64 = 1_000_000_000;
/// Largest transfer in bytes.
const MOST_BYTES: u64 = 1_000_000_000_000;
/// Largest number of queue pairs of a transfer.
const MOST_QUEUE_PAIRS: u64 = 64;
/// Largest time that a run may take, as a multiple of the ideal time.
const MOST_PATIENCE: u64 = 10_000;

/// The keys of the whole file.
#[derive(Debug, Default, Serialize)]
pub(crate) struct File {
    pub seeds: Optional<u64>,
    pub fabric: FabricTable,
    pub cases: Vec<Spanned<CaseTable>>,
    pub modes: Vec<Spanned<ModeTable>>,
}

/// `[fabric]`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct FabricTable {
    pub leaves: Optional<u32>,
    pub spines: Optional<u32>,
    pub hosts: Optional<u32>,
    pub host_rate: Optional<Rate>,
    pub link_rate: Optional<Rate>,
    pub delay: Optional<WireTime>,
    pub frame: Optional<u32>,
    pub queue: Optional<u64>,
    pub ecn: Optional<EcnKeyword>,
    pub window: Optional<u64>,
}

/// `[[case]]`.
#[derive(Debug, Serialize)]
pub(crate) struct CaseTable {
    pub name: Spanned<String>,
    pub traffic: Spanned<TrafficKeyword>,
    pub bytes: Spanned<u64>,
    pub hosts: Optional<u32>,
    pub spread: Optional<ShortTime>,
    pub senders: Optional<u32>,
    pub patience: Optional<u32>,
    pub fault: Option<FaultTable>,
}

/// `fault` of `[[case]]`.
#[derive(Debug, Serialize)]
pub(crate) struct FaultTable {
    pub kind: Spanned<FaultKeyword>,
    pub share: Optional<Share>,
    pub up: Optional<ShortTime>,
    pub down: Optional<ShortTime>,
    pub leaf: Optional<u32>,
    pub spine: Optional<u32>,
    pub direction: Optional<DirectionKeyword>,
    pub at: Optional<ShortTime>,
    pub until: Optional<ShortTime>,
    pub reaction: Optional<ShortTime>,
}

/// `[[mode]]`.
#[derive(Debug, Serialize)]
pub(crate) struct ModeTable {
    pub name: Spanned<String>,
    pub choose: Spanned<ChoiceKeyword>,
    pub queue_pairs: Optional<u32>,
    pub gap: Optional<ShortTime>,
    pub flows: Optional<usize>,
    pub band: Optional<BandRule>,
    pub low: Optional<u16>,
    pub high: Optional<u16>,
    pub rate_weight: Optional<u8>,
    pub sample: Optional<ShortTime>,
    pub reactive: Option<Reactive>,
}

srv6d_config::keywords! {
    /// Whether and how switches mark packets.
    EcnKeyword {
        /// Switches mark no packets.
        Off = "off",
        /// Switches mark packets as in labs.
        Lab = "lab",
        /// Switches mark packets as with SONiC's profile for lossless traffic.
        AzureLossless = "azure-lossless",
        /// Switches mark packets as HPCC does for links of 100 Gbit/s.
        Hpcc100g = "hpcc-100g",
    }
}

impl EcnKeyword {
    /// Returns the rule of marking.
    pub const fn profile(self) -> Option<EcnProfile> {
        match self {
            Self::Off => None,
            Self::Lab => Some(EcnProfile::Lab),
            Self::AzureLossless => Some(EcnProfile::AzureLossless),
            Self::Hpcc100g => Some(EcnProfile::Hpcc100g),
        }
    }
}

srv6d_config::keywords! {
    /// The pattern of traffic: who sends to whom.
    TrafficKeyword {
        /// Each host to one other.
        Permutation = "permutation",
        /// The hosts do an all-reduce in a ring.
        Ring = "ring",
        /// Each host sends to each other host.
        AllToAll = "all-to-all",
        /// Several hosts send to one host.
        Incast = "incast",
    }
}

srv6d_config::keywords! {
    /// The kind of a fault of a link.
    FaultKeyword {
        /// The link has only a share of its rate.
        Slow = "slow",
        /// The link is down.
        Down = "down",
        /// All packets get lost.
        BlackHole = "black-hole",
        /// A share of the packets gets lost.
        Lossy = "lossy",
        /// The link is down and up in turn.
        Flap = "flap",
    }
}

srv6d_config::keywords! {
    /// Directions that a fault affects.
    DirectionKeyword {
        /// Both directions.
        Both = "both",
        /// From the leaf to the spine.
        Up = "up",
        /// From the spine to the leaf.
        Down = "down",
    }
}

srv6d_config::keywords! {
    /// The rule by which paths are chosen.
    ChoiceKeyword {
        /// The hash chooses.
        Hash = "hash",
        /// The hash chooses in the proportion of capacities.
        Weighted = "weighted",
        /// A random number chooses after each gap.
        Flowlet = "flowlet",
        /// The best band decides after each gap.
        Adaptive = "adaptive",
        /// The placement planner chooses.
        Placed = "placed",
    }
}

impl Record for File {
    const HEADER: &'static str = "";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        Some(Self {
            seeds: table.number("seeds", 1..=MOST_SEEDS),
            fabric: table.record("fabric"),
            cases: table.records("case"),
            modes: table.records("mode"),
        })
    }
}

impl Record for FabricTable {
    const HEADER: &'static str = "[fabric]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        Some(Self {
            leaves: table.number("leaves", 2..=MOST_NODES),
            spines: table.number("spines", 1..=MOST_NODES),
            hosts: table.number("hosts", 1..=MOST_NODES),
            host_rate: table.optional("host_rate"),
            link_rate: table.optional("link_rate"),
            delay: table.optional("delay"),
            frame: table.number("frame", 64..=LONGEST_FRAME),
            queue: table.number("queue", 1..=LONGEST_QUEUE),
            ecn: table.optional("ecn"),
            window: table.number("window", 1..=LONGEST_QUEUE),
        })
    }
}

impl Record for CaseTable {
    const HEADER: &'static str = "[[case]]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let name = table.required("name");
        let traffic = table.required("traffic");
        let bytes = table.required_number("bytes", 1..=MOST_BYTES);
        let hosts = table.number("hosts", 1..=MOST_NODES);
        let spread = table.optional("spread");
        let senders = table.number("senders", 1..=MOST_NODES * MOST_NODES);
        let patience = table.number("patience", 2..=MOST_PATIENCE);
        let fault = table.optional_record("fault");
        Some(Self { name: name?, traffic: traffic?, bytes: bytes?, hosts, spread, senders, patience, fault })
    }
}

impl Record for FaultTable {
    const HEADER: &'static str = "fault";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let kind = table.required("kind");
        let share = table.optional("share");
        let up = table.optional("up");
        let down = table.optional("down");
        let leaf = table.number("leaf", 0..=MOST_NODES);
        let spine = table.number("spine", 0..=MOST_NODES);
        let direction = table.optional("direction");
        let at = table.optional("at");
        let until = table.optional("until");
        let reaction = table.optional("reaction");
        Some(Self { kind: kind?, share, up, down, leaf, spine, direction, at, until, reaction })
    }
}

impl Record for ModeTable {
    const HEADER: &'static str = "[[mode]]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let name = table.required("name");
        let choose = table.required("choose");
        let queue_pairs = table.number("queue_pairs", 1..=MOST_QUEUE_PAIRS);
        let gap = table.optional("gap");
        let flows = table.number("flows", srv6d_balance::Flows::LEAST as u64..=srv6d_balance::Flows::MOST as u64);
        let band = table.optional("band");
        let low = table.number("low", 0..=999);
        let high = table.number("high", 1..=1000);
        let rate_weight = table.number("rate_weight", 0..=100);
        let sample = table.optional("sample");
        let reactive = table.optional_record("reactive");
        Some(Self {
            name: name?,
            choose: choose?,
            queue_pairs,
            gap,
            flows,
            band,
            low,
            high,
            rate_weight,
            sample,
            reactive,
        })
    }
}
