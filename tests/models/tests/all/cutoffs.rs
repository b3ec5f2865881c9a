//! No message from the future: what is later than a vertex changes no bit of what is computed for it.
//!
//! Random datasets with times, and random models of one to three layers over relations, their reverses and metapaths, with
//! outputs of papers, of path instances at papers, and of edges. Papers and venues have times, authors have none and are read
//! as of the times of their readers; some relations have times of their own. The reference computes each row alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use hgnnc_data::{BindOptions, InputData};
use hgnnc_dataset::{
    Dataset, DenseFeatures, EdgeLabel, EdgeSplit, Features, LabelData, LabelValues, RelationData, SplitData,
    VertexTypeData,
};
use hgnnc_interp::{Bindings, Tensor};
use hgnnc_ir::Input;
use hgnnc_ir::dataflow::Binding;
use hgnnc_model_tests::plain::{Plain, Rows};
use hgnnc_model_tests::{Compiled, World, assert_close, compile, worlds};

use crate::devices::{on_device_with, on_processor_with, options, run};
use crate::ranks::{Trained, job, train, train_on};
use crate::times::inference;

pub const TYPES: [(&str, usize); 3] = [("Paper", 14), ("Venue", 5), ("Author", 6)];
/// Name, source and destination of each relation, and whether its edges have times.
pub const RELATIONS: [(&str, usize, usize, bool); 4] =
    [("cites", 0, 0, true), ("appears_in", 0, 1, false), ("writes", 2, 0, true), ("knows", 2, 2, true)];
/// The relation whose edges are predicted.
const WRITES: usize = 2;

/// A semantic graph: its name in parameters, how a model names it, and its steps over relations, walked backwards or not.
pub type Walk = (&'static str, &'static str, &'static [(usize, bool)]);
const PVP: Walk = ("PVP", "PVP", &[(1, false), (1, true)]);
const PAP: Walk = ("PAP", "PAP", &[(2, true), (2, false)]);
const WALKS: [Walk; 10] = [
    ("cites", "cites", &[(0, false)]),
    ("reverse_cites", "reverse(cites)", &[(0, true)]),
    ("appears_in", "appears_in", &[(1, false)]),
    ("reverse_appears_in", "reverse(appears_in)", &[(1, true)]),
    ("writes", "writes", &[(2, false)]),
    ("reverse_writes", "reverse(writes)", &[(2, true)]),
    ("knows", "knows", &[(3, false)]),
    ("reverse_knows_self_loops", "self_loops(reverse(knows))", &[(3, true)]),
    PVP,
    PAP,
];

/// The rows that a model has outputs of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    /// A paper, after all layers.
    Papers,
    /// A paper and the mean over its path instances along [`PVP`] and [`PAP`].
    Paths,
    /// An edge of [`WRITES`], of both of its ends.
    Edges,
}

const TARGETS: [Target; 3] = [Target::Papers, Target::Paths, Target::Edges];

impl Target {
    /// The target of the world of this number.
    fn of(seed: u64) -> Self {
        TARGETS[seed as usize % TARGETS.len()]
    }

    /// The time of each row of the output.
    fn times(self, data: &Dataset) -> Vec<i64> {
        let papers = data.vertex_types[0].time.as_ref().expect("papers have times");
        let writes = &data.relations[WRITES];
        match self {
            Target::Papers | Target::Paths => papers.clone(),
            Target::Edges => {
                let own = writes.time.iter().flatten().zip(&writes.dst_ids);
                own.map(|(&own, &paper)| own.max(papers[paper as usize])).collect()
            }
        }
    }

    /// Makes these rows the training part.
    fn train_on(self, data: &mut Dataset, rows: Vec<u32>) {
        match self {
            Target::Papers | Target::Paths => data.splits[0].train = rows,
            Target::Edges => data.relations[WRITES].splits[0].train = rows,
        }
    }
}

/// Numbers that differ between calls, the same in every run.
pub struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end as u64) as usize
    }
}

/// The vertex types that a step goes from and to.
pub fn ends((relation, reverse): (usize, bool)) -> (usize, usize) {
    let (_, src, dst, _) = RELATIONS[relation];
    if reverse { (dst, src) } else { (src, dst) }
}

