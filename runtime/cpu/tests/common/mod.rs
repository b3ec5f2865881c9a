//! Runs a program on the engine and on the interpreter and compares all results.

#![allow(dead_code)]

use std::collections::BTreeMap;

use hgnnc_codegen_cpu::Options;
use hgnnc_cpu::{Engine, EngineOptions, thread_pool};
use hgnnc_cuda::{Device, DeviceEngine, testing};
use hgnnc_data::{BoundData, ExecError, InputData, Result, Topology};
use hgnnc_executable::cpu::CpuProgram;
use hgnnc_fusion::{LoweringOptions, SoftmaxForm};
use hgnnc_interp::random_program::random_program;
use hgnnc_interp::{Bindings, Tensor};
use hgnnc_ir::dataflow::{
    Binding, GraphDecl, Init, InputDecl, Matrix, ParamDecl, PatternDecl, RelationDecl, Step, VertexTypeDecl,
};
use hgnnc_ir::random::uniform;
use hgnnc_ir::*;
use hgnnc_kernel_ir::kernel::{Pieces, Program};
use hgnnc_kernels::simd::Dispatch;
use hgnnc_machine::{CodeMode, KernelFeatures};
use hgnnc_passes::{Endpoints, Optimizer, OptimizerOptions, SizeInfo, differentiate, update};
use hgnnc_ptx::{PtxCompiler, Target};

/// Maximum edges of graphs on which code with loops over rows is interpreted.
const MOST_EDGES_IN_LOOPS: usize = 1000;
/// A target that keeps no rows in registers.
pub const IN_LOOPS: Target = Target { elements_per_lane: 0, ..Target::SM_80 };

/// Numbers in [-1, 1), different for each salt.
pub fn numbers(salt: u64, len: usize) -> Vec<f32> {
    (0..len as u64).map(|i| (2.0 * uniform(salt, i) - 1.0) as f32).collect()
}

/// Source type, destination type and edges of a graph.
pub type Edges = (u32, u32, Vec<(u32, u32)>);

/// A program under construction with the data that it is bound to.
pub struct Case {
    pub flow: Dataflow,
    pub bindings: Bindings,
    pub data: BoundData,
    pub params: Vec<Vec<f32>>,
    /// The kernels that engines of the case choose from.
    pub features: KernelFeatures,
}

/// A program with the machine code that the options ask for.
pub fn compiled(program: &Program, data: &BoundData, code: CodeMode, features: KernelFeatures) -> CpuProgram {
    let options = Options::new(code, features, Dispatch::new(features).level());
    hgnnc_codegen_cpu::compile(program, &Options { sizes: Some(data.sizes()), ..options })
}

impl Case {
    /// Vertex types with these counts, and graphs (source type, destination type, edges).
    pub fn new(counts: &[usize], graphs: &[Edges]) -> Self {
        let mut flow = Dataflow::new("case");
        for v in 0..counts.len() {
            flow.vertex_types.push(VertexTypeDecl::new(format!("t{v}"), format!("t{v}")));
        }
        let mut data = BoundData { num_vertices: counts.to_vec(), ..BoundData::default() };
        let mut bindings = Bindings { num_vertices: counts.to_vec(), seed: 5, step: 3, ..Bindings::default() };
        for (i, (src, dst, edges)) in graphs.iter().enumerate() {
            let name = format!("g{i}");
            let (src, dst) = (VertexType(*src), VertexType(*dst));
            let dataset_name = name.clone();
            flow.relations.push(RelationDecl { name: format!("r{i}"), dataset_name, src, dst });
            flow.graphs.push(GraphDecl::new(name.clone(), src, dst, vec![Step { relation: i as u32, reverse: false }]));
            let mut sorted = edges.clone();
            sorted.sort_by_key(|&(s, d)| (d, s));
            let (num_src, num_dst) = (counts[src.index()], counts[dst.index()]);
            data.graphs.push(Topology::from_edges(&name, num_src, num_dst, edges).expect("edges exist"));
            bindings.edges.push(sorted);
        }
        Self { flow, bindings, data, params: vec![], features: KernelFeatures::ALL }
    }

