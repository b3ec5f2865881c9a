//! Gathers the rows of a batch: features, labels and sparse rows.

use hgnnc_data::buffer::HostBuffer;
use hgnnc_data::{Adjacency, BoundData, ExecError, InputData, Result, Topology, stacks};
use hgnnc_ir::batch::{BatchGraph, BatchInput, BatchPattern};
use hgnnc_ir::dataflow::Binding;
use hgnnc_ir::types::{Layout, Space, Type};
use hgnnc_sample::{Batch, Block};
use hgnnc_session::RowStore;

use super::remote_sparse::SparseRows;
use super::{GraphInput, MiniBatch, MiniBatchLoader};

impl MiniBatchLoader {
    /// Gathers the rows of patterns and inputs for the sampled vertices and edges.
    pub(super) fn rows_of_inputs(&self, mini_batch: &mut MiniBatch) -> Result<()> {
        let patterns = 0..self.layout.patterns.len();
        let remote: Vec<Option<SparseRows>> =
            patterns.map(|pattern| self.remote_sparse(pattern, mini_batch)).collect::<Result<_>>()?;
        let MiniBatch { sampled, to_seeds, pairs, reused_rows, data, inputs, .. } = mini_batch;
        data.patterns.resize_with(self.layout.patterns.len(), Topology::default);
        let patterns = self.layout.patterns.iter().zip(&self.tables.patterns);
        for ((topology, (&BatchPattern { pattern, rows }, decl)), remote) in
            data.patterns.iter_mut().zip(patterns).zip(&remote)
        {
            let (vertices, whole) = (self.vertices(sampled, rows), &self.patterns[pattern.index()]);
            topology.name.clone_from(&self.tables.vertex_types[rows.index()].name);
            (topology.num_dst, topology.num_src) = (vertices.len(), decl.columns);
            let Adjacency { indptr, indices: other, .. } = &mut topology.csc;
            let (indptr, other) = (indptr.make_mut(), other.make_mut());
            indptr.clear();
            other.clear();
            match remote {
                Some(rows) => {
                    indptr.extend(rows.indptr());
                    other.extend_from_slice(&rows.columns);
                }
                None => {
                    indptr.push(0);
                    for &vertex in vertices {
                        other.extend_from_slice(&whole.indices[stored(whole, vertex)]);
                        indptr.push(other.len() as u64);
                    }
                }
            }
            (topology.ends, topology.classes) = ([None, None], Default::default());
        }
        data.inputs.truncate(self.layout.inputs.len());
        data.inputs.resize(self.layout.inputs.len(), InputData::Missing);
        inputs.resize_with(self.num_inputs(), || HostBuffer::zeros(0));
        for (index, from) in self.layout.inputs.iter().enumerate() {
            let ty = &self.tables.inputs[index].ty;
            if let BatchInput::Historical { rows, value } = *from {
                // Filled when the historical embeddings are gathered.
                let len = reused_rows[rows].len() * self.layout.historical[rows].values[value];
                inputs[index].grow(len);
                data.inputs[index] = InputData::Held(len);
                continue;
            }
            match &self.inputs[index] {
                GraphInput::Rows(store) => {
                    let len = self.rows_of(ty, &**store, (sampled, to_seeds), &mut inputs[index])?;
                    data.inputs[index] = InputData::Held(len);
                }
                GraphInput::Numbered => {
                    let rows = self.numbers_of(ty, (sampled, to_seeds))?;
                    data.inputs[index] = InputData::Rows(rows.to_vec());
                }
                GraphInput::Sparse(numbers) => {
                    let mut remote = remote.iter().flatten().flat_map(|rows| &rows.elements);
                    let len = match remote.find(|(input, _)| *input == index) {
                        Some((_, elements)) => {
                            room(&mut inputs[index], elements.len()).copy_from_slice(elements);
                            elements.len()
                        }
                        None => self.stored_of(ty, numbers, sampled, &mut inputs[index])?,
                    };
                    data.inputs[index] = InputData::Held(len);
                }
                GraphInput::Classes(classes) => {
                    let Space::Vertices(vertex) = ty.space else { return Err(unknown(ty)) };
                    let rows = self.vertices(sampled, vertex).iter().map(|&v| classes[v as usize]);
                    data.inputs[index] = InputData::Classes(rows.collect());
                }
                GraphInput::Nothing => {
                    if let (Binding::IsLink(_), Space::Edges(graph)) = (&self.tables.inputs[index].binding, ty.space)
                        && let BatchGraph::Links { graph } = self.layout.graphs[graph.index()]
                        && let Some(drawn) = self.pairs_of(pairs, graph)
                    {
                        room(&mut inputs[index], drawn.is_link.len()).copy_from_slice(&drawn.is_link);
                        data.inputs[index] = InputData::Held(drawn.is_link.len());
                    }
                }
            }
        }
        for index in self.layout.inputs.len()..self.num_inputs() {
            let len = self.rows_of_members(index, data, inputs)?;
            data.inputs.push(InputData::Held(len));
        }
        Ok(())
    }

