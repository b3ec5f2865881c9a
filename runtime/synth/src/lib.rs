//! Synthetic datasets in the shape of well-known ones.
//!
//! Vertex types, counts, relation names, feature widths, classes and split sizes are those of the real dataset; edges,
//! features and labels are random. Every vertex has a hidden community. Edges prefer endpoints of one community, words
//! of a vertex's bag lean towards its community, degrees follow a power law, and the label is the community except for
//! a share of noise, which bounds the accuracy of any model. Only sizes are taken from the real data.
//!
//! A shape and a seed give the same files every time and for any number of threads; across platforms up to the rounding
//! of `powf`.

#![forbid(unsafe_code)]

mod citations;
mod draw;
mod knowledge_graph;
mod lastfm;
mod mag;
mod molecules;
mod plays;
mod shapes;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hgnnc_dataset::{DataErrors, Dataset, files, npy};
use hgnnc_graph::SemanticGraphs;
use rand::Rng;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use self::draw::Pool;
use self::knowledge_graph::{FB15K237, WN18RR};
use self::shapes::{GraphShape, Pattern, SplitShape};

/// Incremented whenever a shape and seed would give other files than before.
pub const GENERATOR_VERSION: u32 = 1;

/// A real dataset to imitate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Papers, authors, subjects; 3 classes of papers.
    Acm,
    /// Papers and subjects with the author metapath as a relation; 3 classes of papers.
    AcmHan,
    /// An RDF graph without features, 45 relations between entities; 4 classes, 176 labelled.
    Aifb,
    /// Papers and authors with times, which imitate no dataset; 6 classes of papers.
    Citations,
    /// A citation graph; 7 classes.
    Cora,
    /// Authors, papers, terms, venues; 4 classes of authors.
    Dblp,
    /// Movies, directors, actors; 3 classes of movies.
    Imdb,
    /// Users, artists, tags; links between users and artists to predict.
    Lastfm,
    /// Papers, authors, fields of study, institutions: 1.9 M vertices and 21.1 M edges, 349 classes of papers.
    Mag,
    /// Many small graphs of atoms, which imitate no dataset; 2 classes of molecules.
    Molecules,
    /// Users and artists with the times of plays, which imitate no dataset; the next plays are the links to predict.
    Plays,
    /// Entities and 237 relations between them; links of all relations to predict.
    Fb15k237,
    /// Entities and 11 relations between them; links of all relations to predict.
    Wn18rr,
}

impl Shape {
    /// All shapes, by name.
    pub const ALL: [Shape; 13] = [
        Shape::Acm,
        Shape::AcmHan,
        Shape::Aifb,
        Shape::Citations,
        Shape::Cora,
        Shape::Dblp,
        Shape::Fb15k237,
        Shape::Imdb,
        Shape::Lastfm,
        Shape::Mag,
        Shape::Molecules,
        Shape::Plays,
        Shape::Wn18rr,
    ];

    /// Name of the shape on the command line and in `dataset.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Acm => "acm",
            Shape::AcmHan => "acm_han",
            Shape::Aifb => "aifb",
            Shape::Citations => "citations",
            Shape::Cora => "cora",
            Shape::Dblp => "dblp",
            Shape::Fb15k237 => "fb15k237",
            Shape::Imdb => "imdb",
            Shape::Lastfm => "lastfm",
            Shape::Mag => "mag",
            Shape::Molecules => "molecules",
            Shape::Plays => "plays",
            Shape::Wn18rr => "wn18rr",
        }
    }

    /// Whether other scales than 1 are allowed.
    fn scales(self) -> bool {
        self == Shape::Mag
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Shape {
    type Err = SynthError;

    fn from_str(name: &str) -> Result<Shape, SynthError> {
        Shape::ALL.into_iter().find(|s| s.name() == name).ok_or_else(|| SynthError::UnknownShape(name.to_string()))
    }
}

/// A shape and its scale: `mag`, or `mag 0.01` for a hundredth of its vertices and edges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// The dataset to imitate.
    pub shape: Shape,
    /// Vertices and edges, relative to those of the real dataset. Only [`Shape::Mag`] allows other values than 1.
    pub scale: f64,
}

impl Size {
    /// The largest scale: vertex ids have 32 bits, and so have edge positions of a relation, the largest of which has
    /// 7.5 million edges.
    pub const LARGEST: f64 = 100.0;

    /// The size of the real dataset.
    pub fn full(shape: Shape) -> Size {
        Size { shape, scale: 1.0 }
    }

