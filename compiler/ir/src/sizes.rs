//! Dataset sizes, which passes and cost models compare.

use crate::dataflow::PatternDecl;
use crate::width::Width;
use crate::{Dataflow, Dim, Direction, EdgeShare, Graph, Incidence, Pattern, Space, Stack, Value, VertexRows};

/// Sections of the vertices of a type that passes reckon with.
const SECTIONS: u64 = 24;

/// Row counts of a dataset, or estimates of them.
///
/// `vertices` and `edges` are always filled. The other tables may be empty when only these two are known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SizeInfo {
    /// Number of vertices of each vertex type.
    pub vertices: Vec<u64>,
    /// Number of edges of each semantic graph.
    pub edges: Vec<u64>,
    /// Distinct endpoints and maximum degrees of each semantic graph.
    pub ends: Vec<Endpoints>,
    /// Number of stored elements of each sparsity pattern.
    pub stored: Vec<u64>,
    /// Number of columns of each sparsity pattern that store an element.
    pub columns: Vec<u64>,
}

/// Distinct endpoints and maximum degrees of a semantic graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Endpoints {
    /// Number of sources with an out-edge.
    pub sources: u64,
    /// Number of destinations with an in-edge.
    pub destinations: u64,
    /// Maximum out-degree of a source.
    pub max_out: u64,
    /// Maximum in-degree of a destination.
    pub max_in: u64,
}

impl SizeInfo {
    /// With estimates for the tables that are derived from stacks, in place of their sizes in some data: ranks that have read
    /// their own parts of the members know no others, and must come to the same program as a process that has all of them.
    pub fn with_estimated_stacks(mut self, flow: &Dataflow) -> Self {
        let of_stack =
            |rows: VertexRows| matches!(rows, VertexRows::Members(_) | VertexRows::Pairs(..) | VertexRows::Cells(..));
        let types = flow.vertex_types.iter().take_while(|decl| !of_stack(decl.rows)).count();
        let graphs = flow.graphs.iter().take_while(|decl| decl.derived.is_none()).count();
        self.vertices.truncate(types);
        self.edges.truncate(graphs);
        self.ends.truncate(graphs);
        self.derive(flow);
        self
    }

