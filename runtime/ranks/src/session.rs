//! A session of one rank that looks like one of a single process.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use hgnnc_data::buffer::{HostBuffer, SharedBuffer};
use hgnnc_data::classes::ClassCounts;
use hgnnc_data::metrics::{Predictions, Tally};
use hgnnc_data::stacks::num_own_params;
use hgnnc_data::{Arena, BoundData, ExecError, Result, StateId, Target};
use hgnnc_dist::{Comm, CommError, Tag, all_gather, gather_texts};
use hgnnc_executable::Role;
use hgnnc_ir::training::Task;
use hgnnc_ir::types::{Space, VertexType};
use hgnnc_session::{Clock, Exchanged, ParamStore, Rows, Session, StepKey};
use hgnnc_trace::Times;

use crate::{Placed, SharedInputs};

/// A result with the rows of all ranks.
#[derive(Debug)]
pub(crate) struct Gathered {
    width: usize,
    vertex: Option<VertexType>,
    numbers: Vec<f32>,
}

/// Programs of ranks, with the rows of one of them.
#[derive(Debug)]
pub(crate) struct RankSession {
    pub inner: Box<dyn Session>,
    /// The data of all ranks.
    pub whole: BoundData,
    /// Its inputs, for mini-batches.
    pub inputs: SharedInputs,
    /// The rows of this rank of those that are divided.
    pub own_inputs: SharedInputs,
    pub comm: Arc<dyn Comm>,
    pub placed: Arc<Placed>,
    /// Parameter and slot of each optimizer state.
    pub states: Vec<StateId>,
    /// Once they are collected, and until they change: tables with the rows of all ranks, by parameter, on the rank that
    /// writes files.
    pub collected: Option<HashMap<usize, Vec<f32>>>,
    /// The programs.
    pub roles: Vec<Role>,
    /// By program: the rows of its results.
    pub spaces: Vec<HashMap<String, Space>>,
    /// The last fetched results, by program and name.
    pub gathered: HashMap<(usize, String), Gathered>,
    /// Those that are of the last run.
    pub fresh: HashSet<(usize, String)>,
    /// The result whose own rows are compared with the labels, instead of gathering it.
    pub counted: Option<Counted>,
}

/// A result that is compared with the labels of the vertices that this rank owns.
#[derive(Debug)]
pub(crate) struct Counted {
    program: usize,
    name: String,
    task: Task,
    target: Target,
    /// By part of the split: its vertices that this rank owns, counted from the first one.
    parts: Vec<Vec<u32>>,
}

/// Some of the labels of `rows` vertices.
fn labels_of(target: &Target, own: Range<usize>, rows: usize) -> Target {
    match target {
        Target::Classes(classes) => Target::Classes(classes[own].to_vec()),
        Target::Rows(numbers) => {
            let width = numbers.len() / rows.max(1);
            Target::Rows(numbers[own.start * width..own.end * width].to_vec())
        }
    }
}

pub(crate) fn failed(error: CommError) -> ExecError {
    ExecError::Ranks(error.to_string())
}

