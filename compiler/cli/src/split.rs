//! `hgnnc data split`: a dataset with a split of its vertices or links.

use std::path::Path;

use hgnnc::check_folder;
use hgnnc_cpu::thread_pool;
use hgnnc_graph::Dataset;
use hgnnc_graph::write::vacant;
use hgnnc_split::{LinkSplit, Order, Shares, VertexSplit, split_links, split_vertices, write_inductive};

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
    match &args.vertices {
        Some(name) => {
            let vertex_type = named("vertex type", name, dataset.vertex_types.iter().map(|ty| &ty.name))?;
            let text = vertices(&mut dataset, vertex_type, args)?;
            print(&text)?;
            if args.inductive {
                return inductive(&dataset, vertex_type, out);
            }
        }
        None => links(&mut dataset, args)?,
    }
    dataset.write(out).map_err(failed)?;
    print(&format!("wrote {}", out.display()))
}

/// The order in which elements are divided.
fn order(args: &SplitArgs) -> Order {
    match args.by {
        SplitBy::Random => Order::Random(args.seed),
        SplitBy::Time => Order::Time,
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

/// Divides the labelled vertices of a type, and says into what.
fn vertices(dataset: &mut Dataset, vertex_type: usize, args: &SplitArgs) -> Result<String, Failure> {
    let name = &dataset.vertex_types[vertex_type].name;
    let of_type: Vec<usize> =
        (0..dataset.labels.len()).filter(|&label| dataset.labels[label].vertex_type == vertex_type).collect();
    let label = match (&args.label, &of_type[..]) {
        (Some(asked), _) => of_type[named("label", asked, of_type.iter().map(|&label| &dataset.labels[label].name))?],
        (None, &[label]) => label,
        (None, []) => return Err(Failure::input(format!("`{name}` has no label, so there is nothing to split"))),
        (None, several) => {
            let names: Vec<String> = several.iter().map(|&l| format!("`{}`", dataset.labels[l].name)).collect();
            return Err(Failure::input(format!(
                "`{name}` has several labels: name one of {} with `--label`",
                names.join(", ")
            )));
        }
    };
    let said = format!("`{}` of `{name}`", dataset.labels[label].name);
    let asked = VertexSplit {
        label,
        name: args.name.clone(),
        shares: shares(args),
        order: order(args),
        by_class: args.by_class,
    };
    let [train, val, test] = split_vertices(dataset, &asked).map_err(|error| Failure::input(error.to_string()))?;
    Ok(format!("split `{}` of {said}: {train} to train on, {val} to validate, {test} to test", args.name))
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
    let relation = |name: &str| named("relation", name, dataset.relations.iter().map(|relation| &relation.name));
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
