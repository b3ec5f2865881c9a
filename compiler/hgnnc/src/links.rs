//! Scores of given pairs of vertices.

use std::path::{Path, PathBuf};

use hgnnc_dataset::npy::{self, Npy};

use crate::outputs::write_file;
use crate::{Error, Prepared};

/// A pair of vertices to score.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPair {
    /// The number of the source in the dataset.
    pub src: i64,
    /// The position of the relation among those of the dataset.
    pub relation: i64,
    /// The number of the destination in the dataset.
    pub dst: i64,
}

/// Pairs of vertices to score, of any relations that a model scores. They are checked when they are scored.
#[derive(Clone, Debug)]
pub struct LinkPairs {
    /// The file of the pairs, for messages.
    name: PathBuf,
    pairs: Vec<LinkPair>,
}

impl LinkPairs {
    /// Pairs in memory, which messages call `name`.
    pub fn new(name: impl Into<PathBuf>, pairs: Vec<LinkPair>) -> Self {
        LinkPairs { name: name.into(), pairs }
    }

    /// Reads pairs from a `.npy` file: an integer array `[3, pairs]` of sources, positions of relations, and
    /// destinations.
    ///
    /// # Errors
    /// A file that cannot be read, of another shape, or of other numbers.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |what: String| Error::input(format!("{}: {what}", path.display()));
        let file = Npy::open(path).map_err(|problem| wrong(problem.to_string()))?;
        let &[3, count] = file.shape() else {
            return Err(wrong(format!(
                "pairs are an array [3, pairs] (source, relation, destination), and this is {:?}",
                file.shape()
            )));
        };
        let numbers = file.to_i64().ok_or_else(|| wrong("pairs are whole numbers".into()))?;
        let pair =
            |at: usize| LinkPair { src: numbers[at], relation: numbers[count + at], dst: numbers[2 * count + at] };
        Ok(LinkPairs { name: path.to_path_buf(), pairs: (0..count).map(pair).collect() })
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

impl Prepared {
    /// Scores of pairs with the current parameters, in the order of the pairs, of a preparation for
    /// [`Purpose::Score`](crate::Purpose::Score).
    ///
    /// # Errors
    /// A pair of a relation that the model does not score, or of vertices that the dataset does not have, which names
    /// the first such pair; a device that fails.
    pub fn score_links(&mut self, pairs: &LinkPairs) -> Result<Vec<f32>, Error> {
        let wrong = |what: String| Error::input(format!("{}: {what}", pairs.name.display()));
        let graphs = self.trainer.link_graphs();
        let mut by_graph: Vec<Vec<(u32, u32)>> = vec![vec![]; graphs.len()];
        // By pair: the graph of its relation, and the position among the pairs of that.
        let mut places = Vec::with_capacity(pairs.len());
        for (pair, &LinkPair { src, relation, dst }) in pairs.pairs.iter().enumerate() {
            let name = usize::try_from(relation).ok().and_then(|relation| self.relations.get(relation));
            let Some(name) = name else {
                let last = self.relations.len().saturating_sub(1);
                return Err(wrong(format!("pair {pair} is of relation {relation}; the dataset has 0 to {last}")));
            };
            let Some(graph) = graphs.iter().position(|known| known.of_relation && known.name == *name) else {
                return Err(wrong(format!(
                    "pair {pair} is of relation {relation}, `{name}`, which the model does not score"
                )));
            };
            let (num_src, num_dst) = graphs[graph].ends;
            let end = |vertex: i64, count: usize| u32::try_from(vertex).ok().filter(|&it| (it as usize) < count);
            let (Some(src), Some(dst)) = (end(src, num_src), end(dst, num_dst)) else {
                return Err(wrong(format!(
                    "pair {pair} joins {src} and {dst}, but `{name}` has {num_src} sources and {num_dst} destinations"
                )));
            };
            places.push((graph, by_graph[graph].len()));
            by_graph[graph].push((src, dst));
        }
        let scores = self.trainer.score_pairs(&by_graph)?;
        Ok(places.into_iter().map(|(graph, place)| scores[graph][place]).collect())
    }
}

/// Writes scores to a `.npy` file, `f32[pairs]`. Atomic.
///
/// # Errors
/// When the file cannot be written.
pub fn write_scores(path: &Path, scores: &[f32]) -> Result<(), Error> {
    let bytes = npy::to_bytes(&[scores.len()], scores).map_err(|error| Error::write(path, &error))?;
    write_file(path, &bytes)
}
