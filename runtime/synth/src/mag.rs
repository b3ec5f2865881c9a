//! A graph of the size of ogbn-mag: 1.9 M vertices, 21.1 M edges, written piece by piece.
//!
//! Counts of vertices, edges, classes and of the split by year are those of ogbn-mag (Hu et al., OGB, NeurIPS 2020).
//! The number of papers per author follows a power law for which the pairs of papers with a common author (PAP) come to
//! the published 65.9 million; the other exponents are chosen here, since the dataset's degrees are not published.
//!
//! Every paper has a hidden community, one per class, and a year. Its label is the community, or random for a share of
//! noise. Features are a community direction under noise that hides most of it; edges prefer endpoints of one
//! community; papers cite papers of their own year and before, older ones more.
//!
//! Edges of a relation are drawn source by source. Degrees are drawn first and sum to the exact edge count; the
//! destinations of a source are distinct, so only the sampling tables are held and nothing is sorted. Each chunk of
//! sources has its own random stream, so the files do not depend on the number of threads.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use hgnnc_dataset::npy::{self, Element};
use rand::seq::SliceRandom;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use crate::{Shape, SynthError, Writer, draw, write_label};

/// Number of classes, the same at every scale: a model of the whole graph fits a smaller one.
const CLASSES: usize = 349;
const DIM: usize = 128;
/// Strength of a community's direction in a feature, relative to noise of standard deviation 1.
const SIGNAL: f64 = 0.2;
/// Share of the papers with a random label instead of their community's.
const LABEL_NOISE: f64 = 0.3;

const PAPER: usize = 0;
const AUTHOR: usize = 1;
const FIELD: usize = 2;
const INSTITUTION: usize = 3;
const TYPES: [(&str, usize); 4] =
    [("paper", 736_389), ("author", 1_134_649), ("field_of_study", 59_965), ("institution", 8_740)];

/// Papers of 2018 are for validation, those of 2019 for test, and those of the eight years before for training.
const VAL: usize = 64_879;
const TEST: usize = 41_939;
const FIRST_YEAR: usize = 2010;
const YEARS: usize = 10;

struct Relation {
    name: &'static str,
    src: usize,
    dst: usize,
    edges: usize,
    /// Share of the sources that have edges, and their smallest number.
    share: f64,
    least: usize,
    /// Exponents of the power laws of source and destination degrees.
    exponents: (f64, f64),
    /// Share of the edges drawn within a community.
    affinity: f64,
}

const RELATIONS: [Relation; 4] = [
    Relation {
        name: "writes",
        src: AUTHOR,
        dst: PAPER,
        edges: 7_145_660,
        share: 1.0,
        least: 1,
        exponents: (0.417, 0.25),
        affinity: 0.35,
    },
    Relation {
        name: "cites",
        src: PAPER,
        dst: PAPER,
        edges: 5_416_271,
        share: 0.85,
        least: 1,
        exponents: (0.35, 0.55),
        affinity: 0.35,
    },
    Relation {
        name: "has_topic",
        src: PAPER,
        dst: FIELD,
        edges: 7_505_078,
        share: 1.0,
        least: 1,
        exponents: (0.1, 0.75),
        affinity: 0.15,
    },
    Relation {
        name: "affiliated_with",
        src: AUTHOR,
        dst: INSTITUTION,
        edges: 1_043_998,
        share: 0.65,
        least: 1,
        exponents: (0.1, 0.7),
        affinity: 0.2,
    },
];

/// Purpose of a random stream; the low 32 bits hold a chunk number.
#[derive(Clone, Copy)]
enum Stream {
    Communities(usize),
    Order(usize),
    Years,
    Labels,
    Directions,
    Features,
    Degrees(usize),
    Edges(usize),
}