    pub fn input(&mut self, ty: Type, numbers: Vec<f32>) -> Value {
        let index = self.flow.inputs.len();
        let rows = self.bindings.rows(ty.space);
        let width = self.bindings.width(&ty.dims);
        // The binding only has to be unique: data is given by index.
        let name = format!("x{index}");
        let binding = Binding::Label(VertexType(0), name.clone());
        let input = self.flow.declare_input(InputDecl { name, ty, binding });
        let tensor = Tensor::new(rows, width, numbers.iter().map(|&x| f64::from(x)).collect());
        self.bindings.inputs.insert(input, tensor);
        self.data.inputs.push(InputData::Numbers(numbers.into()));
        self.flow.add(Op::Input(input), &[])
    }

    /// An input of random numbers.
    pub fn random(&mut self, space: Space, dims: &[usize]) -> Value {
        let ty = Type::fixed(space, dims);
        let len = self.bindings.rows(space) * dims.iter().product::<usize>();
        let numbers = numbers(100 + self.flow.inputs.len() as u64, len);
        self.input(ty, numbers)
    }

    pub fn labels(&mut self, vertex: VertexType, labels: Vec<i32>) -> Value {
        let index = self.flow.inputs.len();
        let ty = Type { dtype: DType::I32, ..Type::new(Space::Vertices(vertex), vec![]) };
        let binding = Binding::Label(vertex, format!("labels{index}"));
        let input = self.flow.declare_input(InputDecl { name: format!("labels{index}"), ty, binding });
        let tensor = Tensor::new(labels.len(), 1, labels.iter().map(|&l| f64::from(l)).collect());
        self.bindings.inputs.insert(input, tensor);
        self.data.inputs.push(InputData::Classes(labels));
        self.flow.add(Op::Input(input), &[])
    }

    /// Sparse features: rows of (column, number).
    pub fn sparse(&mut self, vertex: VertexType, columns: usize, rows: &[Vec<(u32, f32)>]) -> Value {
        let pattern = self.flow.declare_pattern(PatternDecl { vertex, columns, matrix: Matrix::Features });
        let mut indptr = vec![0u64];
        let (mut indices, mut values, mut dense) = (vec![], vec![], vec![0.0; rows.len() * columns]);
        for (r, row) in rows.iter().enumerate() {
            for &(c, x) in row {
                indices.push(c);
                values.push(x);
                dense[r * columns + c as usize] = f64::from(x);
            }
            indptr.push(indices.len() as u64);
        }
        let topology = Topology::from_csc("features", columns, rows.len(), indptr, indices).expect("valid rows");
        self.data.patterns.push(topology);
        let ty = Type { layout: Layout::Sparse(pattern), ..Type::fixed(Space::Vertices(vertex), &[columns]) };
        let binding = Binding::Features(vertex, Matrix::Features);
        let input = self.flow.declare_input(InputDecl { name: "sparse".into(), ty, binding });
        self.bindings.inputs.insert(input, Tensor::new(rows.len(), columns, dense));
        self.data.inputs.push(InputData::Numbers(values.into()));
        self.flow.add(Op::Input(input), &[])
    }

    pub fn param(&mut self, dims: &[Dim]) -> Value {
        let len = self.bindings.width(dims);
        let name = format!("w{}", self.params.len());
        let init = Init::Constant(0.0);
        let param = self.flow.declare_param(ParamDecl::new(name, dims.to_vec(), init, false));
        let values = numbers(900 + self.params.len() as u64, len);
        self.bindings.params.insert(param, Tensor::new(1, len, values.iter().map(|&x| f64::from(x)).collect()));
        self.params.push(values);
        self.flow.add(Op::Param(param), &[])
    }

    pub fn weight(&mut self, dims: &[usize]) -> Value {
        self.param(&dims.iter().map(|&d| Dim::Fixed(d)).collect::<Vec<_>>())
    }

    pub fn result(&mut self, value: Value) {
        let name = format!("r{}", self.flow.outputs.len());
        self.flow.output(name, value);
    }

    /// The engine, with parameters filled in.
    pub fn engine(&self, threads: usize, code: CodeMode) -> Engine {
        self.engine_of(self.program(), threads, code)
    }