/// Layers, each over some semantic graphs.
pub fn layers(draw: &mut Draw) -> Vec<Vec<Walk>> {
    let some = |draw: &mut Draw| {
        let mut chosen: Vec<Walk> = WALKS.into_iter().filter(|_| draw.below(3) > 0).collect();
        if chosen.is_empty() {
            chosen.push(WALKS[0]);
        }
        chosen
    };
    (0..1 + draw.below(3)).map(|_| some(draw)).collect()
}

fn source(target: Target, layers: &[Vec<Walk>], options: &str) -> String {
    let before = last(layers);
    let (output, loss) = match target {
        Target::Papers => (format!("y: Paper = linear({before}.Paper, 2)"), "cross_entropy(y, Paper.topic)"),
        Target::Paths => (format!("y: Paper = linear({before}.Paper + along, 2)"), "cross_entropy(y, Paper.topic)"),
        Target::Edges => {
            (format!("y: edges(writes) = Ends() over edges(writes) of {before}"), "cross_entropy(y, writes.role)")
        }
    };
    let along = match target {
        Target::Paths => format!("let along = Along() over [PVP, PAP] of {before}"),
        Target::Papers | Target::Edges => String::new(),
    };
    model(layers, (&along, &output, loss), options)
}

/// The name of the values of the last layer.
pub fn last(layers: &[Vec<Walk>]) -> String {
    layers.len().checked_sub(1).map_or("features".to_owned(), |last| format!("h{last}"))
}

/// A model of some layers, what is computed of the last one, an output and its loss.
pub fn model(layers: &[Vec<Walk>], (along, output, loss): (&str, &str, &str), options: &str) -> String {
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
    relation writes: Author -> Paper {{ at: time, role: class[2] }}
    relation knows: Author -> Author {{ at: time }}
    metapath PAP = Paper <-writes- Author -writes-> Paper
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
layer Along() over graphs: [V -> V] of x: *[2] -> V[2] {{
    aggregate p: path in graphs {{
        param w: [2, 2]
        z = mean(tanh(p.at(1).x @ w + p.src.x)) over in_edges
    }}
    fuse v: V across graphs {{
        out = sum(v.z) across graphs
    }}
}}
layer Score() over graphs: [*] of x: *[2] -> y: graphs {{
    aggregate e: g in graphs {{
        param w: [2, 2]
        y = dot(e.src.x @ w, e.dst.x)
    }}
}}
layer Ends() over graphs: [*] of x: *[2] -> y: graphs[2] {{
    aggregate e: g in graphs {{
        param w: [2, 2]
        y = e.src.x @ w - e.dst.x
    }}
}}
model M(schema: S) {{
{body}    {along}
    output {output}
}}
train M {{
    loss {loss}
    optimizer sgd(lr: 0.1)
    cutoff time
    epochs 2
    seed 3
    select train.loss
    {options}
}}"
    )
}

