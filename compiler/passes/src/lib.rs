//! Differentiation, optimizers, and the passes over the dataflow IR.
//!
//! A training program goes through [`PassManager::run_forward`], [`differentiate()`], [`update`],
//! [`PassManager::run_joint`].

#![forbid(unsafe_code)]

pub mod batch_sizes;
pub mod compact_endpoints;
pub mod contract_scores;
pub mod cse;
pub mod cutoff_rows;
pub mod dce;
pub mod differentiate;
pub mod drop_stop_gradient;
pub mod factor_metapaths;
pub mod factor_paths;
pub mod historical_embeddings;
pub mod link_loss;
pub mod minibatch;
pub mod move_to_vertices;
pub mod narrow_exchanges;
pub mod optimizer;
pub mod pass;
pub mod pipeline;
pub mod place;
pub mod place_batch;
pub mod precompute;
pub mod rank_links;
pub mod reassociate;
pub mod rematerialize;
mod rewrite;
pub mod scale_on_edges;
mod score_endpoints;
pub mod score_links;
pub mod shared_samples;
pub mod simplify;
pub mod split_head;
pub mod split_outer_products;
pub mod stack_families;
mod two_parts;
mod unread_rows;
pub mod vjp;

pub use batch_sizes::batch_sizes;
pub use cutoff_rows::{NotAtCutoffs, Timed, cutoff_rows};
pub use differentiate::{Leaf, NotDifferentiable, Seed, differentiate, gradients, try_differentiate};
pub use factor_paths::factor_paths;
pub use hgnnc_ir::optimizer::{Clip, Optimizer, OptimizerOptions, Schedule};
pub use hgnnc_ir::sizes::{Endpoints, SizeInfo};
pub use historical_embeddings::to_minibatch_with_cache;
pub use link_loss::expand_link_loss;
pub use minibatch::{NotBatchable, reduced_at_seeds, to_minibatch};
pub use narrow_exchanges::{NARROW_EXCHANGES, narrow_exchanges};
pub use optimizer::update;
pub use pass::{Changed, Pass, PassCx};
pub use pipeline::{Disabled, PassManager, UnknownName};
pub use place::{NotPlaced, place};
pub use place_batch::{Split, place_batch};
pub use precompute::{PRECOMPUTE, Precomputed, precompute, precomputed_inputs};
pub use rank_links::rank_links;
pub use score_links::score_links;
pub use shared_samples::share_samples;
pub use split_head::split_head;
pub use vjp::{LeafGradient, vjp};
