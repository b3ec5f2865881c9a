//! The elements of a sum that each rank adds.
//!
//! A rank gets its slice of the rows of all ranks, adds these, and sends the sums to all (a reduce-scatter and an
//! all-gather: Thakur, Rabenseifner and Gropp 2005). So a rank sends and adds as many elements with many ranks as with few.
//! Where there are few elements, each rank gets all of them, which saves the second message.

use std::ops::Range;

/// Most elements that all ranks add.
pub const FEW: usize = 4096;

/// Whether each rank adds all elements.
pub fn are_few(elements: usize) -> bool {
    elements <= FEW
}

/// The elements that a rank adds.
pub fn slice(elements: usize, rank: usize, ranks: usize) -> Range<usize> {
    match are_few(elements) {
        true => 0..elements,
        false => elements * rank / ranks..elements * (rank + 1) / ranks,
    }
}
