//! Load per capacity of a link, compared without rounding.

use std::cmp::Ordering;

/// Load of a link as a share of its capacity.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    /// Load, in the unit of demands.
    pub load: u64,
    /// Capacity, in the same unit; never 0.
    pub capacity: u64,
}

impl Ratio {
    /// The ratio of a link without load.
    pub const ZERO: Self = Self { load: 0, capacity: 1 };

    /// Returns the ratio as a floating-point number.
    #[allow(clippy::cast_precision_loss, reason = "demands and capacities are far below 2^53")]
    pub fn value(self) -> f64 {
        if self.load == 0 { 0.0 } else { self.load as f64 / self.capacity as f64 }
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        let cross = |one: u64, other: u64| u128::from(one) * u128::from(other);
        cross(self.load, other.capacity).cmp(&cross(other.load, self.capacity))
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ratio {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_halves() {
        assert_eq!(Ratio { load: 1, capacity: 2 }, Ratio { load: 50, capacity: 100 });
        assert!(Ratio { load: 2, capacity: 3 } < Ratio { load: 3, capacity: 4 });
        assert!(Ratio::ZERO < Ratio { load: 1, capacity: u64::MAX });
    }
}
