//! A model to begin with: compiles and trains on its dataset.

mod cutoffs;
mod metapaths;

use std::collections::BTreeSet;
use std::fmt::Write;

use hgnnc_dataset::dataset::LabelValues;
use hgnnc_dataset::schema::{Schema, quote, schema};
use hgnnc_dataset::{Dataset, LinkSplitData, MetapathData, SplitData};
use hgnnc_driver::reformat;

use self::metapaths::Proposal;
use crate::Error;

/// The layer of a model to begin with.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum StarterLayer {
    /// R-GCN over all relations and their reverses: uses the features of all vertex types.
    #[default]
    Rgcn,
    /// HAN over metapaths that return to the vertex type with the label, and over its relations to itself.
    Han,
}

/// Identifiers used in the template below, reserved in the schema.
const USED: &[&str] = &[
    "HanConv",
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

/// Largest number of semantic graphs that HAN begins with.
const MOST_GRAPHS: usize = 4;

/// The text of a model for `dataset`: classifies the vertices of its first split, or predicts the links of its first
/// link split. Without a split the model has no train block. Metapaths that return to the classified type are proposed
/// with about the number of their pairs: as declarations where the model uses them, else as comments.
///
/// # Errors
/// When the layer is HAN and the dataset has no labelled vertices, or no metapath for it.
pub fn starter(dataset: &Dataset, layer: StarterLayer) -> Result<String, Error> {
    let target = target(dataset);
    let proposals = match target {
        Some((split, _)) => metapaths::propose(dataset, split.vertex_type)?,
        None => Vec::new(),
    };
    // The metapaths of other types follow those of the target.
    let others = dataset.metapaths.iter().filter(|path| !proposals.iter().any(|p| p.metapath.steps == path.steps));
    let all: Vec<MetapathData> = proposals.iter().map(|p| &p.metapath).chain(others).cloned().collect();
    let mut schema = schema(dataset, &all, USED);
    let (body, used) = match (layer, target) {
        (StarterLayer::Han, Some(target)) => han(dataset, &schema, target, &proposals)?,
        (StarterLayer::Han, None) => {
            return Err(Error::input(
                "HAN classifies vertices, and the dataset has no split of labelled vertices: `hgnnc data split` makes one",
            ));
        }
        (StarterLayer::Rgcn, Some(target)) => (rgcn(dataset, &schema, target), Vec::new()),
        (StarterLayer::Rgcn, None) => match links(dataset, &schema) {
            Some((body, timed)) => {
                schema.text = cutoffs::with_times(&schema, &timed);
                (body, Vec::new())
            }
            None => (untrained(dataset, &schema), Vec::new()),
        },
    };
    schema.text = with_proposals(&schema, &proposals, &used);
    let title =
        dataset.title.as_ref().map_or(String::new(), |title| format!(": {}", title.replace(char::is_control, " ")));
    let name = dataset.name.replace(char::is_control, " ");
    let text =
        format!("//! A model of `{name}` to begin with{title}\n\n{}\n{}\n{}", body.imports, schema.text, body.text);
    Ok(reformat("schema", &text).text.unwrap_or(text))
}

/// The schema with the number of pairs behind each proposed metapath; those that are not in `used` (positions of
/// metapaths) become comments.
fn with_proposals(schema: &Schema, proposals: &[Proposal], used: &[usize]) -> String {
    let mut text = String::new();
    let mut position = 0;
    for line in schema.text.lines() {
        match line.strip_prefix("    metapath ") {
            None => text.push_str(line),
            Some(path) => {
                let comment = if used.contains(&position) { "" } else { "// " };
                _ = write!(text, "    {comment}metapath {path}");
                if let Some(proposal) = proposals.get(position) {
                    _ = write!(text, " // about {} pairs", grouped(proposal.pairs));
                }
                position += 1;
            }
        }
        text.push('\n');
    }
    text
}

/// Digits in groups of three: `2_200_581` as the language writes them.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
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

/// The first split of labelled vertices, and its label.
fn target(dataset: &Dataset) -> Option<(&SplitData, usize)> {
    let of_split = |split: &SplitData| {
        let parts = [&split.train, &split.val, &split.test];
        dataset.labels.iter().position(|label| {
            let mut vertices = parts.into_iter().flatten();
            label.vertex_type == split.vertex_type && vertices.all(|&v| label.is_labelled(v as usize))
        })
    };
    let splits = dataset.splits.iter().filter(|split| !split.train.is_empty());
    splits.into_iter().find_map(|split| of_split(split).map(|label| (split, label)))
}

/// A model that classifies vertices with two layers of R-GCN.
fn rgcn(dataset: &Dataset, schema: &Schema, (split, label): (&SplitData, usize)) -> Body {
    let vertex = &schema.types[split.vertex_type];
    let is_joined = dataset.relations.iter().any(|r| r.src == split.vertex_type || r.dst == split.vertex_type);
    let (imports, encoder, hidden) = match is_joined {
        true => (CONV, ENCODER.to_owned(), "second"),
        false => ("", format!("    let first = relu(linear({vertex}.x, 32))\n"), "first"),
    };
    let batches = is_joined && dataset.num_edges() > MANY_EDGES;
    let mut entries = vec!["optimizer adam(lr: 0.01)", "epochs 100"];
    if batches {
        entries.extend(["batch 1024", "fanout [10, 10]"]);
    }
    let text = classifier(dataset, schema, (split, label), (&encoder, hidden), &entries, 20);
    Body { imports, text }
}

/// A model that classifies vertices with HAN, and the positions of the metapaths that it uses.
fn han(
    dataset: &Dataset,
    schema: &Schema,
    (split, label): (&SplitData, usize),
    proposals: &[Proposal],
) -> Result<(Body, Vec<usize>), Error> {
    let ty = split.vertex_type;
    let vertex = &schema.types[ty];
    let useful = (0..proposals.len()).filter(|&position| proposals[position].is_useful);
    let own = dataset.relations.iter().zip(&schema.relations);
    let own = own.filter(|(relation, _)| relation.src == ty && relation.dst == ty && relation.num_edges() > 0);
    let mut graphs: Vec<&str> = own.map(|(_, name)| &name[..]).take(MOST_GRAPHS).collect();
    let used: Vec<usize> = useful.take(MOST_GRAPHS - graphs.len()).collect();
    graphs.extend(used.iter().map(|&position| &schema.metapaths[position][..]));
    if graphs.is_empty() {
        return Err(Error::input(format!(
            "HAN needs metapaths that return to `{}`, and none joins some of its vertices without joining most of them",
            dataset.vertex_types[ty].name
        )));
    }
    let encoder = format!(
        "    let first = HanConv(hidden: 8, heads: 8, dropout: 0.6) over [{}] of {vertex}.x\n",
        graphs.join(", ")
    );
    let entries = ["optimizer adam(lr: 0.005, weight_decay: 0.001)", "epochs 200"];
    let text = classifier(dataset, schema, (split, label), (&encoder, "first"), &entries, 50);
    Ok((Body { imports: "use std::han::HanConv\n", text }, used))
}

/// The model and train block of a classifier: `encoder` are its lines up to `hidden`, `entries` those of the train block
/// between the loss and early stopping after `patience` epochs.
fn classifier(
    dataset: &Dataset,
    schema: &Schema,
    (split, label): (&SplitData, usize),
    (encoder, hidden): (&str, &str),
    entries: &[&str],
    patience: usize,
) -> String {
    let (vertex, field) = (&schema.types[split.vertex_type], &schema.labels[label]);
    let (width, loss, metrics) = match &dataset.labels[label].values {
        LabelValues::Single { classes, .. } => (classes, "cross_entropy", "accuracy, macro_f1"),
        LabelValues::Multi { classes, .. } => (classes, "binary_cross_entropy", "micro_f1, macro_f1"),
        LabelValues::Real { dim, .. } => (dim, "mse", "mae, rmse"),
    };
    let mut text = format!(
        "model Starter(schema: {}) {{\n{encoder}    output logits: {vertex} = linear({hidden}, {width})\n}}\n\ntrain Starter {{\n",
        schema.name
    );
    let mut entry = |line: String| _ = writeln!(text, "    {line}");
    entry(format!("split {}", quote(&split.name)));
    entry(format!("loss {loss}(logits, {vertex}.{field})"));
    entries.iter().for_each(|line| entry((*line).into()));
    if split.val.is_empty() {
        // Without a validation part, the best epoch is selected by training loss.
        entry("select train.loss".into());
    } else {
        entry(format!("stop when val.loss has not improved for {patience} epochs"));
    }
    entry(format!("metrics {metrics}"));
    text.push_str("}\n");
    text
}

/// A link prediction model, with the relations whose times it needs.
fn links(dataset: &Dataset, schema: &Schema) -> Option<(Body, Vec<usize>)> {
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
    entry(format!("split {}", quote(&split.name)));
    entry("loss binary_cross_entropy(score, links)".into());
    let period = cutoffs::period(dataset, split, &predicted);
    if let Some(period) = period {
        entry(format!("cutoff time every {period}"));
    }
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
    Some((Body { imports, text }, if period.is_some() { predicted } else { Vec::new() }))
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
