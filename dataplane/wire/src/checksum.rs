//! Internet checksum (RFC 1071) and its incremental form (RFC 1624).

/// Returns the unfolded sum of 16-bit words; an odd last byte is padded with zero.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(2);
    let even: u64 = words.by_ref().map(|pair| pair.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))).sum();
    even + words.remainder().first().map_or(0, |&last| u64::from(last) << 8)
}

/// Returns the unfolded sum of the first `len` bytes of consecutive segments, as if they were one slice.
pub fn sum_of_segments<'a>(segments: impl IntoIterator<Item = &'a [u8]>, len: usize) -> u64 {
    let (mut total, mut done) = (0, 0);
    for segment in segments {
        let bytes = segment.get(..len - done).unwrap_or(segment);
        total += at_offset(sum(bytes), done);
        done += bytes.len();
    }
    total
}

/// Returns the part of a message's checksum sum that comes from some bytes at `offset`. `sum` is the sum of these bytes
/// alone. At an odd offset the two bytes of each word change places.
pub fn at_offset(sum: u64, offset: usize) -> u64 {
    if offset.is_multiple_of(2) { sum } else { u64::from(fold(sum).swap_bytes()) }
}

/// Folds a sum and complements it.
#[inline]
pub fn finish(sum: u64) -> u16 {
    !fold(sum)
}

#[inline]
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Returns the checksum of `bytes`. It is 0 if they contain their own correct checksum.
pub fn of(bytes: &[u8]) -> u16 {
    finish(sum(bytes))
}

/// Returns the checksum after one 16-bit word has changed from `old` to `new`.
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

    #[test]
    fn segments_of_odd_lengths_count_as_one_slice() {
        let bytes: Vec<u8> = (0..41u8).map(|byte| byte.wrapping_mul(7)).collect();
        for len in [0, 1, 8, 20, 41] {
            for (first, second) in [(0, 0), (1, 2), (7, 8), (13, 40), (20, 20), (41, 41)] {
                let segments = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(finish(sum_of_segments(segments, len)), of(&bytes[..len]), "{len} of {first}, {second}");
            }
        }
    }
}
