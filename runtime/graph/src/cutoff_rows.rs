//! Vertices as of a cutoff: a row for each pair (vertex, cutoff) that a vertex with a time reads, directly or not.
//!
//! A vertex with a time reads what is not later than itself. A vertex without one is different for each of those that read
//! it: what arrives at an author until 1999 is not what arrives until 2003. [`CutoffRows::add_to`] gives a dataset a vertex
//! type with a row for each pair, a relation from the vertices to their rows, and for each step that starts or ends at such
//! rows a relation with the edges between them: to a row with a cutoff come the edges that are not later, from the rows of
//! their sources with the same cutoff. A source that has a time is read as of its own time, which is not later.
//!
//! The ends of a link to predict are read as of the last time before the period of the link ([`CutoffLinks`]). Any vertex of
//! their types can be a negative sample of it, so all of them have a row at the cutoff of each link, and one as of the last time of
//! the dataset, for pairs to score. Links between rows are a relation as well; a pair is one link of a period, of the earliest part.
//! Held-out links are messages to rows that are later than they, and than the last cutoff of a training link: evaluation reads
//! what happened before, and training none of it.
//!
//! Rows are ordered by cutoff, then by vertex. So the number of a row depends on nothing that is later than its cutoff, nor
//! do random choices that are made by these numbers.

mod held_out;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use hgnnc_dataset::dataset::{Dataset, DenseFeatures, LinkSplitData, RelationData, Step, VertexTypeData};

use crate::csr::NO_ORIGINAL;
use crate::sgb::{SgbError, edges_of_step, latest_times};

use held_out::HeldOut;

/// The rows of vertices as of cutoffs that a dataset is to have.
#[derive(Clone, Debug, Default)]
pub struct CutoffRows {
    /// The vertex types that have such rows.
    pub types: Vec<CutoffType>,
    /// The steps that start or end at such rows.
    pub walks: Vec<CutoffWalk>,
    /// Links to predict between such rows.
    pub links: Vec<CutoffLinks>,
    /// Vertex types, by position, with the name of a new relation from their rows as of the last time to the vertices.
    pub latest: Vec<(usize, String)>,
    /// Position of the split with the links that are held out; `None`: none are.
    pub split: Option<usize>,
    /// Only pairs to score have rows, and no links to learn from.
    pub outputs_only: bool,
    /// Largest size in bytes of the rows with the graphs that are made of their relations.
    pub memory_budget: u64,
}

/// A vertex type with rows as of cutoffs.
#[derive(Clone, Debug)]
pub struct CutoffType {
    /// Position of the vertex type.
    pub of: usize,
    /// Name of the new vertex type.
    pub vertex_type: String,
    /// Name of the new relation from the vertices to their rows.
    pub relation: String,
}

/// A step whose edges end or start at rows as of cutoffs.
#[derive(Clone, Debug)]
pub struct CutoffWalk {
    /// The step over a relation of the dataset.
    pub step: Step,
    /// Name of the new relation.
    pub relation: String,
    /// Whether its edges are read. Otherwise it has none.
    pub read: bool,
}

/// Links of a relation with times, whose ends both have rows as of cutoffs.
#[derive(Clone, Debug)]
pub struct CutoffLinks {
    /// Position of the relation.
    pub relation: usize,
    /// Name of the new relation between rows.
    pub name: String,
    /// Units of time that a period is long.
    pub period: u64,
}

impl CutoffLinks {
    /// The last time before the period of a time.
    fn cutoff(&self, time: i64) -> i64 {
        let period = i64::try_from(self.period).unwrap_or(i64::MAX).max(1);
        time.saturating_sub(time.rem_euclid(period)).saturating_sub(1)
    }
}

/// The edges of a step by the vertex where they arrive.
struct Arriving {
    indptr: Vec<u64>,
    sources: Vec<u32>,
    original: Vec<u32>,
    /// The later one of the time of each edge and that of the vertex that it leaves.
    times: Vec<i64>,
    src: usize,
    dst: usize,
    /// Positions in the dataset from here on are of links that are held out.
    own_edges: u32,
    /// The last cutoff of a training link, which reads no link that is held out.
    trained_until: i64,
}

impl Arriving {
    fn of(dataset: &Dataset, step: Step, held_out: &HeldOut) -> Result<Self, SgbError> {
        let (src, dst) = dataset.step_ends(step);
        let (csc, original) = edges_of_step(dataset, step)?;
        let (indptr, sources) = (csc.indptr.to_vec(), csc.indices.to_vec());
        let times = latest_times(dataset, step, &sources, &original);
        let own_edges = held_out.own_edges(step.relation).try_into().unwrap_or(u32::MAX);
        let trained_until = held_out.trained_until;
        Ok(Self { indptr, sources, original, times, src, dst, own_edges, trained_until })
    }

