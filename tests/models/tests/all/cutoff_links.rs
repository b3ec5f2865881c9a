//! Links under a cutoff: both ends are read as of the last time before the period of the link, in scores, training and evaluation.
//!
//! The random datasets and layers of [`crate::cutoffs`], with links between authors, who have no times, to predict. The reference
//! computes each end of a link alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hgnnc::{Purpose, Ranks, Silent, prepare};
use hgnnc_data::BindOptions;
use hgnnc_dataset::{Dataset, LinkSplitData, Links};
use hgnnc_dist::{Comm, threads};
use hgnnc_interp::Tensor;
use hgnnc_ir::Input;
use hgnnc_ir::dataflow::Binding;
use hgnnc_model_tests::plain::Rows;
use hgnnc_model_tests::{assert_close, compile, worlds};

use crate::cutoffs::{Alone, Draw, Walk, bindings_with, dataset, last, layers, model, other_future, plain, world};
use crate::ranks::job;

const AUTHOR: usize = 2;
/// The relation whose links are predicted, from authors to authors.
const KNOWS: usize = 3;

fn source(layers: &[Vec<Walk>], period: i64, options: &str) -> String {
    let output = format!("y: links = Score() over links(knows) of {}", last(layers));
    let text = model(layers, ("", &output, "binary_cross_entropy(y, links)"), &format!("batch 4 {options}"));
    text.replace("cutoff time", &format!("cutoff time every {period}"))
}

/// The last time before the period of a time.
fn cutoff(time: i64, period: i64) -> i64 {
    time.div_euclid(period) * period - 1
}

/// An author and a cutoff.
type Row = (u32, i64);

/// The scores of the links that a program is bound to, with both ends.
fn scores(source: &str, seed: u64, data: &Dataset) -> Vec<((Row, Row), f64)> {
    let (compiled, mut data) = (compile(source), data.clone());
    let world = world(seed, &data);
    let mut bindings = bindings_with(&compiled, &world, &mut data, &BindOptions::default());
    for (index, input) in compiled.model.flow.inputs.iter().enumerate() {
        if let Binding::IsLink(graph) = input.binding {
            let links = bindings.edges[graph.index()].len();
            bindings.inputs.insert(Input::new(index), Tensor { rows: links, width: 1, data: vec![1.0; links] });
        }
    }
    let found = compiled.output_of(&bindings, "y.links_knows");
    let name = "Author as of cutoffs";
    let rows = &data.relations[data.relation(name).expect("authors have rows")].src_ids;
    let rows_type = data.vertex_type(name).expect("authors have rows");
    let times = data.vertex_types[rows_type].time.as_ref().expect("rows have times");
    let row = |row: u32| (rows[row as usize], times[row as usize]);
    let graph = compiled.model.flow.graphs.iter().position(|decl| decl.links).expect("there are links");
    let ends = bindings.edges[graph].iter().map(|&(src, dst)| (row(src), row(dst)));
    ends.zip(found.data).collect()
}

/// Each distinct link of a period has the score that its ends have alone.
#[test]
fn the_ends_of_a_link_are_read_as_of_the_time_before_its_period() {
    for seed in 0..worlds(30) {
        let draw = &mut Draw(2000 + seed);
        let (data, layers, period) = (dataset(draw), layers(draw), [1, 2, 4][seed as usize % 3]);
        let source = source(&layers, period, "");
        let found = scores(&source, seed, &data);
        let knows = &data.relations[KNOWS];
        let times = knows.time.as_ref().expect("links have times");
        let link = |edge: usize| {
            let cutoff = cutoff(times[edge], period);
            ((knows.src_ids[edge], cutoff), (knows.dst_ids[edge], cutoff))
        };
        let expected: BTreeSet<(Row, Row)> = (0..times.len()).map(link).collect();
        assert_eq!(found.len(), expected.len(), "a pair is one link of a period: {source}");
        assert_eq!(found.iter().map(|link| link.0).collect::<BTreeSet<_>>(), expected, "{source}");
        let (compiled, world) = (compile(&source), world(seed, &data));
        let plain = plain(&compiled, &world, &data);
        let alone = Alone { data: &data, layers: &layers, plain: &plain };
        let w = plain.param("y.w.links_knows");
        for ((src, dst), score) in found {
            let [src, dst] = [src, dst].map(|(author, cutoff)| alone.value(layers.len(), (AUTHOR, author), cutoff));
            let expected: f64 = w.apply(&src).iter().zip(&dst).map(|(a, b)| a * b).sum();
            assert_close(&format!("world {seed}: {source}"), &[score], &[expected], 1e-10);
        }
    }
}