    /// Fills an input of a stack from those of its members. Returns the number of elements.
    fn rows_of_members(&self, index: usize, data: &BoundData, inputs: &mut [HostBuffer]) -> Result<usize> {
        let decl = &self.tables.inputs[index];
        let members = stacks::of_members(&self.tables, decl).ok_or_else(|| unknown(&decl.ty))?;
        let mut parts = vec![];
        for member in members {
            let of_member = self.tables.inputs.iter().position(|known| known.binding == member.binding);
            match of_member.map(|of_member| (of_member, data.inputs.get(of_member))) {
                Some((of_member, Some(&InputData::Held(len)))) => parts.push((of_member, len)),
                _ => return Err(unknown(&decl.ty)),
            }
        }
        let total = parts.iter().map(|(_, len)| len).sum();
        let (before, after) = inputs.split_at_mut(index);
        let mut rest = room(&mut after[0], total);
        for (of_member, len) in parts {
            let (own, others) = rest.split_at_mut(len);
            own.copy_from_slice(&before[of_member].elements()[..len]);
            rest = others;
        }
        Ok(total)
    }

    /// Gathers the stored elements of a sparse input's rows. Returns their number.
    fn stored_of(&self, ty: &Type, numbers: &[f32], sampled: &Batch, into: &mut HostBuffer) -> Result<usize> {
        let Layout::Sparse(pattern) = ty.layout else { return Err(unknown(ty)) };
        let BatchPattern { pattern, rows } = self.layout.patterns[pattern.index()];
        let whole = &self.patterns[pattern.index()];
        let vertices = self.vertices(sampled, rows);
        let len = vertices.iter().map(|&vertex| stored(whole, vertex).len()).sum();
        let mut rest = room(into, len);
        for &vertex in vertices {
            let row = &numbers[stored(whole, vertex)];
            let (own, others) = rest.split_at_mut(row.len());
            own.copy_from_slice(row);
            rest = others;
        }
        Ok(len)
    }

    /// Gathers the rows of an input, or shares all of them if kernels index them by full-graph ids. Returns
    /// the number of elements.
    fn rows_of(
        &self,
        ty: &Type,
        store: &dyn RowStore,
        (sampled, to_seeds): (&Batch, &[Block]),
        into: &mut HostBuffer,
    ) -> Result<usize> {
        if let Space::Vertices(vertex) = ty.space
            && self.uses.direct[vertex.index()]
        {
            let numbers = store.shared().ok_or_else(|| unknown(ty))?;
            *into = numbers.slab();
            return Ok(numbers.len());
        }
        let rows = self.numbers_of(ty, (sampled, to_seeds))?;
        let len = rows.len() * store.width();
        store.read(rows, room(into, len))?;
        Ok(len)
    }

    /// Numbers of the rows that a batch has of an input of the full graph.
    pub(super) fn numbers_of<'b>(&self, ty: &Type, (sampled, to_seeds): (&'b Batch, &'b [Block])) -> Result<&'b [u32]> {
        match ty.space {
            Space::Vertices(vertex) => Ok(self.vertices(sampled, vertex)),
            Space::Edges(graph) => match self.layout.graphs[graph.index()] {
                BatchGraph::Sampled { graph, hops: 0 } if !to_seeds.is_empty() => Ok(&to_seeds[graph.index()].eids),
                BatchGraph::Sampled { graph, hops } => {
                    Ok(&sampled.blocks[graph.index()].eids[..sampled.edges_up_to(graph.index(), hops)])
                }
                BatchGraph::Shuffled { .. }
                | BatchGraph::First { .. }
                | BatchGraph::Links { .. }
                | BatchGraph::Historical { .. } => Err(unknown(ty)),
            },
            Space::Unit | Space::Index(_) | Space::Endpoints(..) => Err(unknown(ty)),
        }
    }
}

fn unknown(ty: &Type) -> ExecError {
    ExecError::Unsupported(format!("internal error: an input of type {ty:?} has no rows in a batch"))
}

/// Range of the stored elements of a row.
pub(super) fn stored(whole: &Adjacency, vertex: u32) -> std::ops::Range<usize> {
    whole.indptr[vertex as usize] as usize..whole.indptr[vertex as usize + 1] as usize
}

/// The first `len` elements of a buffer, which grows if it has fewer.
fn room(slab: &mut HostBuffer, len: usize) -> &mut [f32] {
    slab.grow(len);
    &mut slab.elements()[..len]
}
