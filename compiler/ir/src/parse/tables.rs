//! Declarations and outputs: rows of the tables of a program, and the types, bindings and initial values in them.

use super::{Parse, Parser, Token};
use crate::dataflow::{
    Binding, Dataflow, GraphDecl, Init, InputDecl, KeptInEdges, Matrix, MetapathDecl, Output, OutputKind, ParamDecl,
    PatternDecl, RelationDecl, SelfLoops, Step, VertexTypeDecl,
};
use crate::ops::Direction;
use crate::paths::{PathDecl, PathRows};
use crate::ranks::{EdgeShare, Mirrors};
use crate::stacks::{Incidence, StackDecl, VertexRows};
use crate::types::{DType, Dim, Graph, Layout, Param, Pattern, Space, Stack, Type, VertexType};
use crate::verify::Place;

/// A part of a stack, behind a dot.
enum Of {
    /// The rows at an end.
    End(Direction),
    /// The members from one on.
    Number(u32),
}

impl Parser {
    /// Parses a declaration, a value or an output into the program, and returns its place.
    ///
    /// # Errors
    /// The first syntax error in it.
    pub fn item(&mut self) -> Parse<Place> {
        if matches!(self.peek(), Token::Value(_)) {
            return self.value_line();
        }
        let at = self.next;
        let Token::Word(keyword) = self.take() else {
            return self.error_at(
                at,
                format!("expected a declaration, a value or an output, found {}", self.tokens[at].token),
            );
        };
        match keyword.as_str() {
            "vertex" => {
                let name = self.name()?;
                let decl = if self.accept("=") {
                    VertexTypeDecl { name, dataset_name: String::new(), rows: self.vertex_rows()? }
                } else {
                    self.word("from")?;
                    VertexTypeDecl::new(name, self.name()?)
                };
                self.parsed.flow.vertex_types.push(decl);
                Ok(Place::VertexType(self.parsed.flow.vertex_types.len() - 1))
            }
            "relation" => {
                let name = self.name()?;
                let (src, dst) = self.endpoints()?;
                self.word("from")?;
                let dataset_name = self.name()?;
                self.parsed.flow.relations.push(RelationDecl { name, dataset_name, src, dst });
                Ok(Place::Relation(self.parsed.flow.relations.len() - 1))
            }
            "graph" => {
                let name = self.name()?;
                let (src, dst) = self.endpoints()?;
                self.sign("=")?;
                if let Some(decl) = self.graph_of_ranks(&name, (src, dst))? {
                    self.parsed.flow.graphs.push(decl);
                    return Ok(Place::Graph(self.parsed.flow.graphs.len() - 1));
                }
                if matches!(self.after_next(), Token::Sign("(")) {
                    let (stack, incidence) = self.incidence(src)?;
                    let first = self.parsed.flow.stacks[stack.index()].members[0];
                    let links = incidence == Incidence::Edges && self.parsed.flow.graphs[first.index()].links;
                    let derived = Some((stack, incidence));
                    let decl = GraphDecl { links, derived, ..GraphDecl::new(name, src, dst, vec![]) };
                    self.parsed.flow.graphs.push(decl);
                    return Ok(Place::Graph(self.parsed.flow.graphs.len() - 1));
                }
                let steps = self.steps()?;
                let counted = self.accept_word("counted");
                let known = [SelfLoops::Added, SelfLoops::Removed].into_iter();
                let mut written = known.filter(|loops| loops.word().is_some_and(|word| self.accept_word(word)));
                let self_loops = written.next().unwrap_or_default();
                let links = self.accept_word("links");
                let period = if self.accept_word("every") { Some(self.integer()?) } else { None };
                let past = self.accept_word("past");
                let shuffle = if self.accept_word("shuffle") { Some(self.integer()?) } else { None };
                let kept = if self.accept_word("at_most") {
                    let at_most = self.integer()?;
                    let position = if self.accept_word("position") { Some(self.integer()?) } else { None };
                    Some(KeptInEdges { at_most, position })
                } else {
                    None
                };
                let share = if self.accept_word("in_edges") { EdgeShare::In } else { EdgeShare::All };
                self.parsed.flow.graphs.push(GraphDecl {
                    counted,
                    self_loops,
                    links,
                    shuffle,
                    kept,
                    past,
                    period,
                    share,
                    ..GraphDecl::new(name, src, dst, steps)
                });
                Ok(Place::Graph(self.parsed.flow.graphs.len() - 1))
            }
            "family" => {
                let members = self.graphs()?;
                self.parsed.flow.families.push(members);
                Ok(Place::Family(self.parsed.flow.families.len() - 1))
            }
            "stack" => {
                let name = self.name()?;
                self.sign("=")?;
                let members = self.graphs()?;
                self.parsed.flow.stacks.push(StackDecl { name, members });
                Ok(Place::Stack(self.parsed.flow.stacks.len() - 1))
            }
            "metapath" => {
                let of = self.graph()?;
                self.sign("=")?;
                let mut hops = vec![self.graph()?];
                while self.accept(",") {
                    hops.push(self.graph()?);
                }
                let once = self.accept_word("once");
                self.parsed.flow.metapaths.push(MetapathDecl { of, hops, once });
                Ok(Place::Metapath(self.parsed.flow.metapaths.len() - 1))
            }
            "paths" => {
                let vertex = self.vertex()?;
                self.sign("=")?;
                let steps = self.steps()?;
                let rows = if self.accept_word("edges") {
                    PathRows::Edges
                } else if self.accept_word("cutoffs") {
                    PathRows::Cutoffs
                } else if self.accept_word("latest") {
                    PathRows::Latest
                } else if self.accept_word("links") {
                    self.word("every")?;
                    PathRows::Links { period: self.integer()? }
                } else {
                    let at_most = if self.accept_word("at_most") { Some(self.integer()?) } else { None };
                    PathRows::Walks { at_most }
                };
                self.word("by")?;
                let mut relations = vec![self.relation()?];
                while self.accept(",") {
                    relations.push(self.relation()?);
                }
                self.parsed.flow.paths.push(PathDecl { vertex, steps, rows, relations });
                Ok(Place::Paths(self.parsed.flow.paths.len() - 1))
            }
            "pattern" => {
                let row = self.parsed.flow.patterns.len();
                self.word(&format!("p{row}"))?;
                self.sign(":")?;
                let vertex = self.vertex()?;
                self.word("x")?;
                let columns = self.integer()?;
                let matrix = if self.accept_word("of") {
                    Matrix::Field(self.name()?)
                } else if self.accept_word("train_labels") {
                    Matrix::TrainLabels(self.name()?)
                } else {
                    Matrix::Features
                };
                self.parsed.flow.patterns.push(PatternDecl { vertex, columns, matrix });
                Ok(Place::Pattern(row))
            }
            "input" => {
                let name = self.name()?;
                self.sign(":")?;
                let ty = self.ty()?;
                self.sign("=")?;
                let binding = self.binding()?;
                self.parsed.flow.inputs.push(InputDecl { name, ty, binding });
                Ok(Place::Input(self.parsed.flow.inputs.len() - 1))
            }
            "param" => {
                let name = self.name()?;
                self.sign(":")?;
                let at = self.next;
                let ty = self.ty()?;
                if ty != Type::new(Space::Unit, ty.dims.clone()) {
                    return self.error_at(at, "a parameter is a dense f32 without a space");
                }
                self.sign("=")?;
                let stacked = matches!(self.peek(), Token::Word(word) if word == "stack");
                let entries = if stacked { self.entries()? } else { vec![] };
                let init = if stacked { Init::Constant(0.0) } else { self.init()? };
                let decay = self.accept_word("decay");
                let of = if self.accept_word("of") { Some(self.graph()?) } else { None };
                self.parsed.flow.params.push(ParamDecl { name, dims: ty.dims, init, decay, of, entries });
                Ok(Place::Param(self.parsed.flow.params.len() - 1))
            }
            "result" => {
                let name = self.name()?;
                self.output(OutputKind::Result(name))
            }
            "update" => {
                let param = self.param()?;
                self.output(OutputKind::UpdateParam(param))
            }
            "state" => {
                let (param, slot) = self.slot()?;
                self.output(OutputKind::UpdateState(param, slot))
            }
            _ => self.error_at(at, format!("`{keyword}` does not begin a declaration or an output")),
        }
    }

