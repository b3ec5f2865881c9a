//! Knowledge graphs as lines of head, relation and tail, separated by tabs.
//!
//! A folder holds `train`, and optionally `valid` (or `val`, `dev`) and `test`, each `.txt`, `.tsv` or `.csv`, also with
//! `.gz`; a file is all training edges. Every entity is a vertex of the one type `entity`. Entities and relations are
//! numbered in the order of their names, so that the order of the lines does not matter.

use std::path::{Path, PathBuf};

use hgnnc_dataset::{Dataset, LinkSplitData, Links, RelationData, VertexTypeData};

use crate::error::{Faults, ImportError};
use crate::files::{Rows, Style, separator_of};
use crate::keys::Keys;
use crate::progress::Progress;

/// Reads the triples in a folder or file.
///
/// # Errors
/// With all faults of the files.
pub(crate) fn read(source: &Path, progress: &Progress) -> Result<Dataset, ImportError> {
    let mut faults = Faults::default();
    let (mut entities, mut relations) = (Keys::default(), Keys::default());
    let files = if source.is_dir() {
        let Some(train) = part_file(source, &["train"]) else {
            return Err(Faults::one(
                source,
                "there is no `train.txt`, `train.tsv` or `train.csv` (also with `.gz`): name the folder of the triples, or one file of them",
            ));
        };
        [Some(train), part_file(source, &["valid", "val", "dev"]), part_file(source, &["test"])]
    } else {
        [Some(source.to_path_buf()), None, None]
    };
    files.iter().flatten().for_each(|file| progress.expect(file));
    let [train, val, test] = files.map(|file| match file {
        Some(file) => links(&file, &mut entities, &mut relations, progress, &mut faults),
        None => Links::default(),
    });

    let (entity_order, relation_order) = (entities.sorted(), relations.sorted());
    let (entity_rank, relation_rank) = (ranks(&entity_order), ranks(&relation_order));
    let renumbered = |links: Links| Links {
        src: links.src.iter().map(|&v| entity_rank[v as usize]).collect(),
        relation: links.relation.iter().map(|&r| relation_rank[r as usize]).collect(),
        dst: links.dst.iter().map(|&v| entity_rank[v as usize]).collect(),
        time: None,
    };
    let (train, val, test) = (renumbered(train), renumbered(val), renumbered(test));
    let mut edges: Vec<RelationData> = relation_order
        .iter()
        .map(|&r| RelationData { name: relations.text(r).to_owned(), ..Default::default() })
        .collect();
    for ((&src, &relation), &dst) in train.src.iter().zip(&train.relation).zip(&train.dst) {
        let edges = &mut edges[relation as usize];
        edges.src_ids.push(src);
        edges.dst_ids.push(dst);
    }
    let vertices = VertexTypeData {
        name: "entity".into(),
        count: entities.len(),
        ids: Some(entity_order.iter().map(|&v| entities.text(v)).collect()),
        ..Default::default()
    };
    let held_out = !val.is_empty() || !test.is_empty();
    faults.or(Dataset {
        name: name_of(source),
        vertex_types: vec![vertices],
        relations: edges,
        link_splits: if held_out { vec![LinkSplitData { name: "standard".into(), val, test }] } else { Vec::new() },
        ..Default::default()
    })
}

/// The name of a folder or file without its endings.
pub(crate) fn name_of(source: &Path) -> String {
    let full = std::fs::canonicalize(source).unwrap_or_else(|_| source.to_path_buf());
    let name = full.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let short = if source.is_dir() { &name } else { name.split('.').next().unwrap_or_default() };
    if short.is_empty() { "imported".into() } else { short.into() }
}

fn part_file(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    let ends = ["txt", "tsv", "csv", "txt.gz", "tsv.gz", "csv.gz"];
    let mut files = names.iter().flat_map(|name| ends.map(|end| folder.join(format!("{name}.{end}"))));
    files.find(|file| file.is_file())
}

fn links(path: &Path, entities: &mut Keys, relations: &mut Keys, progress: &Progress, faults: &mut Faults) -> Links {
    let mut found = Links::default();
    let separator = separator_of(path, b'\t');
    let columns = ["head", "relation", "tail"].map(String::from);
    let style = Style { separator, quotes: separator == b',', columns: Some(&columns), ragged: false };
    let Some(mut rows) = Rows::open(path, &style, progress, faults) else { return found };
    while let Some(line) = rows.next(faults) {
        let mut add = |at: usize, keys: &mut Keys| -> Option<u32> {
            let name = rows.field(at, line, faults)?;
            if name.is_empty() {
                faults.add(path, Some(line), format!("there is no {}", columns[at]));
                return None;
            }
            let number = keys.add(name);
            if number.is_none() {
                faults.add(path, Some(line), "there are more than 2^30 entities");
            }
            Some(number?.0)
        };
        let (head, relation, tail) = (add(0, entities), add(1, relations), add(2, entities));
        if let (Some(head), Some(relation), Some(tail)) = (head, relation, tail) {
            found.src.push(head);
            found.relation.push(relation);
            found.dst.push(tail);
        }
    }
    found
}

/// The place of each number in an order.
pub(crate) fn ranks(order: &[u32]) -> Vec<u32> {
    let mut rank = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &number)| rank[number as usize] = place as u32);
    rank
}
