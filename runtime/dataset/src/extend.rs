//! A dataset with new vertices and edges, which another dataset of the same schema holds: what a trained model is asked
//! about, beside the graph that it was trained on.
//!
//! Vertices are the same where their ids are. A type without ids has positions instead: the integer ids of the new
//! dataset are positions in the graph, and new vertices have those that follow. Nothing of the graph is changed: what
//! the new dataset says of vertices that are there already is ignored.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use crate::dataset::{
    Dataset, DenseFeatures, Features, MetapathData, RelationData, Transform, TransformKind, VertexIds, VertexTypeData,
};

/// Reasons why a dataset does not extend another one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct ExtendErrors(pub Vec<String>);

/// A graph with new vertices and edges.
#[derive(Debug)]
pub struct Extended {
    /// The graph: its own vertices and edges first, then the new ones, in their order. New vertices have no labels and
    /// belong to no split.
    pub dataset: Dataset,
    /// By vertex type of the graph: the vertices of the new dataset in it, in their order.
    pub vertices: Vec<Vec<u32>>,
    /// By vertex type: how many of them are new.
    pub added: Vec<usize>,
}

impl Dataset {
    /// Adds the vertices and edges of `new`.
    ///
    /// # Errors
    /// Vertex types and relations that this dataset does not have, vertices without ids, and new vertices or edges that
    /// lack features or weights, or whose features were made of columns in another way.
    pub fn extended(&self, new: &Dataset) -> Result<Extended, ExtendErrors> {
        let mut wrong = vec![];
        let mut places: Vec<Places> = self.vertex_types.iter().map(|_| Places::default()).collect();
        let mut sources: Vec<Option<&VertexTypeData>> = vec![None; self.vertex_types.len()];
        for data in &new.vertex_types {
            let Some(ty) = self.vertex_type(&data.name) else {
                let names: Vec<String> = self.vertex_types.iter().map(|of| format!("`{}`", of.name)).collect();
                wrong.push(format!("the graph has no vertex type `{}`; it has {}", data.name, names.join(", ")));
                continue;
            };
            match Places::of(&self.vertex_types[ty], data) {
                Ok(found) => (places[ty], sources[ty]) = (found, Some(data)),
                Err(why) => wrong.push(format!("vertex type `{}`: {why}", data.name)),
            }
        }
        let mut dataset = Dataset {
            folder: PathBuf::new(),
            // Counts of metapaths are of the graph as it was.
            metapaths: self
                .metapaths
                .iter()
                .map(|path| MetapathData {
                    pairs: None,
                    self_pairs: None,
                    instances: None,
                    max_degree: None,
                    ..path.clone()
                })
                .collect(),
            ..self.clone()
        };
        for ((data, places), source) in dataset.vertex_types.iter_mut().zip(&places).zip(&sources) {
            let Some(source) = source.filter(|_| !places.new.is_empty()) else { continue };
            if let Err(why) = data.add_rows(source, &places.new) {
                wrong.push(format!("vertex type `{}`: {why}", data.name));
            }
        }
        for label in &mut dataset.labels {
            label.values.add_unlabelled(places[label.vertex_type].new.len());
        }
        for data in &new.relations {
            let Some(of) = self.relation(&data.name) else {
                let names: Vec<String> = self.relations.iter().map(|of| format!("`{}`", of.name)).collect();
                wrong.push(format!("the graph has no relation `{}`; it has {}", data.name, names.join(", ")));
                continue;
            };
            let relation = &mut dataset.relations[of];
            let ends = [(relation.src, data.src), (relation.dst, data.dst)];
            let name = |of: usize| &new.vertex_types[of].name;
            if ends.iter().any(|&(of, end)| self.vertex_types[of].name != *name(end)) {
                wrong.push(format!(
                    "relation `{}`: it goes from `{}` to `{}`, in the graph from `{}` to `{}`",
                    data.name,
                    name(data.src),
                    name(data.dst),
                    self.vertex_types[relation.src].name,
                    self.vertex_types[relation.dst].name
                ));
                continue;
            }
            // Places are missing only of types that were refused.
            if ends.iter().any(|&(of, end)| places[of].all.len() != new.vertex_types[end].count) {
                continue;
            }
            let ends = [&places[relation.src].all[..], &places[relation.dst].all[..]];
            if let Err(why) = add_edges(relation, data, ends) {
                wrong.push(format!("relation `{}`: {why}", data.name));
            }
        }
        if !wrong.is_empty() {
            return Err(ExtendErrors(wrong));
        }
        let added = places.iter().map(|places| places.new.len()).collect();
        Ok(Extended { dataset, vertices: places.into_iter().map(|places| places.all).collect(), added })
    }
}