    fn output(&mut self, kind: OutputKind) -> Parse<Place> {
        self.sign("=")?;
        let value = self.value()?;
        self.parsed.flow.outputs.push(Output { kind, value });
        Ok(Place::Output(self.parsed.flow.outputs.len() - 1))
    }

    fn endpoints(&mut self) -> Parse<(VertexType, VertexType)> {
        self.sign(":")?;
        let src = self.vertex()?;
        self.sign("->")?;
        Ok((src, self.vertex()?))
    }

    /// Steps of a path, each along a relation (`>r`) or against it (`<r`).
    fn steps(&mut self) -> Parse<Vec<Step>> {
        let mut steps = vec![];
        loop {
            let reverse = if self.accept("<") {
                true
            } else if self.accept(">") {
                false
            } else {
                return Ok(steps);
            };
            steps.push(Step { relation: self.relation()?, reverse });
        }
    }

    /// Graphs, separated by commas.
    fn graphs(&mut self) -> Parse<Vec<Graph>> {
        let mut graphs = vec![self.graph()?];
        while self.accept(",") {
            graphs.push(self.graph()?);
        }
        Ok(graphs)
    }

    /// The entries of a stack of parameters: `stack(w.cites, w.likes)`.
    fn entries(&mut self) -> Parse<Vec<Param>> {
        self.word("stack")?;
        self.sign("(")?;
        let mut entries = vec![self.param()?];
        while self.accept(",") {
            entries.push(self.param()?);
        }
        self.sign(")")?;
        Ok(entries)
    }

