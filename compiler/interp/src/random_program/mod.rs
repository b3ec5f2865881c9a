//! Random programs for differential tests: every pass and every back end must agree with the interpreter on them.
//!
//! Programs are well-typed and their numbers stay small (no infinities or NaN), so that results can be compared with
//! tolerances. Discontinuous functions (step, floor, comparisons) are applied to inputs only, where no rounding
//! precedes the jump; extremes and gates have discontinuous gradients wherever numbers are close to each other. Graphs
//! have isolated vertices, duplicate edges and self loops, or no edges at all. Programs often contain patterns that
//! passes rewrite: projections of gathered values, attention, constants, common subexpressions.

mod graphs;

use std::collections::BTreeMap;

use crate::{Bindings, Tensor};
use hgnnc_ir::dataflow::{
    Binding, Dataflow, GraphDecl, Init, InputDecl, Matrix, MetapathDecl, ParamDecl, PatternDecl, RelationDecl, Step,
    VertexTypeDecl,
};
use hgnnc_ir::metapath::{MetapathReduce, MetapathTerm, PiecewiseLinear};
use hgnnc_ir::ops::{BinaryOp, Direction, Op, Reduce, UnaryOp};
use hgnnc_ir::random;
use hgnnc_ir::types::{DType, Dim, Graph, Input, Layout, Param, Space, Stage, Type, Value, VertexType};

/// A forward program with a scalar result `loss` that depends on most values, further results `r0`, `r1`, …, and
/// bindings to run it on. Deterministic in `seed`. All extents except vertex counts are fixed.
pub fn random_program(seed: u64) -> (Dataflow, Bindings) {
    random(seed, false)
}

/// As [`random_program`], with factored metapath attention, which not every back end supports, and with sums over the
/// edges of a metapath (the last graph) that could be factored.
pub fn random_program_with_metapaths(seed: u64) -> (Dataflow, Bindings) {
    random(seed, true)
}

fn random(seed: u64, metapaths: bool) -> (Dataflow, Bindings) {
    let mut generator = Generator {
        flow: Dataflow::new(format!("random{seed}")),
        bindings: Bindings { seed, step: 1 + seed % 5, ..Bindings::default() },
        key: random::mask_key(seed, 0, 0),
        draws: 0,
        pool: vec![],
        leaves: vec![],
    };
    generator.tables();
    if metapaths {
        generator.metapath();
    }
    generator.leaves();
    for _ in 0..6 + generator.below(14) {
        generator.flow.cursor.stage = [Stage::FP, Stage::NA, Stage::SF][generator.below(3)];
        generator.production();
        if metapaths && generator.chance(0.3) {
            generator.metapath_attention();
        }
    }
    if metapaths {
        generator.metapath_attention();
        generator.over_metapath();
    }
    generator.outputs();
    (generator.flow, generator.bindings)
}

/// The seeds of a test: `usual` of them or `HGNN_RANDOM_CASES`, starting at `HGNN_RANDOM_SEED` or 0.
///
/// # Panics
/// If one of the two variables is not a number, so that a mistyped long run does not test nothing.
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is `{text}`, which is not a number")))
    };
    let start = number("HGNN_RANDOM_SEED").unwrap_or(0);
    start..start + number("HGNN_RANDOM_CASES").unwrap_or(usual)
}

struct Generator {
    flow: Dataflow,
    bindings: Bindings,
    key: u64,
    draws: u64,
    /// Dense f32 values of moderate size.
    pool: Vec<Value>,
    /// Values of the pool that are free of rounding.
    leaves: Vec<Value>,
}

impl Generator {
    fn uniform(&mut self) -> f64 {
        self.draws += 1;
        random::uniform(self.key, self.draws)
    }

    fn below(&mut self, n: usize) -> usize {
        ((self.uniform() * n as f64) as usize).min(n - 1)
    }

    fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    fn tensor(&mut self, rows: usize, width: usize) -> Tensor {
        // Multiples of 1/64 are exact in f32 as well.
        Tensor::from_fn(rows, width, |_, _| (self.uniform() * 128.0 - 64.0).round() / 64.0)
    }