impl RankSession {
    /// The own rows of a part of the split in the result that is compared with the labels.
    fn own_predictions(&mut self, part: usize) -> Result<Option<Predictions<'_>>> {
        let Some(Counted { program, name, task, target, parts }) = &self.counted else { return Ok(None) };
        self.inner.fetch(*program, name)?;
        let own = |Rows { width, numbers: outputs, .. }| Predictions {
            outputs,
            width,
            row_loss: None,
            target,
            rows: &parts[part],
            task: *task,
        };
        Ok(self.inner.result(*program, name).map(own))
    }

    /// The numbers of all ranks, in their order, to the end of `into`. Ranks may have different numbers of them, which it
    /// returns.
    pub fn gather<T: Pod>(&self, own: &[T], into: &mut Vec<T>) -> Result<Vec<usize>> {
        self.gather_to(None, own, into)
    }

    /// Fetches a result, and gathers its rows on one rank or on all. Whether there were rows to gather.
    fn fetch_on(&mut self, only: Option<usize>, program: usize, name: &str) -> Result<bool> {
        self.inner.fetch(program, name)?;
        let space = self.spaces.get(program).and_then(|spaces| spaces.get(name));
        let key = (program, name.to_owned());
        if !matches!(space, Some(Space::Vertices(_) | Space::Edges(_))) || self.fresh.contains(&key) {
            return Ok(false);
        }
        // The memory of the last result of this name.
        let mut numbers = self.gathered.remove(&key).map_or_else(Vec::new, |old| old.numbers);
        numbers.clear();
        let Some(Rows { width, vertex, numbers: own }) = self.inner.result(program, name) else { return Ok(false) };
        self.gather_to(only, own, &mut numbers)?;
        self.gathered.insert(key, Gathered { width, vertex, numbers });
        Ok(true)
    }

    /// [`RankSession::gather`] on one rank, or on all; nothing comes to the others.
    fn gather_to<T: Pod>(&self, only: Option<usize>, own: &[T], into: &mut Vec<T>) -> Result<Vec<usize>> {
        let size = self.comm.size();
        if size == 1 {
            into.extend_from_slice(own);
            return Ok(vec![own.len()]);
        }
        let lens = all_gather(&*self.comm, Tag::STEP, &[own.len() as u64]).map_err(failed)?;
        let lens: Vec<usize> = lens.into_iter().map(|len| len as usize).collect();
        let receives = |rank: usize| only.is_none_or(|only| only == rank);
        let here = usize::from(receives(self.comm.rank()));
        let counts: Vec<usize> = lens.iter().map(|&len| len * here * size_of::<T>()).collect();
        let start = into.len();
        into.resize(start + here * lens.iter().sum::<usize>(), T::zeroed());
        let copies;
        let send = match only {
            Some(_) => own,
            None => {
                copies = own.repeat(size);
                &copies[..]
            }
        };
        let send_counts: Vec<usize> = (0..size).map(|rank| usize::from(receives(rank)) * size_of_val(own)).collect();
        let send = (bytemuck::cast_slice(send), &send_counts[..]);
        let recv = (bytemuck::cast_slice_mut(&mut into[start..]), &counts[..]);
        self.comm.alltoallv(Tag::STEP, send, recv).map_err(failed)?;
        Ok(lens)
    }
}

fn one_process(what: &str) -> ExecError {
    ExecError::Unsupported(format!("{what} is done by one process: start the command without `mpirun`"))
}

impl Session for RankSession {
    fn data(&self) -> &BoundData {
        &self.whole
    }

    fn load(&mut self, _data: BoundData, _inputs: &mut [HostBuffer]) -> Result<BoundData> {
        Err(one_process("binding other data"))
    }

    fn run(&mut self, program: usize, key: StepKey, times: &mut Times) -> Result<()> {
        self.fresh.retain(|(of, _)| *of != program);
        self.inner.run(program, key, times)
    }

    fn update(&mut self, program: usize, key: StepKey, times: &mut Times) -> Result<()> {
        if self.roles.get(program) == Some(&Role::Train) {
            self.collected = None;
        }
        self.inner.update(program, key, times)
    }

    fn results(&self, program: usize) -> Vec<&str> {
        self.inner.results(program)
    }

    fn fetch(&mut self, program: usize, name: &str) -> Result<()> {
        if self.fetch_on(None, program, name)? {
            self.fresh.insert((program, name.to_owned()));
        }
        Ok(())
    }

    fn fetch_to_write(&mut self, program: usize, name: &str) -> Result<()> {
        // No rank calls it fresh, since all must take part when others need the rows as well.
        self.fetch_on(Some(0), program, name).map(drop)
    }

    fn count_result(&mut self, program: usize, name: &str, task: Task) -> Result<()> {
        let space = self.spaces.get(program).and_then(|spaces| spaces.get(name));
        let (Some(Space::Vertices(vertex)), Some(target)) = (space, self.whole.labels()) else { return Ok(()) };
        let rows = self.whole.num_vertices[vertex.index()];
        let own = self.own_rows(*vertex, rows);
        let of_part = |part: &Vec<u32>| {
            let within = part.iter().filter(|&&vertex| own.contains(&(vertex as usize)));
            within.map(|&vertex| vertex - own.start as u32).collect()
        };
        let parts = self.whole.truths[0].parts.iter().map(of_part).collect();
        let target = labels_of(target, own.clone(), rows);
        self.counted = Some(Counted { program, name: name.to_owned(), task, target, parts });
        Ok(())
    }

