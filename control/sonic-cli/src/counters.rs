//! Counters that `sonic-clear` sets back to zero for one user.

use std::collections::BTreeMap;

/// The values of one row at the time when they were cleared.
pub type Values = Vec<u64>;

/// The counters of rows at some moment, by SID or port.
pub type Sample = BTreeMap<String, Values>;

/// Returns what has been counted since `cleared`. A value below the stored one means that the counter itself began
/// anew. Then the present values and `false` are returned, because the stored values are of no more use.
pub fn since(now: &Sample, cleared: &Sample) -> (Sample, bool) {
    let began_anew = now.iter().any(|(name, values)| {
        let before = cleared.get(name).into_iter().flatten();
        values.iter().zip(before).any(|(value, before)| value < before)
    });
    if began_anew {
        return (now.clone(), false);
    }
    let nothing = Values::new();
    let rows = now.iter().map(|(name, values)| {
        let before = cleared.get(name).unwrap_or(&nothing).iter().copied().chain(std::iter::repeat(0));
        (name.clone(), values.iter().zip(before).map(|(value, before)| value.saturating_sub(before)).collect())
    });
    (rows.collect(), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rows: &[(&str, &[u64])]) -> Sample {
        rows.iter().map(|(name, values)| ((*name).to_owned(), values.to_vec())).collect()
    }

    #[test]
    fn counting_goes_on_from_where_it_was_cleared() {
        let cleared = sample(&[("a", &[10, 1000])]);
        let (shown, valid) = since(&sample(&[("a", &[12, 1200]), ("b", &[3, 300])]), &cleared);
        assert_eq!((shown, valid), (sample(&[("a", &[2, 200]), ("b", &[3, 300])]), true));
    }

    #[test]
    fn a_counter_that_began_anew_is_shown_as_it_is() {
        let now = sample(&[("a", &[2, 200]), ("b", &[30, 300])]);
        assert_eq!(since(&now, &sample(&[("a", &[10, 1000]), ("b", &[10, 100])])), (now, false));
    }
}
