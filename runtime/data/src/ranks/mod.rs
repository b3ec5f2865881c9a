//! The data of one rank of several: its rows, its edges, and the routes of what ranks send each other
//! ([`hgnnc_ir::ranks`]).
//!
//! The vertices of each type are divided into sections, and a rank owns consecutive sections of every type. Sections
//! have nearly equal lengths, or nearly equal shares of the parts of a partitioned dataset. All of it follows from the
//! data of the whole graph, its parts, the number of sections and that of ranks, so that ranks need not tell each other.

mod division;
mod mirrors;
mod stacks;

pub use division::{Divided, Division};

use std::ops::Range;
use std::sync::Arc;

use hgnnc_graph::Adjacency;
use hgnnc_graph::order::Order;
use hgnnc_ir::dataflow::{Binding, Dataflow, InputDecl, PatternDecl};
use hgnnc_ir::types::{Graph, Layout, Space, VertexType};
use hgnnc_ir::{EdgeShare, Incidence, Mirrors, VertexRows};

use crate::bound::{BoundData, InputData, Shuffle, Topology, direction_slot};
use crate::error::{ExecError, Result};
use crate::orders::Orders;
use crate::shuffled::ShuffledRows;

/// How the rows of a vertex type come to a type with copies of them, by an exchange.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Route {
    /// Rows of this rank that are sent, in the order of the receiving ranks, with those for this rank itself.
    pub send: Vec<u32>,
    /// Number of rows for each rank.
    pub send_rows: Vec<usize>,
    /// Number of rows from each rank.
    pub recv_rows: Vec<usize>,
    /// The place of each row that comes, in the order of the sending ranks. Without places, they are in this order, as
    /// those of mirrors are, since ranks own vertices in order.
    pub places: Option<Vec<u32>>,
    /// The place of the first row of this rank, if all of its rows come in their order.
    pub first_own: Option<usize>,
}

/// The rows of a vertex type that a rank owns, by section. How a value is rounded may depend on the rows that share a
/// block with its row, so blocks begin with sections: they are the same on any number of ranks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sections {
    /// First row of each section but the first, ascending.
    pub borders: Vec<u32>,
    /// Number of rows on all ranks.
    pub rows_of_whole: usize,
}

/// The data of a rank for the programs of `tables`, which were placed ([`hgnnc_ir::ranks`]), from the data of the program
/// of one process, whose inputs `one` has. Of graphs of which this rank has read its part only, it takes the edges away. If
/// mini-batches are `sampled` from the in-edges of owners, it leaves those of its own vertices, and no others, with their weights
/// to draw by. Values of edges stay those of all edges that were read: the divided data has those of the in-edges.
///
/// # Errors
/// More ranks than sections, or an input that the whole data does not have.
pub fn divide(
    whole: &mut BoundData,
    one: &[InputDecl],
    tables: &Dataflow,
    division: &Division,
    (rank, sampled): (usize, bool),
) -> Result<BoundData> {
    if division.ranks > division.sections {
        return Err(ExecError::Unsupported(format!(
            "there are {} processes and {} sections of the vertices of a type: at most one process for a section",
            division.ranks, division.sections
        )));
    }
    let mut data = BoundData { dataset: whole.dataset.clone(), ..BoundData::default() };
    let rows = Divider { whole, one, tables, division, rank, rows: &[] }.add_vertices(&mut data);
    // The graphs that are made of one of the whole data follow each other, and its edges are not needed after them.
    let mut made_of = vec![vec![]; tables.graphs.len()];
    (0..tables.graphs.len()).for_each(|graph| made_of[in_whole(tables, Graph::new(graph)).index()].push(graph));
    let mut edges = vec![EdgesOfRank::default(); tables.graphs.len()];
    for (of, graphs) in made_of.into_iter().enumerate() {
        if is_of_stack(tables, Graph::new(of)) {
            // They are made of this rank's members.
            whole.graphs.get_mut(of).into_iter().for_each(Topology::release_edges);
            continue;
        }
        for graph in graphs {
            edges[graph] = Divider { whole, one, tables, division, rank, rows: &rows }.edges_of(Graph::new(graph))?;
        }
        let Some(graph) = whole.graphs.get_mut(of) else { continue };
        let has_rows = graph.deferred.is_none() && graph.listed.is_none();
        if sampled && has_rows && tables.graphs[of].can_be_divided() {
            let own = division.vertices(tables.graphs[of].dst, graph.num_dst).of_rank(rank);
            let kept = graph.keep_in_edges(own);
            if let Some(Some(weights)) = whole.drawn.weights.get_mut(of) {
                *weights = weights[kept].to_vec();
            }
        } else if graph.part.is_some() {
            graph.release_part();
        }
    }
    let divider = Divider { whole, one, tables, division, rank, rows: &rows };
    divider.add_graphs(&mut data, &mut edges)?;
    divider.add_the_rest(&mut data, edges)?;
    Ok(data)
}

