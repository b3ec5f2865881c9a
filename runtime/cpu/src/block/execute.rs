//! Calls the kernel of an operation for the rows or edges of a tile.

use hgnnc_data::InputData;
use hgnnc_kernel_ir::kernel::KernelOp;
use hgnnc_kernels::flat::{self, MaskDraw, Pair, Side, Two};
use hgnnc_kernels::simd::Dispatch;
use hgnnc_kernels::{Rows, extremes, product, rows, segment, softmax};
use hgnnc_machine::KernelFeature;

use super::{Block, begin, partial_of};
use crate::plan::{Access, Base, BlockOp, Level, MaskRows, Operand};

impl Block<'_> {
    pub fn execute(&self, op: &BlockOp, task: usize, tiles: &mut [Vec<f32>; 2]) {
        let dispatch = self.context.dispatch;
        match &op.op {
            KernelOp::ReduceAll(reduce, a) => {
                let partial = self.region.partials[op.out as usize];
                if let (Rows::Each(x), 1..) = (self.operand(a, op.level), partial.width) {
                    let out = partial_of(self.context, partial.offset + task * partial.width, partial.width);
                    rows::accumulate_rows(dispatch, *reduce, x, partial.width, out);
                }
                return;
            }
            KernelOp::OuterAll(of, x, y) => {
                let partial = self.region.partials[op.out as usize];
                let out = partial_of(self.context, partial.offset + task * partial.width, partial.width);
                let (x, y) = (whole(self.operand(x, op.level)), whole(self.operand(y, op.level)));
                product::outer(dispatch, *of, self.items, 0..of.k, x, y, out, true);
                return;
            }
            _ => {}
        }
        let out = if op.op.reduces_edges() {
            self.output(op.out, 0, self.num_rows)
        } else {
            self.output(op.out, self.start, self.items)
        };
        if out.is_empty() {
            return;
        }
        let width = self.region.locals[op.out as usize].width;
        match &op.op {
            KernelOp::Unary(f, a) => {
                self.elements(a, op.level, width, out, &mut tiles[0], |x, out| flat::unary(dispatch, *f, x, out));
            }
            KernelOp::Binary(f, a, b) => self.binary(Two::Plain(*f), [a, b], op.level, width, out, tiles),
            KernelOp::Compose { first, then, a, b } => {
                if let Some(pair) = Pair::of(*first, *then) {
                    self.binary(Two::Pair(pair), [a, b], op.level, width, out, tiles);
                } else {
                    self.binary(Two::Plain(*first), [a, b], op.level, width, out, tiles);
                    for out in out.chunks_mut(tiles[0].len()) {
                        let x = &mut tiles[0][..out.len()];
                        x.copy_from_slice(out);
                        flat::unary(dispatch, *then, x, out);
                    }
                }
            }
            KernelOp::Select { a, positive, otherwise } => {
                self.elements(a, op.level, width, out, &mut tiles[0], |x, out| {
                    flat::choose(dispatch, x, *positive as f32, *otherwise as f32, out);
                });
            }
            KernelOp::Copy(a) => {
                rows::fetch(dispatch, self.operand(a, op.level), a.width, width / a.width.max(1), 0, out)
            }
            KernelOp::ScatterRows(a, with) => {
                rows::fetch(dispatch, self.operand(a, op.level), a.width, width / a.width.max(1), 0, out);
                self.at_endpoints(with, width, out, |row, from| row.copy_from_slice(from));
            }
            KernelOp::ScatterAdd(parts) => {
                let a = &parts[0];
                rows::fetch(dispatch, self.operand(a, op.level), a.width, width / a.width.max(1), 0, out);
                for part in &parts[1..] {
                    self.at_endpoints(part, width, out, |row, from| {
                        row.iter_mut().zip(from).for_each(|(sum, &x)| *sum += x);
                    });
                }
            }
            KernelOp::Concat { parts, lead } => {
                let last_all = width / lead;
                let mut start = 0;
                for part in parts {
                    let last = part.width / lead;
                    let from = self.operand(part, op.level);
                    for (i, row) in out.chunks_exact_mut(width).enumerate() {
                        let from = from.row(i, part.width);
                        for outer in 0..*lead {
                            let to = outer * last_all + start;
                            row[to..to + last].copy_from_slice(&from[outer * last..][..last]);
                        }
                    }
                    start += last;
                }
            }
            KernelOp::Slice { a, last, start, len } => {
                let from = self.operand(a, op.level);
                for (i, row) in out.chunks_exact_mut(width).enumerate() {
                    let from = from.row(i, a.width);
                    for (outer, to) in row.chunks_exact_mut(*len).enumerate() {
                        to.copy_from_slice(&from[outer * last + start..outer * last + start + len]);
                    }
                }
            }
            KernelOp::Transpose { a, m, n, inner } => {
                rows::transpose(self.operand(a, op.level), a.width, (*m, *n, *inner), out);
            }
            KernelOp::RowProduct { m, k, n, a, b } => {
                let (left, right) = (self.operand(a, op.level), self.operand(b, op.level));
                product::by_row(dispatch, (left, a.width), (right, b.width), (*m, *k, *n), out);
            }
            KernelOp::OneHot(labels) => {
                out.fill(0.0);
                let Base::Labels(input) = labels.base else { unreachable!("a one-hot encoding reads labels") };
                if let Some(InputData::Classes(labels)) = self.context.data.inputs.get(input as usize) {
                    let labels = &labels[self.first_row + self.start..][..self.items];
                    for (row, &label) in out.chunks_exact_mut(width).zip(labels) {
                        if let Some(slot) = usize::try_from(label).ok().and_then(|l| row.get_mut(l)) {
                            *slot = 1.0;
                        }
                    }
                }
            }
            KernelOp::Mask { stream, rate } => {
                let draw = MaskDraw::new(self.context.seed, self.context.step, *stream, *rate);
                let columns = self.region.pattern_columns.filter(|_| op.level == Level::Edge);
                self.mask(draw, (columns, self.region.mask_rows[op.level as usize]), op.level, width, out);
            }
            KernelOp::MatMul(of, x, w) => {
                let (x, w) = (whole(self.operand(x, op.level)), whole(self.operand(w, op.level)));
                product::mat_mul(dispatch, *of, self.items, x, w, out);
            }
            KernelOp::MatMulT(of, y, w) => {
                let (y, w) = (whole(self.operand(y, op.level)), whole(self.operand(w, op.level)));
                product::mat_mul_t(dispatch, *of, self.items, y, w, out);
            }
            KernelOp::ReduceTrailing(reduce, a) => {
                let inner = a.width / width;
                let from = self.operand(a, op.level);
                if let Rows::Each(x) = from {
                    rows::reduce_trailing(dispatch, *reduce, x, inner, out);
                } else {
                    let tile = &mut tiles[0];
                    let per_tile = (tile.len() / a.width.max(1)).max(1);
                    for (t, out) in out.chunks_mut(per_tile * width).enumerate() {
                        let x = &mut tile[..out.len() / width * a.width];
                        if a.width > 0 {
                            rows::fetch(dispatch, from, a.width, 1, t * per_tile, x);
                        }
                        rows::reduce_trailing(dispatch, *reduce, x, inner, out);
                    }
                }
            }
            KernelOp::Dot(a, b) => {
                let inner = a.width / width;
                rows::dot(dispatch, self.operand(a, op.level), self.operand(b, op.level), width, inner, out);
            }
            KernelOp::Segment(reduce, a) => {
                segment::segment(dispatch, *reduce, self.operand(a, op.level), width, self.offsets, out, false);
            }
            KernelOp::WeightedSum { a, x } => {
                let (weights, from) = (self.operand(a, op.level), self.operand(x, op.level));
                segment::weighted_sum(
                    dispatch,
                    weights,
                    from,
                    a.width,
                    x.width / a.width.max(1),
                    self.offsets,
                    out,
                    false,
                );
            }
            KernelOp::SoftmaxSum { score, x, times } => {
                begin(op, out);
                self.softmax_sum([score, x], times.as_ref(), self.offsets, out);
            }
            KernelOp::SegmentArg { extreme, x, rank } => {
                begin(op, out);
                let (from, ranks) = (self.operand(x, op.level), self.operand(rank, op.level));
                extremes::segment_arg(dispatch, *extreme, from, ranks, x.width, self.offsets, out);
            }
            KernelOp::ReduceAll(..) | KernelOp::OuterAll(..) => {}
        }
    }

    /// Merges the tile's edges into the online softmax of their rows; `offsets` assigns edges to rows of `out`.
    pub(super) fn softmax_sum(
        &self,
        [score, x]: [&Operand; 2],
        times: Option<&Operand>,
        offsets: &[u32],
        out: &mut [f32],
    ) {
        let extents = (score.width, x.width / score.width.max(1));
        let times = times.map(|times| self.operand(times, Level::Edge));
        let (score, x) = (self.operand(score, Level::Edge), self.operand(x, Level::Edge));
        softmax::softmax_sum(self.context.dispatch, score, x, times, extents, offsets, out);
    }

    /// Visits the rows of the tile that are active vertices, with the corresponding row of `with`.
    fn at_endpoints(&self, with: &Operand, width: usize, out: &mut [f32], visit: impl Fn(&mut [f32], &[f32])) {
        let (Base::Stored(stored), Access::End(topology, direction)) = (with.base, with.access) else {
            unreachable!("rows of active vertices are stored")
        };
        let buffer = stored.range(self.context.ranges);
        let ends = self.context.data.topology(topology.index()).endpoints(direction);
        let first = self.first_row + self.start;
        let here = ends.within(first, self.items);
        // Stored operands do not alias outputs of this step.
        let start = buffer.offset + here.start * width;
        let from = self.context.slabs.read(buffer.slab, start, here.len() * width);
        for (&vertex, from) in ends.vertices[here].iter().zip(from.chunks_exact(width)) {
            let row = vertex as usize - first;
            visit(&mut out[row * width..(row + 1) * width], from);
        }
    }

    /// Calls `f` with the elements of an operand and of the result, in chunks if the operand is gathered.
    fn elements(
        &self,
        a: &Operand,
        level: Level,
        width: usize,
        out: &mut [f32],
        tile: &mut [f32],
        f: impl Fn(&[f32], &mut [f32]),
    ) {
        let from = self.operand(a, level);
        if let Rows::Each(x) = from {
            return f(x, out);
        }
        let per_tile = (tile.len() / width).max(1);
        for (t, out) in out.chunks_mut(per_tile * width).enumerate() {
            let x = &mut tile[..out.len()];
            rows::fetch(self.context.dispatch, from, width, 1, t * per_tile, x);
            f(x, out);
        }
    }

    fn binary(
        &self,
        f: Two,
        [a, b]: [&Operand; 2],
        level: Level,
        width: usize,
        out: &mut [f32],
        [tile_a, tile_b]: &mut [Vec<f32>; 2],
    ) {
        // Two statements: a tuple of both is built by copying them, which stalls on the stores just before it.
        let from_a = self.operand(a, level);
        let from_b = self.operand(b, level);
        let fused_gather = self.context.dispatch.has(KernelFeature::FusedGather);
        if fused_gather
            && a.width == width
            && b.width == width
            && flat::gathered(self.context.dispatch, f, &from_a, &from_b, width, out)
        {
            return;
        }
        let (read_a, read_b) = (Reading::of(&from_a, a.width, width), Reading::of(&from_b, b.width, width));
        let fetches = read_a == Reading::Fetch || read_b == Reading::Fetch;
        let per_tile = if fetches { (tile_a.len() / width).max(1) } else { out.len() / width };
        for (t, out) in out.chunks_mut(per_tile * width).enumerate() {
            let start = t * per_tile;
            let a = side(self.context.dispatch, &from_a, read_a, a.width, start, width, out.len(), tile_a);
            let b = side(self.context.dispatch, &from_b, read_b, b.width, start, width, out.len(), tile_b);
            flat::two(self.context.dispatch, f, a, b, out);
        }
    }

    fn mask(
        &self,
        draw: MaskDraw,
        (columns, of): (Option<usize>, MaskRows),
        level: Level,
        width: usize,
        out: &mut [f32],
    ) {
        let orders = &self.context.data.orders;
        let order = match of {
            MaskRows::Vertices(vertex) => orders.of(vertex),
            MaskRows::Rows | MaskRows::Edges(_) => None,
        };
        let moved = match of {
            MaskRows::Edges(graph) => orders.moved(graph),
            MaskRows::Rows | MaskRows::Vertices(_) => None,
        };
        let tile = self.start..self.start + self.items;
        match (columns, order, moved) {
            (Some(columns), None, _) => {
                let own = (&self.own[tile.clone()], self.first_row as u64);
                let other = (&self.other[tile], 0);
                let (row, column) = if self.incoming { (own, other) } else { (other, own) };
                flat::mask_sparse(self.context.dispatch, draw, row.0, row.1, column.0, column.1, columns as u64, out);
            }
            (Some(columns), Some(order), _) => self.tiles(1, out, |at, numbers, out| {
                let here = at..at + numbers.len();
                let (own, other) = (&self.own[here.clone()], &self.other[here]);
                let (row, first) = if self.incoming { (own, self.first_row) } else { (other, 0) };
                numbers.iter_mut().zip(row).for_each(|(to, &row)| *to = order.original[first + row as usize]);
                let (column, first) = if self.incoming { (other, 0) } else { (own, self.first_row as u64) };
                flat::mask_sparse(self.context.dispatch, draw, numbers, 0, column, first, columns as u64, out);
            }),
            (None, Some(order), _) => {
                let first = self.first_row + self.start;
                flat::mask_rows(self.context.dispatch, draw, &order.original[first..first + self.items], width, out);
            }
            (None, None, Some(moved)) => self.tiles(width, out, |at, positions, out| {
                for (edge, to) in (at..).zip(positions.iter_mut()) {
                    let vertex = match (self.incoming, self.vertices) {
                        (false, _) => self.other[edge] as usize,
                        (true, []) => self.first_row + self.own[edge] as usize,
                        (true, vertices) => vertices[self.own[edge] as usize] as usize,
                    };
                    let position = self.position.get(edge).copied().unwrap_or((self.first_edge + edge) as u32);
                    *to = position.wrapping_add(moved[vertex]);
                }
                flat::mask_rows(self.context.dispatch, draw, positions, width, out);
            }),
            (None, None, None) if level == Level::Edge && !self.position.is_empty() => {
                flat::mask_rows(self.context.dispatch, draw, &self.position[tile], width, out);
            }
            (None, None, None) => {
                flat::mask(self.context.dispatch, draw, (self.first(level) + self.start) as u64 * width as u64, out);
            }
        }
    }

    /// Visits the current tile in chunks: first row (edge) within the block, a buffer with one element per row,
    /// and the output elements.
    fn tiles(&self, width: usize, out: &mut [f32], mut visit: impl FnMut(usize, &mut [u32], &mut [f32])) {
        let mut numbers = [0; 256];
        for (part, out) in out.chunks_mut(numbers.len() * width.max(1)).enumerate() {
            let count = out.len() / width.max(1);
            visit(self.start + part * numbers.len(), &mut numbers[..count], out);
        }
    }
}

