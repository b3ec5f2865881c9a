//! Proposes metapaths that return to a vertex type.

use std::collections::BTreeSet;

use hgnnc_dataset::{Dataset, MetapathData, Step};
use hgnnc_graph::{SemanticGraphs, SgbError};

/// A metapath from a vertex type to itself, and the size of its graph.
pub struct Proposal {
    /// Its name and steps.
    pub metapath: MetapathData,
    /// About the number of distinct pairs, self pairs included.
    pub pairs: u64,
    /// Whether the graph says something and can be trained on: it has other pairs than self pairs, does not join most
    /// vertices with each other, and is of moderate size.
    pub is_useful: bool,
}

/// Largest number of pairs of a useful graph: its attention takes about a second an epoch.
const MOST_PAIRS: u64 = 20_000_000;
/// Number of relations with the most edges that are tried as the first step, and as the second step of each.
const MOST_STEPS: [usize; 2] = [8, 2];

/// The metapaths that the dataset declares from the type to itself; then those that go one or two steps away and back on
/// the same way, the smallest graphs first. Each is measured in bounded time
/// ([`SemanticGraphs::estimate_pairs`]).
pub fn propose(dataset: &Dataset, vertex_type: usize) -> Result<Vec<Proposal>, SgbError> {
    let graphs = SemanticGraphs::new(dataset);
    let mut made = Vec::new();
    for first in ways_out(dataset, vertex_type, MOST_STEPS[0]) {
        let middle = dataset.step_ends(first).1;
        made.push(vec![first]);
        let second = ways_out(dataset, middle, MOST_STEPS[1]).into_iter();
        // Back to the type itself is what the first step already says.
        made.extend(second.filter(|&s| dataset.step_ends(s).1 != vertex_type).map(|second| vec![first, second]));
    }
    let declared = dataset.metapaths.iter().filter(|path| (path.start, path.end) == (vertex_type, vertex_type));
    let mut known: BTreeSet<Vec<Step>> = declared.clone().map(|path| path.steps.clone()).collect();
    let mut all = declared.map(|path| measured(&graphs, path.clone())).collect::<Result<Vec<_>, _>>()?;
    let mut found = Vec::new();
    for out in made {
        let back = out.iter().rev().map(|&step| Step { reverse: !step.reverse, ..step });
        let steps: Vec<Step> = out.iter().copied().chain(back).collect();
        if known.insert(steps.clone()) {
            let (start, name) = (vertex_type, initials(dataset, vertex_type, &steps));
            let counts = (None, None, None, None);
            let (pairs, self_pairs, instances, max_degree) = counts;
            let metapath = MetapathData { name, steps, start, end: start, pairs, self_pairs, instances, max_degree };
            found.push(measured(&graphs, metapath)?);
        }
    }
    found.sort_by_key(|proposal| proposal.pairs);
    all.extend(found);
    Ok(all)
}

/// Steps from a type to others, those of the relations with the most edges, in the order of the dataset.
fn ways_out(dataset: &Dataset, vertex_type: usize, most: usize) -> Vec<Step> {
    let leads_out = |step: &Step| {
        let (from, to) = dataset.step_ends(*step);
        from == vertex_type && to != vertex_type
    };
    let all = (0..dataset.relations.len()).flat_map(|relation| [Step::forward(relation), Step::reverse(relation)]);
    let mut steps: Vec<Step> = all.filter(leads_out).collect();
    steps.sort_by_key(|step| std::cmp::Reverse(dataset.relations[step.relation].num_edges()));
    steps.truncate(most);
    steps.sort_unstable();
    steps
}

fn measured(graphs: &SemanticGraphs<'_>, metapath: MetapathData) -> Result<Proposal, SgbError> {
    let pairs = graphs.estimate_pairs(&metapath.steps)?;
    let dataset = graphs.dataset();
    let vertices = dataset.vertex_types[metapath.start].count as u64;
    // Each start vertex with a way out and back is a pair with itself.
    let leaves = metapath.steps.first().map_or(0, |&step| starts(dataset, step));
    let says_something = pairs > leaves && pairs.saturating_mul(2) <= vertices.saturating_mul(vertices);
    Ok(Proposal { metapath, pairs, is_useful: says_something && pairs <= MOST_PAIRS })
}

/// Number of vertices at which a step starts.
fn starts(dataset: &Dataset, step: Step) -> u64 {
    let relation = &dataset.relations[step.relation];
    let ids = if step.reverse { &relation.dst_ids } else { &relation.src_ids };
    let mut seen = vec![false; dataset.vertex_types[dataset.step_ends(step).0].count];
    ids.iter().for_each(|&v| seen[v as usize] = true);
    seen.iter().filter(|seen| **seen).count() as u64
}

/// The first letters of the vertex types on the way, such as `PAP`.
fn initials(dataset: &Dataset, start: usize, steps: &[Step]) -> String {
    let types = std::iter::once(start).chain(steps.iter().map(|&step| dataset.step_ends(step).1));
    let first = |ty: usize| {
        let name = &dataset.vertex_types[ty].name;
        // Of an IRI, the part behind the last `/` or `#`.
        let name = name.rsplit(['/', '#']).next().unwrap_or(name);
        name.chars().find(char::is_ascii_alphabetic).unwrap_or('V').to_ascii_uppercase()
    };
    types.map(first).collect()
}
