//! A small heterogeneous graph to build programs on, and finite differences.

use hgnnc_fusion::lower;
use hgnnc_interp::{Bindings, Tensor, run};
use hgnnc_ir::batch::BatchLayout;
use hgnnc_ir::dataflow::{
    Binding, GraphDecl, Init, InputDecl, Matrix, ParamDecl, PatternDecl, RelationDecl, Step, VertexTypeDecl,
};
use hgnnc_ir::random;
use hgnnc_ir::{
    BinaryOp, Dataflow, Dim, Direction, Graph, Layout, MetapathTerm, Op, Param, Phase, Reduce, Space, Stage, Type,
    Value, VertexType, verify,
};
use hgnnc_kernel_ir::kernel;
use hgnnc_passes::{PassCx, PassManager, differentiate};

/// 4 vertices.
pub const A: VertexType = VertexType(0);
/// 3 vertices.
pub const B: VertexType = VertexType(1);
/// A -> B with a duplicate edge, an isolated source (3) and an isolated destination (1).
pub const AB: Graph = Graph(0);
/// A -> A with self loops; vertex 2 has no in-edges.
pub const AA: Graph = Graph(1);
/// A -> B without edges.
pub const NONE: Graph = Graph(2);
/// B -> B, complete.
pub const BB: Graph = Graph(3);

/// A program under construction and what it runs on.
pub struct World {
    pub flow: Dataflow,
    pub bindings: Bindings,
    draws: u64,
}

impl World {
    pub fn new() -> Self {
        let mut flow = Dataflow::new("test");
        for name in ["A", "B"] {
            flow.vertex_types.push(VertexTypeDecl::new(name.into(), name.to_lowercase()));
        }
        for (name, src, dst) in [("AB", A, B), ("AA", A, A), ("none", A, B), ("BB", B, B)] {
            let (name, dataset_name) = (name.to_string(), name.to_lowercase());
            let steps = vec![Step { relation: flow.relations.len() as u32, reverse: false }];
            flow.relations.push(RelationDecl { name: name.clone(), dataset_name, src, dst });
            flow.graphs.push(GraphDecl::new(name, src, dst, steps));
        }
        let bindings = Bindings {
            num_vertices: vec![4, 3],
            edges: vec![
                vec![(0, 0), (1, 0), (1, 0), (0, 2), (2, 2)],
                vec![(0, 0), (3, 0), (0, 1), (1, 1), (2, 1), (1, 3), (3, 3)],
                vec![],
                (0..3).flat_map(|dst| (0..3).map(move |src| (src, dst))).collect(),
            ],
            seed: 11,
            step: 5,
            ..Bindings::default()
        };
        Self { flow, bindings, draws: 0 }
    }

    /// Random numbers in [low, high).
    pub fn draw(&mut self, rows: usize, width: usize, low: f64, high: f64) -> Tensor {
        self.draws += 1;
        let key = self.draws;
        Tensor::from_fn(rows, width, |row, column| {
            low + (high - low) * random::uniform(key, (row * width + column) as u64)
        })
    }

    /// A parameter with elements in [low, high).
    pub fn param_in(&mut self, dims: impl Into<Vec<Dim>>, low: f64, high: f64) -> Value {
        let dims = dims.into();
        let tensor = self.draw(1, self.bindings.width(&dims), low, high);
        let name = format!("w{}", self.flow.params.len());
        let param = self.flow.declare_param(ParamDecl::new(name, dims, Init::Constant(0.0), true));
        self.bindings.params.insert(param, tensor);
        self.flow.add(Op::Param(param), &[])
    }

    /// A parameter with elements in [-1, 1).
    pub fn param(&mut self, dims: &[usize]) -> Value {
        self.param_in(fixed(dims), -1.0, 1.0)
    }

    /// A vertex value made of a parameter with elements in [low, high).
    pub fn rows_in(&mut self, vertex: VertexType, dims: &[usize], low: f64, high: f64) -> Value {
        let mut all = vec![Dim::Count(vertex)];
        all.extend(fixed(dims));
        let table = self.param_in(all, low, high);
        self.flow.add(Op::Rows, &[table])
    }

