//! Policies: how a group chooses among its members.

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
    /// Default idle time in nanoseconds: 256 µs, as in SAI.
    pub const GAP: u64 = 256_000;
}

/// The rule by which a flow gets a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyMode {
    /// A random number decides, in the proportion of the weights (`LetFlow`).
    Flowlet,
    /// The best band decides, and among equal bands the hash.
    Adaptive(Adaptive),
    /// The best band decides, too. The band of a member is the worse one of two: that of the own link, and that of the
    /// links from the next hop to the nodes of the profile ([`FarPorts`](crate::FarPorts)). Without a profile, and
    /// where nothing is known of those links, the own link alone decides.
    Global(Adaptive, Option<Profile>),
}

impl PolicyMode {
    /// Returns the rules by which bands decide. `None`: bands do not decide.
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

/// The rules by which bands decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptive {
    /// The rule that makes a band of a score.
    pub scale: BandScale,
    /// Whether a flow may move between two packets that are close to each other. This reorders packets.
    pub reactive: Option<Reactive>,
}

/// Rules for moves within a flowlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reactive {
    /// Number of bands by which the best member has to be better. It is not 0.
    pub delta: u8,
    /// Chance that a packet then moves its flow, in parts of 2³².
    pub chance: u32,
}