    /// `scale` times the real dataset.
    ///
    /// Errors when the shape has a fixed size, or the scale is not in `0 < scale <=` [`Size::LARGEST`].
    pub fn scaled(shape: Shape, scale: f64) -> Result<Size, SynthError> {
        if !(scale > 0.0 && scale <= Size::LARGEST) {
            return Err(SynthError::Scale(scale.to_string()));
        }
        if scale != 1.0 && !shape.scales() {
            return Err(SynthError::OneSize(shape));
        }
        Ok(Size { shape, scale })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scale {
            1.0 => write!(f, "{}", self.shape),
            scale => write!(f, "{} {scale}", self.shape),
        }
    }
}

impl FromStr for Size {
    type Err = SynthError;

    fn from_str(text: &str) -> Result<Size, SynthError> {
        match text.trim().split_once(char::is_whitespace) {
            None => Ok(Size::full(text.trim().parse()?)),
            Some((shape, scale)) => {
                let number = scale.trim().parse().map_err(|_| SynthError::Scale(scale.trim().to_string()))?;
                Size::scaled(shape.parse()?, number)
            }
        }
    }
}

/// Why no synthetic dataset was written. The target is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthError {
    /// No shape has this name.
    #[error("there is no shape `{0}` (there is {list})", list = Shape::ALL.map(Shape::name).join(", "))]
    UnknownShape(String),
    /// A scale other than 1 for a shape of fixed size.
    #[error("`{0}` has one size only (there is a scale for mag)")]
    OneSize(Shape),
    /// The scale is not a number in range.
    #[error("`{0}` is not a scale: write a number above 0 and at most 100, such as 0.01")]
    Scale(String),
    /// The target exists and was not made by this generator.
    #[error("`{}` exists and is not a synthetic dataset; it is left alone", .0.display())]
    Occupied(PathBuf),
    /// A file could not be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The written dataset is not valid: a bug of this crate, not the user's mistake.
    #[error("internal error: the generated dataset is not valid: {0}")]
    Invalid(#[from] DataErrors),
}

/// Whether [`generate`] wrote the dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The dataset was written.
    Written,
    /// A complete dataset of the same version and seed existed already.
    Kept,
}

/// Writes the full-size dataset of `shape` and `seed` into the folder `target`, as [`generate_size`] does.
pub fn generate(shape: Shape, seed: u64, target: &Path) -> Result<Outcome, SynthError> {
    generate_size(Size::full(shape), seed, target)
}

/// Writes the dataset of `size` and `seed` into the folder `target`, which appears complete or not at all.
///
/// Replaces an existing synthetic dataset of another shape, scale, version or seed; errors if anything else is there,
/// or if a file cannot be written.
pub fn generate_size(size: Size, seed: u64, target: &Path) -> Result<Outcome, SynthError> {
    let Size { shape, scale } = size;
    let scaled = if scale == 1.0 { String::new() } else { format!(", scale {scale}") };
    let generator = format!("hgnnc synth {shape}, version {GENERATOR_VERSION}, seed {seed}{scaled}");
    if is_made_by(target, &generator) {
        return Ok(Outcome::Kept);
    }
    if !may_replace(target) {
        return Err(SynthError::Occupied(target.to_path_buf()));
    }
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| SynthError::Io { path, source }
    };
    let parent = match target.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(parent).map_err(failed(parent))?;
    // One process at a time; processes that waited find the dataset complete. Where folders cannot be locked, the last
    // one to finish wins, unless a reader is active during the rename.
    let lock = std::fs::File::open(parent).ok().filter(|folder| folder.lock().is_ok());
    if lock.is_some() && is_made_by(target, &generator) {
        return Ok(Outcome::Kept);
    }
    if lock.is_some() {
        remove_leftovers(parent);
    }
    // In the same folder, so that the final rename stays within one file system. Deleted on failure.
    let work = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(parent).map_err(failed(parent))?;
    let folder = work.path().join("new");
    std::fs::create_dir(&folder).map_err(failed(&folder))?;
    let mut writer = Writer { folder: &folder, toml: String::new() };
    let rng = ChaCha8Rng::seed_from_u64(seed);
    match shape {
        Shape::Acm => write_graph(&mut writer, shape, &generator, &shapes::ACM, rng)?,
        Shape::AcmHan => write_graph(&mut writer, shape, &generator, &shapes::ACM_HAN, rng)?,
        Shape::Cora => write_graph(&mut writer, shape, &generator, &shapes::CORA, rng)?,
        Shape::Dblp => write_graph(&mut writer, shape, &generator, &shapes::DBLP, rng)?,
        Shape::Imdb => write_graph(&mut writer, shape, &generator, &shapes::IMDB, rng)?,
        Shape::Aifb => write_aifb(&mut writer, shape, &generator, rng)?,
        Shape::Lastfm => lastfm::write(&mut writer, &generator, rng)?,
        Shape::Mag => mag::write(&mut writer, &generator, scale, seed)?,
        Shape::Citations => citations::write(&mut writer, &generator, rng)?,
        Shape::Molecules => molecules::write(&mut writer, &generator, rng)?,
        Shape::Plays => plays::write(&mut writer, &generator, rng)?,
        Shape::Fb15k237 => knowledge_graph::write(&mut writer, &FB15K237, &generator, rng)?,
        Shape::Wn18rr => knowledge_graph::write(&mut writer, &WN18RR, &generator, rng)?,
    }
    writer.finish()?;

    let old = work.path().join("old");
    let replaces = target.exists();
    if replaces {
        std::fs::rename(target, &old).map_err(failed(target))?;
    }
    match std::fs::rename(&folder, target) {
        Ok(()) => Ok(Outcome::Written),
        // Another process may have written the same dataset in the meantime.
        Err(_) if is_made_by(target, &generator) => Ok(Outcome::Kept),
        Err(source) => {
            if replaces {
                // Report the first failure. Restoring the old folder is best effort.
                let _ = std::fs::rename(&old, target);
            }
            Err(SynthError::Io { path: target.to_path_buf(), source })
        }
    }
}

