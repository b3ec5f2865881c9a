//! Turns the program of a whole graph into that of a mini-batch: a sampled subgraph around seed vertices.
//!
//! The loss is computed for the seeds. A value on vertices is needed for those within some number of hops of them,
//! which grows by one with each gather from sources. Each such set is a vertex type of the new program (`Paper`,
//! `Paper.1`, `Paper.2`: the seeds, and the vertices within one and two hops), and the sampled in-edges of each set are
//! a graph of it (see [`BatchLayout`]):
//!
//! ```text
//! Before:  %1 = gather.src cites, %0          : f32[edges(cites); 64]
//!          %2 = segment.sum.in cites, %1      : f32[Paper; 64]
//!          %3 = gather.src cites, %2          : f32[edges(cites); 64]
//!          %4 = segment.sum.in cites, %3      : f32[Paper; 64]
//! After:   %1 = gather.src cites.1, %0        : f32[edges(cites.1); 64]       %0: f32[Paper.2; 64]
//!          %2 = segment.sum.in cites.1, %1    : f32[Paper.1; 64]
//!          %3 = gather.src cites, %2          : f32[edges(cites); 64]
//!          %4 = segment.sum.in cites, %3      : f32[Paper; 64]
//! ```
//!
//! A vertex value is computed once, for the largest set that a reader needs. For a reader of a smaller set, a graph
//! with an edge from each of its vertices to itself takes the first rows. Edge values and counts of rows are computed
//! for each set on their own.
//!
//! Pairs to score (the edges of a graph of links) join seeds, so both of their ends are needed within no further hop.
//!
//! Shuffled vertices are those of the batch: the edges of a graph of permutations join the vertices of one set, so its
//! sources are needed within no further hop. Each set has permutations of its own:
//!
//! ```text
//! Before:  %3 = gather.src shuffle(Paper), %2    : f32[edges(shuffle(Paper)); 64]       read one hop from the seeds
//! After:   %3 = gather.src shuffle(Paper).1, %2  : f32[edges(shuffle(Paper).1); 64]     %2: f32[Paper.1; 64]
//! ```
//!
//! With full fan-out the loss and its gradients are those of the whole graph with these seeds. Reductions over all
//! vertices of a type (the weights of semantic graphs in HAN) run over those of the mini-batch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use hgnnc_ir::batch::{BatchGraph, BatchInput, BatchLayout, BatchPattern, HistoricalRows, WithinHops};
use hgnnc_ir::dataflow::{
    Binding, Cursor, GraphDecl, Init, InputDecl, PatternDecl, RelationDecl, SelfLoops, Step, VertexTypeDecl,
};
use hgnnc_ir::infer::TypeError;
use hgnnc_ir::{
    Dataflow, Dim, Direction, Graph, Input, Layout, Op, Origin, Param, Pattern, Reduce, Space, Type, Value, VertexType,
};

/// A program that cannot be computed on mini-batches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotBatchable {
    /// The reason, in the words of the model.
    pub why: String,
    /// Position in the source.
    pub origin: Option<Origin>,
}

impl fmt::Display for NotBatchable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the model cannot be trained on batches: {}", self.why)
    }
}

impl std::error::Error for NotBatchable {}

type Result<T> = std::result::Result<T, NotBatchable>;

/// The program of a batch that computes the outputs of a forward program, which are unit values or belong to the seeds.
///
/// # Errors
/// [`NotBatchable`] where a value depends on more than in-edges.
pub fn to_minibatch(flow: &Dataflow) -> Result<(Dataflow, BatchLayout)> {
    build(flow, RequiredHops::of(flow)?, &CachedRows::default())
}

/// Values that are replaced at the vertices that sample no in-edges in the last hop.
#[derive(Clone, Debug, Default)]
pub(crate) struct CachedRows {
    /// The distance within which they are replaced: one hop less than the batch samples.
    pub hops: usize,
    /// Values that are read from the cache there.
    pub cached: BTreeSet<Value>,
    /// Values that are 0 there: without edges they are not finite, and the gradient of unread values that are computed
    /// from them would be 0 times infinity.
    pub zero: BTreeSet<Value>,
}

