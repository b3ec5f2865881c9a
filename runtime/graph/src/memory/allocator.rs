//! A global allocator that backs large arrays with huge pages.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// The system allocator, except that arrays of 4 MiB and more get their own mapping, aligned to a huge page (2 MiB) and
/// backed by huge pages where the system has them.
///
/// An unaligned array has up to 2 MiB of 4 KiB pages before its first and after its last huge page, each with its own
/// page fault: often a third of an array of 9 MB. Growing arrays keep their pages (`mremap`, no copy), and fresh
/// mappings are zero, so no memory is cleared twice.
///
/// Programs install it: `#[global_allocator] static MEMORY: LargePages = LargePages;`. It affects performance only. On
/// systems other than Linux this is the system allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargePages;

/// Smallest array with its own mapping, in bytes. Below it, mapping costs more than huge pages save.
const MAPPED: usize = 4 << 20;

/// Whether arrays that do not fit where they are move by copying.
static COPIES: AtomicBool = AtomicBool::new(false);

impl LargePages {
    /// From now on, arrays that grow and do not fit where they are move by copying instead of `mremap`. Called before an
    /// MPI library is opened: UCX, which some of them use, takes over `mremap` without its fifth argument, the new
    /// address, and the array would move to any other.
    pub fn copy_moved() {
        COPIES.store(true, Ordering::Relaxed);
    }
}

/// Whether an array has its own mapping. Depends on the layout only, so that `dealloc` agrees with `alloc`.
fn is_mapped(layout: Layout) -> bool {
    cfg!(target_os = "linux") && layout.size() >= MAPPED && layout.align() <= MAPPED / 2
}

// SAFETY: small arrays come from `System`. Large ones are own mappings at multiples of 2 MiB, which exceeds every
// alignment that `is_mapped` accepts; they are unmapped and resized with their allocated size, as callers promise.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for LargePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout) {
            return pointer(mapped::map(layout.size()));
        }
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout) {
            return pointer(mapped::map(layout.size()));
        }
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if is_mapped(layout) {
            // SAFETY: the layout is that of the allocation, so it was mapped.
            unsafe { mapped::unmap(start, layout.size()) };
        } else {
            // SAFETY: the caller upholds the contract of `dealloc`.
            unsafe { System.dealloc(start, layout) }
        }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `new_size` makes a valid layout.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let resized = match (is_mapped(layout), is_mapped(new)) {
            // SAFETY: the caller upholds the contract of `realloc`.
            (false, false) => return unsafe { System.realloc(start, layout, new_size) },
            // SAFETY: the layout is that of the allocation, so it was mapped.
            (true, true) => unsafe { mapped::resize(start, layout, new_size) },
            _ => None,
        };
        match resized {
            Some(resized) => resized.as_ptr(),
            // SAFETY: both arrays hold the copied bytes, and the old one is not used afterwards.
            None => unsafe {
                let target = self.alloc(new);
                if !target.is_null() {
                    target.copy_from_nonoverlapping(start, layout.size().min(new_size));
                    self.dealloc(start, layout);
                }
                target
            },
        }
    }
}

fn pointer(start: Option<NonNull<u8>>) -> *mut u8 {
    start.map_or(std::ptr::null_mut(), NonNull::as_ptr)
}

#[allow(unsafe_code)]
#[cfg(target_os = "linux")]
mod mapped {
    use std::alloc::Layout;
    use std::ptr::{self, NonNull};

    /// Size of a huge page on x86-64, and on AArch64 with pages of 4 KiB. Where huge pages are larger, only alignment
    /// is lost.
    const LARGE: usize = 2 << 20;

    /// A tail behind the last full huge page gets a huge page of its own from this size on: faulting one in takes about
    /// as long as faulting in the small pages of such a tail.
    const LEAST_PART: usize = 128 << 10;

    /// At most one byte in this many of an array is unused padding of its last huge page; budgets and plans do not
    /// count it.
    pub const PER_UNUSED: usize = 5;

    /// Smallest page size of the supported systems.
    const LEAST_PAGE: usize = 4 << 10;

    /// Granularity of mappings, a multiple of the page size on every system with pages of up to 64 KiB.
    const UNIT: usize = 64 << 10;

    /// Length of the mapping for an array of `size` bytes.
    pub fn length(size: usize) -> usize {
        let part = size % LARGE;
        let unit = if part < LEAST_PART || LARGE - part > size / PER_UNUSED { UNIT } else { LARGE };
        // Layouts are below `isize::MAX`, so this does not overflow.
        size.next_multiple_of(unit)
    }

