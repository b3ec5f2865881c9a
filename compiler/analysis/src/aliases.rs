//! Aliases, liveness and loop invariance of the values of a program.

use hgnnc_ir::dataflow::Binding;
use hgnnc_ir::width::Width;
use hgnnc_ir::{
    BinaryOp, Dataflow, Direction, Graph, Layout, Op, OpClass, Output, OutputKind, Pattern, Reduce, Space, Type,
    UnaryOp, Value,
};
use hgnnc_kernel_ir::kernel::Extents;

/// The owner of edges: a graph, or a sparsity pattern with its stored elements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "the variants are named for their contents")]
pub enum Topology {
    Graph(Graph),
    Pattern(Pattern),
}

/// The aliases of one program. A *root* is a value with storage of its own.
pub struct AliasAnalysis<'a> {
    /// The dataflow program that the roots and views belong to.
    pub flow: &'a Dataflow,
    /// The value whose storage a value aliases: reshapes and the like are views.
    storage: Vec<Value>,
    /// Is the value needed for an output?
    live: Vec<bool>,
    /// Does the value depend on no parameter, state, mask, counter or given input?
    invariant: Vec<bool>,
    /// Is it (the storage of) an output?
    output: Vec<bool>,
    /// Does an edge value reach, perhaps through others, an operation with a discontinuous derivative?
    decides: Vec<bool>,
}

impl<'a> AliasAnalysis<'a> {
    /// Finds the roots, and from the outputs backwards the live ones.
    pub fn new(flow: &'a Dataflow) -> Self {
        let none = vec![false; flow.values.len()];
        let mut aliases =
            Self { flow, storage: vec![], live: none.clone(), invariant: vec![], output: none.clone(), decides: none };
        for value in flow.handles() {
            let node = flow.value(value);
            let root = if aliases.is_alias(value) { aliases.storage[node.args[0].index()] } else { value };
            aliases.storage.push(root);
            let invariant = match &node.op {
                Op::Input(input) => !matches!(
                    flow.inputs[input.index()].binding,
                    Binding::StepNumber | Binding::EpochNumber | Binding::Given(_)
                ),
                op => !op.varies(flow) && node.args.iter().all(|a| aliases.invariant[a.index()]),
            };
            aliases.invariant.push(invariant);
        }
        for value in flow.handles().rev() {
            let node = flow.value(value);
            let edges = |v: Value| aliases.topology(v).is_some();
            if derivative_jumps(&node.op) || (edges(value) && aliases.decides[value.index()]) {
                let args: Vec<Value> = node.args.iter().copied().filter(|&arg| edges(arg)).collect();
                args.into_iter().for_each(|arg| aliases.decides[arg.index()] = true);
            }
        }
        let mut pending: Vec<Value> = flow.outputs.iter().map(|output| aliases.output_value(output)).collect();
        for &value in &pending {
            let root = aliases.storage_of(value);
            aliases.output[root.index()] = true;
        }
        while let Some(value) = pending.pop() {
            let root = aliases.storage_of(value);
            if !std::mem::replace(&mut aliases.live[root.index()], true) {
                pending.extend(&flow.value(root).args);
            }
        }
        aliases
    }

    /// The value that is computed for an output. An update that replaces some rows and keeps all others computes these
    /// rows only.
    pub fn output_value(&self, output: &Output) -> Value {
        let node = self.flow.value(self.storage_of(output.value));
        let kept = node.args.first().map(|&base| &self.flow.value(self.storage_of(base)).op);
        let in_place = match (&output.kind, kept) {
            (OutputKind::UpdateParam(param), Some(Op::Param(of))) => param == of,
            (OutputKind::UpdateState(param, slot), Some(Op::State(of, other))) => param == of && slot == other,
            _ => false,
        };
        let computed = |value: Value| !self.is_leaf(self.storage_of(value));
        match node.op {
            Op::ScatterRows(..) if in_place && computed(node.args[1]) => node.args[1],
            _ => output.value,
        }
    }

