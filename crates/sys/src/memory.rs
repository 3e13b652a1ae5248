//! Memory that the C library's allocator keeps for itself (glibc, `malloc/malloc.c`; mallopt(3), malloc_trim(3)).

use nix::libc;

/// From here on all threads allocate from one heap. To be called while there is one thread; one that already has a heap of
/// its own keeps it.
pub fn one_heap() {
    // SAFETY: mallopt takes two plain numbers and touches nothing but the allocator's own parameters, under its lock.
    let _refused_only_for_unknown_parameters = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Gives pages without a live allocation back to the kernel, also from the middle of the heap.
pub fn give_back() {
    // SAFETY: malloc_trim takes the allocator's locks and releases only memory that no allocation holds.
    let _whether_there_was_any = unsafe { libc::malloc_trim(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("the kernel has it");
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a count of pages")
    }

    #[test]
    fn what_was_freed_below_something_kept_goes_back_to_the_kernel() {
        one_heap();
        // Small enough to come from the heap (M_MMAP_THRESHOLD is 128 KiB), 64 MiB in all.
        let blocks: Vec<Vec<u8>> = (0..1024).map(|_| vec![1; 64 << 10]).collect();
        let on_top = vec![1_u8; 64 << 10];
        let full = resident();
        drop(blocks);
        give_back();
        let left = resident();
        assert!(left + (32 << 20) / 4096 < full, "{full} pages, then {left}");
        drop(on_top);
    }
}
