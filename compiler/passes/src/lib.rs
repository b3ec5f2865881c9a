//! Differentiation, optimisers and the passes over the dataflow IR.
//!
//! The way of a training program: [`PassManager::run_forward`], [`differentiate()`], [`update`],
//! [`PassManager::run_joint`].

pub mod batch_sizes;
pub mod bounds;
pub mod compact_endpoints;
pub mod contract_scores;
pub mod cse;
pub mod dce;
pub mod differentiate;
pub mod drop_stop_gradient;
pub mod factor_metapaths;
pub mod kernels;
pub mod move_to_vertices;
pub mod on_batch;
pub mod optimizer;
pub mod pipeline;
pub mod reassociate;
pub mod rematerialize;
pub mod reuse;
mod rewrite;
pub mod score_links;
pub mod simplify;
pub mod split_outer_products;
mod unread_rows;

pub use batch_sizes::batch_sizes;
pub use differentiate::{NotDifferentiable, differentiate, try_differentiate};
pub use hgnnc_ir::sizes::{Ends, SizeInfo};
pub use on_batch::{NotOnBatch, on_batch};
pub use optimizer::{Clip, Optimizer, OptimizerOptions, Schedule, update};
pub use pipeline::{Changed, PassCx, PassManager, UnknownPass};
pub use reuse::{Reusing, on_batch_reusing};
pub use score_links::score_links;
