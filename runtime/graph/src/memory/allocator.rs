//! An allocator that starts large arrays on large pages.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;

/// The system's allocator, but arrays of four mebibytes and more get memory of their own, which begins on a large page (2 MiB)
/// and is backed by such pages where the system has them.
///
/// Wherever an array begins otherwise, up to 2 MiB before its first and after its last large page are made of pages of 4 KiB,
/// each of which is a fault of its own: of an array of 9 MB that is often a third. Arrays that grow keep
/// their pages (they are moved by the page table, not copied), and zeros are what the system gives, so nothing is cleared twice.
///
/// Programs install it: `#[global_allocator] static MEMORY: LargePages = LargePages;`. Nothing depends on it but time. On
/// systems other than Linux this is the system's allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargePages;

/// Bytes from which on an array has memory of its own. Below, what large pages save is less than what mapping costs.
const MAPPED: usize = 4 << 20;

/// Whether an array has memory of its own: said by its layout alone, so that it is given back the way it was taken.
fn is_mapped(layout: Layout) -> bool {
    cfg!(target_os = "linux") && layout.size() >= MAPPED && layout.align() <= MAPPED / 2
}

// SAFETY: small arrays are the system's. Large ones are mappings of their own, at multiples of 2 MiB, which is more than any
// alignment that is let through; they are given back and grown with the size that they were made with, as callers promise.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for LargePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout) {
            return pointer(mapped::map(layout.size()));
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout) {
            return pointer(mapped::map(layout.size()));
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if is_mapped(layout) {
            // SAFETY: the layout is that of the allocation, so it was mapped.
            unsafe { mapped::unmap(start, layout.size()) };
        } else {
            // SAFETY: the caller's promise.
            unsafe { System.dealloc(start, layout) }
        }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises a size that is one of a layout.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (is_mapped(layout), is_mapped(new)) {
            // SAFETY: the caller's promise.
            (false, false) => unsafe { System.realloc(start, layout, new_size) },
            // SAFETY: the layout is that of the allocation, so it was mapped.
            (true, true) => pointer(unsafe { mapped::resize(start, layout, new_size) }),
            // SAFETY: both arrays have as many bytes as are copied, and the old one is not used afterwards.
            _ => unsafe {
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

    /// A large page of x86-64, and of AArch64 with pages of 4 KiB. Where they are larger, nothing but alignment is lost.
    const LARGE: usize = 2 << 20;

    /// What is left behind the last whole large page is one more of them from this size on; making one takes as long as about
    /// so many small pages.
    const LEAST_PART: usize = 128 << 10;

    /// For so many bytes of an array, no more than one is memory that nobody has asked for: budgets and plans do not count it.
    pub const PER_UNUSED: usize = 5;

    /// The smallest pages that there are.
    const LEAST_PAGE: usize = 4 << 10;

    /// The smallest unit of mappings, on every system with pages of up to 64 KiB.
    const UNIT: usize = 64 << 10;

    /// Bytes that are mapped for an array of `size`.
    pub fn length(size: usize) -> usize {
        let part = size % LARGE;
        let unit = if part < LEAST_PART || LARGE - part > size / PER_UNUSED { UNIT } else { LARGE };
        // Layouts end below `isize::MAX`, so this does not overflow.
        size.next_multiple_of(unit)
    }

    /// Zeros for an array of `size` bytes, at the start of a large page. `None` where the system has none.
    pub fn map(size: usize) -> Option<NonNull<u8>> {
        let length = length(size);
        let start = reserve(length, libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: the range was mapped just now. Advice changes neither contents nor rights; that it may be refused does not matter.
        unsafe { libc::madvise(start.as_ptr().cast(), length, libc::MADV_HUGEPAGE) };
        Some(start)
    }

    /// Gives back an array of `size` bytes.
    ///
    /// # Safety
    /// It is one of `map` or `resize`, of that size, and nobody uses it any more.
    pub unsafe fn unmap(start: *mut u8, size: usize) {
        // SAFETY: the caller's promise: exactly this was mapped.
        unsafe { libc::munmap(start.cast(), length(size)) };
    }

    /// Gives an array another size; what was in it stays. `None` where the system has no room: then nothing has happened.
    ///
    /// # Safety
    /// As for [`unmap`], of this layout; the old address is not used if there is a new one.
    pub unsafe fn resize(start: *mut u8, layout: Layout, new_size: usize) -> Option<NonNull<u8>> {
        let (old, new) = (length(layout.size()), length(new_size));
        if old == new {
            return NonNull::new(start);
        }
        if new < old {
            // SAFETY: the caller's promise; the part behind is given back, on a boundary of pages.
            unsafe { libc::munmap(start.add(new).cast(), old - new) };
            return NonNull::new(start);
        }
        // SAFETY: as above; without room behind it nothing happens.
        if unsafe { libc::mremap(start.cast(), old, new, 0) } != libc::MAP_FAILED {
            return NonNull::new(start);
        }
        // What is reserved counts beside the array, which may be more than a limit leaves.
        let target = if addresses_are_limited() { None } else { reserve(new, libc::PROT_NONE) };
        if let Some(target) = target {
            // SAFETY: moves what the caller owns onto a range that was reserved just now, and which nobody else knows.
            let moved = unsafe {
                let fixed = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                libc::mremap(start.cast(), old, new, fixed, target.as_ptr().cast::<libc::c_void>())
            };
            if moved != libc::MAP_FAILED {
                return NonNull::new(moved.cast());
            }
            // Whether the target is still ours is not known then: these addresses (no memory) are given up.
        }
        if layout.align() > LEAST_PAGE {
            return None;
        }
        // SAFETY: as above; wherever the system likes.
        let moved = unsafe { libc::mremap(start.cast(), old, new, libc::MREMAP_MAYMOVE) };
        if moved == libc::MAP_FAILED { None } else { NonNull::new(moved.cast()) }
    }

    /// Is there a limit on the addresses of the process (`ulimit -v`)?
    fn addresses_are_limited() -> bool {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: writes the limit, or nothing.
        unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
        limit.rlim_cur != libc::RLIM_INFINITY
    }

    /// Maps a range of addresses that begins at a multiple of a large page.
    fn reserve(length: usize, rights: i32) -> Option<NonNull<u8>> {
        let all = length.checked_add(LARGE)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, wherever the system likes.
        let first = unsafe { libc::mmap(ptr::null_mut(), all, rights, flags, -1, 0) };
        if first == libc::MAP_FAILED {
            return None;
        }
        let first = first.cast::<u8>();
        let before = first.align_offset(LARGE);
        // SAFETY: what lies before the multiple and behind the range is part of the mapping made above, and given back.
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

/// Nothing is mapped.
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
        // Below, at and above the threshold; with small and large parts behind the last large page; growing and shrinking across all of it.
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
        // SAFETY: each array is used within its size and given back once, with the layout that it has.
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
    fn little_is_mapped_that_nobody_has_asked_for() {
        for size in (MAPPED..40 * MIB).step_by(4099) {
            let unused = mapped::length(size) - size;
            assert!(unused <= (64 << 10).max(size / mapped::PER_UNUSED), "{size} bytes, and {unused}");
            assert!(mapped::length(size + 4099) >= mapped::length(size), "{size} bytes");
        }
        // Parts that are almost a large page are one.
        assert_eq!(mapped::length(10 * MIB - 1000), 10 * MIB);
    }

    /// Under `ulimit -v` arrays grow where they would with the system's allocator: a limit of a process, so in one of its own.
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
        // Room for the array when it has grown, but not for it as it was beside that.
        let limit = (kib << 10) + (150 << 20);
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: sets a limit; the array is used within its size and given back once, with the layout that it has.
        unsafe {
            assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &raw const limit), 0);
            let array = LargePages.alloc(layout(64 * MIB));
            // Something lies behind it, so that it cannot grow where it is.
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
        // SAFETY: nothing is used that was not given.
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