/// As [`to_minibatch`], with some rows from the cache.
pub(crate) fn build(flow: &Dataflow, required: RequiredHops, replaced: &CachedRows) -> Result<(Dataflow, BatchLayout)> {
    let mut new = Dataflow::new(format!("{}.batch", flow.name));
    new.params.clone_from(&flow.params);
    let layout = BatchLayout::default();
    let (made, tables) = (HashMap::new(), Tables::default());
    let mut builder = Builder { old: flow, required, new, layout, made, tables };
    builder.rows();
    for value in flow.handles() {
        for hops in builder.required.own[value.index()].clone() {
            let mut new = builder.value(value, hops)?;
            if hops != replaced.hops {
                // Vertices of earlier hops have in-edges.
            } else if replaced.cached.contains(&value) {
                new = builder.reuse(value, hops, new)?;
            } else if replaced.zero.contains(&value) {
                new = builder.zero(value, hops, new)?;
            }
            builder.made.insert((value, hops), new);
        }
    }
    for output in &flow.outputs {
        let value = builder.at(output.value, 0);
        builder.new.outputs.push(hgnnc_ir::Output { kind: output.kind.clone(), value });
    }
    builder.new.cursor = flow.cursor;
    builder.families();
    builder.layout.hops = builder.layout.vertices.iter().map(|known| known.hops).max().unwrap_or(0);
    Ok((builder.new, builder.layout))
}

/// Is a value computed for each set of vertices on its own?
fn is_for_each(flow: &Dataflow, value: Value) -> bool {
    let data = flow.value(value);
    let everywhere = matches!(data.op, Op::Count(_) | Op::Broadcast(_) | Op::RandomMask { .. });
    everywhere || data.ty.is_sparse() || matches!(data.ty.space, Space::Edges(_))
}

/// Whether the in-edges of a graph are sampled: its sources are one hop farther than its destinations. Pairs to score and
/// shuffled vertices are among those that a batch has, and edges from each vertex to itself need no others.
pub(crate) fn is_sampled(flow: &Dataflow, graph: Graph) -> bool {
    let decl = &flow.graphs[graph.index()];
    !decl.links && decl.shuffle.is_none() && !is_identity(flow, graph)
}

/// Whether a graph has an edge from each vertex to itself, without data.
fn is_identity(flow: &Dataflow, graph: Graph) -> bool {
    let GraphDecl { steps, self_loops, links, shuffle, kept, derived, .. } = &flow.graphs[graph.index()];
    let all = steps.is_empty() && *self_loops != SelfLoops::Removed && !links && shuffle.is_none();
    let has_data = || flow.inputs.iter().any(|input| input.ty.space == Space::Edges(graph));
    all && kept.is_none() && derived.is_none() && !has_data()
}

/// Number of hops that an operation reads beyond the hops of its result.
pub(crate) fn further(flow: &Dataflow, op: &Op) -> usize {
    usize::from(matches!(op, Op::GatherSrc(graph) if is_sampled(flow, *graph)))
}

/// The vertex types that are reduced at the seeds, over all of their vertices or over edges to them, each with the source
/// of the first such reduction. `flow` is the program of a batch. Only vertices of the seeds' own types are there.
pub fn reduced_at_seeds(flow: &Dataflow, layout: &BatchLayout) -> BTreeMap<VertexType, Option<Origin>> {
    let mut found = BTreeMap::new();
    for data in flow.values.iter().filter(|data| matches!(data.op, Op::ReduceSpace(_))) {
        let vertex = match flow.ty(data.args[0]).space {
            Space::Vertices(vertex) => vertex,
            Space::Edges(graph) | Space::Endpoints(graph, _) => flow.graphs[graph.index()].dst,
            Space::Unit | Space::Index(_) => continue,
        };
        if let WithinHops { vertex, hops: 0 } = layout.vertices[vertex.index()] {
            found.entry(vertex).or_insert(data.origin);
        }
    }
    found
}

