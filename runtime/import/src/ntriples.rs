//! RDF graphs in N-Triples, also compressed, with tables that give some entities a class: the layout of the data sets
//! AIFB, MUTAG, BGS and AM.
//!
//! Every term is a vertex of the one type `entity`: IRIs, blank nodes and literals, which may be left out. Terms and
//! predicates are numbered in the order of their texts, so that the order of the lines does not matter, and neither does
//! the process, as it does where sets are enumerated. An id is the IRI itself; a blank node and a literal are written as
//! in N-Triples, so that a literal is never taken for an IRI. A triple that is there twice counts once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hgnnc_dataset::{Dataset, Kinds, LabelData, LabelValues, RelationData, SplitData, VertexTypeData};
use oxrdf::{NamedOrBlankNode, Term, Triple};
use oxttl::NTriplesParser;
use serde::Deserialize;

use crate::error::{Faults, ImportError, Unknown, shown};
use crate::files::{Format, Lines, Rows, Style, Table, separator_of};
use crate::keys::Keys;
use crate::progress::Progress;
use crate::settings;
use crate::triples::{name_of, ranks};

/// Schema of the `--config` file for RDF. `docs/import.md` describes it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Rdf {
    pub name: Option<String>,
    pub title: Option<String>,
    pub literals: Literals,
    /// Relations that are left out.
    pub drop: Vec<String>,
    /// Tables of labels; those of the known names unless given.
    pub train: Option<String>,
    pub val: Option<String>,
    pub test: Option<String>,
    /// A table of all labels.
    pub all: Option<String>,
    /// The column of the entity.
    pub entity: Option<String>,
    /// The column of its class.
    pub class: Option<String>,
    /// Policy for labelled entities that no triple names.
    pub unknown: OnUnknown,
}

/// Policy for labels of entities that no triple names.
#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum OnUnknown {
    #[default]
    Error,
    Skip,
}

/// Policy for triples whose object is a literal.
#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Literals {
    #[default]
    Keep,
    Drop,
}

/// The columns of the entity and of its class in tables that are well known: AIFB, MUTAG, BGS, AM.
const KNOWN_COLUMNS: [(&str, &str); 5] = [
    ("person", "label_affiliation"),
    ("bond", "label_mutagenic"),
    ("rock", "label_lithogenesis"),
    // As the table writes it.
    ("proxy", "label_cateogory"),
    ("proxy", "label_category"),
];

const TYPE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type";

/// Reads the triples of a file, or of all `.nt` and `.nt.gz` files of a folder.
///
/// # Errors
/// With all faults of the files.
pub(crate) fn read(source: &Path, config: Option<&Path>, progress: &Progress) -> Result<Dataset, ImportError> {
    let rdf: Rdf = settings::read(config)?;
    let mut faults = Faults::default();
    let folder = if source.is_dir() { source } else { source.parent().unwrap_or(Path::new(".")) };
    let mut graph = Graph { rdf: &rdf, terms: Keys::default(), relations: Keys::default(), triples: Vec::new() };
    let files = triple_files(source)?;
    files.iter().for_each(|file| progress.expect(file));
    for file in &files {
        graph.read(file, progress, &mut faults);
    }
    for name in rdf.drop.iter().filter(|name| graph.relations.get(name).is_none()) {
        let file = config.unwrap_or(source);
        let name = shown(name);
        faults.add(
            file,
            None,
            format!("`drop` names a relation that no triple has: `{name}`; write its IRI as in the triples"),
        );
    }
    let (mut vertices, relations) = graph.sorted();
    let ids = &mut vertices.keys;
    let mut dataset = Dataset {
        name: rdf.name.clone().unwrap_or_else(|| name_of(source)),
        title: rdf.title.clone(),
        relations,
        ..Dataset::default()
    };
    // A file of triples has labels only where the configuration names them.
    let labels = Labels { rdf: &rdf, folder, known: source.is_dir(), progress }.read(ids, &mut faults);
    if let Some((label, split)) = labels {
        dataset.labels.push(label);
        dataset.splits.extend(split);
    }
    dataset.vertex_types.push(VertexTypeData {
        name: "entity".into(),
        count: ids.len(),
        ids: Some(ids.iter().collect()),
        kinds: vertices.kinds,
        ..VertexTypeData::default()
    });
    faults.or(dataset)
}

