//! Random numbers that depend on a name only.

use srv6d_random::SplitMix64;

/// A generator of random numbers that depend only on a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draws(SplitMix64);

impl Draws {
    /// Creates the generator of a port with this name.
    pub fn named(name: &str) -> Self {
        // FNV-1a
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(SplitMix64::new(hash))
    }

    /// Returns the next two numbers.
    pub fn pair(&mut self) -> [u32; 2] {
        let word = self.0.draw();
        [word >> 32, word & 0xffff_ffff].map(|half| u32::try_from(half).unwrap_or_default())
    }
}
