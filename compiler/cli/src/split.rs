//! `hgnnc data split`: a dataset with a split of its vertices, edges or links.

use std::path::Path;

use hgnnc::check_folder;
use hgnnc_cpu::thread_pool;
use hgnnc_dataset::Dataset;
use hgnnc_dataset::write::vacant;
use hgnnc_split::{
    LabelSplit, LabelledEdges, LinkSplit, Order, Shares, split_edges, split_links, split_vertices, write_inductive,
};

use crate::data::failed;
use crate::data_args::{SplitArgs, SplitBy};
use crate::failure::Failure;
use crate::output::{note, print};

/// Reads the dataset, splits it, and writes it with the split to a new folder.
pub fn split(args: &SplitArgs) -> Result<(), Failure> {
    let SplitArgs { dir, out, .. } = args;
    // Before the work.
    check_folder(out)?;
    vacant(out).map_err(failed)?;
    let pool = thread_pool(0)?;
    let mut dataset = hgnnc::load(dir, &pool)?;
    if let Some(name) = &args.vertices {
        let vertex_type = named("vertex type", name, dataset.vertex_types.iter().map(|ty| &ty.name))?;
        print(&vertices(&mut dataset, vertex_type, args)?)?;
        if args.inductive {
            return inductive(&dataset, vertex_type, out);
        }
    } else if let Some(name) = &args.edges {
        let relation = relation_named(&dataset, name)?;
        edges(&mut dataset, relation, args)?;
    } else {
        links(&mut dataset, args)?;
    }
    dataset.write(out).map_err(failed)?;
    print(&format!("wrote {}", out.display()))
}

/// The order in which elements are divided.
fn order(args: &SplitArgs) -> Order {
    match args.by {
        SplitBy::Random => Order::Random(args.seed),
        SplitBy::Time => Order::Time,
        SplitBy::Events => Order::Events,
    }
}

/// The share that is not given is the rest; a tenth is to test on if there is neither.
fn shares(args: &SplitArgs) -> Shares {
    let val = args.val;
    match (args.train, args.test) {
        (Some(train), test) => Shares { train: Some(train), val, test },
        (None, test) => Shares { train: None, val, test: Some(test.unwrap_or(0.1)) },
    }
}

/// Position of a name among those of the dataset.
fn named<'a>(of: &str, asked: &str, mut names: impl Iterator<Item = &'a String> + Clone) -> Result<usize, Failure> {
    if let Some(position) = names.clone().position(|name| name == asked) {
        return Ok(position);
    }
    let mut known: Vec<String> = names.by_ref().take(10).map(|name| format!("`{name}`")).collect();
    if names.next().is_some() {
        known.push("…".into());
    }
    Err(Failure::input(format!("the dataset has no {of} `{asked}`; it has {}", known.join(", "))))
}

/// Position of a relation of the dataset.
fn relation_named(dataset: &Dataset, name: &str) -> Result<usize, Failure> {
    named("relation", name, dataset.relations.iter().map(|relation| &relation.name))
}

/// Position of the label that is asked for among those of `of`; of the only one, where none is.
fn label_of(of: &str, names: &[&String], args: &SplitArgs) -> Result<usize, Failure> {
    match (&args.label, names) {
        (Some(asked), _) => named("label", asked, names.iter().copied()),
        (None, [_]) => Ok(0),
        (None, []) => Err(Failure::input(format!("`{of}` has no label, so there is nothing to split"))),
        (None, several) => {
            let names: Vec<String> = several.iter().map(|name| format!("`{name}`")).collect();
            Err(Failure::input(format!("`{of}` has several labels: name one of {} with `--label`", names.join(", "))))
        }
    }
}

/// How labelled vertices or edges are divided.
fn label_split(args: &SplitArgs) -> LabelSplit {
    LabelSplit { name: args.name.clone(), shares: shares(args), order: order(args), by_class: args.by_class }
}

/// Divides the labelled vertices of a type, and says into what.
fn vertices(dataset: &mut Dataset, vertex_type: usize, args: &SplitArgs) -> Result<String, Failure> {
    let name = &dataset.vertex_types[vertex_type].name;
    let of_type: Vec<usize> =
        (0..dataset.labels.len()).filter(|&label| dataset.labels[label].vertex_type == vertex_type).collect();
    let names: Vec<&String> = of_type.iter().map(|&label| &dataset.labels[label].name).collect();
    let label = of_type[label_of(name, &names, args)?];
    let said = format!("`{}` of `{name}`", dataset.labels[label].name);
    let made = split_vertices(dataset, label, &label_split(args));
    let [train, val, test] = made.map_err(|error| Failure::input(error.to_string()))?;
    Ok(format!("split `{}` of {said}: {train} to train on, {val} to validate, {test} to test", args.name))
}