    /// The edges to a vertex that are not later than a cutoff.
    fn until(&self, (cutoff, vertex): Row) -> impl Iterator<Item = usize> {
        let row = self.indptr[vertex as usize] as usize..self.indptr[vertex as usize + 1] as usize;
        let is_open = cutoff > self.trained_until;
        row.filter(move |&edge| self.times[edge] <= cutoff && (is_open || self.original[edge] < self.own_edges))
    }
}

/// The new vertex types and relations of a dataset, and its links between rows.
struct Listed {
    vertex_types: Vec<VertexTypeData>,
    relations: Vec<RelationData>,
    /// By relation between rows: its links of the validation and the test part, with times.
    held_out: Vec<(u32, [TimedLinks; 2])>,
}

/// Source, destination and time of links.
type TimedLinks = Vec<(u32, u32, i64)>;

/// A cutoff and a vertex.
type Row = (i64, u32);

impl CutoffRows {
    /// Adds the vertex types and the relations to a dataset.
    ///
    /// # Errors
    /// A vertex type without times and without such rows that messages with times arrive at, and rows or edges that exceed the
    /// memory budget or 32-bit numbers; then the dataset is unchanged.
    pub fn add_to(&self, dataset: &mut Dataset) -> Result<(), SgbError> {
        let held_out = HeldOut::of(self, dataset);
        held_out.add_to(self, dataset);
        let listed = self.list(dataset, &held_out);
        held_out.remove_from(dataset);
        let Listed { vertex_types, relations, held_out } = listed?;
        dataset.vertex_types.extend(vertex_types);
        dataset.relations.extend(relations);
        if let Some(split) = self.split {
            let LinkSplitData { val, test, .. } = &mut dataset.link_splits[split];
            for (number, held_out) in held_out {
                for (part, pairs) in [&mut *val, &mut *test].into_iter().zip(held_out) {
                    for (src, dst, time) in pairs {
                        part.src.push(src);
                        part.relation.push(number);
                        part.dst.push(dst);
                        part.time.iter_mut().for_each(|times| times.push(time));
                    }
                }
            }
        }
        Ok(())
    }

    /// The vertex types and relations that a dataset gets, which has the held-out links behind its own edges.
    fn list(&self, dataset: &Dataset, held_out: &HeldOut) -> Result<Listed, SgbError> {
        let arriving = |walk: &CutoffWalk| walk.read.then(|| Arriving::of(dataset, walk.step, held_out)).transpose();
        let walks: Vec<Option<Arriving>> = self.walks.iter().map(arriving).collect::<Result<_, _>>()?;
        let rows = self.rows(dataset, &walks, held_out)?;
        let first = dataset.vertex_types.len();
        let mut relations = vec![];
        for (at, CutoffType { of, relation, .. }) in self.types.iter().enumerate() {
            relations.push(RelationData {
                name: relation.clone(),
                src: *of,
                dst: first + at,
                src_ids: rows[at].iter().map(|row| row.1).collect(),
                dst_ids: (0..rows[at].len() as u32).collect(),
                ..RelationData::default()
            });
        }
        let walked = self.walks.iter().zip(&walks);
        relations.extend(walked.map(|(walk, arriving)| self.edges_of_walk(dataset, &rows, (walk, arriving.as_ref()))));
        let mut of_parts = vec![];
        for links in &self.links {
            let number = (dataset.relations.len() + relations.len()) as u32;
            let (trained, others) = self.links_between_rows(dataset, &rows, links, held_out);
            relations.push(trained);
            of_parts.push((number, others));
        }
        let last = self.last_time(dataset, held_out);
        for (of, name) in &self.latest {
            let at = self.position(*of).expect("ends of links have rows");
            let latest = (0..).zip(&rows[at]).filter(|(_, row)| row.0 == last);
            let (src_ids, dst_ids) = latest.map(|(number, row)| (number, row.1)).unzip();
            let (name, src, dst) = (name.clone(), first + at, *of);
            relations.push(RelationData { name, src, dst, src_ids, dst_ids, ..RelationData::default() });
        }
        let vertex = |(of, rows): (&CutoffType, &Vec<Row>)| VertexTypeData {
            name: of.vertex_type.clone(),
            count: rows.len(),
            time: Some(rows.iter().map(|row| row.0).collect()),
            ..VertexTypeData::default()
        };
        let vertex_types = self.types.iter().zip(&rows).map(vertex).collect();
        Ok(Listed { vertex_types, relations, held_out: of_parts })
    }