    /// The kernels of the program.
    pub fn program(&self) -> Program {
        hgnnc_fusion::lower(&self.flow).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same with online softmaxes.
    pub fn online_program(&self) -> Program {
        self.lowered(LoweringOptions::CPU.with_softmax(SoftmaxForm::InOnePass))
    }

    /// An engine of another form of the program.
    pub fn engine_of(&self, program: Program, threads: usize, code: CodeMode) -> Engine {
        let options = EngineOptions { threads, dispatch: Dispatch::new(self.features), ..EngineOptions::default() };
        let program = compiled(&program, &self.data, code, self.features);
        let mut engine = match Engine::new(&[&program], self.data.clone(), options) {
            Ok(engine) => engine,
            Err(error) => panic!("{error}"),
        };
        self.fill(&mut engine);
        engine
    }

    /// Sets parameters, and optimizer states to zero, since updates are in place.
    fn fill(&self, engine: &mut Engine) {
        for (i, values) in self.params.iter().enumerate() {
            engine.param(i).copy_from_slice(values);
        }
        for i in 0..engine.states().len() {
            engine.state(i).fill(0.0);
        }
    }

    /// Results by name after one run.
    pub fn run(&self, threads: usize, code: CodeMode) -> BTreeMap<String, Vec<f32>> {
        self.run_program(self.program(), threads, code)
    }

    fn run_program(&self, program: Program, threads: usize, code: CodeMode) -> BTreeMap<String, Vec<f32>> {
        let mut engine = self.engine_of(program, threads, code);
        // Twice: results must not depend on the memory contents left by the first run.
        for _ in 0..2 {
            self.fill(&mut engine);
            engine.run(0, self.bindings.seed, self.bindings.step, 0, &mut Default::default());
        }
        let names: Vec<String> = engine.results(0).iter().map(|r| r.name.clone()).collect();
        names
            .into_iter()
            .map(|name| {
                let values = engine.result(0, &name).expect("a result of the program").1.to_vec();
                (name, values)
            })
            .collect()
    }

    /// Results, new parameters and new states by name after one run. States are zero before it.
    pub fn trained_once(&self, threads: usize, code: CodeMode) -> BTreeMap<String, Vec<f32>> {
        let mut engine = self.engine(threads, code);
        engine.run(0, self.bindings.seed, self.bindings.step, 0, &mut Default::default());
        let named = |name: &String| (name.clone(), engine.result(0, name).expect("a result").1.to_vec());
        let mut all: BTreeMap<_, _> = engine.results(0).iter().map(|result| named(&result.name)).collect();
        engine.commit(0);
        let states = engine.states().to_vec();
        for output in &self.flow.outputs {
            let numbers = match output.kind {
                OutputKind::Result(_) => continue,
                OutputKind::UpdateParam(param) => engine.param(param.index()).to_vec(),
                OutputKind::UpdateState(param, slot) => {
                    let index = states.iter().position(|&state| state == (param, slot));
                    engine.state(index.expect("a state of the program")).to_vec()
                }
            };
            all.insert(name_of(&self.flow, &output.kind), numbers);
        }
        all
    }

    /// The kernels generated for a GPU.
    pub fn gpu_program(&self) -> Program {
        self.lowered(LoweringOptions::GPU)
    }

    /// The same with softmaxes in several passes.
    pub fn gpu_program_in_passes(&self) -> Program {
        self.lowered(LoweringOptions::GPU.with_softmax(SoftmaxForm::InPasses))
    }

    fn lowered(&self, form: LoweringOptions) -> Program {
        hgnnc_fusion::lower_with(&self.flow, form).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`Case::trained_once`], of PTX that is executed with every access checked.
    pub fn on_device(&self, what: &str, program: &Program) -> BTreeMap<String, Vec<f32>> {
        self.on_device_for(what, program, Target::SM_80)
    }

    /// The same of PTX for a target.
    pub fn on_device_for(&self, what: &str, program: &Program, target: Target) -> BTreeMap<String, Vec<f32>> {
        self.executed_on(what, program, testing::device(), target).0
    }

    /// The same on a device, with the entries that were executed.
    pub fn executed_on(
        &self,
        what: &str,
        program: &Program,
        device: Box<dyn Device>,
        target: Target,
    ) -> (BTreeMap<String, Vec<f32>>, Vec<String>) {
        let failed = |error: ExecError| -> ! { panic!("{what}: {error}\n{program}") };
        let pool = thread_pool(1).unwrap_or_else(|error| failed(error));
        let engine = DeviceEngine::new(&[program], self.data.clone(), device, (&PtxCompiler, target), pool);
        let mut engine = engine.unwrap_or_else(|error| failed(error));
        let mut go = || -> Result<BTreeMap<String, Vec<f32>>> {
            for (index, values) in self.params.iter().enumerate() {
                engine.set_param(index, values)?;
            }
            engine.run_until_update(0, self.bindings.seed, self.bindings.step, 0)?;
            let mut all = BTreeMap::new();
            for output in &self.flow.outputs {
                if let OutputKind::Result(name) = &output.kind {
                    all.insert(name.clone(), engine.result(0, name)?.expect("a result of the program").2);
                }
            }
            engine.run_updates(0)?;
            engine.commit(0)?;
            let states = engine.states().to_vec();
            for output in &self.flow.outputs {
                let numbers = match output.kind {
                    OutputKind::Result(_) => continue,
                    OutputKind::UpdateParam(param) => engine.param(param.index())?,
                    OutputKind::UpdateState(param, slot) => {
                        let index = states.iter().position(|&state| state == (param, slot));
                        engine.state(index.expect("a state of the program"))?
                    }
                };
                all.insert(name_of(&self.flow, &output.kind), numbers);
            }
            Ok(all)
        };
        let all = go().unwrap_or_else(|error| failed(error));
        (all, engine.entries(0).iter().map(|entry| entry.name.clone()).collect())
    }

    /// Compares all results with the interpreter's, executed by kernels, by machine code and by PTX. The tolerance is
    /// relative to the largest number of a result (sums of many terms cancel), and absolute below 1.
    pub fn check(&self, tolerance: f64) {
        self.check_named("the case", tolerance);
        // As PTX, rows of thousands of edges are summed by few threads.
        self.check_device("the case", 12.0 * tolerance);
    }

    /// [`Case::check`] of one case among many.
    pub fn check_named(&self, what: &str, tolerance: f64) {
        let oracle = hgnnc_interp::run(&self.flow, &self.bindings).expect("the bindings fit");
        // `Auto` selects one of the two per loop; on these small graphs it selects kernels.
        for code in [CodeMode::Interpreted, CodeMode::Native] {
            self.check_code(what, &oracle, tolerance, code, self.program());
            // Rows of three edges are split.
            let pieces = Some(Pieces { least: 2, most: usize::MAX });
            self.check_code(what, &oracle, tolerance, code, self.program().with_pieces(pieces));
            let online = self.online_program();
            if online != self.program() {
                self.check_code(what, &oracle, tolerance, code, online.clone());
                self.check_code(what, &oracle, tolerance, code, online.with_pieces(pieces));
            }
        }
    }

    /// Compares all results of PTX with the interpreter's.
    pub fn check_device(&self, what: &str, tolerance: f64) {
        let oracle = hgnnc_interp::run(&self.flow, &self.bindings).expect("the bindings fit");
        let program = self.gpu_program();
        self.check_ptx(what, &oracle, tolerance, &program);
        // One block per row is slow to interpret.
        let edges = self.data.graphs.iter().chain(&self.data.patterns).map(Topology::num_edges).max().unwrap_or(0);
        let in_loops = edges <= MOST_EDGES_IN_LOOPS;
        if in_loops {
            self.check_target(&format!("{what}, in loops"), &oracle, tolerance, &program, IN_LOOPS);
        }
        // Results do not depend on the order of blocks.
        let mut interleaved = program.clone();
        interleaved.launches.iter_mut().for_each(|launch| launch.interleaved = launch.kernels.len() / 2);
        if interleaved != program {
            self.check_ptx(&format!("{what}, interleaved"), &oracle, tolerance, &interleaved);
        }
        // Rows of four edges are split, unless there are very many.
        let pieces = Some(Pieces { least: (edges / 16).max(1), most: usize::MAX });
        let cut = program.clone().with_pieces(pieces);
        if cut != program {
            self.check_ptx(&format!("{what}, in pieces"), &oracle, tolerance, &cut);
        }
        let passes = self.gpu_program_in_passes();
        if passes != program {
            // Their pieces need as much memory as entire rows.
            let passes = passes.with_pieces(pieces);
            self.check_ptx(&format!("{what}, in passes and pieces"), &oracle, tolerance, &passes);
            if in_loops {
                self.check_target(&format!("{what}, in passes and loops"), &oracle, tolerance, &passes, IN_LOOPS);
            }
        }
    }

    fn check_ptx(&self, what: &str, oracle: &hgnnc_interp::Evaluation, tolerance: f64, program: &Program) {
        self.check_target(what, oracle, tolerance, program, Target::SM_80);
    }

    fn check_target(
        &self,
        what: &str,
        oracle: &hgnnc_interp::Evaluation,
        tolerance: f64,
        program: &Program,
        target: Target,
    ) {
        let found = self.on_device_for(what, program, target);
        for output in &self.flow.outputs {
            let OutputKind::Result(name) = &output.kind else { continue };
            let op = &self.flow.value(output.value).op;
            let what = format!("{what}, PTX: {name} ({op:?})");
            close(&what, &found[name], &oracle[output.value].data, tolerance, &|| format!("{}\n{program}", self.flow));
        }
    }

    fn check_code(
        &self,
        what: &str,
        oracle: &hgnnc_interp::Evaluation,
        tolerance: f64,
        code: CodeMode,
        program: Program,
    ) {
        let one = self.run_program(program.clone(), 1, code);
        let three = self.run_program(program, 3, code);
        assert_eq!(bits(&one), bits(&three), "{what}, {code:?}: results are the same for any number of threads");
        for output in &self.flow.outputs {
            let OutputKind::Result(name) = &output.kind else { continue };
            let op = &self.flow.value(output.value).op;
            let what = format!("{what}, {code:?}: {name} ({op:?})");
            close(&what, &one[name], &oracle[output.value].data, tolerance, &|| self.flow.to_string());
        }
    }
}

/// Compares number by number. `program` is shown where they differ.
pub fn close(what: &str, found: &[f32], exact: &[f64], tolerance: f64, program: &dyn Fn() -> String) {
    assert_eq!(found.len(), exact.len(), "{what}");
    let scale = exact.iter().copied().filter(|x| x.is_finite()).fold(1.0, |m: f64, x| m.max(x.abs()));
    for (i, (&found, &exact)) in found.iter().zip(exact).enumerate() {
        let found = f64::from(found);
        let same = found == exact || (found - exact).abs() <= tolerance * scale || (found.is_nan() && exact.is_nan());
        assert!(same, "{what}[{i}]: {found} instead of {exact}\n{}", program());
    }
}

/// A name for each output of a program.
pub fn name_of(flow: &Dataflow, kind: &OutputKind) -> String {
    match kind {
        OutputKind::Result(name) => name.clone(),
        OutputKind::UpdateParam(param) => format!("new {}", flow.params[param.index()].name),
        OutputKind::UpdateState(param, slot) => format!("new state {slot} of {}", flow.params[param.index()].name),
    }
}

fn bits(results: &BTreeMap<String, Vec<f32>>) -> Vec<(&String, Vec<u32>)> {
    results.iter().map(|(name, values)| (name, values.iter().map(|x| x.to_bits()).collect())).collect()
}

/// Random edges; `skew` > 1 concentrates them on low destinations, so that some rows have a high degree.
pub fn random_edges(salt: u64, num_src: usize, num_dst: usize, edges: usize, skew: f64) -> Vec<(u32, u32)> {
    (0..edges as u64)
        .map(|e| {
            let src = (uniform(salt, 2 * e) * num_src as f64) as u32;
            let dst = (uniform(salt, 2 * e + 1).powf(skew) * num_dst as f64) as u32;
            (src.min(num_src as u32 - 1), dst.min(num_dst as u32 - 1))
        })
        .collect()
}

/// Bound data from interpreter bindings. Sparse inputs store the non-zero elements.
pub fn data_of(flow: &Dataflow, bindings: &Bindings) -> BoundData {
    let mut data = BoundData { num_vertices: bindings.num_vertices.clone(), ..BoundData::default() };
    for (decl, edges) in flow.graphs.iter().zip(&bindings.edges) {
        let (num_src, num_dst) = (bindings.num_vertices[decl.src.index()], bindings.num_vertices[decl.dst.index()]);
        data.graphs.push(Topology::from_edges(&decl.name, num_src, num_dst, edges).expect("edges exist"));
    }
    data.patterns = vec![Topology::default(); flow.patterns.len()];
    for (index, decl) in flow.inputs.iter().enumerate() {
        let bound = bindings.inputs.get(&Input::new(index));
        data.inputs.push(match (&decl.binding, bound, decl.ty.layout) {
            (Binding::StepNumber, ..) => InputData::StepNumber,
            (Binding::EpochNumber, ..) => InputData::EpochNumber,
            (_, None, _) => InputData::Missing,
            (_, Some(tensor), _) if decl.ty.dtype == DType::I32 => {
                InputData::Classes(tensor.data.iter().map(|&x| x as i32).collect())
            }
            (_, Some(tensor), Layout::Dense) => {
                InputData::Numbers(tensor.data.iter().map(|&x| x as f32).collect::<Vec<_>>().into())
            }
            (_, Some(tensor), Layout::Sparse(pattern)) => {
                let (mut indptr, mut columns, mut values) = (vec![0u64], vec![], vec![]);
                for row in 0..tensor.rows {
                    for (column, &x) in tensor.row(row).iter().enumerate().filter(|(_, x)| **x != 0.0) {
                        columns.push(column as u32);
                        values.push(x as f32);
                    }
                    indptr.push(columns.len() as u64);
                }
                data.patterns[pattern.index()] =
                    Topology::from_csc("features", tensor.width, tensor.rows, indptr, columns).expect("valid rows");
                InputData::Numbers(values.into())
            }
        });
    }
    data
}

/// A case of an existing program.
pub fn case_of(flow: Dataflow, bindings: Bindings) -> Case {
    let data = data_of(&flow, &bindings);
    let params = (0..flow.params.len())
        .map(|i| bindings.params[&Param::new(i)].data.iter().map(|&x| x as f32).collect())
        .collect();
    Case { flow, bindings, data, params, features: KernelFeatures::ALL }
}

/// A random program with gradients as results, and updates by stochastic gradient descent with momentum.
pub fn training_program(seed: u64) -> (Dataflow, Bindings) {
    trained(random_program(seed))
}

/// A program with gradients as results, and updates by stochastic gradient descent with momentum.
pub fn trained((mut flow, bindings): (Dataflow, Bindings)) -> (Dataflow, Bindings) {
    let wrt: Vec<Param> = (0..flow.params.len()).map(Param::new).collect();
    let loss = flow.result("loss").expect("a loss");
    let gradients = differentiate(&mut flow, loss, &wrt);
    for (param, gradient) in &gradients {
        flow.output(format!("d{param}"), *gradient);
    }
    let optimizer = Optimizer::Sgd { lr: 0.01, momentum: 0.9, nesterov: false, weight_decay: 0.0 };
    update(&mut flow, &gradients, &OptimizerOptions::new(optimizer));
    (flow, bindings)
}

/// Sizes for which passes choose rows of active vertices.
pub fn few_endpoints(flow: &Dataflow) -> SizeInfo {
    SizeInfo {
        vertices: vec![1000; flow.vertex_types.len()],
        edges: vec![2; flow.graphs.len()],
        ends: vec![Endpoints { sources: 1, destinations: 1, ..Endpoints::default() }; flow.graphs.len()],
        ..SizeInfo::default()
    }
}

/// A stack whose members have edges from so many vertices: the pairs of a member and a source, and the graph from these
/// pairs to the members of the stack.
pub fn stack_of(rows: &[u32]) -> (Case, Space, Graph) {
    // Each member has edges from other vertices than the one before.
    let most = rows.iter().copied().max().unwrap_or(0) + 1;
    let edges = |(member, &rows): (usize, &u32)| (0..rows).map(|v| (v + member as u32 % 2, v % 3)).collect();
    let graphs: Vec<Edges> = rows.iter().enumerate().map(edges).map(|edges| (0, 1, edges)).collect();
    let mut case = Case::new(&[most as usize, 3], &graphs);
    case.flow.stacks.push(StackDecl { name: "s".into(), members: (0..rows.len()).map(Graph::new).collect() });
    let (stack, direction) = (Stack::new(0), Direction::Out);
    let pairs = Space::Vertices(case.flow.stacked_type(VertexRows::Pairs(stack, direction)));
    let members = case.flow.stacked_graph(stack, Incidence::Members(direction));
    stacks::derive(&case.flow, &mut case.bindings.num_vertices, &mut case.bindings.edges);
    hgnnc_data::stacks::derive(&case.flow, &mut case.data.num_vertices, &mut case.data.graphs).expect("few rows");
    (case, pairs, members)
}

/// A grouped product of each form. The members of a stack have these numbers of rows.
pub fn grouped_products(rows: &[u32], batch: usize, k: usize, n: usize) -> Case {
    let (mut case, pairs, members) = stack_of(rows);
    let groups = Space::Vertices(case.flow.graphs[members.index()].dst);
    let dims = |inner: &[usize]| if batch > 1 { [&[batch], inner].concat() } else { inner.to_vec() };
    let (x, y) = (case.random(pairs, &dims(&[k])), case.random(pairs, &dims(&[n])));
    let w = case.random(groups, &dims(&[k, n]));
    let batch = usize::from(batch > 1);
    for (form, args) in [(ProductForm::MatMul, [x, w]), (ProductForm::MatMulT, [y, w]), (ProductForm::Outer, [x, y])] {
        let product = case.flow.add(Op::Grouped { form, batch, members }, &args);
        case.result(product);
    }
    case
}
