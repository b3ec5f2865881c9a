//! Many relations on mini-batches of several processes, which are computed as one graph at every hop.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hgnnc::{DataSource, Error, Job, ModelSource, Purpose, Ranks, Silent, Split, prepare};
use hgnnc_dataset::{
    Dataset, DenseFeatures, Features, LabelData, LabelValues, LinkSplitData, Links, RelationData, SplitData,
    VertexTypeData,
};
use hgnnc_dist::threads;
use hgnnc_model_tests::assert_close;
use hgnnc_train::TrainOptions;

const ENTITIES: u32 = 30;
pub const RELATIONS: u32 = 9;

/// Relations of very different sizes, of which the first has no edges; some pairs of the last one are held out.
pub fn entities() -> Arc<Dataset> {
    let number = |seed: u32| (f64::from(seed) * 12.9898).sin().abs().mul_add(43758.5453, 0.0).fract();
    let edges = |relation: u32| -> Vec<(u32, u32)> {
        let pairs = (0..ENTITIES).flat_map(|src| (0..ENTITIES).map(move |dst| (src, dst)));
        let exists =
            |&(src, dst): &(u32, u32)| number(1 + relation * 1000 + src * ENTITIES + dst) < 0.012 * f64::from(relation);
        pairs.filter(exists).collect()
    };
    let mut of_relations: Vec<Vec<(u32, u32)>> = (0..RELATIONS).map(edges).collect();
    let last = of_relations.pop().expect("there are relations");
    let held_out = |first: usize| {
        let pairs: Vec<(u32, u32)> = last.iter().copied().skip(first).step_by(10).collect();
        Links {
            src: pairs.iter().map(|pair| pair.0).collect(),
            relation: vec![RELATIONS - 1; pairs.len()],
            dst: pairs.iter().map(|pair| pair.1).collect(),
            ..Links::default()
        }
    };
    let link_splits = vec![LinkSplitData { name: "default".into(), val: held_out(0), test: held_out(5) }];
    of_relations.push(last.iter().enumerate().filter(|(at, _)| at % 5 != 0).map(|(_, &pair)| pair).collect());
    let relation = |(index, edges): (usize, &Vec<(u32, u32)>)| RelationData {
        name: format!("r{index}"),
        src_ids: edges.iter().map(|edge| edge.0).collect(),
        dst_ids: edges.iter().map(|edge| edge.1).collect(),
        ..RelationData::default()
    };
    let rows: Vec<f32> = (0..ENTITIES * 4).map(|at| number(77 + at) as f32 - 0.5).collect();
    let entity = VertexTypeData {
        name: "entity".into(),
        count: ENTITIES as usize,
        features: Some(Features::Dense(DenseFeatures { dim: 4, rows: rows.into() })),
        ..VertexTypeData::default()
    };
    let topic = LabelData {
        name: "topic".into(),
        vertex_type: 0,
        values: LabelValues::Single { classes: 3, of: (0..ENTITIES as i32).map(|v| v * 5 % 3).collect() },
        class_names: vec![],
    };
    let part = |first: u32, end: u32| (first..end).collect();
    let split = SplitData {
        name: "default".into(),
        vertex_type: 0,
        train: part(0, 20),
        val: part(20, 25),
        test: part(25, ENTITIES),
    };
    Arc::new(Dataset {
        name: "entities".into(),
        vertex_types: vec![entity],
        relations: of_relations.iter().enumerate().map(relation).collect(),
        labels: vec![topic],
        splits: vec![split],
        link_splits,
        ..Dataset::default()
    })
}

/// A model over all relations.
pub fn source(uses: &str, features: &str, body: &str, train: &str) -> String {
    let relations: String = (0..RELATIONS).map(|r| format!("    relation r{r}: Entity -> Entity\n")).collect();
    format!(
        "{uses}
schema Entities {{
    vertex Entity from \"entity\" {{ {features}, topic: class[3] }}
{relations}}}
model M(schema: Entities) {{
{body}
}}
train M {{
{train}
    seed 5
}}
"
    )
}

/// Two layers over the relations and their reverses.
pub fn of_labels(first: &str, train: &str) -> String {
    let body = format!(
        "    let h = relu({first} over [relations, reverses] of Entity.x)
    output y: Entity = RgcnConv(hidden: 3) over [relations, reverses] of h"
    );
    let uses = "use std::rgcn::RgcnConv\nuse std::rgat::RgatConv";
    let train = format!(
        "    loss cross_entropy(y, Entity.topic)
    optimizer sgd(lr: 0.05, momentum: 0.9)
    batch 6
    epochs 4
    select train.loss
{train}"
    );
    source(uses, "x: f32[4]", &body, &train)
}

