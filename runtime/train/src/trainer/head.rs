//! Outputs of some vertices at a time, by the prediction head ([`Executable::head`]).
//!
//! An evaluation beside mini-batches leaves the rows that the head reads; metrics of a part need the outputs of its
//! vertices only, and of those only as many at a time as stay in the caches of a processor.

use std::sync::Arc;

use hgnnc_data::buffer::HostBuffer;
use hgnnc_data::metrics::{MetricSums, Predictions};
use hgnnc_data::{BoundData, ExecError, InputData, Result, Target, part_index};
use hgnnc_executable::{Executable, Role};
use hgnnc_ir::dataflow::{Binding, Dataflow, InputDecl};
use hgnnc_ir::training::{self, Metric, Part, ROW_LOSS, Task, Training};
use hgnnc_ir::types::{Type, VertexType};
use hgnnc_session::{Backend, Rows, Session, StepKey};
use hgnnc_trace::Times;
use rayon::prelude::*;

use super::INFER;
use crate::copy_params;

/// Index of the head in its session.
const HEAD: usize = 0;

/// Bytes of the outputs of a run, about what a processor's caches hold.
const OUTPUT_BYTES: usize = 4 << 20;

/// Vertices of a run at least, and per gathering task.
const LEAST_VERTICES: usize = 1024;

/// The session of a prediction head.
pub(super) struct Head {
    session: Box<dyn Session>,
    pool: Arc<rayon::ThreadPool>,
    /// Trained vertex type, and its number of vertices.
    vertex: VertexType,
    num_vertices: usize,
    task: Task,
    /// The trained output.
    output: String,
    inputs: Vec<HeadInput>,
    buffers: Vec<HostBuffer>,
    /// Previously bound data, kept for its memory.
    spare: BoundData,
    /// Labels of the vertices of the last run.
    target: Target,
    /// Vertices of a run.
    chunk: usize,
    /// The positions `0..chunk`.
    positions: Vec<u32>,
    /// By part: metrics of the last evaluation, once they are needed.
    parts: [Option<MetricSums>; 3],
    /// Whether parameters are older than those of the last evaluation.
    stale: bool,
}

/// An input of the head.
enum HeadInput {
    /// Rows of a result of the evaluation program.
    Result(String),
    /// The label.
    Label,
}

impl Head {
    /// Opens the head of an executable. `None` if it has none.
    pub fn new(executable: &Executable, backend: &mut dyn Backend, data: &BoundData) -> Result<Option<Self>> {
        let trained = executable.training.as_ref().and_then(Training::first);
        let (Some(flow), Some(trained)) = (&executable.head, trained) else { return Ok(None) };
        let training::Target::Vertices { vertex, .. } = trained.target else {
            return Err(internal("a head of pairs"));
        };
        let mut inputs = vec![];
        for decl in &flow.inputs {
            inputs.push(match &decl.binding {
                Binding::Given(name) => HeadInput::Result(name.clone()),
                Binding::Label(..) => HeadInput::Label,
                other => return Err(internal(&format!("the head reads {other:?}"))),
            });
        }
        let target = match data.labels() {
            Some(Target::Rows(_)) => Target::Rows(vec![]),
            _ => Target::Classes(vec![]),
        };
        // Opened without vertices; rows are bound for each run.
        let empty = |input: &HeadInput| match (input, &target) {
            (HeadInput::Label, Target::Classes(_)) => InputData::Classes(vec![]),
            _ => InputData::Held(0),
        };
        let bound = BoundData {
            num_vertices: vec![0; flow.vertex_types.len()],
            inputs: inputs.iter().map(empty).collect(),
            ..BoundData::default()
        };
        let chunk = chunk(flow);
        Ok(Some(Self {
            buffers: inputs.iter().map(|_| HostBuffer::zeros(0)).collect(),
            spare: bound.clone(),
            session: backend.session(&[Role::Head], bound)?,
            pool: Arc::clone(backend.pool()),
            vertex,
            num_vertices: data.num_vertices[vertex.index()],
            task: trained.task,
            output: trained.output.clone(),
            inputs,
            target,
            chunk,
            positions: (0..chunk as u32).collect(),
            parts: [const { None }; 3],
            stale: true,
        }))
    }

