//! Writes a dataset to a folder, as [`Dataset::load`](crate::Dataset::load) reads it. `docs/dataset.md` describes the
//! format.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::dataset::{
    Dataset, DenseFeatures, Features, LabelValues, LinkSplitData, Links, MetapathData, RelationData, Transform,
    TransformKind, VertexIds, VertexTypeData,
};
use crate::npy::{self, Element};

/// Why a dataset was not written. The target is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// There is something at the target already.
    #[error("`{}` exists and is not an empty folder; it is left alone", .0.display())]
    Occupied(PathBuf),
    /// A file could not be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

impl WriteError {
    /// For a failure of the operating system at a path.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> WriteError + use<> {
        let path = path.to_path_buf();
        move |source| WriteError::Io { path, source }
    }
}

/// Makes the folder `target`, which appears complete or not at all: `fill` fills a folder beside it, which is then
/// renamed.
///
/// # Errors
/// When the target is there and is not an empty folder, and those of `fill`.
pub fn new_folder<E: From<WriteError>>(target: &Path, fill: impl FnOnce(&Path) -> Result<(), E>) -> Result<(), E> {
    vacant(target)?;
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(parent).map_err(WriteError::io(parent))?;
    // In the same folder, so that the rename stays within one file system. Deleted on failure.
    let work = tempfile::Builder::new().prefix(".hgnnc-").tempdir_in(parent).map_err(WriteError::io(parent))?;
    let folder = work.path().join("new");
    std::fs::create_dir(&folder).map_err(WriteError::io(&folder))?;
    fill(&folder)?;
    // An empty folder is replaced.
    std::fs::rename(&folder, target).map_err(WriteError::io(target))?;
    Ok(())
}

/// Checks that [`new_folder`] may make `target`.
///
/// # Errors
/// When it is there and is not an empty folder.
pub fn vacant(target: &Path) -> Result<(), WriteError> {
    let free = match std::fs::read_dir(target) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if free { Ok(()) } else { Err(WriteError::Occupied(target.to_path_buf())) }
}

impl Dataset {
    /// Writes all of the dataset to the folder `target`, which appears complete or not at all.
    ///
    /// Values are written as they were loaded, but float16 and float64 become float32, and integers become int32 where
    /// they are ids or classes.
    ///
    /// # Errors
    /// When `target` is there and is not an empty folder, or a file cannot be written.
    pub fn write(&self, target: &Path) -> Result<(), WriteError> {
        new_folder(target, |folder| Writer { folder, files: RefCell::default() }.dataset(self))
    }
}

/// `dataset.toml`, field by field in the order of `docs/dataset.md`.
#[derive(Serialize)]
struct File<'a> {
    format: u32,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generator: Option<&'a str>,
    vertex_type: Vec<VertexTypeTable<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    relation: Vec<RelationTable<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    label: Vec<LabelTable<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    split: Vec<SplitTable<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    link_split: Vec<LinkSplitTable<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metapath: Vec<MetapathTable<'a>>,
}

#[derive(Serialize)]
struct VertexTypeTable<'a> {
    name: &'a str,
    count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind_names: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    features: Option<FeaturesTable>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    field: Vec<FieldTable<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<IdsTable>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    transform: Vec<TransformTable<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum FeaturesTable {
    Dense { dim: usize, file: String },
    Csr { dim: usize, nnz: usize, indptr: String, indices: String, data: String },
}

#[derive(Serialize)]
struct FieldTable<'a> {
    name: &'a str,
    #[serde(flatten)]
    values: FeaturesTable,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum IdsTable {
    Integer { file: String },
    Text { offsets: String, bytes: String },
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum TransformTable<'a> {
    Numbers {
        columns: &'a [String],
        shift: &'a [f64],
        scale: &'a [f64],
        missing: &'a [f64],
    },
    OneHot {
        columns: &'a [String],
        #[serde(skip_serializing_if = "Option::is_none")]
        separator: Option<&'a str>,
        categories: &'a [String],
    },
    Buckets {
        columns: &'a [String],
        bounds: &'a [f64],
    },
    Vector {
        columns: &'a [String],
        separator: &'a str,
        width: usize,
    },
}

impl<'a> From<&'a Transform> for TransformTable<'a> {
    fn from(transform: &'a Transform) -> Self {
        let columns = &transform.columns;
        match &transform.kind {
            TransformKind::Numbers { shift, scale, missing } => Self::Numbers { columns, shift, scale, missing },
            TransformKind::OneHot { categories, separator } => {
                Self::OneHot { columns, separator: separator.as_deref(), categories }
            }
            TransformKind::Buckets { bounds } => Self::Buckets { columns, bounds },
            TransformKind::Vector { separator, width } => Self::Vector { columns, separator, width: *width },
        }
    }
}