fn triple_files(source: &Path) -> Result<Vec<PathBuf>, ImportError> {
    if !source.is_dir() {
        return Ok(vec![source.to_path_buf()]);
    }
    let entries = std::fs::read_dir(source).map_err(|error| Faults::one(source, format!("cannot be read: {error}")))?;
    let is_triples = |path: &PathBuf| {
        let name = path.to_string_lossy().to_ascii_lowercase();
        name.trim_end_matches(".gz").ends_with(".nt") && path.is_file()
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_triples).collect();
    files.sort();
    if files.is_empty() {
        return Err(Faults::one(source, "there is no `.nt` or `.nt.gz` file: convert other forms of RDF to N-Triples"));
    }
    Ok(files)
}

/// Triples as numbers, in the order in which terms come.
struct Graph<'a> {
    rdf: &'a Rdf,
    terms: Keys,
    relations: Keys,
    /// Subject, predicate and object.
    triples: Vec<(u32, u32, u32)>,
}

/// Terms in the order of their texts.
struct Vertices {
    keys: Keys,
    kinds: Option<Kinds>,
}

impl Graph<'_> {
    fn read(&mut self, path: &Path, progress: &Progress, faults: &mut Faults) {
        let Some(mut lines) = Lines::open(path, progress, faults) else { return };
        while let Some((line, text)) = lines.next_filled(faults) {
            // A parser for each line, so that what is wrong with one says nothing of the next.
            for triple in NTriplesParser::new().for_slice(text) {
                let triple = match triple {
                    Ok(triple) => triple,
                    Err(error) => {
                        let text = shown(&String::from_utf8_lossy(text));
                        let message = format!(
                            "`{text}` is no triple: {}; write `<subject> <predicate> object .`",
                            error.message()
                        );
                        faults.add(path, Some(line), message);
                        break;
                    }
                };
                if self.add(&triple).is_none() {
                    faults.add(path, Some(line), "there are more than 2^30 terms");
                    return;
                }
            }
        }
    }

    /// Adds a triple. None if there are too many terms.
    fn add(&mut self, triple: &Triple) -> Option<()> {
        let relation = self.relations.add(triple.predicate.as_str())?.0;
        let is_dropped = self.rdf.drop.iter().any(|name| name == triple.predicate.as_str());
        let literal = matches!(triple.object, Term::Literal(_));
        if is_dropped || (literal && self.rdf.literals == Literals::Drop) {
            return Some(());
        }
        let subject = match &triple.subject {
            NamedOrBlankNode::NamedNode(iri) => self.terms.add(iri.as_str()),
            other => self.terms.add(&other.to_string()),
        };
        let object = match &triple.object {
            Term::NamedNode(iri) => self.terms.add(iri.as_str()),
            other => self.terms.add(&other.to_string()),
        };
        self.triples.push((subject?.0, relation, object?.0));
        Some(())
    }

    /// The terms, and the edges of each relation that has some, sorted and each once.
    fn sorted(self) -> (Vertices, Vec<RelationData>) {
        let (term_order, relation_order) = (self.terms.by_text(), self.relations.by_text());
        let (term_rank, relation_rank) = (ranks(&term_order), ranks(&relation_order));
        let mut triples: Vec<(u32, u32, u32)> = self
            .triples
            .iter()
            .map(|&(s, r, o)| (relation_rank[r as usize], term_rank[s as usize], term_rank[o as usize]))
            .collect();
        triples.sort_unstable();
        triples.dedup();
        let mut relations: Vec<RelationData> = Vec::new();
        for edges in triples.chunk_by(|a, b| a.0 == b.0) {
            let name = self.relations.text(relation_order[edges[0].0 as usize]).to_owned();
            let (src_ids, dst_ids) = edges.iter().map(|&(_, s, o)| (s, o)).unzip();
            relations.push(RelationData { name, src_ids, dst_ids, ..RelationData::default() });
        }
        let keys = self.terms.taken(&term_order);
        let types = relations.iter().find(|relation| relation.name == TYPE);
        let kinds = types.map(|types| kinds(&keys, types));
        (Vertices { keys, kinds }, relations)
    }
}

