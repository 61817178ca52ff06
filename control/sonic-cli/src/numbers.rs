//! Formats numbers as SONiC does.

/// Formats a number with commas: `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats the speed of a port, given in Mb/s: `40G`, `2.5G`, `100M`.
pub fn speed(megabits: u32) -> String {
    if megabits < 1000 {
        format!("{megabits}M")
    } else if megabits.is_multiple_of(1000) {
        format!("{}G", megabits / 1000)
    } else {
        format!("{:.1}G", f64::from(megabits) / 1000.0)
    }
}

/// Formats bytes per second with decimal prefixes: `0.00 B/s`, `11.25 KB/s`, `653.87 MB/s`. There is no GB.
pub fn rate(bytes_per_second: f64) -> String {
    if bytes_per_second > 10_000_000.0 {
        format!("{:.2} MB/s", bytes_per_second / 1_000_000.0)
    } else if bytes_per_second > 10_000.0 {
        format!("{:.2} KB/s", bytes_per_second / 1000.0)
    } else {
        format!("{bytes_per_second:.2} B/s")
    }
}

/// Formats the used share of a port's speed in percent: `13.08%`. `N/A` for a port without a speed.
pub fn utilization(bytes_per_second: f64, megabits: u32) -> String {
    if megabits == 0 {
        return "N/A".to_owned();
    }
    format!("{:.2}%", bytes_per_second * 8.0 / (f64::from(megabits) * 1_000_000.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_have_commas() {
        assert_eq!([0, 999, 1000, 409_682, 1_234_567].map(thousands), ["0", "999", "1,000", "409,682", "1,234,567"]);
    }

    #[test]
    fn speeds_are_whole_where_they_can_be() {
        assert_eq!([100, 1000, 2500, 40_000, 400_000].map(speed), ["100M", "1G", "2.5G", "40G", "400G"]);
    }

    #[test]
    fn rates_change_their_unit_above_ten_thousand_and_ten_million() {
        assert_eq!(
            [0.0, 10_000.0, 11_250.0, 653_870_000.0, 6_538_700_000.0].map(rate),
            ["0.00 B/s", "10000.00 B/s", "11.25 KB/s", "653.87 MB/s", "6538.70 MB/s"]
        );
    }

    #[test]
    fn utilization_is_bits_of_the_speed() {
        assert_eq!(utilization(653_870_000.0, 40_000), "13.08%");
        assert_eq!(utilization(1.0, 0), "N/A");
    }
}
