//! A checked model with its program, and its names in a dataset.

use hgnnc_declare::schema::{FieldInfo, Schema};
use hgnnc_diag::{FileId, Span};
use hgnnc_hir as hir;
use hgnnc_ir::dataflow::{Binding, InputDecl, Matrix, PatternDecl, train_labels};
use hgnnc_ir::optimizer::{Optimizer, OptimizerOptions};
use hgnnc_ir::outputs::FamilyOutput;
use hgnnc_ir::training::{Target, Training};
use hgnnc_ir::{Dataflow, Layout, OutputKind, PathDecl, PathRows, Table};
use hgnnc_lower::{Program, instantiate_with};
use hgnnc_sema::TrainSpec;
use hgnnc_sema::dataset::{DatasetSummary, RowsOf, find_features, find_label};
use hgnnc_sema::dataset_names::DatasetNames;

use crate::cutoff::with_rows;

/// A model without errors, and its program.
pub struct Analyzed {
    /// Name of the model.
    pub name: String,
    /// The forward program in training mode (with dropout). Results: the outputs, and those of the loss where there
    /// is a train block. Outputs of edges are there once they are asked for.
    pub flow: Dataflow,
    /// The outputs of semantic graphs and of edges that the program has.
    pub families: Vec<FamilyOutput>,
    /// The typed model that the program was made of.
    pub typed: hir::Model,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// The schema of the model.
    pub schema: Schema,
    /// The train block, where there is one.
    pub train: Option<TrainSpec>,
    /// The split that the train block names. Labels that are values of the model are those of its training part, also
    /// where training is forgotten.
    pub split: Option<String>,
    /// The forward program of which those of mini-batches are made, if it is another one: passes on the program of the
    /// whole graph change tables, and batches have tables of their own.
    pub of_batches: Option<Dataflow>,
    /// The program that computes the inputs [`Binding::Precomputed`] of the others over the whole graph, if they have any.
    /// Its inputs are the first ones of the forward program.
    pub precomputed: Option<Dataflow>,
    /// Decisions about the program before it is bound to data, for `--explain`.
    pub explanations: Vec<String>,
}

impl Analyzed {
    /// A model that is evaluated and not trained, of its forward program with the names of a dataset. It has no source:
    /// its typed model and schema are empty, and lowering must be told so
    /// ([`LowerOptions::evaluation_only`](crate::LowerOptions)), since it has no optimizer either.
    pub fn for_evaluation(
        flow: Dataflow,
        outputs: Vec<String>,
        families: Vec<FamilyOutput>,
        training: Option<Training>,
    ) -> Self {
        let split = training.as_ref().and_then(|training| training.split.clone());
        let sgd = Optimizer::Sgd { lr: 0.0, momentum: 0.0, nesterov: false, weight_decay: 0.0 };
        let train = training.map(|training| TrainSpec {
            training,
            optimizer: OptimizerOptions::new(sgd),
            split_span: None,
            cutoff: None,
            label_fields: vec![],
            held_out: true,
            span: Span { file: FileId(0), start: 0, end: 0 },
        });
        Self {
            name: flow.name.clone(),
            flow,
            families,
            typed: hir::Model::default(),
            outputs,
            schema: Schema::default(),
            train,
            split,
            of_batches: None,
            precomputed: None,
            explanations: vec![],
        }
    }

    /// Names of the outputs that inference writes: all but scores of pairs.
    pub fn inferred(&self) -> impl Iterator<Item = &str> {
        let of_pairs = |output: &hir::Output| matches!(output.of, hir::OutputOf::Links(_));
        self.typed.outputs.iter().filter(move |(_, output)| !of_pairs(output)).map(|(name, _)| name.as_str())
    }

