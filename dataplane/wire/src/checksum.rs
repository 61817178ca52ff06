//! Internet checksum (RFC 1071) and its incremental form (RFC 1624).

/// Unfolded sum of 16-bit words; an odd last byte is padded with zero.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(2);
    let even: u64 = words.by_ref().map(|pair| pair.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))).sum();
    even + words.remainder().first().map_or(0, |&last| u64::from(last) << 8)
}

/// Folds a sum and complements it.
#[inline]
pub fn finish(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

/// Checksum of `bytes`; 0 over bytes that contain their own right checksum.
pub fn of(bytes: &[u8]) -> u16 {
    finish(sum(bytes))
}

/// The checksum after one 16-bit word changed from `old` to `new`.
#[inline]
pub fn replace(checksum: u16, old: u16, new: u16) -> u16 {
    finish(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)] // a failed test may panic
mod tests {
    use super::*;

    #[test]
    fn incremental_equals_full() {
        let mut bytes = [0x45u8, 0, 0, 30, 1, 2, 3, 4, 5, 6, 0, 0, 9];
        let before = of(&bytes);
        bytes[4] = 0xff;
        assert_eq!(replace(before, 0x0102, 0xff02), of(&bytes));
    }
}
