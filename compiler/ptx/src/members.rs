//! Members of grouped products: which of them has a tile of rows.
//!
//! The rows of a product lie one member after another; in the graph from rows to members they are the in-edges of their
//! member, so its `indptr` says which rows a member has.
//!
//! Tiles of `unit` rows begin with the rows of each member. Member `m` has those from number `indptr[m] / unit + m` on,
//! rounded down. The number of the next member is larger by at least the tiles that `m` needs, and by at least 1. With
//! `P` rows and `M` members, all are below `P / unit + M`, and at most `M` of so many tiles have no rows. Numbers
//! ascend, so a block finds its member by a search, and no array is needed that depends on `unit`.

use hgnnc_ir::Direction;

use crate::Members;
use crate::code::Code;
use crate::isa::{Class, Reg};
use crate::table::Table;
use crate::traversal::WARP_BITS;
use crate::{Slot, Topology};

/// A member, and a tile of its rows.
pub(crate) struct Member {
    /// The position of the member in its stack.
    pub number: Reg,
    /// Its first row, and the one after its last.
    pub first: Reg,
    pub end: Reg,
    /// The first row of the tile.
    pub row: Reg,
    /// Rows of a tile.
    pub unit: Reg,
    /// The number of the tile, of those of the member.
    tile: Reg,
}

impl Member {
    /// The member of a tile. Blocks whose tile has no rows return, but the first tile of a member stays with
    /// `keep_first`.
    pub fn of_tile(
        code: &mut Code,
        members: Members,
        (tile, unit): (Reg, Reg),
        thread: Reg,
        keep_first: bool,
        table: &mut Table,
    ) -> Self {
        let start = |code: &mut Code, first: Reg, number: Reg| {
            let before = code.div(first, unit);
            code.add(before, number)
        };
        let (number, first, end) = search(code, members, tile, thread, table, start);
        let start = start(code, first, number);
        let tile = code.sub(tile, start);
        let row = code.mad(tile, unit, first);
        let mut without = code.ge(row, end);
        if keep_first {
            let later = code.ne(tile, 0);
            without = code.and_pred(without, later);
        }
        code.return_if(without);
        Self { number, first, end, row, unit, tile }
    }

    /// The member of a row, and its first tile.
    pub fn of_row(code: &mut Code, members: Members, (row, unit): (Reg, Reg), thread: Reg, table: &mut Table) -> Self {
        let (number, first, end) = search(code, members, row, thread, table, |_, first, _| first);
        let tile = code.mov(0);
        Self { number, first, end, row: first, unit, tile }
    }

    /// The number of tiles that have rows.
    pub fn parts(&self, code: &mut Code) -> Reg {
        let rows = code.sub(self.end, self.first);
        let up = code.add(rows, self.unit);
        let up = code.sub(up, 1);
        code.div(up, self.unit)
    }

    /// Does the member have several tiles?
    pub fn has_several(&self, code: &mut Code) -> Reg {
        let rows = code.sub(self.end, self.first);
        code.lt(self.unit, rows)
    }

    /// The place of the result of a tile, among those of all members with several tiles.
    ///
    /// A member with more rows than a tile has at least as many whole halves of tiles as it has tiles. So its first
    /// place is its first row over half a tile, rounded down, and the number of places does not grow with that of
    /// members.
    pub fn slot(&self, code: &mut Code) -> Reg {
        let half = code.shr(self.unit, 1);
        let first = code.div(self.first, half);
        code.add(first, self.tile)
    }
}

/// The last member whose `start` is not above a number, with its first row and the one after its last. Starts are made
/// of the first row and the member, and do not descend; that of the first member is 0.
///
/// The lanes of a warp look at 32 members at a time, evenly spaced among those that are left: of up to 1024 members,
/// two loads are waited for.
fn search(
    code: &mut Code,
    members: Members,
    wanted: Reg,
    thread: Reg,
    table: &mut Table,
    start: impl Fn(&mut Code, Reg, Reg) -> Reg,
) -> (Reg, Reg, Reg) {
    let of = Topology::Graph(members.graph);
    let indptr = Slot::FirstEdges { of, direction: Direction::In, ends: false };
    let indptr = table.load(code, Class::U64, indptr);
    let count = table.load(code, Class::U32, Slot::Count(members.space));
    let last = code.sub(count, 1);
    let lane = code.and(thread, (1 << WARP_BITS) - 1);
    let (found, step) = (code.mov(0), code.mov(count));
    let again = code.label();
    code.place(again);
    let up = code.add(step, (1 << WARP_BITS) - 1);
    let next = code.shr(up, WARP_BITS);
    code.assign(step, next);
    // Lanes beyond the remaining candidates probe members that start above `wanted`, or the last member.
    let number = code.mad(lane, step, found);
    let number = code.min(number, last);
    let at = code.mad_wide(number, 4, indptr);
    let first = code.load_index(at);
    let start = start(code, first, number);
    let not_above = code.ge(wanted, start);
    let number = code.selp(number, found, not_above);
    let number = code.warp_max(number);
    code.assign(found, number);
    let more = code.ne(step, 1);
    code.jump_if(more, again);
    let at = code.mad_wide(found, 4, indptr);
    let (first, end) = (code.load_index(at), code.load_index((at, 4)));
    (found, first, end)
}
