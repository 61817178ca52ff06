//! Order of names that contain numbers: `Ethernet4` before `Ethernet16`.

use std::cmp::Ordering;

/// Compares two names: text as text, and the numbers in them as numbers.
pub fn compare(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    while !one.is_empty() && !other.is_empty() {
        let (left, right) = (part(one), part(other));
        let order = match (number(left), number(right)) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => left.cmp(right),
        };
        if order != Ordering::Equal {
            return order;
        }
        (one, other) = (one.get(left.len()..).unwrap_or_default(), other.get(right.len()..).unwrap_or_default());
    }
    one.len().cmp(&other.len())
}

/// Returns the beginning of `text` that consists only of digits, or only of other characters.
fn part(text: &str) -> &str {
    let digit = text.starts_with(|first: char| first.is_ascii_digit());
    let end = text.find(|next: char| next.is_ascii_digit() != digit).unwrap_or(text.len());
    text.get(..end).unwrap_or(text)
}

fn number(part: &str) -> Option<u128> {
    part.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let mut names = ["Ethernet16", "Vlan100", "Ethernet4", "Ethernet0", "Loopback0", "Ethernet120", "Ethernet4.10"];
        names.sort_by(|a, b| compare(a, b));
        let sorted = ["Ethernet0", "Ethernet4", "Ethernet4.10", "Ethernet16", "Ethernet120", "Loopback0", "Vlan100"];
        assert_eq!(names, sorted);
    }

    #[test]
    fn what_is_too_long_for_a_number_is_text() {
        let long = "9".repeat(60);
        assert_eq!(compare(&long, &long), Ordering::Equal);
        assert_eq!(compare("a", "a1"), Ordering::Less);
    }
}
