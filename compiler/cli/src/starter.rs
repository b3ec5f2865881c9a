//! `data schema`: a starter model that compiles and trains on its dataset.

use std::collections::BTreeSet;
use std::fmt::Write;

use hgnnc_driver::reformat;
use hgnnc_graph::dataset::LabelValues;
use hgnnc_graph::schema::{Schema, schema};
use hgnnc_graph::{Dataset, LinkSplitData, SplitData};

/// Identifiers used in the template below, reserved in the schema.
const USED: &[&str] = &[
    "RgcnConv",
    "DistMult",
    "Starter",
    "features",
    "relations",
    "reverses",
    "metapaths",
    "links",
    "linear",
    "relu",
    "first",
    "second",
    "logits",
    "score",
];

/// With more relations, an encoder has too many parameters for a starter (one per relation and direction): a starter
/// model then scores the embeddings directly.
const MANY_RELATIONS: usize = 24;
/// With more edges, training uses mini-batches.
const MANY_EDGES: usize = 4_000_000;

/// The text of a model for `dataset`: classifies the vertices of its first split, or predicts the links of its first
/// link split. Without a split the model has no train block.
pub fn text(dataset: &Dataset) -> String {
    let mut schema = schema(dataset, USED);
    // The template does not use the metapaths.
    schema.text = schema.text.replace("\n    metapath ", "\n    // metapath ");
    let body =
        vertices(dataset, &schema).or_else(|| links(dataset, &schema)).unwrap_or_else(|| untrained(dataset, &schema));
    let title =
        dataset.title.as_ref().map_or(String::new(), |title| format!(": {}", title.replace(char::is_control, " ")));
    let name = dataset.name.replace(char::is_control, " ");
    let text =
        format!("//! A model of `{name}` to begin with{title}\n\n{}\n{}\n{}", body.imports, schema.text, body.text);
    reformat("schema", &text).text.unwrap_or(text)
}

/// Text before and after the schema.
struct Body {
    imports: &'static str,
    text: String,
}

const CONV: &str = "use std::rgcn::RgcnConv\n";

/// Two layers over all relations, from all features to `second`.
const ENCODER: &str = "    let first = relu(RgcnConv(hidden: 32) over [relations, reverses] of features)
    let second = RgcnConv(hidden: 32) over [relations, reverses] of first\n";

/// A vertex classification model.
fn vertices(dataset: &Dataset, schema: &Schema) -> Option<Body> {
    let target = |split: &SplitData| {
        let parts = [&split.train, &split.val, &split.test];
        let fits = |label: &&(usize, &hgnnc_graph::LabelData)| {
            let of_split = parts.into_iter().flatten();
            label.1.vertex_type == split.vertex_type && of_split.into_iter().all(|&v| label.1.is_labelled(v as usize))
        };
        dataset.labels.iter().enumerate().collect::<Vec<_>>().iter().find(fits).map(|(label, _)| *label)
    };
    let of_split = |split| target(split).map(|label| (split, label));
    let (split, label) = dataset.splits.iter().filter(|split| !split.train.is_empty()).find_map(of_split)?;
    let (vertex, field) = (&schema.types[split.vertex_type], &schema.labels[label]);
    let (width, loss, metrics) = match &dataset.labels[label].values {
        LabelValues::Single { classes, .. } => (classes, "cross_entropy", "accuracy, macro_f1"),
        LabelValues::Multi { classes, .. } => (classes, "binary_cross_entropy", "micro_f1, macro_f1"),
        LabelValues::Real { dim, .. } => (dim, "mse", "mae, rmse"),
    };
    let is_joined = dataset.relations.iter().any(|r| r.src == split.vertex_type || r.dst == split.vertex_type);
    let (imports, encoder, hidden) = match is_joined {
        true => (CONV, ENCODER.to_owned(), "second".to_owned()),
        false => ("", format!("    let first = relu(linear({vertex}.x, 32))\n"), "first".to_owned()),
    };
    let mut text = format!(
        "model Starter(schema: {}) {{\n{encoder}    output logits: {vertex} = linear({hidden}, {width})\n}}\n\ntrain Starter {{\n",
        schema.name
    );
    let mut entry = |line: String| _ = writeln!(text, "    {line}");
    entry(format!("split {}", quoted(&split.name)));
    entry(format!("loss {loss}(logits, {vertex}.{field})"));
    entry("optimizer adam(lr: 0.01)".into());
    entry("epochs 100".into());
    if is_joined && dataset.num_edges() > MANY_EDGES {
        entry("batch 1024".into());
        entry("fanout [10, 10]".into());
    }
    if split.val.is_empty() {
        // Without a validation part, the best epoch is selected by training loss.
        entry("select train.loss".into());
    } else {
        entry("stop when val.loss has not improved for 20 epochs".into());
    }
    entry(format!("metrics {metrics}"));
    text.push_str("}\n");
    Some(Body { imports, text })
}

