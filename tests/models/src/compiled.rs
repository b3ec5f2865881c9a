//! Source texts as programs, and programs bound to a world for the interpreter.

use hgnnc_driver::{Analyzed, Endpoints, LowerOptions, SizeInfo, analyze, lower};
use hgnnc_executable::Executable;
use hgnnc_graph::SemanticGraph;
use hgnnc_interp::{Bindings, Evaluation, Tensor};
use hgnnc_ir::dataflow::{Binding, GraphDecl, InputDecl, Matrix, SelfLoops};
use hgnnc_ir::{Dataflow, Dim, Direction, Graph, Input, Op, OutputKind, Param};
use hgnnc_passes::{differentiate, update};

use crate::world::{Edges, World};

/// A model as unoptimised programs.
pub struct Compiled {
    /// Output of the front end. Its program has dropout, the outputs and the losses.
    pub model: Analyzed,
    /// The evaluation program, without dropout.
    pub infer: Dataflow,
    /// The program of a training step; `None` without a train block.
    pub train: Option<Dataflow>,
}

/// Compiles a model to unoptimised programs.
///
/// # Panics
/// When it has errors; the message is the compiler's report.
#[track_caller]
pub fn compile(source: &str) -> Compiled {
    compile_for(source, "")
}

/// As [`compile`], for an output of edges that is asked for.
///
/// # Panics
/// When the model has errors.
#[track_caller]
pub fn compile_for(source: &str, output: &str) -> Compiled {
    let analysis = analyze("model.hgnn", source);
    let Some(mut model) = analysis.model else {
        panic!("{}", hgnnc_diag::render::plain(&analysis.sources, analysis.diagnostics.iter()))
    };
    model.ask_for(output);
    let infer = without_dropout(&model.flow);
    let train = model.train.as_ref().map(|spec| {
        let mut flow = model.flow.clone();
        let loss = flow.result("loss").expect("a trained model has a loss");
        let grads = differentiate(&mut flow, loss, &params(&model.flow));
        update(&mut flow, &grads, &spec.optimizer);
        flow
    });
    Compiled { model, infer, train }
}

/// The compiler's errors and warnings about a text.
pub fn report(source: &str) -> String {
    let analysis = analyze("model.hgnn", source);
    hgnnc_diag::render::plain(&analysis.sources, analysis.diagnostics.iter())
}

/// All parameters of a program.
pub fn params(flow: &Dataflow) -> Vec<Param> {
    (0..flow.params.len()).map(Param::new).collect()
}

/// The program with dropout disabled, and without the training loss.
pub fn without_dropout(flow: &Dataflow) -> Dataflow {
    let mut infer = flow.with_tables_of("infer");
    for value in &flow.values {
        let op = if matches!(value.op, Op::RandomMask { .. }) { Op::Const(1.0) } else { value.op.clone() };
        infer.add(op, &value.args);
    }
    let is_loss = |kind: &OutputKind| *kind == OutputKind::Result("loss".into());
    infer.outputs = flow.outputs.iter().filter(|o| !is_loss(&o.kind)).cloned().collect();
    infer
}

impl Compiled {
    /// The program of a training step.
    ///
    /// # Panics
    /// When the model has no train block.
    pub fn training(&self) -> &Dataflow {
        self.train.as_ref().expect("the model has a train block")
    }

    /// The programs after all optimising passes, with the sizes of a world.
    pub fn optimised(&self, world: &World) -> Executable {
        self.lowered(world, LowerOptions::default())
    }

    /// The programs with the sizes of a world, otherwise as `options` says.
    pub fn lowered(&self, world: &World, options: LowerOptions) -> Executable {
        let bindings = self.bind(world);
        let sizes = SizeInfo {
            vertices: bindings.num_vertices.iter().map(|&n| n as u64).collect(),
            edges: bindings.edges.iter().map(|e| e.len() as u64).collect(),
            ends: endpoints(&bindings),
            ..SizeInfo::default()
        };
        let options = LowerOptions { sizes: Some(sizes), ..options };
        lower(&self.model, &options).expect("disabled passes exist").executable
    }

    /// Binds a world and random parameters to all programs of this model: seed 5, step 1.
    pub fn bind(&self, world: &World) -> Bindings {
        let flow = self.train.as_ref().unwrap_or(&self.infer);
        bind(flow, world)
    }

