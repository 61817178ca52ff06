//! The version of the running kernel.

/// Major and minor version of the running kernel; `None` where `/proc` does not tell.
pub fn this() -> Option<(u32, u32)> {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|release| version(&release))
}

/// Major and minor version in a release such as `6.1.0-13-amd64`; a number that is missing is 0.
pub fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn a_release_begins_with_two_numbers() {
        assert_eq!(version("6.1.0-13-amd64"), (6, 1));
        assert_eq!(version("6.18-rc1"), (6, 18));
        assert_eq!(version("7"), (7, 0));
        assert_eq!(version(""), (0, 0));
    }
}
