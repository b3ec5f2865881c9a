//! Times of vertices and edges as numbers.
//!
//! Datasets have whole numbers from an origin of their own. Programs read differences to the newest time that they read any of:
//! so differences of two of them are exact in f32 as long as all times lie within [`MOST`] units.

use hgnnc_graph::NO_ORIGINAL;
use hgnnc_ir::dataflow::{Binding, GraphDecl, InputDecl, SelfLoops};
use hgnnc_ir::types::{Graph, VertexType};

use crate::bind::{Binder, Edges};
use crate::bound::InputData;
use crate::error::{ExecError, Result};
use crate::stacks;

/// f32 holds whole numbers up to here exactly.
const MOST: u64 = 1 << f32::MANTISSA_DIGITS;

impl Binder<'_> {
    /// The newest time that the inputs of the program read; `None` if they read none.
    ///
    /// # Errors
    /// Times that the dataset does not have, and times too far apart.
    pub(crate) fn newest(&self) -> Result<Option<i64>> {
        let mut range: Option<(i64, i64)> = None;
        let mut add = |times: &[i64]| {
            for &time in times {
                let (first, last) = range.unwrap_or((time, time));
                range = Some((first.min(time), last.max(time)));
            }
        };
        let members = |decl: &InputDecl| stacks::of_members(self.flow, decl).unwrap_or_else(|| vec![decl.clone()]);
        for decl in self.flow.inputs.iter().flat_map(members) {
            match decl.binding {
                Binding::Time(vertex) => add(self.vertex_times(vertex)?),
                Binding::EdgeTime(graph) => {
                    let (times, of_loops) = self.relation_times(graph)?;
                    add(times);
                    add(of_loops.unwrap_or_default());
                }
                _ => {}
            }
        }
        match range {
            Some((first, last)) if last.abs_diff(first) > MOST => Err(ExecError::Unsupported(format!(
                "the times that the model reads are from {first} to {last}; their differences are exact up to {MOST}: write \
                 them in a coarser unit, such as days instead of seconds"
            ))),
            range => Ok(range.map(|(_, last)| last)),
        }
    }

    /// Times of the vertices of a type, in the unit of the dataset.
    pub(crate) fn vertex_times(&self, vertex: VertexType) -> Result<&[i64]> {
        let data = &self.dataset.vertex_types[self.types[vertex.index()]];
        data.time.as_deref().ok_or_else(|| ExecError::Shape {
            what: format!("the vertex type `{}` of the dataset", data.name),
            found: "no times".into(),
            expected: "a `time` of each vertex".into(),
        })
    }

    /// Times of the edges of the relation of a graph, in the order of its file; those of vertices, if the graph has added
    /// self loops.
    fn relation_times(&self, graph: Graph) -> Result<(&[i64], Option<&[i64]>)> {
        let decl = &self.flow.graphs[graph.index()];
        let relation = match decl.steps[..] {
            [step] => Some(&self.dataset.relations[self.relations[step.relation as usize]]),
            _ => None,
        };
        let times = relation.and_then(|relation| relation.time.as_deref()).ok_or_else(|| ExecError::Shape {
            what: format!("the edges of `{}` in the dataset", decl.name),
            found: "no times".into(),
            expected: "a `time` of each edge".into(),
        })?;
        let of_loops = (decl.self_loops == SelfLoops::Added).then(|| self.vertex_times(decl.dst)).transpose()?;
        Ok((times, of_loops))
    }

    /// The rank of each edge among those of its destination, from 1 for the latest one: by its own time, or else by that of its
    /// source. Equal times go by the order of the edges, which is that of their sources.
    ///
    /// # Errors
    /// A graph without either time, and a destination of more edges than f32 counts.
    pub(crate) fn recency(&self, decl: &GraphDecl, edges: &Edges) -> Result<Vec<f32>> {
        let relation = match decl.steps[..] {
            [step] => self.dataset.relations[self.relations[step.relation as usize]].time.as_deref(),
            _ => None,
        };
        let of_sources = &self.dataset.vertex_types[self.types[decl.src.index()]].time;
        let (sources, original) = (edges.sources(), edges.original());
        let time = |edge: usize| match (relation, original.map(|all| all[edge]), of_sources) {
            (Some(times), Some(at), _) if at != NO_ORIGINAL => Some(times[at as usize]),
            (_, _, Some(times)) => Some(times[sources[edge] as usize]),
            // An added self loop of a vertex without a time is the latest: it is the vertex itself.
            (Some(_), _, None) => Some(i64::MAX),
            (None, _, None) => None,
        };
        let mut ranks = vec![0.0; sources.len()];
        let ends = edges.destinations();
        let mut order: Vec<usize> = (0..sources.len()).collect();
        let times: Option<Vec<i64>> = order.iter().map(|&edge| time(edge)).collect();
        let times = times.ok_or_else(|| ExecError::Shape {
            what: format!("the edges of `{}` in the dataset", decl.name),
            found: "no times".into(),
            expected: "a `time` of each edge, or of its source, to take the latest".into(),
        })?;
        order.sort_by_key(|&edge| (ends[edge], std::cmp::Reverse(times[edge]), edge));
        for row in order.chunk_by(|&a, &b| ends[a] == ends[b]) {
            if row.len() as u64 > MOST {
                return Err(ExecError::Unsupported(format!(
                    "a vertex has {} edges of `{}`, too many to take the latest of",
                    row.len(),
                    decl.name
                )));
            }
            row.iter().zip(1..).for_each(|(&edge, rank)| ranks[edge] = rank as f32);
        }
        Ok(ranks)
    }

    /// The contents of an input of vertex times.
    pub(crate) fn times(&self, vertex: VertexType) -> Result<InputData> {
        let newest = self.newest()?.unwrap_or_default();
        Ok(InputData::Numbers(
            self.vertex_times(vertex)?.iter().map(|time| (time - newest) as f32).collect::<Vec<_>>().into(),
        ))
    }

    /// The contents of an input of edge times, in the order of the edges.
    pub(crate) fn edge_times(&self, graph: Graph) -> Result<InputData> {
        let newest = self.newest()?.unwrap_or_default();
        let (times, of_loops) = self.relation_times(graph)?;
        let edges = &self.graphs[graph.index()];
        let original = edges.original().map_or(&[][..], |all| all);
        let numbers: Vec<f32> = match of_loops {
            None => original.iter().map(|&at| (times[at as usize] - newest) as f32).collect(),
            Some(of_loops) => {
                let ends = edges.destinations();
                let time = |(&at, end): (&u32, u32)| {
                    if at == NO_ORIGINAL { of_loops[end as usize] } else { times[at as usize] }
                };
                original.iter().zip(ends).map(|edge| (time(edge) - newest) as f32).collect()
            }
        };
        Ok(InputData::Numbers(numbers.into()))
    }
}
