//! The dataflow verifier: the invariants of every program. Passes may rely on them and are checked against them.

use std::collections::BTreeSet;
use std::fmt;

use crate::dataflow::{Binding, Dataflow, GraphDecl, Init, KeptInEdges, OutputKind, RelationDecl, SelfLoops, Step};
use crate::infer::infer;
use crate::ops::{Op, UnaryOp};
use crate::paths::{PathDecl, PathRows};
use crate::print::{print_op, print_type};
use crate::ranks::{EdgeShare, Mirrors};
use crate::stacks::{Incidence, VertexRows};
use crate::types::{DType, Dim, Graph, Layout, Param, Space, Stack, Type, Value, VertexType};
use crate::violation::Violation;

/// The location of a violation: a table row, a value or an output.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "the variants are evident")]
pub enum Place {
    VertexType(usize),
    Relation(usize),
    Graph(usize),
    Family(usize),
    Stack(usize),
    /// The decomposition of a metapath graph into hops.
    Metapath(usize),
    /// The instances of a metapath.
    Paths(usize),
    Pattern(usize),
    Input(usize),
    Param(usize),
    Value(Value),
    Output(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::VertexType(row) => write!(f, "vertex type {row}"),
            Place::Relation(row) => write!(f, "relation {row}"),
            Place::Graph(row) => write!(f, "graph {row}"),
            Place::Family(row) => write!(f, "family {row}"),
            Place::Stack(row) => write!(f, "stack {row}"),
            Place::Metapath(row) => write!(f, "metapath {row}"),
            Place::Paths(row) => write!(f, "paths {row}"),
            Place::Pattern(row) => write!(f, "pattern {row}"),
            Place::Input(row) => write!(f, "input {row}"),
            Place::Param(row) => write!(f, "parameter {row}"),
            Place::Value(value) => write!(f, "value {value}"),
            Place::Output(row) => write!(f, "output {row}"),
        }
    }
}

/// Checks all rules of dataflow programs:
///
/// - handles refer to existing table rows; names are unique in their table;
/// - the hops of a graph connect its endpoint types, and a graph without hops has one endpoint type;
/// - sparse types have the shape of their pattern; inputs have the type that their binding requires;
/// - operands are earlier values, of the same or an earlier phase; every type is the inferred one;
/// - constants and initial values are finite;
/// - outputs name values; the `loss` is a scalar; an update has the type of its parameter and is the only one.
///
/// # Errors
/// All violations, in program order.
pub fn verify(flow: &Dataflow) -> Result<(), Vec<Violation<Place>>> {
    let mut verifier = Verifier { flow, violations: vec![] };
    verifier.tables();
    verifier.values();
    verifier.outputs();
    if verifier.violations.is_empty() { Ok(()) } else { Err(verifier.violations) }
}

struct Verifier<'a> {
    flow: &'a Dataflow,
    violations: Vec<Violation<Place>>,
}