    /// Fills in the sizes of the tables that are derived from stacks, where data has not given them. The distinct
    /// vertices behind pairs are estimated.
    pub fn derive(&mut self, flow: &Dataflow) {
        // Out-edges are as many as the in-edges of the same graph.
        let members = |stack: Stack| &flow.stacks[flow.in_stack(stack).index()].members;
        // The edges of a stack, whose graph has no size yet.
        let of_stack = |sizes: &Self, graph: Graph| match flow.graphs[graph.index()].derived {
            Some((stack, Incidence::Edges)) => members(stack).iter().map(|graph| sizes.edges[graph.index()]).sum(),
            _ => 0,
        };
        let known = self.vertices.len();
        for decl in flow.vertex_types.iter().skip(known) {
            let rows = match decl.rows {
                VertexRows::Dataset => 0,
                VertexRows::Members(stack) => members(stack).len() as u64,
                VertexRows::Pairs(stack, direction) => {
                    members(stack).iter().map(|&graph| self.pairs(flow, graph, direction)).sum()
                }
                VertexRows::Cells(stack, direction) => {
                    let Space::Vertices(end) = flow.graph_end(members(stack)[0], direction) else { continue };
                    members(stack).len() as u64 * self.vertices[flow.owned_type(end).index()]
                }
                // As if one rank owned everything.
                VertexRows::Mirrors(of, mirrors) => {
                    self.vertices[of.index()] * u64::from(mirrors.permutations().unwrap_or(1))
                }
                VertexRows::Owned(of) | VertexRows::Copies(of) | VertexRows::Shuffled(of) => self.vertices[of.index()],
                VertexRows::Rank | VertexRows::Replica => 1,
                VertexRows::Edges(graph) => {
                    self.edges.get(graph.index()).map_or_else(|| of_stack(self, graph), |&of| of)
                }
                VertexRows::Links { negatives } => {
                    let pairs = flow.graphs.iter().filter_map(|decl| match decl.share {
                        EdgeShare::Links(of) => {
                            self.edges.get(of.index()).copied().or_else(|| Some(of_stack(self, of)))
                        }
                        _ => None,
                    });
                    pairs.sum::<u64>().div_ceil(u64::from(negatives) + 1)
                }
                VertexRows::Samples(_, count) => count.into(),
                VertexRows::Sections(of) => match flow.vertex_types[of.index()].rows {
                    VertexRows::Pairs(stack, _) | VertexRows::Cells(stack, _) => {
                        SECTIONS.saturating_mul(members(stack).len() as u64).min(self.vertices[of.index()])
                    }
                    _ => SECTIONS.min(self.vertices[of.index()]),
                },
            };
            self.vertices.push(rows);
        }
        let with_ends = self.ends.len() == self.edges.len();
        for decl in flow.graphs.iter().skip(self.edges.len()) {
            let (sources, destinations) = (self.vertices[decl.src.index()], self.vertices[decl.dst.index()]);
            let (edges, ends) = match decl.derived {
                None => match decl.share {
                    EdgeShare::Out(of) => {
                        (self.edges[of.index()], self.ends.get(of.index()).copied().unwrap_or_default())
                    }
                    EdgeShare::Sections => {
                        let max_in = sources.div_ceil(destinations.max(1));
                        (sources, Endpoints { sources, destinations, max_out: 1, max_in })
                    }
                    EdgeShare::Links(_) => {
                        let links = sources.min(destinations);
                        (links, Endpoints { sources: links, destinations: links, max_out: 1, max_in: 1 })
                    }
                    EdgeShare::Negatives(_) => {
                        let edges = sources.saturating_sub(destinations);
                        let max_in = edges.div_ceil(destinations.max(1));
                        (edges, Endpoints { sources: edges, destinations: destinations.min(edges), max_out: 1, max_in })
                    }
                    EdgeShare::Samples => {
                        let ends = Endpoints { sources: destinations, destinations, max_out: 1, max_in: 1 };
                        (destinations, ends)
                    }
                    EdgeShare::Copies => {
                        let destinations = destinations.min(sources);
                        (sources, Endpoints { sources, destinations, max_out: 1, max_in: 1 })
                    }
                    EdgeShare::All | EdgeShare::In => (0, Endpoints::default()),
                },
                Some((stack, Incidence::Edges)) => {
                    let most = |of: fn(&Endpoints) -> u64| {
                        members(stack).iter().filter_map(|graph| self.ends.get(graph.index()).map(of)).max()
                    };
                    let (max_out, max_in) = (most(|ends| ends.max_out), most(|ends| ends.max_in));
                    let edges = members(stack).iter().map(|graph| self.edges[graph.index()]).sum();
                    let of_members = |max: Option<u64>| max.unwrap_or(edges);
                    (
                        edges,
                        Endpoints { sources, destinations, max_out: of_members(max_out), max_in: of_members(max_in) },
                    )
                }
                // One edge for each pair.
                Some((stack, incidence)) => {
                    let max_in = match incidence {
                        Incidence::Cells(_) | Incidence::Range { .. } => 1,
                        Incidence::Vertices(_) => members(stack).len() as u64,
                        Incidence::Members(_) | Incidence::Edges => sources,
                    };
                    let destinations = destinations.min(sources);
                    (sources, Endpoints { sources, destinations, max_out: 1, max_in })
                }
            };
            self.edges.push(edges);
            if with_ends {
                self.ends.push(ends);
            }
        }
        // Sparse features of mirrored vertices are those of all vertices, as if one rank owned them.
        for (index, decl) in flow.patterns.iter().enumerate().skip(self.stored.len()) {
            let vertex = flow.owned_type(decl.vertex);
            let own = |of: &PatternDecl| *of == PatternDecl { vertex, ..decl.clone() };
            let Some(known) = flow.patterns[..index].iter().position(own) else { break };
            let Some(&stored) = self.stored.get(known) else { break };
            self.stored.push(stored);
            self.columns.extend(self.columns.get(known).copied());
        }
    }

    /// The means of sizes of the same tables, as of the mini-batches of an epoch, rounded up. Empty without sizes.
    pub fn mean(of: &[SizeInfo]) -> SizeInfo {
        let count = of.len().max(1) as u64;
        let mean = |number: &dyn Fn(&SizeInfo) -> Option<u64>| {
            of.iter().filter_map(number).fold(0u64, u64::saturating_add).div_ceil(count)
        };
        let numbers = |table: fn(&SizeInfo) -> &Vec<u64>| {
            let most = of.iter().map(|sizes| table(sizes).len()).max().unwrap_or(0);
            (0..most).map(|index| mean(&|sizes| table(sizes).get(index).copied())).collect()
        };
        let ends = |index: usize| {
            let end = |number: fn(&Endpoints) -> u64| mean(&|sizes| sizes.ends.get(index).map(number));
            Endpoints {
                sources: end(|ends| ends.sources),
                destinations: end(|ends| ends.destinations),
                max_out: end(|ends| ends.max_out),
                max_in: end(|ends| ends.max_in),
            }
        };
        let most = of.iter().map(|sizes| sizes.ends.len()).max().unwrap_or(0);
        SizeInfo {
            vertices: numbers(|sizes| &sizes.vertices),
            edges: numbers(|sizes| &sizes.edges),
            ends: (0..most).map(ends).collect(),
            stored: numbers(|sizes| &sizes.stored),
            columns: numbers(|sizes| &sizes.columns),
        }
    }

