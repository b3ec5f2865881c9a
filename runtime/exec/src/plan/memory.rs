//! Places values that live at different times in the same memory.

/// A value that needs memory from step `start` to step `end`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime {
    /// First step that uses it.
    pub start: usize,
    /// Last step that uses it.
    pub end: usize,
    /// Elements.
    pub len: usize,
}

/// Elements of a cache line: every value starts on one.
pub const ALIGN: usize = 16;

/// An offset for each value, such that values alive at the same time do not overlap, and the total length.
///
/// Greedy by size: the largest values first, each at the lowest offset that is free during its life.
pub fn place(lives: &[Lifetime]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..lives.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(lives[i].len), lives[i].start, i));
    let mut offsets = vec![0; lives.len()];
    // Placed values by offset.
    let mut placed: Vec<usize> = Vec::with_capacity(lives.len());
    let mut total = 0;
    for i in order {
        let life = lives[i];
        if life.len == 0 {
            continue;
        }
        let len = life.len.next_multiple_of(ALIGN);
        let mut offset = 0;
        for &j in &placed {
            let other = lives[j];
            if other.start <= life.end && life.start <= other.end {
                if offset + len <= offsets[j] {
                    break;
                }
                offset = offset.max(offsets[j] + other.len.next_multiple_of(ALIGN));
            }
        }
        offsets[i] = offset;
        total = total.max(offset + len);
        let at = placed.partition_point(|&j| offsets[j] <= offset);
        placed.insert(at, i);
    }
    debug_assert!(is_disjoint(lives, &offsets));
    (offsets, total)
}

/// Do no two values that live at the same time overlap?
pub fn is_disjoint(lives: &[Lifetime], offsets: &[usize]) -> bool {
    (0..lives.len()).all(|i| {
        (0..i).all(|j| {
            let (a, b) = (lives[i], lives[j]);
            let together = a.start <= b.end && b.start <= a.end;
            !together || offsets[i] + a.len <= offsets[j] || offsets[j] + b.len <= offsets[i]
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_meet_do_not_overlap_and_others_share() {
        let life = |start, end, len| Lifetime { start, end, len };
        let lives = [life(0, 2, 100), life(1, 3, 64), life(3, 5, 100), life(4, 6, 10), life(0, 6, 1), life(2, 2, 0)];
        let (offsets, total) = place(&lives);
        assert!(is_disjoint(&lives, &offsets));
        assert_eq!(offsets[0], offsets[2]);
        assert_eq!(total, 112 + 64 + 16);
    }
}
