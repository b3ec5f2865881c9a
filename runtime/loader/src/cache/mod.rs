//! Feature cache: a fast memory of limited size in front of a slow one that holds all rows.
//!
//! With a GPU the fast memory would be device memory and the slow one host memory. Here both are host memory, but
//! accesses are the same: cached rows are read from (and, if trained, written to) the fast memory only; all others are
//! fetched from the slow one. Cached rows of embedding tables and their optimizer states are written back before an
//! evaluation, a checkpoint or the end of training, so results do not depend on the cache, to the bit.
//!
//! Where several processes have divided features, the slow memory is that of the others, and their rows alone are cached: a
//! process reads its own in place.
//!
//! [`hgnnc_cache`] chooses the cached rows from the accesses of an epoch sampled before training and the cost
//! of a miss, which is measured, or assumed for a network.

// Rows are copied between buffers; see `buffer`.
#![allow(unsafe_code)]

mod cost_of_misses;
pub mod report;
mod rows;

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use hgnnc_cache::{Forecast, Outcome, Placement, Policy, Slots, Table, best, place};
use hgnnc_data::Result;
use hgnnc_data::buffer::HostBuffer;
use hgnnc_ir::dataflow::{Binding, Matrix};
use hgnnc_ir::types::{Layout, Space, VertexType};
use hgnnc_sample::Batch;
use hgnnc_session::{HostRows, RowStore};

use crate::loader::{GraphInput, MiniBatchLoader};
use crate::presample::{MOST_PRESAMPLED, presample};
use cost_of_misses::time_misses;
use report::{CacheReport, CachedTable, Saved};
pub use rows::CachedRows;

/// Options of the feature cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheOptions {
    /// Capacity of the fast memory in bytes.
    pub bytes: u64,
    /// Policy that selects the cached rows.
    pub policy: Policy,
}

/// Source of the rows of a table.
enum RowSource {
    /// Index of an input of the mini-batch program.
    Input(usize),
    /// An embedding table and its optimizer states, as array indices of [`Cache::fast`].
    Learned(Vec<usize>),
}

/// Cached rows of a trained array.
struct CachedArray {
    table: usize,
    rows: HostRows,
}

/// Cached rows and statistics.
pub struct Cache {
    options: CacheOptions,
    seed: u64,
    tables: Vec<Table>,
    homes: Vec<RowSource>,
    /// By table, its vertex type as numbered in the mini-batch program.
    vertices: Vec<VertexType>,
    /// By table: rows of this process, if several have divided them. Reading them counts as no access.
    own: Vec<Range<usize>>,
    slots: Vec<Arc<Slots>>,
    /// Cached trained arrays by array index; `None` for others.
    fast: Vec<Option<CachedArray>>,
    /// By table and slot: whether the cached row is dirty.
    written: Vec<Vec<bool>>,
    /// By table and vertex: accesses in presampling, and actual accesses.
    forecast: Vec<Vec<u32>>,
    accesses: Vec<Vec<u32>>,
    outcomes: Vec<Outcome>,
    /// Bytes of fills and write-backs.
    filled: u64,
    /// Number of presampled batches, seconds of presampling, and seconds of all setup.
    presampled: u64,
    presample_s: f64,
    setup_s: f64,
}

/// An embedding table as the cache sees it.
pub struct EmbeddingTable {
    /// Name of the parameter.
    pub name: String,
    /// Vertex type of its rows, as numbered in the mini-batch program.
    pub vertex: VertexType,
    /// Array indices of the table and of its optimizer states.
    pub arrays: Vec<usize>,
    /// Elements per row of each array.
    pub width: usize,
    /// Number of rows.
    pub rows: usize,
}