/// Access pattern of an operand of an element-wise operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    Elements,
    /// A scalar broadcast to all elements.
    Scalar,
    /// One row broadcast to all rows.
    Cycle,
    /// Gathered through a copy.
    Fetch,
}

impl Reading {
    fn of(from: &Rows<'_>, width: usize, result: usize) -> Self {
        match from {
            Rows::Each(_) if width == result => Reading::Elements,
            Rows::Same(_) if width == 1 => Reading::Scalar,
            Rows::Same(_) if width == result && flat::CYCLE.is_multiple_of(width) => Reading::Cycle,
            Rows::Each(_) | Rows::Same(_) | Rows::Picked(..) => Reading::Fetch,
        }
    }
}

/// An operand of an element-wise operation for `len` elements of rows from `start`; gathered operands are copied
/// to the tile buffer.
#[allow(clippy::too_many_arguments, reason = "an operand, its extents and the instruction set")]
fn side<'t>(
    dispatch: Dispatch,
    from: &Rows<'t>,
    reading: Reading,
    own: usize,
    start: usize,
    width: usize,
    len: usize,
    tile: &'t mut [f32],
) -> Side<'t> {
    match (from, reading) {
        (Rows::Each(data), Reading::Elements) => Side::Elements(&data[start * width..start * width + len]),
        (Rows::Same(data), Reading::Scalar) => Side::Scalar(data[0]),
        (Rows::Same(data), Reading::Cycle) => {
            let cycle = &mut tile[..flat::CYCLE];
            cycle[..own].copy_from_slice(&data[..own]);
            let mut filled = own;
            while filled < flat::CYCLE.min(len) {
                let (from, to) = cycle.split_at_mut(filled);
                let more = filled.min(to.len());
                to[..more].copy_from_slice(&from[..more]);
                filled += more;
            }
            Side::Cycle(cycle)
        }
        _ => {
            let tile = &mut tile[..len];
            rows::fetch(dispatch, *from, own, width / own.max(1), start, tile);
            Side::Elements(tile)
        }
    }
}

/// Elements of a contiguous operand.
fn whole(from: Rows<'_>) -> &[f32] {
    match from {
        Rows::Each(data) | Rows::Same(data) | Rows::Picked(data, _) => data,
    }
}
