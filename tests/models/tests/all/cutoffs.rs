//! No message from the future: what is later than a vertex changes no bit of what is computed for it.
//!
//! Random datasets with times, and random models of one to three layers over relations, their reverses, self loops and a
//! metapath. Papers and venues have times, authors have none and send only; some relations have times of their own.

use std::collections::BTreeSet;
use std::sync::Arc;

use hgnnc_data::{BindOptions, InputData};
use hgnnc_graph::{Dataset, DenseFeatures, Features, LabelData, LabelValues, RelationData, SplitData, VertexTypeData};
use hgnnc_interp::Tensor;
use hgnnc_ir::Input;
use hgnnc_model_tests::plain::{Plain, Rows};
use hgnnc_model_tests::{Compiled, World, assert_close, compile, worlds};

use crate::ranks::{Trained, job, train};
use crate::times::inference;

const TYPES: [(&str, usize); 3] = [("Paper", 14), ("Venue", 5), ("Author", 6)];
/// Name, source and destination of each relation, and whether its edges have times.
const RELATIONS: [(&str, usize, usize, bool); 3] =
    [("cites", 0, 0, true), ("appears_in", 0, 1, false), ("writes", 2, 0, true)];

/// A semantic graph: its name in parameters, how a model names it, and its steps over relations, walked backwards or not.
type Walk = (&'static str, &'static str, &'static [(usize, bool)]);
const WALKS: [Walk; 6] = [
    ("cites", "cites", &[(0, false)]),
    ("reverse_cites", "reverse(cites)", &[(0, true)]),
    ("appears_in", "appears_in", &[(1, false)]),
    ("reverse_appears_in", "reverse(appears_in)", &[(1, true)]),
    ("writes", "writes", &[(2, false)]),
    ("PVP", "PVP", &[(1, false), (1, true)]),
];

/// Numbers that differ between calls, the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end as u64) as usize
    }
}

/// The vertex types that a step goes from and to.
fn ends((relation, reverse): (usize, bool)) -> (usize, usize) {
    let (_, src, dst, _) = RELATIONS[relation];
    if reverse { (dst, src) } else { (src, dst) }
}

/// Layers, each over some semantic graphs.
fn layers(draw: &mut Draw) -> Vec<Vec<Walk>> {
    let some = |draw: &mut Draw| {
        let mut chosen: Vec<Walk> = WALKS.into_iter().filter(|_| draw.below(3) > 0).collect();
        if chosen.is_empty() {
            chosen.push(WALKS[0]);
        }
        chosen
    };
    (0..1 + draw.below(3)).map(|_| some(draw)).collect()
}

fn source(layers: &[Vec<Walk>], options: &str) -> String {
    let mut body = String::new();
    let mut before = "features".to_owned();
    for (number, walks) in layers.iter().enumerate() {
        let graphs: Vec<&str> = walks.iter().map(|walk| walk.1).collect();
        body += &format!("    let h{number} = Step() over [{}] of {before}\n", graphs.join(", "));
        before = format!("h{number}");
    }
    format!(
        "schema S {{
    vertex Paper {{ x: f32[2], year: time, topic: class[2] }}
    vertex Venue {{ x: f32[2], since: time }}
    vertex Author {{ x: f32[2] }}
    relation cites: Paper -> Paper {{ at: time }}
    relation appears_in: Paper -> Venue
    relation writes: Author -> Paper {{ at: time }}
    metapath PVP = Paper -appears_in-> Venue <-appears_in- Paper
}}
layer Step() over graphs: [*] of x: *[2] -> *[2] {{
    aggregate e: g in graphs {{
        param w: [2, 2]
        z = mean(e.src.x @ w) over in_edges
    }}
    fuse v: * across graphs {{
        out = tanh(v.x + sum(v.z) across graphs)
    }}
}}
model M(schema: S) {{
{body}    output y: Paper = linear({before}.Paper, 2)
}}
train M {{
    loss cross_entropy(y, Paper.topic)
    optimizer sgd(lr: 0.1)
    cutoff time
    epochs 2
    seed 3
    select train.loss
    {options}
}}"
    )
}

