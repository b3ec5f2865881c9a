//! The parts of a partitioned dataset (`partition.json`), which the ranks of a job own.

use std::sync::Arc;

use hgnnc_dataset::Dataset;
use hgnnc_ir::dataflow::VertexTypeDecl;
use hgnnc_ir::{Dataflow, VertexRows};
use hgnnc_partition::Partition;

use crate::{Error, Observer};

/// By vertex type of a dataset: the first vertex of each part. Empty for a dataset that was not partitioned.
pub(crate) struct Parts(Vec<Vec<usize>>);

impl Parts {
    /// The parts of a dataset, of which `ranks` processes are noted if there are more or fewer parts.
    ///
    /// # Errors
    /// A `partition.json` that is damaged, or of another dataset.
    pub fn of(dataset: &Dataset, ranks: usize, observer: &mut dyn Observer) -> Result<Self, Error> {
        let path = dataset.folder.join(Partition::FILE);
        // A dataset in memory has no folder.
        if dataset.folder.as_os_str().is_empty() || !path.exists() {
            return Ok(Self(vec![]));
        }
        let partition = Partition::load(&dataset.folder).map_err(|error| Error::input(error.to_string()))?;
        let mut parts = vec![];
        for vertices in &dataset.vertex_types {
            let known = partition.vertex_types.iter().find(|of| of.name == vertices.name);
            let count = known.and_then(|of| of.borders.last()).copied().unwrap_or(0);
            let Some(known) = known.filter(|_| count == vertices.count as u64) else {
                return Err(Error::input(format!(
                    "`{}` is not of this dataset: it has {count} vertices of `{}`, and the dataset {}; partition the dataset \
                     again, or remove the file",
                    path.display(),
                    vertices.name,
                    vertices.count
                )));
            };
            parts.push(known.borders[..partition.ranks].iter().map(|&first| first as usize).collect());
        }
        if ranks > 1 && ranks != partition.ranks {
            observer.note(format!(
                "the dataset is partitioned for {} processes, and there are {ranks}: each owns a range of their vertices",
                partition.ranks
            ));
        }
        Ok(Self(parts))
    }

    /// By vertex type of a model: its parts.
    pub fn of_model(&self, flow: &Dataflow, dataset: &Dataset) -> Arc<[Vec<usize>]> {
        let of_type = |decl: &VertexTypeDecl| {
            let of = dataset.vertex_type(&decl.dataset_name).filter(|_| decl.rows == VertexRows::Dataset);
            of.and_then(|of| self.0.get(of)).cloned().unwrap_or_default()
        };
        flow.vertex_types.iter().map(of_type).collect()
    }
}