pub fn dataset(draw: &mut Draw) -> Dataset {
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
            labels: vec![EdgeLabel {
                name: "role".into(),
                values: LabelValues::Single { classes: 2, of: (0..edges).map(|edge| edge % 2).collect() },
                class_names: vec![],
            }],
            splits: vec![EdgeSplit { name: "past".into(), train: vec![], val: vec![], test: vec![] }],
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
pub fn other_future(data: &Dataset, until: i64, rewire: bool, draw: &mut Draw) -> Dataset {
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

/// The interpreter's output, with the edges that the runtime binds.
fn output(compiled: &Compiled, world: &World, data: &Dataset) -> Tensor {
    compiled.output_of(&bindings(compiled, world, data), "y")
}

/// The edges, rows and features that the runtime binds, with the parameters of a world.
fn bindings(compiled: &Compiled, world: &World, data: &Dataset) -> Bindings {
    let options = BindOptions { outputs_only: true, ..Default::default() };
    bindings_with(compiled, world, &mut data.clone(), &options)
}

/// The same with other options; the dataset gets the rows that are listed.
pub fn bindings_with(compiled: &Compiled, world: &World, data: &mut Dataset, options: &BindOptions) -> Bindings {
    let inference = inference(compiled);
    hgnnc_data::add_path_instances(&inference.infer, data, options).unwrap_or_else(|error| panic!("{error}"));
    let bound = hgnnc_data::bind(&inference, data, options).unwrap_or_else(|error| panic!("{error}"));
    let mut bindings = compiled.bind(world);
    bindings.num_vertices.clone_from(&bound.num_vertices);
    for (edges, graph) in bindings.edges.iter_mut().zip(&bound.graphs) {
        let rows = graph.csc.indptr.windows(2).zip(0..);
        let ends = rows.flat_map(|(row, to)| (row[0]..row[1]).map(move |edge| (edge, to)));
        *edges = ends.map(|(edge, to)| (graph.csc.indices[edge as usize], to)).collect();
    }
    for (index, numbers) in bound.inputs.iter().enumerate() {
        if let (InputData::Numbers(numbers), Some(tensor)) = (numbers, bindings.inputs.get_mut(&Input::new(index))) {
            tensor.data = numbers.iter().map(|&x| f64::from(x)).collect();
            tensor.rows = tensor.data.len() / tensor.width.max(1);
        }
    }
    bindings
}

pub fn world(seed: u64, data: &Dataset) -> World {
    let edges: Vec<Vec<(u32, u32)>> =
        data.relations.iter().map(|r| r.src_ids.iter().copied().zip(r.dst_ids.iter().copied()).collect()).collect();
    let relations: Vec<(&str, &[(u32, u32)])> =
        RELATIONS.iter().zip(&edges).map(|(relation, edges)| (relation.0, &edges[..])).collect();
    World::new(seed, &TYPES, &relations)
}

/// Parameters of the world, and features of the dataset.
pub fn plain<'a>(compiled: &'a Compiled, world: &'a World, data: &Dataset) -> Plain<'a> {
    let mut plain = Plain::of(compiled, world);
    for vertices in &data.vertex_types[..TYPES.len()] {
        let Some(Features::Dense(x)) = &vertices.features else { unreachable!("dense features") };
        let rows: Rows = x.rows.chunks(2).map(|row| row.iter().map(|&x| f64::from(x)).collect()).collect();
        plain = plain.with_input(&format!("{}.x", vertices.name), rows);
    }
    plain
}

/// The values of a vertex after some layers, computed for it alone: it asks the vertices that it may read, as of its own time,
/// or as of the time of its reader if it has none.
pub struct Alone<'a> {
    pub data: &'a Dataset,
    pub layers: &'a [Vec<Walk>],
    pub plain: &'a Plain<'a>,
}

impl Alone<'_> {
    /// The vertices that messages of a step come from, for a vertex that reads what is not later than `cutoff`.
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

    pub fn value(&self, layers: usize, (of, vertex): (usize, u32), cutoff: i64) -> Vec<f64> {
        let Some(below) = layers.checked_sub(1) else {
            return self.plain.input(&format!("{}.x", TYPES[of].0))[vertex as usize].clone();
        };
        let cutoff = time_of(self.data, (of, vertex)).unwrap_or(cutoff);
        let mut sum = self.value(below, (of, vertex), cutoff);
        for (name, _, steps) in self.layers[below].iter().filter(|walk| ends(walk.2[walk.2.len() - 1]).1 == of) {
            let mut sources = self.read(steps[steps.len() - 1], vertex, cutoff);
            if let [first, last] = steps[..] {
                let middle = |&at: &u32| {
                    let cutoff = time_of(self.data, (ends(last).0, at)).unwrap_or(cutoff);
                    self.read(first, at, cutoff)
                };
                let distinct: BTreeSet<u32> = sources.iter().flat_map(middle).collect();
                sources = distinct.into_iter().collect();
            }
            if name.ends_with("self_loops") && !sources.contains(&vertex) {
                sources.push(vertex);
            }
            let w = self.plain.param(&format!("h{below}.w.{name}"));
            for &source in &sources {
                let message = w.apply(&self.value(below, (ends(steps[0]).0, source), cutoff));
                sum.iter_mut().zip(message).for_each(|(sum, x)| *sum += x / sources.len() as f64);
            }
        }
        sum.iter().map(|x| x.tanh()).collect()
    }

    /// The mean over the path instances that end at a paper and are not later than it.
    fn along(&self, (name, _, steps): Walk, paper: u32) -> Vec<f64> {
        let cutoff = time_of(self.data, (0, paper)).expect("papers have times");
        let [first, last] = *steps else { unreachable!("two steps") };
        let of_middle = |middle: u32| self.read(first, middle, cutoff).into_iter().map(move |start| (start, middle));
        let instances: Vec<(u32, u32)> = self.read(last, paper, cutoff).into_iter().flat_map(of_middle).collect();
        // Layers may run over the pairs of this name.
        let names = [format!("w.{name}"), format!("w.{name}_2")];
        let w = names.iter().find_map(|name| self.plain.param_if_read("along", name)).expect("each has a parameter");
        let mut sum = vec![0.0; 2];
        for &(start, middle) in &instances {
            let at = |vertex: (usize, u32)| self.value(self.layers.len(), vertex, cutoff);
            let (start, middle) = (at((ends(first).0, start)), w.apply(&at((ends(last).0, middle))));
            for (sum, (a, b)) in sum.iter_mut().zip(start.iter().zip(middle)) {
                *sum += (a + b).tanh() / instances.len() as f64;
            }
        }
        sum
    }

    /// The rows of the output.
    fn output(&self, target: Target) -> Rows {
        let (top, times) = (self.layers.len(), target.times(self.data));
        let added = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<f64>>();
        let papers = (0..TYPES[0].1 as u32).map(|paper| {
            let own = self.value(top, (0, paper), times[paper as usize]);
            match target {
                Target::Paths => [PVP, PAP].into_iter().fold(own, |sum, walk| added(sum, self.along(walk, paper))),
                Target::Papers | Target::Edges => own,
            }
        });
        if target != Target::Edges {
            return self.plain.linear("y", "", &papers.collect());
        }
        let (writes, w) = (&self.data.relations[WRITES], self.plain.param("y.w.edges_writes"));
        let edge = |(edge, &cutoff): (usize, &i64)| {
            let author = w.apply(&self.value(top, (2, writes.src_ids[edge]), cutoff));
            let paper = self.value(top, (0, writes.dst_ids[edge]), cutoff);
            author.iter().zip(paper).map(|(author, paper)| author - paper).collect()
        };
        times.iter().enumerate().map(edge).collect()
    }
}