fn dataset(draw: &mut Draw) -> Dataset {
    const YEARS: usize = 9;
    let mut times = |count: usize| -> Vec<i64> { (0..count).map(|_| 2000 + draw.below(YEARS) as i64).collect() };
    let own = [times(TYPES[0].1), times(TYPES[1].1)];
    let vertex = |(position, (name, count)): (usize, (&str, usize))| VertexTypeData {
        name: name.into(),
        count,
        features: Some(Features::Dense(DenseFeatures {
            dim: 2,
            rows: (0..2 * count).map(|i| (i as f32 * 0.7 + position as f32).sin()).collect::<Vec<f32>>().into(),
        })),
        time: own.get(position).cloned(),
        ..Default::default()
    };
    let vertex_types: Vec<VertexTypeData> = TYPES.into_iter().enumerate().map(vertex).collect();
    let relation = |(name, src, dst, timed): (&str, usize, usize, bool)| {
        let edges = 30;
        let end = |draw: &mut Draw, of: usize| draw.below(TYPES[of].1) as u32;
        RelationData {
            name: name.into(),
            src,
            dst,
            src_ids: (0..edges).map(|_| end(draw, src)).collect(),
            dst_ids: (0..edges).map(|_| end(draw, dst)).collect(),
            time: timed.then(|| (0..edges).map(|_| 2000 + draw.below(YEARS) as i64).collect()),
            ..Default::default()
        }
    };
    let relations = RELATIONS.into_iter().map(relation).collect();
    let classes = LabelValues::Single { classes: 2, of: (0..TYPES[0].1 as i32).map(|paper| paper % 2).collect() };
    let split = SplitData { name: "past".into(), vertex_type: 0, train: vec![], val: vec![], test: vec![] };
    let label = LabelData { name: "topic".into(), vertex_type: 0, values: classes, class_names: vec![] };
    Dataset {
        name: "past".into(),
        vertex_types,
        relations,
        labels: vec![label],
        splits: vec![split],
        ..Dataset::default()
    }
}

fn time_of(data: &Dataset, (of, vertex): (usize, u32)) -> Option<i64> {
    data.vertex_types[of].time.as_ref().map(|time| time[vertex as usize])
}

/// Other features of what is later than a time, and, with `rewire`, other ends of the edges that are.
fn other_future(data: &Dataset, until: i64, rewire: bool, draw: &mut Draw) -> Dataset {
    let mut data = data.clone();
    let before = data.clone();
    for (of, vertices) in data.vertex_types.iter_mut().enumerate() {
        let Some(Features::Dense(x)) = &mut vertices.features else { unreachable!("dense features") };
        let mut rows = x.rows.to_vec();
        for vertex in (0..vertices.count).filter(|&v| time_of(&before, (of, v as u32)).is_some_and(|t| t > until)) {
            rows[2 * vertex] = 50.0 + draw.below(100) as f32;
            rows[2 * vertex + 1] = -3.0;
        }
        x.rows = rows.into();
    }
    for relation in data.relations.iter_mut().filter(|_| rewire) {
        for edge in 0..relation.src_ids.len() {
            let late = |time: Option<i64>| time.is_some_and(|time| time > until);
            let ends = [(relation.src, relation.src_ids[edge]), (relation.dst, relation.dst_ids[edge])];
            let [from, to] = ends.map(|end| late(time_of(&before, end)));
            let own = late(relation.time.as_ref().map(|time| time[edge]));
            // An edge that is not late itself keeps its late end, and so is read by nothing earlier.
            if own || to {
                relation.src_ids[edge] = draw.below(TYPES[relation.src].1) as u32;
            }
            if own || from {
                relation.dst_ids[edge] = draw.below(TYPES[relation.dst].1) as u32;
            }
            // Both ends are now early, but the edge is late or had another late end: only with a time of its own.
            if !own && from && to {
                relation.src_ids[edge] = ends[0].1;
            }
        }
    }
    data
}

/// The interpreter's output for the papers, with the edges that the runtime binds.
fn output(compiled: &Compiled, world: &World, data: &Dataset) -> Tensor {
    let options = BindOptions { outputs_only: true, ..Default::default() };
    let bound = hgnnc_data::bind(&inference(compiled), data, &options).unwrap_or_else(|error| panic!("{error}"));
    let mut bindings = compiled.bind(world);
    for (edges, graph) in bindings.edges.iter_mut().zip(&bound.graphs) {
        let rows = graph.csc.indptr.windows(2).zip(0..);
        let ends = rows.flat_map(|(row, to)| (row[0]..row[1]).map(move |edge| (edge, to)));
        *edges = ends.map(|(edge, to)| (graph.csc.indices[edge as usize], to)).collect();
    }
    for (index, numbers) in bound.inputs.iter().enumerate() {
        if let (InputData::Numbers(numbers), Some(tensor)) = (numbers, bindings.inputs.get_mut(&Input::new(index))) {
            tensor.data = numbers.iter().map(|&x| f64::from(x)).collect();
        }
    }
    compiled.output_of(&bindings, "y")
}

