//! How a group chooses.

use crate::bands::BandScale;
use crate::far::Profile;

/// How a group chooses among its members, apart from the plain hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Idle time in nanoseconds after which a flow may get another member. Packets that are closer to each other stay on
    /// one member.
    pub gap: u64,
    /// The rule by which a flow gets a member.
    pub mode: PolicyMode,
}

impl Policy {
    /// Idle time in nanoseconds if nothing else is said: 256 µs, as in SAI.
    pub const GAP: u64 = 256_000;
}

/// The rule by which a flow gets a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyMode {
    /// Chance, in the proportion of the weights (`LetFlow`).
    Flowlet,
    /// The best band. Among equal ones the hash decides.
    Adaptive(Adaptive),
    /// The same, by the worse one of the own link and the links from the next hop to the nodes of the profile
    /// ([`FarPorts`](crate::FarPorts)). Without a profile, and where nothing is known of those, the own link decides.
    Global(Adaptive, Option<Profile>),
}

impl PolicyMode {
    /// Returns how bands decide. `None`: they do not.
    pub const fn adaptive(&self) -> Option<&Adaptive> {
        match self {
            Self::Flowlet => None,
            Self::Adaptive(adaptive) | Self::Global(adaptive, _) => Some(adaptive),
        }
    }

    /// Returns the profile of the links behind next hops that count.
    pub const fn profile(&self) -> Option<Profile> {
        match self {
            Self::Flowlet | Self::Adaptive(_) => None,
            Self::Global(_, profile) => *profile,
        }
    }
}

/// How bands decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptive {
    /// The rule that makes a band of a score.
    pub scale: BandScale,
    /// Whether a flow may move between two packets that are close to each other. This reorders packets.
    pub reactive: Option<Reactive>,
}

/// Moves within a flowlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reactive {
    /// By how many bands the best member has to be better. It is not 0.
    pub delta: u8,
    /// Chance that a packet moves its flow then, in parts of 2³².
    pub chance: u32,
}