    /// `kind(stack)`, `kind.END(stack)` or `kind.NUMBER(stack)`, for what is derived from a stack.
    fn derived(&mut self) -> Parse<(String, Option<Of>, Stack)> {
        let at = self.next;
        let text = self.name()?;
        let (kind, end) = text.split_once('.').map_or((&text[..], None), |(kind, end)| (kind, Some(end)));
        let of = match end {
            None => None,
            Some("dst") => Some(Of::End(Direction::In)),
            Some("src") => Some(Of::End(Direction::Out)),
            Some(number) => match number.parse() {
                Ok(number) => Some(Of::Number(number)),
                Err(_) => return self.error_at(at, format!("nothing is derived from a stack by `{text}`")),
            },
        };
        self.sign("(")?;
        let find = |flow: &Dataflow, name: &str| flow.stacks.iter().position(|decl| decl.name == name);
        let stack = Stack::new(self.row("stack", find)?);
        self.sign(")")?;
        Ok((kind.to_owned(), of, stack))
    }

    /// `out_edges(graph)`, `sections(type)` or `copies(type)`, if the next words say so: a graph of ranks; `links_of(graph)` or
    /// `negatives_of(graph)`: one to the links of a mini-batch; `samples_of(type)`: one to its samples.
    fn graph_of_ranks(&mut self, name: &str, (src, dst): (VertexType, VertexType)) -> Parse<Option<GraphDecl>> {
        let (Token::Word(kind), Token::Sign("(")) = (self.peek().clone(), self.after_next()) else { return Ok(None) };
        let of_types = match kind.as_str() {
            "out_edges" | "links_of" | "negatives_of" => None,
            "sections" => Some(EdgeShare::Sections),
            "copies" => Some(EdgeShare::Copies),
            "samples_of" => Some(EdgeShare::Samples),
            _ => return Ok(None),
        };
        self.take();
        self.sign("(")?;
        let decl = if let Some(share) = of_types {
            self.vertex()?;
            GraphDecl { share, ..GraphDecl::new(name.to_owned(), src, dst, vec![]) }
        } else {
            let of = self.graph()?;
            let share = match kind.as_str() {
                "links_of" => Some(EdgeShare::Links(of)),
                "negatives_of" => Some(EdgeShare::Negatives(of)),
                _ => None,
            };
            match share {
                Some(share) => GraphDecl { share, ..GraphDecl::new(name.to_owned(), src, dst, vec![]) },
                None => {
                    let decl = self.parsed.flow.graphs[of.index()].clone();
                    GraphDecl { name: name.to_owned(), src, dst, share: EdgeShare::Out(of), ..decl }
                }
            }
        };
        self.sign(")")?;
        Ok(Some(decl))
    }

