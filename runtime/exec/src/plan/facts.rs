//! What the plan needs to know about the values of a program.

use hgnnc_ir::dataflow::{Binding, Dataflow};
use hgnnc_ir::infer::show;
use hgnnc_ir::ops::{BinaryOp, Direction, Op};
use hgnnc_ir::types::{Dim, Layout, Space, Type, Value};

use crate::data::BoundData;
use crate::error::ExecError;
use crate::kernels::product::Extents;

/// Facts of one program bound to data.
pub(super) struct Facts<'a> {
    pub flow: &'a Dataflow,
    pub data: &'a BoundData,
    /// The value whose storage a value shares: reshapes and the like only change how it is seen.
    root: Vec<Value>,
    /// Is the value needed for an output?
    live: Vec<bool>,
    /// Does the value depend on no parameter, state, mask or counter?
    fixed: Vec<bool>,
}

impl<'a> Facts<'a> {
    pub fn new(flow: &'a Dataflow, data: &'a BoundData) -> Self {
        let mut facts = Self { flow, data, root: vec![], live: vec![false; flow.values.len()], fixed: vec![] };
        for value in flow.handles() {
            let node = flow.value(value);
            let root = if facts.is_alias(value) { facts.root[node.args[0].index()] } else { value };
            facts.root.push(root);
            let fixed = match &node.op {
                Op::Param(_) | Op::State(..) | Op::RandomMask { .. } => false,
                Op::Input(input) => {
                    !matches!(flow.inputs[input.index()].binding, Binding::StepNumber | Binding::EpochNumber)
                }
                Op::Const(_) | Op::Count(_) => true,
                Op::Unary(_)
                | Op::Binary(_)
                | Op::Broadcast(_)
                | Op::StopGradient
                | Op::Reshape(_)
                | Op::Concat
                | Op::Slice { .. }
                | Op::OneHot { .. }
                | Op::Rows(_)
                | Op::Unrows
                | Op::MatMul { .. }
                | Op::MatMulT { .. }
                | Op::Outer { .. }
                | Op::GatherSrc(_)
                | Op::GatherDst(_)
                | Op::Segment { .. }
                | Op::ReduceTrailing { .. }
                | Op::ReduceSpace(_) => node.args.iter().all(|a| facts.fixed[a.index()]),
            };
            facts.fixed.push(fixed);
        }
        let mut pending: Vec<Value> = flow.outputs.iter().map(|output| output.value).collect();
        while let Some(value) = pending.pop() {
            let root = facts.root(value);
            if !std::mem::replace(&mut facts.live[root.index()], true) {
                pending.extend(&flow.value(root).args);
            }
        }
        facts
    }

    fn is_alias(&self, value: Value) -> bool {
        let node = self.flow.value(value);
        match &node.op {
            Op::StopGradient | Op::Reshape(_) | Op::Rows(_) | Op::Unrows => true,
            Op::Broadcast(_) => self.flow.ty(node.args[0]) == &node.ty,
            // One row: every reduction of a single element is that element.
            Op::ReduceSpace(_) => self.flow.ty(node.args[0]).is_unit(),
            Op::Input(_)
            | Op::Param(_)
            | Op::State(..)
            | Op::Const(_)
            | Op::Count(_)
            | Op::RandomMask { .. }
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Concat
            | Op::Slice { .. }
            | Op::OneHot { .. }
            | Op::MatMul { .. }
            | Op::MatMulT { .. }
            | Op::Outer { .. }
            | Op::GatherSrc(_)
            | Op::GatherDst(_)
            | Op::Segment { .. }
            | Op::ReduceTrailing { .. } => false,
        }
    }

    pub fn root(&self, value: Value) -> Value {
        self.root[value.index()]
    }

    pub fn is_live(&self, root: Value) -> bool {
        self.live[root.index()]
    }

    /// Is it (the storage of) an output?
    pub fn is_output(&self, root: Value) -> bool {
        self.flow.outputs.iter().any(|output| self.root(output.value) == root)
    }

    pub fn is_fixed(&self, root: Value) -> bool {
        self.fixed[root.index()]
    }

    /// Is it stored before anything runs?
    pub fn is_leaf(&self, root: Value) -> bool {
        matches!(self.flow.value(root).op, Op::Input(_) | Op::Param(_) | Op::State(..) | Op::Const(_) | Op::Count(_))
    }

    pub fn extent(&self, dim: Dim) -> usize {
        match dim {
            Dim::Fixed(extent) => extent,
            Dim::Count(vertex) => self.data.num_vertices[vertex.index()],
        }
    }

