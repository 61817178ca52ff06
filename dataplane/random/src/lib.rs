//! Random numbers that follow from a seed: the same seed gives the same numbers, in every version of srv6d.

/// The step from one state of a generator to the next one.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A generator of random numbers: `SplitMix64` (Steele, Lea and Flood: Fast splittable pseudorandom number generators,
/// 2014).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates the generator with this seed. The numbers of seeds side by side have nothing in common.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    #[inline]
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those of Java's `SplittableRandom(1234567)`.
    #[test]
    fn numbers_are_those_of_the_reference() {
        let mut random = SplitMix64::new(1_234_567);
        let numbers = [(); 5].map(|()| random.draw());
        let reference = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(numbers, reference);
    }
}