    fn count(&mut self, part: usize, tally: &mut Tally) -> Result<bool> {
        if !self.own_predictions(part)?.is_some_and(|own| own.tally(tally)) {
            return Ok(false);
        }
        let all = self.of_all(&tally.numbers())?;
        *tally = Tally::of_all(all.iter().map(|of_rank| &of_rank[..]));
        Ok(true)
    }

    fn count_classes(&mut self, part: usize) -> Result<Option<ClassCounts>> {
        let mut counts = ClassCounts::default();
        let Some(own) = self.own_predictions(part)? else { return Ok(None) };
        counts.add(&own);
        let all = self.of_all(&counts.numbers())?;
        Ok(Some(ClassCounts::of_all(all.iter().map(|of_rank| &of_rank[..]))))
    }

    fn result(&self, program: usize, name: &str) -> Option<Rows<'_>> {
        match self.gathered.get(&(program, name.to_owned())) {
            Some(Gathered { width, vertex, numbers }) => Some(Rows { width: *width, vertex: *vertex, numbers }),
            None => self.inner.result(program, name),
        }
    }

    fn write_input(&mut self, _index: usize, _numbers: &[f32]) -> Result<()> {
        Err(one_process("computing with given inputs"))
    }

    fn input(&self, _index: usize) -> Option<Vec<f32>> {
        None
    }

    fn shared_input(&self, index: usize) -> Option<SharedBuffer> {
        self.inputs.0.get(index)?.clone()
    }

    fn own_rows_of_input(&self, index: usize) -> Option<SharedBuffer> {
        self.own_inputs.0.get(index)?.clone()
    }

    fn params(&mut self) -> &mut dyn ParamStore {
        self
    }

    fn arena(&self, program: Option<usize>) -> Arena {
        self.inner.arena(program)
    }

    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    fn agree(&mut self, any: bool) -> Result<bool> {
        let all = all_gather(&*self.comm, Tag::STEP, &[any.into()]).map_err(failed)?;
        Ok(all.iter().any(|&says| says != 0))
    }

    fn collect_params(&mut self) -> Result<()> {
        let mut collected = HashMap::new();
        let tables: Vec<usize> =
            (0..num_own_params(&self.placed.one)).filter(|&param| self.rows_of(param).is_some()).collect();
        for param in tables {
            let own = self.own_param(param)?;
            let all = self.rows_to_write(own)?;
            if self.writes_files() {
                collected.insert(param, all);
            }
        }
        self.collected = Some(collected);
        Ok(())
    }

    fn inner(&mut self) -> Option<&mut dyn Session> {
        Some(&mut *self.inner)
    }

    fn exchanged(&self) -> Exchanged {
        self.inner.exchanged()
    }

    fn of_all(&mut self, own: &[u64]) -> Result<Vec<Vec<u64>>> {
        let mut all = vec![];
        let lens = self.gather(own, &mut all)?;
        let mut rest = &all[..];
        let of_rank = |len: usize| rest.split_off(..len).unwrap_or_default().to_vec();
        Ok(lens.into_iter().map(of_rank).collect())
    }

    fn shared_changed(&mut self) {
        self.collected = None;
    }

    fn own_rows(&self, vertex: VertexType, rows: usize) -> Range<usize> {
        self.placed.division.vertices(vertex, rows).of_rank(self.comm.rank())
    }

    fn own_part(&self, count: usize) -> Range<usize> {
        self.placed.division.rows(count).of_rank(self.comm.rank())
    }

    fn all_rows(&mut self, own: Vec<f32>) -> Result<Vec<f32>> {
        let mut all = vec![];
        self.gather(&own, &mut all)?;
        Ok(all)
    }

    fn rows_to_write(&mut self, own: Vec<f32>) -> Result<Vec<f32>> {
        let mut all = vec![];
        self.gather_to(Some(0), &own, &mut all)?;
        Ok(all)
    }

    fn all_texts(&mut self, own: &str) -> Result<Vec<String>> {
        gather_texts(&*self.comm, Tag::STEP, own).map_err(failed)
    }

    fn process(&self) -> (usize, usize) {
        (self.comm.rank(), self.comm.size())
    }
}
