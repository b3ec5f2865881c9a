//! Rows as of cutoffs for the vertex types that have no time and receive messages with times.
//!
//! Under a cutoff, a vertex with a time reads what is not later than itself. What arrived at a vertex without one depends on who
//! asks: so it has a row for each cutoff as of which it is read ([`PathRows::Cutoffs`]), and the graphs from and to its type
//! are graphs of these rows.
//!
//! ```text
//! Before:  graph wrote: P -> A = <writes past           graph writes: A -> P = >writes past
//!          %1 = segment.sum.in wrote, (gather.src wrote, %0)   : f32[A; k]
//!          %2 = add %1, x                                      : f32[A; k]
//!          %3 = segment.sum.in writes, (gather.src writes, %2) : f32[P; k]
//! After:   graph wrote: P -> A.cutoffs = >A.cutoffs.1 past     graph writes: A.cutoffs -> P = >A.cutoffs.2 past
//!          %1 = segment.sum.in wrote, (gather.src wrote, %0)   : f32[A.cutoffs; k]
//!          %2 = segment.sum.in A.cutoffs, (gather.src A.cutoffs, x) : f32[A.cutoffs; k]
//!          %3 = add %1, %2                                     : f32[A.cutoffs; k]
//!          %4 = segment.sum.in writes, (gather.src writes, %3) : f32[P; k]
//! ```
//!
//! Values that depend on no message stay with the vertices, and are copied to their rows where they meet values that do: features,
//! learned rows, and what is computed of them alone. Rows are as many as pairs of a vertex and a time of its readers.
//!
//! Links to predict are read as of the last time before their period: both of their ends have rows, and the links are a relation
//! between these, so a pair to score is one of rows with the same cutoff.
//!
//! ```text
//! Before:  graph links_listens: U -> A = >listens links every 7
//! After:   graph links_listens: U.cutoffs -> A.cutoffs = >listens.links links
//!          graph U.latest: U.cutoffs -> U = >U.latest
//! ```
//!
//! An output of such a vertex type is of the rows that read all there is.
//!
//! The cutoff of a row is its time, which a field may read (`now: cutoff`).
//!
//! A type has rows if it has such a field, if it is an end of such links, or if a step of a graph with a cutoff brings it messages that have times: of their source, of the relation, or
//! since the source has rows itself. This depends on tables only, so all programs of a model have the same types and graphs.

use std::collections::{BTreeMap, BTreeSet};

use hgnnc_ir::dataflow::{Binding, Cursor, GraphDecl, Step};
use hgnnc_ir::{DType, Dataflow, Direction, Graph, Op, Origin, PathDecl, PathRows, Reduce, Space, Value, VertexType};

/// The vertex types and relations of a schema that have times, by position in the tables of its programs. Those that only
/// programs have are behind them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Timed {
    pub vertices: Vec<bool>,
    pub relations: Vec<bool>,
    /// Vertex types whose cutoffs are a field.
    pub cutoffs: Vec<bool>,
}

/// A value that would need a row for each cutoff where there is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAtCutoffs {
    /// The reason, as a clause: "an output has one row for each `Author`".
    pub what: String,
    /// The vertex type without a time.
    pub vertex: VertexType,
    /// The graph that brings it messages with times.
    pub graph: Graph,
    /// The step of that graph that does.
    pub step: Step,
    /// The place of the value in the source.
    pub origin: Option<Origin>,
}

