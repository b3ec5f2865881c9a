//! Element-wise functions over contiguous elements, and dropout masks.

use hgnnc_ir::ops::{BinaryOp, UnaryOp};
use hgnnc_ir::random;

use super::Rows;
use crate::math;
use crate::simd::{Dispatch, multiversion};

/// Elements of a repeated row: many, so that its loops vectorize.
pub const CYCLE: usize = 256;

/// Operand of an element-wise operation.
#[derive(Clone, Copy, Debug)]
pub enum Side<'a> {
    /// As many elements as the result.
    Elements(&'a [f32]),
    /// One number, broadcast to all elements.
    Scalar(f32),
    /// One row of [`CYCLE`] elements, repeated.
    Cycle(&'a [f32]),
}

impl Side<'_> {
    #[inline(always)]
    fn element(self, k: usize) -> f32 {
        match self {
            Side::Elements(x) => x[k],
            Side::Scalar(x) => x,
            Side::Cycle(x) => x[k % CYCLE],
        }
    }
}

multiversion! {
    /// `out = f(x)`; equal lengths.
    pub fn unary(dispatch: Dispatch, op: UnaryOp, x: &[f32], out: &mut [f32]) as unary_body
}

#[inline(always)]
fn unary_body<const FMA: bool>(op: UnaryOp, x: &[f32], out: &mut [f32]) {
    let n = out.len();
    let x = &x[..n];
    macro_rules! each {
        ($f:expr) => {
            for i in 0..n {
                out[i] = $f(x[i]);
            }
        };
    }
    match op {
        UnaryOp::Neg => each!(|v: f32| -v),
        UnaryOp::Exp => each!(math::exp::<FMA>),
        UnaryOp::Log => each!(math::ln::<FMA>),
        UnaryOp::Log1p => each!(math::ln_1p::<FMA>),
        UnaryOp::Softplus => each!(math::softplus::<FMA>),
        UnaryOp::Sqrt => each!(|v: f32| v.sqrt()),
        UnaryOp::Recip => each!(|v: f32| 1.0 / v),
        UnaryOp::Abs => each!(|v: f32| v.abs()),
        UnaryOp::Sign => each!(|v: f32| {
            let up = if v > 0.0 { 1.0 } else { 0.0 };
            let down = if v < 0.0 { 1.0 } else { 0.0 };
            // NaN stays NaN.
            if v.is_nan() { v } else { up - down }
        }),
        UnaryOp::Step => each!(|v: f32| if v > 0.0 { 1.0 } else { 0.0 }),
        UnaryOp::Tanh => each!(math::tanh::<FMA>),
        UnaryOp::Sigmoid => each!(math::sigmoid::<FMA>),
        UnaryOp::Relu => each!(|v: f32| if v < 0.0 { 0.0 } else { v }),
        UnaryOp::LeakyRelu(slope) => {
            let slope = slope as f32;
            each!(|v: f32| if v > 0.0 { v } else { slope * v });
        }
        UnaryOp::Elu => each!(|v: f32| if v > 0.0 { v } else { math::expm1_neg::<FMA>(v) }),
        UnaryOp::Gelu => each!(math::gelu::<FMA>),
        UnaryOp::Erf => each!(math::erf::<FMA>),
        UnaryOp::Floor => each!(|v: f32| v.floor()),
        UnaryOp::Cos => each!(|v: f32| v.cos()),
        UnaryOp::Sin => each!(|v: f32| v.sin()),
    }
}

multiversion! {
    /// `out = a ∘ b`; element sides have the length of `out`.
    pub fn binary(dispatch: Dispatch, op: BinaryOp, a: Side<'_>, b: Side<'_>, out: &mut [f32]) as binary_body
}

