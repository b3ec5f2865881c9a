//! The data that programs run on.
//!
//! [`bind()`] turns a [`Dataset`](hgnnc_dataset::Dataset) into [`BoundData`] for a compiled model: the adjacency of its
//! semantic graphs and sparse features, its inputs, labels and splits. [`materialize`] adds metapath graphs that
//! [`bind()`] has put off, [`add_path_instances`] lists path instances, [`order_vertices`] renumbers vertices so that gathers miss the cache less often, and
//! [`tables`] checks and completes the data for given programs. [`stacks`] gives the memory of parameters,
//! [`Initializer`] their initial values, [`buffer`] the memory itself. [`metrics`] compares predictions with labels.
//!
//! Errors of all crates that run programs are [`ExecError`]s. This crate executes nothing.

pub mod bind;
mod bound;
pub mod buffer;
mod candidates;
pub mod classes;
mod error;
mod held_out;
mod identity;
mod init;
mod link_walks;
mod metapath_graphs;
pub mod metrics;
mod orders;
mod own;
mod past;
mod paths;
mod precomputed;
pub mod ranks;
pub mod reorder;
pub mod shuffled;
pub mod stacks;
pub mod tables;
mod times;

pub use bind::{BindOptions, bind};
pub use bound::{
    ActiveVertices, BoundData, GroundTruth, InputData, LinksByGraph, SamplingInputs, Shuffle, Target, Topology,
    WalkStep, part_index,
};
pub use candidates::Candidates;
pub use error::{ADVICE, Cause, ExecError, Result};
pub use held_out::check_held_out;
pub use hgnnc_graph::{Adjacency, transpose_into};
pub use identity::{Difference, Identity, SEED};
pub use init::Initializer;
pub use link_walks::LinkWalks;
pub use metapath_graphs::{materialize, middle_of_metapath};
pub use orders::{OrderKind, Orders, copy_rows};
pub use own::{Distributed, Own};
pub use paths::{PathInstances, add_path_instances};
pub use precomputed::{key_of_rows, rows_cache};
pub use reorder::{OrderOptions, Ordered, order_vertices};
pub use tables::{Arena, StateId};