/// Random models on random datasets: the interpreter's output for a row is what the row computes alone, and changes by no bit
/// when everything later than it is different.
#[test]
fn nothing_later_than_a_vertex_changes_what_it_reads() {
    for seed in 0..worlds(60) {
        let (draw, target) = (&mut Draw(seed), Target::of(seed));
        let (data, layers) = (dataset(draw), layers(draw));
        let source = source(target, &layers, "");
        let compiled = compile(&source);
        let world = world(seed, &data);
        let found = output(&compiled, &world, &data);
        let plain = plain(&compiled, &world, &data);
        let alone = Alone { data: &data, layers: &layers, plain: &plain };
        let expected = alone.output(target);
        assert_close(&format!("world {seed}: {source}"), &found.data, &expected.concat(), 1e-10);
        let times = target.times(&data);
        for until in 2000..2009 {
            let other = other_future(&data, until, true, draw);
            // An edge to predict that is later has other ends, and is another row.
            let then = output(&compiled, &world, &other);
            for row in (0..times.len()).filter(|&row| times[row] <= until) {
                assert_eq!(found.row(row), then.row(row), "world {seed}, row {row} until {until}: {source}");
            }
        }
    }
}

/// The same of trained models, in full batch and in mini-batches with all in-edges and with few: the losses of early papers and
/// the output for them are the same to the bit, whatever the features of later vertices are.
#[test]
fn nothing_later_than_the_training_part_is_learned_from() {
    for seed in 0..worlds(9) {
        let (draw, target) = (&mut Draw(1000 + seed), Target::of(seed));
        let (mut data, layers) = (dataset(draw), layers(draw));
        let until = 2004;
        let times = target.times(&data);
        let rows: Vec<u32> = (0..times.len() as u32).filter(|row| times[*row as usize] <= until).collect();
        target.train_on(&mut data, rows.clone());
        let other = Arc::new(other_future(&data, until, false, draw));
        let data = Arc::new(data);
        let few = format!("batch 3 fanout [{}]", vec!["2"; hops(target, &layers)].join(", "));
        let latest = match target == Target::Papers && last_reads_citations(&layers) {
            true => format!("{few} {{ cites: latest(2) }}"),
            false => few.clone(),
        };
        let drawn = hops(target, &layers) > 0;
        for options in ["", "batch 3", if drawn { &few } else { "batch 2" }, if drawn { &latest } else { "batch 4" }] {
            let source = source(target, &layers, options);
            let run = |data: &Arc<Dataset>| -> Trained {
                train(&job(&source, data, None)).unwrap_or_else(|error| panic!("{error}\n{source}"))
            };
            let (found, then) = (run(&data), run(&other));
            let bits = |losses: &[f64]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<u64>>();
            assert_eq!(bits(&found.losses), bits(&then.losses), "world {seed}: {source}");
            for &at in &rows {
                let row = |of: &Trained| of.output[2 * at as usize..][..2].to_vec();
                assert_eq!(row(&found), row(&then), "world {seed}, row {at}: {source}");
            }
        }
    }
}