/// The graph of the whole data with the edges of a graph. Those of sections are in none.
fn in_whole(tables: &Dataflow, graph: Graph) -> Graph {
    tables.graph_of_in_edges(graph)
}

/// Whether a graph is made of others of this rank, those of a stack.
fn is_of_stack(tables: &Dataflow, graph: Graph) -> bool {
    let decl = &tables.graphs[graph.index()];
    decl.derived.is_some() || tables.is_of_stack(decl.src)
}

/// The edges of a graph on a rank, and what inputs and masks need of them.
#[derive(Clone, Default)]
struct EdgesOfRank {
    topology: Topology,
    /// The number of each edge in the whole data, in CSC order, if an input has values of the edges.
    numbers: Vec<u32>,
    /// Number of edges of the graph in the whole data.
    read: usize,
    /// By direction: the rank of each edge, if an input asks for it.
    ranks: [Option<Vec<f32>>; 2],
    /// By destination: displacement from the positions of its edges to those in the dataset.
    moved: Option<Vec<u32>>,
}

/// By vertex type of mirrors, sending rank and receiving rank: the rows that one rank has for another. Empty for other
/// types.
pub fn rows_sent(whole: &BoundData, tables: &Dataflow, division: &Division) -> Vec<Vec<Vec<usize>>> {
    let divider = Divider { whole, one: &[], tables, division, rank: 0, rows: &[] };
    let of_type = |decl: &hgnnc_ir::dataflow::VertexTypeDecl| {
        if let VertexRows::Pairs(stack, end) = decl.rows {
            return divider.pairs_sent(stack, end);
        }
        let VertexRows::Mirrors(of, mirrors) = decl.rows else { return vec![] };
        if mirrors.permutations().is_some() {
            return divider.shuffled().iter().find_map(|rows| rows.sent(of, mirrors, whole)).unwrap_or_default();
        }
        let mirrored = |rank| (mirrors != Mirrors::All).then(|| divider.mirrored(of, mirrors, rank));
        let needed: Vec<Option<Vec<u32>>> = (0..division.ranks).map(mirrored).collect();
        let of_rank = |rank: usize| {
            let owned = divider.owned(of, rank);
            let count =
                |needed: &Option<Vec<u32>>| needed.as_ref().map_or(owned.len(), |needed| within(needed, &owned).len());
            needed.iter().map(count).collect()
        };
        (0..division.ranks).map(of_rank).collect()
    };
    tables.vertex_types.iter().map(of_type).collect()
}

/// The numbers in the dataset of the rows of a vertex type on a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Rows {
    Range(Range<usize>),
    /// Ascending.
    List(Vec<u32>),
    /// So many, which each step draws.
    Drawn(usize),
}

impl Rows {
    fn len(&self) -> usize {
        match self {
            Rows::Range(range) => range.len(),
            Rows::List(rows) => rows.len(),
            Rows::Drawn(count) => *count,
        }
    }

    /// The row of a number that has one.
    fn row(&self, number: u32) -> u32 {
        match self {
            Rows::Range(range) => number - range.start as u32,
            Rows::List(rows) => rows.partition_point(|&row| row < number) as u32,
            Rows::Drawn(_) => number,
        }
    }

