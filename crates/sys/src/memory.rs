//! Memory of this process: what it holds, and what the C library's allocator keeps for itself (glibc, `malloc/malloc.c`; mallopt(3),
//! malloc_trim(3)).

use std::io;

use nix::libc;

/// Bytes of this process that are in memory: `VmRSS` (`proc_pid_statm(5)`).
///
/// # Errors
/// There is no `/proc`, or it speaks otherwise.
pub fn resident() -> io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.ok_or(io::ErrorKind::InvalidData)? * rustix::param::page_size() as u64)
}

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

    #[test]
    fn what_was_freed_below_something_kept_goes_back_to_the_kernel() {
        one_heap();
        // Small enough to come from the heap (M_MMAP_THRESHOLD is 128 KiB), 64 MiB in all.
        let blocks: Vec<Vec<u8>> = (0..1024).map(|_| vec![1; 64 << 10]).collect();
        let on_top = vec![1_u8; 64 << 10];
        let full = resident().expect("the kernel tells");
        drop(blocks);
        give_back();
        let left = resident().expect("the kernel tells");
        assert!(left + (32 << 20) < full, "{full} bytes, then {left}");
        drop(on_top);
    }
}