/// Does the loss see messages along `cites`, which papers receive?
fn last_reads_citations(layers: &[Vec<Walk>]) -> bool {
    layers.last().is_some_and(|walks| walks.iter().any(|walk| walk.0 == "cites"))
}

/// The number of hops that a model sees: each layer whose graphs lead to what is read of it.
fn hops(target: Target, layers: &[Vec<Walk>]) -> usize {
    let (mut hops, mut read) = match target {
        Target::Papers => (0, BTreeSet::from([0])),
        Target::Paths => (2, BTreeSet::from([0, 1, 2])),
        Target::Edges => (1, BTreeSet::from([0, 2])),
    };
    let mut deepest = hops;
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
    for seed in 0..worlds(9) {
        let (draw, target) = (&mut Draw(2000 + seed), Target::of(seed));
        let (mut data, layers) = (dataset(draw), layers(draw));
        let rows = (0..target.times(&data).len() as u32).collect();
        target.train_on(&mut data, rows);
        let data = Arc::new(data);
        let losses = |options: &str| {
            let source = source(target, &layers, options);
            train(&job(&source, &data, None)).unwrap_or_else(|error| panic!("{error}\n{source}")).losses
        };
        assert_close(&format!("world {seed}"), &losses("batch 100"), &losses(""), 1e-5);
    }
}

/// Virtual ranks divide vertices and edges by what a cutoff leaves: any number of them gives the bits of one, and nearly the
/// numbers of a run without ranks.
#[test]
fn ranks_agree_under_a_cutoff() {
    for seed in 0..worlds(6) {
        let (draw, target) = (&mut Draw(3000 + seed), Target::of(seed));
        let (mut data, layers) = (dataset(draw), layers(draw));
        let rows = (0..target.times(&data).len() as u32).filter(|row| row % 3 > 0).collect();
        target.train_on(&mut data, rows);
        let data = Arc::new(data);
        for options in ["", "batch 4"] {
            let source = source(target, &layers, options);
            let alone = train(&job(&source, &data, None)).unwrap_or_else(|error| panic!("{error}\n{source}"));
            let mut first: Option<Trained> = None;
            for ranks in [1, 2, 3, 4] {
                for (rank, trained) in train_on(ranks, 6, &source, &data).into_iter().enumerate() {
                    let trained = trained.unwrap_or_else(|error| panic!("rank {rank} of {ranks}: {error}\n{source}"));
                    let what = format!("world {seed}, rank {rank} of {ranks}: {source}");
                    let wide = |of: &Trained| of.output.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
                    assert_close(&what, &trained.losses, &alone.losses, 2e-5);
                    assert_close(&what, &wide(&trained), &wide(&alone), 1e-4);
                    let first = first.get_or_insert_with(|| trained.clone());
                    // The ranks of mini-batches add what their own seeds give, in an order that depends on their number.
                    if options.is_empty() {
                        assert_eq!(trained.bits(), first.bits(), "{what}");
                    }
                }
            }
        }
    }
}

/// PTX on the rows and edges that a cutoff leaves is what the processor computes.
#[test]
fn a_device_agrees_under_a_cutoff() {
    for seed in 0..worlds(6) {
        let (draw, target) = (&mut Draw(4000 + seed), Target::of(seed));
        let (data, layers) = (dataset(draw), layers(draw));
        let source = source(target, &layers, "");
        let (compiled, world) = (compile(&source), world(seed, &data));
        let mut bindings = bindings(&compiled, &world, &data);
        for (index, decl) in compiled.training().inputs.iter().enumerate() {
            if let (Binding::Label(..), Some(classes)) = (&decl.binding, bindings.inputs.get_mut(&Input::new(index))) {
                // A world has three classes, and these models two.
                classes.data.iter_mut().for_each(|class| *class = class.min(1.0));
            }
        }
        let expected = run(&mut on_processor_with(&compiled, &world, &bindings, options(3))).losses;
        let found = run(&mut on_device_with(&compiled, &world, &bindings, options(3))).losses;
        assert!(expected.iter().all(|loss| loss.is_finite()), "{expected:?}");
        assert_close(&format!("world {seed}: {source}"), &found, &expected, 2e-4);
    }
}