fn world(seed: u64, data: &Dataset) -> World {
    let edges: Vec<Vec<(u32, u32)>> =
        data.relations.iter().map(|r| r.src_ids.iter().copied().zip(r.dst_ids.iter().copied()).collect()).collect();
    let relations: Vec<(&str, &[(u32, u32)])> =
        RELATIONS.iter().zip(&edges).map(|(relation, edges)| (relation.0, &edges[..])).collect();
    World::new(seed, &TYPES, &relations)
}

/// The values of a vertex after some layers, computed for it alone: it asks the vertices that it may read, as of its own time.
struct Alone<'a> {
    data: &'a Dataset,
    layers: &'a [Vec<Walk>],
    plain: &'a Plain<'a>,
}

impl Alone<'_> {
    /// The vertices that messages of a step come from, for a vertex that reads what is not later than `cutoff`; each with the
    /// cutoff of what it reads itself.
    fn read(&self, step: (usize, bool), vertex: u32, cutoff: i64) -> Vec<u32> {
        let relation = &self.data.relations[step.0];
        let (from, to) =
            if step.1 { (&relation.dst_ids, &relation.src_ids) } else { (&relation.src_ids, &relation.dst_ids) };
        let edges = (0..to.len()).filter(|&edge| to[edge] == vertex);
        let early = edges.filter(|&edge| {
            relation.time.as_ref().is_none_or(|time| time[edge] <= cutoff)
                && time_of(self.data, (ends(step).0, from[edge])).is_none_or(|time| time <= cutoff)
        });
        early.map(|edge| from[edge]).collect()
    }

    fn value(&self, layers: usize, (of, vertex): (usize, u32)) -> Vec<f64> {
        let Some(below) = layers.checked_sub(1) else {
            return self.plain.input(&format!("{}.x", TYPES[of].0))[vertex as usize].clone();
        };
        let mut sum = self.value(below, (of, vertex));
        for (name, _, steps) in self.layers[below].iter().filter(|walk| ends(walk.2[walk.2.len() - 1]).1 == of) {
            let cutoff = time_of(self.data, (of, vertex)).expect("what receives messages has a time");
            let mut sources = self.read(steps[steps.len() - 1], vertex, cutoff);
            if let [first, last] = steps[..] {
                let middle = |&at: &u32| {
                    let cutoff = time_of(self.data, (ends(last).0, at)).expect("venues have times");
                    self.read(first, at, cutoff)
                };
                let distinct: BTreeSet<u32> = sources.iter().flat_map(middle).collect();
                sources = distinct.into_iter().collect();
            }
            let w = self.plain.param(&format!("h{below}.w.{name}"));
            for &source in &sources {
                let message = w.apply(&self.value(below, (ends(steps[0]).0, source)));
                sum.iter_mut().zip(message).for_each(|(sum, x)| *sum += x / sources.len() as f64);
            }
        }
        sum.iter().map(|x| x.tanh()).collect()
    }
}

