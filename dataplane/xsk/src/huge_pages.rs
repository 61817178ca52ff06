//! Huge pages for memory that is there already.

use std::ops::Range;

/// Size of a huge page, on x86-64 and with 4 kB pages elsewhere.
const HUGE: usize = 2 << 20;

/// Moves what is in this memory to huge pages, as far as whole ones fit in and the kernel has them (Linux 6.1:
/// `MADV_COLLAPSE`). Nothing is moved otherwise, and it is as good as before.
pub fn in_huge_pages(memory: Range<*const u8>) {
    let start = (memory.start as usize).next_multiple_of(HUGE);
    let end = memory.end as usize / HUGE * HUGE;
    if start < end {
        // SAFETY: the kernel changes which pages are behind these addresses and nothing of what is in them, whosever they
        // are; where there is no memory, it refuses.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_COLLAPSE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_memory_stays() {
        let written: Vec<u32> = (0..4 << 20).collect();
        let Range { start, end } = written.as_ptr_range();
        in_huge_pages(start.cast()..end.cast());
        in_huge_pages(start.cast()..start.cast());
        assert!((0..).zip(&written).all(|(number, &known)| number == known));
    }
}
