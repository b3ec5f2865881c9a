//! Generates a `.hgnn` schema for a dataset.

use std::collections::BTreeSet;

use crate::dataset::{Dataset, Features, LabelValues, MetapathData};

/// A `schema` block with the identifiers chosen for the names of the dataset.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// The block, ending in a newline.
    pub text: String,
    /// Name of the schema.
    pub name: String,
    /// Identifier of each vertex type of the dataset.
    pub types: Vec<String>,
    /// Identifier of each label of the dataset.
    pub labels: Vec<String>,
    /// Identifier of each relation of the dataset.
    pub relations: Vec<String>,
    /// Identifier of each metapath.
    pub metapaths: Vec<String>,
}

/// The text of [`schema`] with the metapaths of the dataset, without reserved identifiers.
pub fn schema_text(dataset: &Dataset) -> String {
    schema(dataset, &dataset.metapaths, &[]).text
}

/// The type of features; `None` without columns.
fn matrix(features: &Features) -> Option<String> {
    match features {
        Features::Dense(d) => Some(format!("f32[{}]", d.dim)),
        Features::Sparse(s) => Some(format!("f32[{}] sparse", s.dim)),
    }
    .filter(|_| features.dim() > 0)
}

/// The schema that describes `dataset`, with these metapaths over its relations.
///
/// Identifiers are derived from the dataset's names (letters, digits and underscores, unique within the block, disjoint
/// from `used`); each item names its original by `from "…"`. Types without features get `x: embedding[32]`.
pub fn schema(dataset: &Dataset, metapaths: &[MetapathData], used: &[&str]) -> Schema {
    let mut names = Names(used.iter().map(ToString::to_string).collect());
    let schema_name = names.fresh(&camel(&dataset.name), "Graph");
    let mut text = format!("schema {schema_name} {{\n");
    let mut labels = vec![String::new(); dataset.labels.len()];
    let types: Vec<String> =
        dataset.vertex_types.iter().map(|v| names.fresh(&camel(short(&v.name)), "Vertex")).collect();
    for (t, (vertex, ident)) in dataset.vertex_types.iter().zip(&types).enumerate() {
        let mut fields = Names::default();
        let x = fields.fresh("x", "x");
        let mut list = vec![match vertex.features.as_ref().and_then(matrix) {
            Some(matrix) => format!("{x}: {matrix}"),
            None => format!("{x}: embedding[{EMBEDDING}]"),
        }];
        for field in &vertex.fields {
            let Some(matrix) = matrix(&field.values) else { continue };
            let name = fields.fresh(&snake(&field.name), "field");
            let from = if name == field.name { String::new() } else { format!(" from {}", quote(&field.name)) };
            list.push(format!("{name}: {matrix}{from}"));
        }
        for (position, label) in dataset.labels.iter().enumerate().filter(|(_, l)| l.vertex_type == t) {
            let (name, field) = label_field(&mut fields, &label.name, &label.values);
            list.push(field);
            labels[position] = name;
        }
        text += &format!("    vertex {ident} from {} {{ {} }}\n", quote(&vertex.name), list.join(", "));
    }
    let relations: Vec<String> =
        dataset.relations.iter().map(|r| names.fresh(&snake(short(&r.name)), "relation")).collect();
    for (relation, ident) in dataset.relations.iter().zip(&relations) {
        let (src, dst) = (&types[relation.src], &types[relation.dst]);
        text += &format!("    relation {ident}: {src} -> {dst} from {}", quote(&relation.name));
        let weight = relation.weight.as_ref().map(|_| "weight: f32".to_string());
        let features = relation.features.as_ref().map(|x| format!("x: f32[{}]", x.dim));
        let mut used = Names::default();
        ["weight", "x"].iter().for_each(|name| drop(used.fresh(name, name)));
        let labels = relation.labels.iter().map(|label| label_field(&mut used, &label.name, &label.values).1);
        let fields: Vec<String> = weight.into_iter().chain(features).chain(labels).collect();
        if !fields.is_empty() {
            text += &format!(" {{ {} }}", fields.join(", "));
        }
        text.push('\n');
    }
    let mut idents = Vec::with_capacity(metapaths.len());
    for path in metapaths {
        let ident = names.fresh(&identifier(&path.name), "metapath");
        text += &format!("    metapath {ident} = {}", types[path.start]);
        for &step in &path.steps {
            let (relation, (_, to)) = (&relations[step.relation], dataset.step_ends(step));
            let (left, right) = if step.reverse { ("<-", "-") } else { ("-", "->") };
            text += &format!(" {left}{relation}{right} {}", types[to]);
        }
        text.push('\n');
        idents.push(ident);
    }
    Schema { text: text + "}\n", name: schema_name, types, labels, relations, metapaths: idents }
}

/// The identifier and the declaration of a label.
fn label_field(fields: &mut Names, label: &str, values: &LabelValues) -> (String, String) {
    let name = fields.fresh(&snake(label), "y");
    let kind = match values {
        LabelValues::Single { classes, .. } => format!("class[{classes}]"),
        LabelValues::Multi { classes, .. } => format!("multilabel[{classes}]"),
        LabelValues::Real { dim, .. } => format!("target[{dim}]"),
    };
    let from = if name == label { String::new() } else { format!(" from {}", quote(label)) };
    let field = format!("{name}: {kind}{from}");
    (name, field)
}