#[inline(always)]
fn binary_body<const FMA: bool>(op: BinaryOp, a: Side<'_>, b: Side<'_>, out: &mut [f32]) {
    let n = out.len();
    macro_rules! each {
        ($f:expr) => {
            match (a, b) {
                (Side::Elements(a), Side::Elements(b)) => {
                    let (a, b) = (&a[..n], &b[..n]);
                    for i in 0..n {
                        out[i] = $f(a[i], b[i]);
                    }
                }
                (Side::Elements(a), Side::Scalar(b)) => {
                    let a = &a[..n];
                    for i in 0..n {
                        out[i] = $f(a[i], b);
                    }
                }
                (Side::Scalar(a), Side::Elements(b)) => {
                    let b = &b[..n];
                    for i in 0..n {
                        out[i] = $f(a, b[i]);
                    }
                }
                (Side::Scalar(a), Side::Scalar(b)) => out.fill($f(a, b)),
                (Side::Elements(a), Side::Cycle(b)) => {
                    for (out, a) in out.chunks_mut(CYCLE).zip(a.chunks(CYCLE)) {
                        let (a, b) = (&a[..out.len()], &b[..out.len()]);
                        for i in 0..out.len() {
                            out[i] = $f(a[i], b[i]);
                        }
                    }
                }
                (Side::Cycle(a), Side::Elements(b)) => {
                    for (out, b) in out.chunks_mut(CYCLE).zip(b.chunks(CYCLE)) {
                        let (a, b) = (&a[..out.len()], &b[..out.len()]);
                        for i in 0..out.len() {
                            out[i] = $f(a[i], b[i]);
                        }
                    }
                }
                // Operands that are the same for all rows, such as those of the one vertex whose edges fill a tile.
                (a, b) => {
                    let (first, rest) = out.split_at_mut(n.min(CYCLE));
                    for (k, o) in first.iter_mut().enumerate() {
                        *o = $f(a.element(k), b.element(k));
                    }
                    for rest in rest.chunks_mut(CYCLE) {
                        rest.copy_from_slice(&first[..rest.len()]);
                    }
                }
            }
        };
    }
    match op {
        BinaryOp::Add => each!(|x: f32, y: f32| x + y),
        BinaryOp::Sub => each!(|x: f32, y: f32| x - y),
        BinaryOp::Mul => each!(|x: f32, y: f32| x * y),
        BinaryOp::Div => each!(|x: f32, y: f32| x / y),
        BinaryOp::Max => each!(larger),
        BinaryOp::Min => each!(smaller),
        BinaryOp::Pow => each!(power),
        BinaryOp::LogAddExp => each!(math::log_add_exp::<FMA>),
        BinaryOp::Eq => each!(|x: f32, y: f32| if x == y { 1.0 } else { 0.0 }),
        BinaryOp::Gt => each!(|x: f32, y: f32| if x > y { 1.0 } else { 0.0 }),
    }
}

/// Composition of two element-wise functions.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "variants and fields are named for what they hold")]
pub enum Pair {
    /// `leaky_relu(a + b)` with this slope.
    AddLeakyRelu(f32),
    SubExp,
}

impl Pair {
    /// `then(f(a, b))`, if it has a fused loop.
    pub fn of(f: BinaryOp, then: UnaryOp) -> Option<Self> {
        match (f, then) {
            (BinaryOp::Add, UnaryOp::LeakyRelu(slope)) => Some(Pair::AddLeakyRelu(slope as f32)),
            (BinaryOp::Sub, UnaryOp::Exp) => Some(Pair::SubExp),
            _ => None,
        }
    }

    /// The two functions, in order.
    pub fn functions(self) -> (BinaryOp, UnaryOp) {
        match self {
            Pair::AddLeakyRelu(slope) => (BinaryOp::Add, UnaryOp::LeakyRelu(slope.into())),
            Pair::SubExp => (BinaryOp::Sub, UnaryOp::Exp),
        }
    }
}

/// Element-wise function of two operands.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "variants and fields are named for what they hold")]
pub enum Two {
    Plain(BinaryOp),
    Pair(Pair),
}

/// `out = f(a, b)`; element operands have the length of `out`. Bound by L1 bandwidth.
pub fn two(dispatch: Dispatch, f: Two, a: Side<'_>, b: Side<'_>, out: &mut [f32]) {
    match f {
        Two::Plain(f) => binary(dispatch, f, a, b, out),
        Two::Pair(Pair::AddLeakyRelu(slope)) => {
            binary(dispatch, BinaryOp::Add, a, b, out);
            leaky_relu(dispatch, slope, out);
        }
        Two::Pair(Pair::SubExp) => {
            binary(dispatch, BinaryOp::Sub, a, b, out);
            exp(dispatch, out);
        }
    }
}

