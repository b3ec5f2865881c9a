//! New rows of a graph that was imported before: `--like`. They are scaled and coded as those of the graph, and their
//! edges may go to its vertices.

use std::cell::OnceCell;
use std::collections::HashMap;

use hgnnc_dataset::{Dataset, Features, FieldData, LabelData, RelationData, VertexTypeData};

use super::Vertices;
use crate::error::shown;
use crate::keys::Keys;

/// The graph whose new rows are read.
pub(super) struct Graph<'a> {
    dataset: &'a Dataset,
    /// By vertex type of the graph, its vertices, once one is looked for.
    vertices: Vec<OnceCell<Vertices>>,
    /// By vertex type of the graph: vertices that the tables have no rows of, in the order in which edges name them.
    named: Vec<Vec<usize>>,
}

impl<'a> Graph<'a> {
    pub fn new(dataset: &'a Dataset) -> Graph<'a> {
        let types = dataset.vertex_types.len();
        Graph { dataset, vertices: (0..types).map(|_| OnceCell::new()).collect(), named: vec![Vec::new(); types] }
    }

    pub fn vertex_type(&self, name: &str) -> Option<&'a VertexTypeData> {
        self.dataset.vertex_type(name).map(|ty| &self.dataset.vertex_types[ty])
    }

    pub fn relation(&self, name: &str) -> Option<&'a RelationData> {
        self.dataset.relation(name).map(|of| &self.dataset.relations[of])
    }

    pub fn label(&self, of: &str, name: &str) -> Option<&'a LabelData> {
        let ty = self.dataset.vertex_type(of)?;
        self.dataset.labels.iter().find(|label| label.vertex_type == ty && label.name == name)
    }

    /// Whether the graph has a vertex of this key, which an edge names and the tables have no row of. It is noted.
    pub fn takes(&mut self, of: &str, key: &str) -> bool {
        let Some(ty) = self.dataset.vertex_type(of) else { return false };
        let known = self.vertices[ty].get_or_init(|| {
            let data = &self.dataset.vertex_types[ty];
            match &data.ids {
                Some(ids) => {
                    let mut keys = Keys::default();
                    (0..ids.len()).for_each(|vertex| {
                        keys.add(&ids.text(vertex));
                    });
                    Vertices::Keys(keys)
                }
                None => Vertices::Rows(data.count),
            }
        });
        let found = known.find(key);
        self.named[ty].extend(found.map(|vertex| vertex as usize));
        found.is_some()
    }

    /// Whether a vertex without a row can be new: what the graph knows of each vertex is not known of it.
    pub fn has_bare(&self, of: &str) -> bool {
        self.vertex_type(of).is_none_or(|data| data.features.is_none() && data.time.is_none())
    }

    /// Adds the vertices that edges named, with what the graph knows of them and without labels.
    ///
    /// # Errors
    /// When that does not fit to the rows of the tables.
    pub fn add_named(&self, dataset: &mut Dataset) -> Result<(), String> {
        for (graph, named) in self.dataset.vertex_types.iter().zip(&self.named) {
            let Some(ty) = dataset.vertex_type(&graph.name).filter(|_| !named.is_empty()) else { continue };
            let data = &mut dataset.vertex_types[ty];
            data.add_rows(graph, named).map_err(|why| format!("vertex type `{}`: {why}", shown(&graph.name)))?;
            let labels = dataset.labels.iter_mut().filter(|label| label.vertex_type == ty);
            labels.for_each(|label| label.values.add_unlabelled(named.len()));
        }
        Ok(())
    }
}

/// A vertex type like another one, without vertices.
pub(super) fn without_rows(of: &VertexTypeData) -> VertexTypeData {
    VertexTypeData {
        name: of.name.clone(),
        features: of.features.as_ref().map(Features::without_rows),
        fields: of
            .fields
            .iter()
            .map(|field| FieldData { name: field.name.clone(), values: field.values.without_rows() })
            .collect(),
        transforms: of.transforms.clone(),
        time: of.time.as_ref().map(|_| Vec::new()),
        ..VertexTypeData::default()
    }
}

/// By text of a list, its place.
pub(super) fn places(list: &[String]) -> HashMap<&str, u32> {
    list.iter().enumerate().map(|(at, text)| (&text[..], at as u32)).collect()
}
