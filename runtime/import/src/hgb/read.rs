//! Reads the files of the benchmark.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::str::FromStr;

use hgnnc_dataset::{
    Dataset, LabelData, LabelValues, LinkSplitData, Links, RelationData, SplitData, VertexIds, VertexTypeData, files,
};

use super::info::Info;
use super::{DRAWN_SPLITS, INFO, LABELS, LINKS, NODES, TEST_LABELS, TEST_LINKS, VAL_IDS, VAL_LINKS, VALIDATION_SHARE};
use crate::error::{Faults, ImportError, shown};
use crate::export::named_classes;
use crate::files::Lines;
use crate::keys::Keys;
use crate::progress::Progress;
use crate::triples::name_of;
use crate::values::{features, finite};

/// Reads the folder `source`.
///
/// # Errors
/// With all faults of the files.
pub(crate) fn read(source: &Path, progress: &Progress) -> Result<Dataset, ImportError> {
    let mut reader = Reader { source, progress, info: Info::default(), faults: Faults::default() };
    let all = [NODES, LINKS, LABELS, TEST_LABELS, VAL_IDS, TEST_LINKS, VAL_LINKS];
    all.iter().for_each(|name| progress.expect(&source.join(name)));
    reader.info();
    let nodes = reader.nodes();
    // Ids mean nothing without the file that lists them.
    if reader.faults.count > 0 {
        return reader.faults.or(Dataset::default());
    }
    let mut relations = reader.relations(&nodes);
    let link_split = reader.link_split(&nodes, &relations);
    let (labels, splits) = reader.labels(&nodes);
    reader.name_relations(&nodes, &mut relations);
    let numbers: Vec<u32> = nodes.types.iter().map(|ty| ty.number).collect();
    let names = reader.info.type_names(&numbers);
    let vertex_types = nodes.types.into_iter().zip(names).map(|(ty, name)| ty.finish(name, progress));
    let dataset = Dataset {
        name: name_of(source),
        vertex_types: vertex_types.collect(),
        relations: relations.into_values().map(|relation| relation.data).collect(),
        labels,
        splits,
        link_splits: link_split.into_iter().collect(),
        ..Dataset::default()
    };
    reader.faults.or(dataset)
}

struct Reader<'a> {
    source: &'a Path,
    progress: &'a Progress,
    info: Info,
    faults: Faults,
}

/// The vertices of `node.dat`.
#[derive(Default)]
struct Nodes {
    /// In the order of their numbers.
    types: Vec<Type>,
    /// The first id of each type, and its position in `types`, in the order of ids.
    ranges: Vec<(u64, usize)>,
    count: u64,
}

impl Nodes {
    /// Type and vertex of an id.
    fn find(&self, id: u64) -> Option<(usize, u32)> {
        let range = self.ranges.partition_point(|&(first, _)| first <= id).checked_sub(1)?;
        let (first, ty) = self.ranges[range];
        (id < self.count).then(|| (ty, (id - first) as u32))
    }
}

struct Type {
    number: u32,
    count: usize,
    names: Keys,
    /// Vertices without a name, and those with the name of another one.
    unnamed: usize,
    repeated: usize,
    /// Width of the features; None as long as no vertex has any.
    dim: Option<usize>,
    rows: Vec<f32>,
}

impl Type {
    fn new(number: u32) -> Type {
        Type { number, count: 0, names: Keys::default(), unnamed: 0, repeated: 0, dim: None, rows: Vec::new() }
    }

    fn finish(self, name: String, progress: &Progress) -> VertexTypeData {
        if self.unnamed < self.count && self.unnamed + self.repeated > 0 {
            progress.note(format!(
                "names of vertex type `{}` are not taken as ids: {} vertices have none, {} that of another one",
                shown(&name),
                self.unnamed,
                self.repeated
            ));
        }
        let ids: Option<VertexIds> =
            (self.count > 0 && self.unnamed + self.repeated == 0).then(|| self.names.into_ids());
        let features = self.dim.map(|dim| features(dim, self.rows.into()));
        VertexTypeData { name, count: self.count, features, ids, ..VertexTypeData::default() }
    }
}