multiversion! {
    /// In-place `leaky_relu` with this negative slope.
    fn leaky_relu(dispatch: Dispatch, slope: f32, x: &mut [f32]) as leaky_relu_body
}

#[inline(always)]
fn leaky_relu_body<const FMA: bool>(slope: f32, x: &mut [f32]) {
    x.iter_mut().for_each(|v| *v = if *v > 0.0 { *v } else { slope * *v });
}

multiversion! {
    /// `exp` in place. Compute-bound: some 25 instructions per vector.
    fn exp(dispatch: Dispatch, x: &mut [f32]) as exp_body
}

#[inline(always)]
fn exp_body<const FMA: bool>(x: &mut [f32]) {
    x.iter_mut().for_each(|v| *v = math::exp::<FMA>(*v));
}

multiversion! {
    /// `positive` where `x` is above zero, `otherwise` elsewhere.
    pub fn choose(dispatch: Dispatch, x: &[f32], positive: f32, otherwise: f32, out: &mut [f32]) as choose_body
}

#[inline(always)]
fn choose_body<const FMA: bool>(x: &[f32], positive: f32, otherwise: f32, out: &mut [f32]) {
    out.iter_mut().zip(x).for_each(|(o, &x)| *o = if x > 0.0 { positive } else { otherwise });
}

/// `out = f(a, b)` for rows of 8 or 16 elements, some of them gathered, without copying them. Returns false if
/// unsupported. Bound by the latency of the gathered rows, most of which are in the L2 cache.
pub fn gathered(dispatch: Dispatch, f: Two, a: &Rows<'_>, b: &Rows<'_>, width: usize, out: &mut [f32]) -> bool {
    let some = matches!((a, b), (Rows::Picked(..), _) | (_, Rows::Picked(..)));
    let known = match f {
        Two::Plain(f) => matches!(f, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul),
        Two::Pair(_) => true,
    };
    if !some || !known || !matches!(width, 8 | 16) {
        return false;
    }
    gathered_rows(dispatch, f, a, b, width, out);
    if f == Two::Pair(Pair::SubExp) {
        // Full vectors, however narrow the rows are.
        exp(dispatch, out);
    }
    true
}

multiversion! {
    /// [`gathered`] without the final `exp`: for `SubExp` only the difference.
    fn gathered_rows(dispatch: Dispatch, f: Two, a: &Rows<'_>, b: &Rows<'_>, width: usize, out: &mut [f32]) as gathered_body
}

#[inline(always)]
fn gathered_body<const FMA: bool>(f: Two, a: &Rows<'_>, b: &Rows<'_>, width: usize, out: &mut [f32]) {
    if width == 8 { gathered_fixed::<8>(f, *a, *b, out) } else { gathered_fixed::<16>(f, *a, *b, out) }
}

#[inline(always)]
fn gathered_fixed<const W: usize>(f: Two, a: Rows<'_>, b: Rows<'_>, out: &mut [f32]) {
    match f {
        Two::Plain(BinaryOp::Add) => each_row::<W>(a, b, out, |x, y| x + y),
        Two::Plain(BinaryOp::Mul) => each_row::<W>(a, b, out, |x, y| x * y),
        Two::Pair(Pair::AddLeakyRelu(slope)) => each_row::<W>(a, b, out, |x, y| {
            let sum = x + y;
            if sum > 0.0 { sum } else { slope * sum }
        }),
        Two::Plain(_) | Two::Pair(Pair::SubExp) => each_row::<W>(a, b, out, |x, y| x - y),
    }
}

#[inline(always)]
fn row_of<const W: usize>(f: &impl Fn(f32, f32) -> f32, out: &mut [f32; W], x: &[f32; W], y: &[f32; W]) {
    for k in 0..W {
        out[k] = f(x[k], y[k]);
    }
}

