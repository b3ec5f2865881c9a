//! Neighbour sampling of mini-batches in heterogeneous graphs.
//!
//! - [`SampleGraph`] holds the in-edges of every relation; [`Plan`] has the fan-outs per hop and relation.
//! - [`naive::sample`] defines sampling: short, slow, and the oracle for the rest of the crate.
//! - [`Sampler`] gives bit-equal batches, fast; in the steady state it does not allocate. [`Compiled`] is machine code
//!   for its loops, generated for a plan.
//! - [`WalkPlan`] describes random walks along a metapath, [`naive::walk`] defines them, and [`Walker`] runs them fast.
//! - [`sample_each`] and [`walk_each`] process many batches, with a sampler or walker per thread.
//!
//! # Hops
//!
//! A model of `L` layers is sampled in `L` hops. The vertices of hop 0 are the seed vertices; those of hop `h` are the
//! vertices first reached by hop `h - 1`. For each of its vertices and every relation into its type, a hop samples
//! in-edges uniformly without replacement: all of them if there are no more than the fan-out of that hop and relation,
//! exactly the fan-out otherwise. Edges are sampled, not neighbours: of two duplicate edges each can be taken. A vertex
//! samples once and has the same sampled in-edges wherever it is a destination: a batch is one graph, the subgraph of
//! the sampled edges, on which all layers compute, as in PyG's NeighborLoader (Fey and Lenssen 2019, "Fast graph
//! representation learning with PyTorch Geometric"). GraphSAGE (Hamilton et al. 2017, algorithm 2) samples again for
//! each layer; here the estimates of two layers may share a sample, and each estimate alone has the same distribution.
//!
//! Vertices get compact ids by type: seeds first, in the given order, then others in the order of first occurrence,
//! over hops, relations in the order of the graph, destinations by compact id, and the edges of a destination as below.
//! The destinations of a hop therefore follow those of the hop before, and the rows of all hops are one CSC per
//! relation ([`Block`]); the graph of the hops up to `h` is a prefix of it: its first [`known[h]`](Batch::known) rows.
//! Layer `l` of the model, counted from the input, needs the hops up to `L - 1 - l`: the last layer only hop 0.
//!
//! # Uniform sampling
//!
//! A destination `v` of `d` in-edges and a fan-out `f < d` gets `f` distinct edges by Floyd's method (Bentley and
//! Floyd, CACM 1987, "A sample of brilliance"): for `k` from 0 to `f - 1`, with `j = d - f + k`, a number `t` is drawn
//! from 0 to `j`; edge `t` of the row is taken, or `j` if `t` was taken already. Edges are stored in sampling order; if
//! all are taken, in row order. Every subset of `f` edges has the same probability. The numbers are
//! [`bits`](hgnnc_ir::random::bits) of the key of (seed, epoch, batch, relation) for (`v`, `k`), scaled to `0..=j` by a
//! multiplication, which biases a number by at most `(j + 1) / 2^32` of its probability. Random numbers are
//! counter-based, so threads and their order do not matter: a batch depends only on the graph, the plan, the seeds and
//! [`BatchKey`].
//!
//! # Weighted sampling
//!
//! A destination with weighted in-edges and a weighted fan-out `f` gets the `f` edges of the smallest keys `-ln u / w`,
//! in row order: A-ES of Efraimidis and Spirakis (2006, "Weighted random sampling with a reservoir"), which is
//! equivalent to sequential sampling without replacement, with probabilities proportional to the weights of the
//! remaining edges. `u` is the midpoint of one of 2^32 equal parts of (0, 1), selected by
//! [`bits`](hgnnc_ir::random::bits) of the relation's key for (`v`, position in the row). Edges of weight 0 are never
//! sampled. A row costs time in its degree.
//!
//! # The latest edges
//!
//! A fan-out [`Fanout::Latest`] takes the edges of the lowest ranks in their row, in row order: the caller ranks edges by time, and so
//! decides ties. Nothing is random.
//!
//! # Random walks
//!
//! A walk from a seed takes one step per relation of a metapath: along a uniformly random in-edge of the current
//! vertex, to its source. It counts as a visit of its last vertex; a walk that meets a vertex without in-edges counts
//! nowhere. Of the vertices visited from a seed, the most visited are kept with their visit counts, as in PinSAGE (Ying
//! et al. 2018, section 3.1), which can serve as weights: a sample of the metapath's semantic graph without building
//! that graph. As a fan-out ([`Fanout::Walks`]) they provide the sampled edges of a relation that has a metapath.
//! Random numbers are [`bits`](hgnnc_ir::random::bits) of the key of (seed, epoch, batch, metapath, step) for (seed
//! vertex, walk), so the walks of a seed vertex depend neither on other seeds nor on threads.
//!
//! # Historical vertices
//!
//! The last hop samples no edges of vertices with a historical embedding ([`HistoricalVertices`]), whatever its
//! fan-outs: their rows in it are empty, and their offsets are not read. The samples of other vertices do not change,
//! since random numbers depend on the vertex alone.
//!
//! # Non-goals
//!
//! No negative sampling, no fan-out over all relations together, and no vertex features. No code is generated for
//! walks.

mod batch;
mod compiled;
mod draw;
mod graph;
mod historical;
mod hops;
mod id_map;
pub mod naive;
mod parallel;
mod plan;
mod portable;
mod prefetch;
mod sampler;
mod walk;
mod walker;
mod weight;
mod words;

pub use batch::{Batch, Block};
pub use compiled::Compiled;
pub use graph::{Edges, GraphError, Relation, SampleGraph};
pub use historical::HistoricalVertices;
pub use hops::{DrawnEdges, HopSampler};
pub use parallel::{sample_each, walk_each};
pub use plan::{BatchKey, Fanout, Plan, SampleError};
pub use sampler::Sampler;
pub use walk::{WalkError, WalkPlan, Walks};
pub use walker::{Walker, WalkerError};
