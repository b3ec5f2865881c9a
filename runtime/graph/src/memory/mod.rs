//! Zeroed memory for large arrays.

mod allocator;

pub use self::allocator::LargePages;

/// Arrays below this many bytes use normal pages.
const HUGE_BYTES: usize = 1 << 20;

/// `len` zeros. Requests huge pages for large arrays: faulting in 4 KiB pages often takes longer than writing the array
/// once, and random reads need fewer TLB entries.
pub(crate) fn zeros<T: Copy + Default>(len: usize) -> Vec<T> {
    // The system zeroes the memory on first touch, that is after the advice.
    let zeros = vec![T::default(); len];
    if size_of_val(&zeros[..]) >= HUGE_BYTES {
        advise(&zeros);
    }
    zeros
}

#[cfg(target_os = "linux")]
fn advise<T>(array: &[T]) {
    /// Smallest page size of the supported systems; with larger pages the advice is refused.
    const PAGE: usize = 4096;
    let start = array.as_ptr() as usize;
    let (first, end) = (start.next_multiple_of(PAGE), (start + size_of_val(array)) / PAGE * PAGE);
    if first < end {
        // SAFETY: the range lies within a borrowed allocation. The advice changes neither contents nor protection, and
        // its result is ignored: a failure has no effect.
        #[allow(unsafe_code)]
        unsafe {
            libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn advise<T>(_: &[T]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_small_arrays_are_zero() {
        for len in [0, 1, 1000, 300_000, 3_000_001] {
            let mut array: Vec<u32> = zeros(len);
            assert_eq!((array.len(), array.iter().all(|&v| v == 0)), (len, true));
            array.fill(7);
            assert!(array.iter().all(|&v| v == 7));
        }
    }
}
