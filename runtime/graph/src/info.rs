//! Statistics of a dataset: schema, counts, degrees, sizes of its metapath graphs.

use std::fmt;

use hgnnc_dataset::dataset::{Dataset, Features, FieldData, LabelValues, Step};
use rayon::prelude::*;
use serde::Serialize;

use crate::degrees::{ClassInfo, DegreeCounts};
use crate::sgb::{SemanticGraphs, SgbError, path_count};

/// The report of `data info`. Serialises to the JSON object of `data info --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct DatasetInfo {
    pub name: String,
    /// One-line description from `dataset.toml`.
    pub title: Option<String>,
    /// Program, version and seed of the generator, for synthetic data.
    pub generator: Option<String>,
    /// Number of vertices of all types.
    pub vertices: u64,
    /// Number of edges of all relations.
    pub edges: u64,
    /// Vertex types, in file order.
    pub vertex_types: Vec<VertexTypeInfo>,
    /// Relations, in file order.
    pub relations: Vec<RelationInfo>,
    /// Labels of the vertex types.
    pub labels: Vec<LabelInfo>,
    /// Train/validation/test splits of vertices.
    pub splits: Vec<SplitInfo>,
    /// Held-out links of link prediction.
    pub link_splits: Vec<LinkSplitInfo>,
    /// Declared metapaths, with the measured sizes of their graphs.
    pub metapaths: Vec<MetapathInfo>,
}

/// Statistics of a vertex type.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct VertexTypeInfo {
    pub name: String,
    pub count: u64,
    /// `dense`, `sparse` or `none`.
    pub features: &'static str,
    /// Feature columns, 0 without features.
    pub dim: u64,
    /// Number of stored feature values.
    pub stored: u64,
    /// Features with a name. Absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldInfo>,
}

/// Statistics of features with a name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct FieldInfo {
    pub name: String,
    /// The layout: `dense` or `sparse`.
    pub kind: &'static str,
    /// Number of columns of the matrix.
    pub dim: u64,
    /// Number of stored values.
    pub stored: u64,
}

fn kind(features: &Features) -> &'static str {
    match features {
        Features::Dense(_) => "dense",
        Features::Sparse(_) => "sparse",
    }
}

/// Statistics of a relation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct RelationInfo {
    pub name: String,
    /// Vertex type of the sources.
    pub src: String,
    /// Vertex type of the destinations.
    pub dst: String,
    /// Number of edges, duplicates included.
    pub edges: u64,
    /// Whether edges have weights.
    pub weight: bool,
    /// Columns of the edge features, 0 without features.
    pub feature_dim: u64,
    /// Degrees of the sources.
    pub out_degree: DegreeInfo,
    /// Degrees of the destinations.
    pub in_degree: DegreeInfo,
}

/// Degrees of the vertices on one side of a relation, in edges.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct DegreeInfo {
    pub min: u64,
    /// Mean over all vertices.
    pub mean: f64,
    /// Median (the lower one of two).
    pub median: u64,
    /// 99th percentile of the degrees.
    pub p99: u64,
    pub max: u64,
    /// Number of vertices without an edge.
    pub isolated: u64,
    /// Vertices and edges by degree class; classes without vertices are left out.
    pub classes: Vec<ClassInfo>,
}

/// A label of a vertex type or of a relation's edges.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct LabelInfo {
    pub name: String,
    #[serde(flatten)]
    pub of: RowsOf,
    /// `single`, `multi` or `real`.
    pub kind: &'static str,
    /// Number of classes, or of columns of a real-valued label.
    pub classes: u64,
    /// Number of labelled vertices or edges.
    pub labelled: u64,
    /// Vertices or edges of each class; empty for a real-valued label.
    pub per_class: Vec<u64>,
}

/// A train/validation/test split of vertices or edges.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct SplitInfo {
    pub name: String,
    #[serde(flatten)]
    pub of: RowsOf,
    pub train: u64,
    pub val: u64,
    pub test: u64,
}

/// The name of the vertex type or relation whose rows a label or a split is of.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowsOf {
    /// The vertices of a type.
    VertexType(String),
    /// The edges of a relation.
    Relation(String),
}

impl RowsOf {
    /// The name of the vertex type or relation.
    pub fn name(&self) -> &str {
        match self {
            RowsOf::VertexType(name) | RowsOf::Relation(name) => name,
        }
    }
}

/// Sizes of a link split.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct LinkSplitInfo {
    pub name: String,
    pub val: u64,
    pub test: u64,
}

