//! The meaning of expressions while a model is checked.

use std::sync::Arc;

use hgnnc_hir::{ExprId, ParamId, Row, Type, Width};
use hgnnc_ir::{Space, VertexType};
use hgnnc_syntax::ast::Expr;

/// An expression of one or several values, with its type.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Typed {
    pub id: ExprId,
    pub ty: Arc<Type>,
}

/// A typed expression of a single value.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Single {
    pub id: ExprId,
    pub row: Row,
}

/// The meaning of an expression.
#[derive(Clone, Debug)]
pub enum Term {
    /// A mistake that is reported, or something of which nothing is known without a use of the layer.
    Error,
    /// An optional input that was not given.
    Absent,
    /// A number that is known at compile time.
    Number(f64),
    /// A number that the use of the layer gives.
    AnyNumber,
    /// A width, which may be symbolic.
    Width(Width),
    /// A width for each semantic graph in scope.
    Widths(Vec<Width>),
    /// A truth value that is known at compile time.
    Bool(bool),
    /// A truth value that the use of the layer gives.
    AnyBool,
    /// The name of an element-wise function.
    Function(String),
    /// An element-wise function that the use of the layer gives.
    AnyFunction,
    /// A list, such as `[a, b]`.
    List,
    /// One or several values.
    Value(Typed),
    /// A parameter with an entry for each relation that paths walk along: its declaration, and the shape of an entry.
    PerHop(ParamId, Row),
    /// A value for each hop of paths, or each step of a `fold`: it is evaluated where these are known.
    OfStep(Box<Expr>),
    /// The results of a layer that has several.
    Record(Vec<(String, Term)>),
    /// A label field: vertex type and position of the field.
    Label(VertexType, usize),
}

impl Term {
    /// The number of values that it holds.
    pub fn num_values(&self) -> usize {
        match self {
            Term::Widths(all) => all.len(),
            Term::Value(value) => value.ty.num_values(),
            Term::Record(all) => all.iter().map(|(_, term)| term.num_values()).sum(),
            _ => 1,
        }
    }

    /// The expression that a statement with this value evaluates.
    pub fn expr(&self) -> Option<ExprId> {
        match self {
            Term::Value(value) => Some(value.id),
            Term::Record(results) => results.first().and_then(|(_, term)| term.expr()),
            _ => None,
        }
    }

    /// A phrase for messages, such as "a number".
    pub fn describe(&self) -> &'static str {
        match self {
            Term::Error => "nothing",
            Term::Absent => "an input that is not given",
            Term::Number(_) | Term::AnyNumber => "a number",
            Term::Width(_) | Term::Widths(_) => "a width",
            Term::PerHop(..) | Term::OfStep(_) => "a value of each step",
            Term::Bool(_) | Term::AnyBool => "a truth value",
            Term::Function(_) | Term::AnyFunction => "a function",
            Term::List => "a list",
            Term::Value(value) => describe(&value.ty),
            Term::Record(_) => "several results of a layer",
            Term::Label(..) => "a label",
        }
    }
}

/// A phrase for messages, such as "a single value".
pub fn describe(ty: &Type) -> &'static str {
    match ty {
        Type::One(_) => "a single value",
        Type::PerGraph(_) => "a value for each semantic graph",
        Type::PerType(_) => "a value of vertices",
        Type::ByGraph(rows) if rows.values().all(|row| row.space == Space::Unit) => "a row for each semantic graph",
        Type::ByGraph(rows) if rows.values().all(|row| matches!(row.space, Space::Vertices(_))) => {
            "rows of vertices for each semantic graph"
        }
        Type::ByGraph(_) => "a value of edges",
    }
}
