//! Handles, spaces and value types.

use crate::ops::Direction;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// Position in the table that this handle names a row of.
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

pub(crate) use handle;

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
    /// The sparsity pattern of a sparse feature matrix.
    Pattern, "p"
);
handle!(
    /// A trainable parameter.
    Param, "w"
);
handle!(
    /// Something that the runtime fills in before running.
    Input, "in"
);

/// What a value has one row for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Space {
    /// A single row: parameters and scalars.
    Unit,
    /// One row per vertex of a type.
    Vertices(VertexType),
    /// One row per edge of a semantic graph, in CSC order (by destination, then source).
    Edges(Graph),
    /// One row per index of a leading dimension of this extent: a parameter `[n, dims]` seen as `n` rows.
    Index(usize),
    /// One row per distinct end of the edges of a semantic graph, ascending: the destinations that have an in-edge
    /// (`In`), or the sources that have an out-edge (`Out`).
    Ends(Graph, Direction),
}

/// The extent of one trailing dimension.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dim {
    /// Known when the model is compiled.
    Fixed(usize),
    /// The number of vertices of a type, known when a dataset is bound (one-hot features and
    /// learnable embeddings have parameters of this many rows).
    Count(VertexType),
}

impl Dim {
    /// The extent, where it is known at compile time.
    pub fn fixed(self) -> Option<usize> {
        match self {
            Dim::Fixed(extent) => Some(extent),
            Dim::Count(_) => None,
        }
    }
}

/// Element type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DType {
    /// 32-bit float. The oracle computes these in f64.
    F32,
    /// 32-bit integer: class labels only (-1 = not labelled).
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
pub struct Type {
    /// What the value has one row for.
    pub space: Space,
    /// Trailing dimensions, outermost first. Empty: one element per row.
    pub dims: Vec<Dim>,
    /// Element type.
    pub dtype: DType,
    /// Storage.
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

    /// A single f32.
    pub fn scalar() -> Self {
        Self::new(Space::Unit, vec![])
    }

    /// The same space, dimensions and layout are kept; only dimensions change.
    pub fn with_dims(&self, dims: impl Into<Vec<Dim>>) -> Self {
        Self { dims: dims.into(), ..self.clone() }
    }

    /// Is this a value of one row?
    pub fn is_unit(&self) -> bool {
        self.space == Space::Unit
    }

    /// Is this value stored by a sparsity pattern?
    pub fn is_sparse(&self) -> bool {
        matches!(self.layout, Layout::Sparse(_))
    }
}

/// The stage of HGNN training that an operation belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// Feature projection (and the dense head).
    FP,
    /// Neighbour aggregation.
    NA,
    /// Semantic fusion.
    SF,
    /// Loss computation.
    LC,
    /// Parameter update.
    PU,
}

impl Stage {
    /// All stages, in the order in which an epoch meets them.
    pub const ALL: [Stage; 5] = [Stage::FP, Stage::NA, Stage::SF, Stage::LC, Stage::PU];

    /// The abbreviation used in text, reports and docs.
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

/// Which part of an epoch an operation belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// Computes outputs and the loss.
    Forward,
    /// Computes gradients.
    Backward,
    /// Computes new parameters and optimiser state.
    Update,
}

impl Phase {
    /// The word used in text and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Update => "update",
        }
    }
}

/// A byte range of a source file, carried through every level so that any value leads back to the model.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// Index of the file in the compiler's source map.
    pub file: u32,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// The place in the source that something comes from, for people: things that differ in nothing else are equal.
#[derive(Clone, Copy, Default, Debug)]
pub struct Provenance(pub Option<Origin>);

impl PartialEq for Provenance {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Provenance {}
