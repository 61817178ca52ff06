//! Reasons for which heartbeats are refused, and their counters.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// The reason why a heartbeat is refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reject {
            $($(#[$doc])* $name,)*
        }

        impl Reject {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the name of the reason's counter.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }
    };
}

reasons! {
    /// It has come through a router: the hop limit is not 255.
    Ttl = "ttl",
    /// No neighbour that sends heartbeats is expected on the port.
    Port = "port",
    /// It does not begin with `SRQH`.
    Magic = "magic",
    /// It is of another version.
    Version = "version",
    /// A flag of the heartbeat or of an entry is not known.
    Flag = "flag",
    /// The sender has a role in which nodes send no heartbeats.
    Role = "role",
    /// It has more than 64 entries.
    Entries = "entries",
    /// Its length does not fit the number of entries.
    Length = "length",
    /// The node id is 0.
    NoNode = "no-node",
    /// The node id is that of this node.
    OwnNode = "own-node",
    /// It is not signed, and a key is configured.
    Unsigned = "unsigned",
    /// The signature is wrong, or made with another key.
    Signature = "signature",
    /// A band is larger than 7.
    Band = "band",
    /// A load or a queue is more than 100 %.
    Percent = "percent",
    /// The neighbour of an entry is 0.
    NoNeighbor = "no-neighbor",
    /// Two entries have the same neighbour.
    NeighborTwice = "neighbor-twice",
    /// It is not newer than the last heartbeat of the node: it came late, or was replayed.
    Sequence = "sequence",
    /// It is not from the node at the other end of the port.
    Neighbor = "neighbor",
}

/// Numbers of heartbeats that were refused, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters([u64; Reject::ALL.len()]);

impl Counters {
    /// Counts a refused heartbeat.
    pub(crate) fn count(&mut self, reject: Reject) {
        if let Some(counter) = self.0.get_mut(reject as usize) {
            *counter += 1;
        }
    }

    /// Returns the number of heartbeats that were refused for this reason.
    pub fn of(&self, reject: Reject) -> u64 {
        self.0.get(reject as usize).copied().unwrap_or_default()
    }

    /// Returns the number of all refused heartbeats.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
