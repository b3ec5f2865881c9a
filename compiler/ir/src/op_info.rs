//! Facts about operations, each stated once.
//!
//! [`Op::class`] is the only list of all operations here: a new operation gets its class in one line, and every question
//! below, which passes and lowering ask, has an answer for it. A rule that needs more than a class (a derivative, a
//! kernel) matches on operations where it stands.

use crate::dataflow::Dataflow;
use crate::ops::Op;
use crate::stacks::VertexRows;
use crate::types::{Graph, Input, Param};

/// Kinds of operations by the rows that they read and how their results are stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OpClass {
    /// In memory before a run, or a number: inputs, parameters, optimizer states, constants, row counts.
    Leaf,
    /// Random numbers, a function of position and step.
    Random,
    /// An element from the elements at the same position of the operands, which broadcast.
    Elementwise,
    /// The same elements in the same order under another type: shares the memory of its operand.
    View,
    /// A row from the same row of the operands, other than by element or by product with a weight.
    Row,
    /// Rows times a weight.
    Product,
    /// A weight's gradient: the sum over rows of outer products.
    Outer,
    /// Rows times the weights of their members, and the gradients of these.
    GroupedProduct,
    /// The row of an endpoint for each edge.
    Gather,
    /// A reduction over the edges of each row.
    Segment,
    /// The rows of edges as rows of vertices, or the other way round.
    Reindex,
    /// Rows at the distinct endpoints of a graph, from or to rows of vertices.
    Endpoints,
    /// A reduction over all rows.
    ReduceRows,
    /// A reduction over the two-hop paths of each row.
    MetapathReduce,
    /// Rows that other ranks send, or a sum of the rows of all.
    Exchange,
}

impl Op {
    /// The kind of the operation.
    pub fn class(&self) -> OpClass {
        match self {
            Op::Input(_) | Op::Param(_) | Op::State(..) | Op::Const(_) | Op::Count(_) => OpClass::Leaf,
            Op::RandomMask { .. } => OpClass::Random,
            Op::Unary(_) | Op::Binary(_) | Op::Broadcast(_) => OpClass::Elementwise,
            Op::StopGradient | Op::Reshape(_) | Op::Rows | Op::Unrows => OpClass::View,
            Op::Concat | Op::Slice { .. } | Op::Transpose { .. } | Op::OneHot { .. } => OpClass::Row,
            Op::RowProduct { .. } | Op::ReduceTrailing { .. } => OpClass::Row,
            Op::MatMul { .. } | Op::MatMulT { .. } => OpClass::Product,
            Op::Outer { .. } => OpClass::Outer,
            Op::Grouped { .. } => OpClass::GroupedProduct,
            Op::GatherSrc(_) | Op::GatherDst(_) => OpClass::Gather,
            Op::Segment { .. } | Op::SegmentEndpoints { .. } | Op::SegmentArg { .. } => OpClass::Segment,
            Op::Reindex(_) => OpClass::Reindex,
            Op::GatherRows(..) | Op::ScatterRows(..) | Op::ScatterAdd(_) => OpClass::Endpoints,
            Op::ReduceSpace(_) | Op::LinkLoss(_) => OpClass::ReduceRows,
            Op::MetapathReduce(_) => OpClass::MetapathReduce,
            Op::Exchange(_) | Op::SumRanks => OpClass::Exchange,
        }
    }

    /// Is each row of the result a function of the same row of the operands, whatever the rows are? Such an operation
    /// can be computed on other rows: for vertices instead of edges, for endpoints instead of all vertices.
    pub fn is_row_wise(&self) -> bool {
        match self.class() {
            OpClass::Elementwise | OpClass::Product => true,
            // The rows of a parameter are those of its type alone.
            OpClass::View => !matches!(self, Op::Rows | Op::Unrows),
            // Labels are inputs, which have their rows.
            OpClass::Row => !matches!(self, Op::OneHot { .. }),
            _ => false,
        }
    }

    /// Is the value in memory before anything runs, or a constant?
    pub fn is_leaf(&self) -> bool {
        self.class() == OpClass::Leaf
    }

