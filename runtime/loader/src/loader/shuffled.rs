//! Shuffled vertices of a batch: each has in-edges from others of the same set, along permutations that are drawn for the
//! step.
//!
//! The vertices of a set in the order of the dataset are permuted, so the edges are a function of the set, the seed and the
//! step, whatever the order of the rows. Those of a batch of all vertices are the edges of the whole graph in that step.
//!
//! Several ranks permute the vertices that any of them has sampled. They tell each other those that they own, and then each
//! owner the vertices whose rows theirs take.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use hgnnc_data::ranks::Route;
use hgnnc_data::{Adjacency, Result, Shuffle};
use hgnnc_ir::batch::{BatchGraph, BatchLayout};
use hgnnc_ir::dataflow::Dataflow;
use hgnnc_ir::random::shuffled_sources;
use hgnnc_ir::types::{Graph, VertexType};
use hgnnc_ir::{EdgeShare, VertexRows};
use hgnnc_sample::BatchKey;

use super::ranks::{MAKES, Share, SharedTable, grouped, owner, tell_owners};
use super::{MiniBatch, MiniBatchLoader};

/// The in-edges of shuffled vertices, for rows of these vertices.
pub(super) fn permute(
    vertices: &[u32],
    shuffle: Shuffle,
    step: (u64, u64),
    (indptr, sources): (&mut Vec<u64>, &mut Vec<u32>),
) {
    let mut rows: Vec<u32> = (0..vertices.len() as u32).collect();
    rows.sort_unstable_by_key(|&row| vertices[row as usize]);
    let drawn = shuffled_sources(step, shuffle.vertex, vertices.len(), shuffle.permutations);
    let each = starts(vertices.len(), shuffle, indptr);
    sources.clear();
    sources.resize(drawn.len(), 0);
    for (&row, drawn) in rows.iter().zip(drawn.chunks_exact(each)) {
        let of_row = &mut sources[row as usize * each..][..each];
        of_row.iter_mut().zip(drawn).for_each(|(source, &place)| *source = rows[place as usize]);
    }
}

/// Fills in the first edge of each row. Returns the number of edges of a row.
fn starts(rows: usize, shuffle: Shuffle, indptr: &mut Vec<u64>) -> usize {
    let each = shuffle.permutations as usize;
    indptr.clear();
    indptr.extend((0..=rows).map(|row| (row * each) as u64));
    each
}

/// Vertices that are shuffled among those of all ranks.
pub(super) struct SharedShuffle {
    /// Position of the table of the sampled vertices.
    table: usize,
    /// The vertices whose rows those of the rank take.
    taken: VertexType,
    /// Their copies at their owners and the edges from these, where gradients come back.
    copies: Option<(VertexType, Graph)>,
    /// The graphs of the shuffled vertices, with their permutations.
    graphs: Vec<(Graph, Shuffle)>,
}

impl SharedShuffle {
    /// All of a program of ranks.
    pub fn all(tables: &Dataflow, layout: &BatchLayout, shared: &[SharedTable]) -> Vec<Self> {
        let types = tables.vertex_types.iter().enumerate();
        let of = |(index, decl): (usize, &hgnnc_ir::dataflow::VertexTypeDecl)| {
            let VertexRows::Shuffled(rows) = decl.rows else { return None };
            let taken = VertexType::new(index);
            let from = |decl: &hgnnc_ir::dataflow::GraphDecl| {
                decl.share == EdgeShare::Copies
                    && tables.vertex_types[decl.src.index()].rows == VertexRows::Copies(taken)
            };
            let copies = tables.graphs.iter().position(from);
            let shuffled = |(index, what): (usize, &BatchGraph)| match *what {
                BatchGraph::Shuffled { rows: of, permutations } if of == rows => {
                    let vertex = layout.vertices[rows.index()].vertex;
                    Some((Graph::new(index), Shuffle { vertex, permutations }))
                }
                _ => None,
            };
            Some(Self {
                table: shared.iter().position(|table| table.sampled == rows)?,
                taken,
                copies: copies.map(|graph| (tables.graphs[graph].src, Graph::new(graph))),
                graphs: layout.graphs.iter().enumerate().filter_map(shuffled).collect(),
            })
        };
        types.filter_map(of).collect()
    }

