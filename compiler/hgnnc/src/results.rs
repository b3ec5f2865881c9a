//! Results in the user's words: rows with the ids of the dataset, and names of classes.

#[cfg(feature = "parquet")]
pub(crate) mod parquet;

use std::collections::BTreeMap;

use hgnnc_dataset::{Dataset, VertexIds};
use hgnnc_driver::Analyzed;
use hgnnc_ir::outputs::FamilyRows;
use hgnnc_ir::training::is_of_loss;
use hgnnc_ir::{Dataflow, OutputKind, PathRows, Space, VertexType};
use hgnnc_train::OutputRows;

use crate::Error;
use crate::artifact::{Description, TargetForm, TaskForm};

/// Names of the rows and columns of a model's outputs.
#[derive(Clone, Default, Debug)]
pub struct Naming {
    /// By output: the ids of its vertices, if the dataset has them.
    ids: BTreeMap<String, Option<VertexIds>>,
    /// By output of edges to predict: the two ends of each edge.
    edges: BTreeMap<String, [EdgeEnds; 2]>,
    /// The ids of the vertices that edges of outputs join, by vertex type of the model, if the dataset has them.
    pub(crate) ends: BTreeMap<VertexType, VertexIds>,
    /// The trained output, and what it predicts.
    trained: Option<(String, Predicted)>,
}

/// An end of each edge of a relation.
#[derive(Clone, Default, Debug)]
struct EdgeEnds {
    vertices: Vec<u32>,
    /// The ids of the vertices, if the dataset has them.
    ids: Option<VertexIds>,
}

impl EdgeEnds {
    fn text(&self, edge: usize) -> String {
        let vertex = self.vertices[edge];
        self.ids.as_ref().map_or_else(|| vertex.to_string(), |ids| ids.text(vertex as usize).into_owned())
    }
}

/// Kind of prediction of an output, with the names of its columns.
#[derive(Clone, Debug)]
enum Predicted {
    /// One of these classes.
    Class(Vec<String>),
    /// Any of these classes.
    Classes(Vec<String>),
    /// Numbers of these names.
    Numbers(Vec<String>),
}

impl Naming {
    /// The names that a dataset gives to the outputs of a model. Names of classes are those of training, where they are
    /// known: the dataset may have no labels. Ends of edges are vertices of `graph`, which is the dataset with new
    /// vertices where some were added.
    pub(crate) fn new(model: &Analyzed, (dataset, graph): (&Dataset, &Dataset), description: &Description) -> Naming {
        let vertex = |name: &str| dataset.vertex_type(name).map(|ty| &dataset.vertex_types[ty]);
        let (mut ids, mut edges) = (BTreeMap::new(), BTreeMap::new());
        for output in &model.flow.outputs {
            let (OutputKind::Result(name), Space::Vertices(ty)) = (&output.kind, model.flow.ty(output.value).space)
            else {
                continue;
            };
            let of = vertex(&model.flow.vertex_types[ty.index()].dataset_name);
            ids.insert(name.clone(), of.and_then(|of| of.ids.clone()));
            if let Some(relation) = relation_of_rows(&model.flow, ty).and_then(|name| dataset.relation(name)) {
                let of = &dataset.relations[relation];
                let ends = |vertices: &Vec<u32>, ty: usize| EdgeEnds {
                    vertices: vertices.clone(),
                    ids: dataset.vertex_types[ty].ids.clone(),
                };
                edges.insert(name.clone(), [ends(&of.src_ids, of.src), ends(&of.dst_ids, of.dst)]);
            }
        }
        let mut ends = BTreeMap::new();
        let of_edges = model.families.iter().filter(|family| family.rows == FamilyRows::Edges);
        for (of_graph, _) in of_edges.flat_map(|family| &family.members) {
            let decl = &model.flow.graphs[of_graph.index()];
            for end in [decl.src, decl.dst] {
                if let Some(of) = graph.vertex_type(&model.flow.vertex_types[end.index()].dataset_name)
                    && let Some(of) = &graph.vertex_types[of].ids
                {
                    ends.entry(end).or_insert_with(|| of.clone());
                }
            }
        }
        let trained = description.evaluation.as_ref().and_then(|of| {
            let TargetForm::Label { classes, .. } = &of.target else { return None };
            let names = |count: usize| match &classes[..] {
                [] => (0..count).map(|class| class.to_string()).collect(),
                names => names.to_vec(),
            };
            let predicted = match of.task {
                TaskForm::Class { width } => Predicted::Class(names(width)),
                TaskForm::Multilabel { width } => Predicted::Classes(names(width)),
                TaskForm::Numbers { width } => Predicted::Numbers(names(width)),
                TaskForm::Links => return None,
            };
            Some((of.output.clone(), predicted))
        });
        Naming { ids, edges, ends, trained }
    }

