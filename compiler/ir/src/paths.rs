//! Path instances: the walks along a metapath as rows.
//!
//! A semantic graph of a metapath has an edge for each *pair* of end vertices that a path joins; the vertices in between
//! are lost. Where a model reads those, each instance of the metapath becomes a vertex of a type of its own
//! ([`PathDecl::vertex`]). Relations say what it walks through ([`PathDecl::relations`]): one for each position of the
//! path but the last, from the vertex there to the instance, and one from the instance to the last vertex of the path.
//! So an instance has one in-edge of each of the former, and one out-edge of the latter, whose in-edges are the instances
//! that end at a vertex. The edge at position `i` carries weight and features of the `i`-th hop.
//!
//! The edges of a relation can be rows as well ([`PathRows::Edges`]): paths of one step in the order of the dataset, with an
//! in-edge from either end, so that an edge can be what a loss compares with a label and a seed of a mini-batch.
//!
//! These are a vertex type and relations like others. All operations, passes, samplers and back ends apply to them; only
//! the runtime knows that it lists them instead of reading them from a dataset.

use crate::dataflow::{Dataflow, RelationDecl, Step, VertexTypeDecl};
use crate::ops::Op;
use crate::types::{Graph, Space, VertexType};

/// The instances of a metapath as rows of a vertex type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathDecl {
    /// The type that has a row for each instance.
    pub vertex: VertexType,
    /// The hops of the path, in message direction; at least one.
    pub steps: Vec<Step>,
    /// The instances that are rows, and their order.
    pub rows: PathRows,
    /// For each position of the path, as indices into [`Dataflow::relations`]: the relation from the vertices there to
    /// the instances; of walks, the last one leads from the instances to the last vertices.
    pub relations: Vec<u32>,
}

/// The instances of a metapath that are rows, and their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathRows {
    /// Walks by last vertex, then by the hops from the last to the first, each in the order of the edges that arrive at
    /// a vertex (by source, then by position in the dataset).
    Walks {
        /// The most instances that end at a vertex: of more, that many are chosen at random.
        at_most: Option<u32>,
    },
    /// The edges of a relation in the order of the dataset. Their weights and features belong to the relation from the
    /// last vertices to them.
    Edges,
}

impl PathDecl {
    /// Declares the vertex type and the relations of a metapath's instances in tables of a model. `name` is that of the
    /// semantic graph, `text` describes its steps in the words of a dataset.
    pub fn declare(
        (vertex_types, relations): (&mut crate::Table<VertexTypeDecl>, &mut crate::Table<RelationDecl>),
        name: &str,
        steps: &[Step],
        rows: PathRows,
    ) -> Self {
        let mut text = String::from(if rows == PathRows::Edges { "edges of" } else { "instances of" });
        for step in steps {
            let relation = &relations[step.relation as usize].dataset_name;
            let sign = match (rows, step.reverse) {
                (PathRows::Edges, _) => "",
                (PathRows::Walks { .. }, true) => "<",
                (PathRows::Walks { .. }, false) => ">",
            };
            text += &format!(" {sign}{relation}");
        }
        if let PathRows::Walks { at_most: Some(most) } = rows {
            text += &format!(" at most {most}");
        }
        let from = |relations: &crate::Table<RelationDecl>, step: &Step| {
            let decl = &relations[step.relation as usize];
            if step.reverse { (decl.dst, decl.src) } else { (decl.src, decl.dst) }
        };
        let mut positions: Vec<VertexType> = steps.iter().map(|step| from(relations, step).0).collect();
        positions.extend(steps.last().map(|step| from(relations, step).1));
        let vertex = VertexType::new(vertex_types.len());
        let type_name = if rows == PathRows::Edges { name.to_owned() } else { format!("{name}.paths") };
        vertex_types.push(VertexTypeDecl::new(type_name.clone(), text.clone()));
        let last = positions.len() - 1;
        let declared = positions.iter().enumerate().map(|(position, &at)| {
            let from_instances = position == last && rows != PathRows::Edges;
            let (src, dst) = if from_instances { (vertex, at) } else { (at, vertex) };
            let name = format!("{type_name}.{position}");
            relations.push(RelationDecl { name, dataset_name: format!("{text}, vertex {position}"), src, dst });
            (relations.len() - 1) as u32
        });
        let declared = declared.collect();
        PathDecl { vertex, steps: steps.to_vec(), rows, relations: declared }
    }

    /// Whether an output of a program depends on the instances.
    pub fn is_read(&self, flow: &Dataflow) -> bool {
        let own =
            |graph: Graph| flow.graphs[graph.index()].steps.iter().any(|step| self.relations.contains(&step.relation));
        let of_space = |space: Space| match space {
            Space::Edges(graph) | Space::Endpoints(graph, _) => own(graph),
            Space::Vertices(vertex) => vertex == self.vertex,
            Space::Unit | Space::Index(_) => false,
        };
        flow.values.iter().zip(flow.live_values()).any(|(data, live)| {
            let counted = if let Op::Count(space) = data.op { space } else { Space::Unit };
            live && (of_space(data.ty.space) || of_space(counted) || data.op.graph().is_some_and(own))
        })
    }
}
