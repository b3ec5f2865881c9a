//! The groups of sends and receives of an exchange, and their places in staging memory.
//!
//! Staging memory has a slot for each rank. A part for a rank that is larger than its slot is sent in several groups: the
//! k-th piece of each part belongs to the k-th group. Sender and receiver know the size of a part, and so agree on its
//! pieces, however many groups each of them has.

use std::ops::Range;

use crate::parts;

/// Places in staging memory are multiples of this number of bytes, for wide accesses of a device.
const ALIGNMENT: usize = 256;

/// A part of what two ranks exchange.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// The other rank.
    pub with: usize,
    /// Place among the bytes of the exchange.
    pub bytes: Range<usize>,
    /// Offset in staging memory.
    pub staged: usize,
}

/// The sends and receives of one group.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Group {
    pub sends: Vec<Piece>,
    pub receives: Vec<Piece>,
}

/// Number of bytes of a rank's slot, of staging memory for all ranks that has at least one slot for each.
pub(super) fn slot(staging: usize, size: usize) -> usize {
    (staging / size / ALIGNMENT).max(1) * ALIGNMENT
}

/// The groups of an exchange, in their order. A rank sends nothing to itself.
pub(super) fn groups(rank: usize, send_counts: &[usize], recv_counts: &[usize], slot: usize) -> Vec<Group> {
    let mut groups = Vec::new();
    for (is_send, counts) in [(true, send_counts), (false, recv_counts)] {
        let mut staged = Vec::new();
        for (with, part) in parts(counts).enumerate().filter(|&(with, _)| with != rank) {
            let end = part.end;
            for (number, start) in part.step_by(slot).enumerate() {
                if groups.len() <= number {
                    groups.push(Group::default());
                }
                if staged.len() <= number {
                    staged.push(0);
                }
                let piece = Piece { with, bytes: start..end.min(start + slot), staged: staged[number] };
                staged[number] += piece.bytes.len().next_multiple_of(ALIGNMENT);
                match is_send {
                    true => groups[number].sends.push(piece),
                    false => groups[number].receives.push(piece),
                }
            }
        }
    }
    groups
}

/// Number of bytes of staging memory that pieces take.
pub(super) fn staged(pieces: &[Piece]) -> usize {
    pieces.last().map_or(0, |last| last.staged + last.bytes.len())
}

#[cfg(test)]
mod tests {
    use super::{ALIGNMENT, Group, Piece, groups, slot, staged};
    use proptest::prelude::*;

    #[test]
    fn large_parts_are_pieces_of_several_groups() {
        let piece = |with, bytes, staged| Piece { with, bytes, staged };
        let expected = [
            Group { sends: vec![piece(0, 0..256, 0), piece(2, 307..317, 256)], receives: vec![piece(2, 7..8, 0)] },
            Group { sends: vec![piece(0, 256..300, 0)], receives: vec![] },
        ];
        assert_eq!(groups(1, &[300, 7, 10], &[0, 7, 1], 256), expected);
        assert_eq!(expected.each_ref().map(|group| staged(&group.sends)), [266, 44]);
        assert_eq!(groups(0, &[5], &[5], 256), [], "one rank");
    }

    #[test]
    fn each_rank_has_a_slot() {
        assert_eq!([slot(1 << 20, 4), slot(1000, 3), slot(0, 8)], [1 << 18, 256, 256]);
    }

    proptest! {
        /// The k-th group of a rank has what the k-th groups of others expect, and every byte is in one group.
        #[test]
        fn sends_meet_receives(counts in prop::collection::vec(0usize..2000, 16), staging in 0usize..4000) {
            let slot = slot(staging, 4);
            let of = |from: usize, to: usize| counts[4 * from + to];
            let all: Vec<Vec<Group>> = (0..4)
                .map(|rank| {
                    let send: Vec<usize> = (0..4).map(|to| of(rank, to)).collect();
                    let receive: Vec<usize> = (0..4).map(|from| of(from, rank)).collect();
                    groups(rank, &send, &receive, slot)
                })
                .collect();
            let lengths = |groups: &[Group], with: usize, pieces: fn(&Group) -> &Vec<Piece>| -> Vec<(usize, usize)> {
                let of = |(number, group): (usize, &Group)| {
                    let with: Vec<_> = pieces(group).iter().filter(|piece| piece.with == with).collect();
                    assert!(with.len() <= 1);
                    with.first().map(|piece| (number, piece.bytes.len()))
                };
                groups.iter().enumerate().filter_map(of).collect()
            };
            for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
                let sent = lengths(&all[from], to, |group| &group.sends);
                prop_assert_eq!(&sent, &lengths(&all[to], from, |group| &group.receives));
                let expected = if from == to { 0 } else { of(from, to) };
                prop_assert_eq!(sent.iter().map(|&(_, bytes)| bytes).sum::<usize>(), expected);
            }
            for pieces in all.iter().flatten().flat_map(|group| [&group.sends, &group.receives]) {
                prop_assert!(staged(pieces) <= 4 * slot);
                for pair in pieces.windows(2) {
                    prop_assert!(pair[0].staged + pair[0].bytes.len() <= pair[1].staged);
                    prop_assert_eq!(pair[1].staged % ALIGNMENT, 0);
                }
            }
        }
    }
}
