//! Copies parameters between the mini-batch session and the full-graph session: dense parameters when training starts
//! and ends, embedding rows per batch. Tables that are memory of the full-graph session need no copies.

use hgnnc_data::Result;
use hgnnc_ir::types::VertexType;
use hgnnc_loader::cache::Cache;
use hgnnc_loader::{MiniBatch, MiniBatchLoader};
use hgnnc_session::{RowStore, Session, StepKey, TableRows};
use hgnnc_trace::Times;

use super::tables::Table;
use super::{Batches, STEP, slow_of, store_of};

impl Batches {
    /// Vertex type of an embedding table's rows, as numbered in the mini-batch program; `None` for dense parameters.
    pub(super) fn rows_of(&self, param: usize) -> Option<VertexType> {
        let (_, known) = self.layout.rows.iter().find(|(of, _)| of.index() == param)?;
        let of_batch = self.layout.vertices.iter().position(|other| other == known)?;
        Some(VertexType::new(of_batch))
    }

    /// Number of vertices of a type of the mini-batch program in the full graph.
    pub(super) fn num_rows(&self, of_batch: VertexType, num_vertices: &[usize]) -> usize {
        num_vertices[self.layout.vertices[of_batch.index()].vertex.index()]
    }

    /// Copies dense parameters and their states to the mini-batch session, and embedding tables to the memory of which
    /// batches take rows, unless they are there.
    pub(super) fn load_params(&mut self, whole: &mut dyn Session) -> Result<()> {
        if std::mem::replace(&mut self.in_step, true) {
            return Ok(());
        }
        let num_params = self.names.len();
        let mut numbers = vec![];
        for param in 0..num_params {
            match &mut self.arrays[param] {
                Some(_) if self.shared[param] => {}
                Some(table) => {
                    numbers.resize(whole.params().len(param), 0.0);
                    whole.params().read(param, &mut numbers)?;
                    table.write(&numbers)?;
                }
                None => {
                    numbers.resize(whole.params().len(param), 0.0);
                    whole.params().read(param, &mut numbers)?;
                    self.step.params().write(param, &numbers)?;
                }
            }
        }
        for index in 0..self.states.len() {
            if self.rows_of(self.states[index].0.index()).is_none()
                && let Some(state) = &mut self.arrays[num_params + index]
            {
                self.step.params().write_state(index, &state.read()?)?;
            }
        }
        let (arrays, cache) = (&self.arrays, &mut self.cache);
        if let Some(cache) = cache {
            cache.load(&|array| slow_of(arrays, array))?;
        }
        Ok(())
    }

    /// Copies dense parameters and their states back, writes back the cache, and copies embedding tables to the
    /// full-graph session.
    pub fn store_params(&mut self, whole: &mut dyn Session) -> Result<()> {
        if !std::mem::replace(&mut self.in_step, false) {
            return Ok(());
        }
        let (arrays, cache) = (&self.arrays, &mut self.cache);
        if let Some(cache) = cache {
            cache.write_back(&|array| slow_of(arrays, array))?;
        }
        let num_params = self.names.len();
        let mut numbers = vec![];
        for param in 0..num_params {
            match &mut self.arrays[param] {
                Some(_) if self.shared[param] => {}
                Some(table) => whole.params().write(param, &table.read()?)?,
                None => {
                    numbers.resize(whole.params().len(param), 0.0);
                    self.step.params().read(param, &mut numbers)?;
                    whole.params().write(param, &numbers)?;
                }
            }
        }
        for index in 0..self.states.len() {
            if self.rows_of(self.states[index].0.index()).is_none()
                && let Some(state) = &mut self.arrays[num_params + index]
            {
                state.write(&self.step.params().read_state(index)?)?;
            }
        }
        whole.shared_changed();
        Ok(())
    }

    /// Arrays with a row for each vertex of a type of the mini-batch program: tables and their states.
    fn row_arrays(&self) -> Vec<(usize, VertexType)> {
        let params = 0..self.names.len();
        let states = self.states.iter().map(|state| state.0.index());
        let arrays = params.chain(states).enumerate();
        arrays.filter_map(|(array, param)| Some((array, self.rows_of(param)?))).collect()
    }

    /// Gathers the rows of tables that the next step of a batch reads.
    pub(super) fn gather_rows(&mut self, mini_batch: &MiniBatch) -> Result<()> {
        let of_batch = self.row_arrays();
        let Self { step, arrays, cache, loader, .. } = self;
        let stores = stores(&of_batch, (arrays, cache.as_ref()), loader, mini_batch)?;
        step.gather_tables(STEP, &tables(&stores))
    }

    /// Applies the update of a batch, and scatters the new rows of tables.
    pub(super) fn update_rows(&mut self, mini_batch: &MiniBatch, key: StepKey, times: &mut Times) -> Result<()> {
        let of_batch = self.row_arrays();
        let Self { step, arrays, cache, loader, .. } = self;
        let stores = stores(&of_batch, (arrays, cache.as_ref()), loader, mini_batch)?;
        step.update_tables(STEP, key, &tables(&stores), times)
    }
}

/// The rows that a batch takes of a store, by array.
type StoreRows<'a> = (usize, &'a [u32], Box<dyn RowStore + 'a>);

/// The stores of tables and of their states, through the cache if there is one.
fn stores<'a>(
    of_batch: &[(usize, VertexType)],
    (arrays, cache): (&'a [Option<Table>], Option<&'a Cache>),
    loader: &'a MiniBatchLoader,
    mini_batch: &'a MiniBatch,
) -> Result<Vec<StoreRows<'a>>> {
    let store = |&(array, of_batch): &(usize, VertexType)| {
        Ok((array, loader.rows_of_table(mini_batch, of_batch), store_of(arrays, cache, array)?))
    };
    of_batch.iter().map(store).collect()
}

fn tables<'a>(stores: &'a [StoreRows<'a>]) -> Vec<TableRows<'a>> {
    stores.iter().map(|(array, rows, store)| TableRows { array: *array, rows, store: &**store }).collect()
}
