//! Samplers compiled for a plan: calls of the generated code, and its callbacks.

// Generated code works on raw addresses.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::fmt::Write;
use std::sync::Arc;

use hgnnc_executable::sampler::{
    Counted, DrawCall, RowsCall, RowsOf, SHORT, SLACK, SamplerCode, SamplerCompiler, SamplerFunction, Take,
};

use crate::draw::Draws;
use crate::graph::SampleGraph;
use crate::id_map::IdMap;
use crate::plan::{Fanout, Plan};
use crate::prefetch::{LINE, prefetch};
use crate::weight::Weigher;

/// The machine code of a sampler for a plan and for graphs with given vertex types and relations; independent of their
/// edges. Shared by threads ([`Sampler::compiled`](crate::Sampler::compiled)).
#[derive(Debug)]
pub struct Compiled {
    plan: Plan,
    /// By hop and vertex type; `None` if the hop samples no relation into that type.
    rows: Vec<Vec<Option<SamplerFunction>>>,
    /// By hop and relation; `None` if the hop does not sample it.
    draws: Vec<Vec<Option<SamplerFunction>>>,
    code: SamplerCode,
    compiler: Arc<dyn SamplerCompiler>,
}

impl Compiled {
    /// Has the code generated.
    ///
    /// # Errors
    /// The reason why there is no code.
    pub fn new(graph: &SampleGraph<'_>, plan: Plan, compiler: &Arc<dyn SamplerCompiler>) -> Result<Compiled, String> {
        let (rows, draws) = functions(graph, &plan);
        let all: BTreeSet<&SamplerFunction> = rows.iter().chain(&draws).flatten().flatten().collect();
        let all: Vec<SamplerFunction> = all.into_iter().cloned().collect();
        let code = compiler.compile(&all)?;
        Ok(Compiled { plan, rows, draws, code, compiler: Arc::clone(compiler) })
    }

    /// The compiler that generated the code.
    pub fn compiler(&self) -> &Arc<dyn SamplerCompiler> {
        &self.compiler
    }

    /// The plan that the code was generated for.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether the code was generated for graphs of this schema.
    pub(crate) fn fits(&self, graph: &SampleGraph<'_>) -> bool {
        functions(graph, &self.plan) == (self.rows.clone(), self.draws.clone())
    }

    /// The generated functions as text, each under a comment on its use. `types` are the names of vertex types.
    pub fn text(&self, graph: &SampleGraph<'_>, types: &[String]) -> String {
        let named = |list: &[Vec<Option<SamplerFunction>>], name: &dyn Fn(usize) -> String| -> Vec<_> {
            let of_hop = |(hop, list): (usize, &Vec<Option<SamplerFunction>>)| -> Vec<(SamplerFunction, String)> {
                let each = list.iter().enumerate();
                each.filter_map(|(i, f)| Some((f.clone()?, format!("hop {hop}, {}", name(i))))).collect()
            };
            list.iter().enumerate().flat_map(of_hop).collect()
        };
        let mut called = named(&self.rows, &|t| format!("rows of {}", types.get(t).map_or("?", |name| &name[..])));
        called.extend(named(&self.draws, &|r| format!("edges of {}", graph.relations()[r].name)));
        let mut text = String::new();
        let functions: BTreeSet<SamplerFunction> = called.iter().map(|(function, _)| function.clone()).collect();
        for function in functions {
            // Writing to a string does not fail.
            let _ = writeln!(text, "; sampler: {function}");
            for (_, caller) in called.iter().filter(|(called, _)| *called == function) {
                let _ = writeln!(text, ";   {caller}");
            }
            let _ = writeln!(text, "{}", self.compiler.text(&function));
        }
        text
    }

