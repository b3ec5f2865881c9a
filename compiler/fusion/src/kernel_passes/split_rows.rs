//! Decides how high-degree rows are split, so that several threads share the edges of one row.
//!
//! ```text
//! Before:  kernel k1 : rows Paper, in_edges of cites {
//! After:   kernel k1 : rows Paper, in_edges of cites, pieces of 4096 at most 1024 {
//! ```
//!
//! Applies to every traversal with edges. The length of a piece depends on the widest value of an edge, so that a piece
//! takes about 100 us of one core; back ends split the rows that are longer than one. Rows of usual length are not
//! affected.

use hgnnc_kernel_ir::kernel::{Instr, Level, Pieces, Program};

use super::instrs::change_traversals;
use crate::kernel_passes::KernelCx;

/// Elements of the widest edge value in a piece of a high-degree row: about 100 us of one core.
const PIECE: usize = 1 << 18;
/// The least and the greatest number of edges of a piece.
const PIECE_EDGES: (usize, usize) = (512, 4096);
/// Pieces of a graph: many more than cores, so that a row that is not split delays no core.
const PIECES: usize = 1024;

/// Sets the pieces of all traversals with edges.
pub(crate) fn run(program: &mut Program, _: &mut KernelCx) {
    change_traversals(
        program,
        |_| true,
        |_, traversal| {
            if traversal.rows.has_edges() {
                traversal.pieces = Some(pieces(&traversal.instrs));
            }
            // The instructions are the same.
            false
        },
    );
}

/// By the work of an edge, a power of two of edges.
fn pieces(instrs: &[Instr]) -> Pieces {
    let edges = instrs.iter().filter(|instr| instr.level == Level::Edge);
    let widest = edges.filter_map(|instr| instr.width.as_fixed()).max().unwrap_or(1).max(1);
    let (fewest, most) = PIECE_EDGES;
    Pieces { least: (PIECE / widest).clamp(fewest, most).next_power_of_two(), most: PIECES }
}