    fn tables(&mut self) {
        for i in 0..2 + self.below(2) {
            let name = ["Paper", "Author", "Venue"][i];
            let dataset_name = name.to_lowercase();
            self.flow.vertex_types.push(VertexTypeDecl::new(name.into(), dataset_name));
            let count = [1, 2, 3, 5, 8][self.below(5)];
            self.bindings.num_vertices.push(count);
        }
        let num_types = self.flow.vertex_types.len();
        for i in 0..2 + self.below(3) {
            // The first graph stays within one vertex type, so that it can have self loops.
            let src = VertexType::new(self.below(num_types));
            let dst = if i == 0 { src } else { VertexType::new(self.below(num_types)) };
            let name = format!("rel{i}");
            self.flow.relations.push(RelationDecl { name: name.clone(), dataset_name: name, src, dst });
            self.flow.graphs.push(GraphDecl::new(
                format!("G{i}"),
                src,
                dst,
                vec![Step { relation: i as u32, reverse: false }],
            ));
            let ends = [src, dst].map(|end| self.bindings.num_vertices[end.index()]);
            let count = if self.chance(0.2) { 0 } else { self.below(3 * ends[1] + 2) };
            let mut edges: Vec<(u32, u32)> =
                (0..count).map(|_| (self.below(ends[0]) as u32, self.below(ends[1]) as u32)).collect();
            if self.chance(0.5) {
                edges.extend(edges.first().copied());
            }
            edges.sort_by_key(|&(src, dst)| (dst, src));
            self.bindings.edges.push(edges);
        }
    }

    /// Two more relations and the metapath along both: counted, or with one path per pair.
    fn metapath(&mut self) {
        let num_types = self.flow.vertex_types.len();
        let ends = [0; 3].map(|_| VertexType::new(self.below(num_types)));
        let counts = ends.map(|end| self.bindings.num_vertices[end.index()]);
        let single = self.chance(0.7);
        let mut hops = vec![];
        for hop in 0..2 {
            let (src, dst) = (ends[hop], ends[hop + 1]);
            let mut edges: Vec<(u32, u32)> = (0..self.below(3 * counts[hop + 1] + 2))
                .map(|_| (self.below(counts[hop]) as u32, self.below(counts[hop + 1]) as u32))
                .collect();
            edges.sort_unstable();
            edges.dedup_by_key(|edge| if single && hop == 0 { (edge.0, 0) } else { *edge });
            edges.sort_by_key(|&(src, dst)| (dst, src));
            let name = format!("hop{hop}");
            let steps = vec![Step { relation: self.flow.relations.len() as u32, reverse: false }];
            self.flow.relations.push(RelationDecl { name: name.clone(), dataset_name: name.clone(), src, dst });
            hops.push(Graph::new(self.flow.graphs.len()));
            self.flow.graphs.push(GraphDecl::new(name, src, dst, steps));
            self.bindings.edges.push(edges);
        }
        let [first, second] = [0, 1].map(|hop| &self.bindings.edges[hops[hop].index()]);
        let mut pairs: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        for &(src, middle) in first {
            for &(_, dst) in second.iter().filter(|edge| edge.0 == middle) {
                *pairs.entry((dst, src)).or_default() += 1;
            }
        }
        let once = single && pairs.values().all(|&paths| paths == 1);
        let steps = hops.iter().map(|hop| self.flow.graphs[hop.index()].steps[0]).collect();
        let (name, src, dst, counted) = ("path".to_owned(), ends[0], ends[2], !once);
        let of = Graph::new(self.flow.graphs.len());
        self.flow.graphs.push(GraphDecl { counted, ..GraphDecl::new(name, src, dst, steps) });
        self.flow.metapaths.push(MetapathDecl { of, hops, once });
        self.bindings.edges.push(pairs.keys().map(|&(dst, src)| (src, dst)).collect());
        if counted {
            let numbers = pairs.values().map(|&paths| paths as f64).collect();
            let decl = InputDecl {
                name: "path.count".into(),
                ty: Type::new(Space::Edges(of), vec![]),
                binding: Binding::EdgeCount(of),
            };
            let input = self.flow.declare_input(decl);
            self.bindings.inputs.insert(input, Tensor::new(pairs.len(), 1, numbers));
        }
    }