    /// `rank`, or `KIND(type)` with `mirrors.END`, `sections`, `owned`, `copies`, `shuffled` or `samples.COUNT`, if the next
    /// words say so.
    fn rows_of_ranks(&mut self) -> Parse<Option<VertexRows>> {
        let Token::Word(kind) = self.peek().clone() else { return Ok(None) };
        let mirrors = kind.strip_prefix("mirrors.").and_then(|kind| kind.parse::<Mirrors>().ok());
        let samples = kind.strip_prefix("samples.").and_then(|count| count.parse().ok());
        let rows = |of: VertexType| match (kind.as_str(), mirrors) {
            (_, Some(mirrors)) => Some(VertexRows::Mirrors(of, mirrors)),
            _ if samples.is_some() => samples.map(|count| VertexRows::Samples(of, count)),
            ("sections", None) => Some(VertexRows::Sections(of)),
            ("owned", None) => Some(VertexRows::Owned(of)),
            ("copies", None) => Some(VertexRows::Copies(of)),
            ("shuffled", None) => Some(VertexRows::Shuffled(of)),
            ("rank", None) => Some(VertexRows::Rank),
            ("replica", None) => Some(VertexRows::Replica),
            _ => None,
        };
        if rows(VertexType::new(0)).is_none() {
            return Ok(None);
        }
        self.take();
        match kind.as_str() {
            "rank" => return Ok(Some(VertexRows::Rank)),
            "replica" => return Ok(Some(VertexRows::Replica)),
            _ => {}
        }
        self.sign("(")?;
        let of = self.vertex()?;
        self.sign(")")?;
        Ok(rows(of))
    }

    /// `edges_of(graph)` or `links(negatives)`, if the next words say so.
    fn link_rows(&mut self) -> Parse<Option<VertexRows>> {
        let (Token::Word(kind), Token::Sign("(")) = (self.peek().clone(), self.after_next()) else { return Ok(None) };
        if !["edges_of", "links"].contains(&kind.as_str()) {
            return Ok(None);
        }
        self.take();
        self.sign("(")?;
        let rows = match kind.as_str() {
            "links" => VertexRows::Links { negatives: self.integer()? },
            _ => VertexRows::Edges(self.graph()?),
        };
        self.sign(")")?;
        Ok(Some(rows))
    }

    fn vertex_rows(&mut self) -> Parse<VertexRows> {
        if let Some(rows) = self.link_rows()? {
            return Ok(rows);
        }
        if let Some(rows) = self.rows_of_ranks()? {
            return Ok(rows);
        }
        let at = self.next;
        let (kind, of, stack) = self.derived()?;
        match (kind.as_str(), of) {
            ("members", None) => Ok(VertexRows::Members(stack)),
            ("pairs", Some(Of::End(direction))) => Ok(VertexRows::Pairs(stack, direction)),
            ("cells", Some(Of::End(direction))) => Ok(VertexRows::Cells(stack, direction)),
            _ => self.error_at(at, "expected `members`, `pairs.END` or `cells.END`"),
        }
    }

    /// The graph from vertices of the type `src` that is derived from a stack.
    fn incidence(&mut self, src: VertexType) -> Parse<(Stack, Incidence)> {
        let at = self.next;
        let (kind, of, stack) = self.derived()?;
        let of_members = match self.parsed.flow.vertex_types[src.index()].rows {
            VertexRows::Members(other) => Some(other),
            _ => None,
        };
        let incidence = match (kind.as_str(), of) {
            ("edges", None) => Incidence::Edges,
            ("vertices", Some(Of::End(direction))) => Incidence::Vertices(direction),
            ("members", Some(Of::End(direction))) => Incidence::Members(direction),
            ("cells", Some(Of::End(direction))) => Incidence::Cells(direction),
            ("range", Some(Of::Number(first))) => match of_members {
                Some(of) => Incidence::Range { of, first },
                None => return self.error_at(at, "the sources of `range.NUMBER` are the members of a stack"),
            },
            _ => {
                let words = "expected `edges`, `vertices.END`, `members.END`, `cells.END` or `range.NUMBER`";
                return self.error_at(at, words);
            }
        };
        Ok((stack, incidence))
    }

    fn dim(&mut self) -> Parse<Dim> {
        if self.accept("|") {
            let vertex = self.vertex()?;
            self.sign("|")?;
            Ok(Dim::Count(vertex))
        } else {
            self.integer().map(Dim::Fixed)
        }
    }

    /// A space: a vertex type, `edges(G)`, `sources(G)`, `destinations(G)` or `index(N)`.
    ///
    /// # Errors
    /// Unless one comes next, of a vertex type or graph that exists.
    pub fn space(&mut self) -> Parse<Space> {
        // A vertex type may have such a name, too.
        let called = self.tokens.get(self.next + 1).is_some_and(|after| after.token == Token::Sign("("));
        let word = match self.peek() {
            Token::Word(word) if called => word.clone(),
            _ => return self.vertex().map(Space::Vertices),
        };
        let of: fn(Graph) -> Space = match word.as_str() {
            "edges" => Space::Edges,
            "sources" => |graph| Space::Endpoints(graph, Direction::Out),
            "destinations" => |graph| Space::Endpoints(graph, Direction::In),
            "index" => {
                self.take();
                self.sign("(")?;
                let extent = self.integer()?;
                self.sign(")")?;
                return Ok(Space::Index(extent));
            }
            _ => return self.vertex().map(Space::Vertices),
        };
        self.take();
        self.sign("(")?;
        let graph = self.graph()?;
        self.sign(")")?;
        Ok(of(graph))
    }

