//! The edges of a relation as vertices of a type of their own, for models whose outputs have a row for each edge.

use hgnnc_dataset::dataset::{Dataset, EdgeLabel, EdgeSplit, LabelData, RelationData, SplitData, VertexTypeData};

use crate::csr::NO_ORIGINAL;
use crate::sgb::SgbError;

/// The edges that a dataset is to have as vertices.
#[derive(Clone, Debug)]
pub struct EdgeRows {
    /// Position of the relation.
    pub relation: usize,
    /// Name of the new vertex type.
    pub vertex_type: String,
    /// Names of the new relations: from the sources to the edges, and from the destinations to the edges.
    pub relations: [String; 2],
    /// Whether the new vertex type has times: those of the latest of each edge and its ends, as far as the dataset has any.
    pub past: bool,
}

impl EdgeRows {
    /// Adds the vertex type, with a vertex for each edge in file order and the labels and splits of the relation, and the
    /// two relations. The second one carries weight, time and features of the edges.
    ///
    /// # Errors
    /// More edges than 32 bits number; then the dataset is unchanged.
    pub fn add_to(&self, dataset: &mut Dataset) -> Result<(), SgbError> {
        let RelationData { name, src, dst, src_ids, dst_ids, weight, features, time, labels, splits, .. } =
            dataset.relations[self.relation].clone();
        let count = src_ids.len();
        if count >= NO_ORIGINAL as usize {
            return Err(SgbError::TooManyEdges { graph: name, edges: count as u64 });
        }
        let of_ends = [(src, &src_ids), (dst, &dst_ids)].map(|(of, ids)| {
            let times = dataset.vertex_types[of].time.as_ref();
            times.map(|times| ids.iter().map(|&id| times[id as usize]).collect::<Vec<i64>>())
        });
        let later = |a: Vec<i64>, b: Vec<i64>| a.into_iter().zip(b).map(|(a, b)| a.max(b)).collect();
        let latest = time.clone().into_iter().chain(of_ends.into_iter().flatten()).reduce(later);
        let (vertex_type, numbers) = (dataset.vertex_types.len(), (0..count as u32).collect::<Vec<u32>>());
        let [from_src, from_dst] = self.relations.clone();
        dataset.vertex_types.push(VertexTypeData {
            name: self.vertex_type.clone(),
            count,
            time: latest.filter(|_| self.past),
            ..VertexTypeData::default()
        });
        dataset.relations.push(RelationData {
            name: from_src,
            src,
            dst: vertex_type,
            src_ids,
            dst_ids: numbers.clone(),
            ..RelationData::default()
        });
        dataset.relations.push(RelationData {
            name: from_dst,
            src: dst,
            dst: vertex_type,
            src_ids: dst_ids,
            dst_ids: numbers,
            weight,
            features,
            time,
            ..RelationData::default()
        });
        let label = |EdgeLabel { name, values, class_names }| LabelData { name, vertex_type, values, class_names };
        let split = |EdgeSplit { name, train, val, test }| SplitData { name, vertex_type, train, val, test };
        dataset.labels.extend(labels.into_iter().map(label));
        dataset.splits.extend(splits.into_iter().map(split));
        Ok(())
    }
}