    /// Removes the outputs that are not of vertices, and gives the name of the first one that is of links.
    pub fn keep_vertex_outputs(&mut self) -> Option<String> {
        let of_links = |(_, output): &(&String, &hir::Output)| matches!(output.of, hir::OutputOf::Links(_));
        let first = self.typed.outputs.iter().find(of_links).map(|(name, _)| name.clone());
        let typed = &self.typed.outputs;
        let is_of_vertices =
            |name: &String| matches!(typed.get(name), Some(hir::Output { of: hir::OutputOf::Vertices(..), .. }));
        self.outputs.retain(is_of_vertices);
        self.families.clear();
        first
    }

    /// Adds an output of edges to the program. To be called before the model meets a dataset. No effect on other outputs,
    /// which the program has anyway.
    pub fn ask_for(&mut self, output: &str) {
        if matches!(self.typed.outputs.get(output), Some(hir::Output { of: hir::OutputOf::Edges(_), .. })) {
            let program = self.program(|name| name == output);
            (self.flow, self.families) = (program.flow, program.families);
        }
    }

    /// The program of the typed model, with those of its outputs of edges that are `wanted`.
    fn program(&self, wanted: impl Fn(&str) -> bool) -> Program {
        let mut program = instantiate_with(&self.typed, wanted);
        program.flow =
            with_rows(program.flow, &self.schema).expect("the check of a cutoff has made rows of all outputs");
        program
    }

    /// The forward program with all outputs, with the names of the dataset that the model was bound to, and without
    /// graphs that only passes declare. Outputs of edges that read parameters of their own are left out, since training
    /// does not change these parameters.
    pub fn complete_program(&self) -> (Dataflow, Vec<FamilyOutput>) {
        let same_params = |flow: &Dataflow| flow.params == self.flow.params;
        let mut program = self.program(|_| true);
        if !same_params(&program.flow) {
            program = self.program(|_| false);
        }
        let flow = &mut program.flow;
        flow.vertex_types.clone_from(&self.flow.vertex_types);
        flow.relations.clone_from(&self.flow.relations);
        let with_names = |binding: &Binding| matches!(binding, Binding::Label(..) | Binding::Features(..));
        for input in flow.inputs.iter_mut().filter(|input| with_names(&input.binding)) {
            if let Some(bound) = self.flow.inputs.iter().find(|bound| bound.name == input.name) {
                input.binding.clone_from(&bound.binding);
                name_pattern(&mut flow.patterns, input);
            }
        }
        (program.flow, program.families)
    }

    /// Removes the train block and the results that it adds: outputs need no labels and no split.
    pub fn forget_training(&mut self) {
        self.train = None;
        let (outputs, families) = (&self.outputs, &self.families);
        let is_member = |name: &String| families.iter().flat_map(|of| &of.members).any(|(_, result)| result == name);
        let is_output = |name: &String| outputs.contains(name) || is_member(name);
        self.flow.outputs.retain(|output| matches!(&output.kind, OutputKind::Result(name) if is_output(name)));
    }
}

/// Gives the sparsity pattern of an input of features the name of its matrix.
fn name_pattern(patterns: &mut Table<PatternDecl>, input: &InputDecl) {
    if let (Binding::Features(_, matrix), Layout::Sparse(pattern)) = (&input.binding, input.ty.layout) {
        patterns[pattern.index()].matrix.clone_from(matrix);
    }
}