    /// The name of the output of vertices, if there is one only.
    pub fn only_output(&self) -> Option<&str> {
        let mut all = self.ids.keys().filter(|name| !is_of_loss(name));
        all.next().filter(|_| all.next().is_none()).map(String::as_str)
    }

    fn predicted(&self, output: &str, width: usize) -> Option<&Predicted> {
        let (trained, predicted) = self.trained.as_ref()?;
        let (Predicted::Class(names) | Predicted::Classes(names) | Predicted::Numbers(names)) = predicted;
        (trained == output && names.len() == width).then_some(predicted)
    }

    /// Turns the logits of classes into probabilities: by softmax where a vertex has one class, each by itself where it
    /// has any of them.
    ///
    /// # Errors
    /// When the output predicts no classes.
    pub fn probabilities(&self, output: &str, rows: &mut OutputRows) -> Result<(), Error> {
        match self.predicted(output, rows.width) {
            Some(Predicted::Class(_)) => rows.data.chunks_exact_mut(rows.width.max(1)).for_each(softmax),
            Some(Predicted::Classes(_)) => {
                rows.data.iter_mut().for_each(|x| *x = (1.0 / (1.0 + (-f64::from(*x)).exp())) as f32);
            }
            _ => {
                return Err(Error::input(format!(
                    "`{output}` has no probabilities: they are of the output that is trained on classes"
                )));
            }
        }
        Ok(())
    }

    /// The table of an output: the id of each vertex (the number of its row where the dataset has no ids), or the number of
    /// each edge with the ids of both ends; its class, or its classes with `;` between them, where it predicts some; and a
    /// column for each of its numbers, unless it predicts classes and their probabilities were not asked for.
    /// `probabilities` says that [`Naming::probabilities`] were taken of the rows.
    pub fn table<'t>(&'t self, output: &'t str, rows: &'t OutputRows, probabilities: bool) -> ResultTable<'t> {
        let predicted = self.predicted(output, rows.width);
        let ids = self.ids.get(output).and_then(Option::as_ref).filter(|ids| ids.len() == rows.rows);
        let numbers = match predicted {
            Some(Predicted::Class(names) | Predicted::Classes(names)) => {
                if probabilities {
                    names.clone()
                } else {
                    Vec::new()
                }
            }
            Some(Predicted::Numbers(names)) => names.clone(),
            None => (0..rows.width).map(|column| format!("{output}.{column}")).collect(),
        };
        let edges = self.edges.get(output).filter(|ends| ends[0].vertices.len() == rows.rows);
        ResultTable { ids, edges, predicted, numbers, rows, least: if probabilities { 0.5 } else { 0.0 } }
    }

    /// [`Naming::table`] as CSV.
    ///
    /// # Errors
    /// When there is no memory for the text.
    pub fn csv(&self, output: &str, rows: &OutputRows, probabilities: bool) -> Result<Vec<u8>, Error> {
        self.table(output, rows, probabilities).csv()
    }
}

/// Results by row: what each format of a table prints.
#[derive(Clone, Debug)]
pub struct ResultTable<'t> {
    ids: Option<&'t VertexIds>,
    /// Of edges: the two ends of each.
    edges: Option<&'t [EdgeEnds; 2]>,
    predicted: Option<&'t Predicted>,
    /// Names of the columns of numbers; none if there are none.
    numbers: Vec<String>,
    rows: &'t OutputRows,
    /// Decision threshold of multi-label classes: a vertex has each class whose number is above it.
    least: f32,
}