    /// Reductions over the edges of the metapath; attention if every pair has one path.
    fn over_metapath(&mut self) {
        let path = self.flow.metapaths[0].clone();
        if path.once && self.chance(0.7) {
            self.attention_over(path.of);
        }
        let Some(src) = self.end(path.of, Direction::Out) else { return };
        let mut messages = self.flow.add(Op::GatherSrc(path.of), &[src]);
        if !path.once {
            let count = self.flow.inputs.iter().position(|decl| decl.binding == Binding::EdgeCount(path.of));
            let count = self.flow.add(Op::Input(Input::new(count.expect("it is declared"))), &[]);
            messages = self.flow.binary(BinaryOp::Mul, messages, count);
            let number = self.flow.segment(path.of, Direction::In, Reduce::Sum, count);
            self.keep(number);
        }
        let sum = self.flow.segment(path.of, Direction::In, Reduce::Sum, messages);
        self.keep(sum);
    }

    fn leaves(&mut self) {
        for i in 0..self.flow.vertex_types.len() {
            let vertex = VertexType::new(i);
            let name = self.flow.vertex_types[i].name.clone();
            let width = 2 + self.below(4);
            let mut ty = Type::fixed(Space::Vertices(vertex), &[width]);
            let sparse = self.chance(0.4);
            if sparse {
                ty.layout = Layout::Sparse(self.flow.declare_pattern(PatternDecl {
                    vertex,
                    columns: width,
                    matrix: Matrix::Features,
                }));
            }
            let x = self.input(format!("{name}.x"), ty, Binding::Features(vertex, Matrix::Features));
            if sparse {
                self.sparse_projection(x, width);
            } else {
                self.pool.push(x);
                self.leaves.push(x);
            }
            // An embedding table with one row per vertex.
            let dims = vec![Dim::Count(vertex), Dim::Fixed(2 + self.below(3))];
            let table = self.param(dims);
            let rows = self.flow.add(Op::Rows, &[table]);
            self.pool.push(rows);
            self.leaves.push(rows);
        }
        let labels = Type { dtype: DType::I32, ..Type::fixed(Space::Vertices(VertexType(0)), &[]) };
        let input = self.input("Paper.topic".into(), labels, Binding::Label(VertexType(0), "topic".into()));
        let Op::Input(handle) = self.flow.value(input).op else { unreachable!("just built") };
        let rows = self.bindings.num_vertices[0];
        let classes = Tensor::from_fn(rows, 1, |_, _| self.below(4) as f64 - 1.0);
        self.bindings.inputs.insert(handle, classes);
        let hot = self.flow.add(Op::OneHot { classes: 3 }, &[input]);
        self.pool.push(hot);
        let graph = Graph(0);
        let weight = self.input("G0.weight".into(), Type::new(Space::Edges(graph), vec![]), Binding::EdgeWeight(graph));
        self.pool.push(weight);
        self.leaves.push(weight);
    }

    fn input(&mut self, name: String, ty: Type, binding: Binding) -> Value {
        let mut tensor = self.tensor(self.bindings.rows(ty.space), self.bindings.width(&ty.dims));
        if ty.is_sparse() {
            for i in 0..tensor.data.len() {
                if self.chance(0.5) {
                    tensor.data[i] = 0.0;
                }
            }
        }
        let input = self.flow.declare_input(InputDecl { name, ty, binding });
        self.bindings.inputs.insert(input, tensor);
        self.flow.add(Op::Input(input), &[])
    }

    fn param(&mut self, dims: Vec<Dim>) -> Value {
        let tensor = self.tensor(1, self.bindings.width(&dims));
        let name = format!("w{}", self.flow.params.len());
        let init = Init::Uniform(1.0);
        let decay = self.chance(0.5);
        let param = self.flow.declare_param(ParamDecl::new(name, dims, init, decay));
        self.bindings.params.insert(param, tensor);
        self.flow.add(Op::Param(param), &[])
    }

    /// A parameter of fixed extents; sometimes one that exists already.
    fn weight(&mut self, dims: Vec<Dim>) -> Value {
        let known = self.flow.params.iter().position(|decl| decl.dims == dims);
        match known {
            Some(row) if self.chance(0.3) => self.flow.add(Op::Param(Param::new(row)), &[]),
            _ => self.param(dims),
        }
    }

    fn sparse_projection(&mut self, mut x: Value, width: usize) {
        if self.chance(0.5) {
            let ty = self.flow.ty(x).clone();
            let mask = self.flow.add(Op::RandomMask { stream: 100, rate: 0.4, ty }, &[]);
            x = self.flow.binary(BinaryOp::Mul, x, mask);
        }
        if self.chance(0.3) {
            x = self.flow.unary(UnaryOp::Tanh, x);
        }
        let out = 2 + self.below(3);
        let w = self.param(vec![Dim::Fixed(width), Dim::Fixed(out)]);
        let h = self.flow.add(Op::MatMul { batch: 0 }, &[x, w]);
        self.pool.push(h);
        let sums = self.flow.reduce_trailing(Reduce::Sum, 1, x);
        self.keep(sums);
    }

