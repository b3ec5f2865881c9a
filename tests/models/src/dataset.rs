//! A world as an in-memory dataset, to test the runtime's binding of datasets.

use hgnnc_dataset::{
    Dataset, DenseFeatures, EdgeLabel, EdgeSplit, Features, FieldData, LabelData, LabelValues, RelationData,
    SparseFeatures, SplitData, VertexTypeData,
};
use hgnnc_interp::{Bindings, Tensor};
use hgnnc_ir::dataflow::{Binding, InputDecl, Matrix};
use hgnnc_ir::types::DType;
use hgnnc_ir::{Dataflow, Input, PathRows, VertexType};

use crate::world::World;

/// The dataset that the model's program is bound to in this world. Its names are those by which the model names the
/// dataset's items; the training vertices are the split `std`. It has no path instances and no edges as vertices: the
/// runtime lists them. Labels and splits of these edges are those of their relation.
pub fn dataset(flow: &Dataflow, bindings: &Bindings, world: &World) -> Dataset {
    let mut dataset = Dataset { name: "world".into(), ..Dataset::default() };
    let is_path = |vertex: usize| flow.paths.iter().any(|path| path.vertex.index() == vertex);
    for (index, (decl, &count)) in flow.vertex_types.iter().zip(&bindings.num_vertices).enumerate() {
        if is_path(index) {
            continue;
        }
        dataset.vertex_types.push(VertexTypeData {
            name: decl.dataset_name.clone(),
            count,
            ..VertexTypeData::default()
        });
    }
    for decl in flow.relations.iter().filter(|decl| ![decl.src, decl.dst].iter().any(|end| is_path(end.index()))) {
        let edges = world.relation(&decl.name);
        dataset.relations.push(RelationData {
            name: decl.dataset_name.clone(),
            src: decl.src.index(),
            dst: decl.dst.index(),
            src_ids: edges.iter().map(|e| e.0).collect(),
            dst_ids: edges.iter().map(|e| e.1).collect(),
            ..RelationData::default()
        });
    }
    // The relation whose edges are a vertex type. Relations of the schema come first in both tables.
    let relation_of = |vertex: VertexType| {
        let path = flow.paths.iter().find(|path| path.rows == PathRows::Edges && path.vertex == vertex)?;
        Some(path.steps[0].relation as usize)
    };
    for (index, decl) in flow.inputs.iter().enumerate() {
        // Ranks of edges and counters are no data.
        let Some(tensor) = bindings.inputs.get(&Input::new(index)) else { continue };
        let numbers: Vec<f32> = tensor.data.iter().map(|&x| x as f32).collect();
        match &decl.binding {
            Binding::Features(vertex, matrix) => {
                let features = if decl.ty.is_sparse() {
                    sparse(tensor.width, &numbers)
                } else {
                    Features::Dense(DenseFeatures { dim: tensor.width, rows: numbers.into() })
                };
                let compared = |input: &InputDecl| matches!(&input.binding, Binding::Label(of, _) if of == vertex);
                if let Matrix::TrainLabels(name) = matrix
                    && !flow.inputs.iter().any(compared)
                {
                    known_labels(&mut dataset, (*vertex, name), world, tensor);
                }
                let of = &mut dataset.vertex_types[vertex.index()];
                match matrix {
                    Matrix::Field(name) => of.fields.push(FieldData { name: name.clone(), values: features }),
                    Matrix::Features => of.features = Some(features),
                    // Made of labels and the training part.
                    Matrix::TrainLabels(_) => {}
                }
            }
            Binding::Label(vertex, name) => {
                let labelled = vec![true; tensor.rows];
                let values = match (decl.ty.dtype, tensor.width) {
                    (DType::I32, _) => {
                        LabelValues::Single { classes: 3, of: numbers.iter().map(|&x| x as i32).collect() }
                    }
                    (_, dim) => LabelValues::Real { dim, rows: numbers, labelled },
                };
                // The model's own name: `check_dataset` resolves the dataset's name for it.
                let (name, class_names) = (name.clone(), vec![]);
                match relation_of(*vertex) {
                    Some(of) => dataset.relations[of].labels.push(EdgeLabel { name, values, class_names }),
                    None => {
                        dataset.labels.push(LabelData { name, vertex_type: vertex.index(), values, class_names });
                    }
                }
            }
            Binding::TrainMask(vertex) => {
                let train = (0..).zip(&numbers).filter(|(_, x)| **x > 0.0).map(|(v, _)| v).collect();
                let (name, val, test) = ("std".into(), vec![], vec![]);
                match relation_of(*vertex) {
                    Some(of) => dataset.relations[of].splits.push(EdgeSplit { name, train, val, test }),
                    None => dataset.splits.push(SplitData { name, vertex_type: vertex.index(), train, val, test }),
                }
            }
            // Of edges to predict, which are in the order of the dataset.
            Binding::EdgeWeight(graph) => {
                if let Some(of) = relation_of(flow.graphs[graph.index()].dst) {
                    dataset.relations[of].weight = Some(numbers.into());
                }
            }
            Binding::EdgeFeatures(graph) => {
                if let Some(of) = relation_of(flow.graphs[graph.index()].dst) {
                    dataset.relations[of].features = Some(DenseFeatures { dim: tensor.width, rows: numbers.into() });
                }
            }
            Binding::Time(vertex) => {
                dataset.vertex_types[vertex.index()].time = Some(numbers.iter().map(|&time| time as i64).collect());
            }
            Binding::EdgeTime(graph) => {
                if let Some(of) = relation_of(flow.graphs[graph.index()].dst) {
                    dataset.relations[of].time = Some(numbers.iter().map(|&time| time as i64).collect());
                }
            }
            Binding::EdgeCount(_)
            | Binding::EdgeRank(..)
            | Binding::IsLink(_)
            | Binding::Given(_)
            | Binding::Precomputed(..)
            | Binding::StepNumber
            | Binding::EpochNumber => {}
        }
    }
    dataset
}

/// The label and the split of a vertex type that labels of the training part are the rows of.
fn known_labels(dataset: &mut Dataset, (vertex, name): (VertexType, &str), world: &World, rows: &Tensor) {
    let of_type = &dataset.vertex_types[vertex.index()].name;
    let (classes, name) = (rows.width, name.to_owned());
    let values = LabelValues::Single { classes, of: world.classes(of_type, classes) };
    let train = (0..).zip(world.trained(of_type)).filter(|(_, trained)| *trained).map(|(v, _)| v).collect();
    let vertex_type = vertex.index();
    dataset.labels.push(LabelData { name, vertex_type, values, class_names: vec![] });
    dataset.splits.push(SplitData { name: "std".into(), vertex_type, train, val: vec![], test: vec![] });
}

fn sparse(dim: usize, dense: &[f32]) -> Features {
    let (mut indptr, mut indices, mut data) = (vec![0], vec![], vec![]);
    for row in dense.chunks(dim) {
        for (column, &x) in (0..).zip(row).filter(|(_, x)| **x != 0.0) {
            indices.push(column);
            data.push(x);
        }
        indptr.push(indices.len() as u64);
    }
    Features::Sparse(SparseFeatures { dim, indptr, indices, data: data.into() })
}