    /// Can the value differ from one run of a program to the next without an operand that does?
    pub fn varies(&self, flow: &Dataflow) -> bool {
        match self {
            Op::Param(_) | Op::State(..) | Op::RandomMask { .. } => true,
            Op::Exchange(to) => match flow.vertex_types[to.index()].rows {
                VertexRows::Mirrors(_, mirrors) => mirrors.permutations().is_some(),
                _ => false,
            },
            op => op.graph().is_some_and(|graph| flow.graphs[graph.index()].shuffle.is_some()),
        }
    }

    /// Is the derivative 0 wherever it exists, or is none wanted?
    pub fn blocks_gradient(&self) -> bool {
        match self {
            Op::Param(_) => false,
            Op::StopGradient | Op::OneHot { .. } | Op::SegmentArg { .. } => true,
            op => matches!(op.class(), OpClass::Leaf | OpClass::Random),
        }
    }

    /// The parameter that the operation reads, or whose state it reads.
    pub fn param_mut(&mut self) -> Option<&mut Param> {
        match self {
            Op::Param(param) | Op::State(param, _) => Some(param),
            _ => None,
        }
    }

    /// The input that the operation reads.
    pub fn input_mut(&mut self) -> Option<&mut Input> {
        match self {
            Op::Input(input) => Some(input),
            _ => None,
        }
    }

    /// A short name, for names of values and for messages: the mnemonic of the text format without tables and
    /// directions.
    pub fn name(&self) -> &'static str {
        match self {
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
            Op::Reshape(_) => "reshape",
            Op::Concat => "concat",
            Op::Slice { .. } => "slice",
            Op::Transpose { .. } => "transpose",
            Op::OneHot { .. } => "one_hot",
            Op::Rows => "rows",
            Op::Unrows => "unrows",
            Op::Reindex(_) => "reindex",
            Op::MatMul { .. } => "matmul",
            Op::MatMulT { .. } => "matmul_t",
            Op::Outer { .. } => "outer",
            Op::RowProduct { .. } => "row_product",
            Op::Grouped { form, .. } => form.name(),
            Op::GatherSrc(_) | Op::GatherDst(_) => "gather",
            Op::Segment { reduce, .. } | Op::SegmentEndpoints { reduce, .. } => reduce.name(),
            Op::SegmentArg { extreme, .. } => extreme.arg_name(),
            Op::MetapathReduce(sum) => sum.term.name(),
            Op::GatherRows(..) => "gather_rows",
            Op::ScatterRows(..) => "scatter_rows",
            Op::ScatterAdd(_) => "scatter_add",
            Op::Exchange(_) => "exchange",
            Op::SumRanks => "sum_ranks",
            Op::ReduceTrailing { .. } => "reduce",
            Op::ReduceSpace(_) => "total",
            Op::LinkLoss(_) => "link_loss",
        }
    }

    /// The semantic graph that it goes along, if it is one.
    pub fn graph(&self) -> Option<Graph> {
        match self {
            Op::GatherSrc(graph) | Op::GatherDst(graph) | Op::Grouped { members: graph, .. } => Some(*graph),
            Op::Segment { graph, .. } | Op::SegmentEndpoints { graph, .. } | Op::SegmentArg { graph, .. } => {
                Some(*graph)
            }
            _ => None,
        }
    }

    /// A key for hash tables that separates most operations of the same kind: equal for equal operations.
    pub fn attribute(&self) -> [u64; 2] {
        match self {
            Op::Input(input) => [input.index() as u64, 0],
            Op::Param(param) => [param.index() as u64, 0],
            Op::State(param, slot) => [param.index() as u64, (*slot).into()],
            // 0 and -0 are equal numbers.
            Op::Const(number) => [(number + 0.0).to_bits(), 0],
            Op::RandomMask { stream, .. } => [(*stream).into(), 0],
            Op::Slice { start, len } => [*start as u64, *len as u64],
            Op::Transpose { axis } => [*axis as u64, 0],
            Op::Exchange(to) => [to.index() as u64, 0],
            _ => [self.graph().map_or(0, |graph| graph.index() as u64), 0],
        }
    }
}