/// The kind of each term: `literal`; the rarest of its types, the first one by its text of equally rare ones; `class`, of
/// what has no type but is one; `untyped` for the rest.
fn kinds(keys: &Keys, types: &RelationData) -> Kinds {
    const UNTYPED: &str = "untyped";
    let mut frequency: BTreeMap<u32, u64> = BTreeMap::new();
    types.dst_ids.iter().for_each(|&ty| *frequency.entry(ty).or_default() += 1);
    let mut rarest: Vec<Option<u32>> = vec![None; keys.len()];
    for (&term, &ty) in types.src_ids.iter().zip(&types.dst_ids) {
        let best = &mut rarest[term as usize];
        let rank = |ty: u32| (frequency[&ty], ty);
        if best.is_none_or(|known| rank(ty) < rank(known)) {
            *best = Some(ty);
        }
    }
    let name = |term: u32| {
        if keys.text(term).starts_with('"') {
            "literal"
        } else if let Some(ty) = rarest[term as usize] {
            keys.text(ty)
        } else if frequency.contains_key(&term) {
            "class"
        } else {
            UNTYPED
        }
    };
    let mut names: BTreeMap<&str, u32> = BTreeMap::new();
    (0..keys.len() as u32).for_each(|term| {
        names.insert(name(term), 0);
    });
    names.values_mut().enumerate().for_each(|(place, number)| *number = place as u32);
    Kinds {
        of: (0..keys.len() as u32).map(|term| names[name(term)]).collect(),
        names: names.keys().map(ToString::to_string).collect(),
    }
}

/// Tables of labels.
struct Labels<'a> {
    rdf: &'a Rdf,
    folder: &'a Path,
    /// Whether tables of the known names are read as well.
    known: bool,
    progress: &'a Progress,
}