    /// The number of a row.
    fn number(&self, row: u32) -> u32 {
        match self {
            Rows::Range(range) => range.start as u32 + row,
            Rows::List(rows) => rows[row as usize],
            Rows::Drawn(_) => row,
        }
    }
}

/// The rank that owns a row, from the first rows of all ranks.
fn owner(borders: &[usize], row: u32) -> usize {
    borders[1..].partition_point(|&border| border <= row as usize)
}

/// The positions of those of ascending numbers that lie in a range.
fn within(numbers: &[u32], range: &Range<usize>) -> Range<usize> {
    let before = |end: usize| numbers.partition_point(|&number| (number as usize) < end);
    before(range.start)..before(range.end)
}

/// The row of each number, for many of them.
enum RowOf {
    /// Counted from the first.
    From(u32),
    Table(Vec<u32>),
}

impl RowOf {
    /// Of the rows of a type with `count` vertices.
    fn new(rows: &Rows, count: usize) -> Self {
        match rows {
            Rows::Range(range) => Self::From(range.start as u32),
            // The edges of such rows are in their order.
            Rows::Drawn(_) => Self::From(0),
            Rows::List(list) => {
                let mut table = vec![0; count];
                (0..).zip(list).for_each(|(row, &number)| table[number as usize] = row);
                Self::Table(table)
            }
        }
    }

    fn row(&self, number: u32) -> u32 {
        match self {
            Self::From(first) => number - first,
            Self::Table(table) => table[number as usize],
        }
    }
}

struct Divider<'a> {
    whole: &'a BoundData,
    one: &'a [InputDecl],
    tables: &'a Dataflow,
    division: &'a Division,
    rank: usize,
    /// By vertex type, once they are known.
    rows: &'a [Rows],
}