#[inline(always)]
fn each_row<const W: usize>(a: Rows<'_>, b: Rows<'_>, out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    let out = out.as_chunks_mut::<W>().0;
    let n = out.len();
    match (a, b) {
        (Rows::Picked(a, i), Rows::Picked(b, j)) => {
            let (a, b) = (a.as_chunks::<W>().0, b.as_chunks::<W>().0);
            for ((o, &i), &j) in out.iter_mut().zip(&i[..n]).zip(&j[..n]) {
                row_of(&f, o, &a[i as usize], &b[j as usize]);
            }
        }
        (Rows::Picked(a, i), Rows::Each(b)) => {
            let (a, b) = (a.as_chunks::<W>().0, b.as_chunks::<W>().0);
            for ((o, &i), b) in out.iter_mut().zip(&i[..n]).zip(&b[..n]) {
                row_of(&f, o, &a[i as usize], b);
            }
        }
        (Rows::Each(a), Rows::Picked(b, j)) => {
            let (a, b) = (a.as_chunks::<W>().0, b.as_chunks::<W>().0);
            for ((o, a), &j) in out.iter_mut().zip(&a[..n]).zip(&j[..n]) {
                row_of(&f, o, a, &b[j as usize]);
            }
        }
        (Rows::Picked(a, i), Rows::Same(b)) => {
            let (a, b) = (a.as_chunks::<W>().0, &b.as_chunks::<W>().0[0]);
            for (o, &i) in out.iter_mut().zip(&i[..n]) {
                row_of(&f, o, &a[i as usize], b);
            }
        }
        (Rows::Same(a), Rows::Picked(b, j)) => {
            let (a, b) = (&a.as_chunks::<W>().0[0], b.as_chunks::<W>().0);
            for (o, &j) in out.iter_mut().zip(&j[..n]) {
                row_of(&f, o, a, &b[j as usize]);
            }
        }
        (Rows::Each(_) | Rows::Same(_), Rows::Each(_) | Rows::Same(_)) => {
            for (e, o) in out.iter_mut().enumerate() {
                row_of(&f, o, &a.row(e, W).as_chunks::<W>().0[0], &b.row(e, W).as_chunks::<W>().0[0]);
            }
        }
    }
}

/// Maximum; if one is NaN the other one, like `f64::max`.
#[inline(always)]
pub fn larger(x: f32, y: f32) -> f32 {
    x.max(y)
}

/// Minimum; if one is NaN the other one, like `f64::min`.
#[inline(always)]
pub fn smaller(x: f32, y: f32) -> f32 {
    x.min(y)
}

#[inline(always)]
fn power(x: f32, y: f32) -> f32 {
    // Squares are by far the most frequent, and β^t of Adam needs the accuracy.
    if y == 2.0 { x * x } else { f64::from(x).powf(f64::from(y)) as f32 }
}

/// Parameters of a dropout mask: [`random::mask_element`] with its rate resolved.
#[derive(Clone, Copy, Debug)]
pub struct MaskDraw {
    /// Key of seed, step and stream.
    pub key: u64,
    /// Elements with random bits below it are kept.
    pub threshold: u32,
    /// The factor of kept elements.
    pub scale: f32,
    /// Rate 0 keeps everything, including the one word in 2^32 at or above the threshold.
    pub keep_all: bool,
}

impl MaskDraw {
    /// Dropout mask of a stream in a training step.
    pub fn new(seed: u64, step: u64, stream: u32, rate: f64) -> Self {
        Self {
            key: random::mask_key(seed, step, stream),
            threshold: random::keep_threshold(rate),
            scale: random::keep_scale(rate) as f32,
            keep_all: rate <= 0.0,
        }
    }

    #[inline(always)]
    fn element(self, index: u64) -> f32 {
        self.of_low(index as u32, random::high_offset(self.key, (index >> 32) as u32))
    }

    /// The element with this low half of its index, and the [`random::high_offset`] of the other half: vectors of 32-bit
    /// numbers have twice the elements of indices.
    #[inline(always)]
    fn of_low(self, low: u32, offset: u32) -> f32 {
        let bits = random::second_round(random::low_round(self.key, low), offset);
        if self.keep_all || bits < self.threshold { self.scale } else { 0.0 }
    }
}

multiversion! {
    /// Dropout mask elements `start..start + out.len()`.
    pub fn mask(dispatch: Dispatch, draw: MaskDraw, start: u64, out: &mut [f32]) as mask_body
}