impl ResultTable<'_> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.rows
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names of the columns.
    fn columns(&self) -> Vec<String> {
        let class = self.has_classes().then(|| "class".to_owned());
        let keys = if self.edges.is_some() { &["edge", "src", "dst"][..] } else { &["id"] };
        let keys = keys.iter().map(|key| (*key).to_owned());
        keys.chain(class).chain(self.numbers.iter().cloned()).collect()
    }

    fn has_classes(&self) -> bool {
        matches!(self.predicted, Some(Predicted::Class(_) | Predicted::Classes(_)))
    }

    /// The id of a vertex, or the number of an edge.
    fn id(&self, row: usize) -> String {
        self.ids.map_or_else(|| row.to_string(), |ids| ids.text(row).into_owned())
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.rows.data[row * self.rows.width..(row + 1) * self.rows.width]
    }

    /// The class of a row, or its classes with `;` between them; none where the output predicts none.
    fn class(&self, row: usize) -> Option<String> {
        let numbers = self.row(row);
        match self.predicted {
            Some(Predicted::Class(names)) => Some(names[first_largest(numbers)].clone()),
            Some(Predicted::Classes(names)) => {
                let chosen = names.iter().zip(numbers).filter(|(_, x)| **x > self.least).map(|(name, _)| &name[..]);
                Some(chosen.collect::<Vec<_>>().join(";"))
            }
            _ => None,
        }
    }

    /// The table as CSV.
    ///
    /// # Errors
    /// When there is no memory for the text.
    pub fn csv(&self) -> Result<Vec<u8>, Error> {
        let failed = |error: csv::Error| Error::Machine(format!("cannot write the results: {error}"));
        let mut out = csv::Writer::from_writer(Vec::new());
        out.write_record(self.columns()).map_err(failed)?;
        for row in 0..self.len() {
            let mut record = vec![self.id(row)];
            record.extend(self.edges.into_iter().flatten().map(|end| end.text(row)));
            record.extend(self.class(row));
            if !self.numbers.is_empty() {
                record.extend(self.row(row).iter().map(f32::to_string));
            }
            out.write_record(&record).map_err(failed)?;
        }
        out.into_inner().map_err(|error| Error::Machine(format!("cannot write the results: {error}")))
    }

    /// The table as Parquet: ids as 64-bit integers or texts, classes as texts, numbers as 32-bit floats.
    ///
    /// # Errors
    /// When it cannot be encoded, or there is no memory for it.
    #[cfg(feature = "parquet")]
    pub fn parquet(&self) -> Result<Vec<u8>, Error> {
        parquet::bytes(self.len(), &self.typed_columns())
            .map_err(|error| Error::Machine(format!("cannot write the results: {error}")))
    }

    /// A build without the feature `parquet` writes no Parquet.
    ///
    /// # Errors
    /// That of [`check_parquet`].
    #[cfg(not(feature = "parquet"))]
    pub fn parquet(&self) -> Result<Vec<u8>, Error> {
        check_parquet().map(|()| Vec::new())
    }
}

/// The relation of the dataset whose edges the vertices of a type are.
pub(crate) fn relation_of_rows(flow: &Dataflow, vertex: VertexType) -> Option<&str> {
    let path = flow.paths.iter().find(|path| path.rows == PathRows::Edges && path.vertex == vertex)?;
    Some(&flow.relations[path.steps.first()?.relation as usize].dataset_name)
}

/// Checks that this build writes Parquet, before there is something to write.
///
/// # Errors
/// When it does not.
pub fn check_parquet() -> Result<(), Error> {
    if cfg!(feature = "parquet") {
        return Ok(());
    }
    Err(Error::Machine(
        "this build writes no Parquet files; build with `cargo build --release --features parquet`, or write `.csv`"
            .into(),
    ))
}

