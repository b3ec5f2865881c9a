//! Values that live at different times share memory.

use hgnnc_kernel_ir::kernel::place::{END, Lifetime, is_disjoint, peak, place};

fn life(start: usize, end: usize, len: usize) -> Lifetime {
    Lifetime { start, end, len }
}

#[test]
fn values_that_meet_do_not_overlap_and_others_share() {
    let lives = [life(0, 2, 100), life(1, 3, 64), life(3, 5, 100), life(4, 6, 10), life(0, 6, 1), life(2, 2, 0)];
    let (offsets, total) = place(&lives);
    assert!(is_disjoint(&lives, &offsets));
    assert_eq!(offsets[0], offsets[2]);
    assert_eq!((total, peak(&lives)), (112 + 64 + 16, (1, 112 + 64 + 16)));
    assert_eq!(place(&[]), (vec![], 0));
}

#[test]
fn where_the_largest_first_leaves_holes_another_order_is_found() {
    // Largest first: both of 48 at 0, one of 32 beside them at 48; the other 32 meets all of them: 112 in all.
    let lives = [life(0, 1, 48), life(1, 2, 32), life(2, 3, 32), life(3, 4, 48)];
    let (offsets, total) = place(&lives);
    assert!(is_disjoint(&lives, &offsets));
    assert_eq!((total, peak(&lives).1), (80, 80));
}

#[test]
fn no_number_of_elements_overflows() {
    let (_, total) = place(&[life(0, END, usize::MAX - 1), life(0, END, usize::MAX / 2)]);
    assert_eq!(total, usize::MAX);
}