impl Labels<'_> {
    fn read(&self, terms: &mut Keys, faults: &mut Faults) -> Option<(LabelData, Option<SplitData>)> {
        let rdf = self.rdf;
        let tables = [&rdf.train, &rdf.val, &rdf.test, &rdf.all];
        let said = tables.iter().any(|table| table.is_some());
        let known = ["trainingSet.tsv", "validationSet.tsv", "testSet.tsv", "completeDataset.tsv"];
        let files = tables.into_iter().zip(known).map(|(table, known)| match table {
            Some(name) => Some(self.folder.join(name)),
            None if said || !self.known => None,
            None => Some(self.folder.join(known)).filter(|path| path.is_file()),
        });
        let files: Vec<Option<PathBuf>> = files.collect();
        if files.iter().all(Option::is_none) {
            return None;
        }
        let mut classes = Keys::default();
        let mut of: Vec<Option<u32>> = vec![None; terms.len()];
        let mut parts: [Vec<u32>; 4] = Default::default();
        let mut taken = vec![false; terms.len()];
        for (part, file) in files.iter().enumerate() {
            let Some(file) = file else { continue };
            for (line, term, class) in self.table(file, terms, &mut classes, faults) {
                let id = shown(terms.text(term));
                match of[term as usize].replace(class) {
                    Some(other) if other != class => {
                        let (class, other) = (shown(classes.text(class)), shown(classes.text(other)));
                        faults.add(
                            file,
                            Some(line),
                            format!("`{id}` has the class `{class}` here, and `{other}` before: it has one"),
                        );
                    }
                    _ => {}
                }
                let in_part = part < 3 && std::mem::replace(&mut taken[term as usize], true);
                if in_part {
                    faults.add(
                        file,
                        Some(line),
                        format!("`{id}` is in the split already: an entity is in one part, once"),
                    );
                }
                parts[part].push(term);
            }
        }
        let order = classes.by_text();
        let rank = ranks(&order);
        if order.is_empty() {
            if faults.count == 0 {
                faults.add(
                    files.iter().flatten().next().map_or(self.folder, |file| file),
                    None,
                    "there is no label in it",
                );
            }
            return None;
        }
        let label = LabelData {
            name: "y".into(),
            vertex_type: 0,
            values: LabelValues::Single {
                classes: order.len(),
                of: of.iter().map(|class| class.map_or(-1, |class| rank[class as usize] as i32)).collect(),
            },
            class_names: order.iter().map(|&class| classes.text(class).to_owned()).collect(),
        };
        let split = files[..3].iter().any(Option::is_some).then(|| {
            let [train, val, test, _] = parts.map(|mut part| {
                part.sort_unstable();
                part
            });
            SplitData { name: "standard".into(), vertex_type: 0, train, val, test }
        });
        Some((label, split))
    }

    /// The rows of a table: line, term and class.
    fn table(&self, path: &Path, terms: &Keys, classes: &mut Keys, faults: &mut Faults) -> Vec<(u64, u32, u32)> {
        let mut found = Vec::new();
        let style = Style { separator: separator_of(path, b'\t'), quotes: true, columns: None, ragged: false };
        let Some(columns) = self.columns(path, &style, faults) else { return found };
        self.progress.expect(path);
        let opened = Table::open(path, Some(Format::Csv), &style, &columns, self.progress, faults);
        let Some(mut rows) = opened else { return found };
        let mut unknown = Unknown::default();
        while let Some(line) = rows.next(faults) {
            let mut field = |at: usize| -> Option<String> {
                let text = rows.field(at, line, faults)?.to_owned();
                if text.is_empty() {
                    faults.add(path, Some(line), format!("column `{}` has no value", shown(&columns[at])));
                }
                Some(text).filter(|text| !text.is_empty())
            };
            let (Some(entity), Some(class)) = (field(0), field(1)) else { continue };
            let iri = entity.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(&entity);
            match (terms.get(iri), classes.add(&class)) {
                (Some(term), Some((class, _))) => found.push((line, term, class)),
                (None, _) if self.rdf.unknown == OnUnknown::Skip => {}
                (None, _) => unknown.add(line, &entity),
                (_, None) => faults.add(path, Some(line), "there are more than 2^30 classes"),
            }
        }
        let way_out =
            "the triples name every entity with a label, or `unknown = \"skip\"` of `--config` leaves such lines out";
        unknown.report(faults, path, "term with a label", way_out);
        found
    }

    /// The columns of the entity and of its class: as they are said, or those of a well-known table.
    fn columns(&self, path: &Path, style: &Style<'_>, faults: &mut Faults) -> Option<Vec<String>> {
        if let (Some(entity), Some(class)) = (&self.rdf.entity, &self.rdf.class) {
            return Some(vec![entity.clone(), class.clone()]);
        }
        // Bytes count when the rows are read.
        let rows = Rows::open(path, style, &Progress::default(), faults)?;
        let has = |name: &str| rows.columns().iter().any(|column| column == name);
        let known = KNOWN_COLUMNS.iter().find(|(entity, class)| has(entity) && has(class));
        if known.is_none() {
            let there = rows.columns().iter().map(|c| format!("`{}`", shown(c))).collect::<Vec<_>>().join(", ");
            faults.add(
                path,
                Some(1),
                format!("no two columns are those of a well-known table (there is {there}): write `entity = \"…\"` and `class = \"…\"` into a file for `--config`"),
            );
        }
        known.map(|(entity, class)| vec![entity.to_string(), class.to_string()])
    }
}
