//! Measures how busy a port is, and rates it by a band of quality.

/// Number of fraction bits of averages, which are fixed-point numbers.
const FRACTION: u32 = 8;
/// Weight of a new sample in the average, as a power of two: it counts for one part in 2² (SAI).
const AVERAGING: u32 = 2;
/// Largest number of missed samples that is counted. After so many samples an average no longer depends on earlier ones.
const MOST_SAMPLES: u64 = 32;
/// Smallest change of a score, in permille, that is used. It is 5 % of the width of a band, so that a load near the
/// edge of a band does not change the band every time.
const HYSTERESIS: u16 = 6;
/// The whole of a share, in permille.
const FULL: u64 = 1000;
/// Largest score.
const WORST: u16 = 1000;

/// Quality of a member, 0 to 7. 7 is the best.
pub type Band = u8;

/// The best band.
const BEST: Band = 7;

/// The rule that turns a score into a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandScale {
    /// The band follows from the capacity that is left, compared with that of the fastest member of the group.
    Available,
    /// The band follows from the score alone: the best band up to `low`, the worst from `high` on, in permille.
    Relative {
        /// Score up to which the band is the best.
        low: u16,
        /// Score from which the band is the worst. It is above `low`.
        high: u16,
    },
}

impl BandScale {
    /// Returns the band of a member. `score` is its score, and `capacity` its capacity in permille of that of the
    /// group's fastest member.
    pub fn band(self, score: u16, capacity: u16) -> Band {
        match self {
            Self::Available => {
                let left = u32::from(WORST.saturating_sub(score)) * u32::from(capacity) * 8 / 1_000_000;
                Band::try_from(left).unwrap_or(BEST).min(BEST)
            }
            Self::Relative { low, .. } if score <= low => BEST,
            Self::Relative { high, .. } if score >= high => 0,
            Self::Relative { low, high } => {
                let (above, width) = (u32::from(score - low), u32::from(high - low));
                BEST - 1 - Band::try_from(above * 6 / width).unwrap_or(BEST - 1).min(BEST - 1)
            }
        }
    }
}

/// Returns the band of a member from the band of this node's own port and from that of the next node's port, if it is known:
/// the worse one.
pub fn combined(own: Band, far: Option<Band>) -> Band {
    far.map_or(own, |far| own.min(far))
}

/// Returns the score that is used after `before`: the new one, unless it hardly differs.
pub fn settled(score: u16, before: u16) -> u16 {
    if score.abs_diff(before) > HYSTERESIS || score == 0 { score } else { before }
}

/// What a port shows at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Bytes sent so far.
    pub sent_bytes: u64,
    /// Bytes in the queue.
    pub queue: u64,
}

/// Averages of a port, and the score that they make.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// Bits per second of the port. It is not 0.
    rate: u64,
    /// Bytes in the queue that count as a full one. 0: the queue is not known.
    full_queue: u64,
    /// Share of the load in the score, in percent. The rest is that of the queue.
    rate_weight: u8,
    last: u64,
    sent_bytes: u64,
    load: u32,
    queue: u32,
    score: u16,
}

impl Sampler {
    /// Default share of the load in the score, in percent.
    pub const RATE_WEIGHT: u8 = 50;

    /// Creates the sampler of an idle port. `rate` is in bit/s, `full_queue` in bytes, `now` in nanoseconds.
    pub fn new(rate: u64, full_queue: u64, rate_weight: u8, now: u64, sent_bytes: u64) -> Self {
        let rate_weight = rate_weight.min(100);
        Self { rate: rate.max(1), full_queue, rate_weight, last: now, sent_bytes, load: 0, queue: 0, score: 0 }
    }

    /// Changes the settings of the port, and keeps the averages.
    pub fn change(&mut self, rate: u64, full_queue: u64, rate_weight: u8) {
        (self.rate, self.full_queue, self.rate_weight) = (rate.max(1), full_queue, rate_weight.min(100));
    }

    /// Bits per second of the port.
    pub const fn rate(&self) -> u64 {
        self.rate
    }

    /// How busy the port is: 0 is idle, 1000 is full.
    pub const fn score(&self) -> u16 {
        self.score
    }

    /// Average load in permille.
    pub fn load(&self) -> u16 {
        whole(self.load)
    }

    /// Average share of the queue that is full, in permille.
    pub fn queue(&self) -> u16 {
        whole(self.queue)
    }

    /// Takes a sample of the port if an interval is over. Samples are due every `interval` nanoseconds. If some were
    /// missed, the average load since the last one counts for each of them.
    pub fn sample(&mut self, now: u64, interval: u64, shown: Sample) {
        let elapsed = now.saturating_sub(self.last);
        let samples = (elapsed / interval.max(1)).min(MOST_SAMPLES);
        if samples == 0 {
            return;
        }
        let sent = shown.sent_bytes.saturating_sub(self.sent_bytes);
        (self.last, self.sent_bytes) = (now, shown.sent_bytes);
        let load = permille(u128::from(sent) * 8 * 1_000_000_000, u128::from(self.rate) * u128::from(elapsed));
        let queue = permille(shown.queue.into(), self.full_queue.into());
        for _ in 0..samples {
            self.load = averaged(self.load, load);
            self.queue = averaged(self.queue, queue);
        }
        self.score = settled(self.present_score(), self.score);
    }

    fn present_score(&self) -> u16 {
        if self.full_queue == 0 {
            return self.load();
        }
        let weight = u32::from(self.rate_weight);
        let score = (weight * u32::from(self.load()) + (100 - weight) * u32::from(self.queue())) / 100;
        u16::try_from(score).unwrap_or(WORST)
    }
}

