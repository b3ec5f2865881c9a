//! The parameters of all ranks: those that every rank has, and tables whose rows belong to the owners of vertices.

use hgnnc_data::buffer::Alias;
use hgnnc_data::stacks::num_own_params;
use hgnnc_data::{ExecError, Result, StateId};
use hgnnc_ir::dataflow::Dataflow;
use hgnnc_ir::types::{Dim, VertexType};
use hgnnc_session::{ParamStore, RowStore, Session};

use crate::session::RankSession;

impl RankSession {
    /// The vertex type whose vertices have the rows of a parameter.
    pub(crate) fn rows_of(&self, param: usize) -> Option<VertexType> {
        match self.placed.one.params.get(param)?.dims.first() {
            Some(Dim::Count(vertex)) => Some(*vertex),
            Some(Dim::Fixed(_)) | None => None,
        }
    }

    /// The elements of a parameter on this rank.
    pub(crate) fn own_param(&mut self, param: usize) -> Result<Vec<f32>> {
        let mut own = vec![0.0; self.len_of_rank(param)];
        self.inner.params().read(param, &mut own)?;
        Ok(own)
    }

    fn len_of_rank(&self, param: usize) -> usize {
        let all = self.all_len(param);
        let Some(vertex) = self.rows_of(param) else { return all };
        let rows = self.whole.num_vertices[vertex.index()];
        all / rows.max(1) * self.own_rows(vertex, rows).len()
    }

    /// Elements of a parameter on all ranks.
    pub(crate) fn all_len(&self, param: usize) -> usize {
        let extent = |dim: &Dim| match *dim {
            Dim::Fixed(extent) => extent,
            Dim::Count(vertex) => self.whole.num_vertices[vertex.index()],
        };
        self.placed.one.params[param].dims.iter().map(extent).product()
    }
}

impl ParamStore for RankSession {
    fn num_params(&self) -> usize {
        num_own_params(&self.placed.one)
    }

    fn len(&self, index: usize) -> usize {
        self.all_len(index)
    }

    fn read(&mut self, index: usize, into: &mut [f32]) -> Result<()> {
        if self.rows_of(index).is_none() {
            return self.inner.params().read(index, into);
        }
        if let Some(collected) = &self.collected {
            let all = collected.get(&index).ok_or_else(|| {
                ExecError::Unsupported("internal error: all rows of a table are on another process".into())
            })?;
            into.copy_from_slice(all);
            return Ok(());
        }
        let own = self.own_param(index)?;
        let mut all = Vec::with_capacity(into.len());
        self.gather(&own, &mut all)?;
        into.copy_from_slice(&all);
        Ok(())
    }

    fn write(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        self.collected = None;
        // A rank takes the rows of its vertices, by their numbers in the dataset.
        self.inner.params().write(index, numbers)
    }

    fn own_len(&self, index: usize) -> usize {
        self.len_of_rank(index)
    }

    fn read_own(&mut self, index: usize, into: &mut [f32]) -> Result<()> {
        self.inner.params().read(index, into)
    }

    fn write_own(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        self.collected = None;
        self.inner.params().write_own(index, numbers)
    }

    fn states(&self) -> &[StateId] {
        &self.states
    }

    fn read_state(&mut self, index: usize) -> Result<Vec<f32>> {
        self.inner.params().read_state(index)
    }

    fn write_state(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        self.inner.params().write_state(index, numbers)
    }

    fn init(&mut self, _tables: &Dataflow, seed: u64) -> Result<()> {
        self.collected = None;
        let placed = std::sync::Arc::clone(&self.placed);
        self.inner.params().init(&placed.tables, seed)
    }

    fn are_finite(&mut self) -> Option<bool> {
        let own = self.inner.params().are_finite()?;
        // An error of the exchange is that of the next one, too.
        self.agree(!own).ok().map(|infinite| !infinite)
    }

    fn share(&mut self, index: usize) -> Option<Alias> {
        self.rows_of(index)?;
        self.inner.params().share(index)
    }

    fn gather_rows(&mut self, _array: usize, _rows: &[u32], _from: &dyn RowStore) -> Result<()> {
        Err(ExecError::Unsupported("internal error: rows of several processes are not taken from a store".into()))
    }

    fn scatter_rows(&mut self, _array: usize, _rows: &[u32], _to: &dyn RowStore) -> Result<()> {
        Err(ExecError::Unsupported("internal error: rows of several processes are not given to a store".into()))
    }
}