impl Stream {
    fn rng(self, seed: u64, chunk: usize) -> ChaCha8Rng {
        let number = match self {
            Stream::Communities(t) => 0x10 + t,
            Stream::Order(t) => 0x20 + t,
            Stream::Years => 0x30,
            Stream::Labels => 0x31,
            Stream::Directions => 0x32,
            Stream::Features => 0x33,
            Stream::Degrees(r) => 0x40 + r,
            Stream::Edges(r) => 0x50 + r,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream((number as u64) << 32 | chunk as u64);
        rng
    }
}

/// Writes the graph with vertex and edge counts scaled by `scale`.
pub(super) fn write(out: &mut Writer<'_>, generator: &str, scale: f64, seed: u64) -> Result<(), SynthError> {
    let scaled = |n: usize| ((n as f64 * scale).round() as usize).max(1);
    let counts = TYPES.map(|(_, n)| scaled(n));
    let papers = counts[PAPER];
    out.head(Shape::Mag, "papers / authors / fields of study / institutions", generator, LABEL_NOISE);

    let communities: Vec<Vec<u16>> =
        (0..TYPES.len()).map(|t| communities(counts[t], &mut Stream::Communities(t).rng(seed, 0))).collect();
    let year = years(papers, scaled(VAL), scaled(TEST), &mut Stream::Years.rng(seed, 0));
    for (t, (name, _)) in TYPES.iter().enumerate() {
        out.line(format_args!("\n[[vertex_type]]\nname = \"{name}\"\ncount = {}", counts[t]));
        if t == PAPER {
            out.line(format_args!("[vertex_type.features]\nkind = \"dense\"\ndim = {DIM}\nfile = \"{name}.x.npy\""));
            features(&out.folder.join("paper.x.npy"), &communities[t], seed)?;
        }
    }

    // By type: the vertices in order of descending weight as destinations.
    let orders: Vec<Vec<u32>> =
        (0..TYPES.len()).map(|t| draw::shuffled(counts[t], &mut Stream::Order(t).rng(seed, 0))).collect();
    for (r, relation) in RELATIONS.iter().enumerate() {
        let edges = scaled(relation.edges);
        let cites = relation.src == relation.dst;
        let mut order = orders[relation.dst].clone();
        if cites {
            order.sort_by_key(|&v| year[v as usize]);
        }
        let table = Table {
            communities: &communities[relation.src],
            year: cites.then_some(&year[..]),
            affinity: relation.affinity,
            ..Table::new(order, &communities[relation.dst], cites.then_some(&year[..]), relation.exponents.1)
        };
        let degrees =
            degrees(relation, counts[relation.src], counts[relation.dst], edges, &mut Stream::Degrees(r).rng(seed, 0));
        let edges: usize = degrees.iter().map(|&d| d as usize).sum();
        let (name, src, dst) = (relation.name, TYPES[relation.src].0, TYPES[relation.dst].0);
        out.line(format_args!(
            "\n[[relation]]\nname = \"{name}\"\nsrc = \"{src}\"\ndst = \"{dst}\"\nedges = {edges}\nfile = \"{name}.npy\""
        ));
        let stream = |chunk| Stream::Edges(r).rng(seed, chunk);
        write_edges(&out.folder.join(format!("{name}.npy")), &degrees, edges, &table, stream)?;
    }

    let label = labels(&communities[PAPER], &mut Stream::Labels.rng(seed, 0));
    let mut per_class = vec![0usize; CLASSES];
    label.iter().for_each(|&y| per_class[y as usize] += 1);
    write_label(out, "paper", &label, &per_class)?;
    out.line(format_args!(
        "\n[[label]]\nvertex_type = \"paper\"\nname = \"year\"\nkind = \"real\"\nfile = \"paper.year.npy\"\ndim = 1"
    ));
    let years: Vec<f32> = year.iter().map(|&y| (FIRST_YEAR + y as usize) as f32).collect();
    out.npy("paper.year.npy", &[papers], &years)?;
    let parts = [0..YEARS - 2, YEARS - 2..YEARS - 1, YEARS - 1..YEARS]
        .map(|wanted| (0..papers).filter(|&v| wanted.contains(&(year[v] as usize))).map(|v| v as i32).collect());
    out.split("paper", "time", parts)?;
    out.line(format_args!("\n[[metapath]]\nname = \"PAP\"\nsteps = [\"<writes\", \">writes\"]"));
    Ok(())
}

/// Distributes `total` in proportion to weights; every prefix sum is rounded correctly.
fn apportion(total: usize, weights: impl Iterator<Item = f64> + Clone) -> Vec<usize> {
    let all: f64 = weights.clone().sum();
    let (mut sum, mut before) = (0.0, 0usize);
    let share = |weight: f64| {
        sum += weight;
        let upto = ((total as f64 * (sum / all)).round() as usize).min(total);
        let part = upto - before;
        before = upto;
        part
    };
    weights.map(share).collect()
}

/// A community for each vertex: sizes fall as rank^-1/2, the largest of the classes has 2.8 % of the vertices.
fn communities(count: usize, rng: &mut ChaCha8Rng) -> Vec<u16> {
    let sizes = apportion(count, (0..CLASSES).map(|c| (c as f64 + 1.0).powf(-0.5)));
    let mut of: Vec<u16> = sizes.iter().enumerate().flat_map(|(c, &n)| std::iter::repeat_n(c as u16, n)).collect();
    // The last sum may round down: the remaining vertices join the largest community.
    of.resize(count, 0);
    of.shuffle(rng);
    of
}

/// A year for each paper, from 0: increasing counts per year; the last two are exactly `val` and `test`.
fn years(papers: usize, val: usize, test: usize, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let test = test.min(papers);
    let val = val.min(papers - test);
    let mut sizes = apportion(papers - val - test, (0..YEARS - 2).map(|y| 6.0 + y as f64));
    sizes.extend([val, test]);
    let mut year: Vec<u8> = sizes.iter().enumerate().flat_map(|(y, &n)| std::iter::repeat_n(y as u8, n)).collect();
    year.resize(papers, 0);
    year.shuffle(rng);
    year
}

/// The communities, except for a share of noise with the same distribution.
fn labels(communities: &[u16], rng: &mut ChaCha8Rng) -> Vec<i32> {
    let label = |&c: &u16| {
        let other = communities[rng.random_range(0..communities.len())];
        i32::from(if rng.random::<f64>() < LABEL_NOISE { other } else { c })
    };
    communities.iter().map(label).collect()
}

/// A random sign vector for each community, plus noise of variance 1.
fn features(path: &Path, communities: &[u16], seed: u64) -> Result<(), SynthError> {
    let mut rng = Stream::Directions.rng(seed, 0);
    let sign = |rng: &mut ChaCha8Rng| if rng.random::<bool>() { SIGNAL as f32 } else { -SIGNAL as f32 };
    let directions: Vec<f32> = (0..CLASSES * DIM).map(|_| sign(&mut rng)).collect();
    let mut file = Pieces::<f32>::create(path, &[communities.len(), DIM])?;
    file.chunks(communities.len(), 1 << 11, |chunk, rows, out| {
        let mut rng = Stream::Features.rng(seed, chunk);
        for v in rows {
            let direction = &directions[communities[v] as usize * DIM..][..DIM];
            out.extend(direction.iter().map(|d| d + noise(&mut rng)));
        }
    })?;
    file.finish()
}

/// The sum of four 16-bit numbers, normalised to mean 0 and variance 1: approximately normal, and bit-equal on every
/// platform.
fn noise(rng: &mut ChaCha8Rng) -> f32 {
    let word = rng.next_u64();
    let sum = (0..4).map(|i| (word >> (16 * i)) as u16 as f32).sum::<f32>();
    // Each has mean 32767.5 and variance (2^32 - 1) / 12.
    (sum - 4.0 * 32767.5) * (3f32.sqrt() / 65536.0)
}

/// Out-degree of each source: a power law by rank over a share of the sources in random order, `edges` in total unless
/// there are fewer distinct pairs.
fn degrees(relation: &Relation, num_src: usize, num_dst: usize, edges: usize, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let most = if relation.src == relation.dst { num_dst - 1 } else { num_dst };
    let with = ((num_src as f64 * relation.share).round() as usize).clamp(1, num_src);
    let least = relation.least.min(edges / with).min(most);
    let law = (0..with).map(|rank| (rank as f64 + 1.0).powf(-relation.exponents.0));
    let mut by_rank: Vec<usize> = apportion(edges - with * least, law).iter().map(|&more| least + more).collect();
    // Overflow moves on to the next sources with room.
    let mut over = 0;
    for degree in &mut by_rank {
        let wanted = *degree + over;
        *degree = wanted.min(most);
        over = wanted - *degree;
    }
    let mut degrees = vec![0u32; num_src];
    for (source, degree) in draw::shuffled(num_src, rng).into_iter().zip(by_rank) {
        degrees[source as usize] = degree as u32;
    }
    degrees
}

/// Sampling table of destinations.
struct Table<'a> {
    /// Community of each source.
    communities: &'a [u16],
    /// Year of each vertex; set if a source only has destinations of its own year and before.
    year: Option<&'a [u8]>,
    affinity: f64,
    /// Members of each community, and last all vertices, in order of descending weight.
    lists: Vec<Vec<u32>>,
    /// By list and year: the length n of its admissible prefix, and `(n + 1)^(1 - exponent) - 1`.
    upto: Vec<(u32, f64)>,
    /// `1 / (1 - exponent)`
    inverse: f64,
}