fn permille(part: u128, whole: u128) -> u32 {
    let share = (part * u128::from(FULL)).checked_div(whole).unwrap_or(0);
    u32::try_from(share.min(u128::from(FULL))).unwrap_or_default()
}

/// Returns the average after one more sample. A step is never 0 before the average has reached the sample, so the
/// average of a constant load becomes that load.
fn averaged(average: u32, sample: u32) -> u32 {
    let sample = sample << FRACTION;
    let step = |distance: u32| (distance >> AVERAGING).max(distance.min(1));
    if sample >= average { average + step(sample - average) } else { average - step(average - sample) }
}

fn whole(average: u32) -> u16 {
    u16::try_from(average >> FRACTION).unwrap_or(WORST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const RATE: u64 = 100_000_000;

    #[test]
    fn bands_by_the_score_alone() {
        let scale = BandScale::Relative { low: 200, high: 900 };
        let bands = [0, 200, 201, 316, 317, 434, 551, 668, 784, 899, 900, 1000].map(|score| scale.band(score, 1000));
        assert_eq!(bands, [7, 7, 6, 6, 5, 4, 3, 2, 1, 1, 0, 0]);
    }

    #[test]
    fn bands_by_the_capacity_that_is_left() {
        let cases = [(0, 1000), (126, 1000), (500, 1000), (1000, 1000), (0, 250), (500, 250), (0, 100)];
        let bands = cases.map(|(score, capacity)| BandScale::Available.band(score, capacity));
        assert_eq!(bands, [7, 6, 4, 0, 2, 1, 0]);
    }

    #[test]
    fn an_idle_slow_link_is_no_better_than_a_busy_fast_one_with_more_left() {
        for (slow, busy) in [(250, 500), (100, 800), (500, 400)] {
            let fast = BandScale::Available.band(busy, 1000);
            assert!(BandScale::Available.band(0, slow) <= fast, "{slow} permille, idle, beside a load of {busy}");
        }
    }

    /// Returns the bands in use while the port sends these shares of its rate, one for each millisecond.
    fn bands(loads: impl IntoIterator<Item = u64>, scale: BandScale) -> Vec<Band> {
        let mut sampler = Sampler::new(RATE, 0, Sampler::RATE_WEIGHT, 0, 0);
        let mut sent_bytes = 0;
        let mut now = 0;
        loads
            .into_iter()
            .map(|permille| {
                now += MS;
                sent_bytes += RATE / 8 / 1000 * permille / 1000;
                sampler.sample(now, MS, Sample { sent_bytes, queue: 0 });
                scale.band(sampler.score(), 1000)
            })
            .collect()
    }

    #[test]
    fn a_constant_load_becomes_its_band() {
        for (load, band) in [(0, 7), (100, 7), (135, 6), (300, 5), (510, 3), (800, 1), (1000, 0), (1100, 0)] {
            let bands = bands(std::iter::repeat_n(load, 100), BandScale::Available);
            assert_eq!(bands.last(), Some(&band), "{load} permille: {bands:?}");
        }
    }

    #[test]
    fn a_load_that_wavers_about_an_edge_does_not_change_the_band_every_time() {
        for offset in 0..10 {
            let loads = (0..1000).map(|ms| if (ms + offset) / 5 % 2 == 0 { 480 } else { 520 });
            let wavering = (0..1000).map(|ms| if ms % 2 == 0 { 480 } else { 520 });
            for (name, bands) in [
                ("every millisecond", bands(wavering, BandScale::Available)),
                ("every 5 ms, averaged", bands(loads.map(|load| (load + 500 * 9) / 10), BandScale::Available)),
            ] {
                let settled = bands.get(100..).unwrap_or_default();
                let changes = settled.windows(2).filter(|pair| matches!(pair, [a, b] if a != b)).count();
                assert!(changes <= 1, "{name}: {changes} changes in a second");
            }
        }
    }

    #[test]
    fn a_queue_counts_beside_the_load() {
        let mut sampler = Sampler::new(RATE, 100_000, 50, 0, 0);
        (1..=100).for_each(|ms| sampler.sample(ms * MS, MS, Sample { sent_bytes: 0, queue: 100_000 }));
        assert_eq!((sampler.load(), sampler.queue()), (0, 1000));
        assert!(sampler.score().abs_diff(500) <= HYSTERESIS, "{}", sampler.score());
        sampler.change(RATE, 100_000, 0);
        sampler.sample(101 * MS, MS, Sample { sent_bytes: 0, queue: 100_000 });
        assert_eq!(sampler.score(), 1000, "only the queue counts");
    }

    #[test]
    fn samples_that_were_left_out_count() {
        let (mut often, mut once) = (Sampler::new(RATE, 0, 50, 0, 0), Sampler::new(RATE, 0, 50, 0, 0));
        let bytes = RATE / 8 / 1000;
        (1..=8).for_each(|ms| often.sample(ms * MS, MS, Sample { sent_bytes: ms * bytes, queue: 0 }));
        once.sample(8 * MS, MS, Sample { sent_bytes: 8 * bytes, queue: 0 });
        assert_eq!(often.score(), once.score());
        once.sample(u64::MAX, MS, Sample { sent_bytes: 8 * bytes, queue: 0 });
        assert_eq!(once.score(), 0, "idle for long");
    }

    #[test]
    fn the_worse_of_two_links_counts() {
        assert_eq!([combined(7, Some(2)), combined(3, Some(6)), combined(5, None)], [2, 3, 5]);
    }
}