/// Random models on random datasets: the interpreter's output for a paper is what the paper computes alone, and changes by no bit
/// when everything later than it is different.
#[test]
fn nothing_later_than_a_vertex_changes_what_it_reads() {
    for seed in 0..worlds(40) {
        let draw = &mut Draw(seed);
        let (data, layers) = (dataset(draw), layers(draw));
        let source = source(&layers, "");
        let compiled = compile(&source);
        let world = world(seed, &data);
        let found = output(&compiled, &world, &data);
        // Parameters of the world; features of the dataset.
        let mut plain = Plain::of(&compiled, &world);
        for vertices in &data.vertex_types {
            let Some(Features::Dense(x)) = &vertices.features else { unreachable!("dense features") };
            let rows: Rows = x.rows.chunks(2).map(|row| row.iter().map(|&x| f64::from(x)).collect()).collect();
            plain = plain.with_input(&format!("{}.x", vertices.name), rows);
        }
        let alone = Alone { data: &data, layers: &layers, plain: &plain };
        let expected: Rows = (0..TYPES[0].1 as u32).map(|paper| alone.value(layers.len(), (0, paper))).collect();
        let expected = plain.linear("y", "", &expected);
        assert_close(&format!("world {seed}: {source}"), &found.data, &expected.concat(), 1e-10);
        for until in 2000..2009 {
            let other = other_future(&data, until, true, draw);
            let then = output(&compiled, &world, &other);
            for paper in (0..TYPES[0].1).filter(|&paper| time_of(&data, (0, paper as u32)).is_some_and(|t| t <= until))
            {
                assert_eq!(found.row(paper), then.row(paper), "world {seed}, paper {paper} until {until}: {source}");
            }
        }
    }
}

/// The same of trained models, in full batch and in mini-batches with all in-edges and with few: the losses of early papers and
/// the output for them are the same to the bit, whatever the features of later vertices are.
#[test]
fn nothing_later_than_the_training_part_is_learned_from() {
    for seed in 0..worlds(6) {
        let draw = &mut Draw(1000 + seed);
        let (mut data, layers) = (dataset(draw), layers(draw));
        let until = 2004;
        let early = |paper: &u32| time_of(&data, (0, *paper)).is_some_and(|time| time <= until);
        data.splits[0].train = (0..TYPES[0].1 as u32).filter(early).collect();
        let papers = data.splits[0].train.clone();
        let other = Arc::new(other_future(&data, until, false, draw));
        let data = Arc::new(data);
        let few = format!("batch 3 fanout [{}]", vec!["2"; hops(&layers)].join(", "));
        let latest = match last_reads_citations(&layers) {
            true => format!("{few} {{ cites: latest(2) }}"),
            false => few.clone(),
        };
        let drawn = hops(&layers) > 0;
        for options in ["", "batch 3", if drawn { &few } else { "batch 2" }, if drawn { &latest } else { "batch 4" }] {
            let source = source(&layers, options);
            let run = |data: &Arc<Dataset>| -> Trained {
                train(&job(&source, data, None)).unwrap_or_else(|error| panic!("{error}\n{source}"))
            };
            let (found, then) = (run(&data), run(&other));
            let bits = |losses: &[f64]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<u64>>();
            assert_eq!(bits(&found.losses), bits(&then.losses), "world {seed}: {source}");
            for &paper in &papers {
                let row = |of: &Trained| of.output[2 * paper as usize..][..2].to_vec();
                assert_eq!(row(&found), row(&then), "world {seed}, paper {paper}: {source}");
            }
        }
    }
}

/// Does the loss see messages along `cites`, which papers receive?
fn last_reads_citations(layers: &[Vec<Walk>]) -> bool {
    layers.last().is_some_and(|walks| walks.iter().any(|walk| walk.0 == "cites"))
}

/// The number of hops that a model sees: each layer whose graphs lead to what is read of it.
fn hops(layers: &[Vec<Walk>]) -> usize {
    let mut read = BTreeSet::from([0]);
    let (mut hops, mut deepest) = (0, 0);
    for walks in layers.iter().rev() {
        let into: Vec<&Walk> = walks.iter().filter(|walk| read.contains(&ends(walk.2[walk.2.len() - 1]).1)).collect();
        hops += 1;
        if !into.is_empty() {
            deepest = hops;
        }
        read.extend(into.iter().map(|walk| ends(walk.2[0]).0));
    }
    deepest
}

/// A batch of all seeds with all in-edges has the loss of the whole graph.
#[test]
fn full_batch_and_mini_batch_agree() {
    for seed in 0..worlds(6) {
        let draw = &mut Draw(2000 + seed);
        let (mut data, layers) = (dataset(draw), layers(draw));
        data.splits[0].train = (0..TYPES[0].1 as u32).collect();
        let data = Arc::new(data);
        let losses = |options: &str| {
            let source = source(&layers, options);
            train(&job(&source, &data, None)).unwrap_or_else(|error| panic!("{error}\n{source}")).losses
        };
        assert_close(&format!("world {seed}"), &losses("batch 100"), &losses(""), 1e-5);
    }
}