    pub fn volume(&self, dims: &[Dim]) -> usize {
        dims.iter().map(|&d| self.extent(d)).product()
    }

    /// Elements per row as this value is seen. Sparse values have one element per stored element.
    pub fn width(&self, value: Value) -> usize {
        let ty = self.flow.ty(value);
        if ty.is_sparse() { 1 } else { self.volume(&ty.dims) }
    }

    pub fn rows(&self, ty: &Type) -> usize {
        match (ty.layout, ty.space) {
            (Layout::Sparse(p), _) => self.data.patterns[p.index()].num_edges(),
            (Layout::Dense, Space::Unit) => 1,
            (Layout::Dense, Space::Vertices(v)) => self.data.num_vertices[v.index()],
            (Layout::Dense, Space::Edges(g)) => self.data.graphs[g.index()].num_edges(),
        }
    }

    /// All elements.
    pub fn len(&self, value: Value) -> usize {
        self.rows(self.flow.ty(value)) * self.width(value)
    }

    /// The graph or pattern whose edges (stored elements) the value has rows for.
    pub fn topology(&self, value: Value) -> Option<usize> {
        let ty = self.flow.ty(value);
        match (ty.layout, ty.space) {
            (Layout::Sparse(pattern), _) => Some(self.flow.graphs.len() + pattern.index()),
            (Layout::Dense, Space::Edges(graph)) => Some(graph.index()),
            (Layout::Dense, Space::Unit | Space::Vertices(_)) => None,
        }
    }

    pub fn is_pattern(&self, topology: usize) -> bool {
        topology >= self.flow.graphs.len()
    }

    /// The row space of a topology in a direction; `None` for the columns of a sparse matrix.
    pub fn row_space(&self, topology: usize, direction: Direction) -> Option<Space> {
        match topology.checked_sub(self.flow.graphs.len()) {
            None => Some(self.flow.graph_end(hgnnc_ir::Graph::new(topology), direction)),
            Some(pattern) => match direction {
                Direction::In => Some(Space::Vertices(self.flow.patterns[pattern].vertex)),
                Direction::Out => None,
            },
        }
    }

    /// Batch, k and n of a weight `[B.., k, N..]`.
    pub fn extents(&self, weight: &Type, batch: usize) -> Extents {
        let dims = &weight.dims;
        Extents { batch: self.volume(&dims[..batch]), k: self.extent(dims[batch]), n: self.volume(&dims[batch + 1..]) }
    }

    /// The operands of a product of two values.
    pub fn as_product(&self, root: Value) -> Option<(Value, Value)> {
        let node = self.flow.value(root);
        (node.op == Op::Binary(BinaryOp::Mul)).then(|| (node.args[0], node.args[1]))
    }

    /// An error at an operation.
    pub fn error(&self, value: Value, reason: impl Into<String>) -> ExecError {
        let node = self.flow.value(value);
        let shapes: Vec<String> =
            node.args.iter().map(|&a| self.flow.ty(a)).chain([&node.ty]).map(|ty| show(self.flow, ty)).collect();
        ExecError::Operation {
            program: self.flow.name.clone(),
            stage: node.stage.name(),
            op: op_name(&node.op).into(),
            shapes: shapes.join(", "),
            reason: reason.into(),
        }
    }
}

/// The name of an operation, for labels and messages.
pub(super) fn op_name(op: &Op) -> &'static str {
    match op {
        Op::Input(_) => "input",
        Op::Param(_) => "param",
        Op::State(..) => "state",
        Op::Const(_) => "const",
        Op::Count(_) => "count",
        Op::RandomMask { .. } => "random_mask",
        Op::Unary(_) | Op::Binary(_) => "element-wise",
        Op::Broadcast(_) => "broadcast",
        Op::StopGradient => "stop_gradient",
        Op::Reshape(_) => "reshape",
        Op::Concat => "concat",
        Op::Slice { .. } => "slice",
        Op::OneHot { .. } => "one_hot",
        Op::Rows(_) => "rows",
        Op::Unrows => "unrows",
        Op::MatMul { .. } => "matmul",
        Op::MatMulT { .. } => "matmul_t",
        Op::Outer { .. } => "outer",
        Op::GatherSrc(_) => "gather_src",
        Op::GatherDst(_) => "gather_dst",
        Op::Segment { .. } => "segment",
        Op::ReduceTrailing { .. } => "reduce_trailing",
        Op::ReduceSpace(_) => "reduce_space",
    }
}