/// Gives a program rows as of cutoffs, where it needs any. It has no metapaths, stacks or ranks yet.
///
/// # Errors
/// A value that is no function of such rows: a result, a reduction over all vertices, out-degrees, or what cannot be copied.
pub fn cutoff_rows(flow: &Dataflow, timed: &Timed) -> Result<Dataflow, NotAtCutoffs> {
    let why = types_with_rows(flow, timed);
    if why.is_empty() {
        return Ok(flow.clone());
    }
    for path in flow.paths.iter().filter(|path| matches!(path.rows, PathRows::Walks { at_most: Some(_) })) {
        let end = path.relations.last().map(|relation| flow.relations[*relation as usize].dst);
        if let Some(end) = end.filter(|end| why.contains_key(end) && path.is_read(flow)) {
            let what = "of the path instances that end at `{}`, those that a limit keeps depend on later ones";
            return Err(refused(flow, &why, end, what, None));
        }
    }
    let mut new = flow.with_tables_of(&flow.name);
    let types: Vec<VertexType> = why.keys().copied().collect();
    let copies = declare(&mut new, &types);
    let latest = latest(flow, &mut new);
    let mut rewrite = Rewrite { old: flow, new, why, copies, made: vec![] };
    for value in flow.handles() {
        let data = flow.value(value);
        rewrite.new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        let made = rewrite.value(value)?;
        rewrite.made.push(made);
    }
    let Rewrite { mut new, made, why, .. } = rewrite;
    new.cursor = flow.cursor;
    for output in &flow.outputs {
        let of_edges = match flow.ty(output.value).space {
            Space::Edges(graph) if !flow.graphs[graph.index()].links => {
                let ends = |flow: &Dataflow| [flow.graphs[graph.index()].src, flow.graphs[graph.index()].dst];
                ends(flow).into_iter().zip(ends(&new)).find(|(old, new)| old != new).map(|(old, _)| old)
            }
            _ => None,
        };
        let end = match flow.ty(output.value).space {
            Space::Vertices(vertex) => latest.get(&vertex).copied(),
            _ => None,
        };
        if let (Made { own: None, rows: Some(rows) }, Some(graph)) = (made[output.value.index()], end) {
            let gathered = new.add(Op::GatherSrc(graph), &[rows]);
            let value = new.segment(graph, Direction::In, Reduce::Sum, gathered);
            new.outputs.push(hgnnc_ir::Output { kind: output.kind.clone(), value });
            continue;
        }
        let Made { own: Some(value), .. } = made[output.value.index()] else {
            let Space::Vertices(vertex) = flow.ty(output.value).space else { unreachable!("only vertices have rows") };
            return Err(refused(
                flow,
                &why,
                vertex,
                "an output has one row for each `{}`",
                flow.value(output.value).origin,
            ));
        };
        if let Some(vertex) = of_edges {
            let what = "an output has one row for each edge, and `{}` is an end of these edges";
            return Err(refused(flow, &why, vertex, what, flow.value(output.value).origin));
        }
        new.outputs.push(hgnnc_ir::Output { kind: output.kind.clone(), value });
    }
    Ok(new)
}

/// The vertex types without a time that links with a period join or messages with times arrive at, each with a graph and a step of
/// such links or messages.
fn types_with_rows(flow: &Dataflow, timed: &Timed) -> BTreeMap<VertexType, (Graph, Step)> {
    let relation_is_timed = |relation: u32| timed.relations.get(relation as usize).is_some_and(|timed| *timed);
    let ends = |step: &Step| {
        let decl = &flow.relations[step.relation as usize];
        if step.reverse { (decl.dst, decl.src) } else { (decl.src, decl.dst) }
    };
    let of_schema = |vertex: VertexType| timed.vertices.get(vertex.index()).is_some_and(|timed| *timed);
    // Path instances and edges have the latest time of what they consist of.
    let is_timed = |vertex: VertexType| {
        let of_path = |path: &PathDecl| {
            let steps = path.steps.iter().map(|step| (step, ends(step)));
            let timed =
                |(step, (src, dst)): (&Step, _)| relation_is_timed(step.relation) || of_schema(src) || of_schema(dst);
            path.vertex == vertex && steps.into_iter().any(timed)
        };
        of_schema(vertex) || flow.paths.iter().any(of_path)
    };
    let steps = || {
        let past = (0..flow.graphs.len()).map(Graph::new).filter(|graph| flow.graphs[graph.index()].past);
        past.flat_map(|graph| flow.graphs[graph.index()].steps.iter().map(move |step| (graph, step)))
    };
    let mut found: BTreeMap<VertexType, (Graph, Step)> = BTreeMap::new();
    for graph in (0..flow.graphs.len()).map(Graph::new) {
        let decl = &flow.graphs[graph.index()];
        if let (Some(_), [step]) = (decl.period, &decl.steps[..]) {
            found.entry(decl.src).or_insert((graph, *step));
            found.entry(decl.dst).or_insert((graph, *step));
        }
    }
    // A cutoff is a value of a row, whatever messages there are.
    for (graph, step) in steps() {
        for end in <[VertexType; 2]>::from(ends(step)) {
            if timed.cutoffs.get(end.index()).is_some_and(|has_one| *has_one) && !is_timed(end) {
                found.entry(end).or_insert((graph, *step));
            }
        }
    }
    loop {
        let known = found.len();
        for (graph, step) in steps() {
            let (src, dst) = ends(step);
            let brings_times = is_timed(src) || relation_is_timed(step.relation) || found.contains_key(&src);
            if brings_times && !is_timed(dst) {
                found.entry(dst).or_insert((graph, *step));
            }
        }
        if found.len() == known {
            return found;
        }
    }
}

