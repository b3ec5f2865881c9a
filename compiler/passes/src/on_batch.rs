//! From the program of a whole graph to that of a batch: a sampled subgraph around seed vertices.
//!
//! The loss is computed for the seeds. A value on vertices is needed for those within some number of hops of them, which
//! grows by one with each gather from sources. Each such set is a vertex type of the new program (`Paper`, `Paper.1`,
//! `Paper.2`: the seeds, and what is within one and two hops), and the sampled in-edges of each set are a graph of it
//! (see [`BatchLayout`]):
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
//! A vertex value is computed once, for the largest set that anything needs it for. Where something needs it for a smaller
//! one, a graph with an edge from each of its vertices to itself takes the first rows. What belongs to edges or counts
//! rows is computed for each set on its own.
//!
//! Pairs to score (the edges of a graph of links) join seeds: both of their ends are needed for no hop more.
//!
//! With all in-edges drawn the loss and its gradients are those of the whole graph with these seeds. What is computed over
//! all vertices of a type (the weights of semantic graphs in HAN) is computed over those of the batch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use hgnnc_ir::artifact::{LinkTarget, MiniBatch, Target, Training};
use hgnnc_ir::batch::{BatchGraph, BatchLayout, BatchPattern, Known};
use hgnnc_ir::dataflow::{
    Binding, Cursor, GraphDecl, Init, InputDecl, PatternDecl, RelationDecl, Step, VertexTypeDecl,
};
use hgnnc_ir::sizes::{Ends, SizeInfo};
use hgnnc_ir::{
    Dataflow, Dim, Direction, Graph, Input, Layout, Op, Origin, Param, Pattern, Reduce, Space, Type, Value, VertexType,
};

/// A program that cannot be computed on batches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotOnBatch {
    /// Why, in the words of the model.
    pub why: String,
    /// Where in the source.
    pub origin: Option<Origin>,
}

impl fmt::Display for NotOnBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the model cannot be trained on batches: {}", self.why)
    }
}

impl std::error::Error for NotOnBatch {}

type Result<T> = std::result::Result<T, NotOnBatch>;

/// The program of a batch that computes the outputs of a forward program, which are unit values or belong to the seeds.
///
/// # Errors
/// [`NotOnBatch`] where a value depends on more than in-edges.
pub fn on_batch(flow: &Dataflow) -> Result<(Dataflow, BatchLayout)> {
    let needs = Needs::of(flow)?;
    let mut new = Dataflow::new(format!("{}.batch", flow.name));
    new.params.clone_from(&flow.params);
    let layout = BatchLayout::default();
    let mut builder = Builder { old: flow, needs, new, layout, made: HashMap::new(), tables: Tables::default() };
    builder.rows();
    for value in flow.handles() {
        for hops in builder.needs.own[value.index()].clone() {
            let new = builder.value(value, hops)?;
            builder.made.insert((value, hops), new);
        }
    }
    for output in &flow.outputs {
        let value = builder.at(output.value, 0);
        builder.new.outputs.push(hgnnc_ir::Output { kind: output.kind.clone(), value });
    }
    builder.new.cursor = flow.cursor;
    builder.layout.hops = builder.layout.vertices.iter().map(|known| known.hops).max().unwrap_or(0);
    Ok((builder.new, builder.layout))
}

/// Is a value computed for each set of vertices on its own?
fn is_for_each(flow: &Dataflow, value: Value) -> bool {
    let data = flow.value(value);
    let everywhere = matches!(data.op, Op::Count(_) | Op::Broadcast(_) | Op::RandomMask { .. });
    everywhere || data.ty.is_sparse() || matches!(data.ty.space, Space::Edges(_))
}

/// How many hops further than its result an operation reads.
fn further(flow: &Dataflow, op: &Op) -> usize {
    usize::from(matches!(op, Op::GatherSrc(graph) if !flow.graphs[graph.index()].links))
}

/// For how many hops each value is needed.
struct Needs {
    /// Hops for which a value is computed.
    own: Vec<BTreeSet<usize>>,
    /// Parameters with a row for each vertex of a type.
    rows: BTreeMap<Param, (VertexType, usize)>,
}