impl Divider<'_> {
    /// The rows of each vertex type, whose numbers and routes become those of `data`.
    fn add_vertices(&self, data: &mut BoundData) -> Vec<Rows> {
        let mut all = vec![];
        for vertex in (0..self.tables.vertex_types.len()).map(VertexType::new) {
            // Those of stacks follow from the edges of their members.
            let (rows, route) = match self.tables.is_of_stack(vertex) {
                true => (Rows::Range(0..0), None),
                false => self.vertices(vertex),
            };
            data.num_vertices.push(rows.len());
            data.routes.push(route.map(Arc::new));
            data.sections.push(self.sections(vertex));
            data.rows_of_ranks.push(self.rows_of_ranks(vertex));
            all.push(rows);
        }
        all
    }

    /// Adds the sparse features and the inputs of this rank.
    fn add_the_rest(&self, data: &mut BoundData, edges: Vec<EdgesOfRank>) -> Result<()> {
        let Self { whole, tables, .. } = *self;
        data.origins = vec![None; edges.len()];
        for (index, decl) in tables.patterns.iter().enumerate() {
            // Mirrors of all vertices come after the patterns of the program of one process, with equal columns.
            let of = tables.owned_type(decl.vertex);
            let own = PatternDecl { vertex: of, ..decl.clone() };
            let own = tables.patterns.iter().position(|known| *known == own).unwrap_or(index);
            data.patterns.push(self.pattern(&whole.patterns[own], decl.vertex)?);
        }
        for decl in &tables.inputs {
            data.inputs.push(self.input(decl, &edges)?);
        }
        data.orders = self.orders(edges);
        data.shuffled = self.shuffled();
        for rows in &data.shuffled {
            rows.draw(rows.drawn_in(whole), &mut data.routes, &mut data.orders);
        }
        Ok(())
    }

    /// The vertices that are shuffled, by type and number of permutations.
    fn shuffled(&self) -> Vec<ShuffledRows> {
        let mut all: Vec<ShuffledRows> = vec![];
        for (index, decl) in self.tables.vertex_types.iter().enumerate() {
            let VertexRows::Mirrors(of, mirrors) = decl.rows else { continue };
            let Some(permutations) = mirrors.permutations() else { continue };
            let shuffle = Shuffle { vertex: of, permutations };
            let known = all.iter().position(|rows| rows.shuffle == shuffle);
            let rows = known.unwrap_or_else(|| {
                all.push(ShuffledRows::new(shuffle, self.divided(of).borders(), self.rank));
                all.len() - 1
            });
            all[rows].add(VertexType::new(index), mirrors, self.tables);
        }
        all
    }

    /// The number of rows of a type on all ranks together; a bound for pairs, the same on all of them.
    fn count(&self, vertex: VertexType) -> usize {
        match self.tables.vertex_types[vertex.index()].rows {
            VertexRows::Sections(_) => self.division.sections,
            _ => self.whole.num_vertices.get(vertex.index()).copied().unwrap_or(0),
        }
    }

    /// The division of the vertices of a type.
    fn divided(&self, vertex: VertexType) -> Divided<'_> {
        self.division.vertices(vertex, self.count(vertex))
    }

    /// The rows of a type that is no type of mirrors on a rank.
    fn owned(&self, vertex: VertexType, rank: usize) -> Range<usize> {
        match self.tables.vertex_types[vertex.index()].rows {
            VertexRows::Sections(_) => self.division.sections_of(rank),
            _ => self.divided(vertex).of_rank(rank),
        }
    }

    /// The sections of the rows of a vertex type, unless it has those of mirrors.
    fn sections(&self, vertex: VertexType) -> Option<Sections> {
        let own = self.division.sections_of(self.rank);
        let rows_of_whole = self.count(vertex);
        let borders = match self.tables.vertex_types[vertex.index()].rows {
            VertexRows::Dataset => {
                let divided = self.divided(vertex);
                let first = divided.border(own.start);
                let border = |section| (divided.border(section) - first) as u32;
                own.skip(1).map(border).collect()
            }
            VertexRows::Sections(_) => (1..own.len() as u32).collect(),
            _ => return None,
        };
        Some(Sections { borders, rows_of_whole })
    }

    /// The rows of all ranks, of a type whose rows are summed over them.
    fn rows_of_ranks(&self, vertex: VertexType) -> Option<Arc<[usize]>> {
        let summed = self.tables.vertex_types[vertex.index()].rows.are_of_all_ranks();
        summed.then(|| (0..self.division.ranks).map(|rank| self.owned(vertex, rank).len()).collect())
    }

    /// The edges of a graph with all that is needed of them.
    fn edges_of(&self, graph: Graph) -> Result<EdgesOfRank> {
        let (topology, numbers) = self.edges(graph)?;
        let Some(whole) = self.whole.graphs.get(in_whole(self.tables, graph).index()) else {
            return Ok(EdgesOfRank { topology, ..EdgesOfRank::default() });
        };
        // The edges of a destination are consecutive in the dataset, since the vertices of a rank are.
        let displacement = |row: &[u64]| {
            let number = numbers.get(row[0] as usize).map(|&position| whole.number_in_whole(position));
            number.map_or(0, |number| number.wrapping_sub(row[0] as u32))
        };
        let is_moved = !numbers.is_empty() && self.division.ranks > 1 && topology.listed.is_none();
        let moved = is_moved.then(|| topology.csc.indptr.windows(2).map(displacement).collect());
        let mut ranks = [None, None];
        for decl in &self.tables.inputs {
            match decl.binding {
                Binding::EdgeRank(of, direction) if of == graph => {
                    let mut all = vec![0.0; whole.num_edges()];
                    whole.write_ranks(direction, &mut all)?;
                    ranks[direction_slot(direction)] = Some(picked(&all, &numbers));
                }
                _ => {}
            }
        }
        let of_stack = |of: Graph| match self.tables.graphs[of.index()].derived {
            Some((stack, Incidence::Edges)) => self.tables.stacks[stack.index()].members.contains(&graph),
            _ => of == graph,
        };
        let is_read = topology.listed.is_some()
            || self.tables.inputs.iter().any(|decl| matches!(decl.ty.space, Space::Edges(of) if of_stack(of)));
        let numbers = if is_read { numbers } else { vec![] };
        Ok(EdgesOfRank { topology, numbers, read: whole.num_edges(), ranks, moved })
    }

    /// The edges of a graph, and the number of each in the whole graph, in CSC order.
    fn edges(&self, graph: Graph) -> Result<(Topology, Vec<u32>)> {
        let decl = &self.tables.graphs[graph.index()];
        let rows = |vertex: VertexType| &self.rows[vertex.index()];
        let (src, dst) = (rows(decl.src), rows(decl.dst));
        let (topology, numbers) = match decl.share {
            // Pairs to score are bound to another program.
            EdgeShare::All if decl.links => {
                let topology = Topology::from_csc(&decl.name, src.len(), dst.len(), vec![0; dst.len() + 1], vec![])?;
                return Ok((topology, vec![]));
            }
            EdgeShare::All | EdgeShare::Copies | EdgeShare::Links(_) | EdgeShare::Negatives(_) | EdgeShare::Samples => {
                return Err(ExecError::Unsupported(format!(
                    "internal error: the graph `{}` is divided among no processes",
                    decl.name
                )));
            }
            EdgeShare::In | EdgeShare::Out(_) if self.is_deferred(graph) => {
                // No kernel goes over its edges.
                let topology = Topology::from_csc(&decl.name, src.len(), dst.len(), vec![0; dst.len() + 1], vec![])?;
                (Topology { deferred: Some(0), ..topology }, vec![])
            }
            EdgeShare::In if decl.shuffle.is_some() => {
                let own = self.owned(decl.dst, self.rank);
                let each = src.len() / own.len().max(1);
                let indptr = (0..=own.len()).map(|row| (row * each) as u64).collect();
                let sources = (0..src.len() as u32).collect();
                let topology = Topology::from_csc(&decl.name, src.len(), dst.len(), indptr, sources)?;
                (topology, (0..src.len()).map(|edge| (own.start * each + edge) as u32).collect())
            }
            EdgeShare::Out(_) if decl.shuffle.is_some() => {
                let each = dst.len() / src.len().max(1);
                let indptr = (0..=dst.len() as u64).collect();
                let sources = (0..dst.len()).map(|edge| (edge / each) as u32).collect();
                // The numbers of the edges are drawn as well.
                (Topology::from_csc(&decl.name, src.len(), dst.len(), indptr, sources)?, vec![])
            }
            EdgeShare::In | EdgeShare::Out(_) if self.of_whole(graph).listed.is_some() => self.listed(graph),
            EdgeShare::In => {
                let whole = &self.whole.graphs[graph.index()].csc;
                let own = self.owned(decl.dst, self.rank);
                let indptr = &whole.indptr[own.start..=own.end];
                let edges = indptr[0] as usize..indptr[own.len()] as usize;
                let row_of = RowOf::new(src, self.count(self.tables.owned_type(decl.src)));
                let sources = whole.indices[edges.clone()].iter().map(|&number| row_of.row(number)).collect();
                let indptr = indptr.iter().map(|&at| at - edges.start as u64).collect();
                let topology = Topology::from_csc(&decl.name, src.len(), dst.len(), indptr, sources)?;
                (topology, edges.map(|edge| edge as u32).collect())
            }
            EdgeShare::Out(of) => {
                let whole = &self.whole.graphs[of.index()].csr;
                let own = self.owned(decl.src, self.rank);
                let row_of = RowOf::new(dst, self.count(self.tables.owned_type(decl.dst)));
                let mut edges = vec![];
                let mut numbers = vec![];
                for (row, number) in (0..).zip(own) {
                    let range = whole.indptr[number] as usize..whole.indptr[number + 1] as usize;
                    edges.extend(whole.indices[range.clone()].iter().map(|&to| (row, row_of.row(to))));
                    numbers.extend(range.map(|at| whole.eids.get(at).map_or(at as u32, |&edge| edge)));
                }
                // In CSC order, the numbers ascend as well.
                numbers.sort_unstable();
                (Topology::from_edges(&decl.name, src.len(), dst.len(), &edges)?, numbers)
            }
            EdgeShare::Sections => {
                let divided = self.divided(decl.src);
                let own = self.owned(decl.src, self.rank);
                let sections = self.division.sections_of(self.rank);
                let border = |section: usize| (divided.border(section) - own.start) as u64;
                let indptr: Vec<u64> = sections.clone().map(border).chain([own.len() as u64]).collect();
                let sources = (0..own.len() as u32).collect();
                (Topology::from_csc(&decl.name, src.len(), dst.len(), indptr, sources)?, vec![])
            }
        };
        // Rows with many edges are split as they are where all edges are.
        let of_whole = match decl.share {
            EdgeShare::Out(of) => self.edges_of_whole(of),
            EdgeShare::Sections => self.count(decl.src) as u64,
            _ => self.edges_of_whole(graph),
        };
        Ok((Topology { of_whole: Some(of_whole), ..topology }, numbers))
    }

    /// The rows of a sparse matrix that a rank has of a type.
    fn pattern(&self, whole: &Topology, vertex: VertexType) -> Result<Topology> {
        let rows = match &self.rows[vertex.index()] {
            Rows::Range(rows) if rows.len() == whole.num_dst => return Ok(whole.clone()),
            Rows::Range(rows) => rows.clone(),
            Rows::List(_) | Rows::Drawn(_) => return Err(mirrored_input(&whole.name)),
        };
        let indptr = &whole.csc.indptr[rows.start..=rows.end];
        let elements = indptr[0] as usize..indptr[rows.len()] as usize;
        let (first, columns) = (indptr[0], whole.csc.indices[elements].to_vec());
        let indptr = indptr.iter().map(|&at| at - first).collect();
        let part = Topology::from_csc(&whole.name, whole.num_src, rows.len(), indptr, columns)?;
        Ok(Topology { of_whole: Some(whole.num_edges() as u64), ..part })
    }

    fn input(&self, decl: &InputDecl, edges: &[EdgesOfRank]) -> Result<InputData> {
        let tables = self.tables;
        let of = |graph: &Graph| in_whole(tables, *graph);
        let own = match &decl.binding {
            Binding::StepNumber => return Ok(InputData::StepNumber),
            Binding::EpochNumber => return Ok(InputData::EpochNumber),
            Binding::EdgeRank(graph, direction) => {
                let ranks = edges[graph.index()].ranks[direction_slot(*direction)].clone();
                return Ok(ranks.map_or(InputData::Missing, |ranks| InputData::Numbers(ranks.into())));
            }
            Binding::Features(vertex, matrix) => Binding::Features(tables.owned_type(*vertex), matrix.clone()),
            Binding::Precomputed(vertex, name) => Binding::Precomputed(tables.owned_type(*vertex), name.clone()),
            Binding::Time(vertex) => Binding::Time(tables.owned_type(*vertex)),
            Binding::EdgeTime(graph) => Binding::EdgeTime(of(graph)),
            Binding::EdgeWeight(graph) => Binding::EdgeWeight(of(graph)),
            Binding::EdgeCount(graph) => Binding::EdgeCount(of(graph)),
            Binding::EdgeFeatures(graph) => Binding::EdgeFeatures(of(graph)),
            other => other.clone(),
        };
        let whole = self.one.iter().position(|known| known.binding == own).and_then(|at| self.whole.inputs.get(at));
        let Some(whole) = whole else { return Ok(InputData::Missing) };
        match (decl.ty.space, decl.ty.layout) {
            (Space::Vertices(vertex), Layout::Sparse(pattern)) => {
                let rows = match &self.rows[vertex.index()] {
                    Rows::Range(rows) => rows.clone(),
                    Rows::List(_) | Rows::Drawn(_) => return Err(mirrored_input(&decl.name)),
                };
                let own = PatternDecl { vertex: tables.owned_type(vertex), ..tables.patterns[pattern.index()].clone() };
                let of_whole = tables.patterns.iter().position(|known| *known == own);
                let indptr = &self.whole.patterns[of_whole.unwrap_or(pattern.index())].csc.indptr;
                Ok(part(whole, indptr[rows.start] as usize..indptr[rows.end] as usize, None))
            }
            (Space::Vertices(vertex), Layout::Dense) => match &self.rows[vertex.index()] {
                Rows::Range(rows) => Ok(part(whole, rows.clone(), Some(self.count(tables.owned_type(vertex))))),
                Rows::List(_) | Rows::Drawn(_) => Err(mirrored_input(&decl.name)),
            },
            (Space::Edges(graph), _) => {
                let InputData::Numbers(numbers) = whole else { return Ok(InputData::Missing) };
                let edges = &edges[graph.index()];
                Ok(InputData::Numbers(picked_rows(numbers, &edges.numbers, edges.read).into()))
            }
            _ => Ok(whole.clone()),
        }
    }

    /// The edges of owned vertices among those of a list, as a list.
    fn listed(&self, graph: Graph) -> (Topology, Vec<u32>) {
        let (decl, whole) = (&self.tables.graphs[graph.index()], self.of_whole(graph));
        let is_in = decl.share == EdgeShare::In;
        let own = self.owned(if is_in { decl.dst } else { decl.src }, self.rank);
        let [src_rows, dst_rows] = [decl.src, decl.dst].map(|end| &self.rows[end.index()]);
        let (mut sources, mut destinations, mut numbers) = (vec![], vec![], vec![]);
        for (number, (src, dst)) in (0..).zip(whole.edges()) {
            if own.contains(&(if is_in { dst } else { src } as usize)) {
                sources.push(src_rows.row(src));
                destinations.push(dst_rows.row(dst));
                numbers.push(number);
            }
        }
        let topology = Topology {
            name: decl.name.clone(),
            num_src: src_rows.len(),
            num_dst: dst_rows.len(),
            csc: Adjacency { indices: sources.into(), ..Adjacency::default() },
            listed: Some(destinations),
            ..Topology::default()
        };
        (topology, numbers)
    }

    /// The graph of the whole data with the edges of a graph.
    fn of_whole(&self, graph: Graph) -> &Topology {
        &self.whole.graphs[in_whole(self.tables, graph).index()]
    }

    /// Whether the edges of the whole graph are not materialized.
    fn is_deferred(&self, graph: Graph) -> bool {
        self.of_whole(graph).deferred.is_some()
    }

    /// Number of edges of all ranks, but for those that are not materialized.
    fn edges_of_whole(&self, graph: Graph) -> u64 {
        let graph = &self.whole.graphs[graph.index()];
        graph.part.as_ref().map_or(graph.num_edges() as u64, |part| part.num_edges)
    }

    /// The numbers in the dataset of the rows of this rank, of which dropout masks are functions.
    fn orders(&self, edges: Vec<EdgesOfRank>) -> Orders {
        let owned = |(index, rows): (usize, &Rows)| match (self.tables.vertex_types[index].rows, rows) {
            (VertexRows::Dataset, Rows::Range(range)) if self.division.ranks > 1 => {
                let original = range.clone().map(|number| number as u32).collect();
                // Parameters are read in the order of this data, and written from the rows of the dataset.
                Some(Arc::new(Order { original, rank: (0..range.len() as u32).collect() }))
            }
            _ => None,
        };
        Orders {
            types: self.rows.iter().enumerate().map(owned).collect(),
            moved: edges.into_iter().map(|of| of.moved).collect(),
            kind: None,
        }
    }
}

/// An error that no user sees: only rows of all vertices, or of the owned ones, are inputs.
fn mirrored_input(name: &str) -> ExecError {
    ExecError::Unsupported(format!("internal error: `{name}` has rows of mirrored vertices"))
}

/// Some rows of an input with this many rows; some elements of one without rows.
fn part(whole: &InputData, rows: Range<usize>, count: Option<usize>) -> InputData {
    match whole {
        InputData::Numbers(numbers) => {
            let width = count.map_or(1, |count| numbers.len() / count.max(1));
            InputData::Numbers(numbers.part(rows.start * width..rows.end * width))
        }
        InputData::Classes(classes) => InputData::Classes(classes[rows].to_vec()),
        other => other.clone(),
    }
}

fn picked(numbers: &[f32], rows: &[u32]) -> Vec<f32> {
    rows.iter().map(|&row| numbers[row as usize]).collect()
}

fn picked_rows(numbers: &[f32], rows: &[u32], count: usize) -> Vec<f32> {
    let width = numbers.len() / count.max(1);
    rows.iter().flat_map(|&row| numbers[row as usize * width..][..width].iter().copied()).collect()
}