/// Declares the rows, the graphs from the vertices to them, and other ends and steps for the graphs of their types.
fn declare(flow: &mut Dataflow, types: &[VertexType]) -> BTreeMap<VertexType, (VertexType, Graph)> {
    let mut steps: Vec<Step> = vec![];
    let mut ends_with_rows = |flow: &Dataflow, decl: &GraphDecl| {
        for step in &decl.steps {
            let of = &flow.relations[step.relation as usize];
            if !steps.contains(step) && (types.contains(&of.src) || types.contains(&of.dst)) {
                steps.push(*step);
            }
        }
    };
    flow.graphs.iter().filter(|decl| decl.past).for_each(|decl| ends_with_rows(flow, decl));
    PathDecl::declare_cutoffs(flow, types, &steps);
    let declared: Vec<PathDecl> = flow.paths.iter().filter(|path| path.rows == PathRows::Cutoffs).cloned().collect();
    let rows_of = |vertex: VertexType| {
        types.iter().position(|of| *of == vertex).map_or(vertex, |position| declared[position].vertex)
    };
    let along = |step: Step| {
        let mut all = declared.iter().flat_map(|path| path.steps.iter().zip(&path.relations[1..]));
        let relation = all.find(|(known, _)| **known == step).map(|(_, relation)| *relation);
        relation.map_or(step, |relation| Step { relation, reverse: false })
    };
    for decl in flow.graphs.iter_mut().filter(|decl| decl.past || (decl.steps.is_empty() && decl.shuffle.is_none())) {
        (decl.src, decl.dst) = (rows_of(decl.src), rows_of(decl.dst));
        decl.steps.iter_mut().for_each(|step| *step = along(*step));
    }
    for graph in 0..flow.graphs.len() {
        let decl = &flow.graphs[graph];
        let (Some(period), &[step]) = (decl.period, &decl.steps[..]) else { continue };
        PathDecl::declare_links(flow, step, period);
        let of_rows = Step { relation: flow.relations.len() as u32 - 1, reverse: false };
        let decl = &mut flow.graphs[graph];
        (decl.src, decl.dst) = (rows_of(decl.src), rows_of(decl.dst));
        (decl.steps, decl.period) = (vec![of_rows], None);
    }
    let mut copies = BTreeMap::new();
    for (&vertex, path) in types.iter().zip(&declared) {
        let steps = vec![Step { relation: path.relations[0], reverse: false }];
        let name = unused(flow, flow.vertex_types[path.vertex.index()].name.clone());
        flow.graphs.push(GraphDecl::new(name, vertex, path.vertex, steps));
        copies.insert(vertex, (path.vertex, Graph::new(flow.graphs.len() - 1)));
    }
    copies
}

/// Declares graphs from the rows that read all there is to the vertices at the ends of links.
fn latest(old: &Dataflow, new: &mut Dataflow) -> BTreeMap<VertexType, Graph> {
    let of_links = old.graphs.iter().filter(|decl| decl.period.is_some());
    let ends: BTreeSet<VertexType> = of_links.flat_map(|decl| [decl.src, decl.dst]).collect();
    let mut graphs = BTreeMap::new();
    for vertex in ends {
        let relation = PathDecl::declare_latest(new, vertex);
        let rows = new.relations[relation as usize].src;
        let steps = vec![Step { relation, reverse: false }];
        let name = unused(new, new.relations[relation as usize].name.clone());
        new.graphs.push(GraphDecl::new(name, rows, vertex, steps));
        graphs.insert(vertex, Graph::new(new.graphs.len() - 1));
    }
    graphs
}

/// A name that no graph has.
fn unused(flow: &Dataflow, mut name: String) -> String {
    while flow.graphs.iter().any(|known| known.name == name) {
        name.push('\'');
    }
    name
}

/// `what` has `{}` for the name of the vertex type.
fn refused(
    flow: &Dataflow,
    why: &BTreeMap<VertexType, (Graph, Step)>,
    vertex: VertexType,
    what: &str,
    origin: Option<Origin>,
) -> NotAtCutoffs {
    let (graph, step) = why[&vertex];
    let name = &flow.vertex_types[vertex.index()].name;
    NotAtCutoffs { what: what.replace("{}", name), vertex, graph, step, origin }
}

/// The new values of an old one.
#[derive(Clone, Copy, Default)]
struct Made {
    /// In the space of the old one; `None` where it depends on messages.
    own: Option<Value>,
    /// Of the rows of its vertex type.
    rows: Option<Value>,
}

struct Rewrite<'f> {
    old: &'f Dataflow,
    new: Dataflow,
    why: BTreeMap<VertexType, (Graph, Step)>,
    /// By vertex type with rows: the type of the rows, and the graph to them.
    copies: BTreeMap<VertexType, (VertexType, Graph)>,
    made: Vec<Made>,
}