impl<'a> Table<'a> {
    /// `order` ascends by year if there are years.
    fn new(order: Vec<u32>, communities: &'a [u16], year: Option<&'a [u8]>, exponent: f64) -> Table<'a> {
        let mut lists = vec![Vec::new(); CLASSES];
        order.iter().for_each(|&v| lists[communities[v as usize] as usize].push(v));
        lists.push(order);
        let mut upto = Vec::with_capacity(lists.len() * YEARS);
        for list in &lists {
            upto.extend((0..YEARS).map(|y| {
                let n = year.map_or(list.len(), |year| list.partition_point(|&v| year[v as usize] as usize <= y));
                (n as u32, (n as f64 + 1.0).powf(1.0 - exponent) - 1.0)
            }));
        }
        Table { communities, year, affinity: 0.0, lists, upto, inverse: 1.0 / (1.0 - exponent) }
    }

    /// A destination for a source. Rank r has a weight of about `(r + 1)^-exponent`: inverts the integral of the
    /// density from r to r + 1.
    fn draw(&self, source: u32, rng: &mut ChaCha8Rng) -> u32 {
        let own = self.communities[source as usize] as usize;
        let year = self.year.map_or(0, |year| year[source as usize] as usize);
        let mut list = if rng.random::<f64>() < self.affinity { own } else { CLASSES };
        if self.upto[list * YEARS + year].0 == 0 {
            list = CLASSES;
        }
        let (n, span) = self.upto[list * YEARS + year];
        let rank = (1.0 + rng.random::<f64>() * span).powf(self.inverse) - 1.0;
        self.lists[list][(rank as usize).min(n as usize - 1)]
    }

    /// `degree` distinct destinations for a source, ascending, not the source itself where both are of one type.
    fn draw_distinct(&self, source: u32, degree: usize, rng: &mut ChaCha8Rng, found: &mut Vec<u32>) {
        let first = found.len();
        let itself = self.year.map(|_| source);
        // A linear search is faster for a few destinations.
        let mut seen = HashSet::new();
        let mut misses = 0;
        while found.len() - first < degree && misses < 50 * degree + 50 {
            let v = self.draw(source, rng);
            let new = Some(v) != itself && if degree <= 64 { !found[first..].contains(&v) } else { seen.insert(v) };
            if new {
                found.push(v);
            } else {
                misses += 1;
            }
        }
        // A source adjacent to nearly all vertices: fill up in order.
        if found.len() - first < degree {
            let mut taken: HashSet<u32> = found[first..].iter().copied().chain(itself).collect();
            let rest = self.lists[CLASSES].iter().filter(|&&v| taken.insert(v));
            found.extend(rest.take(first + degree - found.len()));
        }
        found[first..].sort_unstable();
    }
}