    /// Fills `rows` and appends to `indptr` for the destinations of one vertex type, for the `relations` into it that
    /// `hop` samples; both lists follow the order of `relations`.
    pub(crate) fn rows(
        &self,
        graph: &SampleGraph<'_>,
        (hop, vertex_type): (usize, usize),
        destinations: &[u32],
        relations: &[usize],
        rows: &mut [&mut Vec<[u32; 2]>],
        indptr: &mut [&mut Vec<u64>],
    ) {
        let Some(&entry) = self.rows[hop][vertex_type].as_ref().and_then(|function| self.code.entries.get(function))
        else {
            return;
        };
        let count = destinations.len();
        for rows in &mut *rows {
            rows.resize(count, [0; 2]);
        }
        let places = |indptr: &mut &mut Vec<u64>| {
            let last = indptr.len() - 1;
            indptr.resize(last + 1 + count, 0);
            indptr[last..].as_mut_ptr()
        };
        let indptr: Vec<*mut u64> = indptr.iter_mut().map(places).collect();
        let rows: Vec<*mut [u32; 2]> = rows.iter_mut().map(|rows| rows.as_mut_ptr()).collect();
        let offsets = &graph.offsets()[vertex_type];
        let positive = |r: &usize| graph.relations()[*r].positive().map_or(std::ptr::null(), <[u32]>::as_ptr);
        let listed: Vec<*const u32> = relations.iter().map(positive).collect();
        let mut call = RowsCall {
            destinations: destinations.as_ptr(),
            count,
            offsets: offsets.words().as_ptr(),
            rows: rows.as_ptr(),
            indptr: indptr.as_ptr(),
            listed: listed.as_ptr(),
            ask: prefetch_offsets,
        };
        // SAFETY: vertices of a batch are vertices of the graph, or the sentinel behind the last one; `offsets` has two
        // rows of words from each of them on. There are as many lists as the function has relations, because it was
        // generated for this schema (`fits`), each with `count` more elements.
        unsafe { entry(std::ptr::from_mut(&mut call).cast()) };
    }

    /// Samples the edges of `relation` in `hop` into `eids` and `indices`, which have room for [`SLACK`] more elements.
    pub(crate) fn draw(&self, graph: &SampleGraph<'_>, (hop, relation): (usize, usize), args: DrawArgs<'_>) {
        let Some(&entry) = self.draws[hop][relation].as_ref().and_then(|function| self.code.entries.get(function))
        else {
            return;
        };
        let DrawArgs { rows, first, indptr, draws, ids, vertices, eids, indices } = args;
        let latest = matches!(self.plan.fanouts[hop][relation], Fanout::Latest(_));
        let relation = &graph.relations()[relation];
        let (first_edge, end) = (indptr[0] as usize, indptr[rows.len()] as usize);
        assert!(eids.len() >= end + SLACK && indices.len() >= end, "the sampler makes room for all edges");
        let known = &mut vertices[relation.src_type];
        // The code writes to the element behind the last vertex even if the vertex is not new.
        known.reserve(end - first_edge + 1);
        let (num_known, known) = (known.len(), known.as_mut_ptr());
        let (stamp, limit) = ids.marks();
        let weights = relation.weights().unwrap_or_default();
        let mut weigher = Weigher { weights, latest, key: draws.key, keys: draws.keys };
        let mut call = DrawCall {
            rows: rows.as_ptr(),
            destinations: vertices[relation.dst_type][first..first + rows.len()].as_ptr(),
            count: rows.len(),
            indptr: indptr.as_ptr(),
            edge: eids.as_mut_ptr(),
            src: indices.as_mut_ptr(),
            sources: relation.sources().as_ptr(),
            words: ids.words_mut().as_mut_ptr(),
            stamp,
            limit,
            known,
            num_known,
            key_high: (draws.key >> 32) as u32,
            first: draws.first.as_ptr(),
            marked: draws.marked.as_mut_ptr(),
            ask: prefetch_sources,
            ask_whole: prefetch_row,
            gather,
            weigh: draw_by_weight,
            weigher: std::ptr::from_mut(&mut weigher).cast(),
        };
        // SAFETY: rows are rows of the relation; `indptr` has the number of edges per row that the fan-out gives, as
        // counted by `rows`; words cover all vertices of the source type; `draws` was made for the fan-out. The
        // destinations are vertices before `num_known`, or of another type.
        unsafe { entry(std::ptr::from_mut(&mut call).cast()) };
        let num_known = call.num_known;
        // SAFETY: at most one vertex per edge was appended and written, for which capacity was reserved.
        unsafe { vertices[relation.src_type].set_len(num_known) };
    }
}

/// Arguments of a generated sampling function.
pub(crate) struct DrawArgs<'b> {
    /// First edge id and degree of each row.
    pub rows: &'b [[u32; 2]],
    /// Compact id of the first destination.
    pub first: usize,
    /// Offset of each row's edges in the block. `[rows + 1]`
    pub indptr: &'b [u64],
    pub draws: Draws<'b>,
    /// Compact ids of the source type.
    pub ids: &'b mut IdMap,
    pub vertices: &'b mut [Vec<u32>],
    pub eids: &'b mut [u32],
    pub indices: &'b mut [u32],
}

type Functions = Vec<Vec<Option<SamplerFunction>>>;