    fn is_alias(&self, value: Value) -> bool {
        let node = self.flow.value(value);
        match &node.op {
            Op::Broadcast(_) => self.flow.ty(node.args[0]) == &node.ty,
            // One row: every reduction of a single element is that element.
            Op::ReduceSpace(_) => self.flow.ty(node.args[0]).is_unit(),
            op => op.class() == OpClass::View,
        }
    }

    /// The root whose storage a value aliases.
    pub fn storage_of(&self, value: Value) -> Value {
        self.storage[value.index()]
    }

    /// Does an output need it?
    pub fn is_live(&self, root: Value) -> bool {
        self.live[root.index()]
    }

    /// Is it, or the storage of, an output?
    pub fn is_output(&self, root: Value) -> bool {
        self.output[root.index()]
    }

    /// Does it depend on no parameter, state, mask, counter or given input?
    pub fn is_invariant(&self, root: Value) -> bool {
        self.invariant[root.index()]
    }

    /// Is the value in memory before anything runs?
    pub fn is_leaf(&self, root: Value) -> bool {
        self.flow.value(root).op.is_leaf()
    }

    /// Elements per row of this view. Sparse values have one element per stored element.
    pub fn width(&self, value: Value) -> Width {
        let ty = self.flow.ty(value);
        if ty.is_sparse() { Width::one() } else { self.flow.expanded(Width::of(&ty.dims)) }
    }

    /// Does an edge value decide which branch a derivative takes (at a relu, at the larger of two values)? Every
    /// traversal that recomputes it must round it in the same way, or forward and backward pass take different
    /// branches.
    pub fn decides(&self, value: Value) -> bool {
        self.decides[value.index()]
    }

    /// The graph or pattern whose edges (stored elements) the value has rows for.
    pub fn topology(&self, value: Value) -> Option<Topology> {
        let ty = self.flow.ty(value);
        match (ty.layout, ty.space) {
            (Layout::Sparse(pattern), _) => Some(Topology::Pattern(pattern)),
            (Layout::Dense, Space::Edges(graph)) => Some(Topology::Graph(graph)),
            (Layout::Dense, Space::Unit | Space::Vertices(_) | Space::Index(_) | Space::Endpoints(..)) => None,
        }
    }

    /// The graph whose edges are the rows of a value of vertices, which a traversal of the edges computes.
    pub fn edges_as_rows(&self, value: Value) -> Option<Graph> {
        let node = self.flow.value(value);
        match (&node.op, node.ty.space) {
            (Op::Reindex(_), Space::Vertices(_)) => match self.flow.ty(node.args[0]).space {
                Space::Edges(graph) => Some(graph),
                _ => None,
            },
            _ => None,
        }
    }

    /// The row space of a topology in a direction; `None` for the columns of a sparse matrix.
    pub fn row_space(&self, topology: Topology, direction: Direction) -> Option<Space> {
        match (topology, direction) {
            (Topology::Graph(graph), _) => Some(self.flow.graph_end(graph, direction)),
            (Topology::Pattern(pattern), Direction::In) => {
                Some(Space::Vertices(self.flow.patterns[pattern.index()].vertex))
            }
            (Topology::Pattern(_), Direction::Out) => None,
        }
    }

    /// Batch, k and n of a weight `[B.., k, N..]`.
    pub fn extents(&self, weight: &Type, batch: usize) -> Extents {
        let dims = &weight.dims;
        Extents {
            batch: Width::of(&dims[..batch]),
            k: Width::of(&dims[batch..=batch]),
            n: Width::of(&dims[batch + 1..]),
        }
    }
}

fn derivative_jumps(op: &Op) -> bool {
    match op {
        Op::Unary(f) => matches!(
            f,
            UnaryOp::Relu
                | UnaryOp::LeakyRelu(_)
                | UnaryOp::Elu
                | UnaryOp::Abs
                | UnaryOp::Sign
                | UnaryOp::Step
                | UnaryOp::Floor
        ),
        Op::Binary(f) => matches!(f, BinaryOp::Max | BinaryOp::Min | BinaryOp::Eq | BinaryOp::Gt),
        Op::ReduceTrailing { reduce, .. } | Op::ReduceSpace(reduce) => matches!(reduce, Reduce::Max | Reduce::Min),
        _ => false,
    }
}