    /// The cutoff of pairs to score, as of which they read all edges: the last time of edges that rows may read, of the sources of
    /// these edges, and of held-out links.
    fn last_time(&self, dataset: &Dataset, held_out: &HeldOut) -> i64 {
        let read = || self.walks.iter().filter(|walk| walk.read);
        let of_sources = read().map(|walk| &dataset.vertex_types[dataset.step_ends(walk.step).0].time);
        let relations = read().map(|walk| walk.step.relation).chain(self.links.iter().map(|links| links.relation));
        let of_edges = relations.map(|relation| &dataset.relations[relation].time);
        let last = of_sources.chain(of_edges).flatten().flatten().copied().max();
        last.max(held_out.last_time(self, dataset)).unwrap_or(0)
    }

    /// Position of a vertex type among those with rows.
    fn position(&self, of: usize) -> Option<usize> {
        self.types.iter().position(|rows| rows.of == of)
    }

    /// The edges of a step that are read, between the rows of its ends.
    fn edges_of_walk(
        &self,
        dataset: &Dataset,
        rows: &[Vec<Row>],
        (walk, arriving): (&CutoffWalk, Option<&Arriving>),
    ) -> RelationData {
        let (src, dst) = dataset.step_ends(walk.step);
        let [new_src, new_dst] =
            [src, dst].map(|of| self.position(of).map_or(of, |at| dataset.vertex_types.len() + at));
        // The row of a vertex that is read as of a cutoff.
        let row_of = |(cutoff, vertex): Row| match self.position(src) {
            Some(at) => rows[at].binary_search(&(own_cutoff(dataset, src, (cutoff, vertex)), vertex)).ok(),
            None => Some(vertex as usize),
        };
        let (mut src_ids, mut dst_ids, mut edges) = (vec![], vec![], vec![]);
        for (number, row) in (0..).zip(self.readers(dataset, rows, dst)) {
            for (arriving, edge) in arriving.into_iter().flat_map(|of| of.until(row).map(move |edge| (of, edge))) {
                let source = row_of((row.0, arriving.sources[edge]));
                src_ids.push(source.expect("what a row reads has a row") as u32);
                dst_ids.push(number);
                edges.push(arriving.original[edge] as usize);
            }
        }
        let data = &dataset.relations[walk.step.relation];
        let of_edges = |all: &[f32], dim: usize| -> Vec<f32> {
            edges.iter().flat_map(|&edge| all[edge * dim..][..dim].iter().copied()).collect()
        };
        let features =
            data.features.as_ref().map(|all| DenseFeatures { dim: all.dim, rows: of_edges(&all.rows, all.dim).into() });
        RelationData {
            name: walk.relation.clone(),
            src: new_src,
            dst: new_dst,
            src_ids,
            dst_ids,
            weight: data.weight.as_ref().map(|all| of_edges(all, 1).into()),
            time: data.time.as_ref().map(|all| edges.iter().map(|&edge| all[edge]).collect()),
            features,
            ..RelationData::default()
        }
    }

    /// The training links between rows as a relation, and the validation and test links.
    fn links_between_rows(
        &self,
        dataset: &Dataset,
        rows: &[Vec<Row>],
        links: &CutoffLinks,
        held_out: &HeldOut,
    ) -> (RelationData, [TimedLinks; 2]) {
        let data = &dataset.relations[links.relation];
        let [src, dst] = [data.src, data.dst].map(|of| self.position(of).expect("ends of links have rows"));
        let row = |at: usize, row: Row| rows[at].binary_search(&row).expect("the ends of a link have rows") as u32;
        let mut known = HashSet::new();
        let [train, held_out @ ..] = [0, 1, 2].map(|part| {
            let mut between: TimedLinks = vec![];
            for (from, to, time) in held_out.links_of_part(self, dataset, links, part) {
                let cutoff = links.cutoff(time);
                let pair = (row(src, (cutoff, from)), row(dst, (cutoff, to)));
                if known.insert(pair) {
                    between.push((pair.0, pair.1, time));
                }
            }
            between
        });
        let first = dataset.vertex_types.len();
        let trained = RelationData {
            name: links.name.clone(),
            src: first + src,
            dst: first + dst,
            src_ids: train.iter().map(|link| link.0).collect(),
            dst_ids: train.iter().map(|link| link.1).collect(),
            ..RelationData::default()
        };
        (trained, held_out)
    }

    /// The rows of each vertex type, in order.
    fn rows(
        &self,
        dataset: &Dataset,
        walks: &[Option<Arriving>],
        held_out: &HeldOut,
    ) -> Result<Vec<Vec<Row>>, SgbError> {
        let mut rows: Vec<BTreeSet<Row>> = vec![BTreeSet::new(); self.types.len()];
        let mut new: Vec<Vec<Row>> = vec![vec![]; self.types.len()];
        let mut num_edges = 0u64;
        for (at, row) in self.rows_of_links(dataset, held_out)? {
            if rows[at].insert(row) {
                new[at].push(row);
            }
        }
        // Vertices with times read as well, and then all read what they may.
        let timed = walks.iter().flatten().map(|walk| (walk, self.readers(dataset, &[], walk.dst))).collect::<Vec<_>>();
        for (walk, readers) in timed {
            self.read(dataset, (walk, &readers), (&mut rows, &mut new), &mut num_edges)?;
        }
        while new.iter().any(|new| !new.is_empty()) {
            let readers = std::mem::replace(&mut new, vec![vec![]; self.types.len()]);
            for walk in walks.iter().flatten() {
                let Some(at) = self.position(walk.dst) else { continue };
                self.read(dataset, (walk, &readers[at]), (&mut rows, &mut new), &mut num_edges)?;
            }
        }
        Ok(rows.into_iter().map(|rows| rows.into_iter().collect()).collect())
    }