/// Divides the labelled edges of a relation, and says into what.
fn edges(dataset: &mut Dataset, relation: usize, args: &SplitArgs) -> Result<(), Failure> {
    let of = &dataset.relations[relation];
    let names: Vec<&String> = of.labels.iter().map(|label| &label.name).collect();
    let label = label_of(&of.name, &names, args)?;
    let label_name = names[label].clone();
    let mut reverses = vec![];
    for (of, reverse) in &args.reverse {
        let (of, reverse) = (relation_named(dataset, of)?, relation_named(dataset, reverse)?);
        match [of, reverse].iter().position(|&end| end == relation) {
            Some(own) => reverses.push([of, reverse][1 - own]),
            None => {
                let relation = &dataset.relations[relation].name;
                return Err(Failure::input(format!("`--reverse` names a reverse of `{relation}`: {relation}=REVERSE")));
            }
        }
    }
    let asked = LabelledEdges { relation, label, reverses };
    let made = split_edges(dataset, &asked, &label_split(args));
    let outcome = made.map_err(|error| Failure::input(error.to_string()))?;
    let name = |relation: usize| &dataset.relations[relation].name;
    let parts = |[train, val, test]: [usize; 3]| format!("{train} to train on, {val} to validate, {test} to test");
    print(&format!("split `{}` of `{label_name}` of `{}`: {}", args.name, name(relation), parts(outcome.edges)))?;
    for &(reverse, sizes) in &outcome.reverses {
        print(&if reverse == relation {
            format!("`{}` is symmetric: all edges between two vertices are in one part", name(relation))
        } else {
            let (of, reverse) = (name(relation), name(reverse));
            format!("`{reverse}` holds reverses of `{of}`, which are in the parts of their edges: {}", parts(sizes))
        })?;
    }
    for &(other, share) in &outcome.suspects {
        let (of, other, share) = (name(relation), name(other), 100.0 * share);
        note(&format!(
            "warning: `{other}` holds the reverses of {share:.0} % of the edges of `{of}` and has a label `{label_name}`: \
             `--reverse {of}={other}` puts them into the parts of their edges"
        ));
    }
    Ok(())
}

/// Writes the graph without the test vertices, to train on, and the whole one, to test on.
fn inductive(dataset: &Dataset, vertex_type: usize, out: &Path) -> Result<(), Failure> {
    // The split was added last.
    let unseen = dataset.splits.last().map_or(&[][..], |split| &split.test);
    write_inductive(dataset, vertex_type, unseen, out).map_err(failed)?;
    let out = out.display();
    print(&format!(
        "wrote {out}/seen, without the test vertices, to train on, and {out}/whole: `hgnnc eval MODEL --weights W --data {out}/whole` tests on unseen vertices"
    ))
}

/// Holds out links, and says which edges left the graph.
fn links(dataset: &mut Dataset, args: &SplitArgs) -> Result<(), Failure> {
    let relation = |name: &str| relation_named(dataset, name);
    let relations = args.links.iter().map(|name| relation(name)).collect::<Result<Vec<_>, _>>()?;
    let reverses = args
        .reverse
        .iter()
        .map(|(of, reverse)| Ok((relation(of)?, relation(reverse)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let asked = LinkSplit { relations, reverses, name: args.name.clone(), shares: shares(args), order: order(args) };
    let outcome = split_links(dataset, &asked).map_err(|error| Failure::input(error.to_string()))?;
    let [train, val, test] = outcome.links;
    print(&format!("link split `{}`: {train} links to train on, {val} to validate, {test} to test", args.name))?;
    let name = |relation: usize| &dataset.relations[relation].name;
    for &(relation, reverse) in &outcome.reverses {
        print(&if relation == reverse {
            format!("`{}` is symmetric: both directions of a link are in one part", name(relation))
        } else {
            format!("`{}` holds the reverses of `{}`: they are held out with them", name(reverse), name(relation))
        })?;
    }
    for &(relation, edges) in &outcome.removed {
        print(&format!(
            "{edges} edges left `{}`, {} are there to train on",
            name(relation),
            dataset.relations[relation].num_edges()
        ))?;
    }
    for &(relation, other, share) in &outcome.suspects {
        let (relation, other) = (name(relation), name(other));
        note(&format!(
            "warning: `{other}` holds the reverses of {:.0} % of the links of `{relation}`, which may give held-out ones away: \
             `--reverse {relation}={other}` holds them out as well",
            100.0 * share
        ));
    }
    Ok(())
}