#[inline(always)]
fn mask_body<const FMA: bool>(draw: MaskDraw, start: u64, out: &mut [f32]) {
    let (mut start, mut rest) = (start, out);
    while !rest.is_empty() {
        // The high half is the same up to the next multiple of 2^32.
        let same = (u64::from(u32::MAX - start as u32) + 1).min(rest.len() as u64);
        let (part, next) = rest.split_at_mut(same as usize);
        let (low, offset) = (start as u32, random::high_offset(draw.key, (start >> 32) as u32));
        let (chunks, few) = part.as_chunks_mut::<MASK_LANES>();
        let in_chunks = MASK_LANES * chunks.len();
        for (i, chunk) in chunks.iter_mut().enumerate() {
            let low = low + (MASK_LANES * i) as u32;
            for (k, o) in chunk.iter_mut().enumerate() {
                *o = draw.of_low(low + k as u32, offset);
            }
        }
        for (k, o) in few.iter_mut().enumerate() {
            *o = draw.of_low(low + (in_chunks + k) as u32, offset);
        }
        (start, rest) = (start + same, next);
    }
}

/// Mask elements that are drawn together.
const MASK_LANES: usize = 16;

multiversion! {
    /// Dropout mask rows at `position[i] · width`.
    pub fn mask_rows(dispatch: Dispatch, draw: MaskDraw, position: &[u32], width: usize, out: &mut [f32]) as mask_rows_body
}

#[inline(always)]
fn mask_rows_body<const FMA: bool>(draw: MaskDraw, position: &[u32], width: usize, out: &mut [f32]) {
    match width {
        1 => return mask_narrow::<1, 16>(draw, position, out),
        2 => return mask_narrow::<2, 8>(draw, position, out),
        4 => return mask_narrow::<4, 4>(draw, position, out),
        8 => return mask_narrow::<8, 2>(draw, position, out),
        _ => {}
    }
    for (row, &at) in out.chunks_exact_mut(width).zip(position) {
        mask_body::<FMA>(draw, u64::from(at) * width as u64, row);
    }
}

/// Rows of `W` elements, `G` at a time, which are [`MASK_LANES`]. `W` is a power of two, so that the elements of a row
/// have the same high half.
#[inline(always)]
fn mask_narrow<const W: usize, const G: usize>(draw: MaskDraw, position: &[u32], out: &mut [f32]) {
    let (rows, _) = out.as_chunks_mut::<W>();
    let (groups, rest) = rows.as_chunks_mut::<G>();
    let (positions, last) = position.as_chunks::<G>();
    for (rows, positions) in groups.iter_mut().zip(positions) {
        let [mut low, mut offset] = [[[0u32; W]; G]; 2];
        for g in 0..G {
            let start = u64::from(positions[g]) * W as u64;
            let of_row = random::high_offset(draw.key, (start >> 32) as u32);
            for k in 0..W {
                low[g][k] = start as u32 + k as u32;
                offset[g][k] = of_row;
            }
        }
        let (low, offset) = (low.as_flattened(), offset.as_flattened());
        let rows = rows.as_flattened_mut();
        for k in 0..MASK_LANES {
            rows[k] = draw.of_low(low[k], offset[k]);
        }
    }
    for (row, &at) in rest.iter_mut().zip(last) {
        let start = u64::from(at) * W as u64;
        for (k, o) in row.iter_mut().enumerate() {
            *o = draw.element(start + k as u64);
        }
    }
}

multiversion! {
    /// Dropout mask of a sparse matrix: element `i` is drawn at `row[i] · columns + column[i]`,
    /// rows counted from `first_row`.
    pub fn mask_sparse(
        dispatch: Dispatch,
        draw: MaskDraw, row: &[u32], first_row: u64, column: &[u32], first_column: u64, columns: u64, out: &mut [f32],
    ) as mask_sparse_body
}