    /// To be called after an evaluation: earlier outputs are no longer valid.
    pub fn invalidate(&mut self) {
        self.parts = [const { None }; 3];
        self.stale = true;
    }

    /// Names of the outputs.
    pub fn results(&self) -> Vec<&str> {
        self.session.results(HEAD)
    }

    /// Results of the evaluation program that it reads, which are no outputs of the model.
    pub fn reads(&self) -> impl Iterator<Item = &str> {
        self.inputs.iter().filter_map(|input| match input {
            HeadInput::Result(name) => Some(name.as_str()),
            HeadInput::Label => None,
        })
    }

    /// Value of a metric over a part, with the parameters of the last evaluation of `whole`.
    pub fn metric(&mut self, whole: &mut dyn Session, part: Part, metric: Metric) -> Result<Option<f64>> {
        let index = part_index(part);
        if self.parts[index].is_none() {
            let mut sums = MetricSums::default();
            self.each(whole, part, |predictions| sums.add(predictions))?;
            self.parts[index] = Some(sums);
        }
        Ok(self.parts[index].as_ref().and_then(|sums| sums.metric(metric, self.task)))
    }

    /// The outputs of a part, some vertices at a time, with the parameters of the last evaluation of `whole`.
    pub fn each(&mut self, whole: &mut dyn Session, part: Part, mut visit: impl FnMut(&Predictions<'_>)) -> Result<()> {
        self.refresh(whole)?;
        for vertices in whole.data().part(part).chunks(self.chunk) {
            self.run(whole, vertices)?;
            let (task, output) = (self.task, self.output.clone());
            self.session.fetch(HEAD, ROW_LOSS)?;
            self.session.fetch(HEAD, &output)?;
            let row_loss = self.session.result(HEAD, ROW_LOSS).map(|rows| rows.numbers);
            let missing = || internal(&format!("no result `{output}`"));
            let Rows { width, numbers: outputs, .. } = self.session.result(HEAD, &output).ok_or_else(missing)?;
            let (target, rows) = (&self.target, &self.positions[..vertices.len()]);
            visit(&Predictions { outputs, width, row_loss, target, rows, task });
        }
        Ok(())
    }

    /// Elements of an output for all vertices, the width of a row, and the vertex type.
    pub fn output(&mut self, whole: &mut dyn Session, name: &str) -> Result<(Vec<f32>, usize, Option<VertexType>)> {
        self.refresh(whole)?;
        let (mut all, mut width) = (vec![], 0);
        let vertices: Vec<u32> = (0..self.num_vertices as u32).collect();
        for vertices in vertices.chunks(self.chunk) {
            self.run(whole, vertices)?;
            let missing = || internal(&format!("no result `{name}`"));
            let rows = self.session.read(HEAD, name)?.ok_or_else(missing)?;
            width = rows.width;
            all.extend_from_slice(&rows.numbers[..vertices.len() * width]);
        }
        Ok((all, width, Some(self.vertex)))
    }

    /// Copies the parameters, and fetches what the head reads.
    fn refresh(&mut self, whole: &mut dyn Session) -> Result<()> {
        if !std::mem::take(&mut self.stale) {
            return Ok(());
        }
        copy_params(whole, &mut *self.session)?;
        self.reads().try_for_each(|name| whole.fetch(INFER, name))
    }

    /// Computes the outputs of some vertices.
    fn run(&mut self, whole: &dyn Session, vertices: &[u32]) -> Result<()> {
        let Self { pool, buffers, target, .. } = self;
        let labels = whole.data().labels().ok_or_else(|| internal("no labels"))?;
        match (&mut *target, labels) {
            (Target::Classes(into), Target::Classes(labels)) => {
                into.clear();
                into.extend(vertices.iter().map(|&vertex| labels[vertex as usize]));
            }
            (Target::Rows(into), Target::Rows(labels)) => {
                let width = labels.len() / self.num_vertices.max(1);
                into.resize(vertices.len() * width, 0.0);
                gather(pool, labels, width, vertices, into);
            }
            _ => return Err(internal("labels of another kind")),
        }
        let mut data = std::mem::take(&mut self.spare);
        data.num_vertices[self.vertex.index()] = vertices.len();
        for ((input, bound), buffer) in self.inputs.iter().zip(&mut data.inputs).zip(buffers) {
            let (numbers, width) = match (input, &*target) {
                (HeadInput::Result(name), _) => {
                    let missing = || internal(&format!("no result `{name}`"));
                    let rows = whole.result(INFER, name).ok_or_else(missing)?;
                    (rows.numbers, rows.width)
                }
                (HeadInput::Label, Target::Rows(of_vertices)) => {
                    buffer.grow(of_vertices.len());
                    buffer.elements()[..of_vertices.len()].copy_from_slice(of_vertices);
                    *bound = InputData::Held(of_vertices.len());
                    continue;
                }
                (HeadInput::Label, Target::Classes(classes)) => {
                    match bound {
                        InputData::Classes(into) => into.clone_from(classes),
                        _ => *bound = InputData::Classes(classes.clone()),
                    }
                    continue;
                }
            };
            let len = vertices.len() * width;
            buffer.grow(len);
            gather(pool, numbers, width, vertices, &mut buffer.elements()[..len]);
            *bound = InputData::Held(len);
        }
        self.spare = self.session.load(data, &mut self.buffers)?;
        let (key, times) = (StepKey::default(), &mut Times::default());
        self.session.run(HEAD, key, times)?;
        self.session.update(HEAD, key, times)
    }
}

/// Vertices of a run.
fn chunk(flow: &Dataflow) -> usize {
    let bytes: usize = flow.outputs.iter().map(|output| 4 * width(flow.ty(output.value))).sum();
    (OUTPUT_BYTES / bytes.max(1)).next_multiple_of(LEAST_VERTICES)
}

/// Elements of a row.
fn width(ty: &Type) -> usize {
    ty.dims.iter().filter_map(|dim| dim.fixed()).product()
}

/// Bytes of the session of a head when it runs.
pub(crate) fn memory(executable: &Executable, backend: &mut dyn Backend, data: &BoundData) -> Result<u64> {
    let (Some(flow), Some(training::Target::Vertices { vertex, .. })) =
        (&executable.head, executable.training.as_ref().and_then(Training::target))
    else {
        return Ok(0);
    };
    let rows = data.num_vertices[vertex.index()].min(chunk(flow));
    let mut bound = BoundData { num_vertices: vec![0; flow.vertex_types.len()], ..BoundData::default() };
    bound.num_vertices[vertex.index()] = rows;
    let input = |decl: &InputDecl| match (&decl.binding, data.labels()) {
        (Binding::Label(..), Some(Target::Classes(_))) => InputData::Classes(vec![0; rows]),
        _ => InputData::Held(rows * width(&decl.ty)),
    };
    bound.inputs = flow.inputs.iter().map(input).collect();
    Ok(backend.plan(&[Role::Head], bound, None)?.memory().bytes())
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Head({} vertices a run)", self.chunk)
    }
}

/// Copies rows of `width` elements.
fn gather(pool: &rayon::ThreadPool, from: &[f32], width: usize, rows: &[u32], into: &mut [f32]) {
    let width = width.max(1);
    let copy = |(into, rows): (&mut [f32], &[u32])| {
        for (to, &row) in into.chunks_exact_mut(width).zip(rows) {
            to.copy_from_slice(&from[row as usize * width..][..width]);
        }
    };
    let per_task = LEAST_VERTICES / 4;
    pool.install(|| into.par_chunks_mut(per_task * width).zip(rows.par_chunks(per_task)).for_each(copy));
}

fn internal(what: &str) -> ExecError {
    ExecError::Unsupported(format!("internal error: {what}"))
}