/// A metapath with the size of its semantic graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct MetapathInfo {
    pub name: String,
    /// Steps as in `dataset.toml`.
    pub steps: Vec<String>,
    /// Number of vertices of the start type.
    pub rows: u64,
    /// Number of vertices of the end type.
    pub cols: u64,
    /// Distinct (start, end) pairs, self pairs included.
    pub pairs: u64,
    /// Pairs with start = end.
    pub self_pairs: u64,
    /// Path instances; an integer in JSON if 64 bits hold it, else a float.
    #[serde(serialize_with = "path_count")]
    pub instances: u128,
    /// Largest number of distinct end vertices of one start vertex.
    pub max_degree: u64,
    /// Degree classes of the start vertices, by their number of distinct end vertices.
    pub out_classes: Vec<ClassInfo>,
    /// Degree classes of the end vertices, by their number of distinct start vertices.
    pub in_classes: Vec<ClassInfo>,
}

impl DatasetInfo {
    /// Measures `dataset`; metapaths are counted row by row, their graphs are not built.
    ///
    /// Errors when the steps of a metapath do not join, which a loaded dataset excludes.
    pub fn new(dataset: &Dataset) -> Result<DatasetInfo, SgbError> {
        let type_name = |t: usize| dataset.vertex_types[t].name.clone();
        let graphs = SemanticGraphs::new(dataset);
        let metapaths = dataset
            .metapaths
            .iter()
            .map(|path| {
                let stats = graphs.stats(&path.steps)?;
                Ok(MetapathInfo {
                    name: path.name.clone(),
                    steps: path.steps.iter().map(|&s| step_text(dataset, s)).collect(),
                    rows: stats.rows as u64,
                    cols: stats.cols as u64,
                    pairs: stats.pairs,
                    self_pairs: stats.self_pairs,
                    instances: stats.instances,
                    max_degree: stats.max_degree,
                    out_classes: stats.out_classes,
                    in_classes: stats.in_classes,
                })
            })
            .collect::<Result<_, SgbError>>()?;
        let label = |name: &str, of: RowsOf, values: &LabelValues| {
            let (kind, classes, per_class) = classes(values);
            LabelInfo { name: name.to_owned(), of, kind, classes, labelled: values.num_labelled() as u64, per_class }
        };
        let split = |name: &str, of: RowsOf, [train, val, test]: [&[u32]; 3]| {
            let [train, val, test] = [train, val, test].map(|part| part.len() as u64);
            SplitInfo { name: name.to_owned(), of, train, val, test }
        };
        let of_type = |ty: usize| RowsOf::VertexType(type_name(ty));
        let mut labels: Vec<LabelInfo> =
            dataset.labels.iter().map(|l| label(&l.name, of_type(l.vertex_type), &l.values)).collect();
        let mut splits: Vec<SplitInfo> = dataset
            .splits
            .iter()
            .map(|s| split(&s.name, of_type(s.vertex_type), [&s.train, &s.val, &s.test]))
            .collect();
        for relation in &dataset.relations {
            let of = || RowsOf::Relation(relation.name.clone());
            labels.extend(relation.labels.iter().map(|l| label(&l.name, of(), &l.values)));
            splits.extend(relation.splits.iter().map(|s| split(&s.name, of(), [&s.train, &s.val, &s.test])));
        }
        Ok(DatasetInfo {
            name: dataset.name.clone(),
            title: dataset.title.clone(),
            generator: dataset.generator.clone(),
            vertices: dataset.num_vertices() as u64,
            edges: dataset.num_edges() as u64,
            vertex_types: dataset
                .vertex_types
                .iter()
                .map(|v| VertexTypeInfo {
                    name: v.name.clone(),
                    count: v.count as u64,
                    features: v.features.as_ref().map_or("none", kind),
                    fields: v
                        .fields
                        .iter()
                        .map(|FieldData { name, values }| FieldInfo {
                            name: name.clone(),
                            kind: kind(values),
                            dim: values.dim() as u64,
                            stored: values.num_stored() as u64,
                        })
                        .collect(),
                    dim: v.features.as_ref().map_or(0, |x| x.dim() as u64),
                    stored: v.features.as_ref().map_or(0, |x| x.num_stored() as u64),
                })
                .collect(),
            relations: dataset
                .relations
                .iter()
                .map(|r| RelationInfo {
                    name: r.name.clone(),
                    src: type_name(r.src),
                    dst: type_name(r.dst),
                    edges: r.num_edges() as u64,
                    weight: r.weight.is_some(),
                    feature_dim: r.features.as_ref().map_or(0, |x| x.dim as u64),
                    out_degree: degrees(dataset.vertex_types[r.src].count, &r.src_ids),
                    in_degree: degrees(dataset.vertex_types[r.dst].count, &r.dst_ids),
                })
                .collect(),
            labels,
            splits,
            link_splits: dataset
                .link_splits
                .iter()
                .map(|s| LinkSplitInfo { name: s.name.clone(), val: s.val.len() as u64, test: s.test.len() as u64 })
                .collect(),
            metapaths,
        })
    }

