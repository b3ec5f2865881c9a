//! Memory for large results.

mod allocator;

pub use self::allocator::LargePages;

/// Below this many bytes pages of the usual size will do.
const HUGE_BYTES: usize = 1 << 20;

/// Zeros. The system is asked to back large arrays with huge pages: what is written once is often done faster than its pages are
/// made, 4 KiB at a time, and what is read at random needs fewer entries of the TLB.
pub(crate) fn zeros<T: Copy + Default>(len: usize) -> Vec<T> {
    // This is memory that the system clears when it is first touched, and so after the advice.
    let zeros = vec![T::default(); len];
    if size_of_val(&zeros[..]) >= HUGE_BYTES {
        advise(&zeros);
    }
    zeros
}

#[cfg(target_os = "linux")]
fn advise<T>(array: &[T]) {
    /// The smallest pages that there are; where they are larger, the advice is refused.
    const PAGE: usize = 4096;
    let start = array.as_ptr() as usize;
    let (first, end) = (start.next_multiple_of(PAGE), (start + size_of_val(array)) / PAGE * PAGE);
    if first < end {
        // SAFETY: the range lies within an allocation that is borrowed here. This advice changes neither contents nor rights of
        // pages, and a refusal (which is not looked at) changes nothing.
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