    /// Distinct destinations (sources) of a graph, or a bound.
    fn pairs(&self, flow: &Dataflow, graph: Graph, direction: Direction) -> u64 {
        let Space::Vertices(end) = flow.graph_end(graph, direction) else { return 0 };
        let most = self.vertices[flow.owned_type(end).index()].min(self.edges[graph.index()]);
        self.num_endpoints(graph, direction).unwrap_or(most)
    }

    /// Number of rows of a space.
    pub fn rows(&self, space: Space) -> u64 {
        match space {
            Space::Unit => 1,
            Space::Vertices(vertex) => self.vertices[vertex.index()],
            Space::Edges(graph) => self.edges[graph.index()],
            Space::Index(extent) => extent as u64,
            // Upper bound: one endpoint per edge.
            Space::Endpoints(graph, direction) => {
                self.num_endpoints(graph, direction).unwrap_or(self.edges[graph.index()])
            }
        }
    }

    /// Number of distinct destinations (`In`) or sources (`Out`) of a graph, where it is known.
    pub fn num_endpoints(&self, graph: Graph, direction: Direction) -> Option<u64> {
        self.ends.get(graph.index()).map(|ends| match direction {
            Direction::In => ends.destinations,
            Direction::Out => ends.sources,
        })
    }

    /// The extent of a dimension, in elements.
    pub fn extent(&self, dim: Dim) -> u64 {
        match dim {
            Dim::Fixed(extent) => extent as u64,
            Dim::Count(vertex) => self.vertices[vertex.index()],
        }
    }

    /// Elements per row of a value; saturates at `u64::MAX`.
    pub fn width(&self, flow: &Dataflow, value: Value) -> u64 {
        flow.ty(value).dims.iter().fold(1, |all: u64, &d| all.saturating_mul(self.extent(d)))
    }

    /// Elements of a value; saturates at `u64::MAX`.
    pub fn elements(&self, flow: &Dataflow, value: Value) -> u64 {
        self.rows(flow.ty(value).space).saturating_mul(self.width(flow, value))
    }

    /// Evaluates a symbolic number. The result is a float, since products of counts may exceed every integer type.
    pub fn eval(&self, width: &Width) -> f64 {
        width.counts().iter().fold(width.factor() as f64, |all, v| all * self.vertices[v.index()] as f64)
    }

    /// Stored elements of a pattern. Without statistics: rows times columns, as if dense.
    pub fn stored(&self, tables: &Dataflow, pattern: Pattern) -> f64 {
        let decl = &tables.patterns[pattern.index()];
        let cells = self.vertices[decl.vertex.index()] as f64 * decl.columns as f64;
        self.stored.get(pattern.index()).map_or(cells, |&stored| stored as f64)
    }

    /// Number of distinct rows that a gather from the opposite endpoint reads (sources for `In`). Without statistics:
    /// the smaller of the vertex and edge counts.
    pub fn others(&self, tables: &Dataflow, graph: Graph, direction: Direction) -> f64 {
        if let Some(ends) = self.ends.get(graph.index()) {
            return match direction {
                Direction::In => ends.sources as f64,
                Direction::Out => ends.destinations as f64,
            };
        }
        let decl = &tables.graphs[graph.index()];
        let other = match direction {
            Direction::In => decl.src,
            Direction::Out => decl.dst,
        };
        self.vertices[other.index()].min(self.edges[graph.index()]) as f64
    }

    /// Number of distinct columns (`In`) or rows (`Out`) of the stored elements of a pattern.
    pub fn other_lines(&self, tables: &Dataflow, pattern: Pattern, direction: Direction) -> f64 {
        let decl = &tables.patterns[pattern.index()];
        let most = match direction {
            Direction::In => self.columns.get(pattern.index()).map_or(decl.columns as f64, |&columns| columns as f64),
            Direction::Out => self.vertices[decl.vertex.index()] as f64,
        };
        most.min(self.stored(tables, pattern))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_sizes_are_rounded_up() {
        let sizes = |vertices: u64, sources: u64| SizeInfo {
            vertices: vec![vertices, 4],
            edges: vec![10 * vertices],
            ends: vec![Endpoints { sources, destinations: 1, max_out: sources, max_in: 3 }],
            ..SizeInfo::default()
        };
        let mean = SizeInfo::mean(&[sizes(1, 7), sizes(2, 9)]);
        let ends = vec![Endpoints { sources: 8, destinations: 1, max_out: 8, max_in: 3 }];
        assert_eq!(mean, SizeInfo { vertices: vec![2, 4], edges: vec![15], ends, ..SizeInfo::default() });
        assert_eq!(SizeInfo::mean(&[]), SizeInfo::default());
    }
}