    /// The tables that `data info` prints, ending in a newline.
    pub fn text(&self) -> String {
        self.to_string()
    }

    /// The object that `data info --json` prints.
    pub fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("strings, booleans, 64-bit numbers and lists of them are JSON")
    }
}

impl fmt::Display for DatasetInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if let Some(title) = &self.title {
            write!(f, ": {title}")?;
        }
        writeln!(f)?;
        if let Some(generator) = &self.generator {
            writeln!(f, "made by {generator}")?;
        }
        writeln!(f, "{} vertices, {} edges", self.vertices, self.edges)?;

        let mut table = Table::new(&["vertex type", "vertices", "features", "stored"]);
        for v in &self.vertex_types {
            let features = if v.features == "none" { "none".into() } else { format!("{} {}", v.dim, v.features) };
            table.row([v.name.clone(), v.count.to_string(), features, v.stored.to_string()]);
            for field in &v.fields {
                let features = format!("{} {}", field.dim, field.kind);
                table.row([format!("  {}", field.name), String::new(), features, field.stored.to_string()]);
            }
        }
        table.write(f)?;

        let mut table = Table::new(&[
            "relation", "ends", "edges", "out mean", "p99", "max", "none", "in mean", "p99", "max", "none",
        ]);
        for r in &self.relations {
            let weight = if r.weight { " (weighted)" } else { "" };
            let (o, i) = (&r.out_degree, &r.in_degree);
            table.row([
                r.name.clone(),
                format!("{} -> {}{weight}", r.src, r.dst),
                r.edges.to_string(),
                format!("{:.2}", o.mean),
                o.p99.to_string(),
                o.max.to_string(),
                o.isolated.to_string(),
                format!("{:.2}", i.mean),
                i.p99.to_string(),
                i.max.to_string(),
                i.isolated.to_string(),
            ]);
        }
        table.write(f)?;

        let mut table = Table::new(&["label", "kind", "classes", "labelled", "per class"]);
        for l in &self.labels {
            let per_class = l.per_class.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
            let name = format!("{}.{}", l.of.name(), l.name);
            table.row([name, l.kind.into(), l.classes.to_string(), l.labelled.to_string(), per_class]);
        }
        table.write(f)?;

        let mut table = Table::new(&["split", "of", "train", "val", "test"]);
        for s in &self.splits {
            let sizes = [s.train, s.val, s.test].map(|n| n.to_string());
            let [train, val, test] = sizes;
            table.row([s.name.clone(), s.of.name().to_owned(), train, val, test]);
        }
        for s in &self.link_splits {
            table.row([s.name.clone(), "links".into(), self.edges.to_string(), s.val.to_string(), s.test.to_string()]);
        }
        table.write(f)?;

        let mut table = Table::new(&["metapath", "steps", "pairs", "self pairs", "instances", "max degree"]);
        for m in &self.metapaths {
            table.row([
                m.name.clone(),
                m.steps.join(" "),
                m.pairs.to_string(),
                m.self_pairs.to_string(),
                m.instances.to_string(),
                m.max_degree.to_string(),
            ]);
        }
        table.write(f)?;
        self.degree_table().write(f)
    }
}

impl DatasetInfo {
    /// Degree histogram with the share of edges of each class: one row per direction of each graph, one column per
    /// occupied class.
    fn degree_table(&self) -> Table {
        let relations = self.relations.iter().map(|r| (&r.name, &r.out_degree.classes, &r.in_degree.classes));
        let metapaths = self.metapaths.iter().map(|m| (&m.name, &m.out_classes, &m.in_classes));
        let graphs = relations.chain(metapaths);
        let rows: Vec<_> =
            graphs.flat_map(|(name, out, into)| [(name, "out", &out[..]), (name, "in", &into[..])]).collect();
        let mut classes: Vec<(u64, u64)> =
            rows.iter().flat_map(|row| row.2).map(|class| (class.from, class.to)).collect();
        classes.sort_unstable();
        classes.dedup();
        let mut head = vec!["vertices with degree".to_owned(), String::new()];
        head.extend(classes.iter().map(|&(from, to)| class_name(from, to)));
        let mut table = Table::new(&head);
        for (name, direction, of) in rows {
            let edges: u64 = of.iter().map(|class| class.edges).sum();
            let mut cells = vec![name.clone(), direction.to_owned()];
            cells.extend(classes.iter().map(|&(from, _)| {
                of.iter().find(|class| class.from == from).map_or(String::new(), |class| class_cell(class, edges))
            }));
            table.row(cells);
        }
        table
    }
}