#[derive(Clone, PartialEq, Debug)]
pub struct Trained {
    pub losses: Vec<f64>,
    /// By name, on the rank that has all of them.
    pub params: BTreeMap<String, Vec<f32>>,
    pub metrics: Vec<f64>,
    /// Number of stacks of the training program.
    pub stacks: usize,
}

pub fn train(
    source: &str,
    data: &Arc<Dataset>,
    ranks: Option<Ranks>,
    options: &TrainOptions,
) -> Result<Trained, Error> {
    train_without(&[], source, data, ranks, options)
}

fn train_without(
    passes: &[&str],
    source: &str,
    data: &Arc<Dataset>,
    ranks: Option<Ranks>,
    options: &TrainOptions,
) -> Result<Trained, Error> {
    let model = ModelSource::Text { path: PathBuf::from("entities.hgnn"), text: source.into() };
    let (options, data) = (TrainOptions { threads: 1, ..options.clone() }, DataSource::Loaded(Arc::clone(data)));
    let mut job = Job { data, options, ranks, graph_cache: None, ..Job::new(model) };
    job.disabled.passes.extend(passes.iter().map(|&pass| String::from(pass)));
    let mut prepared = prepare(Purpose::Train, &job, &mut Silent)?;
    let mut losses = vec![];
    let trainer = &mut prepared.trainer;
    trainer.run(&AtomicBool::new(false), &mut |epoch| losses.push(epoch.loss))?;
    let has_all = job.ranks.as_ref().is_none_or(|ranks| ranks.comm.rank() == 0);
    let names = trainer.shapes().into_iter().map(|(name, _)| name);
    let params = if has_all { names.zip(trainer.params()?).collect() } else { BTreeMap::new() };
    let metrics = trainer.evaluate()?.into_values().flat_map(BTreeMap::into_values).collect();
    let stacks = trainer.executable().train.as_ref().map_or(0, |train| train.stacks.len());
    Ok(Trained { losses, params, metrics, stacks })
}

/// Trains on virtual ranks, which all come to the same losses and metrics; the result of the first one.
pub fn train_on(
    ranks: usize,
    split: (Split, usize),
    source: &str,
    data: &Arc<Dataset>,
    options: &TrainOptions,
) -> Trained {
    let (split, replicas) = split;
    let on_rank = |comm: &Arc<dyn hgnnc_dist::Comm>| {
        let ranks = Ranks { sections: 6, split, replicas, ..Ranks::new(Arc::clone(comm)) };
        train(source, data, Some(ranks), options)
    };
    let all: Vec<Trained> = (threads::run(ranks, on_rank).into_iter().enumerate())
        .map(|(rank, trained)| trained.unwrap_or_else(|error| panic!("{split:?}, rank {rank} of {ranks}: {error}")))
        .collect();
    let shared = |of_rank: &Trained| Trained { params: BTreeMap::new(), ..of_rank.clone() };
    assert!(all.iter().all(|of_rank| shared(of_rank) == shared(&all[0])), "{split:?}: {ranks} ranks differ");
    all.into_iter().next().expect("there is a rank")
}

pub fn close(what: &str, found: &Trained, expected: &Trained) {
    assert_close(&format!("{what}: losses"), &found.losses, &expected.losses, 2e-5);
    assert_eq!(found.params.keys().collect::<Vec<_>>(), expected.params.keys().collect::<Vec<_>>(), "{what}");
    let wide = |numbers: &[f32]| -> Vec<f64> { numbers.iter().map(|&x| f64::from(x)).collect() };
    for (name, expected) in &expected.params {
        assert_close(&format!("{what}: {name}"), &wide(&found.params[name]), &wide(expected), 1e-4);
    }
    assert_close(&format!("{what}: metrics"), &found.metrics, &expected.metrics, 1e-3);
}

pub const SEEDS: (Split, usize) = (Split::Seeds, 1);