/// Prefix of the names of folders in which datasets are written.
const UNFINISHED: &str = ".synth-";

/// Removes leftovers of killed processes. The folder is locked, so no other process is writing to it.
fn remove_leftovers(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let random = name.to_str().and_then(|name| name.strip_prefix(UNFINISHED));
        let is_ours =
            random.is_some_and(|random| random.len() == 6 && random.bytes().all(|b| b.is_ascii_alphanumeric()));
        // A folder with other contents is not ours.
        let is_known = |name: &std::ffi::OsStr| name == "new" || name == "old";
        let only_known =
            || std::fs::read_dir(entry.path()).is_ok_and(|all| all.flatten().all(|found| is_known(&found.file_name())));
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_dir()) && only_known() {
            // Leftovers that cannot be removed are harmless.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether `target` is a complete dataset with this `generator` line.
fn is_made_by(target: &Path, generator: &str) -> bool {
    target.join("dataset.toml").exists()
        && Dataset::load(target).is_ok_and(|d| d.generator.as_deref() == Some(generator))
}

/// Whether `target` may be replaced without loss: it is absent, an empty folder, or a synthetic dataset.
fn may_replace(target: &Path) -> bool {
    if !target.exists() {
        return true;
    }
    let empty = std::fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_none());
    empty
        || files::read_to_string(&target.join("dataset.toml"))
            .is_ok_and(|text| text.lines().any(|l| l.starts_with("generator = \"hgnnc synth ")))
}

/// A link that is held out, of the relation at a position of `dataset.toml`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    source: u32,
    relation: usize,
    destination: u32,
}

/// Writes the files of a dataset and collects its `dataset.toml`.
struct Writer<'a> {
    folder: &'a Path,
    toml: String,
}