/// Writes the edges, sorted by source and destination.
fn write_edges(
    path: &Path,
    degrees: &[u32],
    edges: usize,
    table: &Table<'_>,
    stream: impl Fn(usize) -> ChaCha8Rng + Sync,
) -> Result<(), SynthError> {
    const CHUNK: usize = 1 << 12;
    let mut file = Pieces::<i32>::create(path, &[2, edges])?;
    file.chunks(degrees.len(), CHUNK, |_, rows, out| {
        out.extend(rows.flat_map(|v| std::iter::repeat_n(v as i32, degrees[v] as usize)));
    })?;
    file.chunks(degrees.len(), CHUNK, |chunk, rows, out| {
        let mut rng = stream(chunk);
        let mut found = Vec::new();
        for v in rows {
            found.clear();
            table.draw_distinct(v as u32, degrees[v] as usize, &mut rng, &mut found);
            out.extend(found.iter().map(|&d| d as i32));
        }
    })?;
    file.finish()
}

/// A file whose chunks are made by threads and written in order.
struct Pieces<'a, T> {
    path: &'a Path,
    stream: npy::Stream<T>,
}

impl<'a, T: Element + Send> Pieces<'a, T> {
    fn create(path: &'a Path, shape: &[usize]) -> Result<Pieces<'a, T>, SynthError> {
        let failed = |source| SynthError::Io { path: path.to_path_buf(), source };
        Ok(Pieces { path, stream: npy::Stream::create(path, shape).map_err(failed)? })
    }

    fn failed(&self) -> impl FnOnce(std::io::Error) -> SynthError + use<T> {
        let path = self.path.to_path_buf();
        move |source| SynthError::Io { path, source }
    }

    /// Appends the results of `make` for chunks of `per_chunk` rows; `make` gets the number of the chunk and its rows.
    fn chunks(
        &mut self,
        rows: usize,
        per_chunk: usize,
        make: impl Fn(usize, Range<usize>, &mut Vec<T>) + Sync,
    ) -> Result<(), SynthError> {
        /// Number of chunks held in memory at a time.
        const WAVE: usize = 16;
        let chunks = rows.div_ceil(per_chunk);
        for first in (0..chunks).step_by(WAVE) {
            let piece = |chunk: usize| {
                let (mut values, mut bytes) = (Vec::new(), Vec::new());
                make(chunk, chunk * per_chunk..((chunk + 1) * per_chunk).min(rows), &mut values);
                bytes.reserve_exact(values.len() * T::DTYPE.bytes());
                values.into_iter().for_each(|v| v.put(&mut bytes));
                bytes
            };
            let pieces: Vec<Vec<u8>> = (first..(first + WAVE).min(chunks)).into_par_iter().map(piece).collect();
            for bytes in pieces {
                self.stream.append(&bytes).map_err(self.failed())?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<(), SynthError> {
        let failed = self.failed();
        self.stream.finish().map_err(failed)
    }
}
