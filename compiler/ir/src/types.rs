//! Handles, spaces and value types.

use crate::ops::Direction;

/// Declares a handle type: the position of a row of a table, printed with a prefix.
#[macro_export]
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The position in the table that this handle refers to.
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The handle of the table row `index`.
            pub fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("IR tables have fewer than 2^32 rows"))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}

handle!(
    /// A value of a [`crate::Dataflow`], printed `%7`.
    Value, "%"
);
handle!(
    /// A vertex type of the schema.
    VertexType, "v"
);
handle!(
    /// A semantic graph: a relation, a reverse or a metapath, with its end types.
    Graph, "g"
);
handle!(
    /// Several semantic graphs whose edges form one graph, see [`crate::stacks`].
    Stack, "s"
);
handle!(
    /// The sparsity pattern of a sparse feature matrix.
    Pattern, "p"
);
handle!(
    /// A trainable parameter of a model.
    Param, "w"
);
handle!(
    /// A value that the runtime provides before each run.
    Input, "in"
);

/// The row index of a value: one row per element of the space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Space {
    /// A single row, for parameters and scalars.
    Unit,
    /// One row per vertex of a type.
    Vertices(VertexType),
    /// One row per edge of a semantic graph, in CSC order (by destination, then source).
    Edges(Graph),
    /// One row per index of the leading dimension of a unit value: a parameter `[n, dims]` viewed as `n` rows.
    Index(usize),
    /// One row per distinct endpoint of the edges of a semantic graph, ascending: the destinations that have an in-edge
    /// (`In`), or the sources that have an out-edge (`Out`).
    Endpoints(Graph, Direction),
}

/// The extent of one trailing dimension.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dim {
    /// A constant, known at compile time.
    Fixed(usize),
    /// The number of vertices of a type, known when a dataset is bound (one-hot features and embedding tables
    /// have this many rows).
    Count(VertexType),
}

impl Dim {
    /// The extent, if it is known at compile time.
    pub fn fixed(self) -> Option<usize> {
        match self {
            Dim::Fixed(extent) => Some(extent),
            Dim::Count(_) => None,
        }
    }
}

/// The element type of a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DType {
    /// 32-bit float, which the oracle computes in f64.
    F32,
    /// 32-bit integer, for class labels only (-1: unlabelled).
    I32,
}

/// How the elements of a value are stored. Never changes what a value means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Layout {
    /// Every element is stored, row-major.
    Dense,
    /// Only the elements of the pattern are stored, row by row; all others are zero.
    Sparse(Pattern),
}

/// Space, trailing dimensions, element type and layout of a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Type {
    /// The row index: one row per element of this space.
    pub space: Space,
    /// Trailing dimensions, outermost first. Empty: one element per row.
    pub dims: Vec<Dim>,
    pub dtype: DType,
    pub layout: Layout,
}

impl Type {
    /// A dense f32 value.
    pub fn new(space: Space, dims: impl Into<Vec<Dim>>) -> Self {
        Self { space, dims: dims.into(), dtype: DType::F32, layout: Layout::Dense }
    }

    /// A dense f32 value with fixed trailing dimensions.
    pub fn fixed(space: Space, dims: &[usize]) -> Self {
        Self::new(space, dims.iter().map(|&d| Dim::Fixed(d)).collect::<Vec<_>>())
    }

    /// The type of a scalar: dense f32, one row, no trailing dimensions.
    pub fn scalar() -> Self {
        Self::new(Space::Unit, vec![])
    }

    /// The same space, element type and layout with other trailing dimensions.
    pub fn with_dims(&self, dims: impl Into<Vec<Dim>>) -> Self {
        Self { dims: dims.into(), ..self.clone() }
    }

    /// Does the value have a single row (a parameter or scalar)?
    pub fn is_unit(&self) -> bool {
        self.space == Space::Unit
    }

    /// Does the value store only the elements of a sparsity pattern?
    pub fn is_sparse(&self) -> bool {
        matches!(self.layout, Layout::Sparse(_))
    }
}

/// The stage of HGNN training that an operation is accounted to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "the variants are the stages' usual abbreviations")]
pub enum Stage {
    /// Feature projection, including the dense head.
    FP,
    /// Neighbour aggregation: messages along edges and their reduction.
    NA,
    /// Semantic fusion: combines the results of several semantic graphs.
    SF,
    /// Loss computation, including metrics per vertex.
    LC,
    /// Parameter update by the optimizer.
    PU,
}

impl Stage {
    /// All stages, in the order of an epoch.
    pub const ALL: [Stage; 5] = [Stage::FP, Stage::NA, Stage::SF, Stage::LC, Stage::PU];

    /// The abbreviation in text formats, reports and docs.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::FP => "FP",
            Stage::NA => "NA",
            Stage::SF => "SF",
            Stage::LC => "LC",
            Stage::PU => "PU",
        }
    }
}

/// The part of a training step that an operation belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// Computes outputs and the loss.
    Forward,
    /// Computes the gradients of the loss.
    Backward,
    /// Computes new parameters and optimizer state.
    Update,
}

impl Phase {
    /// The word in text formats and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Update => "update",
        }
    }
}

/// A byte range of a source file. Every IR level carries it, so that a value can be traced back to the model.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// Index of the file in the compiler's source map.
    pub file: u32,
    /// First byte of the range.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// An [`Origin`] that comparisons ignore: two instructions that differ only in provenance are equal.
#[derive(Clone, Copy, Default, Debug)]
pub struct Provenance(pub Option<Origin>);

impl PartialEq for Provenance {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Provenance {}
