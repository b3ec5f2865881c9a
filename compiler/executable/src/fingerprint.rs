//! Hashes the meaning of a program, so that it can be compared with a program of which only the hash was saved.
//!
//! Two programs with equal fingerprints compute every result by the same operations from the same inputs and
//! parameters. Ignored: the source text, comments, statement order, dead values, and the schema's names of vertex
//! types, relations and metapaths. Significant: names in the dataset, dropout streams, and the names, shapes and
//! initial values of parameters. Passes rewrite programs, so fingerprints are comparable only before any pass.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::Xxh3;

use hgnnc_ir::dataflow::{Dataflow, KeptInEdges, Matrix, OutputKind, ValueData};
use hgnnc_ir::print::{Names, print_op, print_type};
use hgnnc_ir::types::{Layout, Space, Type};

/// Identifies the computation of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fingerprint {
    /// 128-bit hash of the expression of each result, by result name.
    pub results: BTreeMap<String, u128>,
    /// Number of occurrences of each operation in these expressions, by its text without operands.
    pub operations: BTreeMap<String, u64>,
    /// Type and initial value of each parameter, by name.
    pub params: BTreeMap<String, String>,
}

impl Fingerprint {
    /// The fingerprint of a program before any pass.
    pub fn new(flow: &Dataflow) -> Self {
        let tables = named_by_content(flow);
        let mut fingerprint = Self::default();
        for decl in &tables.params {
            let ty = print_type(&tables, &Type::new(Space::Unit, decl.dims.clone()));
            let decay = if decl.decay { ", decays" } else { "" };
            fingerprint.params.insert(decl.name.clone(), format!("{ty} = {}{decay}", Names(&tables).init(decl.init)));
        }
        let needed = needed(flow);
        let mut hashes: Vec<u128> = Vec::with_capacity(flow.values.len());
        for (data, needed) in flow.values.iter().zip(needed) {
            if !needed {
                hashes.push(0);
                continue;
            }
            let op = print_op(&tables, &ValueData { args: vec![], ..data.clone() });
            let mut hash = Xxh3::new();
            for text in [&op, &type_by_content(&tables, &data.ty)] {
                hash.update(&(text.len() as u64).to_le_bytes());
                hash.update(text.as_bytes());
            }
            data.args.iter().for_each(|arg| hash.update(&hashes[arg.index()].to_le_bytes()));
            hashes.push(hash.digest128());
            *fingerprint.operations.entry(op).or_default() += 1;
        }
        for output in &flow.outputs {
            if let OutputKind::Result(name) = &output.kind {
                fingerprint.results.insert(name.clone(), hashes[output.value.index()]);
            }
        }
        fingerprint
    }
}

/// Liveness: does a result depend on the value?
fn needed(flow: &Dataflow) -> Vec<bool> {
    let mut needed = vec![false; flow.values.len()];
    for output in &flow.outputs {
        needed[output.value.index()] |= matches!(output.kind, OutputKind::Result(_));
    }
    for index in (0..needed.len()).rev() {
        if needed[index] {
            flow.values[index].args.iter().for_each(|arg| needed[arg.index()] = true);
        }
    }
    needed
}

/// The tables of a program with every entry but parameters renamed to its content.
fn named_by_content(flow: &Dataflow) -> Dataflow {
    let mut tables = flow.with_tables_of("");
    tables.vertex_types.iter_mut().for_each(|decl| decl.name.clone_from(&decl.dataset_name));
    tables.relations.iter_mut().for_each(|decl| decl.name.clone_from(&decl.dataset_name));
    for index in 0..tables.graphs.len() {
        let decl = &tables.graphs[index];
        let vertex = |vertex: hgnnc_ir::VertexType| &tables.vertex_types[vertex.index()].name;
        let mut text = vertex(decl.src).clone();
        for step in &decl.steps {
            let relation = &tables.relations[step.relation as usize].name;
            text += &format!(" {}{relation}", if step.reverse { '<' } else { '>' });
        }
        text += &format!(" {}", vertex(decl.dst));
        let words = [decl.counted.then_some("counted"), decl.self_loops.word(), decl.links.then_some("links")];
        words.into_iter().flatten().for_each(|word| text += &format!(" {word}"));
        if let Some(permutations) = decl.shuffle {
            text += &format!(" shuffle {permutations}");
        }
        if let Some(KeptInEdges { at_most, position }) = decl.kept {
            let position = position.map(|position| format!(" position {position}"));
            text += &format!(" at_most {at_most}{}", position.unwrap_or_default());
        }
        tables.graphs[index].name = text;
    }
    let bindings: Vec<String> = tables.inputs.iter().map(|decl| Names(&tables).binding(&decl.binding)).collect();
    tables.inputs.iter_mut().zip(bindings).for_each(|(decl, binding)| decl.name = binding);
    tables
}

