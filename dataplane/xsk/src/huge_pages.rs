//! Moves existing memory to huge pages.

use std::ops::Range;

/// Size of a huge page on x86-64, and on other architectures with 4 kB pages.
const HUGE: usize = 2 << 20;

/// Moves the contents of this memory to huge pages, as far as whole huge pages fit into the range and the kernel has
/// them (`MADV_COLLAPSE`, Linux 6.1). If the kernel refuses, the memory stays as it is and remains usable.
pub fn in_huge_pages(memory: Range<*const u8>) {
    let start = (memory.start as usize).next_multiple_of(HUGE);
    let end = memory.end as usize / HUGE * HUGE;
    if start < end {
        // SAFETY: the kernel changes only which pages are behind these addresses and not their contents, whoever owns
        // them. If an address is not mapped, the kernel refuses.
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