impl Cache {
    /// Presamples batches, measures the cost of misses, and places rows. `slow` returns one of `arrays` trained arrays
    /// by index. Features are cached immediately, embedding rows in [`Cache::load`].
    pub fn new<'s>(
        options: CacheOptions,
        seed: u64,
        loader: &mut MiniBatchLoader,
        learned: &[EmbeddingTable],
        (slow, arrays): (&dyn Fn(usize) -> &'s HostRows, usize),
        threads: usize,
    ) -> Result<Self> {
        let start = Instant::now();
        let (mut tables, mut homes, mut vertices, mut rows, mut own) = (vec![], vec![], vec![], vec![], vec![]);
        for input in features(loader) {
            let table = Table {
                name: input.name.clone(),
                row_bytes: (input.store.width() * size_of::<f32>()) as u64,
                written: false,
                miss_ns: match input.store.assumed_ns() {
                    Some(assumed) => assumed,
                    None => time_misses(&[&**input.store], false)?,
                },
            };
            rows.push(input.store.num_rows());
            own.push(input.store.own());
            tables.push(table);
            homes.push(RowSource::Input(input.index));
            vertices.push(input.vertex);
        }
        for param in learned {
            let arrays: Vec<&dyn RowStore> = param.arrays.iter().map(|&array| slow(array) as &dyn RowStore).collect();
            tables.push(Table {
                name: param.name.clone(),
                row_bytes: (param.arrays.len() * param.width * size_of::<f32>()) as u64,
                written: true,
                miss_ns: time_misses(&arrays, true)?,
            });
            rows.push(param.rows);
            own.push(0..0);
            homes.push(RowSource::Learned(param.arrays.clone()));
            vertices.push(param.vertex);
        }
        let presampling = Instant::now();
        let presampled = loader.num_batches().min(MOST_PRESAMPLED);
        let mut forecast = presample(loader, seed, presampled, &rows, threads, &|sampled, table| {
            loader.vertices(sampled, vertices[table])
        })?;
        for (accesses, own) in forecast.iter_mut().zip(&own) {
            accesses[own.clone()].fill(0);
        }
        let presample_s = presampling.elapsed().as_secs_f64();
        let mut cache = Self {
            options,
            seed,
            homes,
            own,
            fast: (0..arrays).map(|_| None).collect(),
            slots: vec![],
            written: vec![],
            accesses: rows.iter().map(|&rows| vec![0; rows]).collect(),
            outcomes: vec![Outcome::default(); tables.len()],
            forecast,
            tables,
            vertices,
            filled: 0,
            presampled,
            presample_s,
            setup_s: 0.0,
        };
        let placement = cache.placed(options.policy, loader);
        cache.slots = placement.tables.into_iter().map(Arc::new).collect();
        cache.fill(loader, learned)?;
        cache.setup_s = start.elapsed().as_secs_f64();
        Ok(cache)
    }

    /// Placement by a policy.
    fn placed(&self, policy: Policy, loader: &MiniBatchLoader) -> Placement {
        let degrees: Vec<Vec<u32>> = match policy {
            Policy::Degree => self.vertices.iter().map(|&vertex| loader.out_degrees(vertex)).collect(),
            Policy::Penalty | Policy::Shares | Policy::Hotness | Policy::Random => vec![vec![]; self.tables.len()],
        };
        let forecast = Forecast { accesses: &self.forecast, degrees: &degrees, seed: self.seed };
        place(policy, self.options.bytes, &self.tables, &forecast)
    }

    /// Allocates the fast memory and copies features into it.
    fn fill(&mut self, loader: &mut MiniBatchLoader, learned: &[EmbeddingTable]) -> Result<()> {
        for (table, home) in self.homes.iter().enumerate() {
            let slots = &self.slots[table];
            // SAFETY: the rows of a batch are distinct, and so are their slots; the cache is filled and written back
            // between batches.
            let fast = |width| unsafe { HostRows::new(HostBuffer::zeros(slots.vertices().len() * width), width) };
            match home {
                RowSource::Input(index) => {
                    let Some(input) = features(loader).into_iter().find(|input| input.index == *index) else {
                        continue;
                    };
                    let (slots, slow) = (Arc::clone(slots), Arc::clone(input.store));
                    let rows = CachedRows { slots, fast: fast(slow.width()), slow };
                    self.filled += (rows.fill()? * size_of::<f32>()) as u64;
                    loader.replace_input(*index, Arc::new(rows));
                    self.written.push(vec![]);
                }
                RowSource::Learned(arrays) => {
                    let width = learned.iter().find(|param| param.arrays == *arrays).map_or(0, |param| param.width);
                    for &array in arrays {
                        self.fast[array] = Some(CachedArray { table, rows: fast(width) });
                    }
                    self.written.push(vec![false; slots.vertices().len()]);
                }
            }
        }
        Ok(())
    }