    /// One output for all vertices, by the interpreter, without dropout.
    pub fn output(&self, world: &World, name: &str) -> Tensor {
        let bindings = self.bind(world);
        self.output_of(&bindings, name)
    }

    /// As [`Compiled::output`], with given bindings.
    ///
    /// # Panics
    /// When there is no such output.
    pub fn output_of(&self, bindings: &Bindings, name: &str) -> Tensor {
        let run = interpret(&self.infer, bindings);
        run[self.infer.result(name).expect("the model has this output")].clone()
    }

    /// The parameter called `name`.
    ///
    /// # Panics
    /// When there is none; the message lists all names.
    #[track_caller]
    pub fn param(&self, name: &str) -> Param {
        let names: Vec<&str> = self.model.flow.params.iter().map(|p| p.name.as_str()).collect();
        let found = names.iter().position(|n| *n == name);
        Param::new(found.unwrap_or_else(|| panic!("no parameter `{name}`; there are {names:?}")))
    }
}

/// Numbers of distinct sources and destinations of each graph.
pub fn endpoints(bindings: &Bindings) -> Vec<Endpoints> {
    let num = |graph, direction| bindings.endpoints(graph, direction).len() as u64;
    let of = |graph| Endpoints {
        sources: num(graph, Direction::Out),
        destinations: num(graph, Direction::In),
        ..Endpoints::default()
    };
    (0..bindings.edges.len()).map(|g| of(Graph::new(g))).collect()
}

/// Runs a program on the interpreter.
///
/// # Panics
/// When the bindings do not fit.
#[track_caller]
pub fn interpret(flow: &Dataflow, bindings: &Bindings) -> Evaluation {
    hgnnc_interp::run(flow, bindings).unwrap_or_else(|error| panic!("{error}"))
}

/// Binds a world to a program.
pub fn bind(flow: &Dataflow, world: &World) -> Bindings {
    let world = &world.clone().with_instances(flow);
    let mut bindings = Bindings { seed: 5, step: 1, ..Bindings::default() };
    bindings.num_vertices = flow.vertex_types.iter().map(|v| world.count(&v.name)).collect();
    let names: Vec<&str> = flow.relations.iter().map(|r| r.name.as_str()).collect();
    bindings.edges = flow.graphs.iter().map(|g| semantic_graph(flow, world, &names, g)).collect();
    bindings.shuffle(flow);
    for (index, decl) in flow.inputs.iter().enumerate() {
        let (rows, width) = (bindings.rows(decl.ty.space), bindings.width(&decl.ty.dims));
        let random = |world: &World| Tensor::new(rows, width, world.numbers(&decl.name, rows * width, 1.0));
        let per_vertex = |numbers: Vec<f64>| Tensor::new(rows, 1, numbers);
        let tensor = match &decl.binding {
            Binding::Features(vertex, Matrix::TrainLabels(_)) => {
                let name = &flow.vertex_types[vertex.index()].name;
                let known = world.trained(name).into_iter().zip(world.classes(name, 3));
                let row = |(trained, class): (bool, i32)| {
                    (0..width).map(move |column| f64::from(trained && usize::try_from(class) == Ok(column)))
                };
                Tensor::new(rows, width, known.flat_map(row).collect())
            }
            Binding::Features(..) if decl.ty.is_sparse() => {
                let mut dense = random(world);
                dense.data.iter_mut().filter(|x| x.abs() < 0.6).for_each(|x| *x = 0.0);
                dense
            }
            Binding::Features(..)
            | Binding::EdgeWeight(_)
            | Binding::EdgeFeatures(_)
            | Binding::Given(_)
            | Binding::Precomputed(..) => random(world),
            Binding::Time(_) | Binding::EdgeTime(_) => {
                let mut times = random(world);
                times.data.iter_mut().for_each(|x| *x = (*x * 9.0).round());
                times
            }
            Binding::IsLink(_) => {
                let mut bits = random(world);
                bits.data.iter_mut().for_each(|x| *x = f64::from(*x > 0.0));
                bits
            }
            Binding::Label(vertex, _) => {
                let name = &flow.vertex_types[vertex.index()].name;
                match decl.ty.dims[..] {
                    [] => per_vertex(world.classes(name, 3).into_iter().map(f64::from).collect()),
                    _ => {
                        let mut bits = random(world);
                        bits.data.iter_mut().for_each(|x| *x = f64::from(*x > 0.0));
                        bits
                    }
                }
            }
            Binding::TrainMask(vertex) => {
                let name = &flow.vertex_types[vertex.index()].name;
                let labelled = world.classes(name, 3);
                let used = world.trained(name).into_iter().zip(labelled).map(|(t, class)| t && class >= 0);
                per_vertex(used.map(f64::from).collect())
            }
            Binding::EdgeCount(graph) => {
                let decl = &flow.graphs[graph.index()];
                let paths = world.paths(&steps(decl, &names));
                let count = |edge: &(u32, u32)| paths.get(edge).map_or(1.0, |&n| n as f64);
                per_vertex(bindings.edges[graph.index()].iter().map(count).collect())
            }
            // Counted by the interpreter.
            Binding::EdgeRank(..) => continue,
            Binding::StepNumber => Tensor::scalar(bindings.step as f64),
            Binding::EpochNumber => Tensor::scalar(0.0),
        };
        bindings.inputs.insert(Input::new(index), tensor);
    }
    // Times are differences to the newest one, as they are bound.
    let is_time = |input: &&InputDecl| matches!(input.binding, Binding::Time(_) | Binding::EdgeTime(_));
    let times: Vec<Input> =
        (0..flow.inputs.len()).map(Input::new).filter(|at| is_time(&&flow.inputs[at.index()])).collect();
    let newest = times.iter().flat_map(|at| bindings.inputs[at].data.clone()).fold(f64::MIN, f64::max);
    for at in times {
        if let Some(tensor) = bindings.inputs.get_mut(&at) {
            tensor.data.iter_mut().for_each(|time| *time -= newest);
        }
    }
    for (index, decl) in flow.params.iter().enumerate() {
        let len = bindings.width(&decl.dims);
        let tensor = Tensor::new(1, len, world.numbers(&decl.name, len, 0.7));
        bindings.params.insert(Param::new(index), tensor);
    }
    bindings
}

