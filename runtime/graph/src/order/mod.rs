//! Vertex reordering for cache locality of gathers.
//!
//! The semantic graphs of a model are traversed in both directions. A traversal gathers one row per edge; if rows with
//! common neighbours are visited one after another, gathered rows are still cached. Vertices are therefore renumbered,
//! type by type, so that close ids share neighbours. Candidate orders are compared by the bytes that all gathers of an
//! epoch read from memory ([`missed_bytes`]), and the best one is used if it pays.
//!
//! This module handles ids only: the caller permutes features, labels and splits.

mod cache;
mod clusters;
mod simple;

pub use cache::missed_bytes;
pub use clusters::{Growth, NO_CLUSTER, grow_clusters};
pub use simple::{by_degree, by_first_use};

/// A permutation of the vertices of a type.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// Old id of each new id. `[V]`
    pub original: Vec<u32>,
    /// New id of each old id. `[V]`
    pub rank: Vec<u32>,
}

impl Order {
    /// The order with the given old id of each new id.
    ///
    /// # Panics
    /// When `original` is not a permutation.
    pub fn of(original: Vec<u32>) -> Self {
        let mut rank = vec![u32::MAX; original.len()];
        for (place, &vertex) in original.iter().enumerate() {
            let slot = &mut rank[vertex as usize];
            assert_eq!(*slot, u32::MAX, "vertex {vertex} has one place");
            *slot = place as u32;
        }
        Self { original, rank }
    }

    /// Sorts vertices by ascending key; a stable sort.
    pub fn by_key(keys: &[u32]) -> Self {
        let most = keys.iter().max().map_or(0, |&key| key as usize + 1);
        let mut starts = vec![0u32; most + 1];
        keys.iter().for_each(|&key| starts[key as usize + 1] += 1);
        for key in 0..most {
            starts[key + 1] += starts[key];
        }
        let (mut original, mut rank) = (vec![0; keys.len()], vec![0; keys.len()]);
        for (vertex, &key) in keys.iter().enumerate() {
            let place = &mut starts[key as usize];
            original[*place as usize] = vertex as u32;
            rank[vertex] = *place;
            *place += 1;
        }
        Self { original, rank }
    }
}

/// Groups the vertices of each cluster, in their own order; vertices without a cluster come last.
pub fn by_cluster(cluster_of: &[u32]) -> Order {
    let known = cluster_of.iter().filter(|&&cluster| cluster != NO_CLUSTER);
    let last = known.max().map_or(0, |&cluster| cluster + 1);
    Order::by_key(&cluster_of.iter().map(|&cluster| cluster.min(last)).collect::<Vec<u32>>())
}

/// One traversal of a semantic graph: which rows it gathers, and how often.
#[derive(Clone, Debug, Default)]
pub struct Gather<'a> {
    /// Vertex type of the traversed rows.
    pub owner_type: usize,
    /// Vertex type of the gathered rows.
    pub other_type: usize,
    /// Row offsets of the traversed rows. `[owners + 1]`
    pub indptr: &'a [u64],
    /// The row gathered by each edge. `[E]`
    pub other: &'a [u32],
    /// Number of rows that may be gathered.
    pub num_others: usize,
    /// (Bytes of a gathered row, traversals per epoch), one entry per gathered table.
    pub rows: Vec<(f64, f64)>,
}

/// The gathered rows of one traversed row.
pub(crate) fn adjacency<'a>(indptr: &[u64], other: &'a [u32], row: usize) -> &'a [u32] {
    &other[indptr[row] as usize..indptr[row + 1] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges between two vertex types, in both directions.
    pub(crate) struct Bipartite {
        counts: [usize; 2],
        sides: [(Vec<u64>, Vec<u32>); 2],
    }

    impl Bipartite {
        pub fn new(counts: [usize; 2], edges: &[(u32, u32)]) -> Self {
            let side = |own: usize| {
                let endpoints =
                    |&(first, second): &(u32, u32)| if own == 0 { (first, second) } else { (second, first) };
                let mut sorted: Vec<(u32, u32)> = edges.iter().map(endpoints).collect();
                sorted.sort_unstable();
                let mut indptr = vec![0; counts[own] + 1];
                sorted.iter().for_each(|edge| indptr[edge.0 as usize + 1] += 1);
                (0..counts[own]).for_each(|row| indptr[row + 1] += indptr[row]);
                (indptr, sorted.into_iter().map(|edge| edge.1).collect())
            };
            Self { counts, sides: [side(0), side(1)] }
        }

        pub fn links(&self) -> Vec<Gather<'_>> {
            let link = |own: usize| Gather {
                owner_type: own,
                other_type: 1 - own,
                indptr: &self.sides[own].0,
                other: &self.sides[own].1,
                num_others: self.counts[1 - own],
                rows: vec![(256.0, 1.0)],
            };
            vec![link(0), link(1)]
        }
    }

    /// Two types of `vertices` vertices with hidden communities; seven of ten edges stay inside their community.
    pub(crate) fn communities(vertices: u32, count: u32) -> (Bipartite, Vec<u32>) {
        let mix = |x: u32| cache::mix(x);
        let community: Vec<u32> = (0..vertices).map(|vertex| mix(vertex) % count).collect();
        let mut members: Vec<Vec<u32>> = vec![vec![]; count as usize];
        community.iter().zip(0..).for_each(|(&of, vertex)| members[of as usize].push(vertex));
        let edge = |edge: u32| {
            let first = edge % vertices;
            let random = mix(edge ^ 0x9e37_79b9);
            let own = &members[community[first as usize] as usize];
            let inside = mix(random) % 10 < 7;
            (first, if inside { own[random as usize % own.len()] } else { random % vertices })
        };
        let edges: Vec<(u32, u32)> = (0..8 * vertices).map(edge).collect();
        (Bipartite::new([vertices as usize; 2], &edges), community)
    }

    #[test]
    fn equal_keys_keep_their_order() {
        let order = Order::by_key(&[2, 0, 2, 1, 0]);
        assert_eq!(order.original, [1, 4, 3, 0, 2]);
        assert_eq!(order, Order::of(order.original.clone()));
        assert_eq!(Order::by_key(&[]), Order::default());
    }

    #[test]
    fn orders_by_communities_miss_less() {
        let (graph, community) = communities(4000, 40);
        let links = graph.links();
        let bytes = |orders: Option<&[Order]>| -> f64 {
            let of = |vertex_type: usize| orders.map(|orders| &orders[vertex_type]);
            // A cache for a tenth of the rows.
            let missed =
                |link: &Gather<'_>| missed_bytes(link, of(link.owner_type), of(link.other_type), 400.0 * 256.0);
            links.iter().map(missed).sum()
        };
        let none = bytes(None);
        let known = vec![community.clone(), vec![NO_CLUSTER; 4000]];
        let grown = grow_clusters(&links, known, Growth { clusters: 40, rounds: 2, slack: 4.0 });
        let clustered: Vec<Order> = grown.iter().map(|of| by_cluster(of)).collect();
        assert!(bytes(Some(&clustered)) < 0.6 * none, "{} of {none}", bytes(Some(&clustered)));
        // Every order is a permutation of all vertices.
        for orders in [by_degree(&[4000; 2], &links), by_first_use(&[4000; 2], &links)] {
            for order in &orders {
                assert_eq!(order, &Order::of(order.original.clone()));
            }
            assert!(bytes(Some(&orders)) < 1.05 * none);
        }
    }
}