impl Writer<'_> {
    fn line(&mut self, line: fmt::Arguments<'_>) {
        self.toml += &format!("{line}\n");
    }

    fn npy<T: npy::Element>(&mut self, name: &str, shape: &[usize], values: &[T]) -> Result<(), SynthError> {
        let path = self.folder.join(name);
        npy::write(&path, shape, values).map_err(|source| SynthError::Io { path, source })
    }

    fn save_toml(&self) -> Result<(), SynthError> {
        let path = self.folder.join("dataset.toml");
        std::fs::write(&path, &self.toml).map_err(|source| SynthError::Io { path, source })
    }

    fn head(&mut self, shape: Shape, title: &str, generator: &str, label_noise: f64) {
        self.line(format_args!("format = 1\nname = \"{shape}\"\ntitle = \"synthetic {title}, the shape of {shape}\""));
        self.line(format_args!("task = \"node-classification\"\ngenerator = \"{generator}\""));
        self.line(format_args!("label_noise = {label_noise:?}"));
    }

    fn split(&mut self, vertex_type: &str, name: &str, parts: [Vec<i32>; 3]) -> Result<(), SynthError> {
        self.line(format_args!("\n[[split]]\nname = \"{name}\"\nvertex_type = \"{vertex_type}\""));
        for (part, ids) in ["train", "val", "test"].into_iter().zip(parts) {
            if ids.is_empty() {
                continue;
            }
            let file = format!("{vertex_type}.{name}.{part}.npy");
            self.npy(&file, &[ids.len()], &ids)?;
            self.line(format_args!("{part} = \"{file}\"\n{part}_size = {}", ids.len()));
        }
        Ok(())
    }

    /// A relation with a file of its own.
    fn relation(&mut self, name: &str, src: &str, dst: &str, edges: &[(u32, u32)]) -> Result<(), SynthError> {
        let num = edges.len();
        self.line(format_args!(
            "\n[[relation]]\nname = \"{name}\"\nsrc = \"{src}\"\ndst = \"{dst}\"\nedges = {num}\nfile = \"{name}.npy\""
        ));
        let flat: Vec<i32> = edges.iter().map(|e| e.0 as i32).chain(edges.iter().map(|e| e.1 as i32)).collect();
        self.npy(&format!("{name}.npy"), &[2, num], &flat)
    }

    /// The links of the validation and the test part.
    fn link_split(&mut self, name: &str, parts: [&[Link]; 2]) -> Result<(), SynthError> {
        self.line(format_args!("\n[[link_split]]\nname = \"{name}\""));
        for (part, links) in ["val", "test"].into_iter().zip(parts) {
            let file = format!("{name}.{part}.npy");
            let column = |of: fn(&Link) -> i32| links.iter().map(of).collect::<Vec<i32>>();
            let columns =
                [column(|l| l.source as i32), column(|l| l.relation as i32), column(|l| l.destination as i32)].concat();
            self.npy(&file, &[3, links.len()], &columns)?;
            self.line(format_args!("{part} = \"{file}\"\n{part}_edges = {}", links.len()));
        }
        Ok(())
    }

    /// Loads the written files and adds the measured sizes of the metapath graphs.
    fn finish(&mut self) -> Result<(), SynthError> {
        self.save_toml()?;
        let dataset = Dataset::load(self.folder)?;
        let graphs = SemanticGraphs::new(&dataset);
        let mut text = String::new();
        let mut rest = self.toml.split("\n[[metapath]]\n");
        text += rest.next().unwrap_or_default();
        for (written, path) in rest.zip(&dataset.metapaths) {
            text += "\n[[metapath]]\n";
            text += written;
            // Loading has checked that the steps join.
            if let Ok(stats) = graphs.stats(&path.steps) {
                text += &format!(
                    "rows = {}\ncols = {}\npairs = {}\nself_pairs = {}\ninstances = {}\nmax_degree = {}\n",
                    stats.rows, stats.cols, stats.pairs, stats.self_pairs, stats.instances, stats.max_degree
                );
            }
        }
        self.toml = text;
        self.save_toml()
    }
}

/// Labels, exactly `per_class` of each, and communities: the label, or random for a share of `noise`.
fn labels(per_class: &[usize], noise: f64, rng: &mut ChaCha8Rng) -> (Vec<i32>, Vec<usize>) {
    let mut label: Vec<i32> =
        per_class.iter().enumerate().flat_map(|(c, &n)| std::iter::repeat_n(c as i32, n)).collect();
    label.shuffle(rng);
    let community = label
        .iter()
        .map(|&y| if rng.random::<f64>() < noise { rng.random_range(0..per_class.len()) } else { y as usize })
        .collect();
    (label, community)
}

/// Train, validation and test ids, each ascending, out of the labelled vertices `ids`.
fn split_ids(split: &SplitShape, ids: &[u32], label: &[i32], rng: &mut ChaCha8Rng) -> [Vec<i32>; 3] {
    let classes = label.iter().max().map_or(0, |&y| y as usize + 1);
    let mut order = ids.to_vec();
    order.shuffle(rng);
    if split.balanced {
        // Interleaves the classes proportionally, so that every prefix of the order has the overall class ratio.
        let mut turn = vec![0usize; classes];
        order.sort_by_cached_key(|&v| {
            let turn = &mut turn[label[v as usize] as usize];
            *turn += 1;
            *turn
        });
    }
    let (train, rest) = order.split_at(split.train);
    let (val, rest) = rest.split_at(split.val);
    let mut rest = rest.to_vec();
    rest.shuffle(rng);
    rest.truncate(split.test);
    [train.to_vec(), val.to_vec(), rest].map(|mut ids| {
        ids.sort_unstable();
        ids.into_iter().map(|v| v as i32).collect()
    })
}

