//! Random numbers that depend on a name only.

/// A generator of random numbers (`SplitMix64`), which gives the same ones for the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draws(u64);

impl Draws {
    /// Creates the generator of a port with this name.
    pub fn named(name: &str) -> Self {
        // FNV-1a
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(hash)
    }

    /// Returns the next two numbers.
    pub fn pair(&mut self) -> [u32; 2] {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let word = word ^ word >> 31;
        [word >> 32, word & 0xffff_ffff].map(|half| u32::try_from(half).unwrap_or_default())
    }
}