    /// The rows of all vertices at the ends of links, at each cutoff of a link and of pairs to score.
    fn rows_of_links(&self, dataset: &Dataset, held_out: &HeldOut) -> Result<Vec<(usize, Row)>, SgbError> {
        let mut cutoffs: BTreeMap<usize, BTreeSet<i64>> = BTreeMap::new();
        for links in &self.links {
            let of_parts = (0..3).flat_map(|part| held_out.links_of_part(self, dataset, links, part));
            let of_links: BTreeSet<i64> =
                of_parts.map(|(_, _, time)| links.cutoff(time)).chain([self.last_time(dataset, held_out)]).collect();
            let data = &dataset.relations[links.relation];
            [data.src, data.dst].into_iter().for_each(|of| cutoffs.entry(of).or_default().extend(&of_links));
        }
        let count = |of: usize| dataset.vertex_types[of].count;
        let num_rows = cutoffs.iter().map(|(&of, cutoffs)| (cutoffs.len() * count(of)) as u64).sum();
        self.check(num_rows, 0)?;
        let mut rows = vec![];
        for (of, cutoffs) in cutoffs {
            let at = self.position(of).expect("ends of links have rows");
            let all = cutoffs.into_iter().flat_map(|cutoff| (0..count(of) as u32).map(move |vertex| (cutoff, vertex)));
            rows.extend(all.map(|row| (at, row)));
        }
        Ok(rows)
    }

    /// Adds the rows that some rows read along a step, and the number of edges.
    fn read(
        &self,
        dataset: &Dataset,
        (walk, readers): (&Arriving, &[Row]),
        (rows, new): (&mut [BTreeSet<Row>], &mut [Vec<Row>]),
        num_edges: &mut u64,
    ) -> Result<(), SgbError> {
        let position = self.position(walk.src);
        for &(cutoff, vertex) in readers {
            for edge in walk.until((cutoff, vertex)) {
                *num_edges += 1;
                let Some(at) = position else { continue };
                let source = walk.sources[edge];
                let row = (own_cutoff(dataset, walk.src, (cutoff, source)), source);
                if rows[at].insert(row) {
                    new[at].push(row);
                }
            }
            self.check(rows.iter().map(|rows| rows.len() as u64).sum(), *num_edges)?;
        }
        Ok(())
    }

    /// Refuses rows and edges that do not fit.
    fn check(&self, num_rows: u64, edges: u64) -> Result<(), SgbError> {
        // A row: its cutoff, the relation from its vertex, and a graph with both directions. An edge: a relation, what a cutoff
        // leaves of it, and a graph.
        const ROW: u64 = 8 + 8 + 28;
        const EDGE: u64 = 8 + 12 + 16;
        let bytes = num_rows * ROW + edges * EDGE;
        if bytes <= self.memory_budget && num_rows.max(edges) < NO_ORIGINAL.into() {
            return Ok(());
        }
        let names = self.types.iter().map(|rows| rows.vertex_type.clone()).collect::<Vec<_>>().join(", ");
        let (rows, budget) = (num_rows, self.memory_budget);
        Err(match self.links.iter().map(|links| links.period).max() {
            Some(period) => SgbError::TooManyPeriods { names, rows, edges, period, budget },
            None => SgbError::TooManyCutoffRows { names, rows, edges, budget },
        })
    }

    /// The rows of a vertex type as readers: pairs of cutoff and vertex, in the order of their numbers. Without `rows`, only
    /// those of vertex types that have times of their own.
    fn readers(&self, dataset: &Dataset, rows: &[Vec<Row>], of: usize) -> Vec<Row> {
        match self.position(of) {
            Some(at) => rows.get(at).cloned().unwrap_or_default(),
            None => {
                let vertices = &dataset.vertex_types[of];
                let times = vertices.time.iter().flatten().copied();
                times.zip(0..vertices.count as u32).collect()
            }
        }
    }
}

/// The cutoff as of which a vertex is read: its own time, if it has one.
fn own_cutoff(dataset: &Dataset, of: usize, (cutoff, vertex): Row) -> i64 {
    dataset.vertex_types[of].time.as_ref().map_or(cutoff, |times| times[vertex as usize])
}