    fn pick(&mut self) -> Value {
        // Prefers recent values over old ones.
        let n = self.pool.len();
        let i = if self.chance(0.5) { n - 1 - self.below(n.min(4)) } else { self.below(n) };
        self.pool[i]
    }

    fn pick_where(&mut self, test: impl Fn(&Type) -> bool) -> Option<Value> {
        let fitting: Vec<Value> = self.pool.iter().copied().filter(|&v| test(self.flow.ty(v))).collect();
        if fitting.is_empty() { None } else { Some(fitting[self.below(fitting.len())]) }
    }

    /// Adds a value that may be large to the pool, after bounding it.
    fn keep(&mut self, v: Value) {
        let v = self.flow.unary(UnaryOp::Tanh, v);
        self.pool.push(v);
    }

    /// Makes the infinities of empty reductions finite.
    fn clamp(&mut self, v: Value) -> Value {
        let (low, high) = (self.flow.constant(-2.0), self.flow.constant(2.0));
        let v = self.flow.binary(BinaryOp::Max, v, low);
        self.flow.binary(BinaryOp::Min, v, high)
    }

    fn positive(&mut self, v: Value) -> Value {
        let v = self.flow.unary(UnaryOp::Softplus, v);
        let half = self.flow.constant(0.5);
        self.flow.binary(BinaryOp::Add, v, half)
    }

    /// The trailing extents if all are fixed; other values are not picked for shape operations.
    fn fixed_dims(&self, v: Value) -> Option<Vec<usize>> {
        self.flow.ty(v).dims.iter().map(|d| d.fixed()).collect()
    }

    fn production(&mut self) {
        match self.below(18) {
            0 => self.smooth_unary(),
            1 => self.jump(),
            2 | 3 => self.elementwise(),
            4 => self.shape(),
            5 | 6 => self.product(),
            7 | 8 => self.gather(),
            9 => self.segment(),
            10 => self.reduction(),
            11 => self.attention(),
            12 => self.convolution(),
            13 => self.algebra(),
            14 => self.dropout(),
            15 | 16 => self.endpoints(),
            _ => self.scores(),
        }
    }

    fn smooth_unary(&mut self) {
        let x = self.pick();
        let bounded = [
            UnaryOp::Neg,
            UnaryOp::Abs,
            UnaryOp::Tanh,
            UnaryOp::Sigmoid,
            UnaryOp::Relu,
            UnaryOp::LeakyRelu(0.25),
            UnaryOp::Elu,
            UnaryOp::Gelu,
            UnaryOp::Erf,
            UnaryOp::Cos,
            UnaryOp::Sin,
        ];
        let on_positive =
            [UnaryOp::Log, UnaryOp::Log1p, UnaryOp::Sqrt, UnaryOp::Recip, UnaryOp::Exp, UnaryOp::Softplus];
        let choice = self.below(bounded.len() + on_positive.len());
        if let Some(&f) = bounded.get(choice) {
            let y = self.flow.unary(f, x);
            self.pool.push(y);
        } else {
            let x = self.flow.unary(UnaryOp::Tanh, x);
            let x = self.positive(x);
            let y = self.flow.unary(on_positive[choice - bounded.len()], x);
            self.keep(y);
        }
    }

    fn jump(&mut self) {
        let i = self.below(self.leaves.len());
        let x = self.leaves[i];
        let zero = self.flow.constant(0.0);
        let y = match self.below(5) {
            0 => self.flow.unary(UnaryOp::Sign, x),
            1 => self.flow.unary(UnaryOp::Step, x),
            2 => self.flow.unary(UnaryOp::Floor, x),
            3 => self.flow.binary(BinaryOp::Gt, x, zero),
            _ => self.flow.binary(BinaryOp::Eq, x, zero),
        };
        self.pool.push(y);
    }