fn write_graph(
    out: &mut Writer<'_>,
    shape: Shape,
    generator: &str,
    graph: &GraphShape,
    mut rng: ChaCha8Rng,
) -> Result<(), SynthError> {
    out.head(shape, graph.title, generator, graph.label_noise);
    let classes = graph.per_class.len();
    let (label, target_community) = labels(graph.per_class, graph.label_noise, &mut rng);

    // By type: vertices in order of descending degree, and communities. Other types than the target get communities
    // round-robin along that order, so that each community has its share of high-degree vertices.
    let mut orders = Vec::new();
    let mut communities = Vec::new();
    for (t, ty) in graph.types.iter().enumerate() {
        let order = draw::shuffled(ty.count, &mut rng);
        communities.push(if t == 0 {
            target_community.clone()
        } else {
            let mut community = vec![0; ty.count];
            for (rank, &v) in order.iter().enumerate() {
                community[v as usize] = rank % classes;
            }
            community
        });
        orders.push(order);
    }
    for (t, ty) in graph.types.iter().enumerate() {
        let name = ty.name;
        out.line(format_args!("\n[[vertex_type]]\nname = \"{name}\"\ncount = {}", ty.count));
        let Some(words) = ty.words else { continue };
        let (indptr, indices) = draw::bags(&communities[t], classes, words, &mut rng);
        let nnz = indices.len();
        out.line(format_args!(
            "[vertex_type.features]\nkind = \"csr\"\ndim = {}\nnnz = {nnz}\nbinary = true\nindptr = \"{name}.x.indptr.npy\"\n\
             indices = \"{name}.x.indices.npy\"\ndata = \"{name}.x.data.npy\"",
            words.dim
        ));
        out.npy(&format!("{name}.x.indptr.npy"), &[indptr.len()], &indptr)?;
        out.npy(&format!("{name}.x.indices.npy"), &[nnz], &indices)?;
        out.npy(&format!("{name}.x.data.npy"), &[nnz], &vec![1f32; nnz])?;
    }
    for r in graph.relations {
        let pool = |t: usize, exponent: f64| Pool::new(orders[t].clone(), exponent, &communities[t], classes);
        let ends = (&communities[r.src][..], &communities[r.dst][..]);
        let edges = match r.pattern {
            Pattern::Zipf { src, dst } => {
                draw::pairs(&pool(r.src, src), &pool(r.dst, dst), ends, r.edges, r.affinity, &mut rng)
            }
            Pattern::Symmetric { degree } => {
                draw::symmetric(&pool(r.src, degree), ends.0, r.edges, r.affinity, &mut rng)
            }
            Pattern::Cliques => draw::cliques(&pool(r.src, 0.5), ends.0, r.edges, r.affinity, &mut rng),
        };
        out.relation(r.name, graph.types[r.src].name, graph.types[r.dst].name, &edges)?;
    }
    let target = graph.types[0].name;
    write_label(out, target, &label, graph.per_class)?;
    let ids: Vec<u32> = (0..label.len() as u32).collect();
    let parts = split_ids(&graph.split, &ids, &label, &mut rng);
    out.split(target, graph.split.name, parts)?;
    for (name, steps) in graph.metapaths {
        out.line(format_args!("\n[[metapath]]\nname = \"{name}\"\nsteps = {steps:?}"));
    }
    Ok(())
}

fn write_label(out: &mut Writer<'_>, target: &str, label: &[i32], per_class: &[usize]) -> Result<(), SynthError> {
    out.line(format_args!(
        "\n[[label]]\nvertex_type = \"{target}\"\nfile = \"{target}.y.npy\"\nclasses = {}\nkind = \"single\"\nlabelled = {}\n\
         per_class = {per_class:?}",
        per_class.len(),
        per_class.iter().sum::<usize>()
    ));
    out.npy(&format!("{target}.y.npy"), &[label.len()], label)
}