/// Where the vertices of a new dataset are in the graph.
#[derive(Default)]
struct Places {
    /// By vertex of the new dataset.
    all: Vec<u32>,
    /// The new ones among them, in the order of their places.
    new: Vec<usize>,
}

impl Places {
    fn of(graph: &VertexTypeData, new: &VertexTypeData) -> Result<Self, String> {
        if new.count == 0 {
            return Ok(Self::default());
        }
        if graph.count + new.count >= u32::MAX as usize {
            return Err("there would be 2^32 vertices or more".into());
        }
        match (&graph.ids, &new.ids) {
            (Some(known), Some(ids)) => Self::by_id(known, ids),
            (None, Some(VertexIds::Integer(ids))) => Self::by_position(graph.count, ids),
            (None, Some(VertexIds::Text { .. })) => Err(
                "the vertices of the graph have no ids, so those of new data are their positions in it, and integers"
                    .into(),
            ),
            (Some(_), None) => Err("give its vertices ids, which tell those that the graph has from new ones".into()),
            (None, None) => Err(format!(
                "give its vertices ids: their positions in the graph, from {} on for new ones",
                graph.count
            )),
        }
    }

    fn by_id(known: &VertexIds, ids: &VertexIds) -> Result<Self, String> {
        const NEW: u32 = u32::MAX;
        let mut of_id = HashMap::with_capacity(ids.len());
        for vertex in 0..ids.len() {
            let id = ids.text(vertex);
            if of_id.insert(id.clone(), vertex).is_some() {
                return Err(format!("the id `{id}` is given twice"));
            }
        }
        let mut all = vec![NEW; ids.len()];
        for place in 0..known.len() {
            if let Some(&vertex) = of_id.get(&known.text(place)) {
                all[vertex] = place as u32;
            }
        }
        let new: Vec<usize> = (0..all.len()).filter(|&vertex| all[vertex] == NEW).collect();
        new.iter().zip(known.len() as u32..).for_each(|(&vertex, place)| all[vertex] = place);
        Ok(Self { all, new })
    }

    fn by_position(count: usize, ids: &[i64]) -> Result<Self, String> {
        let mut new: Vec<usize> = (0..ids.len()).filter(|&vertex| ids[vertex] >= count as i64).collect();
        new.sort_by_key(|&vertex| ids[vertex]);
        let mut seen = BTreeSet::new();
        for &id in ids {
            if id < 0 || id >= (count + new.len()) as i64 {
                return Err(format!(
                    "the id {id} is no position: the graph has 0 to {}, and {} new vertices follow",
                    count.saturating_sub(1),
                    new.len()
                ));
            }
            if !seen.insert(id) {
                return Err(format!("the id {id} is given twice"));
            }
        }
        Ok(Self { all: ids.iter().map(|&id| id as u32).collect(), new })
    }
}

/// Refuses features that were made of columns in another way than those of the graph, since equal numbers would mean
/// something else. What stands for a missing value is not compared: where none is missing, it changes nothing.
fn made_alike(graph: &[Transform], new: &[Transform]) -> Result<(), String> {
    let alike = |(a, b): (&Transform, &Transform)| {
        let kinds = match (&a.kind, &b.kind) {
            (
                TransformKind::Numbers { shift, scale, missing: _ },
                TransformKind::Numbers { shift: of_shift, scale: of_scale, missing: _ },
            ) => (shift, scale) == (of_shift, of_scale),
            (a, b) => a == b,
        };
        kinds && a.columns == b.columns
    };
    if graph.len() == new.len() && graph.iter().zip(new).all(alike) {
        return Ok(());
    }
    let differs = graph.iter().zip(new).find(|&pair| !alike(pair)).map(|(graph, _)| graph);
    let columns = differs.or(graph.first()).or(new.first()).map_or(String::new(), |of| of.columns.join("`, `"));
    Err(format!(
        "the features of `{columns}` were made in another way than those of the graph, so their numbers mean something \
         else: fitted scales and categories are of the table that they were fitted to; import the new rows with \
         `hgnnc data import … --like GRAPH`"
    ))
}