    fn elementwise(&mut self) {
        let a = self.pick();
        let ty = self.flow.ty(a).clone();
        let fits = |other: &Type| {
            (other.space == ty.space || other.is_unit() || ty.is_unit())
                && (other.dims.starts_with(&ty.dims) || ty.dims.starts_with(&other.dims))
        };
        let b = match self.pick_where(fits) {
            Some(b) if self.chance(0.7) => b,
            _ => self.weight(ty.dims[..self.draws as usize % (ty.dims.len() + 1)].to_vec()),
        };
        let (a, b) = if self.chance(0.5) { (a, b) } else { (b, a) };
        let y = match self.below(8) {
            0 | 1 => self.flow.binary(BinaryOp::Add, a, b),
            2 => self.flow.binary(BinaryOp::Sub, a, b),
            3 => self.flow.binary(BinaryOp::Mul, a, b),
            4 => {
                let b = self.positive(b);
                self.flow.binary(BinaryOp::Div, a, b)
            }
            5 => self.flow.binary(BinaryOp::Max, a, b),
            6 => {
                let a = self.positive(a);
                let exponent = [2.0, 0.5, -1.0][self.below(3)];
                let exponent = self.flow.constant(exponent);
                let power = self.flow.binary(BinaryOp::Pow, a, exponent);
                self.flow.binary(BinaryOp::Min, power, b)
            }
            _ => self.flow.binary(BinaryOp::LogAddExp, a, b),
        };
        self.keep(y);
    }

    fn shape(&mut self) {
        let x = self.pick();
        let Some(dims) = self.fixed_dims(x) else { return };
        let space = self.flow.ty(x).space;
        let y = match self.below(7) {
            5 if dims.len() >= 2 => {
                let axis = self.below(dims.len() - 1);
                self.flow.add(Op::Transpose { axis }, &[x])
            }
            6 => return self.row_product(x, &dims),
            0 => {
                let mut wider = dims;
                wider.push(2);
                self.flow.add(Op::Broadcast(Type::fixed(space, &wider)), &[x])
            }
            1 => {
                let flat = dims.iter().product();
                let flat = self.flow.add(Op::Reshape(vec![Dim::Fixed(flat)]), &[x]);
                self.flow.add(Op::Reshape(vec![Dim::Fixed(1), self.flow.ty(flat).dims[0]]), &[flat])
            }
            2 => self.flow.add(Op::StopGradient, &[x]),
            3 if !dims.is_empty() => {
                let other = self.flow.unary(UnaryOp::Neg, x);
                let joined = self.flow.add(Op::Concat, &[x, other, x]);
                let last = dims[dims.len() - 1];
                let start = self.below(2 * last);
                let len = 1 + self.below(3 * last - start);
                self.flow.add(Op::Slice { start, len }, &[joined])
            }
            _ => {
                let ty = self.flow.ty(x).clone();
                if space == Space::Unit && !dims.is_empty() {
                    return self.by_rows(x);
                }
                let Space::Vertices(_) = space else { return };
                let table = self.flow.add(Op::Unrows, &[x]);
                let table = self.flow.unary(UnaryOp::Neg, table);
                let back = self.flow.add(Op::Rows, &[table]);
                debug_assert_eq!(*self.flow.ty(back), ty);
                back
            }
        };
        self.pool.push(y);
    }

    /// The product of the rows of a value, as matrices, with their transposes.
    fn row_product(&mut self, x: Value, dims: &[usize]) {
        let (batch, matrix) = match dims.len().checked_sub(2) {
            Some(batch) => (batch, x),
            None => {
                let shape = [Dim::Fixed(1), Dim::Fixed(dims.iter().product())];
                (0, self.flow.add(Op::Reshape(shape.to_vec()), &[x]))
            }
        };
        let transposed = self.flow.add(Op::Transpose { axis: batch }, &[matrix]);
        let factors = if self.chance(0.5) { [matrix, transposed] } else { [transposed, matrix] };
        let product = self.flow.add(Op::RowProduct { batch }, &factors);
        self.keep(product);
    }

    /// Computes on a unit value row by row along its leading dimension, together with a unit value shared by all rows.
    fn by_rows(&mut self, x: Value) {
        let rows = self.flow.add(Op::Rows, &[x]);
        let shared = self.flow.add(Op::ReduceSpace(Reduce::Sum), &[rows]);
        let product = self.flow.binary(BinaryOp::Mul, rows, shared);
        let most = self.flow.ty(product).dims.len();
        let sums = if most == 0 {
            product
        } else {
            let axes = 1 + self.below(most);
            self.flow.add(Op::ReduceTrailing { reduce: Reduce::Sum, axes }, &[product])
        };
        let back = self.flow.add(Op::Unrows, &[sums]);
        self.keep(back);
    }

