//! The dataflow IR: the computation of a model, before any scheduling decision.
//!
//! A [`Dataflow`] is a list of values in SSA form. Every value has one row for each element of a
//! [`Space`] (a vertex type, the edges of a semantic graph, or nothing for parameters and scalars),
//! trailing dimensions, and a [`Stage`]. The operation set is small on purpose: softmax, attention,
//! losses and optimizers are compositions, so that one differentiation rule per operation and one
//! meaning per operation cover every model.
//!
//! This crate knows no syntax, devices or datasets, and no kernels: those are the level below, in `hgnnc-kernel-ir`. How a
//! model is trained is data that passes through it ([`training`], [`optimizer`]).

#![forbid(unsafe_code)]

pub mod batch;
pub mod dataflow;
pub mod elementwise;
pub mod infer;
mod link_rows;
pub mod metapath;
pub mod op_info;
pub mod ops;
pub mod optimizer;
pub mod outputs;
pub mod parse;
pub mod paths;
pub mod print;
pub mod random;
pub mod ranks;
pub mod sizes;
pub mod stacks;
mod table;
pub mod training;
pub mod types;
pub mod verify;
pub mod violation;
pub mod width;

pub use dataflow::{Dataflow, Output, OutputKind, ValueData};
pub use metapath::{MetapathReduce, MetapathTerm, PiecewiseLinear};
pub use op_info::OpClass;
pub use ops::{BinaryOp, Direction, Extreme, Op, ProductForm, Reduce, UnaryOp};
pub use parse::{ParseError, parse};
pub use paths::{PathDecl, PathRows};
pub use print::print;
pub use ranks::{EdgeShare, Mirrors};
pub use stacks::{Incidence, StackDecl, VertexRows};
pub use table::Table;
pub use types::{
    DType, Dim, Graph, Input, Layout, Origin, Param, Pattern, Phase, Provenance, Space, Stack, Stage, Type, Value,
    VertexType,
};
pub use verify::verify;
pub use violation::Violation;