/// The hops from the seeds within which each value is needed.
pub(crate) struct RequiredHops {
    /// Numbers of hops for which a value is computed, by value.
    pub own: Vec<BTreeSet<usize>>,
    /// Parameters with a row for each vertex of a type.
    rows: BTreeMap<Param, (VertexType, usize)>,
}

impl RequiredHops {
    pub fn of(flow: &Dataflow) -> Result<Self> {
        let mut own: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); flow.values.len()];
        let mut rows: BTreeMap<Param, (VertexType, usize)> = BTreeMap::new();
        for output in &flow.outputs {
            own[output.value.index()].insert(0);
        }
        for value in flow.handles().rev() {
            let data = flow.value(value);
            if !is_for_each(flow, value)
                && let Some(&most) = own[value.index()].last()
            {
                own[value.index()] = BTreeSet::from([most]);
            }
            let wrong = |why: &str| Err(NotBatchable { why: why.into(), origin: data.origin });
            match (&data.op, data.ty.space) {
                _ if own[value.index()].is_empty() => continue,
                (Op::Segment { graph, .. }, _) if flow.graphs[graph.index()].links => {
                    return wrong("it sums over pairs to score, and these are others in every batch");
                }
                (_, Space::Edges(graph))
                    if flow.graphs[graph.index()].links && own[value.index()] != BTreeSet::from([0]) =>
                {
                    return wrong("a layer uses what belongs to pairs to score");
                }
                (Op::Segment { direction: Direction::Out, .. }, _) => {
                    return wrong("it sums over out-edges, and a batch has in-edges only");
                }
                (Op::GatherRows(..) | Op::ScatterRows(..) | Op::ScatterAdd(_), _) => {
                    return wrong("it has rows for the ends of edges, which are others in every batch");
                }
                (Op::Unrows, _) => return wrong("it takes the values of all vertices as a matrix"),
                (Op::Rows, Space::Vertices(vertex)) => {
                    let &Op::Param(param) = &flow.value(data.args[0]).op else {
                        return wrong("a matrix with a row for each vertex is no parameter");
                    };
                    let hops = *own[value.index()].last().expect("it is needed");
                    let known = rows.entry(param).or_insert((vertex, hops));
                    known.1 = known.1.max(hops);
                }
                _ => {}
            }
            let has_rows = |&arg: &Value| match flow.value(arg).op {
                Op::Param(param) => flow.params[param.index()].dims.iter().any(|dim| matches!(dim, Dim::Count(_))),
                _ => false,
            };
            if data.op != Op::Rows && data.args.iter().any(has_rows) {
                return wrong("it uses a parameter with a row for each vertex as a whole");
            }
            let more = further(flow, &data.op);
            let needed: Vec<usize> = own[value.index()].iter().map(|hops| hops + more).collect();
            for &arg in &data.args {
                own[arg.index()].extend(needed.iter().copied());
            }
        }
        Ok(Self { own, rows })
    }
}

/// New table entries by the old entry and the number of hops.
#[derive(Default)]
struct Tables {
    vertices: HashMap<WithinHops, VertexType>,
    graphs: HashMap<(Graph, usize), Graph>,
    firsts: HashMap<(VertexType, VertexType), Graph>,
    patterns: HashMap<(Pattern, usize), Pattern>,
    inputs: HashMap<(Input, usize), Input>,
}

struct Builder<'a> {
    old: &'a Dataflow,
    required: RequiredHops,
    new: Dataflow,
    layout: BatchLayout,
    /// New values, for those within a number of hops.
    made: HashMap<(Value, usize), Value>,
    tables: Tables,
}

/// A name for tables of the vertices within a number of hops.
fn name_within(name: &str, hops: usize) -> String {
    if hops == 0 { name.to_owned() } else { format!("{name}.{hops}") }
}