/// Width of learned features.
const EMBEDDING: usize = 32;

/// Reserved words of the language, which cannot be identifiers.
const KEYWORDS: &[&str] = &[
    "across",
    "aggregate",
    "and",
    "const",
    "counted",
    "else",
    "false",
    "family",
    "from",
    "fuse",
    "if",
    "into",
    "layer",
    "let",
    "metapath",
    "model",
    "not",
    "of",
    "or",
    "output",
    "over",
    "param",
    "per",
    "project",
    "relation",
    "schema",
    "train",
    "true",
    "use",
    "vertex",
];

#[derive(Default)]
struct Names(BTreeSet<String>);

impl Names {
    /// An identifier not yet in use, made from `wanted` (or from `fallback` if no character of it is valid) with the
    /// fewest changes.
    fn fresh(&mut self, wanted: &str, fallback: &str) -> String {
        let mut base = if wanted.is_empty() { fallback.to_string() } else { wanted.to_string() };
        if base.starts_with(|c: char| c.is_ascii_digit()) {
            base = format!("{fallback}_{base}");
        }
        if KEYWORDS.contains(&&base[..]) {
            base.push('_');
        }
        let mut name = base.clone();
        let mut n = 2;
        while !self.0.insert(name.clone()) {
            name = format!("{base}_{n}");
            n += 1;
        }
        name
    }
}

/// The significant part of a name: the fragment or last segment of a URI, otherwise the name.
fn short(name: &str) -> &str {
    if !name.contains("://") {
        return name;
    }
    name.trim_end_matches(['/', '#']).rsplit(['/', '#']).next().unwrap_or(name)
}

/// Letters, digits and single underscores between them; keeps the case.
fn identifier(name: &str) -> String {
    let parts = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|p| !p.is_empty());
    parts.collect::<Vec<_>>().join("_")
}

/// Converts to `snake_case`; a capital after a small letter starts a word.
fn snake(name: &str) -> String {
    let mut out = String::new();
    let mut before = '_';
    for c in identifier(name).chars() {
        if c.is_ascii_uppercase() && before.is_ascii_lowercase() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
        before = c;
    }
    out
}

fn camel(name: &str) -> String {
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    identifier(name).split('_').filter(|w| !w.is_empty()).map(capital).collect()
}

/// Quotes and escapes a string literal of the language.
pub fn quote(name: &str) -> String {
    let mut out = String::from('"');
    for c in name.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out += "\\n",
            '\t' => out += "\\t",
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Step;
    use crate::dataset::{LabelData, RelationData, VertexTypeData};

    fn relation(name: &str, src: usize, dst: usize, weight: bool) -> RelationData {
        let weight = weight.then(|| vec![].into());
        RelationData { name: name.into(), src, dst, src_ids: vec![], dst_ids: vec![], weight, ..Default::default() }
    }

    #[test]
    fn names_become_unique_identifiers() {
        let vertex = |name: &str| VertexTypeData { name: name.into(), ..Default::default() };
        let steps = vec![Step::forward(0), Step::reverse(0)];
        let label = |name: &str, values| LabelData { name: name.into(), vertex_type: 0, values, class_names: vec![] };
        let dataset = Dataset {
            folder: "".into(),
            name: "my-set 2".into(),
            title: None,
            generator: None,
            vertex_types: vec![vertex("paper"), vertex("Paper"), vertex("3d"), vertex("http://x.org/a#BigThing")],
            relations: vec![
                relation("paper-author", 0, 1, true),
                relation("paper author", 0, 1, false),
                relation("of", 2, 3, false),
                relation("http://x.org/o#isAbout", 3, 3, false),
                relation("\"é\"", 0, 0, false),
            ],
            labels: vec![
                label("y", LabelValues::Multi { classes: 5, rows: vec![], labelled: vec![] }),
                label("x", LabelValues::Real { dim: 1, rows: vec![], labelled: vec![] }),
            ],
            splits: vec![],
            link_splits: vec![],
            metapaths: vec![MetapathData {
                name: "P-A-P".into(),
                steps,
                start: 0,
                end: 0,
                pairs: None,
                self_pairs: None,
                instances: None,
                max_degree: None,
            }],
        };
        let expected = r#"schema MySet2 {
    vertex Paper from "paper" { x: embedding[32], y: multilabel[5], x_2: target[1] from "x" }
    vertex Paper_2 from "Paper" { x: embedding[32] }
    vertex Vertex_3d from "3d" { x: embedding[32] }
    vertex BigThing from "http://x.org/a#BigThing" { x: embedding[32] }
    relation paper_author: Paper -> Paper_2 from "paper-author" { weight: f32 }
    relation paper_author_2: Paper -> Paper_2 from "paper author"
    relation of_: Vertex_3d -> BigThing from "of"
    relation is_about: BigThing -> BigThing from "http://x.org/o#isAbout"
    relation relation_: Paper -> Paper from "\"é\""
    metapath P_A_P = Paper -paper_author-> Paper_2 <-paper_author- Paper
}
"#;
        assert_eq!(schema_text(&dataset), expected);
    }
}