    fn product(&mut self) {
        let x = self.pick();
        let Some(dims) = self.fixed_dims(x) else { return };
        if dims.is_empty() || dims.iter().product::<usize>() > 32 {
            return;
        }
        let batch = dims.len() - 1;
        let mut weight: Vec<Dim> = self.flow.ty(x).dims.clone();
        for _ in 0..self.below(3) {
            let extent = 1 + self.below(4);
            weight.push(Dim::Fixed(extent));
        }
        let w = self.weight(weight);
        let y = self.flow.add(Op::MatMul { batch }, &[x, w]);
        if self.chance(0.3) {
            let back = self.flow.add(Op::MatMulT { batch }, &[y, w]);
            self.keep(back);
        }
        if self.chance(0.3) {
            let outer = self.flow.add(Op::Outer { batch }, &[x, y]);
            self.keep(outer);
        }
        self.keep(y);
    }

    fn dropout(&mut self) {
        let x = self.pick();
        let ty = self.flow.ty(x).clone();
        let stream = self.flow.values.len() as u32;
        let mask = self.flow.add(Op::RandomMask { stream, rate: 0.3, ty }, &[]);
        let y = self.flow.binary(BinaryOp::Mul, x, mask);
        self.pool.push(y);
    }

    /// Attention scores as `a · (W x)`.
    fn scores(&mut self) {
        let x = self.pick();
        let Some(&[width]) = self.fixed_dims(x).as_deref() else { return };
        let (heads, inner) = (1 + self.below(2), 1 + self.below(3));
        let w = self.weight(vec![Dim::Fixed(width), Dim::Fixed(heads), Dim::Fixed(inner)]);
        let a = self.weight(vec![Dim::Fixed(heads), Dim::Fixed(inner)]);
        let h = self.flow.add(Op::MatMul { batch: 0 }, &[x, w]);
        let product = self.flow.binary(BinaryOp::Mul, h, a);
        let score = self.flow.reduce_trailing(Reduce::Sum, 1, product);
        self.keep(score);
        if self.chance(0.3) {
            self.keep(h);
        }
    }

    fn outputs(&mut self) {
        self.flow.cursor.stage = Stage::LC;
        let recent: Vec<Value> = self.pool.iter().rev().take(4).copied().collect();
        for (i, &v) in recent.iter().enumerate() {
            self.flow.output(format!("r{i}"), v);
        }
        let mut loss = None;
        for v in self.pool.clone() {
            let ty = self.flow.ty(v).clone();
            let mut sum = self.flow.binary(BinaryOp::Mul, v, v);
            if !ty.dims.is_empty() {
                sum = self.flow.reduce_trailing(Reduce::Sum, ty.dims.len(), sum);
            }
            if !ty.is_unit() {
                sum = self.flow.add(Op::ReduceSpace(Reduce::Sum), &[sum]);
            }
            loss = Some(loss.map_or(sum, |loss| self.flow.binary(BinaryOp::Add, loss, sum)));
        }
        self.flow.output("loss", loss.expect("the pool has leaves"));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::run;
    use hgnnc_ir::parse::parse;
    use hgnnc_ir::print::{print, without_origins};
    use hgnnc_ir::verify::verify;

    #[test]
    fn programs_are_sound_finite_and_read_back() {
        let mut mnemonics = BTreeSet::new();
        for seed in 0..400 {
            let (flow, bindings) = random_program(seed);
            let text = print(&flow);
            verify(&flow).unwrap_or_else(|broken| panic!("seed {seed}: {broken:#?}\n{text}"));
            let read = parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
            assert_eq!(read, without_origins(&flow), "seed {seed}\n{text}");
            assert_eq!(print(&read), text, "seed {seed}");
            let run = run(&flow, &bindings).expect("bound");
            let loss = run.scalar(flow.result("loss").expect("a loss"));
            assert!(loss.is_finite() && loss.abs() < 1e5, "seed {seed}: loss {loss}\n{text}");
            mnemonics.extend(flow.values.iter().map(|data| {
                hgnnc_ir::print::print_op(&flow, data).split([' ', '(']).next().map(str::to_owned).expect("a mnemonic")
            }));
        }
        // All mnemonics but those of optimizer state must occur.
        assert!(mnemonics.len() >= 60, "only {}: {mnemonics:?}", mnemonics.len());
    }
}