    /// A vertex value made of a parameter.
    pub fn rows(&mut self, vertex: VertexType, dims: &[usize]) -> Value {
        self.rows_in(vertex, dims, -1.0, 1.0)
    }

    /// An edge value made of parameters, no two elements equal.
    pub fn edges(&mut self, graph: Graph, dims: &[usize]) -> Value {
        let decl = self.flow.graphs[graph.index()].clone();
        let (src, dst) = (self.rows(decl.src, dims), self.rows(decl.dst, dims));
        let src = self.flow.add(Op::GatherSrc(graph), &[src]);
        let dst = self.flow.add(Op::GatherDst(graph), &[dst]);
        let both = self.flow.binary(BinaryOp::Add, src, dst);
        // Duplicate edges differ by this, and so extrema have no ties.
        let noise = self.input(Type::fixed(Space::Edges(graph), dims), -0.1, 0.1);
        self.flow.binary(BinaryOp::Add, both, noise)
    }

    /// An input of any type.
    pub fn input(&mut self, ty: Type, low: f64, high: f64) -> Value {
        let name = format!("x{}", self.flow.inputs.len());
        let mut tensor = self.draw(self.bindings.rows(ty.space), self.bindings.width(&ty.dims), low, high);
        if ty.is_sparse() {
            // Every third element is not stored.
            tensor.data.iter_mut().step_by(3).for_each(|x| *x = 0.0);
        }
        let binding = Binding::Label(A, name.clone());
        let input = self.flow.declare_input(InputDecl { name, ty, binding });
        self.bindings.inputs.insert(input, tensor);
        self.flow.add(Op::Input(input), &[])
    }

    /// Sparse features of A, `A[5]`.
    pub fn sparse(&mut self) -> Value {
        let pattern = self.flow.declare_pattern(PatternDecl { vertex: A, columns: 5, matrix: Matrix::Features });
        let ty = Type { layout: Layout::Sparse(pattern), ..Type::fixed(Space::Vertices(A), &[5]) };
        self.input(ty, 0.2, 1.0)
    }

    /// The sum of all elements of a value, each with its own weight.
    pub fn loss_of(&mut self, value: Value) -> Value {
        let ty = self.flow.ty(value).clone();
        let weights = self.input(ty.clone(), 0.3, 1.7);
        let mut sum = self.flow.binary(BinaryOp::Mul, value, weights);
        if !ty.dims.is_empty() {
            sum = self.flow.reduce_trailing(Reduce::Sum, ty.dims.len(), sum);
        }
        if !ty.is_unit() {
            sum = self.flow.add(Op::ReduceSpace(Reduce::Sum), &[sum]);
        }
        sum
    }

    /// Compares the derivative of `loss` by every element of every parameter with central differences.
    pub fn check(&mut self, name: &str, loss: Value) {
        let wrt: Vec<Param> = (0..self.flow.params.len()).map(Param::new).collect();
        let num_forward = self.flow.values.len();
        let gradients = differentiate(&mut self.flow, loss, &wrt);
        for data in &self.flow.values[num_forward..] {
            // The edge of a maximum is found where its elements are at hand.
            let rank = |op: &Op| match op {
                Op::Input(input) => matches!(self.flow.inputs[input.index()].binding, Binding::EdgeRank(..)),
                _ => false,
            };
            let forward = matches!(data.op, Op::SegmentArg { .. }) || rank(&data.op);
            assert_eq!(data.phase, if forward { Phase::Forward } else { Phase::Backward }, "{name}");
        }
        let here = run(&self.flow, &self.bindings).expect("bound");
        let forward = {
            let mut forward = self.flow.clone();
            forward.values.truncate(num_forward);
            forward
        };
        for param in wrt {
            let gradient = gradients.iter().find(|(p, _)| *p == param).map(|(_, g)| *g);
            if let Some(gradient) = gradient {
                assert_eq!(self.flow.ty(gradient), &self.flow.param_type(param), "{name}");
            }
            for element in 0..self.bindings.params[&param].data.len() {
                let at = |offset: f64| {
                    let mut bindings = self.bindings.clone();
                    bindings.params.get_mut(&param).expect("declared").data[element] += offset;
                    run(&forward, &bindings).expect("bound").scalar(loss)
                };
                let h = 1e-5;
                let expected = (at(h) - at(-h)) / (2.0 * h);
                let found = gradient.map_or(0.0, |g| here[g].data[element]);
                assert!(
                    (found - expected).abs() <= 1e-6 * expected.abs().max(1.0),
                    "{name}: derivative by element {element} of {param} is {found}, differences say {expected}"
                );
            }
        }
    }
}