/// Scores of links change by no bit when everything later than their cutoff is different.
#[test]
fn nothing_later_than_a_cutoff_changes_a_score() {
    for seed in 0..worlds(15) {
        let draw = &mut Draw(3000 + seed);
        let (data, layers) = (dataset(draw), layers(draw));
        let source = source(&layers, 1 + seed as i64 % 3, "");
        let found = scores(&source, seed, &data);
        let mut compared = 0;
        for until in [2002, 2005] {
            let then: BTreeMap<(Row, Row), f64> =
                scores(&source, seed, &other_future(&data, until, true, draw)).into_iter().collect();
            for (ends, score) in found.iter().filter(|(ends, _)| ends.0.1 <= until) {
                // A later link of an early cutoff may be another one.
                if let Some(other) = then.get(ends) {
                    assert_eq!(score.to_bits(), other.to_bits(), "world {seed}, {ends:?} until {until}: {source}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 0, "world {seed}");
    }
}

/// Moves the links later than a time to the test part.
fn hold_out_after(data: &mut Dataset, until: i64) {
    let knows = &mut data.relations[KNOWS];
    let times = knows.time.take().expect("links have times");
    let (mut test, mut kept) = (Links { time: Some(vec![]), ..Links::default() }, vec![]);
    for (edge, &time) in times.iter().enumerate() {
        if time <= until {
            kept.push(edge);
            continue;
        }
        test.src.push(knows.src_ids[edge]);
        test.relation.push(KNOWS as u32);
        test.dst.push(knows.dst_ids[edge]);
        test.time.iter_mut().for_each(|times| times.push(time));
    }
    knows.src_ids = kept.iter().map(|&edge| knows.src_ids[edge]).collect();
    knows.dst_ids = kept.iter().map(|&edge| knows.dst_ids[edge]).collect();
    knows.time = Some(kept.iter().map(|&edge| times[edge]).collect());
    // Labels and splits have a row for each edge that was there before.
    (knows.labels, knows.splits) = (vec![], vec![]);
    data.link_splits = vec![LinkSplitData { name: "past".into(), val: Links::default(), test }];
}

/// Losses of epochs, parameters on the process that has all of them, and metrics of the test part.
#[derive(Clone, PartialEq, Debug)]
struct Trained {
    losses: Vec<f64>,
    params: Vec<f32>,
    metrics: Vec<f64>,
}

impl Trained {
    /// The losses and parameters of a run as bits, so that two runs are compared exactly.
    fn bits(&self) -> (Vec<u64>, Vec<u32>) {
        (self.losses.iter().map(|x| x.to_bits()).collect(), self.params.iter().map(|x| x.to_bits()).collect())
    }
}

fn train(source: &str, data: &Arc<Dataset>, ranks: Option<Ranks>) -> Trained {
    let is_first = ranks.as_ref().is_none_or(|ranks| ranks.comm.rank() == 0);
    let trained = || -> Result<Trained, hgnnc::Error> {
        let mut prepared = prepare(Purpose::Train, &job(source, data, ranks), &mut Silent)?;
        let mut losses = vec![];
        prepared.trainer.run(&AtomicBool::new(false), &mut |epoch| losses.push(epoch.loss))?;
        let params = if is_first { prepared.trainer.params()?.concat() } else { vec![] };
        let metrics = prepared.trainer.evaluate()?.remove("test").unwrap_or_default();
        Ok(Trained { losses, params, metrics: metrics.into_values().collect() })
    };
    trained().unwrap_or_else(|error| panic!("{error}\n{source}"))
}

/// Training learns nothing of what is later than the links of the training part: losses and parameters are the same to the bit.
#[test]
fn nothing_later_than_the_training_links_is_learned_from() {
    for seed in 0..worlds(6) {
        let draw = &mut Draw(4000 + seed);
        let (mut data, layers) = (dataset(draw), layers(draw));
        hold_out_after(&mut data, 2005);
        let other = Arc::new(other_future(&data, 2005, true, draw));
        let data = Arc::new(data);
        let negatives = ["uniform(2)", "in_batch(2)"][seed as usize % 2];
        let source = source(&layers, 1 + seed as i64 % 2, &format!("negatives {negatives} metrics mrr, auc"));
        let [found, then] = [&data, &other].map(|data| train(&source, data, None));
        assert!(found.losses.iter().chain(&found.metrics).all(|number| number.is_finite()), "{found:?}");
        assert_eq!(found.bits(), then.bits(), "world {seed}: {source}");
    }
}

/// Processes share the links of a batch, and compute the sums of one process in another order.
#[test]
fn ranks_agree_on_links_as_of_cutoffs() {
    let draw = &mut Draw(5);
    let (mut data, layers) = (dataset(draw), layers(draw));
    hold_out_after(&mut data, 2006);
    let (source, data) = (source(&layers, 2, "negatives uniform(3)"), Arc::new(data));
    let on_rank = |comm: &Arc<dyn Comm>| train(&source, &data, Some(Ranks::new(Arc::clone(comm))));
    let one = train(&source, &data, None);
    let wide = |numbers: &[f32]| numbers.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    for ranks in 1..=3 {
        let all = threads::run(ranks, on_rank);
        all.iter().for_each(|other| assert_eq!((&other.losses, &other.metrics), (&all[0].losses, &all[0].metrics)));
        assert_close(&format!("losses of {ranks} ranks"), &all[0].losses, &one.losses, 2e-5);
        assert_close(&format!("parameters of {ranks} ranks"), &wide(&all[0].params), &wide(&one.params), 1e-4);
        assert_close(&format!("metrics of {ranks} ranks"), &all[0].metrics, &one.metrics, 1e-3);
    }
}

/// A layer that weighs what an author knows by how long ago that was, as of its own cutoff.
const RECENT: &str = "
layer Recent() over graphs: [U -> V] of x: U[2], now: V -> V[2] {
    aggregate e: g in graphs {
        z = sum(exp((e.at - e.dst.now) * 0.3) * e.src.x) over in_edges
    }
    fuse v: V across graphs {
        out = sum(v.z) across graphs
    }
}
";

/// The sum of that layer for an author as of a cutoff.
fn recent(data: &Dataset, features: &Rows, author: u32, cutoff: i64) -> Vec<f64> {
    let knows = &data.relations[KNOWS];
    let times = knows.time.as_ref().expect("links have times");
    let mut sum = vec![0.0; 2];
    for edge in (0..times.len()).filter(|&edge| knows.dst_ids[edge] == author && times[edge] <= cutoff) {
        let weight = (0.3 * (times[edge] - cutoff) as f64).exp();
        let source = &features[knows.src_ids[edge] as usize];
        sum.iter_mut().zip(source).for_each(|(sum, x)| *sum += weight * x);
    }
    sum
}

fn with_recent(source: &str) -> String {
    let source = source.replace("vertex Author { x: f32[2] }", "vertex Author { x: f32[2], now: cutoff }");
    source.replace("layer Score()", &format!("{RECENT}layer Score()"))
}

/// A vertex without a time knows the cutoff as of which it is read: that of a link, or the time of a vertex that reads it.
#[test]
fn a_cutoff_is_a_value_of_what_is_read() {
    for seed in 0..worlds(6) {
        let data = dataset(&mut Draw(6000 + seed));
        let let_recent = "let recent = Recent() over [knows] of (Author.x, now: Author.now)";
        let output = "y: links = Score() over links(knows) of recent";
        let source = with_recent(&model(&[], (let_recent, output, "binary_cross_entropy(y, links)"), "batch 4"));
        let (compiled, world) = (compile(&source), world(seed, &data));
        let plain_of_links = plain(&compiled, &world, &data);
        let (features, w) = (plain_of_links.input("Author.x"), plain_of_links.param("y.w.links_knows"));
        let found = scores(&source, seed, &data);
        assert!(!found.is_empty());
        for ((src, dst), score) in found {
            let [src, dst] = [src, dst].map(|(author, cutoff)| recent(&data, &features, author, cutoff));
            let expected: f64 = w.apply(&src).iter().zip(&dst).map(|(a, b)| a * b).sum();
            assert_close(&source, &[score], &[expected], 1e-6);
        }

        let output = "y: Paper = linear(Step() over [writes] of {Paper.x, recent}, 2)";
        let of_papers = with_recent(&model(&[], (let_recent, output, "cross_entropy(y, Paper.topic)"), ""));
        let compiled = compile(&of_papers);
        let options = BindOptions { outputs_only: true, ..Default::default() };
        let found = compiled.output_of(&bindings_with(&compiled, &world, &mut data.clone(), &options), "y");
        let plain = plain(&compiled, &world, &data);
        let (papers, w) = (plain.input("Paper.x"), plain.param("y.w.writes"));
        let (writes, years) = (&data.relations[2], data.vertex_types[0].time.as_ref().expect("papers have times"));
        let times = writes.time.as_ref().expect("edges have times");
        let of_paper = |paper: usize| {
            let read = |edge: &usize| writes.dst_ids[*edge] as usize == paper && times[*edge] <= years[paper];
            let edges: Vec<usize> = (0..times.len()).filter(read).collect();
            let mut sum = papers[paper].clone();
            for &edge in &edges {
                let message = w.apply(&recent(&data, &features, writes.src_ids[edge], years[paper]));
                sum.iter_mut().zip(message).for_each(|(sum, x)| *sum += x / edges.len() as f64);
            }
            sum.iter().map(|x| x.tanh()).collect()
        };
        let expected = plain.linear("y", ".Paper", &(0..papers.len()).map(of_paper).collect());
        assert_close(&of_papers, &found.data, &expected.concat(), 1e-6);
    }
}