impl Verifier<'_> {
    fn report(&mut self, place: Place, message: impl Into<String>) {
        self.violations.push(Violation { place, message: message.into() });
    }

    fn has_vertex(&self, vertex: VertexType) -> bool {
        vertex.index() < self.flow.vertex_types.len()
    }

    fn tables(&mut self) {
        let flow = self.flow;
        self.unique(Place::VertexType, flow.vertex_types.iter().map(|decl| &decl.name));
        self.unique(Place::Relation, flow.relations.iter().map(|decl| &decl.name));
        self.unique(Place::Graph, flow.graphs.iter().map(|decl| &decl.name));
        self.unique(Place::Input, flow.inputs.iter().map(|decl| &decl.name));
        self.unique(Place::Param, flow.params.iter().map(|decl| &decl.name));
        for (row, decl) in flow.vertex_types.iter().enumerate() {
            if let VertexRows::Mirrors(of, _)
            | VertexRows::Sections(of)
            | VertexRows::Owned(of)
            | VertexRows::Copies(of)
            | VertexRows::Shuffled(of) = decl.rows
                && of.index() >= row
            {
                self.report(Place::VertexType(row), "it has rows of no earlier type");
            }
            if let VertexRows::Edges(graph) = decl.rows
                && graph.index() >= flow.graphs.len()
            {
                self.report(Place::VertexType(row), format!("there is no graph {graph}"));
            }
        }
        for (row, decl) in flow.relations.iter().enumerate() {
            self.vertices(Place::Relation(row), [decl.src, decl.dst]);
        }
        for row in 0..flow.graphs.len() {
            self.graph(row);
        }
        for (row, members) in flow.families.iter().enumerate() {
            if members.iter().any(|graph| graph.index() >= flow.graphs.len()) {
                self.report(Place::Family(row), "a member is no graph");
            }
        }
        (0..flow.stacks.len()).for_each(|row| self.stack(row));
        for (row, decl) in flow.patterns.iter().enumerate() {
            self.vertices(Place::Pattern(row), [decl.vertex]);
        }
        (0..flow.metapaths.len()).for_each(|row| self.metapath(row));
        (0..flow.paths.len()).for_each(|row| self.paths(row));
        for (row, decl) in flow.inputs.iter().enumerate() {
            let place = Place::Input(row);
            if self.ty(place, &decl.ty) {
                self.binding(place, &decl.binding, &decl.ty);
            }
        }
        for (row, decl) in flow.params.iter().enumerate() {
            let place = Place::Param(row);
            self.dims(place, &decl.dims);
            self.entries(row);
            let numbers = match decl.init {
                Init::Constant(number) | Init::Uniform(number) | Init::Normal { std: number } => Some(number),
                Init::Glorot { fan_in, .. } | Init::He { fan_in } => {
                    self.dims(place, &[fan_in]);
                    None
                }
            };
            if numbers.is_some_and(|number| !number.is_finite()) {
                self.report(place, "the initial value is not finite");
            }
        }
    }

    fn unique<'n>(&mut self, place: fn(usize) -> Place, names: impl Iterator<Item = &'n String>) {
        let mut seen = BTreeSet::new();
        for (row, name) in names.enumerate() {
            if !seen.insert(name) {
                self.report(place(row), format!("the name `{name}` is taken"));
            }
        }
    }

    fn vertices(&mut self, place: Place, vertices: impl IntoIterator<Item = VertexType>) -> bool {
        let mut good = true;
        for vertex in vertices {
            if !self.has_vertex(vertex) {
                self.report(place, format!("there is no vertex type {vertex}"));
                good = false;
            }
        }
        good
    }

    /// The hops of a factored path must compose to exactly the steps of its graph.
    fn metapath(&mut self, row: usize) {
        let (flow, place) = (self.flow, Place::Metapath(row));
        let decl = &flow.metapaths[row];
        let graph = |graph: Graph| flow.graphs.get(graph.index());
        let hops: Option<Vec<_>> = decl.hops.iter().map(|&hop| graph(hop)).collect();
        let (Some(of), Some(hops)) = (graph(decl.of), hops) else {
            return self.report(place, "it is the path of no graphs");
        };
        let simple = |decl: &GraphDecl| decl.self_loops == SelfLoops::Kept && !decl.links && decl.kept.is_none();
        let steps: Vec<Step> = hops.iter().flat_map(|hop| hop.steps.iter().copied()).collect();
        if hops.len() < 2 || steps != of.steps || !simple(of) || !hops.iter().all(|hop| simple(hop)) {
            self.report(place, format!("the edges of `{}` are no paths of these graphs", of.name));
        }
        if !decl.once && !of.counted {
            self.report(place, format!("the edges of `{}` do not know how many paths they are", of.name));
        }
    }

    /// Instances have a relation for each position of their path.
    fn paths(&mut self, row: usize) {
        let (flow, place) = (self.flow, Place::Paths(row));
        let decl = &flow.paths[row];
        let relation = |relation: u32| flow.relations.get(relation as usize);
        let ends = |step: &Step| {
            let decl = relation(step.relation)?;
            Some(if step.reverse { (decl.dst, decl.src) } else { (decl.src, decl.dst) })
        };
        let ends: Option<Vec<_>> = decl.steps.iter().map(ends).collect();
        let by: Option<Vec<_>> = decl.relations.iter().map(|&by| relation(by)).collect();
        let (Some(ends), Some(by)) = (ends, by) else {
            return self.report(place, "it walks along no relations");
        };
        match decl.rows {
            PathRows::Cutoffs => return self.cutoffs(row, &ends, &by),
            PathRows::Links { period } => return self.links_as_of_cutoffs(row, &ends, &by, period),
            PathRows::Latest => return self.latest_rows(row, &by),
            PathRows::Walks { .. } | PathRows::Edges => {}
        }
        let joins = ends.windows(2).all(|pair| pair[0].1 == pair[1].0);
        let (Some(last), true) = (ends.last(), joins) else {
            return self.report(place, "its steps do not join");
        };
        let fits = |(position, by): (usize, &&RelationDecl)| match (ends.get(position), decl.rows) {
            (Some(&(at, _)), _) => (by.src, by.dst) == (at, decl.vertex),
            (None, PathRows::Walks { .. }) => (by.src, by.dst) == (decl.vertex, last.1),
            (None, _) => (by.src, by.dst) == (last.1, decl.vertex),
        };
        if by.len() != ends.len() + 1 || !by.iter().enumerate().all(fits) {
            self.report(place, "its relations do not lead from and to its vertices");
        }
        if decl.rows == PathRows::Edges && !matches!(decl.steps[..], [Step { reverse: false, .. }]) {
            self.report(place, "edges are those of a relation");
        }
    }

    /// Rows as of cutoffs have a relation from their vertices, and one for each step, between rows of its ends if these have any.
    fn cutoffs(&mut self, row: usize, ends: &[(VertexType, VertexType)], by: &[&RelationDecl]) {
        let flow = self.flow;
        let decl = &flow.paths[row];
        let rows_of = |vertex: VertexType| PathDecl::rows_as_of_cutoffs(flow, vertex).unwrap_or(vertex);
        let fits = match by {
            [from, steps @ ..] => {
                let between = |(&(src, dst), by): (&(VertexType, VertexType), &&RelationDecl)| {
                    let own = by.src == decl.vertex || by.dst == decl.vertex;
                    own && (by.src, by.dst) == (rows_of(src), rows_of(dst))
                };
                from.dst == decl.vertex && steps.len() == ends.len() && ends.iter().zip(steps).all(between)
            }
            [] => false,
        };
        if !fits {
            self.report(Place::Paths(row), "its relations do not lead from and to its vertices");
        }
    }

    /// Links as of cutoffs are those of a relation, in its direction, and both of its ends have rows.
    fn links_as_of_cutoffs(
        &mut self,
        row: usize,
        ends: &[(VertexType, VertexType)],
        by: &[&RelationDecl],
        period: u64,
    ) {
        let decl = &self.flow.paths[row];
        let rows_of = |vertex: VertexType| PathDecl::rows_as_of_cutoffs(self.flow, vertex);
        let fits = match (&decl.steps[..], ends, by) {
            ([Step { reverse: false, .. }], &[(src, dst)], [between]) => {
                decl.vertex == between.dst && (rows_of(src), rows_of(dst)) == (Some(between.src), Some(between.dst))
            }
            _ => false,
        };
        if !fits || period == 0 {
            self.report(Place::Paths(row), "its relation does not lead between rows as of cutoffs");
        }
    }

    /// The latest rows of vertices lead from their rows as of cutoffs to them.
    fn latest_rows(&mut self, row: usize, by: &[&RelationDecl]) {
        let decl = &self.flow.paths[row];
        let fits = match by {
            [back] => {
                let rows = PathDecl::rows_as_of_cutoffs(self.flow, back.dst);
                decl.steps.is_empty() && back.src == decl.vertex && rows == Some(decl.vertex)
            }
            _ => false,
        };
        if !fits {
            self.report(Place::Paths(row), "its relation does not lead from rows as of cutoffs to their vertices");
        }
    }

    /// The members of a stack are graphs of relations or metapaths with equal end types.
    fn stack(&mut self, row: usize) {
        let (flow, place) = (self.flow, Place::Stack(row));
        let members: Option<Vec<_>> =
            flow.stacks[row].members.iter().map(|member| flow.graphs.get(member.index())).collect();
        match members.as_deref() {
            Some([first, rest @ ..]) => {
                let alike =
                    |other: &&GraphDecl| (other.src, other.dst, other.links) == (first.src, first.dst, first.links);
                let drawn = [*first].iter().chain(rest).any(|other| other.shuffle.is_some());
                if !rest.iter().all(alike) || first.derived.is_some() || drawn {
                    self.report(place, "its members do not have the same end types");
                }
            }
            Some([]) | None => self.report(place, "it has no members"),
        }
    }

    /// The entries of a stack of parameters are earlier parameters of one shape, without entries.
    fn entries(&mut self, row: usize) {
        let (flow, place) = (self.flow, Place::Param(row));
        let decl = &flow.params[row];
        let Some(first) = decl.entries.first() else { return };
        let entry = |param: &Param| flow.params[..row].get(param.index());
        let Some(first) = entry(first) else { return self.report(place, "an entry is no earlier parameter") };
        if !decl
            .entries
            .iter()
            .all(|param| entry(param).is_some_and(|it| it.dims == first.dims && it.entries.is_empty()))
        {
            self.report(place, "its entries do not have one shape");
        }
        let rows = match decl.dims.first() {
            Some(Dim::Count(vertex)) => flow.vertex_types.get(vertex.index()).map(|decl| decl.rows),
            Some(Dim::Fixed(_)) | None => None,
        };
        let fits = match rows {
            Some(VertexRows::Members(_)) => decl.dims[1..] == first.dims[..],
            Some(VertexRows::Cells(..)) => decl.dims[1..] == first.dims[1..],
            _ => false,
        };
        if !fits {
            self.report(place, "it does not have a row for each entry, or each row of one");
        }
    }

    /// The steps must lead in message direction from the source type to the destination type.
    fn graph(&mut self, row: usize) {
        let (flow, place) = (self.flow, Place::Graph(row));
        let decl = &flow.graphs[row];
        if !self.vertices(place, [decl.src, decl.dst]) {
            return;
        }
        if let Some((stack, incidence)) = decl.derived {
            let (other, first) = if let Incidence::Range { of, first } = incidence { (of, first) } else { (stack, 0) };
            let members = |stack: Stack| flow.stacks.get(stack.index()).map(|decl| decl.members.len());
            match (members(stack), members(other)) {
                (None, _) => self.report(place, format!("there is no stack {stack}")),
                (_, None) => self.report(place, format!("there is no stack {other}")),
                (Some(all), Some(range)) if first as usize + range > all => {
                    self.report(place, format!("the stack has {all} members, not {range} from {first} on"));
                }
                _ => {}
            }
            return;
        }
        if !self.share(place, decl) || !decl.share.is_of_dataset() {
            return;
        }
        let name = |vertex: VertexType| flow.vertex_types.get(vertex.index()).map_or("?", |decl| &decl.name);
        let mut at = flow.sampled_type(flow.owned_type(decl.src));
        let of_no_links = matches!(decl.steps[..], [] | [Step { reverse: true, .. }]);
        if decl.links && (of_no_links || decl.counted || decl.self_loops != SelfLoops::Kept) {
            self.report(place, "links are those of a relation, in its direction, or of a metapath");
        }
        let alone = flow.owned_type(decl.src) == flow.owned_type(decl.dst)
            && decl.steps.is_empty()
            && !decl.counted
            && decl.self_loops == SelfLoops::Kept
            && !decl.links
            && decl.kept.is_none();
        if decl.period.is_some_and(|period| period == 0 || !decl.links || decl.steps.len() != 1) {
            self.report(place, "a period is that of links of a relation");
        }
        let empty = |kept: KeptInEdges| kept.at_most == 0 || kept.position.is_some_and(|at| at >= kept.at_most);
        if decl.links && decl.kept.is_some() || decl.kept.is_some_and(empty) {
            self.report(place, "it keeps no in-edges");
        }
        if decl.shuffle.is_some() && !alone {
            self.report(place, "permutations are those of the vertices of a type, without steps");
        }
        for step in &decl.steps {
            let Some(relation) = flow.relations.get(step.relation as usize) else {
                self.report(place, format!("there is no relation {}", step.relation));
                return;
            };
            let (from, to) = if step.reverse { (relation.dst, relation.src) } else { (relation.src, relation.dst) };
            if from != at {
                let (from, at) = (name(from), name(at));
                self.report(place, format!("the hop over `{}` starts at `{from}`, not at `{at}`", relation.name));
            }
            at = to;
        }
        if at != flow.owned_type(decl.dst) {
            self.report(place, format!("the hops end at `{}`, not at `{}`", name(at), name(decl.dst)));
        }
    }

    /// The edges that a rank has end in the vertices that it owns and in their mirrors.
    fn share(&mut self, place: Place, decl: &GraphDecl) -> bool {
        let flow = self.flow;
        let rows = |vertex: VertexType| flow.vertex_types[vertex.index()].rows;
        let fits = match (decl.share, rows(decl.src), rows(decl.dst)) {
            (EdgeShare::All, src, dst) => ![src, dst].iter().any(|rows| matches!(rows, VertexRows::Mirrors(..))),
            (EdgeShare::In, VertexRows::Mirrors(_, at), VertexRows::Dataset) => at == Mirrors::of_sources(decl),
            (EdgeShare::Out(of), VertexRows::Dataset, VertexRows::Mirrors(_, at)) => {
                let of_both = |of: &GraphDecl| of.share == EdgeShare::In && of.shuffle == decl.shuffle;
                at == Mirrors::of_destinations(decl) && flow.graphs.get(of.index()).is_some_and(of_both)
            }
            (
                EdgeShare::Sections,
                VertexRows::Dataset | VertexRows::Pairs(..) | VertexRows::Cells(..),
                VertexRows::Sections(of),
            ) => of == decl.src,
            (EdgeShare::Copies, VertexRows::Copies(of), VertexRows::Owned(also)) => {
                // Exchanges find the owners of copies by this graph.
                let same = |other: &&GraphDecl| other.share == EdgeShare::Copies && other.src == decl.src;
                if flow.graphs.iter().filter(same).count() > 1 {
                    self.report(place, "other edges lead from the same copies");
                }
                let of = flow.sampled_type(of);
                let [a, b] = [of, also].map(|vertex| &flow.vertex_types[vertex.index()]);
                of == also || (rows(of) == VertexRows::Dataset && a.dataset_name == b.dataset_name)
            }
            (EdgeShare::Links(of) | EdgeShare::Negatives(of), VertexRows::Edges(also), VertexRows::Links { .. }) => {
                of == also && flow.graphs.get(of.index()).is_some_and(|of| of.links)
            }
            (EdgeShare::Samples, VertexRows::Dataset, VertexRows::Samples(of, _)) => of == decl.src,
            _ => false,
        };
        if !fits {
            self.report(place, "its ends are not those of the edges that a rank has");
        }
        fits
    }

    fn dims(&mut self, place: Place, dims: &[Dim]) -> bool {
        let vertices = dims.iter().filter_map(|dim| match dim {
            Dim::Fixed(_) => None,
            Dim::Count(vertex) => Some(*vertex),
        });
        self.vertices(place, vertices.collect::<Vec<_>>())
    }

    /// The handles of a type must exist, and a sparse type must have the shape of its pattern.
    fn ty(&mut self, place: Place, ty: &Type) -> bool {
        let mut good = self.dims(place, &ty.dims);
        match ty.space {
            Space::Unit => {}
            Space::Vertices(vertex) => good &= self.vertices(place, [vertex]),
            Space::Edges(graph) | Space::Endpoints(graph, _) if graph.index() >= self.flow.graphs.len() => {
                self.report(place, format!("there is no graph {graph}"));
                good = false;
            }
            Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => {}
        }
        if let Layout::Sparse(pattern) = ty.layout {
            match self.flow.patterns.get(pattern.index()) {
                None => {
                    self.report(place, format!("there is no pattern {pattern}"));
                    good = false;
                }
                Some(decl) => {
                    let shape = (Space::Vertices(decl.vertex), vec![Dim::Fixed(decl.columns)], DType::F32);
                    if shape != (ty.space, ty.dims.clone(), ty.dtype) {
                        self.report(place, format!("the type does not have the shape of {pattern}"));
                    }
                }
            }
        }
        good
    }

    fn binding(&mut self, place: Place, binding: &Binding, ty: &Type) {
        let graphs = self.flow.graphs.len();
        let expected = match binding {
            Binding::Features(vertex, _) => self.vertices(place, [*vertex]).then(|| {
                // Dense or sparse, of any width.
                let dims = if ty.dims.len() == 1 { ty.dims.clone() } else { vec![Dim::Fixed(1)] };
                Type { layout: ty.layout, ..Type::new(Space::Vertices(*vertex), dims) }
            }),
            Binding::TrainMask(vertex) | Binding::Time(vertex) => {
                self.vertices(place, [*vertex]).then(|| Type::new(Space::Vertices(*vertex), vec![]))
            }
            Binding::Label(vertex, _) => {
                self.vertices(place, [*vertex]);
                None
            }
            Binding::Precomputed(vertex, _) => {
                self.vertices(place, [*vertex]).then(|| Type::new(Space::Vertices(*vertex), ty.dims.clone()))
            }
            Binding::EdgeWeight(graph)
            | Binding::EdgeTime(graph)
            | Binding::EdgeCount(graph)
            | Binding::EdgeFeatures(graph)
            | Binding::EdgeRank(graph, _)
            | Binding::IsLink(graph)
                if graph.index() >= graphs =>
            {
                self.report(place, format!("there is no graph {graph}"));
                None
            }
            Binding::IsLink(graph) if !self.flow.graphs[graph.index()].links => {
                self.report(place, format!("{graph} is no graph of links"));
                None
            }
            Binding::EdgeWeight(graph)
            | Binding::EdgeTime(graph)
            | Binding::EdgeCount(graph)
            | Binding::EdgeRank(graph, _)
            | Binding::IsLink(graph) => Some(Type::new(Space::Edges(*graph), vec![])),
            Binding::EdgeFeatures(graph) => Some(Type::new(Space::Edges(*graph), ty.dims.clone())),
            Binding::Given(_) => Some(Type { layout: Layout::Dense, dtype: DType::F32, ..ty.clone() }),
            Binding::StepNumber | Binding::EpochNumber => Some(Type::scalar()),
        };
        if let Some(expected) = expected
            && expected != *ty
        {
            self.report(place, format!("its binding gives {}", print_type(self.flow, &expected)));
        }
    }

    fn values(&mut self) {
        let flow = self.flow;
        // Values whose types are valid and can be printed.
        let mut sound = vec![false; flow.values.len()];
        for value in flow.handles() {
            let (data, place) = (flow.value(value), Place::Value(value));
            let mut good = self.ty(place, &data.ty);
            let mut operands = true;
            for &arg in &data.args {
                if arg >= value {
                    self.report(place, format!("operand {arg} is not an earlier value"));
                    operands = false;
                    continue;
                }
                let before = flow.value(arg).phase;
                if before > data.phase {
                    let (phase, before) = (data.phase.name(), before.name());
                    self.report(place, format!("a {phase} value reads {arg}, which is a {before} value"));
                }
                operands &= sound[arg.index()];
            }
            good &= self.attributes(place, &data.op, &data.ty);
            if good && operands {
                match infer(flow, &data.op, &data.args) {
                    Err(error) => self.report(place, format!("`{}`: {error}", print_op(flow, data))),
                    Ok(ty) if ty != data.ty => {
                        self.report(place, format!("its type is {}", print_type(flow, &ty)));
                    }
                    Ok(_) => {}
                }
            }
            sound[value.index()] = good;
        }
    }

    /// Checks the attributes of an operation beyond type inference.
    fn attributes(&mut self, place: Place, op: &Op, ty: &Type) -> bool {
        match op {
            Op::Const(number) | Op::Unary(UnaryOp::LeakyRelu(number)) => {
                if !number.is_finite() {
                    self.report(place, "the constant is not finite");
                }
                true
            }
            // The attribute is usually the type of the value, which has been checked.
            Op::RandomMask { ty: own, .. } | Op::Broadcast(own) => own == ty || self.ty(place, own),
            Op::Reshape(dims) => *dims == ty.dims || self.dims(place, dims),
            _ => true,
        }
    }

    fn outputs(&mut self) {
        let flow = self.flow;
        let mut results = BTreeSet::new();
        let mut updates = BTreeSet::new();
        for (row, output) in flow.outputs.iter().enumerate() {
            let place = Place::Output(row);
            let Some(data) = flow.values.get(output.value.index()) else {
                self.report(place, format!("there is no value {}", output.value));
                continue;
            };
            let mut update = |verifier: &mut Self, param: Param, slot: Option<u32>| {
                let Some(decl) = flow.params.get(param.index()) else {
                    return verifier.report(place, format!("there is no parameter {param}"));
                };
                if !updates.insert((param, slot)) {
                    verifier.report(place, format!("`{}` is updated twice", decl.name));
                }
                let expected = flow.param_type(param);
                if data.ty != expected {
                    let expected = print_type(flow, &expected);
                    verifier.report(place, format!("`{}` is {expected}, its update is not", decl.name));
                }
            };
            match &output.kind {
                OutputKind::Result(name) => {
                    if !results.insert(name) {
                        self.report(place, format!("the name `{name}` is taken"));
                    }
                    if name == "loss" && data.ty != Type::scalar() {
                        self.report(place, "the loss is not a scalar");
                    }
                }
                OutputKind::UpdateParam(param) => update(self, *param, None),
                OutputKind::UpdateState(param, slot) => update(self, *param, Some(*slot)),
            }
        }
    }
}