    /// The type of a value: `f32[Paper, 64]`.
    ///
    /// # Errors
    /// Unless one comes next.
    pub fn ty(&mut self) -> Parse<Type> {
        let dtype = if self.accept_word("i32") {
            DType::I32
        } else if self.accept_word("f32") {
            DType::F32
        } else {
            return self.expected("a type");
        };
        self.sign("[")?;
        let mut dims = vec![];
        let mut space = Space::Unit;
        if matches!(self.peek(), Token::Word(_) | Token::Quoted(_)) {
            space = self.space()?;
            if self.accept(";") {
                dims.push(self.dim()?);
            }
        } else if *self.peek() != Token::Sign("]") {
            dims.push(self.dim()?);
        }
        while !dims.is_empty() && self.accept(",") {
            dims.push(self.dim()?);
        }
        self.sign("]")?;
        let mut layout = Layout::Dense;
        if self.accept_word("sparse") {
            self.sign("(")?;
            let at = self.next;
            let name = self.name()?;
            match name.strip_prefix('p').and_then(|digits| digits.parse().ok()) {
                Some(row) => layout = Layout::Sparse(Pattern(row)),
                None => return self.error_at(at, format!("there is no pattern `{name}`")),
            }
            self.sign(")")?;
        }
        Ok(Type { space, dims, dtype, layout })
    }

    fn binding(&mut self) -> Parse<Binding> {
        let at = self.next;
        let kind = self.name()?;
        match kind.as_str() {
            "step_number" => return Ok(Binding::StepNumber),
            "epoch_number" => return Ok(Binding::EpochNumber),
            _ => {}
        }
        self.sign("(")?;
        let binding = match kind.as_str() {
            "features" => {
                let vertex = self.vertex()?;
                let field = if self.accept(",") { Some(self.name()?) } else { None };
                Binding::Features(vertex, Matrix::of_field(field))
            }
            "train_labels" => {
                let vertex = self.vertex()?;
                self.sign(",")?;
                Binding::Features(vertex, Matrix::TrainLabels(self.name()?))
            }
            "label" => {
                let vertex = self.vertex()?;
                self.sign(",")?;
                Binding::Label(vertex, self.name()?)
            }
            "train_mask" => Binding::TrainMask(self.vertex()?),
            "time" => Binding::Time(self.vertex()?),
            "edge_time" => Binding::EdgeTime(self.graph()?),
            "edge_weight" => Binding::EdgeWeight(self.graph()?),
            "edge_count" => Binding::EdgeCount(self.graph()?),
            "edge_features" => Binding::EdgeFeatures(self.graph()?),
            "edge_rank" => {
                let graph = self.graph()?;
                self.sign(",")?;
                Binding::EdgeRank(graph, self.direction()?)
            }
            "is_link" => Binding::IsLink(self.graph()?),
            "given" => Binding::Given(self.name()?),
            "precomputed" => {
                let vertex = self.vertex()?;
                self.sign(",")?;
                Binding::Precomputed(vertex, self.name()?)
            }
            _ => return self.error_at(at, format!("nothing is bound by `{kind}`")),
        };
        self.sign(")")?;
        Ok(binding)
    }

    fn direction(&mut self) -> Parse<Direction> {
        let at = self.next;
        let word = self.name()?;
        match [Direction::In, Direction::Out].into_iter().find(|known| known.name() == word) {
            Some(direction) => Ok(direction),
            None => self.error_at(at, format!("expected `in` or `out`, found `{word}`")),
        }
    }

    fn init(&mut self) -> Parse<Init> {
        let at = self.next;
        let kind = self.name()?;
        self.sign("(")?;
        let init = match kind.as_str() {
            "constant" => Init::Constant(self.float()?),
            "glorot" => {
                let fan_in = self.dim()?;
                self.sign(",")?;
                Init::Glorot { fan_in, fan_out: self.integer()? }
            }
            "he" => Init::He { fan_in: self.dim()? },
            "uniform" => Init::Uniform(self.float()?),
            "normal" => Init::Normal { std: self.float()? },
            _ => return self.error_at(at, format!("no parameter starts as `{kind}`")),
        };
        self.sign(")")?;
        Ok(init)
    }
}