    /// The rows of a trained array, of which some are in the fast memory; `None` if none are.
    pub fn rows<'c>(&'c self, array: usize, slow: &'c HostRows) -> Option<CachedRows<&'c HostRows, &'c HostRows>> {
        let fast = self.fast.get(array)?.as_ref()?;
        Some(CachedRows { slots: Arc::clone(&self.slots[fast.table]), fast: &fast.rows, slow })
    }

    /// Counts the accesses of a batch and marks its embedding rows dirty.
    pub fn count(&mut self, loader: &MiniBatchLoader, sampled: &Batch) {
        for (index, table) in self.tables.iter().enumerate() {
            let vertices = loader.vertices(sampled, self.vertices[index]);
            let (accesses, slots, written) = (&mut self.accesses[index], &self.slots[index], &mut self.written[index]);
            let (mut hits, mut counted) = (0, 0);
            for &vertex in vertices.iter().filter(|&&vertex| !self.own[index].contains(&(vertex as usize))) {
                counted += 1;
                accesses[vertex as usize] = accesses[vertex as usize].saturating_add(1);
                if let Some(slot) = slots.slot(vertex) {
                    hits += 1;
                    if let Some(written) = written.get_mut(slot) {
                        *written = true;
                    }
                }
            }
            self.outcomes[index].add(&Outcome::of_table(table, counted, hits));
        }
    }

    /// Copies cached embedding rows from slow memory.
    pub fn load<'s>(&mut self, slow: &dyn Fn(usize) -> &'s HostRows) -> Result<()> {
        let mut elements = 0;
        for array in 0..self.fast.len() {
            if let Some(rows) = self.fast[array].as_ref().and_then(|_| self.rows(array, slow(array))) {
                elements += rows.fill()?;
            }
        }
        self.filled += (elements * size_of::<f32>()) as u64;
        Ok(())
    }

    /// Writes dirty embedding rows back to slow memory.
    pub fn write_back<'s>(&mut self, slow: &dyn Fn(usize) -> &'s HostRows) -> Result<()> {
        let mut elements = 0;
        for (array, fast) in self.fast.iter().enumerate() {
            let Some(CachedArray { table, .. }) = fast else { continue };
            let dirty = |&slot: &u32| self.written[*table][slot as usize];
            let slots: Vec<u32> = (0..self.written[*table].len() as u32).filter(dirty).collect();
            if let Some(rows) = self.rows(array, slow(array)) {
                elements += rows.write_back(&slots)?;
            }
        }
        self.filled += (elements * size_of::<f32>()) as u64;
        self.written.iter_mut().for_each(|written| written.fill(false));
        Ok(())
    }

    /// Statistics, with the outcomes of the other policies and of the best placement for the same accesses.
    pub fn report(&self, loader: &MiniBatchLoader) -> CacheReport {
        let mut all = Outcome::default();
        self.outcomes.iter().for_each(|outcome| all.add(outcome));
        let saved = |outcome: &Outcome| Saved {
            hit_rate: outcome.hit_rate(),
            bytes_missed: outcome.bytes_missed,
            miss_ms: outcome.miss_ms,
        };
        let policy = |policy: Policy| {
            let placement = self.placed(policy, loader);
            (policy.name(), saved(&Outcome::of(&placement, &self.tables, &self.accesses)))
        };
        let tables = self.tables.iter().enumerate().map(|(index, table)| CachedTable {
            name: table.name.clone(),
            rows: self.slots[index].rows(),
            kept: self.slots[index].vertices().len(),
            row_bytes: table.row_bytes,
            learned: table.written,
            miss_ns: table.miss_ns,
            accesses: self.outcomes[index].accesses,
            hit_rate: self.outcomes[index].hit_rate(),
            bytes_missed: self.outcomes[index].bytes_missed,
        });
        let tables: Vec<CachedTable> = tables.collect();
        let most = best(self.options.bytes, &self.tables, &self.accesses);
        CacheReport {
            policy: self.options.policy.name(),
            limit: self.options.bytes,
            bytes: tables.iter().map(|table| table.kept as u64 * table.row_bytes).sum(),
            bytes_of_all: tables.iter().map(|table| table.rows as u64 * table.row_bytes).sum(),
            presampled: self.presampled,
            presample_s: self.presample_s,
            setup_s: self.setup_s,
            hit_rate: all.hit_rate(),
            bytes_moved: all.bytes_missed + self.filled,
            bytes_missed: all.bytes_missed,
            bytes_without: all.bytes_without,
            tables,
            policies: Policy::ALL.into_iter().map(policy).collect(),
            best: Saved { hit_rate: most.hit_rate, bytes_missed: most.bytes_missed, miss_ms: most.miss_ms },
        }
    }
}