    /// Maps `size` zeroed bytes at the start of a huge page. `None` if the system is out of memory.
    pub fn map(size: usize) -> Option<NonNull<u8>> {
        let length = length(size);
        let start = reserve(length, libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: the range was mapped just now. The advice changes neither contents nor protection, and its failure is
        // harmless.
        unsafe { libc::madvise(start.as_ptr().cast(), length, libc::MADV_HUGEPAGE) };
        Some(start)
    }

    /// Unmaps an array of `size` bytes.
    ///
    /// # Safety
    /// `start` came from `map` or `resize` with that size, and the array is no longer used.
    pub unsafe fn unmap(start: *mut u8, size: usize) {
        // SAFETY: the caller promises that exactly this range is mapped.
        unsafe { libc::munmap(start.cast(), length(size)) };
    }

    /// Resizes an array and keeps its contents. `None` if the system is out of memory, or the array has to be copied; it is
    /// unchanged then.
    ///
    /// # Safety
    /// As for [`unmap`], with this layout; the old address is not used after a success.
    pub unsafe fn resize(start: *mut u8, layout: Layout, new_size: usize) -> Option<NonNull<u8>> {
        let (old, new) = (length(layout.size()), length(new_size));
        if old == new {
            return NonNull::new(start);
        }
        if new < old {
            // SAFETY: the caller owns the range; the tail is unmapped from a page boundary on.
            unsafe { libc::munmap(start.add(new).cast(), old - new) };
            return NonNull::new(start);
        }
        // SAFETY: as above; without free addresses behind the array the call fails without effect.
        if unsafe { libc::mremap(start.cast(), old, new, 0) } != libc::MAP_FAILED {
            return NonNull::new(start);
        }
        if super::COPIES.load(super::Ordering::Relaxed) {
            return None;
        }
        // The reserved range counts against an address limit in addition to the array, so it is skipped under a limit.
        let target = if addresses_are_limited() { None } else { reserve(new, libc::PROT_NONE) };
        if let Some(target) = target {
            // SAFETY: moves the caller's range onto a range reserved just now and not yet shared.
            let moved = unsafe {
                let fixed = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                libc::mremap(start.cast(), old, new, fixed, target.as_ptr().cast::<libc::c_void>())
            };
            if moved != libc::MAP_FAILED {
                return NonNull::new(moved.cast());
            }
            // The state of the target is unknown then: its addresses (no memory) are leaked.
        }
        if layout.align() > LEAST_PAGE {
            return None;
        }
        // SAFETY: as above, to an address chosen by the system.
        let moved = unsafe { libc::mremap(start.cast(), old, new, libc::MREMAP_MAYMOVE) };
        if moved == libc::MAP_FAILED { None } else { NonNull::new(moved.cast()) }
    }

    /// Whether the process has an address limit (`ulimit -v`).
    fn addresses_are_limited() -> bool {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: writes `limit` on success and nothing on failure.
        unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
        limit.rlim_cur != libc::RLIM_INFINITY
    }

    /// Maps a range of addresses aligned to a huge page.
    fn reserve(length: usize, rights: i32) -> Option<NonNull<u8>> {
        let all = length.checked_add(LARGE)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address chosen by the system.
        let first = unsafe { libc::mmap(ptr::null_mut(), all, rights, flags, -1, 0) };
        if first == libc::MAP_FAILED {
            return None;
        }
        let first = first.cast::<u8>();
        let before = first.align_offset(LARGE);
        // SAFETY: the parts before the aligned start and behind the range belong to the mapping made above.
        unsafe {
            let start = first.add(before);
            if before > 0 {
                libc::munmap(first.cast(), before);
            }
            if before < LARGE {
                libc::munmap(start.add(length).cast(), LARGE - before);
            }
            NonNull::new(start)
        }
    }
}

/// Platforms without own mappings.
#[allow(unsafe_code)]
#[cfg(not(target_os = "linux"))]
mod mapped {
    use std::alloc::Layout;
    use std::ptr::NonNull;

    pub fn map(_: usize) -> Option<NonNull<u8>> {
        None
    }

    pub unsafe fn unmap(_: *mut u8, _: usize) {}