#[inline(always)]
fn mask_sparse_body<const FMA: bool>(
    draw: MaskDraw,
    row: &[u32],
    first_row: u64,
    column: &[u32],
    first_column: u64,
    columns: u64,
    out: &mut [f32],
) {
    for ((o, &r), &c) in out.iter_mut().zip(row).zip(column) {
        *o = draw.element((first_row + u64::from(r)) * columns + first_column + u64::from(c));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::fetch;

    #[test]
    fn masks_are_drawn_element_by_element() {
        let dispatch = Dispatch::default();
        let draw = MaskDraw::new(3, 5, 7, 0.4);
        // Across a multiple of 2^32, and in rows of all sizes behind it.
        for (start, len) in [(0, 100), ((1 << 32) - 21, 90), (u64::MAX - 40, 40), (12, 0), (5, 3)] {
            let mut found = vec![f32::NAN; len];
            mask(dispatch, draw, start, &mut found);
            let expected: Vec<f32> = (start..start + len as u64).map(|i| draw.element(i)).collect();
            assert_eq!(found, expected, "from {start}");
        }
        let positions: Vec<u32> = (0..23).map(|i| if i % 3 == 0 { u32::MAX - i } else { 1000 * i }).collect();
        for width in [1, 2, 3, 4, 8, 12, 16, 40] {
            let mut found = vec![f32::NAN; width * positions.len()];
            mask_rows(dispatch, draw, &positions, width, &mut found);
            let indices =
                positions.iter().flat_map(|&at| (0..width as u64).map(move |k| u64::from(at) * width as u64 + k));
            assert_eq!(found, indices.map(|i| draw.element(i)).collect::<Vec<_>>(), "{width} elements");
        }
    }

    #[test]
    fn operands_that_all_rows_share_give_a_result_that_they_share() {
        let cycle: Vec<f32> = (0..CYCLE).map(|k| (k % 64) as f32 + 1.0).collect();
        for len in [0, 64, CYCLE, CYCLE + 64, 3 * CYCLE] {
            let of = |side: Side<'_>, k: usize| side.element(k);
            for (a, b) in [
                (Side::Cycle(&cycle), Side::Cycle(&cycle)),
                (Side::Cycle(&cycle), Side::Scalar(3.0)),
                (Side::Scalar(3.0), Side::Cycle(&cycle)),
            ] {
                let mut found = vec![f32::NAN; len];
                binary(Dispatch::default(), BinaryOp::Div, a, b, &mut found);
                assert_eq!(found, (0..len).map(|k| of(a, k) / of(b, k)).collect::<Vec<_>>(), "{len} elements");
            }
        }
    }

    #[test]
    fn gathered_rows_give_what_their_copies_give() {
        const EDGES: usize = 37;
        let dispatch = Dispatch::default();
        let numbers = |seed: u64, len: usize| -> Vec<f32> {
            (0..len as u64).map(|i| random::uniform(seed, i) as f32 - 0.5).collect()
        };
        let index: Vec<u32> = (0..EDGES as u32).map(|e| e * 5 % 7).collect();
        let other: Vec<u32> = (0..EDGES as u32).map(|e| e * 3 % 11).collect();
        let functions = [
            Two::Plain(BinaryOp::Add),
            Two::Plain(BinaryOp::Sub),
            Two::Plain(BinaryOp::Mul),
            Two::Pair(Pair::AddLeakyRelu(0.2)),
            Two::Pair(Pair::SubExp),
        ];
        for width in [8, 16] {
            let (x, y, each) = (numbers(1, 7 * width), numbers(2, 11 * width), numbers(3, EDGES * width));
            let (x, y) = (Rows::Picked(&x, &index), Rows::Picked(&y, &other));
            let (each, same) = (Rows::Each(&each), Rows::Same(&each[..width]));
            for (a, b) in [(x, y), (x, each), (each, y), (x, same), (same, y)] {
                let [mut of_a, mut of_b, mut expected, mut found] = [const { vec![] }; 4].map(|mut v: Vec<f32>| {
                    v.resize(EDGES * width, 0.0);
                    v
                });
                fetch(dispatch, a, width, 1, 0, &mut of_a);
                fetch(dispatch, b, width, 1, 0, &mut of_b);
                for f in functions {
                    two(dispatch, f, Side::Elements(&of_a), Side::Elements(&of_b), &mut expected);
                    assert!(gathered(dispatch, f, &a, &b, width, &mut found));
                    assert_eq!(found, expected, "{f:?}, {width} elements");
                }
                assert!(!gathered(dispatch, Two::Plain(BinaryOp::Pow), &a, &b, width, &mut found));
            }
            assert!(
                !gathered(dispatch, functions[0], &each, &same, width, &mut vec![0.0; EDGES * width]),
                "nothing is gathered"
            );
        }
    }
}