pub fn fixed(dims: &[usize]) -> Vec<Dim> {
    dims.iter().map(|&d| Dim::Fixed(d)).collect()
}

/// Names an operation. A new operation does not compile until it stands here, and then [`KINDS`] and a case in
/// `gradients.rs` are due.
pub fn kind(op: &Op) -> &'static str {
    match op {
        Op::Input(_) => "input",
        Op::Param(_) => "param",
        Op::State(..) => "state",
        Op::Const(_) => "const",
        Op::Count(_) => "count",
        Op::RandomMask { .. } => "mask",
        Op::Unary(f) => f.name(),
        Op::Binary(f) => f.name(),
        Op::Broadcast(_) => "broadcast",
        Op::StopGradient => "stop_gradient",
        Op::Reindex(_) => "reindex",
        Op::LinkLoss(_) => "link_loss",
        Op::Reshape(_) => "reshape",
        Op::Concat => "concat",
        Op::Slice { .. } => "slice",
        Op::Transpose { .. } => "transpose",
        Op::RowProduct { .. } => "row_product",
        Op::OneHot { .. } => "one_hot",
        Op::Rows => "rows",
        Op::Unrows => "unrows",
        Op::MatMul { .. } => "matmul",
        Op::MatMulT { .. } => "matmul_t",
        Op::Grouped { .. } => "grouped",
        Op::Outer { .. } => "outer",
        Op::GatherSrc(_) => "gather_src",
        Op::GatherDst(_) => "gather_dst",
        Op::Segment { direction, reduce, .. } => match (direction, reduce) {
            (Direction::In, Reduce::Sum) => "segment.in.sum",
            (Direction::In, Reduce::Max) => "segment.in.max",
            (Direction::In, Reduce::Min) => "segment.in.min",
            (Direction::In, Reduce::Lse) => "segment.in.lse",
            (Direction::Out, Reduce::Sum) => "segment.out.sum",
            (Direction::Out, Reduce::Max) => "segment.out.max",
            (Direction::Out, Reduce::Min) => "segment.out.min",
            (Direction::Out, Reduce::Lse) => "segment.out.lse",
        },
        Op::SegmentEndpoints { reduce, .. } => match reduce {
            Reduce::Sum => "segment_endpoints.sum",
            Reduce::Max => "segment_endpoints.max",
            Reduce::Min => "segment_endpoints.min",
            Reduce::Lse => "segment_endpoints.lse",
        },
        // Only gradients have it.
        Op::SegmentArg { .. } => "segment_arg",
        Op::MetapathReduce(sum) => match (sum.direction, sum.term) {
            (_, MetapathTerm::LogSumExp) => "paths.lse",
            (Direction::In, MetapathTerm::WeightedSum) => "paths.in.sum",
            (Direction::Out, MetapathTerm::WeightedSum) => "paths.out.sum",
            // Only gradients have it.
            (_, MetapathTerm::WeightedSlope) => "paths.slope",
        },
        Op::GatherRows(..) => "select",
        Op::ScatterRows(..) => "replace",
        Op::ScatterAdd(_) => "scatter_add",
        // Placement comes after differentiation (`place.rs`).
        Op::Exchange(_) => "exchange",
        Op::SumRanks => "sum_ranks",
        Op::ReduceTrailing { reduce, .. } => match reduce {
            Reduce::Sum => "trailing.sum",
            Reduce::Max => "trailing.max",
            Reduce::Min => "trailing.min",
            Reduce::Lse => "trailing.lse",
        },
        Op::ReduceSpace(reduce) => match reduce {
            Reduce::Sum => "space.sum",
            Reduce::Max => "space.max",
            Reduce::Min => "space.min",
            Reduce::Lse => "space.lse",
        },
    }
}

