//! Elaboration: the statements and expressions of a model and of its layers become the typed model ([`hgnnc_hir`]).
//!
//! A [`Checker`](checker::Checker) builds the model. Layers are templates: a use is checked with widths known, once per
//! vertex type or for all semantic graphs at once, and [`without_use`] checks a layer that nothing uses. What is right and
//! was probably not meant is a [`Doubt`](doubts::Doubt).
//!
//! Declarations are those of `hgnnc-declare`. Train blocks and the order of all checks are `hgnnc-sema`'s.

#![forbid(unsafe_code)]

mod blocks;
mod bound_widths;
pub mod checker;
mod composed;
pub mod doubts;
mod edges;
mod eval;
mod fields;
mod fold;
mod functions;
mod graph_rows;
mod labels;
mod layer;
mod model;
mod operators;
mod outputs;
mod pairs;
mod params;
mod parts;
mod paths;
mod reduce;
mod shapes;
mod sharing;
mod squares;
pub mod value;
pub mod without_use;

pub use functions::is_function;
pub use layer::check_signature;
pub use pairs::LINKS;
pub use parts::{names_of, parts};
