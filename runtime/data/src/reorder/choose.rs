//! Chooses a vertex order by the predicted memory traffic of gathers.

use std::time::Instant;

use hgnnc_executable::Executable;
use hgnnc_graph::order::{
    Gather, Growth, NO_CLUSTER, Order, by_cluster, by_degree, by_first_use, grow_clusters, missed_bytes,
};
use hgnnc_graph::show_bytes;
use hgnnc_ir::training::Part;
use hgnnc_ir::types::VertexType;
use hgnnc_trace::machine_bench::last_level_bytes;
use rayon::prelude::*;

use super::gathers::{gathers, links, unsupported_reason};
use super::renumber::renumber;
use crate::bound::{BoundData, Target};
use crate::error::Result;
use crate::orders::OrderKind;

/// Avoided memory traffic in bytes that saves one second: two cores that gather rows of several lines with prefetch
/// save no more (docs/results.md). Used to compare times, so a factor of two matters little.
const GATHERED_PER_S: f64 = 55e9;
/// Seconds per edge and direction to compute candidates and their traffic, with two threads.
const CANDIDATE_S: f64 = 85e-9;
/// Bytes per second moved when data is renumbered.
const MOVED_PER_S: f64 = 4e9;
/// Fraction of the missed bytes that an order can be expected to save. If that is less than the cost,
/// no order is computed.
const AT_MOST: f64 = 0.3;
/// Threads share the cache, each with its own working set. The model assumes two threads for any number: results may
/// not depend on it, and an order changes the last bits of sums.
const SHARERS: f64 = 2.0;
/// Relative error of the model: smaller savings are ignored.
const AT_LEAST: f64 = 0.03;
/// Clustering rounds; a third one changes the misses by one percent.
const ROUNDS: usize = 2;
/// Maximum vertices of a type per cluster, relative to the mean.
const SLACK: f64 = 10.0;

/// Inputs of the choice of a vertex order.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct OrderOptions {
    /// Number of epochs that will run.
    pub epochs: u64,
    /// Bytes of the shared cache; by default the size that the system reports.
    pub cache_bytes: Option<u64>,
    /// Order of a resumed run, which is used without comparison.
    pub resumed: Option<OrderKind>,
}

/// The chosen order and its reasons.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ordered {
    /// Whether vertices were renumbered.
    pub applied: bool,
    /// Predicted bytes that gathers of an epoch miss: in the dataset's order, and in the chosen
    /// one. Zero without comparison.
    pub missed_bytes: (f64, f64),
    /// Seconds spent on the choice.
    pub seconds: f64,
    /// Explanation for the user.
    pub explain: Vec<String>,
}

/// Renumbers the vertices of bound data if programs gather from tables larger than the cache and an order saves more
/// than it costs. Candidates are the order of the dataset, by degree, by first use, and by clusters seeded with the
/// classes of the training part (without classes, by first use). A resumed run keeps its order.
///
/// # Errors
/// Data that has been renumbered before.
pub fn order_vertices(executable: &Executable, data: &mut BoundData, options: &OrderOptions) -> Result<Ordered> {
    let started = Instant::now();
    let mut ordered = Ordered::default();
    if let Some(reason) = unsupported_reason(executable) {
        ordered.explain.push(format!("vertices keep their order: {reason}"));
        return Ok(ordered);
    }
    let chosen = match options.resumed {
        Some(kind) => resume(executable, data, kind, &mut ordered),
        None => choose(executable, data, options, &mut ordered),
    };
    let Some(Chosen { kind, name, orders }) = chosen else {
        ordered.seconds = started.elapsed().as_secs_f64();
        return Ok(ordered);
    };
    let types = orders.iter().zip(&executable.infer.vertex_types);
    let moved: Vec<String> = types.filter(|(order, _)| order.is_some()).map(|(_, decl)| decl.name.clone()).collect();
    renumber(data, &executable.infer, orders)?;
    data.orders.kind = Some(kind);
    (ordered.applied, ordered.seconds) = (true, started.elapsed().as_secs_f64());
    let (before, after) = ordered.missed_bytes;
    if options.resumed.is_some() {
        let (moved, took) = (moved.join(", "), ordered.seconds);
        ordered.explain.push(format!("vertices of {moved} {name}, as before; it took {took:.2} s"));
        return Ok(ordered);
    }
    ordered.explain.push(format!(
        "vertices of {} {name}: gathers of an epoch take {} from memory instead of {} ({:.0} % less); it took {:.2} s",
        moved.join(", "),
        show_bytes(after as u64),
        show_bytes(before as u64),
        100.0 * (1.0 - after / before),
        ordered.seconds
    ));
    Ok(ordered)
}

/// Vertex type of the first trained output.
fn target_type(executable: &Executable) -> Option<VertexType> {
    executable.training.as_ref()?.target()?.vertex()
}

/// Orders of all vertex types; types without edges keep the dataset's.
struct Chosen {
    kind: OrderKind,
    /// Name of the order, for messages.
    name: &'static str,
    orders: Vec<Option<Order>>,
}