/// Every name that [`kind`] gives.
pub const KINDS: &[&str] = &[
    "input",
    "param",
    "state",
    "const",
    "count",
    "mask",
    "broadcast",
    "stop_gradient",
    "reshape",
    "concat",
    "slice",
    "transpose",
    "row_product",
    "one_hot",
    "rows",
    "unrows",
    "matmul",
    "matmul_t",
    "outer",
    "gather_src",
    "gather_dst",
    "segment.in.sum",
    "segment.in.max",
    "segment.in.min",
    "segment.in.lse",
    "segment.out.sum",
    "segment.out.max",
    "segment.out.min",
    "segment.out.lse",
    "segment_endpoints.sum",
    "segment_endpoints.max",
    "segment_endpoints.min",
    "segment_endpoints.lse",
    "paths.lse",
    "paths.in.sum",
    "paths.out.sum",
    "select",
    "replace",
    "scatter_add",
    "trailing.sum",
    "trailing.max",
    "trailing.min",
    "trailing.lse",
    "space.sum",
    "space.max",
    "space.min",
    "space.lse",
];

/// The stage of values that a test appends by hand.
pub fn at_stage(flow: &mut Dataflow, stage: Stage) {
    flow.cursor.stage = stage;
}

/// Compares the gradients of the loss of a program with central differences of its definition; `complete` adds the tables that
/// the program has beside those of the definition.
pub fn gradients_are_those_of(
    program: &Dataflow,
    params: &[Param],
    bindings: &Bindings,
    complete: impl Fn(&Dataflow) -> Bindings,
    definition: impl Fn(&Bindings) -> f64,
) {
    const STEP: f64 = 1e-5;
    let mut joint = program.clone();
    let result = joint.result("loss").expect("a loss");
    let gradients = differentiate(&mut joint, result, params);
    verify(&joint).unwrap_or_else(|broken| panic!("{broken:#?}\n{joint}"));
    let found = run(&joint, &complete(&joint)).expect("bound");
    assert!(gradients.len() >= 2, "{joint}");
    for (param, gradient) in gradients {
        for (element, found) in found[gradient].data.iter().enumerate() {
            let [above, below] = [STEP, -STEP].map(|step| {
                let mut moved = bindings.clone();
                moved.params.get_mut(&param).expect("bound").data[element] += step;
                definition(&moved)
            });
            let expected = (above - below) / (2.0 * STEP);
            assert!((expected - found).abs() < 1e-8, "{param}[{element}]: {found} instead of {expected}\n{joint}");
        }
    }
}

/// Compares the kernels of a program of mini-batches and of its gradients with the interpreter, after all passes.
pub fn kernels_compute_gradients(program: &Dataflow, params: &[Param], bindings: &Bindings) {
    let mut joint = program.clone();
    let passes = PassManager::default();
    let mut cx = PassCx { batch: Some(BatchLayout::default()), ..PassCx::default() };
    passes.run_forward(&mut joint, &mut cx);
    let result = joint.result("loss").expect("a loss");
    for (param, gradient) in differentiate(&mut joint, result, params) {
        joint.output(format!("d{param}"), gradient);
    }
    passes.run_joint(&mut joint, &mut cx, || None);
    let kernels = lower(&joint).unwrap_or_else(|error| panic!("{error}\n{joint}"));
    kernel::verify(&kernels).unwrap_or_else(|broken| panic!("{broken:#?}\n{kernels}"));
    let expected = run(&joint, bindings).unwrap_or_else(|error| panic!("{error}\n{joint}"));
    let found = hgnnc_interp::kernels::run(&kernels, bindings).unwrap_or_else(|error| panic!("{error}\n{kernels}"));
    assert!(joint.outputs.len() >= 3, "{joint}");
    for output in &joint.outputs {
        let found = found.output(&output.kind).expect("kernels have the outputs of their program");
        for (x, y) in expected[output.value].data.iter().zip(&found.data) {
            assert!((x - y).abs() < 1e-12, "{:?}: {y} instead of {x}\n{joint}\n{kernels}", output.kind);
        }
    }
}