    pub unsafe fn resize(_: *mut u8, _: Layout, _: usize) -> Option<NonNull<u8>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).unwrap()
    }

    #[test]
    #[allow(unsafe_code)]
    fn arrays_are_zeros_begin_on_large_pages_and_keep_what_is_in_them() {
        // Below, at and above the threshold; with small and large tails behind the last huge page; growing and
        // shrinking across all.
        let sizes = [
            24,
            4 * MIB - 1,
            4 * MIB,
            5 * MIB + 8,
            9 * MIB - 16,
            64 * MIB + 1,
            6 * MIB,
            40 * MIB,
            4 * MIB,
            3 * MIB,
            100,
        ];
        // SAFETY: each array is used within its size and freed once, with its layout.
        unsafe {
            for &size in &sizes {
                let array = LargePages.alloc_zeroed(layout(size));
                let bytes = std::slice::from_raw_parts_mut(array, size);
                assert!(bytes.iter().all(|&b| b == 0), "{size} bytes");
                if cfg!(target_os = "linux") && size >= MAPPED {
                    assert_eq!(array as usize % (2 * MIB), 0, "{size} bytes");
                }
                bytes.fill(1);
                LargePages.dealloc(array, layout(size));
            }
            let mut array = LargePages.alloc(layout(sizes[0]));
            std::slice::from_raw_parts_mut(array, sizes[0]).fill(sizes[0] as u8);
            for pair in sizes.windows(2) {
                array = LargePages.realloc(array, layout(pair[0]), pair[1]);
                let bytes = std::slice::from_raw_parts_mut(array, pair[1]);
                let kept = pair[0].min(pair[1]);
                assert!(bytes[..kept].iter().all(|&b| b == pair[0] as u8), "{} bytes to {}", pair[0], pair[1]);
                bytes.fill(pair[1] as u8);
            }
            LargePages.dealloc(array, layout(sizes[sizes.len() - 1]));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn little_is_mapped_beyond_the_requested_size() {
        for size in (MAPPED..40 * MIB).step_by(4099) {
            let unused = mapped::length(size) - size;
            assert!(unused <= (64 << 10).max(size / mapped::PER_UNUSED), "{size} bytes, and {unused}");
            assert!(mapped::length(size + 4099) >= mapped::length(size), "{size} bytes");
        }
        // A tail of almost a huge page gets a huge page.
        assert_eq!(mapped::length(10 * MIB - 1000), 10 * MIB);
    }

    /// Under `ulimit -v` arrays grow as with the system allocator. The limit is per process, so the test runs in a
    /// child process.
    #[cfg(target_os = "linux")]
    #[test]
    fn arrays_grow_within_a_limit_of_addresses() {
        let test = "memory::allocator::tests::an_array_grows_within_a_limit_of_addresses";
        let program = std::env::current_exe().expect("this test");
        let run = std::process::Command::new(program).args([test, "--exact", "--ignored"]).output().expect("it starts");
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && said.contains("1 passed"), "{said}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    #[ignore = "limits the process"]
    #[allow(unsafe_code)]
    fn an_array_grows_within_a_limit_of_addresses() {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a line");
        let kib: u64 = size.trim_end_matches("kB").trim().parse().expect("a number");
        // Room for the grown array, but not for the old and the new one together.
        let limit = (kib << 10) + (150 << 20);
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: sets a limit; the array is used within its size and freed once, with its layout.
        unsafe {
            assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &raw const limit), 0);
            let array = LargePages.alloc(layout(64 * MIB));
            // An allocation behind the array prevents growing in place.
            let behind = LargePages.alloc(layout(5 * MIB));
            *array.add(64 * MIB - 1) = 7;
            let grown = LargePages.realloc(array, layout(64 * MIB), 128 * MIB);
            assert!(!grown.is_null());
            assert_eq!(*grown.add(64 * MIB - 1), 7);
            *grown.add(128 * MIB - 1) = 8;
            LargePages.dealloc(grown, layout(128 * MIB));
            LargePages.dealloc(behind, layout(5 * MIB));
        }
    }

    #[test]
    #[allow(unsafe_code)]
    fn what_cannot_be_had_is_refused() {
        // SAFETY: only allocated memory is used.
        unsafe {
            let size = isize::MAX as usize - (8 << 20);
            assert!(LargePages.alloc(layout(size)).is_null());
            let array = LargePages.alloc_zeroed(layout(8 * MIB));
            assert!(LargePages.realloc(array, layout(8 * MIB), size).is_null());
            assert_eq!(*array, 0, "the array is still there");
            LargePages.dealloc(array, layout(8 * MIB));
        }
    }
}