fn steps<'n>(decl: &GraphDecl, names: &[&'n str]) -> Vec<(&'n str, bool)> {
    decl.steps.iter().map(|s| (names[s.relation as usize], s.reverse)).collect()
}

/// The semantic graph of a declaration, by following every edge.
fn semantic_graph(flow: &Dataflow, world: &World, names: &[&str], decl: &GraphDecl) -> Edges {
    let mut edges = match steps(decl, names)[..] {
        [] => vec![],
        [(relation, false)] => world.edges(relation),
        [(relation, true)] => world.edges(&format!("reverse_{relation}")),
        ref path => world.reachable(path),
    };
    match decl.self_loops {
        SelfLoops::Kept => {}
        SelfLoops::Added => edges = world.with_self_loops(&flow.vertex_types[decl.src.index()].name, edges),
        SelfLoops::Removed => edges.retain(|&(src, dst)| src != dst),
    }
    if let Some(kept) = decl.kept {
        edges = kept_of(&edges, kept.at_most);
        if let Some(position) = kept.position {
            let in_edges = edges.chunk_by(|a, b| a.1 == b.1);
            edges = in_edges.filter_map(|row| row.get(position as usize).copied()).collect();
        }
    }
    edges
}

/// At most so many in-edges of each destination, of edges in the order of destinations and sources.
///
/// # Panics
/// If they are no edges.
pub fn kept_of(edges: &[(u32, u32)], at_most: u32) -> Edges {
    let (src, dst): (Vec<u32>, Vec<u32>) = edges.iter().copied().unzip();
    let end = |ids: &[u32]| ids.iter().max().map_or(0, |&last| last as usize + 1);
    let graph = SemanticGraph::from_edges("kept", end(&src), end(&dst), &src, &dst).expect("edges");
    let csc = graph.at_most(at_most).csc;
    let row = |(dst, row): (usize, &[u64])| {
        let sources = &csc.indices[row[0] as usize..row[1] as usize];
        sources.iter().map(|&src| (src, dst as u32)).collect::<Vec<_>>()
    };
    csc.indptr.windows(2).enumerate().flat_map(row).collect()
}

/// Extents of a parameter.
pub fn extents(bindings: &Bindings, dims: &[Dim]) -> Vec<usize> {
    dims.iter().map(|&d| bindings.extent(d)).collect()
}