/// AIFB: one vertex type with 29 kinds of vertices; a relation draws its endpoints from some kinds, labelled vertices
/// first, so that these have enough edges to be classified.
fn write_aifb(out: &mut Writer<'_>, shape: Shape, generator: &str, mut rng: ChaCha8Rng) -> Result<(), SynthError> {
    out.head(shape, "entities of a research institute (RDF)", generator, shapes::AIFB_LABEL_NOISE);
    let table: Vec<Vec<&str>> = shapes::AIFB_TSV
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
        .map(|l| l.split('\t').collect())
        .collect();
    let number = |text: &str| text.parse::<usize>().unwrap_or(0);

    let (mut names, mut kind, mut is_labelled) = (Vec::new(), Vec::new(), Vec::new());
    for row in table.iter().filter(|r| r[0] == "kind") {
        let (count, labelled) = (number(row[2]), number(row[3]));
        kind.extend(std::iter::repeat_n(names.len() as i32, count));
        is_labelled.extend((0..count).map(|i| i < labelled));
        names.push(row[1]);
    }
    let n = kind.len();
    let per_class = shapes::AIFB_PER_CLASS;
    let classes = per_class.len();
    let (target_label, target_community) = labels(&per_class, shapes::AIFB_LABEL_NOISE, &mut rng);
    let total: usize = per_class.iter().sum();
    let (mut label, mut community) = (vec![-1i32; n], vec![0usize; n]);
    let mut next = 0;
    for v in 0..n {
        if is_labelled[v] && next < total {
            (label[v], community[v]) = (target_label[next], target_community[next]);
            next += 1;
        } else {
            // Community sizes follow the class sizes.
            let mut at = rng.random_range(0..total);
            community[v] = per_class
                .iter()
                .position(|&c| {
                    at < c || {
                        at -= c;
                        false
                    }
                })
                .unwrap_or(0);
        }
    }

    let list = names.iter().map(|k| format!("\"{k}\"")).collect::<Vec<_>>().join(", ");
    out.line(format_args!(
        "\n[[vertex_type]]\nname = \"entity\"\ncount = {n}\nkind_file = \"entity.kind.npy\"\nkind_names = [{list}]"
    ));
    out.npy("entity.kind.npy", &[n], &kind)?;

    let (mut sources, mut destinations) = (Vec::new(), Vec::new());
    for row in table.iter().filter(|r| r[0] == "relation") {
        let (edges, num_src, num_dst) = (number(row[2]), number(row[3]), number(row[4]));
        let mut pool = |kinds: &str, num: usize| {
            let members = (0..n).filter(|&v| is_of(names[kind[v] as usize], kinds)).map(|v| v as u32);
            let (mut first, mut rest): (Vec<u32>, Vec<u32>) = members.partition(|&v| is_labelled[v as usize]);
            first.shuffle(&mut rng);
            rest.shuffle(&mut rng);
            first.append(&mut rest);
            first.truncate(num);
            Pool::new(first, 0.5, &community, classes)
        };
        let (src, dst) = (pool(row[5], num_src), pool(row[6], num_dst));
        let begin = sources.len();
        for (s, d) in draw::pairs(&src, &dst, (&community, &community), edges, shapes::AIFB_AFFINITY, &mut rng) {
            sources.push(s as i32);
            destinations.push(d as i32);
        }
        out.line(format_args!(
            "\n[[relation]]\nname = \"{}\"\nsrc = \"entity\"\ndst = \"entity\"\nedges = {}\nfile = \"edges.npy\"\ncolumns = [{begin}, {}]",
            row[1],
            sources.len() - begin,
            sources.len()
        ));
    }
    let num = sources.len();
    sources.append(&mut destinations);
    out.npy("edges.npy", &[2, num], &sources)?;
    write_label(out, "entity", &label, &per_class)?;
    let split = SplitShape { name: "standard", train: 140, val: 0, test: 36, balanced: false };
    let ids: Vec<u32> = (0..n as u32).filter(|&v| label[v as usize] >= 0).collect();
    let parts = split_ids(&split, &ids, &label, &mut rng);
    out.split("entity", split.name, parts)
}

/// Whether a kind is one of `kinds`: its own name, or a group of kinds.
fn is_of(kind: &str, kinds: &str) -> bool {
    let short = kind.rsplit('#').next().unwrap_or(kind);
    match kinds {
        "person" => matches!(
            short,
            "AssistantProfessor"
                | "FullProfessor"
                | "Graduate"
                | "Lecturer"
                | "Manager"
                | "Person"
                | "PhDStudent"
                | "TechnicalStaff"
                | "Undergraduate"
        ),
        "publication" => matches!(
            short,
            "Article"
                | "Book"
                | "InCollection"
                | "InProceedings"
                | "Misc"
                | "Proceedings"
                | "Publication"
                | "TechnicalReport"
        ),
        "entity" => kind != "literal",
        _ => kind == kinds,
    }
}
