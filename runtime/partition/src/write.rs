//! Writes the arrays of a partition, each in one pass over the array of the source.

use std::ops::Range;

use hgnnc_dataset::DataError;
use hgnnc_dataset::npy::{self, Dtype, Npy};
use rayon::prelude::*;
use xxhash_rust::xxh3::Xxh3;

use crate::array::{Integers, Rows, Window, not_finite};
use crate::counts::Counts;
use crate::error::{PartitionError, Result};
use crate::manifest::Owners;
use crate::plan::{Job, JobKind, Of, OutFiles, Place};
use crate::progress::Progress;
use crate::scatter::{Scatter, Target};
use crate::source::{CHUNK, Chunk, Source};
use crate::work::Work;

/// Bytes of rows that are read at once.
const BLOCK: usize = 1 << 20;

/// The order of vertices and edges in a partition.
pub struct Layout<'a> {
    /// The dataset that is partitioned.
    pub source: &'a Source,
    /// The rank of each vertex.
    pub ranks: &'a [u16],
    /// The new number of each vertex within its type.
    pub numbers: &'a [u32],
    /// Borders of the ranks, of each type.
    pub borders: &'a [Vec<u64>],
    /// Number of edges of each rank.
    pub counts: &'a Counts,
}

/// Writes the files of all jobs that are not done yet.
pub fn write(layout: &Layout<'_>, jobs: &[Job], work: &Work, progress: &Progress<'_>) -> Result<()> {
    let done = work.state().files;
    jobs.par_iter().try_for_each(|job| {
        if done.contains_key(&job.file) {
            return progress.add(job.bytes);
        }
        let hash = layout.job(job, work, progress)?;
        work.done(|state| drop(state.files.insert(job.file.clone(), format!("{hash:016x}"))))
    })
}

/// Sizes of buckets in bytes, of elements of `width` bytes.
fn sizes(counts: &[u64], width: usize) -> impl Iterator<Item = u64> {
    counts.iter().map(move |&count| count * width as u64)
}