/// A relation that is read.
struct Relation {
    data: RelationData,
    weights: Vec<f32>,
}

/// The classes of a vertex, and the file that has them.
struct Labelled {
    vertex: u32,
    classes: Vec<u32>,
    is_test: bool,
}

impl Reader<'_> {
    fn info(&mut self) {
        let path = self.source.join(INFO);
        if !path.is_file() {
            let message = format!(
                "there is no `{INFO}`, which has names: types are called `type0`, … and relations `relation0`, …"
            );
            return self.progress.note(message);
        }
        let parsed = files::read_to_string(&path).map_err(|error| format!("cannot be read: {error}"));
        match parsed.and_then(|text| Info::parse(&text)) {
            Ok(info) => self.info = info,
            Err(error) => {
                let way_out = "correct it, or remove it: types and relations then have numbers for names";
                self.faults.add(&path, None, format!("{error}; {way_out}"));
            }
        }
    }

    /// Calls `take` with the fields of each line of a file, which have one of the numbers in `counts`.
    fn lines<const N: usize>(
        &mut self,
        name: &str,
        counts: [usize; N],
        expected: &str,
        mut take: impl FnMut(&[&str]) -> Result<(), String>,
    ) {
        let path = self.source.join(name);
        let Some(mut lines) = Lines::open(&path, self.progress, &mut self.faults) else { return };
        while let Some((line, text)) = lines.next_text(&mut self.faults) {
            let fields: Vec<&str> = text.split('\t').collect();
            // A file may end with an empty line.
            if fields == [""] {
                continue;
            }
            let result = if counts.contains(&fields.len()) {
                take(&fields)
            } else {
                let found = fields.len();
                Err(format!("there are {found} fields, but a line is {expected}, with tabs between them"))
            };
            if let Err(error) = result {
                self.faults.add(&path, Some(line), error);
            }
        }
    }

    fn nodes(&mut self) -> Nodes {
        let mut types: Vec<Type> = Vec::new();
        let mut ranges: Vec<(u64, usize)> = Vec::new();
        let mut count = 0;
        self.lines(NODES, [3, 4], "id, name, type and features", |fields| {
            let (id, number): (u64, u32) = (field(fields[0], "an id")?, field(fields[2], "a type")?);
            // Whatever else is wrong, the next line has the next id.
            let expected = std::mem::replace(&mut count, id.saturating_add(1));
            if id != expected {
                return Err(format!("the id is {id}, but that of this line should be {expected}: ids start at 0 and ascend by 1"));
            }
            let last = ranges.last().map(|&(_, ty)| ty);
            let ty = match last.filter(|&ty| types[ty].number == number) {
                Some(ty) => ty,
                None if types.iter().any(|ty| ty.number == number) => {
                    return Err(format!("vertices of type {number} stood before those of another type: the ids of a type are one range"));
                }
                None => {
                    ranges.push((id, types.len()));
                    types.push(Type::new(number));
                    types.len() - 1
                }
            };
            let ty = &mut types[ty];
            ty.count += 1;
            if ty.count > 1 << 30 {
                return Err("there are more than 2^30 vertices of a type".into());
            }
            match fields[1] {
                "" => ty.unnamed += 1,
                name => ty.repeated += usize::from(!ty.names.add(name).is_some_and(|(_, new)| new)),
            }
            let values = fields.get(3).copied().unwrap_or_default();
            match (values.trim().is_empty(), ty.dim) {
                (true, None) => Ok(()),
                (true, Some(_)) => Err(format!("this vertex of type {number} has no features, but those before it have: all of a type have them, or none")),
                (false, None) if ty.count > 1 => Err(format!("this vertex of type {number} has features, but those before it have none: all of a type have them, or none")),
                (false, _) => row(values, &mut ty.dim, &mut ty.rows),
            }
        });
        if types.is_empty() && self.faults.count == 0 {
            self.faults.add(&self.source.join(NODES), None, "there are no vertices in it");
        }
        // A type that has a name and no vertices.
        for &number in self.info.types.keys() {
            if types.iter().all(|ty| ty.number != number) {
                types.push(Type::new(number));
            }
        }
        let mut order: Vec<usize> = (0..types.len()).collect();
        order.sort_by_key(|&ty| types[ty].number);
        let rank = crate::triples::ranks(&order.iter().map(|&ty| ty as u32).collect::<Vec<_>>());
        ranges.iter_mut().for_each(|(_, ty)| *ty = rank[*ty] as usize);
        types.sort_by_key(|ty| ty.number);
        Nodes { types, ranges, count }
    }

    fn relations(&mut self, nodes: &Nodes) -> BTreeMap<u32, Relation> {
        let mut relations: BTreeMap<u32, Relation> = BTreeMap::new();
        let position = |number: u32| nodes.types.iter().position(|ty| ty.number == number);
        // Those that have no links as well.
        for (&number, of) in &self.info.links {
            if let (Some(src), Some(dst)) = (position(of.start), position(of.end)) {
                let data = RelationData { src, dst, ..RelationData::default() };
                relations.insert(number, Relation { data, weights: Vec::new() });
            }
        }
        self.lines(LINKS, [4], LINK, |fields| {
            let link = link(fields, nodes)?;
            let relation = relations.entry(link.relation).or_insert_with(|| {
                let data = RelationData { src: link.src.0, dst: link.dst.0, ..RelationData::default() };
                Relation { data, weights: Vec::new() }
            });
            let data = &mut relation.data;
            let ends = (link.src.0, link.dst.0);
            // The links decide what `info.dat` has wrong.
            if data.src_ids.is_empty() {
                (data.src, data.dst) = ends;
            }
            link.check_ends((data.src, data.dst), nodes)?;
            data.src_ids.push(link.src.1);
            data.dst_ids.push(link.dst.1);
            relation.weights.push(link.weight);
            Ok(())
        });
        for relation in relations.values_mut() {
            if relation.weights.iter().any(|&w| w != 1.0) {
                relation.data.weight = Some(std::mem::take(&mut relation.weights).into());
            }
        }
        relations
    }

    fn link_split(&mut self, nodes: &Nodes, relations: &BTreeMap<u32, Relation>) -> Option<LinkSplitData> {
        let mut part = |name: &str| {
            let mut links = Links::default();
            if !self.source.join(name).is_file() {
                return links;
            }
            self.lines(name, [4], LINK, |fields| {
                let link = link(fields, nodes)?;
                let position = relations.keys().position(|&number| number == link.relation);
                let (Some(position), Some(of)) = (position, relations.get(&link.relation)) else {
                    let number = link.relation;
                    return Err(format!("relation {number} has no line in `{LINKS}` and no names in `{INFO}`: links are held out of relations to train on"));
                };
                link.check_ends((of.data.src, of.data.dst), nodes)?;
                links.src.push(link.src.1);
                links.relation.push(position as u32);
                links.dst.push(link.dst.1);
                Ok(())
            });
            links
        };
        let (val, test) = (part(VAL_LINKS), part(TEST_LINKS));
        if val.is_empty() && test.is_empty() {
            return None;
        }
        if val.is_empty() {
            self.progress.note(format!(
                "the benchmark draws links to validate on from those of `{LINKS}`: move them to a file `{VAL_LINKS}`"
            ));
        }
        Some(LinkSplitData { name: "hgb".into(), val, test })
    }

    fn labels(&mut self, nodes: &Nodes) -> (Vec<LabelData>, Vec<SplitData>) {
        let mut found: Vec<HashMap<u32, Labelled>> = nodes.types.iter().map(|_| HashMap::new()).collect();
        for name in [LABELS, TEST_LABELS] {
            if !self.source.join(name).is_file() {
                continue;
            }
            self.lines(name, [4], "id, name, type and classes", |fields| {
                let (id, number): (u64, u32) = (field(fields[0], "an id")?, field(fields[2], "a type")?);
                let (ty, vertex) = nodes.find(id).ok_or_else(|| unknown(id, nodes))?;
                let own = nodes.types[ty].number;
                if own != number {
                    return Err(format!("vertex {id} is of type {own} in `{NODES}`, but of type {number} here"));
                }
                let classes = fields[3].split(',').map(str::trim).filter(|class| !class.is_empty());
                let mut classes: Vec<u32> = classes
                    .map(|class| {
                        field(class, "a class").and_then(|class: u32| {
                            let few = class < 1 << 24;
                            few.then_some(class).ok_or_else(|| format!("class {class} is not below 2^24"))
                        })
                    })
                    .collect::<Result<_, _>>()?;
                classes.sort_unstable();
                classes.dedup();
                let labelled = Labelled { vertex, classes, is_test: name == TEST_LABELS };
                match found[ty].insert(vertex, labelled) {
                    None => Ok(()),
                    Some(_) => Err(format!(
                        "vertex {id} has a label already: `{LABELS}` and `{TEST_LABELS}` have each vertex once"
                    )),
                }
            });
        }
        let validation = self.validation(nodes, &found);
        let (mut labels, mut splits) = (Vec::new(), Vec::new());
        for (ty, found) in found.into_iter().enumerate().filter(|(_, found)| !found.is_empty()) {
            let mut found: Vec<Labelled> = found.into_values().collect();
            found.sort_by_key(|labelled| labelled.vertex);
            splits.extend(split(ty, &found, validation.as_ref().map(|of| &of[ty][..])));
            let label = self.label(ty, &nodes.types[ty], &found);
            labels.push(label);
        }
        (labels, splits)
    }

    /// The vertices to validate on by type, if a file names them.
    fn validation(&mut self, nodes: &Nodes, found: &[HashMap<u32, Labelled>]) -> Option<Vec<Vec<u32>>> {
        if !self.source.join(VAL_IDS).is_file() {
            return None;
        }
        let mut validation: Vec<Vec<u32>> = nodes.types.iter().map(|_| Vec::new()).collect();
        self.lines(VAL_IDS, [1], "an id", |fields| {
            let id = field(fields[0], "an id")?;
            let (ty, vertex) = nodes.find(id).ok_or_else(|| unknown(id, nodes))?;
            if found[ty].get(&vertex).is_none_or(|labelled| labelled.is_test) {
                return Err(format!("vertex {id} is not in `{LABELS}`, of whose vertices some are for validation"));
            }
            validation[ty].push(vertex);
            Ok(())
        });
        for vertices in &mut validation {
            vertices.sort_unstable();
            vertices.dedup();
        }
        Some(validation)
    }

    fn label(&mut self, vertex_type: usize, ty: &Type, found: &[Labelled]) -> LabelData {
        let names = self.info.classes.get(&ty.number);
        let named = names.and_then(|names| names.last_key_value()).map_or(0, |(&class, _)| class as usize + 1);
        let seen = found.iter().flat_map(|labelled| &labelled.classes).max().map_or(0, |&class| class as usize + 1);
        // A name of a class is not a reason to allocate for millions of them.
        let classes = seen.max(named.min(1 << 24)).max(1);
        let multi = found.iter().any(|labelled| labelled.classes.len() != 1);
        let values = if multi {
            let size = classes.checked_mul(ty.count).filter(|&size| size <= 1 << 34);
            let Some(size) = size else {
                let message = format!("{classes} classes of {} vertices with several of them are too many", ty.count);
                self.faults.add(&self.source.join(LABELS), None, message);
                return LabelData {
                    name: "y".into(),
                    vertex_type,
                    values: LabelValues::Single { classes, of: Vec::new() },
                    class_names: Vec::new(),
                };
            };
            let (mut rows, mut has_label) = (vec![0.0; size], vec![false; ty.count]);
            for labelled in found {
                has_label[labelled.vertex as usize] = true;
                let row = labelled.vertex as usize * classes;
                labelled.classes.iter().for_each(|&class| rows[row + class as usize] = 1.0);
            }
            LabelValues::Multi { classes, rows, labelled: has_label }
        } else {
            let mut of = vec![-1; ty.count];
            found.iter().for_each(|labelled| of[labelled.vertex as usize] = labelled.classes[0] as i32);
            LabelValues::Single { classes, of }
        };
        let all = names.filter(|names| names.len() == classes && names.keys().copied().eq(0..classes as u32));
        let class_names = all.map(|names| named_classes(names.values().cloned().collect())).unwrap_or_default();
        LabelData { name: "y".into(), vertex_type, values, class_names }
    }

    /// Names the relations, whose ends are now known.
    fn name_relations(&mut self, nodes: &Nodes, relations: &mut BTreeMap<u32, Relation>) {
        let numbers: Vec<u32> = relations.keys().copied().collect();
        let number = |ty: usize| nodes.types[ty].number;
        let ends: Vec<_> = relations.values().map(|of| (number(of.data.src), number(of.data.dst))).collect();
        let names = self.info.relation_names(&numbers, &ends);
        relations.values_mut().zip(names).for_each(|(relation, name)| relation.data.name = name);
    }
}

