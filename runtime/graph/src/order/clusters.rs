//! Clusters of vertices with many common neighbours, over all types and relations at once.
//!
//! Label propagation (Raghavan, Albert and Kumara, Phys. Rev. E 76, 2007): a vertex joins the cluster of most of its
//! neighbours. Full clusters admit no vertex (size constraints: Meyerhenke, Sanders and Schulz, SEA 2014), otherwise
//! one cluster would absorb all. A high-degree neighbour is weak evidence, so its vote is divided by the square root of
//! its degree.
//!
//! Clusters can be seeded with known groups, such as the classes of labelled vertices.

use rayon::prelude::*;

use super::{Gather, adjacency};

/// Cluster id of a vertex that belongs to none.
pub const NO_CLUSTER: u32 = u32::MAX;

/// The vertices of a type are updated in this many consecutive parts; each part sees the updates of those before.
const PARTS: usize = 8;
/// Vertices of a part per task.
const CHUNK: usize = 1 << 12;

/// Parameters of cluster growth.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Growth {
    pub clusters: usize,
    /// Number of updates of each vertex.
    pub rounds: usize,
    /// Largest number of vertices of a type in one cluster, relative to the mean.
    pub slack: f64,
}

/// The cluster of each vertex of each type, grown from `start`. `links` holds the edges of each type in both
/// directions. The result does not depend on the number of threads.
///
/// # Panics
/// When the lengths of `start` differ from the vertex counts in `links`.
pub fn grow_clusters(links: &[Gather<'_>], start: Vec<Vec<u32>>, how: Growth) -> Vec<Vec<u32>> {
    let mut cluster_of = start;
    let mut sizes: Vec<Vec<u32>> = cluster_of.iter().map(|of| sizes(of, how.clusters)).collect();
    let weights = weights(links, &cluster_of);
    for _ in 0..how.rounds {
        for part in 0..PARTS {
            for vertex_type in 0..cluster_of.len() {
                let vertices = cluster_of[vertex_type].len();
                let range = vertices * part / PARTS..vertices * (part + 1) / PARTS;
                let own: Vec<&Gather<'_>> = links.iter().filter(|link| link.owner_type == vertex_type).collect();
                if own.is_empty() || range.is_empty() {
                    continue;
                }
                let room = (how.slack * vertices as f64 / how.clusters.max(1) as f64).ceil() as u32;
                let election =
                    Election { own, cluster_of: &cluster_of, weights: &weights, sizes: &sizes[vertex_type], room };
                let decided: Vec<Vec<u32>> = range
                    .clone()
                    .into_par_iter()
                    .step_by(CHUNK)
                    .map(|first| election.decide(vertex_type, first..range.end.min(first + CHUNK)))
                    .collect();
                for (vertex, new) in range.zip(decided.into_iter().flatten()) {
                    let old = std::mem::replace(&mut cluster_of[vertex_type][vertex], new);
                    if let Some(size) = sizes[vertex_type].get_mut(old as usize) {
                        *size -= 1;
                    }
                    if let Some(size) = sizes[vertex_type].get_mut(new as usize) {
                        *size += 1;
                    }
                }
            }
        }
    }
    cluster_of
}

fn sizes(cluster_of: &[u32], clusters: usize) -> Vec<u32> {
    let mut sizes = vec![0; clusters];
    cluster_of.iter().for_each(|&cluster| {
        if let Some(size) = sizes.get_mut(cluster as usize) {
            *size += 1;
        }
    });
    sizes
}

/// The weight of each vertex's vote.
fn weights(links: &[Gather<'_>], cluster_of: &[Vec<u32>]) -> Vec<Vec<f32>> {
    let mut weights: Vec<Vec<f32>> = cluster_of.iter().map(|of| vec![0.0; of.len()]).collect();
    for link in links {
        for (degree, ends) in weights[link.owner_type].iter_mut().zip(link.indptr.windows(2)) {
            *degree += (ends[1] - ends[0]) as f32;
        }
    }
    weights.iter_mut().flatten().for_each(|degree| *degree = degree.max(1.0).sqrt().recip());
    weights
}

/// Inputs of the update of one vertex type.
struct Election<'a> {
    /// Gathers whose rows are of this type.
    own: Vec<&'a Gather<'a>>,
    cluster_of: &'a [Vec<u32>],
    weights: &'a [Vec<f32>],
    /// Number of vertices of the type in each cluster.
    sizes: &'a [u32],
    /// Largest allowed size of a cluster.
    room: u32,
}

impl Election<'_> {
    /// The cluster that each vertex joins or stays in.
    fn decide(&self, vertex_type: usize, vertices: std::ops::Range<usize>) -> Vec<u32> {
        let mut votes = vec![0f32; self.sizes.len()];
        let mut voted: Vec<u32> = vec![];
        let mut decide = |vertex: usize| {
            for link in &self.own {
                let (clusters, weights) = (&self.cluster_of[link.other_type], &self.weights[link.other_type]);
                for &other in adjacency(link.indptr, link.other, vertex) {
                    let cluster = clusters[other as usize];
                    // Neighbours without a cluster have no vote.
                    let Some(votes) = votes.get_mut(cluster as usize) else { continue };
                    if *votes == 0.0 {
                        voted.push(cluster);
                    }
                    *votes += weights[other as usize];
                }
            }
            let current = self.cluster_of[vertex_type][vertex];
            let mut best = (0.0, current);
            for &cluster in &voted {
                let votes = std::mem::take(&mut votes[cluster as usize]);
                let is_open = cluster == current || self.sizes[cluster as usize] < self.room;
                // Ties go to the vertex's own cluster, then to the first.
                let wins =
                    votes > best.0 || votes == best.0 && best.1 != current && (cluster == current || cluster < best.1);
                if is_open && wins {
                    best = (votes, cluster);
                }
            }
            voted.clear();
            best.1
        };
        vertices.map(&mut decide).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::tests::{Bipartite, communities};

    #[test]
    fn clusters_grow_along_edges_into_all_types() {
        // Vertices 0 and 1 of both types, and 2 and 3; the last has no edges.
        let graph = Bipartite::new([5, 4], &[(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (2, 3), (3, 3)]);
        let start = vec![vec![0, NO_CLUSTER, 1, NO_CLUSTER, NO_CLUSTER], vec![NO_CLUSTER; 4]];
        let growth = Growth { clusters: 2, rounds: 2, slack: 2.0 };
        let found = grow_clusters(&graph.links(), start, growth);
        assert_eq!(found, [vec![0, 0, 1, 1, NO_CLUSTER], vec![0, 0, 1, 1]]);
    }

    #[test]
    fn full_clusters_admit_no_vertex() {
        let edges: Vec<(u32, u32)> = (0..100).map(|vertex| (vertex, 0)).collect();
        let graph = Bipartite::new([100, 1], &edges);
        let start = vec![vec![NO_CLUSTER; 100], vec![0]];
        // A part sees the updates of the parts before: a cluster exceeds its limit by one part at most.
        let found = grow_clusters(&graph.links(), start, Growth { clusters: 4, rounds: 3, slack: 1.0 });
        let joined = found[0].iter().filter(|&&cluster| cluster == 0).count();
        assert!((25..=25 + 100usize.div_ceil(PARTS)).contains(&joined), "{joined}");
    }

    #[test]
    fn communities_are_found_with_any_number_of_threads() {
        let (graph, community) = communities(3000, 30);
        let start = |_: usize| -> Vec<Vec<u32>> {
            let known = |(vertex, &of): (usize, &u32)| if vertex % 3 == 0 { of } else { NO_CLUSTER };
            vec![community.iter().enumerate().map(known).collect(), vec![NO_CLUSTER; 3000]]
        };
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            let growth = Growth { clusters: 30, rounds: 2, slack: 4.0 };
            pool.install(|| grow_clusters(&graph.links(), start(threads), growth))
        };
        let found = with(1);
        assert_eq!(found, with(3));
        let right = found[0].iter().zip(&community).filter(|(found, of)| found == of).count();
        assert!(right > 2700, "{right} of 3000");
    }
}
