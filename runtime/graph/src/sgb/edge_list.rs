//! The edges of a relation without row offsets.

use hgnnc_dataset::dataset::Step;

use super::{SemanticGraphs, SgbError};
use crate::csr::NO_ORIGINAL;

/// The edges of a relation in the order of its CSC: by destination, then source, then position in the file. Takes memory
/// in its edges alone, where a [`SemanticGraph`](crate::SemanticGraph) also has two row offsets for each vertex.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct EdgeList {
    pub num_src: usize,
    pub num_dst: usize,
    /// `[E]`
    pub src: Vec<u32>,
    /// Ascending. `[E]`
    pub dst: Vec<u32>,
    /// Weight of each edge, for a relation that has weights. `[E]`
    pub weight: Option<Vec<f32>>,
    /// Position of each edge in the relation's file. `[E]`
    pub original: Vec<u32>,
}

impl SemanticGraphs<'_> {
    /// The edges of a relation, or of its reverse.
    ///
    /// Errors for a relation that does not exist, and too many edges.
    pub fn edges(&self, step: Step) -> Result<EdgeList, SgbError> {
        let (src_type, dst_type) = self.endpoints("", &[step], false)?;
        let data = &self.dataset.relations[step.relation];
        let (mut src, mut dst) = (&data.src_ids[..], &data.dst_ids[..]);
        if step.reverse {
            std::mem::swap(&mut src, &mut dst);
        }
        if src.len() >= NO_ORIGINAL as usize {
            return Err(SgbError::TooManyEdges { graph: data.name.clone(), edges: src.len() as u64 });
        }
        let mut sorted: Vec<(u32, u32, u32)> =
            dst.iter().zip(src).zip(0..).map(|((&dst, &src), position)| (dst, src, position)).collect();
        sorted.sort_unstable();
        let weight_of = |&(_, _, i): &(u32, u32, u32)| data.weight.as_ref().and_then(|w| w.get(i as usize)).copied();
        Ok(EdgeList {
            num_src: self.count(src_type),
            num_dst: self.count(dst_type),
            src: sorted.iter().map(|edge| edge.1).collect(),
            dst: sorted.iter().map(|edge| edge.0).collect(),
            weight: data.weight.as_ref().map(|_| sorted.iter().map(|e| weight_of(e).unwrap_or(1.0)).collect()),
            original: sorted.iter().map(|edge| edge.2).collect(),
        })
    }
}
