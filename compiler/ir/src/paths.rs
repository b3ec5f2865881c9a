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
//! So can vertices as of a cutoff ([`PathRows::Cutoffs`]): a vertex without a time has a row for each time as of which it is
//! read, and the edges between such rows are relations. Links to predict under a cutoff ([`PathRows::Links`]) are one of these:
//! its ends are rows of both vertex types for all vertices at each cutoff of a link, so a negative sample is a row as well.
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
    /// The hops of the path, in message direction; at least one. Of rows as of cutoffs: the steps that start or end at
    /// their vertex type, each with relations of its own.
    pub steps: Vec<Step>,
    /// The instances that are rows, and their order.
    pub rows: PathRows,
    /// For each position of the path, as indices into [`Dataflow::relations`]: the relation from the vertices there to
    /// the instances; of walks, the last one leads from the instances to the last vertices. Of rows as of cutoffs: the
    /// relation from the vertices to their rows, and for each step the one with its edges between rows.
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
    /// A row for each vertex and each cutoff as of which it is read, by cutoff, then by vertex. To a row with a cutoff come
    /// the edges that are not later, from the rows of their sources with the same cutoff.
    Cutoffs,
    /// The links of a relation between the rows of both ends as of the last time before the period of the link. No vertex type of
    /// their own: `vertex` is that of the rows of the destinations.
    Links {
        /// Units of time that a period is long: it begins at a multiple of this.
        period: u64,
    },
    /// For each vertex at an end of such links, its row that reads all there is: a relation from the rows to the
    /// vertices, without any step.
    Latest,
}

impl PathRows {
    /// Whether they belong to rows of vertices as of cutoffs, which are no edges or paths.
    pub fn are_of_vertices(self) -> bool {
        matches!(self, PathRows::Cutoffs | PathRows::Links { .. } | PathRows::Latest)
    }
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
            match rows {
                PathRows::Edges => text += &format!(" {relation}"),
                _ => text += &format!(" {}{relation}", sign(*step)),
            }
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

    /// Declares rows as of cutoffs of some vertex types: for each a vertex type, the relation from the vertices, and a relation
    /// for each of the `steps` that start or end at one of them.
    pub fn declare_cutoffs(flow: &mut Dataflow, of: &[VertexType], steps: &[Step]) {
        let first = flow.vertex_types.len();
        for vertex in of {
            let decl = &flow.vertex_types[vertex.index()];
            let (name, text) = (format!("{}.cutoffs", decl.name), format!("{} as of cutoffs", decl.dataset_name));
            flow.vertex_types.push(VertexTypeDecl::new(name, text));
        }
        let rows_of = |vertex: VertexType| of.iter().position(|known| *known == vertex);
        let at_rows = |vertex: VertexType| rows_of(vertex).map_or(vertex, |at| VertexType::new(first + at));
        for (at, &vertex) in of.iter().enumerate() {
            let rows = VertexType::new(first + at);
            let type_name = flow.vertex_types[rows.index()].name.clone();
            let text = flow.vertex_types[rows.index()].dataset_name.clone();
            let mut relations = vec![flow.relations.len() as u32];
            let decl =
                RelationDecl { name: format!("{type_name}.0"), dataset_name: text.clone(), src: vertex, dst: rows };
            flow.relations.push(decl);
            // A step between two such types is declared with the one where it ends.
            let is_own = |step: &&Step| {
                let (src, dst) = step_ends(flow, **step);
                dst == vertex || src == vertex && rows_of(dst).is_none()
            };
            let own: Vec<Step> = steps.iter().filter(is_own).copied().collect();
            for (number, step) in (1..).zip(&own) {
                let (src, dst) = step_ends(flow, *step);
                let along = &flow.relations[step.relation as usize].dataset_name;
                let decl = RelationDecl {
                    name: format!("{type_name}.{number}"),
                    dataset_name: format!("{text}, {}{along}", sign(*step)),
                    src: at_rows(src),
                    dst: at_rows(dst),
                };
                relations.push(flow.relations.len() as u32);
                flow.relations.push(decl);
            }
            flow.paths.push(PathDecl { vertex: rows, steps: own, rows: PathRows::Cutoffs, relations });
        }
    }