#[derive(Serialize)]
struct RelationTable<'a> {
    name: &'a str,
    src: &'a str,
    dst: &'a str,
    edges: usize,
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    features: Option<EdgeFeaturesTable>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    transform: Vec<TransformTable<'a>>,
}

#[derive(Serialize)]
struct EdgeFeaturesTable {
    dim: usize,
    file: String,
}

/// The field that says what the rows of a label or a split are.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum RowsOf<'a> {
    VertexType(&'a str),
    Relation(&'a str),
}

#[derive(Serialize)]
struct LabelTable<'a> {
    #[serde(flatten)]
    of: RowsOf<'a>,
    name: &'a str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    classes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dim: Option<usize>,
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mask_file: Option<String>,
    labelled: usize,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    class_names: &'a [String],
}

#[derive(Serialize)]
struct SplitTable<'a> {
    name: &'a str,
    #[serde(flatten)]
    of: RowsOf<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    train: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    val: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<String>,
}

#[derive(Serialize)]
struct LinkSplitTable<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    val: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    val_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test_time: Option<String>,
}

#[derive(Serialize)]
struct MetapathTable<'a> {
    name: &'a str,
    steps: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pairs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    self_pairs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instances: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_degree: Option<u64>,
}

/// Writes arrays to a folder, and makes the tables that name them.
struct Writer<'a> {
    folder: &'a Path,
    /// Names of files, in lower case: some file systems do not tell capitals apart.
    files: RefCell<HashSet<String>>,
}