impl Builder<'_> {
    /// The vertices of a type that are known within a number of hops.
    fn vertex(&mut self, vertex: VertexType, hops: usize) -> VertexType {
        let known = WithinHops { vertex, hops };
        if let Some(&known) = self.tables.vertices.get(&known) {
            return known;
        }
        let VertexTypeDecl { name, dataset_name, .. } = &self.old.vertex_types[vertex.index()];
        let new = VertexType::new(self.new.vertex_types.len());
        let (name, dataset_name) = (name_within(name, hops), dataset_name.clone());
        self.new.vertex_types.push(VertexTypeDecl::new(name, dataset_name));
        self.layout.vertices.push(known);
        self.tables.vertices.insert(known, new);
        new
    }

    /// A graph with a relation of its own.
    fn add_graph(&mut self, decl: GraphDecl, dataset_name: String, what: BatchGraph) -> Graph {
        let (name, src, dst) = (decl.name.clone(), decl.src, decl.dst);
        let steps = vec![Step { relation: self.new.relations.len() as u32, reverse: false }];
        self.new.relations.push(RelationDecl { name, dataset_name, src, dst });
        self.new.graphs.push(GraphDecl { steps, ..decl });
        self.layout.graphs.push(what);
        Graph::new(self.new.graphs.len() - 1)
    }

    /// The in-edges of vertices within a number of hops: sampled ones, pairs to score, or edges among these vertices.
    fn graph(&mut self, graph: Graph, hops: usize) -> Graph {
        if let Some(&known) = self.tables.graphs.get(&(graph, hops)) {
            return known;
        }
        let decl = self.old.graphs[graph.index()].clone();
        let of_src = hops + usize::from(is_sampled(self.old, graph));
        let (src, dst) = (self.vertex(decl.src, of_src), self.vertex(decl.dst, hops));
        let what = match (decl.links, decl.shuffle) {
            (true, _) => BatchGraph::Links { graph },
            (false, Some(permutations)) => BatchGraph::Shuffled { rows: dst, permutations },
            (false, None) if is_identity(self.old, graph) => BatchGraph::First { rows: dst },
            (false, None) => BatchGraph::Sampled { graph, hops },
        };
        let dataset_name = decl.name.clone();
        let decl = GraphDecl { name: name_within(&decl.name, hops), src, dst, shuffle: None, ..decl };
        let new = self.add_graph(decl, dataset_name, what);
        self.tables.graphs.insert((graph, hops), new);
        new
    }

    /// The graph that takes the first rows of a larger set.
    fn first(&mut self, from: VertexType, to: VertexType) -> Graph {
        if let Some(&known) = self.tables.firsts.get(&(from, to)) {
            return known;
        }
        let name = |vertex: VertexType| &self.new.vertex_types[vertex.index()].name;
        let name = format!("first({} of {})", name(to), name(from));
        let decl = GraphDecl::new(name.clone(), from, to, vec![]);
        let new = self.add_graph(decl, name, BatchGraph::First { rows: to });
        self.tables.firsts.insert((from, to), new);
        new
    }

    fn pattern(&mut self, pattern: Pattern, hops: usize) -> Pattern {
        if let Some(&known) = self.tables.patterns.get(&(pattern, hops)) {
            return known;
        }
        let decl = self.old.patterns[pattern.index()].clone();
        let vertex = self.vertex(decl.vertex, hops);
        let new = Pattern::new(self.new.patterns.len());
        self.new.patterns.push(PatternDecl { vertex, ..decl });
        self.layout.patterns.push(BatchPattern { pattern, rows: vertex });
        self.tables.patterns.insert((pattern, hops), new);
        new
    }

    fn input(&mut self, input: Input, hops: usize) -> Input {
        if let Some(&known) = self.tables.inputs.get(&(input, hops)) {
            return known;
        }
        let InputDecl { name, ty, binding } = self.old.inputs[input.index()].clone();
        let binding = match binding {
            Binding::Features(vertex, matrix) => Binding::Features(self.vertex(vertex, hops), matrix),
            Binding::Label(vertex, name) => Binding::Label(self.vertex(vertex, hops), name),
            Binding::TrainMask(vertex) => Binding::TrainMask(self.vertex(vertex, hops)),
            Binding::Time(vertex) => Binding::Time(self.vertex(vertex, hops)),
            Binding::EdgeTime(graph) => Binding::EdgeTime(self.graph(graph, hops)),
            Binding::EdgeWeight(graph) => Binding::EdgeWeight(self.graph(graph, hops)),
            Binding::EdgeCount(graph) => Binding::EdgeCount(self.graph(graph, hops)),
            Binding::EdgeFeatures(graph) => Binding::EdgeFeatures(self.graph(graph, hops)),
            Binding::EdgeRank(graph, direction) => Binding::EdgeRank(self.graph(graph, hops), direction),
            Binding::IsLink(graph) => Binding::IsLink(self.graph(graph, hops)),
            Binding::Given(name) => Binding::Given(name),
            Binding::Precomputed(vertex, name) => Binding::Precomputed(self.vertex(vertex, hops), name),
            Binding::StepNumber => Binding::StepNumber,
            Binding::EpochNumber => Binding::EpochNumber,
        };
        let ty = self.ty(&ty, hops);
        let new = Input::new(self.new.inputs.len());
        self.new.inputs.push(InputDecl { name: name_within(&name, hops), ty, binding });
        self.layout.inputs.push(BatchInput::Whole(input));
        self.tables.inputs.insert((input, hops), new);
        new
    }

    fn space(&mut self, space: Space, hops: usize) -> Space {
        match space {
            Space::Vertices(vertex) => Space::Vertices(self.vertex(vertex, hops)),
            Space::Edges(graph) => Space::Edges(self.graph(graph, hops)),
            Space::Unit | Space::Index(_) => space,
            Space::Endpoints(graph, direction) => Space::Endpoints(self.graph(graph, hops), direction),
        }
    }

    fn ty(&mut self, ty: &Type, hops: usize) -> Type {
        let layout = match ty.layout {
            Layout::Dense => Layout::Dense,
            Layout::Sparse(pattern) => Layout::Sparse(self.pattern(pattern, hops)),
        };
        Type { space: self.space(ty.space, hops), layout, ..ty.clone() }
    }

    /// Restricts embedding tables to the rows of the vertices that need them; unread tables have the rows of the seeds.
    fn rows(&mut self) {
        for (index, decl) in self.old.params.iter().enumerate() {
            let Some(&Dim::Count(vertex)) = decl.dims.first() else { continue };
            let param = Param::new(index);
            let hops = self.required.rows.get(&param).map_or(0, |&(_, hops)| hops);
            let count = Dim::Count(self.vertex(vertex, hops));
            let decl = &mut self.new.params[index];
            decl.dims[0] = count;
            if let Init::Glorot { fan_in, .. } | Init::He { fan_in } = &mut decl.init
                && let Dim::Count(_) = fan_in
            {
                *fan_in = count;
            }
            self.layout.rows.push((param, WithinHops { vertex, hops }));
        }
    }

    /// The families of each hop, and the semantic graphs that entries of parameters belong to there.
    fn families(&mut self) {
        let mut hops: Vec<usize> = self.tables.graphs.keys().map(|&(_, hops)| hops).collect();
        hops.sort_unstable();
        hops.dedup();
        for (family, &hops) in self.old.families.iter().flat_map(|family| hops.iter().map(move |hops| (family, hops))) {
            let known = |&graph: &Graph| self.tables.graphs.get(&(graph, hops)).copied();
            if let Some(members) = family.iter().map(known).collect::<Option<Vec<Graph>>>()
                && !self.new.families.contains(&members)
            {
                self.new.families.push(members);
            }
        }
        let owners = owners(&self.new, &self.tables.graphs);
        for (decl, owner) in self.new.params.iter_mut().zip(owners) {
            decl.of = owner;
        }
    }

    /// A value at vertices within a number of hops.
    fn at(&mut self, value: Value, hops: usize) -> Value {
        if let Some(&known) = self.made.get(&(value, hops)) {
            return known;
        }
        let most = *self.required.own[value.index()].last().expect("what is read is computed");
        let computed = self.made[&(value, most)];
        let new = match self.old.ty(value).space {
            Space::Vertices(vertex) => {
                let data = self.old.value(value);
                self.new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
                self.first_rows(computed, vertex, most, hops)
            }
            _ => computed,
        };
        self.made.insert((value, hops), new);
        new
    }

    fn first_rows(&mut self, value: Value, vertex: VertexType, most: usize, hops: usize) -> Value {
        if most == hops {
            return value;
        }
        let (from, to) = (self.vertex(vertex, most), self.vertex(vertex, hops));
        let graph = self.first(from, to);
        let gathered = self.new.add(Op::GatherSrc(graph), &[value]);
        self.new.segment(graph, Direction::In, Reduce::Sum, gathered)
    }

    /// A value at vertices within a number of hops, some of which read it from the cache.
    ///
    /// Rows are replaced, not blended: the rows that were computed without edges enter no sum, and their gradient is 0.
    fn reuse(&mut self, value: Value, hops: usize, computed: Value) -> Result<Value> {
        let data = self.old.value(value);
        let Space::Vertices(vertex) = data.ty.space else { return Ok(computed) };
        let width = data.ty.dims.iter().map(|dim| dim.fixed().unwrap_or(0)).product();
        let rows = self.reused_rows(vertex, hops);
        let reused = &mut self.layout.historical[rows];
        reused.values.push(width);
        let (number, space) = (reused.values.len() - 1, Space::Vertices(reused.rows));
        self.layout.inputs.push(BatchInput::Historical { rows, value: number });
        let name = HistoricalRows::name(rows, number);
        let ty = Type { space, ..data.ty.clone() };
        let input = self.new.declare_input(InputDecl { name: name.clone(), ty, binding: Binding::Given(name.clone()) });
        let graph = self.layout.graphs.iter().position(|graph| *graph == BatchGraph::Historical { rows });
        let graph = Graph::new(graph.expect("rows have a graph"));
        self.new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        let wrong = |error: TypeError| NotBatchable { why: error.to_string(), origin: data.origin };
        let given = self.new.push(Op::Input(input), &[]).map_err(wrong)?;
        let given = self.new.push(Op::GatherSrc(graph), &[given]).map_err(wrong)?;
        let op = Op::SegmentEndpoints { graph, direction: Direction::In, reduce: Reduce::Sum };
        let given = self.new.push(op, &[given]).map_err(wrong)?;
        let replaced = self.new.push(Op::ScatterRows(graph, Direction::In), &[computed, given]).map_err(wrong)?;
        self.new.outputs.push(hgnnc_ir::Output { kind: hgnnc_ir::OutputKind::Result(name), value: replaced });
        Ok(replaced)
    }

    /// A value at vertices within a number of hops, 0 at those that read the cache.
    fn zero(&mut self, value: Value, hops: usize, computed: Value) -> Result<Value> {
        let data = self.old.value(value);
        let Space::Vertices(vertex) = data.ty.space else { return Ok(computed) };
        let rows = self.reused_rows(vertex, hops);
        let graph = self.layout.graphs.iter().position(|graph| *graph == BatchGraph::Historical { rows });
        let graph = Graph::new(graph.expect("rows have a graph"));
        self.new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        let zero = self.new.constant(0.0);
        let ty = Type { space: Space::Endpoints(graph, Direction::In), ..data.ty.clone() };
        let zeros = self.new.add(Op::Broadcast(ty), &[zero]);
        let replaced = self.new.push(Op::ScatterRows(graph, Direction::In), &[computed, zeros]);
        replaced.map_err(|error| NotBatchable { why: error.to_string(), origin: data.origin })
    }

    /// The vertices of a type whose values are read from the cache, with the graph that scatters them among all.
    /// The position of its rows in [`BatchLayout::historical`].
    fn reused_rows(&mut self, vertex: VertexType, hops: usize) -> usize {
        let of = self.vertex(vertex, hops);
        if let Some(known) = self.layout.historical.iter().position(|reused| reused.of == of) {
            return known;
        }
        let rows = VertexType::new(self.new.vertex_types.len());
        let VertexTypeDecl { name, dataset_name, .. } = self.new.vertex_types[of.index()].clone();
        let graph = format!("reused({name})");
        self.new.vertex_types.push(VertexTypeDecl::new(format!("{name}.reused"), dataset_name));
        self.layout.vertices.push(WithinHops { vertex, hops });
        self.layout.historical.push(HistoricalRows { rows, of, values: vec![] });
        let number = self.layout.historical.len() - 1;
        let decl = GraphDecl::new(graph.clone(), rows, of, vec![]);
        self.add_graph(decl, graph, BatchGraph::Historical { rows: number });
        number
    }

    /// Computes a value for vertices within a number of hops.
    fn value(&mut self, value: Value, hops: usize) -> Result<Value> {
        let data = self.old.value(value);
        let more = further(self.old, &data.op);
        let args: Vec<Value> = data.args.iter().map(|&arg| self.at(arg, hops + more)).collect();
        let op = match &data.op {
            Op::Input(input) => Op::Input(self.input(*input, hops)),
            Op::Count(space) => Op::Count(self.space(*space, hops)),
            Op::Broadcast(ty) => Op::Broadcast(self.ty(ty, hops)),
            Op::RandomMask { stream, rate, ty } => {
                Op::RandomMask { stream: *stream, rate: *rate, ty: self.ty(ty, hops) }
            }
            Op::GatherSrc(graph) => Op::GatherSrc(self.graph(*graph, hops)),
            Op::GatherDst(graph) => Op::GatherDst(self.graph(*graph, hops)),
            Op::Segment { graph, direction, reduce } => {
                Op::Segment { graph: self.graph(*graph, hops), direction: *direction, reduce: *reduce }
            }
            other => other.clone(),
        };
        self.new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        let new =
            self.new.push(op, &args).map_err(|error| NotBatchable { why: error.to_string(), origin: data.origin })?;
        // The table has the rows of the largest set, of which this value may need the first.
        if let (Op::Rows, Space::Vertices(vertex)) = (&data.op, data.ty.space)
            && let Op::Param(param) = self.old.value(data.args[0]).op
        {
            return Ok(self.first_rows(new, vertex, self.required.rows[&param].1, hops));
        }
        Ok(new)
    }
}

/// For each parameter that is an entry for a semantic graph: the graph of the batch whose edges first depend on it.
fn owners(flow: &Dataflow, graphs: &HashMap<(Graph, usize), Graph>) -> Vec<Option<Graph>> {
    let origin: HashMap<Graph, Graph> = graphs.iter().map(|(&(old, _), &new)| (new, old)).collect();
    let mut owners: Vec<Option<Graph>> = vec![None; flow.params.len()];
    // The entry that a value depends on, as long as it depends on one.
    let mut entries: Vec<Option<Param>> = Vec::with_capacity(flow.values.len());
    for data in &flow.values {
        let own = match data.op {
            Op::Param(param) => flow.params[param.index()].of.map(|_| param),
            _ => data.args.iter().find_map(|arg| entries[arg.index()]),
        };
        let entry = match (own, data.ty.space) {
            (Some(param), Space::Edges(graph)) => {
                if origin.get(&graph) == flow.params[param.index()].of.as_ref() {
                    owners[param.index()].get_or_insert(graph);
                }
                None
            }
            (own, _) => own,
        };
        entries.push(entry);
    }
    owners
}
