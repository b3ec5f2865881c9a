//! Samples the neighbourhood of a batch of seeds, over all relations at once.
//!
//! - [`SampleGraph`] holds the in-edges of every relation; [`Plan`] says how many of them a layer takes.
//! - [`naive::sample`] is what sampling means: short, slow, and the oracle of everything else here.
//! - [`Sampler`] gives the same batches to the bit, fast, and allocates nothing of the size of a batch once it has seen large ones.
//!   [`Compiled`] is machine code for its loops, generated for a plan.
//! - [`WalkPlan`] says how to walk along a metapath, [`naive::walk`] what that means, and [`Walker`] does it fast.
//! - [`sample_each`] and [`walk_each`] serve many batches, with a sampler or walker per thread.
//!
//! # What is sampled
//!
//! A model of `L` layers is sampled in `L` hops. The vertices of hop 0 are the seeds; those of hop `h` are the ones that hop
//! `h - 1` reached first. A hop takes, for each of its vertices and every relation into its type, in-neighbours uniformly
//! without replacement: all of them where there are no more than the fan-out of that hop and relation, exactly the fan-out
//! otherwise. What is sampled are edges: of two equal edges each can be taken. So a vertex draws once, and has the same
//! sampled in-edges wherever it is a destination: the batch is one graph, the subgraph of the sampled edges, on which all
//! layers compute, as that of NeighborLoader in PyG (Fey and Lenssen 2019, "Fast graph representation learning with PyTorch
//! Geometric"). Where GraphSAGE (Hamilton et al. 2017, algorithm 2) draws for each layer anew, a vertex here is in the
//! estimate of two layers with one draw; each estimate alone has the same distribution.
//!
//! Vertices get compact ids by type: seeds first, in the order in which they are given, then others in the order in
//! which they occur, going through hops, relations in the order of the graph, destinations by compact id, and the edges
//! of a destination as below. So the destinations of a hop follow those of the hop before, and the rows of all hops, one after the
//! other, are one CSC for each relation ([`Block`]), of which the graph of the hops up to `h` is a prefix: its first
//! [`known[h]`](Batch::known) rows. Layer `l` of the model, counted from the input, needs the hops up to `L - 1 - l`: the last layer only
//! hop 0.
//!
//! # Which edges
//!
//! A destination `v` of `d` in-edges and a fan-out `f < d` gets `f` distinct edges by Floyd's method (Bentley and Floyd,
//! CACM 1987, "A sample of brilliance"): for `k` from 0 to `f - 1`, with `j = d - f + k`, a number `t` is drawn from 0 to
//! `j`; edge `t` of the row is taken, or `j` where `t` has been taken. Edges stand in the order in which they are drawn;
//! where all are taken, in the order of the row. Every subset of `f` edges is as probable as any other. The numbers are
//! [`bits`](hgnnc_ir::random::bits) of the key of (seed, epoch, batch, relation) for (`v`, `k`), scaled to `0..=j` by a
//! multiplication, which favours no number by more than `(j + 1) / 2^32` of its probability. Who draws, and in
//! which order, does not matter: a batch depends on the graph, the plan, the seeds and [`BatchKey`] alone.
//!
//! # By weight
//!
//! A destination with weighted in-edges and a fan-out `f` by weight gets the `f` edges of the smallest keys `-ln u / w`, in the order
//! of the row: A-ES of Efraimidis and Spirakis (2006, "Weighted random sampling with a reservoir"), which is drawing one
//! after the other without replacement, each with the probability of its weight among those that are left. `u` is the middle of the
//! 2^-32 part of (0, 1) that [`bits`](hgnnc_ir::random::bits) of the relation's key names for (`v`, position in the row). An edge of
//! weight 0 is never drawn by weight. A row costs its degree.
//!
//! # Walks
//!
//! A walk from a seed takes a step for each relation of a metapath: one of the in-edges of the vertex where it is, each as
//! probable as any other, to its source. It counts as a visit of the vertex where it ends; a walk that meets a vertex without in-edges
//! counts nowhere. Of the vertices that the walks of a seed have visited the most visited are kept, as PinSAGE does (Ying et al.
//! 2018, section 3.1), with their visits, from which weights can be made: a sample of the metapath's semantic graph that never
//! needs that graph. As a fan-out ([`Fanout::Walks`]) they give a relation that has a path its sampled edges. A number is [`bits`](hgnnc_ir::random::bits) of the key of (seed, epoch, batch, metapath, step) for (vertex of the
//! seed, walk), so the walks of a seed depend on no other seed and on no thread.
//!
//! # Resting vertices
//!
//! Of vertices that rest ([`Resting`]) the last hop takes no edges, whatever its fan-outs: their rows in it are empty, and
//! nothing is looked up for them. What is drawn for others does not change, for draws depend on the vertex alone.
//!
//! # What is not here
//!
//! Negatives, one fan-out for all relations together, and features of vertices. Walks are not generated code.

mod batch;
mod compiled;
mod draw;
mod graph;
mod many;
pub mod naive;
mod plan;
mod portable;
mod prefetch;
mod resting;
mod sampler;
mod table;
mod walk;
mod walker;
mod weight;
mod words;

pub use batch::{Batch, Block};
pub use compiled::Compiled;
pub use graph::{Edges, GraphError, Relation, SampleGraph};
pub use many::{sample_each, walk_each};
pub use plan::{BatchKey, Fanout, Plan, SampleError};
pub use resting::Resting;
pub use sampler::Sampler;
pub use walk::{WalkError, WalkPlan, Walks};
pub use walker::{Walker, WalkerError};