/// Degree range of a class, as a column title.
fn class_name(from: u64, to: u64) -> String {
    if from == to { from.to_string() } else { format!("{from}-{to}") }
}

/// Number of vertices of a class, and their share of all edges.
fn class_cell(class: &ClassInfo, edges: u64) -> String {
    match class.edges as f64 * 100.0 / edges as f64 {
        _ if class.edges == 0 => class.vertices.to_string(),
        share if share < 0.5 => format!("{} <1%", class.vertices),
        share => format!("{} {share:.0}%", class.vertices),
    }
}

/// A step as `dataset.toml` writes it.
fn step_text(dataset: &Dataset, step: Step) -> String {
    format!("{}{}", if step.reverse { '<' } else { '>' }, dataset.relations[step.relation].name)
}

/// Degrees of `count` vertices, from the endpoint of each edge. Takes time and memory in the edges, not in `count`,
/// which an untrusted `dataset.toml` can inflate for free.
fn degrees(count: usize, ids: &[u32]) -> DegreeInfo {
    if count == 0 {
        return DegreeInfo::default();
    }
    let mut sorted = ids.to_vec();
    sorted.par_sort_unstable();
    let mut degree: Vec<u64> = sorted.chunk_by(|a, b| a == b).map(|run| run.len() as u64).collect();
    degree.sort_unstable();
    let isolated = count - degree.len();
    let mut counts = DegreeCounts::default();
    counts.add_rows(isolated as u64, 0);
    degree.iter().for_each(|&degree| counts.add(degree));
    let at = |rank: usize| rank.checked_sub(isolated).map_or(0, |i| degree[i]);
    DegreeInfo {
        min: at(0),
        mean: ids.len() as f64 / count as f64,
        median: at((count - 1) / 2),
        p99: at((count * 99).div_ceil(100) - 1),
        max: at(count - 1),
        isolated: isolated as u64,
        classes: counts.classes(),
    }
}

/// Kind, number of classes and vertices per class of a label.
fn classes(values: &LabelValues) -> (&'static str, u64, Vec<u64>) {
    match values {
        LabelValues::Single { classes, of } => {
            let mut per_class = vec![0; *classes];
            for &y in of.iter().filter(|&&y| y >= 0) {
                per_class[y as usize] += 1;
            }
            ("single", *classes as u64, per_class)
        }
        LabelValues::Multi { classes, rows, .. } => {
            let per_class =
                (0..*classes).map(|c| rows.iter().skip(c).step_by(*classes).filter(|v| **v == 1.0).count() as u64);
            ("multi", *classes as u64, per_class.collect())
        }
        LabelValues::Real { dim, .. } => ("real", *dim as u64, Vec::new()),
    }
}

/// A table with aligned columns; text left-aligned, numbers right-aligned. Prints nothing without rows.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(head: &[impl ToString]) -> Table {
        Table { rows: vec![head.iter().map(ToString::to_string).collect()] }
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [head, body @ ..] = &self.rows[..] else { return Ok(()) };
        if body.is_empty() {
            return Ok(());
        }
        let width = |c: usize| self.rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let number: Vec<bool> = (0..head.len()).map(|c| body.iter().all(|r| r[c].parse::<f64>().is_ok())).collect();
        writeln!(f)?;
        for row in &self.rows {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[c] - cell.chars().count());
                let gap = if c == 0 { "" } else { "  " };
                line += &if number[c] { format!("{gap}{pad}{cell}") } else { format!("{gap}{cell}{pad}") };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_count_vertices_without_edges() {
        let class = |from, to, vertices, edges| ClassInfo { from, to, vertices, edges };
        let d = degrees(5, &[4, 1, 4, 4, 0, 1]);
        let classes = vec![class(0, 0, 2, 0), class(1, 1, 1, 1), class(2, 3, 2, 5)];
        assert_eq!(d, DegreeInfo { min: 0, mean: 1.2, median: 1, p99: 3, max: 3, isolated: 2, classes });
        let none = DegreeInfo { isolated: 2, classes: vec![class(0, 0, 2, 0)], ..DegreeInfo::default() };
        assert_eq!(degrees(2, &[]), none);
        assert_eq!(degrees(0, &[]), DegreeInfo::default());
        let one = degrees(1, &[0, 0]);
        assert_eq!((one.min, one.median, one.p99, one.max, one.isolated), (2, 2, 2, 2, 0));
    }
}
