//! Median and spread, and numbers in sentences.

use serde::{Deserialize, Serialize};

/// Median and range of several measurements of the same quantity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Lower end of the range: the smallest value.
    pub low: f64,
    /// Upper end of the range: the largest value.
    pub high: f64,
    /// Number of values.
    pub count: usize,
}

impl Spread {
    /// Computes median and range, or returns `None` if there are no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let upper = *values.get(values.len() / 2)?;
        let lower = *values.get((values.len() - 1) / 2)?;
        Some(Self { median: f64::midpoint(lower, upper), low, high, count: values.len() })
    }

    /// Like [`Spread::of`], but with the quartiles as ends of the range, because with hundreds of values the extremes
    /// mean little.
    pub fn of_many(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let quarter = values.len() / 4;
        let (low, high) = (*values.get(quarter)?, *values.get(values.len() - 1 - quarter)?);
        Self::of(values).map(|all| Self { low, high, ..all })
    }

    /// Formats median and range, multiplied by `factor`, with this number of digits: `1.68 [1.07-1.76]`.
    pub fn shown(&self, factor: f64, digits: usize) -> String {
        let [median, low, high] = [self.median, self.low, self.high].map(|value| value * factor);
        if self.count == 1 {
            return format!("{median:.digits$}");
        }
        format!("{median:.digits$} [{low:.digits$}-{high:.digits$}]")
    }
}

/// Formats a number with its noun: `1 queue`, `2 queues`.
pub fn number_of(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "a failure is the test's failure")]

    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.low, spread.high, spread.count), (2.5, 1.0, 4.0, 4));
        assert_eq!(Spread::of([3.0, 9.0, 1.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!((number_of(1, "queue"), number_of(2, "queue")), ("1 queue".to_owned(), "2 queues".to_owned()));
    }

    #[test]
    fn a_spread_is_shown_with_its_ends() {
        assert_eq!(Spread::of([1.0e6, 2.0e6]).unwrap().shown(1e-6, 2), "1.50 [1.00-2.00]");
        assert_eq!(Spread::of([1.0]).unwrap().shown(1.0, 1), "1.0");
    }
}