/// The functions that a plan needs: row functions by hop and vertex type, sampling functions by hop and relation.
fn functions(graph: &SampleGraph<'_>, plan: &Plan) -> (Functions, Functions) {
    let rows_of = |hop: usize, (vertex_type, offsets): (usize, &crate::graph::Offsets)| {
        let drawn = plan.drawn(graph, hop).into_iter().filter(|&r| graph.relations()[r].dst_type == vertex_type);
        let counted = drawn.filter(|&r| !matches!(plan.fanouts[hop][r], Fanout::Walks { .. })).map(|r| {
            let fanout = plan.fanouts[hop][r];
            let most = match fanout {
                Fanout::All | Fanout::Walks { .. } => None,
                Fanout::AtMost(most) | Fanout::Weighted(most) | Fanout::Latest(most) => Some(most),
            };
            let listed = matches!(fanout, Fanout::Weighted(_)) && graph.relations()[r].positive().is_some();
            Counted { slot: graph.relations()[r].slot(), most, listed }
        });
        let drawn: Vec<Counted> = counted.collect();
        (!drawn.is_empty()).then_some(SamplerFunction::Rows(RowsOf { relations: offsets.relations.len(), drawn }))
    };
    let draw = |hop: usize, r: usize| {
        let longest = graph.relations()[r].max_degree();
        let take = match plan.fanouts[hop][r] {
            Fanout::Walks { .. } => return None,
            Fanout::AtMost(most) if most < longest => Take::Uniform { most, long: longest > SHORT },
            Fanout::All | Fanout::AtMost(_) => Take::Whole,
            Fanout::Weighted(most) if most >= longest && graph.relations()[r].positive().is_none() => Take::Whole,
            Fanout::Latest(most) if most >= longest => Take::Whole,
            Fanout::Weighted(_) | Fanout::Latest(_) => Take::Weighted,
        };
        Some(SamplerFunction::Draw(take))
    };
    let hops = 0..plan.num_hops();
    let rows = hops.clone().map(|hop| graph.offsets().iter().enumerate().map(|of| rows_of(hop, of)).collect());
    let draws = hops.map(|hop| {
        let drawn = plan.drawn(graph, hop);
        (0..graph.relations().len()).map(|r| if drawn.contains(&r) { draw(hop, r) } else { None }).collect()
    });
    (rows.collect(), draws.collect())
}

/// Prefetches the row offsets of vertices.
unsafe extern "C" fn prefetch_offsets(offsets: *const u32, vertices: *const u32, count: usize, relations: usize) {
    // SAFETY: generated code passes existing destinations.
    for &vertex in unsafe { std::slice::from_raw_parts(vertices, count) } {
        let at = vertex as usize * relations;
        prefetch(offsets, at);
        prefetch(offsets, at + 2 * relations - 1);
    }
}

/// Prefetches the sources of edges.
unsafe extern "C" fn prefetch_sources(sources: *const u32, edges: *const u32, count: usize) {
    // SAFETY: generated code passes the edges that it has sampled.
    for &edge in unsafe { std::slice::from_raw_parts(edges, count) } {
        prefetch(sources, edge as usize);
    }
}

/// Prefetches the sources of all edges of a row.
unsafe extern "C" fn prefetch_row(sources: *const u32, start: u32, degree: u32) {
    let (start, end) = (start as usize, start as usize + degree as usize);
    (start..end).step_by(LINE).for_each(|edge| prefetch(sources, edge));
    if degree > 0 {
        prefetch(sources, end - 1);
    }
}

/// Gathers the sources of edges, and prefetches their words in the id table.
unsafe extern "C" fn gather(sources: *const u32, edges: *const u32, words: *const u32, into: *mut u32, count: usize) {
    for i in 0..count {
        // SAFETY: generated code passes sampled edges of the relation, and as much room for their sources.
        unsafe {
            let source = *sources.add(*edges.add(i) as usize);
            *into.add(i) = source;
            prefetch(words, source as usize);
        }
    }
}

/// Samples edges of a row by weight.
unsafe extern "C" fn draw_by_weight(
    weigher: *mut c_void,
    start: u32,
    degree: u32,
    vertex: u32,
    into: *mut u32,
    taken: usize,
) {
    // SAFETY: generated code passes the weigher of its call, which has no other user, and room for `taken` edges.
    let (weigher, into) = unsafe { (&mut *weigher.cast::<Weigher<'_>>(), std::slice::from_raw_parts_mut(into, taken)) };
    weigher.take(vertex, start, degree, into);
}