/// Writes the dataset's own names into a checked model's tables, so that the runtime need not guess.
pub fn bind_names(model: &mut Analyzed, dataset: &DatasetSummary) {
    let flow = &mut model.flow;
    let names: DatasetNames<'_> = dataset.vertices.iter().map(|vertex| vertex.name.as_str()).collect();
    let mut places = vec![];
    for vertex in flow.vertex_types.iter_mut() {
        let place = names.find(&vertex.dataset_name);
        if let Some(place) = place {
            vertex.dataset_name.clone_from(&dataset.vertices[place].name);
        }
        places.push(place);
    }
    let names: DatasetNames<'_> = dataset.relations.iter().map(|relation| relation.name.as_str()).collect();
    let mut edges = vec![];
    for relation in flow.relations.iter_mut() {
        let place = names.find(&relation.dataset_name);
        if let Some(place) = place {
            relation.dataset_name.clone_from(&dataset.relations[place].name);
        }
        edges.push(place);
    }
    // The relation whose edges a vertex type is.
    let relation_of = |vertex: hgnnc_ir::VertexType| {
        let is_it = |path: &&PathDecl| path.rows == PathRows::Edges && path.vertex == vertex;
        Some(flow.paths.iter().find(is_it)?.steps.first()?.relation as usize)
    };
    let rows_of: Vec<Option<RowsOf>> = (0..flow.vertex_types.len())
        .map(|vertex| match relation_of(hgnnc_ir::VertexType::new(vertex)) {
            Some(relation) => edges[relation].map(RowsOf::Edges),
            None => places[vertex].map(RowsOf::Vertices),
        })
        .collect();
    let label_name = |vertex: hgnnc_ir::VertexType, field: Option<&FieldInfo>| {
        let found = find_label(field?, rows_of[vertex.index()]?, dataset)?;
        Some(found.name.clone())
    };
    let schema = &model.schema;
    let owners: Vec<(&str, &[FieldInfo])> = (0..flow.vertex_types.len())
        .map(|vertex| match relation_of(hgnnc_ir::VertexType::new(vertex)) {
            Some(relation) => schema.relations.get(relation).map(|of| (&of.name[..], &of.fields[..])),
            None => schema.vertices.get(vertex).map(|of| (&of.name[..], &of.fields[..])),
        })
        .map(Option::unwrap_or_default)
        .collect();
    let field_of = |vertex: hgnnc_ir::VertexType, input: &str| {
        let (name, fields) = owners[vertex.index()];
        let is_it = |f: &&FieldInfo| {
            let field = format!("{name}.{}", f.name);
            if f.kind.is_feature() { input == field } else { input == field || input == train_labels(&field) }
        };
        fields.iter().find(is_it)
    };
    let features_of = |vertex: hgnnc_ir::VertexType, field: Option<&FieldInfo>| {
        let place = places[vertex.index()]?;
        find_features(&model.schema.vertices[vertex.index()], field?, &dataset.vertices[place])
    };
    for input in flow.inputs.iter_mut() {
        match &mut input.binding {
            Binding::Label(vertex, name) => {
                if let Some(found) = label_name(*vertex, field_of(*vertex, &input.name)) {
                    *name = found;
                }
            }
            Binding::Features(vertex, Matrix::TrainLabels(name)) => {
                if let Some(found) = label_name(*vertex, field_of(*vertex, &input.name)) {
                    *name = found;
                    name_pattern(&mut flow.patterns, input);
                }
            }
            Binding::Features(vertex, matrix) => {
                if let Some(found) = features_of(*vertex, field_of(*vertex, &input.name)) {
                    *matrix = Matrix::of_field(found.field.map(str::to_owned));
                    name_pattern(&mut flow.patterns, input);
                }
            }
            Binding::TrainMask(_)
            | Binding::Time(_)
            | Binding::EdgeTime(_)
            | Binding::EdgeWeight(_)
            | Binding::EdgeCount(_)
            | Binding::EdgeFeatures(_)
            | Binding::EdgeRank(..)
            | Binding::IsLink(_)
            | Binding::Given(_)
            | Binding::Precomputed(..)
            | Binding::StepNumber
            | Binding::EpochNumber => {}
        }
    }
    let Some(train) = &mut model.train else { return };
    for (trained, field) in train.training.trained.iter_mut().zip(&train.label_fields) {
        if let Target::Vertices { vertex, label } = &mut trained.target {
            let field = field.and_then(|field| field.declaration(&model.schema, *vertex));
            if let Some(found) = label_name(*vertex, field) {
                *label = found;
            }
        }
    }
}
