//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

/// Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Returns true if the address is a multicast or broadcast address (group bit).
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&bytes.join(":"))
    }
}

/// Error: the text is not six hexadecimal bytes with colons between them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MAC address such as 02:00:00:00:00:01")]
pub struct MacParseError(String);

impl FromStr for Mac {
    type Err = MacParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut mac = [0u8; 6];
        let mut groups = text.split(':');
        for byte in &mut mac {
            *byte = groups
                .next()
                .filter(|group| group.len() == 2)
                .and_then(|group| u8::from_str_radix(group, 16).ok())
                .ok_or_else(|| MacParseError(text.to_owned()))?;
        }
        groups.next().is_none().then_some(Self(mac)).ok_or_else(|| MacParseError(text.to_owned()))
    }
}
