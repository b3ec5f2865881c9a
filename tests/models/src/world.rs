//! Small heterogeneous graphs with values on their vertices and edges.

use std::collections::BTreeMap;

use hgnnc_ir::random::{mask_key, uniform};
use hgnnc_ir::{Dataflow, PathRows};

/// Edges as (source, destination).
pub type Edges = Vec<(u32, u32)>;

/// A dataset, under the names of its model.
#[derive(Clone, Debug)]
pub struct World {
    /// Seed of features, labels and parameters.
    pub seed: u64,
    counts: BTreeMap<String, usize>,
    relations: BTreeMap<String, Edges>,
}

impl World {
    /// A world with the given vertex counts and edges.
    pub fn new(seed: u64, counts: &[(&str, usize)], relations: &[(&str, &[(u32, u32)])]) -> Self {
        Self {
            seed,
            counts: counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            relations: relations.iter().map(|(name, edges)| ((*name).to_owned(), edges.to_vec())).collect(),
        }
    }

    /// The handwritten world of [`crate::cases::SCHEMA`]: paper 6 is isolated, paper 5 is not cited, author 3 and venue
    /// 2 have no edge, `reviews` is empty, `cites` has a duplicate and a self loop.
    pub fn library() -> Self {
        Self::new(
            1,
            &[("Paper", 7), ("Author", 4), ("Venue", 3)],
            &[
                ("cites", &[(0, 1), (2, 1), (0, 1), (3, 3), (4, 0), (1, 2), (5, 4)]),
                ("writes", &[(0, 0), (0, 1), (1, 1), (2, 1), (2, 1), (1, 4), (0, 5)]),
                ("reviews", &[]),
                ("appears_in", &[(0, 0), (1, 0), (2, 1), (3, 1), (3, 1), (5, 0)]),
            ],
        )
    }

    /// A world of the same schema in which few vertices have edges.
    pub fn sparse_library() -> Self {
        Self::new(
            2,
            &[("Paper", 16), ("Author", 9), ("Venue", 7)],
            &[
                ("cites", &[(0, 3), (0, 7), (2, 3), (7, 7)]),
                ("writes", &[(1, 0), (1, 3), (5, 3)]),
                ("reviews", &[(8, 15)]),
                ("appears_in", &[(3, 2), (4, 2), (15, 6)]),
            ],
        )
    }

    /// A world of the same schema with high-degree rows, longer than a thread block of 256: paper 0 has 300 authors,
    /// paper 1 is cited 700 times, and paper 2 cites 300 times. Most papers have few edges or none.
    pub fn long_rows() -> Self {
        let mut cites: Edges = (0..700).map(|e| (e % 37 + 3, 1)).collect();
        cites.extend((0..300).map(|e| (2, e % 40)));
        let mut writes: Edges = (0..300).map(|author| (author, 0)).collect();
        writes.extend((0..30).map(|e| (e % 7, 4 + e % 11)));
        Self::new(
            3,
            &[("Paper", 41), ("Author", 301), ("Venue", 2)],
            &[("cites", &cites), ("writes", &writes), ("reviews", &[(300, 40)]), ("appears_in", &[(0, 1), (4, 1)])],
        )
    }

    /// A world of the same schema with a hidden order: papers form a ring, and citations and authors are local on it,
    /// but the vertex ids are shuffled.
    pub fn hidden_ring() -> Self {
        const PAPERS: u32 = 601;
        const AUTHORS: u32 = 199;
        // Both factors are coprime to the count, so this is a permutation.
        let paper = |place: u32| place % PAPERS * 257 % PAPERS;
        let author = |place: u32| place % AUTHORS * 83 % AUTHORS;
        let cites: Edges = (0..PAPERS).flat_map(|at| (1..5).map(move |by| (paper(at + by), paper(at)))).collect();
        let writes: Edges = (0..PAPERS).flat_map(|at| (0..3).map(move |by| (author(at / 3 + by), paper(at)))).collect();
        Self::new(
            4,
            &[("Paper", PAPERS as usize), ("Author", AUTHORS as usize), ("Venue", 1)],
            &[("cites", &cites), ("writes", &writes), ("reviews", &[]), ("appears_in", &[(0, 0)])],
        )
    }