/// The split of a type: with the validation set of a file, or several drawn ones.
fn split(vertex_type: usize, found: &[Labelled], validation: Option<&[u32]>) -> Vec<SplitData> {
    let part = |test: bool| found.iter().filter(move |l| l.is_test == test).map(|l| l.vertex).collect::<Vec<u32>>();
    let (known, test) = (part(false), part(true));
    if let Some(val) = validation {
        let train = known.into_iter().filter(|vertex| val.binary_search(vertex).is_err()).collect();
        return vec![SplitData { name: "hgb".into(), vertex_type, train, val: val.to_vec(), test }];
    }
    let draw = |seed: u64| {
        let mut order = known.clone();
        hgnnc_split::shuffle(&mut order, seed);
        let mut val = order.split_off(order.len() - (order.len() as f64 * VALIDATION_SHARE) as usize);
        order.sort_unstable();
        val.sort_unstable();
        SplitData { name: format!("hgb{seed}"), vertex_type, train: order, val, test: test.clone() }
    };
    (0..DRAWN_SPLITS).map(draw).collect()
}

/// Fields that a line of links is expected to have.
const LINK: &str = "head, tail, relation and weight";

/// A line of links.
struct Link {
    src: (usize, u32),
    dst: (usize, u32),
    relation: u32,
    weight: f32,
}

