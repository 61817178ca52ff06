//! The ports behind neighbours: how busy they are, as the neighbours say.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::bands::{Band, BandScale};

/// Load and rate of a port at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortState {
    /// How busy it is: 0 is idle, 1000 is full.
    pub score: u16,
    /// Bits per second. 0: unknown, which counts as the fastest.
    pub rate: u64,
}

impl PortState {
    /// Returns the band of the port. `fastest` is the rate of the group's fastest port, in bit/s.
    pub fn band(self, scale: BandScale, fastest: u64) -> Band {
        const ALL: u64 = 1000;
        let capacity = match self.rate {
            0 => ALL,
            rate => (rate.min(fastest) * ALL).checked_div(fastest).unwrap_or(ALL),
        };
        scale.band(self.score, u16::try_from(capacity).unwrap_or(u16::MAX))
    }
}

/// Number of a set of nodes behind a neighbour, below [`FarPorts::MOST_PROFILES`].
pub type Profile = u8;

/// What is known of the ports behind neighbours, by neighbour and profile. One thread writes it, and workers read it
/// without a lock.
#[derive(Debug)]
pub struct FarPorts(Box<[AtomicU64]>);

/// Bit of an entry: its contents are known.
const KNOWN: u64 = 1 << 63;
/// Position of the score in an entry. The bits below it are the rate in Mbit/s.
const SCORE: u32 = 32;
const SCORE_MASK: u64 = 0xffff;
const MEGABIT: u64 = 1_000_000;

impl Default for FarPorts {
    fn default() -> Self {
        Self((0..Self::MOST_NEIGHBORS * Self::MOST_PROFILES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl FarPorts {
    /// Largest number of neighbours.
    pub const MOST_NEIGHBORS: usize = 256;
    /// Largest number of profiles, as in switches (Junos, Apstra).
    pub const MOST_PROFILES: usize = 64;

    /// Sets what is known of the ports between a neighbour and the nodes of a profile. `None`: nothing is known.
    pub fn set(&self, neighbor: u8, profile: Profile, state: Option<PortState>) {
        let packed = state.map_or(0, |PortState { score, rate }| {
            KNOWN | u64::from(score) << SCORE | (rate / MEGABIT).min(u32::MAX.into())
        });
        if let Some(place) = self.place(neighbor, profile) {
            place.store(packed, Relaxed);
        }
    }

    /// Returns what is known of the ports between a neighbour and the nodes of a profile.
    pub fn get(&self, neighbor: u8, profile: Profile) -> Option<PortState> {
        let packed = self.place(neighbor, profile)?.load(Relaxed);
        let score = u16::try_from(packed >> SCORE & SCORE_MASK).unwrap_or_default();
        (packed & KNOWN != 0).then_some(PortState { score, rate: (packed & u64::from(u32::MAX)) * MEGABIT })
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.0.iter().for_each(|place| place.store(0, Relaxed));
    }

    fn place(&self, neighbor: u8, profile: Profile) -> Option<&AtomicU64> {
        let profile = Some(usize::from(profile)).filter(|profile| *profile < Self::MOST_PROFILES)?;
        self.0.get(usize::from(neighbor) * Self::MOST_PROFILES + profile)
    }
}

/// Returns a port that stands for several: it has the mean of their rates, and the mean of their free capacities.
/// Returns `None` if there are no ports.
pub fn mean(ports: &[PortState]) -> Option<PortState> {
    const ALL: u64 = 1000;
    let count = u64::try_from(ports.len()).ok().filter(|count| *count > 0)?;
    let in_megabits = |port: &PortState| port.rate / MEGABIT;
    let sum: u64 = ports.iter().map(in_megabits).sum();
    let busy: u64 = ports.iter().map(|port| in_megabits(port) * u64::from(port.score)).sum();
    let score = busy.checked_div(sum).unwrap_or(ALL).min(ALL);
    Some(PortState { score: u16::try_from(score).unwrap_or(u16::MAX), rate: sum / count * MEGABIT })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: u64 = 1_000_000_000;

    #[test]
    fn what_is_set_is_read_at_its_place_only() {
        let far = FarPorts::default();
        let state = PortState { score: 1000, rate: 800 * GIGABIT };
        far.set(255, 63, Some(state));
        assert_eq!((far.get(255, 63), far.get(255, 62), far.get(254, 63)), (Some(state), None, None));
        far.set(0, 0, Some(PortState { score: 0, rate: u64::MAX }));
        assert_eq!(far.get(0, 0).map(|state| state.rate), Some(u64::from(u32::MAX) * MEGABIT), "the most that fits");
        far.set(1, 64, Some(state));
        assert_eq!((far.get(1, 64), far.get(2, 0)), (None, None), "there are 64 profiles");
        far.set(255, 63, None);
        assert_eq!(far.get(255, 63), None);
        far.clear();
        assert_eq!(far.get(0, 0), None);
    }

    #[test]
    fn several_ports_are_as_good_as_their_mean() {
        let port = |score, gigabits| PortState { score, rate: gigabits * GIGABIT };
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[port(300, 25)]), Some(port(300, 25)));
        // 100 and 20 Gbit are left, of 100 and 40.
        assert_eq!(mean(&[port(0, 100), port(500, 40)]), Some(port(142, 70)));
        assert_eq!(mean(&[port(1000, 0)]), Some(port(1000, 0)), "a port without a rate carries nothing");
    }
}
