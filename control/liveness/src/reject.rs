//! Reasons for which answers are refused, and their counters.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// The reason why a datagram is no answer to a probe.
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
    /// It came in by a port on which no probe comes back.
    Port = "port",
    /// It has another length than a probe.
    Length = "length",
    /// This process has not sealed it.
    Seal = "seal",
    /// It belongs to a loop that is no longer probed.
    Loop = "loop",
    /// No probe with this number waits for an answer: it was never sent, or long ago.
    Sequence = "sequence",
    /// The probe has been answered before.
    Again = "again",
}

/// Numbers of datagrams that were refused, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused([u64; Reject::ALL.len()]);

impl Refused {
    /// Counts a refused datagram.
    pub fn count(&mut self, reject: Reject) {
        if let Some(counter) = self.0.get_mut(reject as usize) {
            *counter += 1;
        }
    }

    /// Returns the number of datagrams that were refused for this reason.
    pub fn of(&self, reject: Reject) -> u64 {
        self.0.get(reject as usize).copied().unwrap_or_default()
    }
}
