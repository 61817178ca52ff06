//! Version of the running kernel.

/// Returns the major and minor version of the running kernel, or `None` if `/proc` does not show it.
pub fn this() -> Option<(u32, u32)> {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|release| version(&release))
}

/// Returns the major and minor version of a release such as `6.1.0-13-amd64`. A missing number is 0.
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
