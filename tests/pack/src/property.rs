//! Properties of all frames of a case together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::expect::Diff;

/// A property that the frames sent in a case must have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Property {
    /// No two frames have the same outer flow label.
    FlDistinct,
    /// All frames have the same outer flow label.
    FlEqual,
    /// Each of the five hexadecimal digits of the flow label is spread evenly over its 16 values.
    FlUniform,
    /// Every port that may be used carries at least half of an even share.
    PortSpread,
    /// All frames leave through one port.
    PortEqual,
}

/// Limit of chi-square with 15 degrees of freedom; one of 100000 fair draws exceeds it.
const CHI_SQUARE_LIMIT: f64 = 50.5;

impl Property {
    /// Checks the frames that were sent, each with its port.
    ///
    /// # Errors
    /// [`Diff`] with the numbers that were counted.
    pub fn check(self, ports: &[&str], frames: &[(String, Vec<u8>)]) -> Result<(), Diff> {
        let mut labels = BTreeMap::<u32, usize>::new();
        for label in frames.iter().filter_map(|(_, frame)| flow_label(frame)) {
            *labels.entry(label).or_default() += 1;
        }
        let mut used = BTreeMap::<&str, usize>::new();
        for (port, _) in frames {
            *used.entry(port).or_default() += 1;
        }
        let verdict = match self {
            Self::FlDistinct => (labels.len() == frames.len()).then_some(()).ok_or_else(|| format!("{labels:x?}")),
            Self::FlEqual => (labels.len() == 1).then_some(()).ok_or_else(|| format!("{labels:x?}")),
            Self::FlUniform => uniform(&labels),
            Self::PortSpread => {
                let share = frames.len() / ports.len().max(1) / 2;
                let thin = ports.iter().any(|port| used.get(port).is_none_or(|&count| count < share));
                if thin { Err(format!("{used:?}")) } else { Ok(()) }
            }
            Self::PortEqual => (used.len() == 1).then_some(()).ok_or_else(|| format!("{used:?}")),
        };
        verdict.map_err(|counted| Diff::new(format!("{self:?} does not hold for {} frames: {counted}", frames.len())))
    }
}

/// Returns the flow label of the outermost IPv6 header.
fn flow_label(frame: &[u8]) -> Option<u32> {
    let at = if frame.get(12..14)? == [0x81, 0x00] { 18 } else { 14 };
    frame.get(at..)?.first_chunk::<4>().map(|&first| u32::from_be_bytes(first) & 0xf_ffff)
}

fn uniform(labels: &BTreeMap<u32, usize>) -> Result<(), String> {
    for digit in 0..5 {
        let mut counts = [0usize; 16];
        for (label, times) in labels {
            if let Some(count) = counts.get_mut((label >> (digit * 4) & 0xf) as usize) {
                *count += times;
            }
        }
        // Chi-square in integers: sum of (16 n - total)^2 / (16 total).
        let total: usize = counts.iter().sum();
        let square: usize = counts.iter().map(|count| (count * 16).abs_diff(total).pow(2)).sum();
        #[expect(clippy::cast_precision_loss, reason = "some thousand frames")]
        let chi_square = square as f64 / (16 * total).max(1) as f64;
        if total == 0 || chi_square > CHI_SQUARE_LIMIT {
            return Err(format!("hexadecimal digit {digit} (from the right): {counts:?}, chi-square {chi_square:.1}"));
        }
    }
    Ok(())
}