/// A link prediction model.
fn links(dataset: &Dataset, schema: &Schema) -> Option<Body> {
    let held_out = |split: &LinkSplitData| -> BTreeSet<usize> {
        split.val.relation.iter().chain(&split.test.relation).map(|&relation| relation as usize).collect()
    };
    let split = dataset.link_splits.iter().find(|split| !held_out(split).is_empty())?;
    // Relations without training links are not predicted.
    let mut predicted: Vec<usize> =
        held_out(split).into_iter().filter(|&r| dataset.relations[r].num_edges() > 0).collect();
    let is_encoded = dataset.relations.len() <= MANY_RELATIONS || predicted.len() < dataset.relations.len() / 2;
    let all_teach = dataset.relations.iter().all(|relation| relation.num_edges() > 0);
    if !is_encoded && all_teach {
        predicted = (0..dataset.relations.len()).collect();
    }
    let graphs = match &predicted[..] {
        [] => return None,
        all if all.len() == dataset.relations.len() => "relations".to_owned(),
        [one] => schema.relations[*one].clone(),
        several => {
            format!("[{}]", several.iter().map(|&r| &schema.relations[r][..]).collect::<Vec<_>>().join(", "))
        }
    };
    let (imports, encoder, ends) = match is_encoded {
        true => ("use std::link::DistMult\nuse std::rgcn::RgcnConv\n", ENCODER, "second"),
        false => ("use std::link::DistMult\n", "", "features"),
    };
    let mut text = format!(
        "model Starter(schema: {}) {{\n{encoder}    output score: links = DistMult() over links({graphs}) of {ends}\n}}\n\ntrain Starter {{\n",
        schema.name
    );
    let mut entry = |line: String| _ = writeln!(text, "    {line}");
    entry(format!("split {}", quoted(&split.name)));
    entry("loss binary_cross_entropy(score, links)".into());
    entry("optimizer adam(lr: 0.01)".into());
    entry("epochs 20".into());
    // Batches small enough for sufficient steps per epoch, and for most links of the graph to remain message edges.
    let links: usize = predicted.iter().map(|&r| dataset.relations[r].num_edges()).sum();
    entry(format!("batch {}", (links / 16).clamp(1, 8192)));
    if is_encoded {
        entry("fanout [10, 10]".into());
    }
    match split.val.is_empty() {
        true => entry("select train.loss".into()),
        false => entry("stop when val.auc has not improved for 5 epochs".into()),
    }
    entry("metrics auc, average_precision".into());
    text.push_str("}\n");
    Some(Body { imports, text })
}

/// A model without training, for a dataset without a target.
fn untrained(dataset: &Dataset, schema: &Schema) -> Body {
    // Every dataset has a vertex type.
    let vertex = &schema.types[0];
    let is_joined = dataset.relations.iter().any(|r| r.src == 0 || r.dst == 0);
    let (imports, encoder, hidden) = match is_joined {
        true => (CONV, ENCODER.to_owned(), "second".to_owned()),
        false => ("", String::new(), format!("{vertex}.x")),
    };
    let text = format!(
        "// The dataset has no split of labelled vertices or of links, so there is nothing to train.\n\
         model Starter(schema: {}) {{\n{encoder}    output logits: {vertex} = linear({hidden}, 2)\n}}\n",
        schema.name
    );
    Body { imports, text }
}

/// Quotes a string literal of the language.
fn quoted(text: &str) -> String {
    hgnnc_graph::schema::quote(text)
}
