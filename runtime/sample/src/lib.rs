//! Samples the neighbourhood of a batch of seeds, over all relations at once.
//!
//! - [`SampleGraph`] holds the in-edges of every relation; [`Plan`] says how many of them a layer takes.
//! - [`naive::sample`] is what sampling means: short, slow, and the oracle of everything else here.
//! - [`Sampler`] gives the same batches to the bit, fast, and allocates nothing once it has seen large ones.
//! - [`sample_each`] samples many batches with a sampler per thread.
//!
//! # What is sampled
//!
//! A model of `L` layers is sampled in `L` hops. The vertices of hop 0 are the seeds. Hop `h` takes, for **every** vertex
//! that is known by then (seeds and all that earlier hops reached, as in GraphSAGE, Hamilton et al. 2017, algorithm 2) and
//! every relation into its type, in-neighbours uniformly without replacement: all of them where there are no more than the
//! fan-out of that hop and relation, exactly the fan-out otherwise. What is sampled are edges: of two equal edges each
//! can be taken. Each hop draws anew, so a seed has other neighbours in hop 1 than in hop 0.
//!
//! Vertices get compact ids by type: seeds first, in the order in which they are given, then others in the order in
//! which they occur, going through hops, relations in the order of the graph, destinations by compact id, and the edges
//! of a destination as below. So the destinations of a hop are the first of its sources, and one list of vertices per type
//! serves all hops ([`Batch::vertices`]). Layer `l` of the model, from the input, computes on hop `L - 1 - l`.
//!
//! # Which edges
//!
//! A destination `v` of `d` in-edges and a fan-out `f < d` gets `f` distinct edges by Floyd's method (Bentley and Floyd,
//! CACM 1987, "A sample of brilliance"): for `k` from 0 to `f - 1`, with `j = d - f + k`, a number `t` is drawn from 0 to
//! `j`; edge `t` of the row is taken, or `j` where `t` has been taken. Edges stand in the order in which they are drawn;
//! where all are taken, in the order of the row. Every subset of `f` edges is as probable as any other. The numbers are
//! [`bits`](hgnnc_ir::random::bits) of the key of (seed, epoch, batch, hop, relation) for (`v`, `k`), scaled to `0..=j` by a
//! multiplication, which favours no number by more than `(j + 1) / 2^32` of its probability. Who draws, and in
//! which order, does not matter: a batch depends on the graph, the plan, the seeds and [`BatchKey`] alone.
//!
//! # What is not here
//!
//! Sampling by weight, walks along metapaths, negatives, one fan-out for all relations together, features of vertices, and
//! samplers that are compiled for a model.

mod batch;
mod draw;
mod graph;
mod many;
pub mod naive;
mod plan;
mod prefetch;
mod sampler;
mod table;
mod words;

pub use batch::{Batch, Block};
pub use graph::{Edges, GraphError, Relation, SampleGraph};
pub use many::sample_each;
pub use plan::{BatchKey, Fanout, Plan, SampleError};
pub use sampler::Sampler;
