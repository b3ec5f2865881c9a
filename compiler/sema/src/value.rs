//! Values during elaboration: IR values with the source of every width, and families of them.

use std::collections::BTreeMap;

use hgnnc_diag::Span;
use hgnnc_ir::{Dataflow, Dim, Direction, Graph, Space, Value, VertexType};

/// The extent of a dimension and where it was written, so that a mismatch can point to both origins.
#[derive(Clone, Copy, Debug)]
pub struct Width {
    /// The number of elements, which may be symbolic.
    pub dim: Dim,
    /// The place in the source that decides the extent.
    pub origin: Span,
}

/// A value with known space and widths.
#[derive(Clone, Debug)]
pub struct Val {
    /// Its representation in the program.
    pub kind: ValKind,
    /// Extents of its trailing dimensions.
    pub widths: Vec<Width>,
}

/// How a value exists in the program under construction.
#[derive(Clone, Debug)]
pub enum ValKind {
    /// A value of the dataflow program.
    Stored(Value),
    /// The identity matrix of a vertex type. Exists only until it is projected: then it *is* the weight.
    OneHot(VertexType),
    /// One-hot or sparse vertex values seen from an end of the edges. They are projected before they
    /// are gathered, since neither can be gathered.
    AtEnd(Box<ValKind>, Graph, Direction),
    /// A block-diagonal weight `[blocks, in / blocks, out / blocks]`.
    BlockDiagonal(Value),
}

impl Val {
    /// The extents, without their origins.
    pub fn dims(&self) -> Vec<Dim> {
        self.widths.iter().map(|w| w.dim).collect()
    }

    /// The space that the value has one row for.
    pub fn space(&self, flow: &Dataflow) -> Space {
        fn space(kind: &ValKind, flow: &Dataflow) -> Space {
            match kind {
                ValKind::Stored(value) => flow.ty(*value).space,
                ValKind::OneHot(vertex) => Space::Vertices(*vertex),
                ValKind::AtEnd(_, graph, _) => Space::Edges(*graph),
                ValKind::BlockDiagonal(_) => Space::Unit,
            }
        }
        space(&self.kind, flow)
    }
}

/// The meaning of an expression.
#[derive(Clone, Debug)]
pub enum Term {
    /// A mistake that is reported.
    Error,
    /// An optional input that was not given.
    Absent,
    /// A number that is known at compile time.
    Number(f64),
    /// A width, which may be symbolic.
    Width(Width),
    /// A width for each semantic graph in scope.
    Widths(Vec<Width>),
    /// A truth value that is known at compile time.
    Bool(bool),
    /// The name of an element-wise function.
    Function(String),
    /// A list, such as `[a, b]`.
    List,
    /// A single value of the program.
    One(Val),
    /// One value for each semantic graph in scope.
    PerGraph(Vec<Val>),
    /// Values of several vertex types.
    PerType(BTreeMap<VertexType, Val>),
    /// Edge values of several semantic graphs, between layers.
    PerEdge(BTreeMap<Graph, Val>),
    /// The results of a layer that has several.
    Record(Vec<(String, Term)>),
    /// A label field: vertex type and position of the field.
    Label(VertexType, usize),
}

impl Term {
    /// The number of values that it holds.
    pub fn num_values(&self) -> usize {
        match self {
            Term::Error | Term::Absent | Term::Number(_) | Term::Width(_) | Term::Bool(_) => 1,
            Term::Function(_) | Term::List | Term::One(_) | Term::Label(..) => 1,
            Term::Widths(all) => all.len(),
            Term::PerGraph(all) => all.len(),
            Term::PerType(all) => all.len(),
            Term::PerEdge(all) => all.len(),
            Term::Record(all) => all.iter().map(|(_, term)| term.num_values()).sum(),
        }
    }

    /// A phrase for messages, such as "a number".
    pub fn describe(&self) -> &'static str {
        match self {
            Term::Error => "nothing",
            Term::Absent => "an input that is not given",
            Term::Number(_) => "a number",
            Term::Width(_) | Term::Widths(_) => "a width",
            Term::Bool(_) => "a truth value",
            Term::Function(_) => "a function",
            Term::List => "a list",
            Term::One(_) => "a single value",
            Term::PerGraph(_) => "a value for each semantic graph",
            Term::PerType(_) => "a value of vertices",
            Term::PerEdge(_) => "a value of edges",
            Term::Record(_) => "several results of a layer",
            Term::Label(..) => "a label",
        }
    }
}

/// An extent in the user's terms.
pub fn show_dim(flow: &Dataflow, dim: Dim) -> String {
    match dim {
        Dim::Fixed(extent) => extent.to_string(),
        Dim::Count(vertex) => format!("number of `{}` vertices", flow.vertex_types[vertex.index()].name),
    }
}

/// Widths in the user's terms: `[8, 64]`.
pub fn show_widths(flow: &Dataflow, widths: &[Width]) -> String {
    let dims: Vec<String> = widths.iter().map(|w| show_dim(flow, w.dim)).collect();
    format!("[{}]", dims.join(", "))
}

/// A space in the user's terms.
pub fn show_space(flow: &Dataflow, space: Space) -> String {
    match space {
        Space::Unit => "a single row".to_string(),
        Space::Vertices(v) => format!("one row per `{}` vertex", flow.vertex_types[v.index()].name),
        Space::Edges(g) => format!("one row per edge of `{}`", flow.graphs[g.index()].name),
        Space::Index(extent) => format!("{extent} rows"),
        Space::Ends(g, direction) => {
            let name = &flow.graphs[g.index()].name;
            format!("one row per vertex at the {} end of `{name}`", direction.end_name())
        }
    }
}