fn link(fields: &[&str], nodes: &Nodes) -> Result<Link, String> {
    let end = |text: &str| {
        let id = field(text, "an id")?;
        nodes.find(id).ok_or_else(|| unknown(id, nodes))
    };
    let (src, dst, relation) = (end(fields[0])?, end(fields[1])?, field(fields[2], "a relation")?);
    let weight = finite(fields[3]).ok_or_else(|| format!("`{}` is not a weight: a number", shown(fields[3])))?;
    Ok(Link { src, dst, relation, weight })
}

impl Link {
    fn check_ends(&self, (src, dst): (usize, usize), nodes: &Nodes) -> Result<(), String> {
        if (self.src.0, self.dst.0) == (src, dst) {
            return Ok(());
        }
        let number = |ty: usize| nodes.types[ty].number;
        let (relation, src, dst) = (self.relation, number(src), number(dst));
        let (own_src, own_dst) = (number(self.src.0), number(self.dst.0));
        Err(format!(
            "relation {relation} leads from type {src} to type {dst}, but this link from type {own_src} to type {own_dst}: give these links another number"
        ))
    }
}

fn unknown(id: u64, nodes: &Nodes) -> String {
    format!("there is no vertex {id}: `{NODES}` has the ids 0 to {}", nodes.count.saturating_sub(1))
}

/// A number that is not negative.
fn field<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("`{}` is not {what}: a number from 0", shown(text)))
}

/// Appends a row of features, as wide as those before it.
fn row(text: &str, dim: &mut Option<usize>, rows: &mut Vec<f32>) -> Result<(), String> {
    let start = rows.len();
    for value in text.split(',') {
        match finite(value) {
            Some(x) => rows.push(x),
            None => {
                rows.truncate(start);
                return Err(format!("`{}` is not a feature: a finite number", shown(value)));
            }
        }
    }
    let found = rows.len() - start;
    match *dim.get_or_insert(found) {
        dim if dim == found => Ok(()),
        dim => Err(format!("there are {found} features, but the first vertex of the type has {dim}")),
    }
}
