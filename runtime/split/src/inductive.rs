//! Datasets without some of their vertices.

use std::path::Path;

use hgnnc_dataset::write::{WriteError, new_folder};
use hgnnc_dataset::{
    Dataset, Features, FieldData, Kinds, LabelData, LabelValues, LinkSplitData, Links, RelationData, SplitData,
    VertexIds, VertexTypeData,
};

/// Writes the two datasets of an inductive split into a new folder: `seen`, without the `unseen` vertices of a type
/// (positions, ascending), to train on, and `whole`, to test on these.
///
/// # Errors
/// A folder that holds something, or that cannot be written.
pub fn write_inductive(dataset: &Dataset, vertex_type: usize, unseen: &[u32], folder: &Path) -> Result<(), WriteError> {
    let seen = without_vertices(dataset, vertex_type, unseen);
    new_folder(folder, |folder| {
        seen.write(&folder.join("seen"))?;
        dataset.write(&folder.join("whole"))
    })
}

/// The dataset without `removed` vertices of a type (positions, ascending) and without the edges and held-out links
/// that touch them. The remaining vertices are numbered anew in their order; their ids, or their positions in
/// `dataset` where it has no ids, are kept as ids. Counts of declared metapaths are dropped, since they are others.
pub fn without_vertices(dataset: &Dataset, vertex_type: usize, removed: &[u32]) -> Dataset {
    let count = dataset.vertex_types[vertex_type].count;
    let mut keep = vec![true; count];
    removed.iter().for_each(|&v| keep[v as usize] = false);
    let kept: Vec<u32> = (0..count as u32).filter(|&v| keep[v as usize]).collect();
    let mut number = vec![GONE; count];
    kept.iter().enumerate().for_each(|(new, &old)| number[old as usize] = new as u32);
    let renumber = Renumber { vertex_type, kept: &kept, number: &number };

    let mut made = Dataset { folder: Default::default(), ..dataset.clone() };
    made.vertex_types[vertex_type] = renumber.vertices(&dataset.vertex_types[vertex_type]);
    made.relations.iter_mut().for_each(|relation| renumber.edges(relation));
    made.labels.iter_mut().filter(|label| label.vertex_type == vertex_type).for_each(|label| renumber.label(label));
    made.splits.iter_mut().filter(|split| split.vertex_type == vertex_type).for_each(|split| renumber.split(split));
    for split in &mut made.link_splits {
        let LinkSplitData { val, test, .. } = split;
        [val, test].into_iter().for_each(|links| renumber.links(links, &dataset.relations));
    }
    for metapath in &mut made.metapaths {
        (metapath.pairs, metapath.self_pairs, metapath.instances, metapath.max_degree) = (None, None, None, None);
    }
    made
}

/// The number of a vertex that is removed.
const GONE: u32 = u32::MAX;

/// New numbers of the vertices of a type.
struct Renumber<'a> {
    vertex_type: usize,
    /// Old positions of the vertices that remain. `[remaining]`
    kept: &'a [u32],
    /// New number of each vertex, or [`GONE`]. `[count]`
    number: &'a [u32],
}

impl Renumber<'_> {
    /// The elements of the remaining vertices, of rows of `width` elements.
    fn rows<T: Copy>(&self, all: &[T], width: usize) -> Vec<T> {
        self.kept.iter().flat_map(|&v| all[v as usize * width..(v as usize + 1) * width].iter().copied()).collect()
    }

    fn vertices(&self, of: &VertexTypeData) -> VertexTypeData {
        let rows = |features: &Features| features.rows(self.kept.iter().map(|&v| v as usize));
        let ids = match &of.ids {
            None => VertexIds::Integer(self.kept.iter().map(|&v| i64::from(v)).collect()),
            Some(VertexIds::Integer(ids)) => VertexIds::Integer(self.rows(ids, 1)),
            Some(ids @ VertexIds::Text { .. }) => {
                let texts: Vec<_> = self.kept.iter().map(|&v| ids.text(v as usize)).collect();
                texts.iter().map(|text| &**text).collect()
            }
        };
        VertexTypeData {
            name: of.name.clone(),
            count: self.kept.len(),
            features: of.features.as_ref().map(rows),
            fields: of
                .fields
                .iter()
                .map(|field| FieldData { name: field.name.clone(), values: rows(&field.values) })
                .collect(),
            kinds: of.kinds.as_ref().map(|kinds| Kinds { names: kinds.names.clone(), of: self.rows(&kinds.of, 1) }),
            ids: Some(ids),
            time: of.time.as_ref().map(|time| self.rows(time, 1)),
            transforms: of.transforms.clone(),
        }
    }

    fn edges(&self, relation: &mut RelationData) {
        let ends = [relation.src == self.vertex_type, relation.dst == self.vertex_type];
        if ends == [false, false] {
            return;
        }
        let is_kept = |(edge, of): (usize, bool), ids: &[u32]| !of || self.number[ids[edge] as usize] != GONE;
        let edges: Vec<usize> = (0..relation.num_edges())
            .filter(|&e| is_kept((e, ends[0]), &relation.src_ids) && is_kept((e, ends[1]), &relation.dst_ids))
            .collect();
        relation.keep(&edges);
        let RelationData { src_ids, dst_ids, .. } = relation;
        for (ids, of) in [src_ids, dst_ids].into_iter().zip(ends) {
            ids.iter_mut().filter(|_| of).for_each(|v| *v = self.number[*v as usize]);
        }
    }

    fn label(&self, label: &mut LabelData) {
        match &mut label.values {
            LabelValues::Single { of, .. } => *of = self.rows(of, 1),
            LabelValues::Multi { classes: width, rows, labelled }
            | LabelValues::Real { dim: width, rows, labelled } => {
                *rows = self.rows(rows, *width);
                *labelled = self.rows(labelled, 1);
            }
        }
    }

    fn split(&self, split: &mut SplitData) {
        for part in [&mut split.train, &mut split.val, &mut split.test] {
            part.retain(|&v| self.number[v as usize] != GONE);
            part.iter_mut().for_each(|v| *v = self.number[*v as usize]);
        }
    }

    fn links(&self, links: &mut Links, relations: &[RelationData]) {
        let new = |vertex: u32, of: usize| if of == self.vertex_type { self.number[vertex as usize] } else { vertex };
        let all = (0..).zip(&links.src).zip(&links.relation).zip(&links.dst);
        let renumbered = all.map(|(((link, &src), &relation), &dst)| {
            let of = &relations[relation as usize];
            (link, new(src, of.src), relation, new(dst, of.dst))
        });
        let kept: Vec<(usize, u32, u32, u32)> =
            renumbered.filter(|&(_, src, _, dst)| src != GONE && dst != GONE).collect();
        *links = Links {
            src: kept.iter().map(|link| link.1).collect(),
            relation: kept.iter().map(|link| link.2).collect(),
            dst: kept.iter().map(|link| link.3).collect(),
            time: links.time.as_ref().map(|times| kept.iter().map(|link| times[link.0]).collect()),
        };
    }
}