/// With all in-edges, the sums are those of one process in another order, whatever the ranks share.
#[test]
fn layers_over_many_relations_are_those_of_one_process() {
    let data = entities();
    for first in ["RgcnConv(hidden: 4)", "RgatConv(hidden: 2, heads: 2)"] {
        let source = of_labels(first, "");
        let options = TrainOptions::default();
        let alone = train(&source, &data, None, &options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(alone.stacks, 2, "{first}: a stack for each hop");
        let apart = train_without(&["stack_families"], &source, &data, None, &options);
        let apart = apart.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(apart.stacks, 0);
        close(&format!("{first}, apart"), &alone, &apart);
        let ways = [(1, SEEDS), (2, SEEDS), (3, SEEDS), (3, (Split::Relations, 1)), (4, (Split::Grid, 2))];
        for (ranks, split) in ways {
            let together = train_on(ranks, split, &source, &data, &options);
            assert_eq!(together.stacks, 2, "{first}, {split:?}: a stack for each hop");
            close(&format!("{first}, {split:?}, {ranks} ranks"), &together, &alone);
        }
    }
}

/// Masks are functions of the numbers of edges among those of all relations in the dataset, on any number of ranks.
#[test]
fn dropout_of_edges_is_that_of_any_number_of_ranks() {
    let (data, options) = (entities(), TrainOptions::default());
    let source = of_labels("RgatConv(hidden: 2, heads: 2, dropout: 0.3)", "");
    let one = train_on(1, SEEDS, &source, &data, &options);
    assert_eq!(one.stacks, 2, "a stack for each hop");
    for (ranks, split) in [(2, SEEDS), (3, SEEDS), (3, (Split::Relations, 1)), (4, (Split::Grid, 2))] {
        let together = train_on(ranks, split, &source, &data, &options);
        assert_eq!(together.stacks, 2);
        close(&format!("{split:?}, {ranks} ranks"), &together, &one);
    }
}

/// Vectors of relations, which a layer and the scorer of links read, and transformed ones.
#[test]
fn links_of_many_relations_are_those_of_one_process() {
    let data = entities();
    let uses = "use std::compgcn::{CompGcnConv, RelationVectors}\nuse std::link::DistMultOf";
    let body = "    let r = RelationVectors(width: 4) over [relations, reverses]
    let conv = CompGcnConv(hidden: 4, mult: true) over [relations, reverses] of (Entity.x, r: r)
    output score: links = DistMultOf() over links(relations) of (conv.out, r: conv.rel)";
    for negatives in ["uniform(3)", "shared(7)"] {
        let train_block = format!(
            "    loss cross_entropy(score, links)
    optimizer sgd(lr: 0.2, momentum: 0.9)
    batch 40
    fanout [3]
    negatives {negatives}
    epochs 3
    select train.loss
    metrics mrr"
        );
        let source = source(uses, "x: embedding[4]", body, &train_block);
        let options = TrainOptions::default();
        let alone = train(&source, &data, None, &options).unwrap_or_else(|error| panic!("{error}"));
        assert!(alone.stacks > 0, "{negatives}");
        for ranks in [1, 2, 3] {
            let together = train_on(ranks, SEEDS, &source, &data, &options);
            assert_eq!(together.stacks, alone.stacks, "{negatives}");
            close(&format!("{negatives}, {ranks} ranks"), &together, &alone);
        }
    }
}

/// Optimizer states of a stack are in the checkpoint as those of other parameters are.
#[test]
fn a_run_over_many_relations_goes_on_with_any_number_of_ranks() {
    let (data, folder) = (entities(), tempfile::tempdir().expect("a folder"));
    let source = of_labels("RgcnConv(hidden: 4)", "");
    let on = |ranks: usize, epochs: u64, checkpoint: Option<&str>, resume: bool| {
        let checkpoint = checkpoint.map(|name| folder.path().join(name));
        let options = TrainOptions { epochs: Some(epochs), checkpoint, resume, ..TrainOptions::default() };
        train_on(ranks, SEEDS, &source, &data, &options)
    };
    let straight = on(2, 6, None, false);
    for (name, ranks) in [("same", 2), ("more", 3), ("one", 1)] {
        on(2, 3, Some(name), false);
        let resumed = on(ranks, 6, Some(name), true);
        if ranks == 2 {
            assert_eq!(resumed.params, straight.params, "to the bit");
        }
        let losses = Trained { losses: straight.losses[straight.losses.len() / 2..].to_vec(), ..straight.clone() };
        close(&format!("resumed on {ranks} ranks"), &resumed, &losses);
    }
}