    /// A random world of the same schema. Relations may be empty, and so may vertex types other than `Paper`.
    pub fn random_library(seed: u64) -> Self {
        let key = mask_key(seed, 0, 77);
        let mut drawn = 0;
        let mut below = |n: usize| {
            drawn += 1;
            ((uniform(key, drawn) * n as f64) as usize).min(n.saturating_sub(1))
        };
        let counts = [("Paper", 1 + below(12)), ("Author", below(8)), ("Venue", below(4))];
        let of = |name: &str| counts.iter().find(|c| c.0 == name).expect("a vertex type").1;
        let mut relations: BTreeMap<String, Edges> = BTreeMap::new();
        let ends = [
            ("cites", "Paper", "Paper"),
            ("writes", "Author", "Paper"),
            ("reviews", "Author", "Paper"),
            ("appears_in", "Paper", "Venue"),
        ];
        for (name, src, dst) in ends {
            let (sources, destinations) = (of(src), of(dst));
            let most = if sources == 0 || destinations == 0 { 0 } else { [0, 6, 25, 60][below(4)] };
            let edges = (0..most).map(|_| (below(sources) as u32, below(destinations) as u32)).collect();
            relations.insert(name.to_owned(), edges);
        }
        Self { seed, counts: counts.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect(), relations }
    }

    /// The same world with the edges of a relation replaced.
    #[must_use]
    pub fn with_edges(mut self, relation: &str, edges: &[(u32, u32)]) -> Self {
        self.relations.insert(relation.to_owned(), edges.to_vec());
        self
    }

    /// The same world with another number of vertices of a type.
    #[must_use]
    pub fn with_count(mut self, vertex: &str, count: usize) -> Self {
        self.counts.insert(vertex.to_owned(), count);
        self
    }

    /// The same world without edges.
    #[must_use]
    pub fn without_edges(mut self) -> Self {
        self.relations.values_mut().for_each(Vec::clear);
        self
    }

    /// Number of vertices of a type.
    pub fn count(&self, vertex: &str) -> usize {
        self.counts.get(vertex).copied().unwrap_or_else(|| panic!("the world has no vertex type `{vertex}`"))
    }

    /// Edges of a relation in data order.
    pub fn relation(&self, name: &str) -> &Edges {
        self.relations.get(name).unwrap_or_else(|| panic!("the world has no relation `{name}`"))
    }

    /// Edges sorted by destination, then source: of a relation (`cites`) or its reverse (`reverse_cites`).
    pub fn edges(&self, graph: &str) -> Edges {
        let reversed = graph.strip_prefix("reverse_").filter(|_| !self.relations.contains_key(graph));
        let mut edges = match reversed {
            Some(relation) => self.relation(relation).iter().map(|&(s, d)| (d, s)).collect(),
            None => self.relation(graph).clone(),
        };
        edges.sort_by_key(|&(s, d)| (d, s));
        edges
    }

    /// Number of path instances of each pair (start, end), over relations walked forwards or (`true`) backwards.
    pub fn paths(&self, steps: &[(&str, bool)]) -> BTreeMap<(u32, u32), usize> {
        let mut paths: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        for (position, &(relation, reverse)) in steps.iter().enumerate() {
            let mut next = BTreeMap::new();
            for &(src, dst) in self.relation(relation) {
                let (from, to) = if reverse { (dst, src) } else { (src, dst) };
                if position == 0 {
                    *next.entry((from, to)).or_insert(0) += 1;
                    continue;
                }
                for (&(start, at), &count) in &paths {
                    if at == from {
                        *next.entry((start, to)).or_insert(0) += count;
                    }
                }
            }
            paths = next;
        }
        paths
    }

    /// The distinct pairs of a metapath, by destination, then source.
    pub fn reachable(&self, steps: &[(&str, bool)]) -> Edges {
        let mut edges: Edges = self.paths(steps).into_keys().collect();
        edges.sort_by_key(|&(s, d)| (d, s));
        edges
    }

    /// Path instances, each with its vertices from the first to the last: by last vertex, then by the edges backwards from
    /// there, each by source and by position in the data. `ends` is the number of vertices where they may end.
    pub fn instances(&self, steps: &[(&str, bool)], ends: usize) -> Vec<Vec<u32>> {
        let mut all = vec![];
        for end in 0..ends as u32 {
            // Paths from some vertex to `end`, by step from the last to the first.
            let mut paths = vec![vec![end]];
            for &(relation, reverse) in steps.iter().rev() {
                let mut longer = vec![];
                for path in &paths {
                    let arriving = self.relation(relation).iter().map(|&(s, d)| if reverse { (d, s) } else { (s, d) });
                    let mut sources: Vec<u32> = arriving.filter(|edge| edge.1 == path[0]).map(|edge| edge.0).collect();
                    sources.sort_unstable();
                    longer.extend(sources.into_iter().map(|source| [&[source], &path[..]].concat()));
                }
                paths = longer;
            }
            all.extend(paths);
        }
        all
    }