/// Features with one row per vertex.
struct Features<'a> {
    /// Index of the input in the mini-batch program.
    index: usize,
    name: String,
    vertex: VertexType,
    store: &'a Arc<dyn RowStore>,
}

fn features(loader: &MiniBatchLoader) -> Vec<Features<'_>> {
    let (tables, inputs) = loader.inputs();
    let mut features = vec![];
    for (index, (decl, input)) in tables.inputs.iter().zip(inputs).enumerate() {
        if let (Layout::Dense, Space::Vertices(vertex)) = (decl.ty.layout, decl.ty.space)
            && let (Binding::Features(_, matrix), GraphInput::Rows(store)) = (&decl.binding, input)
        {
            let field = match matrix {
                Matrix::Features => "x",
                Matrix::Field(name) | Matrix::TrainLabels(name) => name,
            };
            let name = format!("{}.{field}", tables.vertex_types[vertex.index()].dataset_name);
            features.push(Features { index, name, vertex, store });
        }
    }
    features
}

/// Vertex types with features that cannot be cached: sparse rows have varying lengths.
pub fn not_kept(loader: &MiniBatchLoader) -> Vec<String> {
    let (tables, _) = loader.inputs();
    let mut names: Vec<String> = loader
        .layout()
        .patterns
        .iter()
        .map(|pattern| tables.vertex_types[pattern.rows.index()].dataset_name.clone())
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learned_rows_are_written_back_where_batches_wrote_them() {
        // SAFETY: one thread uses the rows.
        let fast = unsafe { HostRows::new(HostBuffer::zeros(4), 2) };
        let mut cache = Cache {
            options: CacheOptions { bytes: 100, policy: Policy::Hotness },
            seed: 0,
            tables: vec![Table { name: "w".into(), row_bytes: 8, written: true, miss_ns: 1.0 }],
            homes: vec![RowSource::Learned(vec![0])],
            vertices: vec![VertexType::new(0)],
            own: vec![Range::default()],
            slots: vec![Arc::new(Slots::new(3, vec![0, 2]))],
            fast: vec![Some(CachedArray { table: 0, rows: fast })],
            written: vec![vec![false; 2]],
            forecast: vec![vec![0; 3]],
            accesses: vec![vec![0; 3]],
            outcomes: vec![Outcome::default()],
            filled: 0,
            presampled: 0,
            presample_s: 0.0,
            setup_s: 0.0,
        };
        // SAFETY: one thread uses the rows.
        let mut slow = unsafe { HostRows::new(HostBuffer::of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 2) };
        cache.load(&|_| &slow).expect("host memory");
        assert_eq!(cache.filled, 16);
        let Some(CachedArray { rows, .. }) = &mut cache.fast[0] else { panic!("it has rows") };
        assert_eq!(rows.elements(), [1.0, 2.0, 5.0, 6.0]);
        // Only vertex 2's row is dirty; write-back must skip the other one.
        rows.elements().copy_from_slice(&[-1.0, -2.0, -5.0, -6.0]);
        cache.written[0][1] = true;
        assert_eq!(slow.elements(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        cache.write_back(&|_| &slow).expect("host memory");
        assert_eq!(slow.elements(), [1.0, 2.0, 3.0, 4.0, -5.0, -6.0]);
        assert_eq!((cache.filled, &cache.written), (24, &vec![vec![false; 2]]));
    }
}
