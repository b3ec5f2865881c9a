//! Values of the program under construction, and families of them.

use std::collections::BTreeMap;

use hgnnc_hir as hir;
use hgnnc_ir::{Dim, Direction, Graph, Value, VertexType};

use crate::Instance;

/// A value, as it exists in the program.
#[derive(Clone, Debug)]
pub enum Val {
    /// A value of the program.
    Stored(Value),
    /// The identity matrix of a vertex type, with so many columns. Projecting it gives the weight itself, so it is
    /// never a value of the program.
    OneHot {
        /// The number of columns, and of rows.
        columns: Dim,
        /// A number for each row, by which it is multiplied (dropout).
        mask: Option<Value>,
    },
    /// One-hot or sparse vertex values seen from an end of the edges. They are projected before they
    /// are gathered, since neither can be gathered.
    AtEnd(Box<Val>, Graph, Direction),
    /// A matrix `[in, out]` whose blocks on the diagonal are `[blocks, in / blocks, out / blocks]`.
    BlockDiagonal {
        /// All that is stored of it.
        blocks: Value,
        /// The extents of the matrix.
        dims: [Dim; 2],
    },
}

impl Val {
    /// The value in the program, where the value can stand by itself.
    ///
    /// # Panics
    /// Where it cannot, which the verifier of the model refuses.
    pub fn stored(&self) -> Value {
        match self {
            Val::Stored(value) => *value,
            Val::OneHot { .. } | Val::AtEnd(..) | Val::BlockDiagonal { .. } => {
                panic!("{self:?} does not stand by itself")
            }
        }
    }
}

/// The values of an expression.
#[derive(Clone, Debug)]
pub enum Values {
    One(Val),
    PerGraph(Vec<Val>),
    PerType(BTreeMap<VertexType, Val>),
    ByGraph(BTreeMap<Graph, Val>),
}

impl Values {
    /// The value of an expression that has one.
    ///
    /// # Panics
    /// If there are others.
    pub fn one(&self) -> &Val {
        match self {
            Values::One(value) => value,
            Values::PerGraph(_) | Values::PerType(_) | Values::ByGraph(_) => panic!("{self:?} is not a single value"),
        }
    }

    /// The values of a family.
    ///
    /// # Panics
    /// If they are something else.
    pub fn per_graph(&self) -> &[Val] {
        match self {
            Values::PerGraph(values) => values,
            Values::One(_) | Values::PerType(_) | Values::ByGraph(_) => panic!("{self:?} are not values of a family"),
        }
    }

    /// Does a condition hold for a value of the program?
    pub fn any(&self, mut found: impl FnMut(Value) -> bool) -> bool {
        let mut holds = |value: &Val| matches!(*value, Val::Stored(value) if found(value));
        match self {
            Values::One(value) => holds(value),
            Values::PerGraph(values) => values.iter().any(holds),
            Values::PerType(values) => values.values().any(holds),
            Values::ByGraph(values) => values.values().any(holds),
        }
    }
}

impl Instance<'_> {
    /// The extents of a value's trailing dimensions.
    pub fn dims<'a>(&'a self, val: &'a Val) -> &'a [Dim] {
        match val {
            Val::Stored(value) => &self.flow.ty(*value).dims,
            Val::OneHot { columns, .. } => std::slice::from_ref(columns),
            Val::AtEnd(of, ..) => self.dims(of),
            Val::BlockDiagonal { dims, .. } => dims,
        }
    }

    /// Applies `f` to every value.
    pub fn map(&mut self, x: &Values, mut f: impl FnMut(&mut Self, &Val) -> Val) -> Values {
        match x {
            Values::One(value) => Values::One(f(self, value)),
            Values::PerGraph(values) => Values::PerGraph(values.iter().map(|value| f(self, value)).collect()),
            Values::PerType(values) => {
                Values::PerType(values.iter().map(|(vertex, value)| (*vertex, f(self, value))).collect())
            }
            Values::ByGraph(values) => {
                Values::ByGraph(values.iter().map(|(graph, value)| (*graph, f(self, value))).collect())
            }
        }
    }

    /// Applies `f` to every value and the type of the result.
    pub fn map_rows(
        &mut self,
        x: &Values,
        ty: &hir::Type,
        mut f: impl FnMut(&mut Self, &Val, &hir::Row) -> Val,
    ) -> Values {
        let mut rows = ty.rows();
        self.map(x, |this, value| f(this, value, rows.next().expect("a type for each value")))
    }

    /// Applies `f` to every pair of values; single values meet every member of a family.
    pub fn map2(&mut self, a: &Values, b: &Values, mut f: impl FnMut(&mut Self, &Val, &Val) -> Val) -> Values {
        match (a, b) {
            (Values::One(a), b) => self.map(b, |this, b| f(this, a, b)),
            (a, Values::One(b)) => self.map(a, |this, a| f(this, a, b)),
            (Values::PerGraph(a), Values::PerGraph(b)) => {
                Values::PerGraph(a.iter().zip(b).map(|(a, b)| f(self, a, b)).collect())
            }
            (Values::PerType(a), Values::PerType(b)) => {
                Values::PerType(a.iter().map(|(vertex, a)| (*vertex, f(self, a, &b[vertex]))).collect())
            }
            (Values::ByGraph(a), Values::ByGraph(b)) => {
                Values::ByGraph(a.iter().map(|(graph, a)| (*graph, f(self, a, &b[graph]))).collect())
            }
            (a, b) => panic!("{a:?} and {b:?} do not combine"),
        }
    }
}