/// The position of the largest number, the first of equal ones, as metrics count it.
fn first_largest(numbers: &[f32]) -> usize {
    let larger = |best: usize, at: usize| if numbers[at] > numbers[best] { at } else { best };
    (1..numbers.len()).fold(0, larger)
}

fn softmax(row: &mut [f32]) {
    let largest = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    let exp = |x: f32| f64::from(x - largest).exp();
    let sum: f64 = row.iter().map(|&x| exp(x)).sum();
    row.iter_mut().for_each(|x| *x = (exp(*x) / sum) as f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naming(predicted: Predicted) -> Naming {
        let ids = Some(["a,b", "ü"].into_iter().collect());
        Naming {
            ids: [("logits".into(), ids)].into(),
            edges: BTreeMap::new(),
            ends: BTreeMap::new(),
            trained: Some(("logits".into(), predicted)),
        }
    }

    fn rows(data: &[f32]) -> OutputRows {
        OutputRows { rows: 2, width: data.len() / 2, data: data.to_vec() }
    }

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_class_is_named_with_the_id_of_its_vertex() {
        let naming = naming(Predicted::Class(names(&["cat", "dog"])));
        let mut rows = rows(&[1.0, 3.0, 2.0, 2.0]);
        let text = naming.csv("logits", &rows, false).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "id,class\n\"a,b\",dog\nü,cat\n");
        naming.probabilities("logits", &mut rows).unwrap();
        let text = String::from_utf8(naming.csv("logits", &rows, true).unwrap()).unwrap();
        assert!(text.starts_with("id,class,cat,dog\n\"a,b\",dog,0.1192"), "{text}");
        assert!(text.ends_with("ü,cat,0.5,0.5\n"), "{text}");
    }

    #[test]
    fn several_classes_are_those_above_one_half() {
        let naming = naming(Predicted::Classes(names(&["x", "y", "z"])));
        let mut rows = rows(&[1.0, -3.0, 2.0, -2.0, -1.0, -1.0]);
        let text = String::from_utf8(naming.csv("logits", &rows, false).unwrap()).unwrap();
        assert_eq!(text, "id,class\n\"a,b\",x;z\nü,\n");
        naming.probabilities("logits", &mut rows).unwrap();
        assert!((rows.data[0] - 0.731_058_6).abs() < 1e-6);
        let text = String::from_utf8(naming.csv("logits", &rows, true).unwrap()).unwrap();
        assert!(text.starts_with("id,class,x,y,z\n\"a,b\",x;z,0.7310"), "{text}");
    }

    #[test]
    fn edges_are_named_by_their_ends() {
        let mut naming = naming(Predicted::Class(names(&["honest", "fraud"])));
        let ids = Some(["u", "v"].into_iter().collect());
        let ends = [EdgeEnds { vertices: vec![1, 0], ids }, EdgeEnds { vertices: vec![7, 9], ids: None }];
        naming.edges.insert("logits".into(), ends);
        // The vertices of the dataset have ids, its edges none.
        naming.ids.insert("logits".into(), None);
        let text = String::from_utf8(naming.csv("logits", &rows(&[1.0, 3.0, 2.0, 1.0]), false).unwrap()).unwrap();
        assert_eq!(text, "edge,src,dst,class\n0,v,7,fraud\n1,u,9,honest\n");
    }

    #[test]
    fn numbers_have_columns_and_no_probabilities() {
        let naming = naming(Predicted::Numbers(names(&["age"])));
        let text = String::from_utf8(naming.csv("logits", &rows(&[1.5, 2.0]), false).unwrap()).unwrap();
        assert_eq!(text, "id,age\n\"a,b\",1.5\nü,2\n");
        assert!(naming.probabilities("logits", &mut rows(&[1.5, 2.0])).is_err());
        // An output that nothing is known of.
        let text = String::from_utf8(naming.csv("h", &rows(&[1.5, 2.0]), false).unwrap()).unwrap();
        assert_eq!(text, "id,h.0\n0,1.5\n1,2\n");
    }
}