impl Needs {
    fn of(flow: &Dataflow) -> Result<Self> {
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
            let wrong = |why: &str| Err(NotOnBatch { why: why.into(), origin: data.origin });
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
                (Op::Select(..) | Op::Replace(..) | Op::AddEnds(_), _) => {
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

/// What of the new tables stands for what of the old ones.
#[derive(Default)]
struct Tables {
    vertices: HashMap<Known, VertexType>,
    graphs: HashMap<(Graph, usize), Graph>,
    firsts: HashMap<(VertexType, VertexType), Graph>,
    patterns: HashMap<(Pattern, usize), Pattern>,
    inputs: HashMap<(Input, usize), Input>,
}

struct Builder<'a> {
    old: &'a Dataflow,
    needs: Needs,
    new: Dataflow,
    layout: BatchLayout,
    /// New values, for those within a number of hops.
    made: HashMap<(Value, usize), Value>,
    tables: Tables,
}

/// A name for what belongs to vertices within a number of hops.
fn name_within(name: &str, hops: usize) -> String {
    if hops == 0 { name.to_owned() } else { format!("{name}.{hops}") }
}

impl Builder<'_> {
    /// The vertices of a type that are known within a number of hops.
    fn vertex(&mut self, vertex: VertexType, hops: usize) -> VertexType {
        let known = Known { vertex, hops };
        if let Some(&known) = self.tables.vertices.get(&known) {
            return known;
        }
        let VertexTypeDecl { name, dataset_name } = &self.old.vertex_types[vertex.index()];
        let new = VertexType::new(self.new.vertex_types.len());
        let (name, dataset_name) = (name_within(name, hops), dataset_name.clone());
        self.new.vertex_types.push(VertexTypeDecl { name, dataset_name });
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

    /// The sampled in-edges of vertices within a number of hops.
    fn graph(&mut self, graph: Graph, hops: usize) -> Graph {
        if let Some(&known) = self.tables.graphs.get(&(graph, hops)) {
            return known;
        }
        let decl = self.old.graphs[graph.index()].clone();
        let (of_src, what) = match decl.links {
            true => (hops, BatchGraph::Links { graph }),
            false => (hops + 1, BatchGraph::Sampled { graph, hops }),
        };
        let (src, dst) = (self.vertex(decl.src, of_src), self.vertex(decl.dst, hops));
        let dataset_name = decl.name.clone();
        let decl = GraphDecl { name: name_within(&decl.name, hops), src, dst, ..decl };
        let new = self.add_graph(decl, dataset_name, what);
        self.tables.graphs.insert((graph, hops), new);
        new
    }

    /// The edges that take the first rows.
    fn first(&mut self, from: VertexType, to: VertexType) -> Graph {
        if let Some(&known) = self.tables.firsts.get(&(from, to)) {
            return known;
        }
        let name = |vertex: VertexType| &self.new.vertex_types[vertex.index()].name;
        let name = format!("first({} of {})", name(to), name(from));
        let decl = GraphDecl {
            name: name.clone(),
            src: from,
            dst: to,
            steps: vec![],
            counted: false,
            self_loops: false,
            links: false,
        };
        let new = self.add_graph(decl, name, BatchGraph::First { rows: to });
        self.tables.firsts.insert((from, to), new);
        new
    }

    fn pattern(&mut self, pattern: Pattern, hops: usize) -> Pattern {
        if let Some(&known) = self.tables.patterns.get(&(pattern, hops)) {
            return known;
        }
        let PatternDecl { vertex, columns } = self.old.patterns[pattern.index()];
        let vertex = self.vertex(vertex, hops);
        let new = Pattern::new(self.new.patterns.len());
        self.new.patterns.push(PatternDecl { vertex, columns });
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
            Binding::Features(vertex) => Binding::Features(self.vertex(vertex, hops)),
            Binding::Label(vertex, name) => Binding::Label(self.vertex(vertex, hops), name),
            Binding::TrainMask(vertex) => Binding::TrainMask(self.vertex(vertex, hops)),
            Binding::EdgeWeight(graph) => Binding::EdgeWeight(self.graph(graph, hops)),
            Binding::EdgeCount(graph) => Binding::EdgeCount(self.graph(graph, hops)),
            Binding::EdgeFeatures(graph) => Binding::EdgeFeatures(self.graph(graph, hops)),
            Binding::IsLink(graph) => Binding::IsLink(self.graph(graph, hops)),
            Binding::Given(name) => Binding::Given(name),
            Binding::StepNumber => Binding::StepNumber,
            Binding::EpochNumber => Binding::EpochNumber,
        };
        let ty = self.ty(&ty, hops);
        let new = Input::new(self.new.inputs.len());
        self.new.inputs.push(InputDecl { name: name_within(&name, hops), ty, binding });
        self.layout.inputs.push(input);
        self.tables.inputs.insert((input, hops), new);
        new
    }

    fn space(&mut self, space: Space, hops: usize) -> Space {
        match space {
            Space::Vertices(vertex) => Space::Vertices(self.vertex(vertex, hops)),
            Space::Edges(graph) => Space::Edges(self.graph(graph, hops)),
            Space::Unit | Space::Index(_) => space,
            Space::Ends(graph, direction) => Space::Ends(self.graph(graph, hops), direction),
        }
    }

    fn ty(&mut self, ty: &Type, hops: usize) -> Type {
        let layout = match ty.layout {
            Layout::Dense => Layout::Dense,
            Layout::Sparse(pattern) => Layout::Sparse(self.pattern(pattern, hops)),
        };
        Type { space: self.space(ty.space, hops), layout, ..ty.clone() }
    }

    /// Gives parameters with a row for each vertex of a type those of the vertices that need it. Of what nothing needs,
    /// the seeds have theirs.
    fn rows(&mut self) {
        for (index, decl) in self.old.params.iter().enumerate() {
            let Some(&Dim::Count(vertex)) = decl.dims.first() else { continue };
            let param = Param::new(index);
            let hops = self.needs.rows.get(&param).map_or(0, |&(_, hops)| hops);
            let count = Dim::Count(self.vertex(vertex, hops));
            let decl = &mut self.new.params[index];
            decl.dims[0] = count;
            if let Init::Glorot { fan_in, .. } | Init::He { fan_in } = &mut decl.init
                && let Dim::Count(_) = fan_in
            {
                *fan_in = count;
            }
            self.layout.rows.push((param, Known { vertex, hops }));
        }
    }

    /// A value at vertices within a number of hops.
    fn at(&mut self, value: Value, hops: usize) -> Value {
        if let Some(&known) = self.made.get(&(value, hops)) {
            return known;
        }
        let most = *self.needs.own[value.index()].last().expect("what is read is computed");
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
            self.new.push(op, &args).map_err(|error| NotOnBatch { why: error.to_string(), origin: data.origin })?;
        // All that a parameter has rows for, of which this may need the first.
        if let (Op::Rows, Space::Vertices(vertex)) = (&data.op, data.ty.space)
            && let Op::Param(param) = self.old.value(data.args[0]).op
        {
            return Ok(self.first_rows(new, vertex, self.needs.rows[&param].1, hops));
        }
        Ok(new)
    }
}

/// How large a batch of a model is expected to be: what its program is compiled for. `flow` is the program of the whole graph,
/// `sizes` those of its data. Neighbours are taken to be spread evenly.
pub fn batch_sizes(
    flow: &Dataflow,
    layout: &BatchLayout,
    training: &Training,
    batch: &MiniBatch,
    sizes: &SizeInfo,
) -> SizeInfo {
    let count = |vertex: VertexType| sizes.vertices[vertex.index()] as f64;
    // By hop: vertices that are known, and edges of those that were new in it.
    let mut known = vec![vec![0.0; flow.vertex_types.len()]];
    let mut pairs = vec![0.0; flow.graphs.len()];
    match &training.target {
        Target::Vertices { vertex, .. } => known[0][vertex.index()] = (batch.size as f64).min(count(*vertex)),
        Target::Links(LinkTarget { graphs, negatives, .. }) => {
            let all: u64 = graphs.iter().map(|graph| sizes.edges[graph.index()]).sum();
            let drawn = &mut known[0];
            for graph in graphs {
                let links = sizes.edges[graph.index()] as f64;
                let links = links.min(batch.size as f64 * links / all.max(1) as f64);
                pairs[graph.index()] = links * (1.0 + f64::from(negatives.count));
                // A pair that is no link has one end that its link does not have.
                let decl = &flow.graphs[graph.index()];
                let ends = links * (1.0 + 0.5 * f64::from(negatives.count));
                [decl.src, decl.dst].iter().for_each(|end| drawn[end.index()] += ends);
            }
            for (index, drawn) in drawn.iter_mut().enumerate() {
                let all = sizes.vertices[index] as f64;
                *drawn = all * (1.0 - (-*drawn / all.max(1.0)).exp());
            }
        }
    }
    let mut new = known[0].clone();
    let mut edges: Vec<Vec<f64>> = vec![];
    for hop in 0..layout.hops {
        let (mut drawn, mut of_graphs) = (vec![0.0; flow.vertex_types.len()], vec![]);
        for (index, graph) in flow.graphs.iter().enumerate() {
            let used = layout.deepest(Graph::new(index)).is_some_and(|deepest| deepest >= hop);
            let degree = sizes.edges[index] as f64 / count(graph.dst).max(1.0);
            let fanout = batch.fanouts.get(hop).and_then(|fanouts| fanouts[index].most());
            let taken = if used { fanout.map_or(degree, |fanout| degree.min(fanout.into())) } else { 0.0 };
            of_graphs.push(new[graph.dst.index()] * taken);
            drawn[graph.src.index()] += of_graphs[index];
        }
        edges.push(of_graphs);
        let mut next = known[hop].clone();
        for (index, (next, drawn)) in next.iter_mut().zip(drawn).enumerate() {
            let all = sizes.vertices[index] as f64;
            // Of vertices drawn at random some are drawn twice, and some are known.
            new[index] = (all - *next).max(0.0) * (1.0 - (-drawn / all.max(1.0)).exp());
            *next += new[index];
        }
        known.push(next);
    }
    let whole = |number: f64| number.ceil() as u64;
    let rows = |known_within: &Known| known[known_within.hops][known_within.vertex.index()];
    let mut of_batch =
        SizeInfo { vertices: layout.vertices.iter().map(rows).map(whole).collect(), ..SizeInfo::default() };
    for what in &layout.graphs {
        let (edges, ends) = match *what {
            BatchGraph::Sampled { graph, hops } => {
                let decl = &flow.graphs[graph.index()];
                let edges: f64 = edges[..=hops].iter().map(|of_hop| of_hop[graph.index()]).sum();
                let (sources, rows) = (known[hops + 1][decl.src.index()], known[hops][decl.dst.index()]);
                let of_whole = sizes.ends.get(graph.index()).copied().unwrap_or_default();
                let most =
                    batch.fanouts.iter().map(|fanouts| fanouts[graph.index()].most().map_or(u64::MAX, u64::from)).max();
                let ends = Ends {
                    sources: whole(edges.min(sources)),
                    destinations: whole(edges.min(rows)),
                    max_out: of_whole.max_out.min(whole(rows)),
                    max_in: of_whole.max_in.min(most.unwrap_or(u64::MAX)),
                };
                (whole(edges), ends)
            }
            BatchGraph::Links { graph } => {
                let decl = &flow.graphs[graph.index()];
                let (pairs, negatives) = (
                    pairs[graph.index()],
                    match &training.target {
                        Target::Links(of) => 1.0 + f64::from(of.negatives.count),
                        Target::Vertices { .. } => 1.0,
                    },
                );
                let end = |vertex: VertexType| pairs.min(known[0][vertex.index()]);
                let of_whole = sizes.ends.get(graph.index()).copied().unwrap_or_default();
                let most = |links: u64| whole((links as f64 * negatives).min(pairs));
                let ends = Ends {
                    sources: whole(end(decl.src)),
                    destinations: whole(end(decl.dst)),
                    max_out: most(of_whole.max_out),
                    max_in: most(of_whole.max_in),
                };
                (whole(pairs), ends)
            }
            BatchGraph::First { rows } => {
                let rows = of_batch.vertices[rows.index()];
                (rows, Ends { sources: rows, destinations: rows, max_out: 1, max_in: 1 })
            }
        };
        of_batch.edges.push(edges);
        of_batch.ends.push(ends);
    }
    for &BatchPattern { pattern, rows } in &layout.patterns {
        let all = count(flow.patterns[pattern.index()].vertex).max(1.0);
        let (Some(&stored), Some(&columns)) = (sizes.stored.get(pattern.index()), sizes.columns.get(pattern.index()))
        else {
            // Not known of all: of none.
            (of_batch.stored, of_batch.columns) = (vec![], vec![]);
            break;
        };
        let stored = whole(stored as f64 * of_batch.vertices[rows.index()] as f64 / all);
        of_batch.stored.push(stored);
        of_batch.columns.push(columns.min(stored));
    }
    of_batch
}
