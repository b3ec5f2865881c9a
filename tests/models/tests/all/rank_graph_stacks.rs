//! Many relations on the whole graph of several processes, which are computed as one graph, to the same bits on any number of them.

use std::sync::Arc;

use hgnnc_dataset::{Dataset, FloatArray};
use hgnnc_train::TrainOptions;

use crate::rank_stacks::{SEEDS, Trained, close, entities, source, train, train_on};

/// The relations of [`entities`], with a weight for each edge.
pub fn weighted() -> Arc<Dataset> {
    let mut data = Arc::unwrap_or_clone(entities());
    for (relation, decl) in data.relations.iter_mut().enumerate() {
        let weight = |edge: usize| ((7 * edge + 3 * relation) % 11) as f32 / 5.0;
        decl.weight = Some(FloatArray::from((0..decl.src_ids.len()).map(weight).collect::<Vec<f32>>()));
    }
    Arc::new(data)
}

/// Two layers over the relations and their reverses.
pub fn model(features: &str, first: &str, second: &str) -> String {
    let uses = "use std::rgcn::{RgcnConv, RgcnBasisConv, RgcnBlockConv}
use std::rgat::{RgatConv, RgatAcrossConv}

layer Weighted(hidden: dim, dropout = 0.0)
    over graphs: [*]
    of x: *[in]
    -> *[hidden]
{
    aggregate e: g in graphs {
        param w: [in, hidden] = glorot
        param v: [hidden] = glorot
        z = sum(dropout((e.src.x @ w) * v * e.weight, dropout) + e.dst.x @ w) over in_edges
    }
    fuse d: * across graphs {
        out = sum(d.z) across graphs
    }
}

layer LargestSum(hidden: dim)
    over graphs: [*]
    of x: *[in]
    -> *[hidden]
{
    aggregate e: g in graphs {
        param w: [in, hidden] = glorot
        z = sum(e.src.x @ w) over in_edges
    }
    fuse d: * across graphs {
        out = max(d.z) across graphs
    }
}

layer Largest(hidden: dim)
    over graphs: [*]
    of x: *[in]
    -> *[hidden]
{
    aggregate e: g in graphs {
        param w: [in, hidden] = glorot
        z = max(e.src.x @ w) over in_edges across graphs
    }
    fuse d: * across graphs {
        out = d.z
    }
}
";
    let body = format!(
        "    let h = relu({first} over [relations, reverses] of Entity.x)
    output y: Entity = {second} over [relations, reverses] of h"
    );
    let train = "    loss cross_entropy(y, Entity.topic)
    optimizer adam(lr: 0.02, weight_decay: 0.01)
    epochs 5
    select train.loss";
    source(uses, features, &body, train).replace(": Entity -> Entity\n", ": Entity -> Entity { weight: f32 }\n")
}

fn on(ranks: usize, source: &str, data: &Arc<Dataset>, options: &TrainOptions) -> Trained {
    train_on(ranks, SEEDS, source, data, options)
}

pub const LAST: &str = "RgcnConv(hidden: 3)";

#[test]
fn layers_over_many_relations_have_the_bits_of_one_process() {
    let (data, options) = (weighted(), TrainOptions::default());
    let cases = [
        ("x: f32[4]", "RgcnConv(hidden: 4)", LAST),
        ("x: f32[4]", "RgcnBlockConv(hidden: 4, blocks: 2)", "RgcnBasisConv(hidden: 3, bases: 2)"),
        ("x: f32[4]", "RgatConv(hidden: 2, heads: 2, dropout: 0.3)", LAST),
        ("x: f32[4]", "RgatAcrossConv(hidden: 2, heads: 2)", LAST),
        ("x: embedding[4]", "Weighted(hidden: 4)", "Weighted(hidden: 3, dropout: 0.4)"),
        // Gradients of few rows have a kernel of their own, unless they share a piece with others.
        ("x: embedding[24]", "RgcnConv(hidden: 24)", LAST),
        // A table for each relation.
        ("x: onehot", "RgcnConv(hidden: 4)", LAST),
    ];
    for (features, first, second) in cases {
        let source = model(features, first, second);
        let one = on(1, &source, &data, &options);
        assert_eq!(one.stacks, 1, "{features}, {first}");
        let alone = train(&source, &data, None, &options).unwrap_or_else(|error| panic!("{error}"));
        close(&format!("{features}, {first}: one process"), &one, &alone);
        for ranks in [2, 3, 4, 6] {
            let together = on(ranks, &source, &data, &options);
            assert_eq!(together, one, "{features}, {first}: {ranks} ranks");
        }
    }
}

/// Where a value has no form on pairs, as sums of which the largest is taken, or its gradient has no placement, relations are
/// computed one by one.
#[test]
fn relations_that_stay_apart_have_the_bits_of_one_process() {
    let (data, options) = (weighted(), TrainOptions::default());
    for (first, stacks_of_one_process, stacks_of_ranks) in
        [("LargestSum(hidden: 4)", 1, 1), ("Largest(hidden: 4)", 1, 0)]
    {
        let source = model("x: f32[4]", first, LAST);
        let alone = train(&source, &data, None, &options).unwrap_or_else(|error| panic!("{error}"));
        let one = on(1, &source, &data, &options);
        assert_eq!((alone.stacks, one.stacks), (stacks_of_one_process, stacks_of_ranks), "{first}");
        close(first, &one, &alone);
        assert_eq!(on(3, &source, &data, &options), one, "{first}");
    }
}

/// Optimizer states of a stack are kept by the names of its entries, so that a run goes on with or without stacks.
#[test]
fn a_run_on_the_whole_graph_goes_on_with_any_number_of_ranks() {
    let (data, folder) = (weighted(), tempfile::tempdir().expect("a folder"));
    for (features, first) in [("x: onehot", "RgcnConv(hidden: 4)"), ("x: f32[4]", "Weighted(hidden: 4, dropout: 0.2)")]
    {
        let source = model(features, first, LAST);
        let run = |ranks: usize, epochs: u64, checkpoint: Option<&str>, resume: bool| {
            let checkpoint = checkpoint.map(|name| folder.path().join(format!("{}-{name}", &features[3..6])));
            let options = TrainOptions { epochs: Some(epochs), checkpoint, resume, ..TrainOptions::default() };
            on(ranks, &source, &data, &options)
        };
        let straight = run(2, 6, None, false);
        for (name, ranks) in [("same", 2), ("more", 3), ("one", 1)] {
            run(2, 3, Some(name), false);
            let resumed = run(ranks, 6, Some(name), true);
            assert_eq!(resumed.params, straight.params, "{features}: {ranks} ranks");
            assert_eq!(resumed.losses, straight.losses[3..], "{features}: {ranks} ranks");
        }
    }
}