/// The text of a type, with the contents of its sparsity pattern in place of the handle.
fn type_by_content(tables: &Dataflow, ty: &Type) -> String {
    let Layout::Sparse(pattern) = ty.layout else { return print_type(tables, ty) };
    let decl = &tables.patterns[pattern.index()];
    let dense = print_type(tables, &Type { layout: Layout::Dense, ..ty.clone() });
    let matrix = match &decl.matrix {
        Matrix::Features => String::new(),
        Matrix::Field(field) => format!(" of {field}"),
        Matrix::TrainLabels(label) => format!(" train_labels {label}"),
    };
    format!("{dense} sparse({} x {}{matrix})", Names(tables).vertex(decl.vertex), decl.columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hgnnc_ir::parse;

    const TEXT: &str = r#"dataflow m {
  vertex Paper from "paper"
  relation cites: Paper -> Paper from "paper-paper"
  graph G: Paper -> Paper = >cites
  input Paper.x : f32[Paper; 3] = features(Paper)
  param w : f32[3, 2] = glorot(3, 2) decay
  %0 = input Paper.x : f32[Paper; 3] @FP
  %1 = param w       : f32[3, 2]     @FP
  %2 = matmul %0, %1 : f32[Paper; 2] @FP
  %3 = relu %2       : f32[Paper; 2] @FP
  %4 = gather.src G, %3 : f32[edges(G); 2] @NA
  %5 = segment.sum.in G, %4 : f32[Paper; 2] @NA
  result out = %5
}
"#;

    fn of(text: &str) -> Fingerprint {
        Fingerprint::new(&parse(text).unwrap_or_else(|error| panic!("{error:?}\n{text}")))
    }

    #[test]
    fn names_order_and_unused_values_do_not_matter() {
        let before = of(TEXT);
        assert_eq!(before.operations["relu"], 1);
        assert_eq!(before.params["w"], "f32[3, 2] = glorot(3, 2), decays");
        assert_eq!(before, of(&TEXT.replace("Paper", "P").replace("cites", "c").replace('G', "H")));
        let unused = TEXT.replace("  result", "  %6 = tanh %5 : f32[Paper; 2] @NA\n  result");
        assert_eq!(before, of(&unused));
        let swapped = TEXT
            .replace("%0 = input Paper.x : f32[Paper; 3] @FP", "%0 = param w : f32[3, 2] @FP")
            .replace("%1 = param w       : f32[3, 2]     @FP", "%1 = input Paper.x : f32[Paper; 3] @FP")
            .replace("matmul %0, %1", "matmul %1, %0");
        assert_eq!(before, of(&swapped));
    }

    #[test]
    fn what_is_computed_matters() {
        let before = of(TEXT);
        for (from, to) in [
            ("relu", "tanh"),
            ("paper-paper", "paper-other"),
            (">cites", "<cites"),
            ("segment.sum", "segment.max"),
            ("matmul %0, %1 : f32[Paper; 2] @FP\n  %3 = relu %2 ", "matmul %0, %1 : f32[Paper; 2] @FP\n  %3 = neg %2 "),
            ("gather.src G, %3", "gather.src G, %2"),
            ("result out = %5", "result out = %3"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            assert_ne!(before.results, of(&TEXT.replace(from, to)).results, "{from} -> {to}");
        }
        assert_ne!(before.params, of(&TEXT.replace("glorot(3, 2) decay", "glorot(3, 2)")).params);
    }
}