impl Layout<'_> {
    fn job(&self, job: &Job, work: &Work, progress: &Progress<'_>) -> Result<u64> {
        match &job.kind {
            JobKind::Rows { of, rows, place } => self.rows(*of, rows, place, &job.file, work, progress),
            JobKind::Ragged { ty, offsets, elements, place } => {
                self.ragged(*ty, offsets, elements, place, &job.file, work, progress)
            }
            JobKind::Edges { relation, out } => {
                self.edges(*relation, &job.file, work, progress)?;
                if let Some(out) = out {
                    self.out_edges(*relation, &job.file, out, work, progress)?;
                }
                // Their hash is taken where they are checked.
                Ok(0)
            }
            JobKind::Numbers(ty) => self.source_numbers(*ty, &job.file, work, progress),
            JobKind::Split { of, split, part } => self.split(*of, *split, *part, &job.file, work, progress),
            JobKind::Links { rows, place } => self.links(rows, place, &job.file, work, progress),
        }
    }

    /// Number of vertices of a type that each rank owns.
    fn owned(&self, ty: usize) -> Vec<u64> {
        self.borders[ty].windows(2).map(|w| w[1] - w[0]).collect()
    }

    fn rows(
        &self,
        of: Option<Of>,
        rows: &Rows,
        place: &Place,
        file: &str,
        work: &Work,
        progress: &Progress<'_>,
    ) -> Result<u64> {
        let width = rows.bytes();
        let counts = match of {
            Some(Of::Vertices(ty)) => self.owned(ty),
            Some(Of::Edges(relation)) => self.counts.relations[relation].in_edges.clone(),
            None => vec![rows.len() as u64],
        };
        let dtype = rows.npy().dtype();
        let head = npy::header(dtype, rows.npy().shape());
        let total = (rows.len() * width) as u64;
        let target = Target::create(&work.new_path(file), &head, head.len() as u64 + total)?;
        if width == 0 {
            return Ok(0);
        }
        let mut out = Scatter::new(&target, head.len() as u64, sizes(&counts, width));
        let (mut hash, mut window, mut copy) = (Xxh3::new(), Window::default(), vec![]);
        let block = (BLOCK / width).clamp(1, CHUNK);
        let mut ends = Chunk::default();
        for from in (0..rows.len()).step_by(block) {
            let range = from..rows.len().min(from + block);
            let bytes = rows.read(range.clone(), &mut copy);
            if let Some((at, value)) = not_finite(dtype, bytes) {
                let elems = width / dtype.bytes();
                let (row, column) = (range.start + at / elems, at % elems);
                // Values without a label are left out when they are loaded.
                let ignored = place.at.starts_with("label ");
                if !ignored {
                    let (file, at) = (place.file.clone(), place.at.clone());
                    let error = DataError::NotFinite { file, at, row, column, value, more: 0 };
                    return Err(PartitionError::data(&self.source.folder, error));
                }
            }
            hash.update(bytes);
            let each = bytes.chunks_exact(width);
            match of {
                None => each.into_iter().try_for_each(|row| out.push(0, row))?,
                Some(Of::Vertices(ty)) => {
                    let first = self.source.first[ty];
                    let ranks = &self.ranks[first + range.start..first + range.end];
                    ranks.iter().zip(each).try_for_each(|(&rank, row)| out.push(rank.into(), row))?;
                }
                Some(Of::Edges(relation)) => {
                    self.source.edges[relation].read(range.clone(), &mut ends)?;
                    let ranks = &self.ranks[self.source.ends(relation).1..];
                    ends.dst.iter().zip(each).try_for_each(|(&d, row)| out.push(ranks[d as usize].into(), row))?;
                }
            }
            window.pass(rows.npy(), bytes.len());
            progress.add(bytes.len() as u64)?;
        }
        out.finish()?;
        Ok(hash.digest())
    }

    #[allow(clippy::too_many_arguments, reason = "they are the fields of a job")]
    fn ragged(
        &self,
        ty: usize,
        offsets: &Integers,
        elements: &[(Rows, String)],
        place: &Place,
        file: &str,
        work: &Work,
        progress: &Progress<'_>,
    ) -> Result<u64> {
        let ranks = &self.ranks[self.source.vertices(ty)];
        let stored = elements.first().map_or(0, |(rows, _)| rows.len());
        let wrong = |problem: String| {
            let (file, at) = (place.file.clone(), place.at.clone());
            Err(PartitionError::data(&self.source.folder, DataError::Ids { file, at, problem }))
        };
        // Elements of each rank.
        let mut counts = vec![0u64; self.borders[ty].len() - 1];
        let mut begin = offsets.at(0);
        if begin != 0 {
            return wrong(format!("should start at 0, but starts at {begin}"));
        }
        for (row, &rank) in ranks.iter().enumerate() {
            let end = offsets.at(row + 1);
            if end < begin {
                return wrong(format!("goes down from {begin} to {end} at row {row}"));
            }
            counts[usize::from(rank)] += (end - begin) as u64;
            begin = end;
        }
        if begin != stored as i64 {
            return wrong(format!("should end at the {stored} stored values, but ends at {begin}"));
        }
        let head = npy::header(Dtype::I64, &[ranks.len() + 1]);
        let total = 8 * (ranks.len() as u64 + 1);
        let target = Target::create(&work.new_path(file), &head, head.len() as u64 + total)?;
        let mut out = Scatter::new(&target, head.len() as u64, sizes(&self.owned(ty), 8));
        let mut arrays = vec![];
        for (rows, file) in elements {
            let width = rows.bytes();
            let head = npy::header(rows.npy().dtype(), &[rows.len()]);
            let total = (rows.len() * width) as u64;
            let target = Target::create(&work.new_path(file), &head, head.len() as u64 + total)?;
            let out = Scatter::new(&target, head.len() as u64, sizes(&counts, width));
            arrays.push((rows, width, out, Window::default()));
        }
        // Where the next row of each rank begins.
        let mut next = crate::manifest::borders(&counts);
        let (mut hash, mut begin, mut unreported) = (Xxh3::new(), 0, 0);
        for (row, &rank) in ranks.iter().enumerate() {
            let end = offsets.at(row + 1) as usize;
            let next = &mut next[usize::from(rank)];
            out.push(rank.into(), &(*next as i64).to_le_bytes())?;
            *next += (end - begin) as u64;
            hash.update(&(end as u64).to_le_bytes());
            for (rows, width, out, window) in &mut arrays {
                let bytes = &rows.npy().bytes()[begin * *width..end * *width];
                if let Some((column, value)) = not_finite(rows.npy().dtype(), bytes) {
                    let (file, at) = (place.file.clone(), place.at.clone());
                    let error = DataError::NotFinite { file, at, row, column, value, more: 0 };
                    return Err(PartitionError::data(&self.source.folder, error));
                }
                hash.update(bytes);
                out.push(rank.into(), bytes)?;
                window.pass(rows.npy(), bytes.len());
                unreported += bytes.len() as u64;
            }
            begin = end;
            if unreported >= BLOCK as u64 {
                progress.add(unreported)?;
                unreported = 0;
            }
        }
        out.finish()?;
        target.write(&(stored as i64).to_le_bytes(), head.len() as u64 + total - 8)?;
        arrays.into_iter().try_for_each(|(_, _, out, _)| out.finish())?;
        progress.add(unreported)?;
        Ok(hash.digest())
    }

    /// Writes the edges by the owner of the destination.
    fn edges(&self, relation: usize, file: &str, work: &Work, progress: &Progress<'_>) -> Result<()> {
        let edges = &self.source.edges[relation];
        let (src, dst) = self.source.ends(relation);
        let numbers = self.numbers;
        let owners = Owners::new(&self.borders[self.source.outline.relations[relation].dst]);
        let head = npy::header(Dtype::I32, &[2, edges.len()]);
        let (base, row) = (head.len() as u64, 4 * edges.len() as u64);
        let target = Target::create(&work.new_path(file), &head, base + 2 * row)?;
        let counts = &self.counts.relations[relation].in_edges;
        let mut sources = Scatter::new(&target, base, sizes(counts, 4));
        let mut destinations = Scatter::new(&target, base + row, sizes(counts, 4));
        edges.each(|range, chunk| {
            for (&s, &d) in chunk.src.iter().zip(&chunk.dst) {
                let (s, d) = (numbers[src + s as usize], numbers[dst + d as usize]);
                let rank = owners.of(d);
                sources.push_word(rank, s.to_le_bytes())?;
                destinations.push_word(rank, d.to_le_bytes())?;
            }
            progress.add(8 * range.len() as u64)
        })?;
        sources.finish()?;
        destinations.finish()
    }

    /// Writes the positions and the ends of edges by the owner of the source, from the file of edges.
    fn out_edges(
        &self,
        relation: usize,
        file: &str,
        out: &OutFiles,
        work: &Work,
        progress: &Progress<'_>,
    ) -> Result<()> {
        let path = work.new_path(file);
        let npy = Npy::open(&path).map_err(|problem| PartitionError::read(&path, problem))?;
        let len = self.source.edges[relation].len();
        let of = &self.source.outline.relations[relation];
        let bound = |ty: usize| self.source.vertices(ty).len();
        let rows = [0, 1].map(|row| Integers::row(&npy, row, 0..len));
        let counts = &self.counts.relations[relation].out_edges;
        let dtype = if len <= i32::MAX as usize { Dtype::I32 } else { Dtype::I64 };
        let head = npy::header(dtype, &[len]);
        let total = (dtype.bytes() * len) as u64;
        let target = Target::create(&work.new_path(&out.edges), &head, head.len() as u64 + total)?;
        let mut positions = Scatter::new(&target, head.len() as u64, sizes(counts, dtype.bytes()));
        let head = npy::header(Dtype::I32, &[2, len]);
        let (base, row) = (head.len() as u64, 4 * len as u64);
        let target = Target::create(&work.new_path(&out.ends), &head, base + 2 * row)?;
        let mut ends = [base, base + row].map(|base| Scatter::new(&target, base, sizes(counts, 4)));
        let owners = Owners::new(&self.borders[of.src]);
        let (mut sources, mut destinations, mut window) = (vec![], vec![], Window::default());
        for from in (0..len).step_by(CHUNK) {
            let range: Range<usize> = from..len.min(from + CHUNK);
            let changed = |_| PartitionError::read(&path, "it was changed while it was read");
            rows[0].ids(range.clone(), bound(of.src), &mut sources).map_err(changed)?;
            rows[1].ids(range.clone(), bound(of.dst), &mut destinations).map_err(changed)?;
            for (position, (s, d)) in range.clone().zip(sources.iter().zip(&destinations)) {
                let rank = owners.of(*s);
                match dtype {
                    Dtype::I32 => positions.push_word(rank, (position as u32).to_le_bytes())?,
                    _ => positions.push_word(rank, (position as u64).to_le_bytes())?,
                }
                ends[0].push_word(rank, s.to_le_bytes())?;
                ends[1].push_word(rank, d.to_le_bytes())?;
            }
            window.pass(&npy, 8 * range.len());
            progress.add(12 * range.len() as u64)?;
        }
        positions.finish()?;
        ends.into_iter().try_for_each(Scatter::finish)
    }

    fn source_numbers(&self, ty: usize, file: &str, work: &Work, progress: &Progress<'_>) -> Result<u64> {
        let ranks = &self.ranks[self.source.vertices(ty)];
        let head = npy::header(Dtype::I32, &[ranks.len()]);
        let bytes = 4 * ranks.len() as u64;
        let target = Target::create(&work.new_path(file), &head, head.len() as u64 + bytes)?;
        let mut out = Scatter::new(&target, head.len() as u64, sizes(&self.owned(ty), 4));
        for (vertex, &rank) in ranks.iter().enumerate() {
            out.push(rank.into(), &(vertex as u32).to_le_bytes())?;
        }
        out.finish()?;
        progress.add(bytes)?;
        Ok(0)
    }

    fn split(
        &self,
        of: Of,
        split: usize,
        part: usize,
        file: &str,
        work: &Work,
        progress: &Progress<'_>,
    ) -> Result<u64> {
        let outline = &self.source.outline;
        let (ids, mut new) = match of {
            Of::Vertices(ty) => {
                let split = &outline.splits[split];
                let numbers = &self.numbers[self.source.vertices(ty)];
                let ids = [&split.train, &split.val, &split.test][part];
                (ids, ids.iter().map(|&id| i64::from(numbers[id as usize])).collect())
            }
            Of::Edges(relation) => {
                let split = &outline.relations[relation].splits[split];
                let ids = [&split.train, &split.val, &split.test][part];
                (ids, self.new_edges(relation, ids, progress)?)
            }
        };
        new.sort_unstable();
        let path = work.new_path(file);
        let narrow: Option<Vec<i32>> = new.iter().map(|&id| i32::try_from(id).ok()).collect();
        let written = match narrow {
            Some(narrow) => npy::write(&path, &[narrow.len()], &narrow),
            None => npy::write(&path, &[new.len()], &new),
        };
        written.map_err(PartitionError::io(&path))?;
        let mut hash = Xxh3::new();
        ids.iter().for_each(|id| hash.update(&id.to_le_bytes()));
        Ok(hash.digest())
    }

    /// New positions of some edges of a relation, which ascend: behind those whose destinations the ranks before own, in the
    /// order of the source.
    fn new_edges(&self, relation: usize, edges: &[u32], progress: &Progress<'_>) -> Result<Vec<i64>> {
        let source = &self.source.edges[relation];
        let ranks = &self.ranks[self.source.ends(relation).1..];
        // By rank, the position of its next edge.
        let mut next = crate::manifest::borders(&self.counts.relations[relation].in_edges);
        let (mut new, mut wanted) = (Vec::with_capacity(edges.len()), edges.iter().copied().peekable());
        source.each(|range, chunk| {
            for (edge, &dst) in range.clone().zip(&chunk.dst) {
                let position = &mut next[usize::from(ranks[dst as usize])];
                if wanted.next_if_eq(&(edge as u32)).is_some() {
                    new.push(*position as i64);
                }
                *position += 1;
            }
            progress.add(range.len() as u64 * source.bytes())
        })?;
        Ok(new)
    }

    fn links(
        &self,
        rows: &[Integers; 3],
        place: &Place,
        file: &str,
        work: &Work,
        progress: &Progress<'_>,
    ) -> Result<u64> {
        let relations = &self.source.outline.relations;
        let len = rows[0].len();
        let head = npy::header(Dtype::I32, &[3, len]);
        let (base, row) = (head.len() as u64, 4 * len as u64);
        let target = Target::create(&work.new_path(file), &head, base + 3 * row)?;
        let mut out = [0, 1, 2].map(|at| Scatter::new(&target, base + at * row, [row]));
        let wrong = |what: &str, link: usize, value: i64, bound_of: String, bound: usize| {
            PartitionError::data(
                &self.source.folder,
                DataError::IdOutOfRange {
                    file: place.file.clone(),
                    at: place.at.clone(),
                    what: what.into(),
                    place: format!("link {link}"),
                    value,
                    bound_of,
                    bound: bound as u64,
                    more: 0,
                },
            )
        };
        let mut hash = Xxh3::new();
        let mut window = Window::default();
        for link in 0..len {
            let [s, r, d] = [0, 1, 2].map(|row| rows[row].at(link));
            let found = usize::try_from(r).ok().and_then(|r| relations.get(r));
            let known = || "the list of relations".to_owned();
            let relation = found.ok_or_else(|| wrong("relation", link, r, known(), relations.len()))?;
            let mut new = [0, r as u32, 0];
            for (at, what, ty, id) in [(0, "source", relation.src, s), (2, "destination", relation.dst, d)] {
                let of = &self.source.outline.vertex_types[ty];
                let numbers = &self.numbers[self.source.vertices(ty)];
                let number = usize::try_from(id).ok().and_then(|id| numbers.get(id));
                let bound_of = || format!("vertex type `{}`", of.name);
                new[at] = *number.ok_or_else(|| wrong(what, link, id, bound_of(), of.count))?;
            }
            [s, r, d].iter().for_each(|id| hash.update(&id.to_le_bytes()));
            out.iter_mut().zip(new).try_for_each(|(out, id)| out.push(0, &id.to_le_bytes()))?;
            window.pass(rows[0].npy(), 24);
            if link % CHUNK == CHUNK - 1 {
                progress.add(12 * CHUNK as u64)?;
            }
        }
        progress.add(12 * (len % CHUNK) as u64)?;
        out.into_iter().try_for_each(Scatter::finish)?;
        Ok(hash.digest())
    }
}