    /// The types that have routes.
    pub fn routed(&self) -> impl Iterator<Item = VertexType> {
        std::iter::once(self.taken).chain(self.copies.map(|(copies, _)| copies))
    }
}

impl MiniBatchLoader {
    /// The seed and the number of the step of a batch, which counts as training does.
    pub(super) fn step(&self, key: Option<BatchKey>) -> (u64, u64) {
        let step = |key: BatchKey| (key.seed, key.epoch * self.num_batches() + key.batch + 1);
        key.map(step).unwrap_or_default()
    }

    /// Draws the edges of shuffled vertices of a batch of all ranks, and exchanges whose rows are taken. The vertices that each
    /// rank owns are known. False if another rank makes no more batches.
    pub(super) fn share_shuffled(&self, share: &Share, mini_batch: &mut MiniBatch) -> Result<bool> {
        let step = self.step(mini_batch.key);
        let MiniBatch { sampled, data, owned, .. } = mini_batch;
        let (rank, ranks) = (share.rank.comm.rank(), share.rank.comm.size());
        for shuffled in &share.shuffled {
            let (table, owned) = (&share.tables[shuffled.table], &owned[shuffled.table]);
            let of = self.layout.vertices[table.sampled.index()].vertex;
            let borders = share.borders(of.index(), self.graph.counts()[of.index()]);
            let own: Vec<u32> = owned.rows.iter().map(|&row| row + borders[rank] as u32).collect();
            share.sent.fetch_add(((ranks - 1) * own.len() * size_of::<u32>()) as u64, Relaxed);
            let Some(mut of_ranks) = tell_owners(&share.rank, MAKES, &vec![own.clone(); ranks])? else {
                return Ok(false);
            };
            of_ranks.iter_mut().for_each(|own| own.sort_unstable());
            // Ascending, since ranks own vertices in order.
            let all = of_ranks.concat();
            let place = |vertex: &u32| all.binary_search(vertex).expect("a rank owns each sampled vertex");
            let vertices = self.vertices(sampled, table.sampled);
            let places: Vec<usize> = vertices.iter().map(place).collect();
            let mut is_taken = vec![false; all.len()];
            for &(graph, shuffle) in &shuffled.graphs {
                let drawn = shuffled_sources(step, shuffle.vertex, all.len(), shuffle.permutations);
                let topology = &mut data.graphs[graph.index()];
                topology.name.clone_from(&self.tables.graphs[graph.index()].name);
                (topology.ends, topology.classes) = ([None, None], Default::default());
                topology.csc.eids.clear();
                let each = starts(vertices.len(), shuffle, topology.csc.indptr.make_mut());
                let sources = topology.csc.indices.make_mut();
                sources.clear();
                sources.extend(places.iter().flat_map(|&place| &drawn[place * each..][..each]));
                sources.iter().for_each(|&source| is_taken[source as usize] = true);
            }
            // Rows are the taken vertices, ascending.
            let mut row_of = vec![0; all.len()];
            let mut wanted = vec![vec![]; ranks];
            let mut rows = 0;
            for (place, &vertex) in all.iter().enumerate().filter(|(place, _)| is_taken[*place]) {
                row_of[place] = rows;
                rows += 1;
                wanted[owner(&borders, vertex)].push(vertex);
            }
            for &(graph, _) in &shuffled.graphs {
                let topology = &mut data.graphs[graph.index()];
                (topology.num_src, topology.num_dst) = (rows as usize, vertices.len());
                topology.csc.indices.make_mut().iter_mut().for_each(|source| *source = row_of[*source as usize]);
                self.transpose(graph.index(), topology);
            }
            let others = rows as usize - wanted[rank].len();
            share.sent.fetch_add((others * size_of::<u32>()) as u64, Relaxed);
            let Some(asked) = tell_owners(&share.rank, MAKES, &wanted)? else { return Ok(false) };
            let mut by_vertex: Vec<u32> = (0..own.len() as u32).collect();
            by_vertex.sort_unstable_by_key(|&row| own[row as usize]);
            let row_at_owner = |vertex: &u32| {
                let found = by_vertex.binary_search_by_key(vertex, |&row| own[row as usize]);
                by_vertex[found.expect("its owner has each sampled vertex")]
            };
            let at: Vec<u32> = asked.iter().flatten().map(row_at_owner).collect();
            let lens = |lists: &[Vec<u32>]| lists.iter().map(Vec::len).collect::<Vec<usize>>();
            let (wanted, asked) = (lens(&wanted), lens(&asked));
            data.num_vertices[shuffled.taken.index()] = rows as usize;
            if let Some((copies, graph)) = shuffled.copies {
                let topology = &mut data.graphs[graph.index()];
                topology.name.clone_from(&self.tables.graphs[graph.index()].name);
                (topology.num_src, topology.num_dst) = (at.len(), own.len());
                (topology.ends, topology.classes, topology.csr) =
                    ([None, None], Default::default(), Adjacency::default());
                grouped(&at, own.len(), &mut topology.csc);
                data.num_vertices[copies.index()] = at.len();
                data.routes[copies.index()] = Some(Arc::new(Route {
                    send: (0..rows).collect(),
                    send_rows: wanted.clone(),
                    recv_rows: asked.clone(),
                    places: None,
                    first_own: None,
                }));
            }
            let route = Route { send: at, send_rows: asked, recv_rows: wanted, places: None, first_own: None };
            data.routes[shuffled.taken.index()] = Some(Arc::new(route));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By vertex: the vertices whose rows it takes.
    fn taken(vertices: &[u32], permutations: u32, step: (u64, u64)) -> Vec<(u32, Vec<u32>)> {
        let (mut indptr, mut sources) = (vec![], vec![]);
        let shuffle = Shuffle { vertex: VertexType::new(1), permutations };
        permute(vertices, shuffle, step, (&mut indptr, &mut sources));
        let of_row =
            |ends: &[u64]| sources[ends[0] as usize..ends[1] as usize].iter().map(|&row| vertices[row as usize]);
        let mut taken: Vec<(u32, Vec<u32>)> =
            vertices.iter().zip(indptr.windows(2)).map(|(&vertex, ends)| (vertex, of_row(ends).collect())).collect();
        taken.sort_unstable();
        taken
    }

    #[test]
    fn vertices_of_a_batch_are_shuffled_whatever_their_order() {
        let vertices = [40, 7, 19, 3, 88, 21, 5];
        let mut other = vertices;
        other.reverse();
        for permutations in [1, 3] {
            let found = taken(&vertices, permutations, (5, 2));
            assert_eq!(found, taken(&other, permutations, (5, 2)));
            assert_ne!(found, taken(&vertices, permutations, (5, 3)));
            let mut sources: Vec<u32> = found.iter().flat_map(|(_, sources)| sources.clone()).collect();
            sources.sort_unstable();
            let mut expected: Vec<u32> = vertices.iter().flat_map(|&v| vec![v; permutations as usize]).collect();
            expected.sort_unstable();
            assert_eq!(sources, expected, "each row is taken as often");
        }
        assert_eq!(taken(&[], 2, (5, 2)), []);
    }

    #[test]
    fn all_vertices_are_shuffled_as_those_of_the_whole_graph() {
        let vertices: Vec<u32> = (0..9).rev().collect();
        for permutations in [1, 4] {
            let found = taken(&vertices, permutations, (1, 6));
            let sources: Vec<u32> = found.into_iter().flat_map(|(_, sources)| sources).collect();
            assert_eq!(sources, shuffled_sources((1, 6), VertexType::new(1), 9, permutations));
        }
    }
}