impl Rewrite<'_> {
    /// The vertex type of a value, if it has rows.
    fn vertex(&self, value: Value) -> Option<VertexType> {
        match self.old.ty(value).space {
            Space::Vertices(vertex) => Some(vertex).filter(|vertex| self.copies.contains_key(vertex)),
            Space::Unit | Space::Edges(_) | Space::Endpoints(..) | Space::Index(_) => None,
        }
    }

    fn value(&mut self, value: Value) -> Result<Made, NotAtCutoffs> {
        let data = self.old.value(value);
        let end = |flow: &Dataflow, graph: Graph, direction: Direction| match flow.graph_end(graph, direction) {
            Space::Vertices(vertex) => vertex,
            _ => unreachable!("graphs end at vertices"),
        };
        let read = match data.op {
            Op::GatherSrc(graph) => Some((graph, Direction::Out)),
            Op::GatherDst(graph) => Some((graph, Direction::In)),
            _ => None,
        };
        if let Some((graph, direction)) = read {
            let (old, new) = (end(self.old, graph, direction), end(&self.new, graph, direction));
            let arg = if old == new {
                self.own(data.args[0], "this graph has no rows of `{}`")?
            } else {
                self.rows(data.args[0])?
            };
            return Ok(Made { own: Some(self.new.add(data.op.clone(), &[arg])), rows: None });
        }
        if let Op::Input(input) = data.op
            && let Binding::Time(vertex) = self.old.inputs[input.index()].binding
            && let Some((rows, _)) = self.copies.get(&vertex)
        {
            let decl = &mut self.new.inputs[input.index()];
            (decl.ty.space, decl.binding) = (Space::Vertices(*rows), Binding::Time(*rows));
            return Ok(Made { own: None, rows: Some(self.new.add(data.op.clone(), &[])) });
        }
        if let Op::Segment { graph, direction, .. } = data.op {
            let (old, new) = (end(self.old, graph, direction), end(&self.new, graph, direction));
            let args = [self.own(data.args[0], "")?];
            if old != new && direction == Direction::Out {
                return Err(self.refused(old, "the out-edges of `{}` may be later", value));
            }
            let made = self.new.add(data.op.clone(), &args);
            return Ok(if old == new {
                Made { own: Some(made), rows: None }
            } else {
                Made { own: None, rows: Some(made) }
            });
        }
        let of_messages = |arg: &&Value| self.made[arg.index()].own.is_none();
        if let Some(&arg) = data.args.iter().find(of_messages) {
            if !matches!(data.ty.space, Space::Vertices(_)) || self.vertex(value) != self.vertex(arg) {
                let vertex = self.vertex(arg).expect("only vertices have rows");
                return Err(self.refused(vertex, "this depends on all of `{}`", value));
            }
            let mut args = vec![];
            for &arg in &data.args {
                args.push(if self.vertex(arg).is_some() { self.rows(arg)? } else { self.own(arg, "")? });
            }
            let op = self.at_rows(&data.op);
            return Ok(Made { own: None, rows: Some(self.new.add(op, &args)) });
        }
        let args: Vec<Value> = data.args.iter().map(|&arg| self.own(arg, "")).collect::<Result<_, _>>()?;
        Ok(Made { own: Some(self.new.add(data.op.clone(), &args)), rows: None })
    }

    /// An operation whose space is that of rows.
    fn at_rows(&self, op: &Op) -> Op {
        let space = |space: Space| match space {
            Space::Vertices(vertex) => Space::Vertices(self.copies.get(&vertex).map_or(vertex, |(rows, _)| *rows)),
            other => other,
        };
        let mut op = op.clone();
        if let Op::Broadcast(ty) = &mut op {
            ty.space = space(ty.space);
        }
        op
    }

    /// The new value in the space of the old one. `what` says why there is none.
    fn own(&self, value: Value, what: &str) -> Result<Value, NotAtCutoffs> {
        let made = self.made[value.index()].own;
        made.ok_or_else(|| self.refused(self.vertex(value).expect("only vertices have rows"), what, value))
    }

    /// The new value at the rows of its vertex type: copied to them, if it depends on no message.
    fn rows(&mut self, value: Value) -> Result<Value, NotAtCutoffs> {
        if let Some(rows) = self.made[value.index()].rows {
            return Ok(rows);
        }
        let data = self.old.value(value);
        let vertex = self.vertex(value).expect("only vertices have rows");
        let rows = match &data.op {
            Op::Broadcast(_) if self.vertex(data.args[0]).is_none() => {
                let arg = self.own(data.args[0], "")?;
                self.new.add(self.at_rows(&data.op), &[arg])
            }
            _ if data.ty.is_sparse() || data.ty.dtype != DType::F32 => {
                return Err(self.refused(vertex, "these features of `{}` are read before they are projected", value));
            }
            _ => {
                let (_, graph) = self.copies[&vertex];
                let own = self.own(value, "")?;
                let gathered = self.new.add(Op::GatherSrc(graph), &[own]);
                self.new.segment(graph, Direction::In, Reduce::Sum, gathered)
            }
        };
        self.made[value.index()].rows = Some(rows);
        Ok(rows)
    }

    fn refused(&self, vertex: VertexType, what: &str, value: Value) -> NotAtCutoffs {
        refused(self.old, &self.why, vertex, what, self.old.value(value).origin)
    }
}