    /// Declares the links of a relation between rows as of cutoffs, which both of its ends have.
    pub fn declare_links(flow: &mut Dataflow, step: Step, period: u64) {
        let rows_of = |vertex: VertexType| PathDecl::rows_as_of_cutoffs(flow, vertex).unwrap_or(vertex);
        let decl = &flow.relations[step.relation as usize];
        let (name, text) = (format!("{}.links", decl.name), format!("{} as of cutoffs", decl.dataset_name));
        let (src, vertex) = (rows_of(decl.src), rows_of(decl.dst));
        let relations = vec![flow.relations.len() as u32];
        flow.relations.push(RelationDecl { name, dataset_name: text, src, dst: vertex });
        flow.paths.push(PathDecl { vertex, steps: vec![step], rows: PathRows::Links { period }, relations });
    }

    /// Declares the rows of vertices that read all there is, of a vertex type with rows as of cutoffs. The result is the relation.
    pub fn declare_latest(flow: &mut Dataflow, of: VertexType) -> u32 {
        let rows = Self::rows_as_of_cutoffs(flow, of).expect("it has rows as of cutoffs");
        let decl = &flow.vertex_types[of.index()];
        let (name, text) = (format!("{}.latest", decl.name), format!("{} as of the latest cutoff", decl.dataset_name));
        let relation = flow.relations.len() as u32;
        flow.relations.push(RelationDecl { name, dataset_name: text, src: rows, dst: of });
        flow.paths.push(PathDecl { vertex: rows, steps: vec![], rows: PathRows::Latest, relations: vec![relation] });
        relation
    }

    /// The vertex type whose rows as of cutoffs these are; `None` for other rows.
    pub fn cutoffs_of(&self, flow: &Dataflow) -> Option<VertexType> {
        let from = self.relations.first().filter(|_| self.rows == PathRows::Cutoffs)?;
        Some(flow.relations.get(*from as usize)?.src)
    }

    /// The vertex type of the rows as of cutoffs of a vertex type, if it has any.
    pub fn rows_as_of_cutoffs(flow: &Dataflow, vertex: VertexType) -> Option<VertexType> {
        flow.paths.iter().find(|path| path.cutoffs_of(flow) == Some(vertex)).map(|path| path.vertex)
    }

    /// Whether an output of a program depends on edges of a relation.
    pub fn reads_relation(flow: &Dataflow, relation: u32) -> bool {
        let own = |graph: Graph| flow.graphs[graph.index()].steps.iter().any(|step| step.relation == relation);
        flow.values.iter().zip(flow.live_values()).any(|(data, live)| {
            let of_edges = matches!(data.ty.space, Space::Edges(graph) | Space::Endpoints(graph, _) if own(graph));
            live && (of_edges || data.op.graph().is_some_and(own))
        })
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

impl Dataflow {
    /// The relation whose links a step over a relation of links is about: that of the dataset, if it is between
    /// rows as of cutoffs.
    pub fn relation_of_links(&self, step: Step) -> u32 {
        let is_it =
            |path: &&PathDecl| matches!(path.rows, PathRows::Links { .. }) && path.relations.contains(&step.relation);
        self.paths.iter().find(is_it).map_or(step.relation, |path| path.steps[0].relation)
    }
}

/// The vertex types where a step starts and ends.
fn step_ends(flow: &Dataflow, step: Step) -> (VertexType, VertexType) {
    let decl = &flow.relations[step.relation as usize];
    if step.reverse { (decl.dst, decl.src) } else { (decl.src, decl.dst) }
}

/// The direction of a step in names.
fn sign(step: Step) -> char {
    if step.reverse { '<' } else { '>' }
}