impl VertexTypeData {
    /// Adds the vertices `rows` of a type of another dataset, with their features, ids and times.
    ///
    /// # Errors
    /// When the other type has no features and this one has, or they are made in another way.
    pub fn add_rows(&mut self, source: &VertexTypeData, rows: &[usize]) -> Result<(), String> {
        if self.features.is_some() && source.features.is_some() {
            made_alike(&self.transforms, &source.transforms)?;
        }
        match (&mut self.features, &source.features) {
            (None, _) => {}
            (Some(_), None) => return Err("its new vertices have no features, and those of the graph have".into()),
            (Some(known), Some(new)) => add_features(known, new, rows, "its features")?,
        }
        for field in &mut self.fields {
            let name = &field.name;
            let Some(new) = source.features_of(Some(name)) else {
                return Err(format!("its new vertices have no field `{name}`, and those of the graph have"));
            };
            add_features(&mut field.values, new, rows, &format!("the rows of `{name}`"))?;
        }
        self.ids = match (self.ids.take(), &source.ids) {
            (Some(VertexIds::Integer(mut known)), Some(VertexIds::Integer(new))) => {
                known.extend(rows.iter().map(|&vertex| new[vertex]));
                Some(VertexIds::Integer(known))
            }
            (Some(known), Some(new)) => {
                let known = (0..known.len()).map(|vertex| known.text(vertex).into_owned());
                let all: Vec<String> = known.chain(rows.iter().map(|&vertex| new.text(vertex).into_owned())).collect();
                Some(all.iter().map(String::as_str).collect())
            }
            _ => None,
        };
        self.time = match (self.time.take(), &source.time) {
            (Some(mut known), Some(new)) => {
                known.extend(rows.iter().map(|&vertex| new[vertex]));
                Some(known)
            }
            _ => None,
        };
        self.kinds = None;
        self.count += rows.len();
        Ok(())
    }
}

/// Adds some rows of features, which messages call `what`.
fn add_features(known: &mut Features, new: &Features, rows: &[usize], what: &str) -> Result<(), String> {
    if known.dim() != new.dim() {
        return Err(format!("{what} have {} columns, those of the graph {}", new.dim(), known.dim()));
    }
    if known.is_sparse() != new.is_sparse() {
        let kind = |features: &Features| if features.is_sparse() { "sparse (CSR)" } else { "dense" };
        return Err(format!("{what} are {}, those of the graph {}", kind(new), kind(known)));
    }
    known.extend(new, rows.iter().copied());
    Ok(())
}

/// Feature rows with some of others behind them.
fn with_rows(known: &DenseFeatures, new: &DenseFeatures, rows: impl Iterator<Item = usize>) -> DenseFeatures {
    let mut all = known.rows.to_vec();
    rows.for_each(|row| all.extend_from_slice(new.row(row)));
    DenseFeatures { dim: known.dim, rows: all.into() }
}