    /// The same world with vertices and relations for the path instances that a program reads, and for the edges that it
    /// has outputs of.
    ///
    /// # Panics
    /// When there is a limit: which instances are chosen is the runtime's.
    #[must_use]
    pub fn with_instances(mut self, flow: &Dataflow) -> Self {
        for path in &flow.paths {
            let relation = |relation: u32| &flow.relations[relation as usize];
            if path.rows == PathRows::Edges {
                let edges = self.relation(&relation(path.steps[0].relation).name).to_vec();
                let ends = |end: fn(&(u32, u32)) -> u32| edges.iter().map(end).zip(0..).collect::<Edges>();
                let ends = [ends(|edge| edge.0), ends(|edge| edge.1)];
                for (&by, ends) in path.relations.iter().zip(ends) {
                    self.relations.insert(relation(by).name.clone(), ends);
                }
                self.counts.insert(flow.vertex_types[path.vertex.index()].name.clone(), edges.len());
                continue;
            }
            if path.rows.are_of_vertices() {
                // The runtime lists them, by the times of a dataset.
                path.relations.iter().for_each(|&by| drop(self.relations.insert(relation(by).name.clone(), vec![])));
                self.counts.insert(flow.vertex_types[path.vertex.index()].name.clone(), 0);
                continue;
            }
            assert_eq!(path.rows, PathRows::Walks { at_most: None }, "all instances are listed");
            let steps: Vec<(&str, bool)> =
                path.steps.iter().map(|step| (&relation(step.relation).name[..], step.reverse)).collect();
            let last = relation(*path.relations.last().expect("a path has vertices"));
            let found = self.instances(&steps, self.count(&flow.vertex_types[last.dst.index()].name));
            for (position, &by) in path.relations.iter().enumerate() {
                let edge = |(number, vertices): (u32, &Vec<u32>)| match position == path.steps.len() {
                    true => (number, vertices[position]),
                    false => (vertices[position], number),
                };
                self.relations.insert(relation(by).name.clone(), (0..).zip(&found).map(edge).collect());
            }
            self.counts.insert(flow.vertex_types[path.vertex.index()].name.clone(), found.len());
        }
        self
    }

    /// Adds the missing self loops.
    pub fn with_self_loops(&self, vertex: &str, mut edges: Edges) -> Edges {
        let loops: Edges = (0..self.count(vertex) as u32).map(|v| (v, v)).filter(|l| !edges.contains(l)).collect();
        edges.extend(loops);
        edges.sort_by_key(|&(s, d)| (d, s));
        edges
    }

    /// `len` numbers in ±bound, determined by the seed and the name; exact in f32.
    pub fn numbers(&self, name: &str, len: usize, bound: f64) -> Vec<f64> {
        let hash = name.bytes().fold(17u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
        let key = mask_key(self.seed, 1, hash);
        (0..len as u64).map(|i| f64::from((bound * (2.0 * uniform(key, i) - 1.0)) as f32)).collect()
    }

    /// Class of each vertex, -1 = none. Vertex 0 always has one.
    pub fn classes(&self, vertex: &str, classes: usize) -> Vec<i32> {
        let draws = self.numbers(&format!("{vertex} class"), self.count(vertex), 0.5);
        let class = |(v, x): (usize, f64)| {
            let drawn = ((x + 0.5) * (classes as f64 + 0.6)) as i32;
            match (v, drawn < classes as i32) {
                (_, true) => drawn,
                (0, false) => 0,
                (_, false) => -1,
            }
        };
        draws.into_iter().enumerate().map(class).collect()
    }

    /// Whether each vertex is in the training part. Vertex 0 always is.
    pub fn trained(&self, vertex: &str) -> Vec<bool> {
        let draws = self.numbers(&format!("{vertex} train"), self.count(vertex), 0.5);
        draws.into_iter().enumerate().map(|(v, x)| v == 0 || x < 0.15).collect()
    }
}