impl Writer<'_> {
    fn dataset(&self, dataset: &Dataset) -> Result<(), WriteError> {
        let type_name = |ty: usize| dataset.vertex_types[ty].name.as_str();
        // Those of vertex types first.
        let labels = dataset
            .labels
            .iter()
            .map(|l| (RowsOf::VertexType(type_name(l.vertex_type)), l.name.as_str(), &l.values, &l.class_names[..]));
        let of_edges = dataset.relations.iter().flat_map(|r| r.labels.iter().map(move |l| (r, l)));
        let of_edges =
            of_edges.map(|(r, l)| (RowsOf::Relation(&r.name), l.name.as_str(), &l.values, &l.class_names[..]));
        let labels: Vec<_> = labels.chain(of_edges).collect();
        let splits = dataset.splits.iter().map(|s| {
            (RowsOf::VertexType(type_name(s.vertex_type)), s.name.as_str(), [&s.train[..], &s.val[..], &s.test[..]])
        });
        let of_edges = dataset.relations.iter().flat_map(|r| r.splits.iter().map(move |s| (r, s)));
        let of_edges = of_edges
            .map(|(r, s)| (RowsOf::Relation(&r.name), s.name.as_str(), [&s.train[..], &s.val[..], &s.test[..]]));
        let splits: Vec<_> = splits.chain(of_edges).collect();
        let file = File {
            format: 1,
            name: &dataset.name,
            title: dataset.title.as_deref(),
            generator: dataset.generator.as_deref(),
            vertex_type: each(&dataset.vertex_types, |i, v| self.vertex_type(i, v))?,
            relation: each(&dataset.relations, |i, r| self.relation(i, r, type_name(r.src), type_name(r.dst)))?,
            label: each(&labels, |i, (of, name, values, classes)| self.label(i, *of, (name, values, classes)))?,
            split: each(&splits, |i, (of, name, parts)| self.split(i, *of, name, *parts))?,
            link_split: each(&dataset.link_splits, |i, s| self.link_split(i, s))?,
            metapath: dataset.metapaths.iter().map(|m| metapath(dataset, m)).collect(),
        };
        let path = self.folder.join("dataset.toml");
        let text = toml::to_string(&file).map_err(|e| WriteError::io(&path)(io::Error::other(e)))?;
        std::fs::write(&path, text).map_err(WriteError::io(&path))
    }

    /// The name of a file that is not written yet: `file`, or another one where it is, as for a vertex type and a
    /// relation of one name.
    fn free(&self, file: String) -> String {
        let mut files = self.files.borrow_mut();
        let stem = file.strip_suffix(".npy").unwrap_or(&file);
        let names = std::iter::once(file.clone()).chain((2..).map(|n: u32| format!("{stem}-{n}.npy")));
        // There are more names than files.
        names.into_iter().find(|name| files.insert(name.to_ascii_lowercase())).unwrap_or_default()
    }

    /// Writes an array, and returns the name of its file.
    fn array<T: Element>(&self, file: String, shape: &[usize], values: &[T]) -> Result<String, WriteError> {
        let file = self.free(file);
        let path = self.folder.join(&file);
        npy::write(&path, shape, values).map_err(WriteError::io(&path))?;
        Ok(file)
    }

    /// Writes ids below 2^31 as int32, which every reader knows, and others as uint32.
    fn ids(&self, file: String, shape: &[usize], rows: &[&[u32]]) -> Result<String, WriteError> {
        let file = self.free(file);
        let path = self.folder.join(&file);
        let signed = rows.iter().all(|row| row.iter().all(|&id| id <= i32::MAX as u32));
        if signed {
            npy::write_rows::<i32, _>(&path, shape, rows)
        } else {
            npy::write_rows::<u32, _>(&path, shape, rows)
        }
        .map_err(WriteError::io(&path))?;
        Ok(file)
    }

    fn times(&self, file: String, times: Option<&Vec<i64>>) -> Result<Option<String>, WriteError> {
        times.map(|times| self.array(file, &[times.len()], times)).transpose()
    }

    /// Features in files whose names begin with `stem`.
    fn features(&self, stem: &str, count: usize, of: &Features) -> Result<FeaturesTable, WriteError> {
        Ok(match of {
            Features::Dense(x) => {
                FeaturesTable::Dense { dim: x.dim, file: self.array(format!("{stem}.npy"), &[count, x.dim], &x.rows)? }
            }
            Features::Sparse(x) => FeaturesTable::Csr {
                dim: x.dim,
                nnz: x.data.len(),
                indptr: self.array(
                    format!("{stem}.indptr.npy"),
                    &[count + 1],
                    &x.indptr.iter().map(|&end| end as i64).collect::<Vec<_>>(),
                )?,
                indices: self.ids(format!("{stem}.indices.npy"), &[x.indices.len()], &[&x.indices])?,
                data: self.array(format!("{stem}.data.npy"), &[x.data.len()], &x.data)?,
            },
        })
    }

    fn vertex_type<'d>(&self, index: usize, of: &'d VertexTypeData) -> Result<VertexTypeTable<'d>, WriteError> {
        let stem = stem(index, &of.name);
        let features = of.features.as_ref().map(|x| self.features(&format!("{stem}.x"), of.count, x)).transpose()?;
        let fields = each(&of.fields, |index, field| {
            let stem = format!("{stem}.field{index}");
            Ok(FieldTable { name: &field.name, values: self.features(&stem, of.count, &field.values)? })
        })?;
        let ids = match &of.ids {
            None => None,
            Some(VertexIds::Integer(ids)) => {
                Some(IdsTable::Integer { file: self.array(format!("{stem}.ids.npy"), &[ids.len()], ids)? })
            }
            Some(VertexIds::Text { offsets, bytes }) => Some(IdsTable::Text {
                offsets: self.array(
                    format!("{stem}.ids.offsets.npy"),
                    &[offsets.len()],
                    &offsets.iter().map(|&end| end as i64).collect::<Vec<_>>(),
                )?,
                bytes: self.array(format!("{stem}.ids.bytes.npy"), &[bytes.len()], bytes.as_bytes())?,
            }),
        };
        let kind_file = match &of.kinds {
            Some(kinds) => Some(self.ids(format!("{stem}.kind.npy"), &[of.count], &[&kinds.of])?),
            None => None,
        };
        Ok(VertexTypeTable {
            name: &of.name,
            count: of.count,
            time: self.times(format!("{stem}.time.npy"), of.time.as_ref())?,
            kind_file,
            kind_names: of.kinds.as_ref().map(|kinds| &kinds.names[..]),
            features,
            field: fields,
            ids,
            transform: of.transforms.iter().map(TransformTable::from).collect(),
        })
    }

    fn relation<'d>(
        &self,
        index: usize,
        of: &'d RelationData,
        src: &'d str,
        dst: &'d str,
    ) -> Result<RelationTable<'d>, WriteError> {
        let stem = stem(index, &of.name);
        let edges = of.num_edges();
        let weight = of.weight.as_ref().map(|w| self.array(format!("{stem}.weight.npy"), &[edges], w)).transpose()?;
        let features = |x: &DenseFeatures| {
            let file = self.array(format!("{stem}.x.npy"), &[edges, x.dim], &x.rows)?;
            Ok(EdgeFeaturesTable { dim: x.dim, file })
        };
        Ok(RelationTable {
            name: &of.name,
            src,
            dst,
            edges,
            file: self.ids(format!("{stem}.edges.npy"), &[2, edges], &[&of.src_ids, &of.dst_ids])?,
            weight,
            time: self.times(format!("{stem}.time.npy"), of.time.as_ref())?,
            features: of.features.as_ref().map(features).transpose()?,
            transform: of.transforms.iter().map(TransformTable::from).collect(),
        })
    }

    fn label<'d>(
        &self,
        index: usize,
        of: RowsOf<'d>,
        (name, values, class_names): (&'d str, &LabelValues, &'d [String]),
    ) -> Result<LabelTable<'d>, WriteError> {
        let stem = format!("label{index}");
        let file = format!("{stem}.npy");
        let mask = |labelled: &[bool]| {
            if labelled.iter().all(|&l| l) {
                return Ok(None);
            }
            let mask: Vec<u8> = labelled.iter().map(|&l| u8::from(l)).collect();
            self.array(format!("{stem}.known.npy"), &[mask.len()], &mask).map(Some)
        };
        let (kind, classes, dim, file, mask_file) = match values {
            LabelValues::Single { classes, of } => {
                ("single", Some(*classes), None, self.array(file, &[of.len()], of)?, None)
            }
            LabelValues::Multi { classes, rows, labelled } => {
                let bits: Vec<u8> = rows.iter().map(|&y| u8::from(y != 0.0)).collect();
                let file = self.array(file, &[labelled.len(), *classes], &bits)?;
                ("multi", Some(*classes), None, file, mask(labelled)?)
            }
            LabelValues::Real { dim, rows, labelled } => {
                let file = self.array(file, &[labelled.len(), *dim], rows)?;
                ("real", None, Some(*dim), file, mask(labelled)?)
            }
        };
        let labelled = values.num_labelled();
        Ok(LabelTable { of, name, kind, classes, dim, file, mask_file, labelled, class_names })
    }

    fn split<'d>(
        &self,
        index: usize,
        of: RowsOf<'d>,
        name: &'d str,
        [train, val, test]: [&[u32]; 3],
    ) -> Result<SplitTable<'d>, WriteError> {
        let part = |part: &str, ids: &[u32]| {
            let write = || self.ids(format!("split{index}.{part}.npy"), &[ids.len()], &[ids]);
            (!ids.is_empty()).then(write).transpose()
        };
        let (train, val, test) = (part("train", train)?, part("val", val)?, part("test", test)?);
        Ok(SplitTable { name, of, train, val, test })
    }

    fn link_split<'d>(&self, index: usize, of: &'d LinkSplitData) -> Result<LinkSplitTable<'d>, WriteError> {
        let part = |part: &str, links: &Links| {
            let rows: [&[u32]; 3] = [&links.src, &links.relation, &links.dst];
            let write = || self.ids(format!("links{index}.{part}.npy"), &[3, links.len()], &rows);
            (!links.is_empty()).then(write).transpose()
        };
        let times = |part: &str, links: &Links| {
            let of_links = links.time.as_ref().filter(|_| !links.is_empty());
            self.times(format!("links{index}.{part}.time.npy"), of_links)
        };
        Ok(LinkSplitTable {
            name: &of.name,
            val: part("val", &of.val)?,
            val_time: times("val", &of.val)?,
            test: part("test", &of.test)?,
            test_time: times("test", &of.test)?,
        })
    }
}

fn metapath<'d>(dataset: &'d Dataset, of: &'d MetapathData) -> MetapathTable<'d> {
    let arrow = |reverse: bool| if reverse { '<' } else { '>' };
    let steps = of.steps.iter().map(|s| format!("{}{}", arrow(s.reverse), dataset.relations[s.relation].name));
    MetapathTable {
        name: &of.name,
        steps: steps.collect(),
        pairs: of.pairs,
        self_pairs: of.self_pairs,
        instances: of.instances,
        max_degree: of.max_degree,
    }
}

fn each<'d, T, U>(all: &'d [T], table: impl Fn(usize, &'d T) -> Result<U, WriteError>) -> Result<Vec<U>, WriteError> {
    all.iter().enumerate().map(|(i, one)| table(i, one)).collect()
}

/// The start of names of files: readable, and unique also where two names differ only in what a file name cannot hold.
pub fn stem(index: usize, name: &str) -> String {
    let safe: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' }).collect();
    let short: String = safe.chars().take(60).collect();
    format!("{index}.{short}")
}