impl Chosen {
    fn new((kind, name, orders): Candidate, links: &[Gather<'_>]) -> Self {
        let has_edges = |vertex_type: usize| links.iter().any(|link| link.owner_type == vertex_type);
        let orders = orders.into_iter().enumerate().map(|(of, order)| has_edges(of).then_some(order)).collect();
        Self { kind, name, orders }
    }
}

/// Recomputes the order of a resumed run.
fn resume(executable: &Executable, data: &BoundData, kind: OrderKind, ordered: &mut Ordered) -> Option<Chosen> {
    let links = links(&gathers(executable, data), executable, data);
    if kind == OrderKind::Dataset || links.is_empty() {
        ordered.explain.push("vertices keep their order, as before".into());
        return None;
    }
    let candidates = candidates(data, target_type(executable), &links);
    candidates.into_iter().find(|candidate| candidate.0 == kind).map(|candidate| Chosen::new(candidate, &links))
}

/// The best order, if one saves more than it costs.
fn choose(executable: &Executable, data: &BoundData, options: &OrderOptions, ordered: &mut Ordered) -> Option<Chosen> {
    let gathers = gathers(executable, data);
    let cache = options.cache_bytes.unwrap_or_else(|| last_level_bytes() as u64);
    let own = cache as f64 / SHARERS;
    let keep = |ordered: &mut Ordered, why: String| ordered.explain.push(format!("vertices keep their order: {why}"));
    let largest = gathers
        .iter()
        .flat_map(|gather| gather.rows.iter().map(|(bytes, _)| gather.num_others as f64 * bytes))
        .fold(0.0, f64::max);
    if largest <= cache as f64 {
        let (largest, cache) = (show_bytes(largest as u64), show_bytes(cache));
        keep(
            ordered,
            format!("the largest table that is gathered from has {largest}, which the cache of {cache} holds"),
        );
        return None;
    }
    let links = links(&gathers, executable, data);
    let missed = |orders: Option<&[Order]>| -> f64 {
        let of = |vertex_type: usize| orders.map(|orders| &orders[vertex_type]);
        let missed = |gather: &Gather<'_>| missed_bytes(gather, of(gather.owner_type), of(gather.other_type), own);
        // Collected in order, so that the sum does not depend on the number of threads.
        gathers.par_iter().map(missed).collect::<Vec<f64>>().iter().sum()
    };
    let before = missed(None);
    let edges: usize = links.iter().map(|link| link.other.len()).sum();
    let candidates_s = CANDIDATE_S * edges as f64;
    let moving_s = data.bytes() as f64 / MOVED_PER_S;
    let saved_s = |bytes: f64| bytes / GATHERED_PER_S * options.epochs as f64;
    if saved_s(AT_MOST * before) < candidates_s + moving_s {
        let (missed, epochs) = (show_bytes(before as u64), options.epochs);
        keep(ordered, format!("gathers take {missed} from memory, {epochs} times, and to order would take longer"));
        return None;
    }
    let mut best: Option<Candidate> = None;
    let mut after = before;
    for (kind, name, orders) in candidates(data, target_type(executable), &links) {
        let bytes = missed(Some(&orders));
        ordered.explain.push(format!("{name}: {} instead of {}", show_bytes(bytes as u64), show_bytes(before as u64)));
        if bytes < after {
            (best, after) = (Some((kind, name, orders)), bytes);
        }
    }
    ordered.missed_bytes = (before, after);
    if before - after < AT_LEAST * before || saved_s(before - after) < moving_s {
        keep(ordered, "none saves enough".into());
        return None;
    }
    best.map(|best| Chosen::new(best, &links))
}

/// Orders of all types, with kind and description.
type Candidate = (OrderKind, &'static str, Vec<Order>);

/// Candidate orders. They depend only on the graph and the classes, so that a resumed run reproduces its own.
fn candidates(data: &BoundData, target: Option<VertexType>, links: &[Gather<'_>]) -> Vec<Candidate> {
    let counts = &data.num_vertices;
    let grow =
        |start: Vec<Vec<u32>>, clusters| grow_clusters(links, start, Growth { clusters, rounds: ROUNDS, slack: SLACK });
    let around = || classes(data, target).map(|(start, clusters)| grow(start, clusters));
    // First use is sequential; the clusters grow in parallel with it.
    let (first_use, grown) = rayon::join(|| by_first_use(counts, links), around);
    let (name, grown) = match grown {
        Some(grown) => ("by clusters around classes", grown),
        None => {
            let block = |order: &Order, rank: u32| (rank as usize * BLOCKS / order.rank.len().max(1)) as u32;
            let blocks = |order: &Order| order.rank.iter().map(|&rank| block(order, rank)).collect();
            ("by clusters", grow(first_use.iter().map(blocks).collect(), BLOCKS))
        }
    };
    // Within a cluster by first use, since clusters may exceed the cache.
    let within = |(of, first): (&Vec<u32>, &Order)| {
        let in_order: Vec<u32> = first.original.iter().map(|&vertex| of[vertex as usize]).collect();
        Order::of(by_cluster(&in_order).original.iter().map(|&place| first.original[place as usize]).collect())
    };
    let clustered = grown.iter().zip(&first_use).map(within).collect();
    vec![
        (OrderKind::Degree, "by degree", by_degree(counts, links)),
        (OrderKind::Clusters, name, clustered),
        (OrderKind::FirstUse, "by first use", first_use),
    ]
}

/// Initial clusters without classes.
const BLOCKS: usize = 512;

/// Initial clusters from the classes of the training part, and their number. Other labels are not read.
fn classes(data: &BoundData, target: Option<VertexType>) -> Option<(Vec<Vec<u32>>, usize)> {
    let (Some(Target::Classes(labels)), Some(vertex)) = (data.labels(), target) else { return None };
    let mut start: Vec<Vec<u32>> = data.num_vertices.iter().map(|&count| vec![NO_CLUSTER; count]).collect();
    let mut clusters = 0;
    for &trained in data.part(Part::Train) {
        let class = labels.get(trained as usize).copied().and_then(|class| u32::try_from(class).ok());
        if let (Some(class), Some(slot)) = (class, start[vertex.index()].get_mut(trained as usize)) {
            *slot = class;
            clusters = clusters.max(class as usize + 1);
        }
    }
    (clusters > 1).then_some((start, clusters))
}