fn add_edges(relation: &mut RelationData, new: &RelationData, [src, dst]: [&[u32]; 2]) -> Result<(), String> {
    let count = new.num_edges();
    if count == 0 {
        return Ok(());
    }
    relation.weight = match (relation.weight.take(), &new.weight) {
        (Some(known), Some(new)) => Some([&known[..], &new[..]].concat().into()),
        (Some(_), None) => return Err("its edges have no weight, and those of the graph have".into()),
        (None, _) => None,
    };
    if relation.features.is_some() && new.features.is_some() {
        made_alike(&relation.transforms, &new.transforms)?;
    }
    relation.features = match (relation.features.take(), &new.features) {
        (Some(known), Some(new)) if known.dim == new.dim => Some(with_rows(&known, new, 0..count)),
        (Some(known), Some(new)) => {
            return Err(format!(
                "the features of its edges have {} columns, those of the graph {}",
                new.dim, known.dim
            ));
        }
        (Some(_), None) => return Err("its edges have no features, and those of the graph have".into()),
        (None, _) => None,
    };
    relation.time = match (relation.time.take(), &new.time) {
        (Some(known), Some(new)) => Some([&known[..], &new[..]].concat()),
        _ => None,
    };
    // New edges are there to be predicted.
    relation.labels.iter_mut().for_each(|label| label.values.add_unlabelled(count));
    relation.src_ids.extend(new.src_ids.iter().map(|&vertex| src[vertex as usize]));
    relation.dst_ids.extend(new.dst_ids.iter().map(|&vertex| dst[vertex as usize]));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{FieldData, LabelData, LabelValues, SparseFeatures};

    fn text(ids: &[&str]) -> Option<VertexIds> {
        Some(ids.iter().copied().collect())
    }

    /// Authors with ids and dense features, papers by position with sparse features, and who writes what.
    fn dataset(authors: Option<VertexIds>, papers: Option<VertexIds>, writes: &[(u32, u32)]) -> Dataset {
        let count = |ids: &Option<VertexIds>| ids.as_ref().map_or(2, VertexIds::len);
        let (num_authors, num_papers) = (count(&authors), count(&papers));
        let dense = DenseFeatures { dim: 1, rows: (0..num_authors).map(|v| v as f32).collect::<Vec<_>>().into() };
        let sparse = SparseFeatures {
            dim: 3,
            indptr: (0..=num_papers as u64).collect(),
            indices: (0..num_papers as u32).map(|v| v % 3).collect(),
            data: vec![1.0; num_papers].into(),
        };
        let author = VertexTypeData {
            name: "author".into(),
            count: num_authors,
            fields: vec![FieldData { name: "age".into(), values: Features::Dense(dense.clone()) }],
            features: Some(Features::Dense(dense)),
            ids: authors,
            ..VertexTypeData::default()
        };
        let paper = VertexTypeData {
            name: "paper".into(),
            count: num_papers,
            features: Some(Features::Sparse(sparse)),
            ids: papers,
            ..VertexTypeData::default()
        };
        let relation = RelationData {
            name: "writes".into(),
            src: 0,
            dst: 1,
            src_ids: writes.iter().map(|edge| edge.0).collect(),
            dst_ids: writes.iter().map(|edge| edge.1).collect(),
            weight: Some(writes.iter().map(|edge| edge.0 as f32).collect::<Vec<_>>().into()),
            ..RelationData::default()
        };
        let label = LabelData {
            name: "y".into(),
            vertex_type: 1,
            values: LabelValues::Single { classes: 2, of: vec![0; num_papers] },
            class_names: vec![],
        };
        Dataset {
            vertex_types: vec![author, paper],
            relations: vec![relation],
            labels: vec![label],
            ..Dataset::default()
        }
    }

    fn graph() -> Dataset {
        dataset(text(&["ada", "bob"]), None, &[(0, 0), (1, 1)])
    }

    #[test]
    fn known_vertices_are_found_and_new_ones_follow() {
        let new = dataset(text(&["cyd", "ada"]), Some(VertexIds::Integer(vec![3, 1, 2])), &[(0, 0), (1, 2), (0, 1)]);
        let Extended { dataset, vertices, added } = graph().extended(&new).unwrap();
        assert_eq!(vertices, [vec![2, 0], vec![3, 1, 2]]);
        assert_eq!(added, [1, 2]);
        let [author, paper] = &dataset.vertex_types[..] else { panic!() };
        assert_eq!((author.count, paper.count), (3, 4));
        assert_eq!(author.ids.as_ref().unwrap().text(2), "cyd");
        let (Some(Features::Dense(x)), Some(Features::Sparse(y))) = (&author.features, &paper.features) else {
            panic!()
        };
        // The new author is the first row of its dataset, papers 2 and 3 are its rows 2 and 0.
        assert_eq!(x.rows[..], [0.0, 1.0, 0.0]);
        let Some(Features::Dense(age)) = author.features_of(Some("age")) else { panic!() };
        assert_eq!(age.rows[..], [0.0, 1.0, 0.0]);
        assert_eq!((&y.indptr[..], &y.indices[..]), (&[0, 1, 2, 3, 4][..], &[0, 1, 2, 0][..]));
        let writes = &dataset.relations[0];
        assert_eq!((&writes.src_ids[..], &writes.dst_ids[..]), (&[0, 1, 2, 0, 2][..], &[0, 1, 3, 2, 1][..]));
        assert_eq!(writes.weight.as_ref().unwrap().len(), 5);
        assert_eq!(dataset.labels[0].values, LabelValues::Single { classes: 2, of: vec![0, 0, -1, -1] });
    }

    #[test]
    fn nothing_new_changes_nothing() {
        let none = dataset(text(&[]), Some(VertexIds::Integer(vec![])), &[]);
        let same = graph().extended(&none).unwrap();
        assert_eq!(same.added, [0, 0]);
        assert_eq!(same.dataset.relations[0].src_ids, graph().relations[0].src_ids);
    }

    #[test]
    fn features_of_another_scale_are_refused() {
        let scaled = |shift: f64, missing: f64| Transform {
            columns: vec!["age".into()],
            kind: TransformKind::Numbers { shift: vec![shift], scale: vec![1.0], missing: vec![missing] },
        };
        let with = |transform: Transform| {
            let mut dataset = dataset(text(&["cyd"]), Some(VertexIds::Integer(vec![0])), &[]);
            dataset.vertex_types[0].transforms = vec![transform];
            dataset
        };
        let mut known = graph();
        known.vertex_types[0].transforms = vec![scaled(2.0, 0.5)];
        assert_eq!(known.extended(&with(scaled(2.0, 0.25))).unwrap().added, [1, 0]);
        let wrong = known.extended(&with(scaled(3.0, 0.5))).unwrap_err().to_string();
        assert!(wrong.contains("vertex type `author`: the features of `age` were made in another way"), "{wrong}");
        assert!(graph().extended(&with(scaled(2.0, 0.5))).is_err());
    }

    #[test]
    fn all_mistakes_are_told() {
        let papers = |ids: &[i64]| Some(VertexIds::Integer(ids.to_vec()));
        let said = |new: &Dataset| graph().extended(new).unwrap_err().to_string();
        let wrong = said(&dataset(None, papers(&[7]), &[]));
        assert!(wrong.contains("vertex type `author`: give its vertices ids"), "{wrong}");
        assert!(
            wrong.contains("vertex type `paper`: the id 7 is no position: the graph has 0 to 1, and 1 new"),
            "{wrong}"
        );
        let wrong = said(&dataset(text(&["x", "x"]), papers(&[1, 1]), &[]));
        assert!(wrong.contains("the id `x` is given twice") && wrong.contains("the id 1 is given twice"), "{wrong}");
        let wrong = said(&dataset(text(&[]), None, &[]));
        assert!(wrong.contains("their positions in the graph, from 2 on for new ones"), "{wrong}");
        let wrong = said(&dataset(text(&[]), text(&["p"]), &[]));
        assert!(wrong.contains("and integers"), "{wrong}");

        let mut other = dataset(text(&["cyd"]), papers(&[2]), &[(0, 0)]);
        other.vertex_types[0].features = None;
        other.relations[0].weight = None;
        let wrong = said(&other);
        assert!(wrong.contains("its new vertices have no features") && wrong.contains("no weight"), "{wrong}");
        let mut other = dataset(text(&["cyd"]), papers(&[2]), &[]);
        other.vertex_types[0].fields.clear();
        assert!(said(&other).contains("its new vertices have no field `age`, and those of the graph have"));
        let sparse = other.vertex_types[1].features.clone();
        other.vertex_types[0].fields =
            sparse.map(|values| FieldData { name: "age".into(), values }).into_iter().collect();
        assert!(said(&other).contains("the rows of `age` have 3 columns, those of the graph 1"));
        let mut other = dataset(text(&["cyd"]), papers(&[2]), &[(0, 0)]);
        (other.vertex_types[0].name, other.relations[0].name) = ("writer".into(), "wrote".into());
        let wrong = said(&other);
        assert!(wrong.contains("no vertex type `writer`; it has `author`, `paper`"), "{wrong}");
        assert!(wrong.contains("no relation `wrote`; it has `writes`"), "{wrong}");
        let mut other = dataset(text(&["cyd"]), papers(&[2]), &[]);
        (other.relations[0].src, other.relations[0].dst) = (1, 0);
        assert!(said(&other).contains("it goes from `paper` to `author`, in the graph from `author` to `paper`"));
    }
}
