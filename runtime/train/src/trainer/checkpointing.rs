//! Parameters, best-epoch parameters and checkpoints of a trainer.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use hgnnc_data::stacks::num_own_params;
use hgnnc_data::{ExecError, Result, SEED, StateId};
use hgnnc_ir::types::{Dim, Param, VertexType};
use hgnnc_session::Session;

use super::Trainer;
use super::epochs::is_tolerated;
use crate::checkpoint::{self, PartTensor, Parts, Progress};
use crate::weights::{self, Tensor};

/// A tensor of a checkpoint.
struct Saved {
    name: String,
    shape: Vec<usize>,
    /// The type of the vertices that have its rows, the first dimension, if each process has some of them.
    divided_by: Option<VertexType>,
}

/// Errors on all processes that train together if one of them could not write its file; on all of them such that training
/// goes on ([`is_tolerated`]), or on none.
fn all_written(session: &mut dyn Session, own: Result<()>) -> Result<()> {
    let text = own.as_ref().err().map_or_else(String::new, ToString::to_string);
    let is_fatal = own.as_ref().err().is_some_and(|error| !is_tolerated(error));
    let all = session.all_texts(&text)?;
    let is_fatal = session.agree(is_fatal)?;
    match (own, all.iter().position(|text| !text.is_empty())) {
        (Err(own), _) if is_fatal && is_tolerated(&own) => Err(ExecError::Ranks(own.to_string())),
        (Err(own), _) => Err(own),
        (Ok(()), Some(rank)) if is_fatal => Err(ExecError::Ranks(format!("rank {rank}: {}", all[rank]))),
        (Ok(()), Some(rank)) => Err(ExecError::OtherRank { rank, error: all[rank].clone() }),
        (Ok(()), None) => Ok(()),
    }
}

/// Writes the rows that each process has of tensors, with their elements, each to a file of its own.
fn save_parts(
    session: &mut dyn Session,
    folder: &Path,
    parts: Parts,
    tensors: &[(&Saved, &Vec<f32>)],
) -> Result<Parts> {
    let (process, processes) = session.process();
    let parts = Parts { files: processes, ..parts };
    let rows = |(saved, data): &(&Saved, &Vec<f32>)| data.len() / saved.shape[1..].iter().product::<usize>().max(1);
    let own = tensors.iter().map(|tensor| {
        let shape = [&[rows(tensor)], &tensor.0.shape[1..]].concat();
        (tensor.0.name.clone(), Tensor { shape, data: tensor.1 })
    });
    let written = checkpoint::save_part(folder, &parts, process, own.collect());
    all_written(session, written)?;
    let counts = session.of_all(&tensors.iter().map(|tensor| rows(tensor) as u64).collect::<Vec<_>>())?;
    let tensor = |(index, (saved, _)): (usize, &(&Saved, &Vec<f32>))| PartTensor {
        name: saved.name.clone(),
        shape: saved.shape.clone(),
        rows: counts.iter().map(|of_process| of_process[index]).collect(),
    };
    let parts = Parts { tensors: tensors.iter().enumerate().map(tensor).collect(), ..parts };
    let found = if process == 0 { parts.check_there(folder) } else { Ok(()) };
    all_written(session, found)?;
    Ok(parts)
}

impl Trainer {
    /// Keeps the current parameters as the best ones, on the device if it has memory for them. The host copy is then
    /// updated at the checkpoint interval, so that it survives a device failure, and on request.
    pub(super) fn keep_best(&mut self, epoch: u64) -> Result<()> {
        if self.current()?.params().keep_best()? {
            self.best_on_device = true;
            return if self.best_read.elapsed() >= self.options.checkpoint_every { self.read_best() } else { Ok(()) };
        }
        let params = self.session.params();
        self.best.iter_mut().enumerate().try_for_each(|(i, kept)| params.read_own(i, kept))?;
        self.best_of = Some(epoch);
        Ok(())
    }

    /// Downloads the parameters of the best epoch from a device if the host copy is older.
    pub(super) fn read_best(&mut self) -> Result<()> {
        if self.best_on_device && self.best_of != self.progress.best_epoch {
            // A device failure during the download leaves the old copy intact.
            let mut read: Vec<Vec<f32>> = self.best.iter().map(|kept| vec![0.0; kept.len()]).collect();
            let params = self.session.params();
            read.iter_mut().enumerate().try_for_each(|(i, kept)| params.read_best(i, kept))?;
            (self.best, self.best_of) = (read, self.progress.best_epoch);
        }
        self.best_read = Instant::now();
        Ok(())
    }

    pub(super) fn restore_best(&mut self) -> Result<()> {
        if self.progress.best_epoch.is_none() {
            return Ok(());
        }
        self.current()?;
        let params = self.session.params();
        if self.best_on_device {
            return params.restore_best();
        }
        self.best.iter().enumerate().try_for_each(|(i, kept)| params.write_own(i, kept))
    }

    /// The elements that this process has of the current parameters, in the order of the model.
    ///
    /// # Errors
    /// When a device fails.
    pub fn own_params(&mut self) -> Result<Vec<Vec<f32>>> {
        let num = self.shapes().len();
        let store = self.current()?.params();
        let own = |index: usize| {
            let mut own = vec![0.0; store.own_len(index)];
            store.read_own(index, &mut own).map(|()| own)
        };
        (0..num).map(own).collect()
    }

    /// Current parameters, in the order of the model. After training by several processes, only the one that writes files
    /// has all rows of tables.
    ///
    /// # Errors
    /// When a device fails, or the rows of a table are on other processes.
    pub fn params(&mut self) -> Result<Vec<Vec<f32>>> {
        let mut params: Vec<Vec<f32>> =
            self.shapes().iter().map(|(_, shape)| vec![0.0; shape.iter().product()]).collect();
        let store = self.current()?.params();
        params.iter_mut().enumerate().try_for_each(|(i, param)| store.read(i, param))?;
        Ok(params)
    }

    /// Name and shape of each parameter, in the order of the model.
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let data = self.session.data();
        let extent = |dim: &Dim| match *dim {
            Dim::Fixed(extent) => extent,
            Dim::Count(vertex) => data.num_vertices[vertex.index()],
        };
        let own = num_own_params(&self.executable.infer);
        let params = self.executable.infer.params[..own].iter();
        params.map(|p| (p.name.clone(), p.dims.iter().map(extent).collect())).collect()
    }

    /// The parameters whose states an optimizer state has one after the other: that of a stack has those of its entries.
    fn params_of_state(&self, param: Param) -> Vec<Param> {
        // The program of batches has stacks of its own.
        let tables = self.executable.train.as_ref().unwrap_or(&self.executable.infer);
        let own = num_own_params(&self.executable.infer);
        match tables.params.get(param.index()) {
            Some(stack) if param.index() >= own => stack.entries.clone(),
            _ => vec![param],
        }
    }

    /// Writes the current parameters by name; after [`Trainer::run`] those of the best epoch. Of several processes, the
    /// first one writes, after training.
    ///
    /// # Errors
    /// When the file cannot be written; an old one is then unchanged.
    pub fn save_weights(&mut self, path: &Path) -> Result<()> {
        if !self.session.writes_files() {
            return Ok(());
        }
        let values = self.params()?;
        let shapes = self.shapes();
        let tensors = shapes.into_iter().zip(&values).map(|((name, shape), data)| (name, Tensor { shape, data }));
        weights::write(path, tensors.collect(), None)
    }

    /// Gives the process that writes files all rows of the best parameters, where several train together: after an error
    /// that all of them have, and before one of them ends.
    pub(super) fn collect_best(&mut self) -> Result<()> {
        if self.session.process().1 == 1 {
            return Ok(());
        }
        for index in 0..self.best.len() {
            if self.divided_by(index).is_some() {
                let own = std::mem::take(&mut self.best[index]);
                self.best[index] = self.session.rows_to_write(own)?;
            }
        }
        Ok(())
    }

    /// The type of the vertices that have the rows of a parameter, if each process has rows of its own.
    fn divided_by(&self, index: usize) -> Option<VertexType> {
        match self.executable.infer.params.get(index)?.dims.first() {
            Some(Dim::Count(vertex)) if self.session.process().1 > 1 => Some(*vertex),
            _ => None,
        }
    }

    /// Writes the parameters of the best epoch by name, and returns the epoch: after a device failure, the best one
    /// with a host copy. Writes nothing without a best epoch, or if other processes have ended with a part of it.
    ///
    /// # Errors
    /// When the file cannot be written; an old one is then unchanged.
    pub fn save_best(&mut self, path: &Path) -> Result<Option<u64>> {
        // After a device failure the previous host copy is used.
        let _ = self.read_best();
        let shapes = self.shapes();
        let whole =
            |((_, shape), kept): (&(String, Vec<usize>), &Vec<f32>)| kept.len() == shape.iter().product::<usize>();
        if !shapes.iter().zip(&self.best).all(whole) {
            return Ok(None);
        }
        if self.best_of.is_some() {
            let tensors =
                shapes.into_iter().zip(&self.best).map(|((name, shape), data)| (name, Tensor { shape, data }));
            if self.session.writes_files() {
                weights::write(path, tensors.collect(), None)?;
            }
        }
        Ok(self.best_of)
    }

    /// Reads parameters by name.
    ///
    /// # Errors
    /// When the file cannot be read or does not have exactly the parameters of the model.
    pub fn load_weights(&mut self, path: &Path) -> Result<()> {
        let file = weights::read(path)?;
        if checkpoint::is_one(&file) {
            let reason = "is a checkpoint, which holds more than weights: `hgnnc train` with `--checkpoint FOLDER --resume` and \
                          `--weights-out FILE` writes those of its best epoch";
            return Err(ExecError::Weights { path: path.into(), reason: reason.into() });
        }
        self.set_weights(path, &file)
    }

    /// The current parameters by name; after [`Trainer::run`] those of the best epoch.
    ///
    /// # Errors
    /// When a device fails.
    pub fn weights(&mut self) -> Result<weights::File> {
        let values = self.params()?;
        let tensors = self.shapes().into_iter().zip(values);
        Ok(weights::File { tensors: tensors.map(|((name, shape), data)| (name, (shape, data))).collect(), text: None })
    }

    /// Sets the parameters by name. `path` is what they are called in messages.
    ///
    /// # Errors
    /// When they are not exactly those of the model, or not finite.
    pub fn set_weights(&mut self, path: &Path, file: &weights::File) -> Result<()> {
        let shapes = self.shapes();
        weights::check(path, file, &shapes)?;
        weights::check_finite(path, file)?;
        let params = self.current()?.params();
        shapes.iter().enumerate().try_for_each(|(i, (name, _))| params.write(i, &file.tensors[name].1))
    }

    /// Parameter and slot of each optimizer state.
    fn states(&mut self) -> Vec<StateId> {
        match &self.batches {
            Some(batches) => batches.states().to_vec(),
            None => self.session.params().states().to_vec(),
        }
    }

    /// The elements that this process has of an optimizer state.
    fn read_state(&mut self, index: usize) -> Result<Vec<f32>> {
        self.current()?;
        match &mut self.batches {
            Some(batches) => batches.read_state(index),
            None => self.session.params().read_state(index),
        }
    }

    /// The elements that this process has of the optimizer states, by parameter.
    fn states_of_params(&mut self) -> Result<Vec<Vec<f32>>> {
        let mut all = vec![];
        for (index, (of, _)) in self.states().into_iter().enumerate() {
            let (state, params) = (self.read_state(index)?, self.params_of_state(of).len());
            let len = state.len() / params.max(1);
            all.extend((0..params).map(|number| state[number * len..(number + 1) * len].to_vec()));
        }
        Ok(all)
    }

    /// Overwrites what [`Trainer::read_state`] reads.
    fn write_state(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        self.current()?;
        match &mut self.batches {
            Some(batches) => batches.write_state(index, numbers),
            None => self.session.params().write_state(index, numbers),
        }
    }

    /// The tensors of a checkpoint: parameters, those of the best epoch if there is one, and optimizer states.
    fn saved(&mut self, with_best: bool) -> Vec<Saved> {
        let mut saved = vec![];
        let shapes = self.shapes();
        let kinds = [("param", true), ("best", with_best)].into_iter().filter(|(_, exists)| *exists);
        for (kind, _) in kinds {
            for (index, (name, shape)) in shapes.iter().enumerate() {
                let divided_by = self.divided_by(index);
                saved.push(Saved { name: format!("{kind}/{name}"), shape: shape.clone(), divided_by });
            }
        }
        for (of, slot) in self.states() {
            for param in self.params_of_state(of) {
                let (name, shape) = &shapes[param.index()];
                let divided_by = self.divided_by(param.index());
                saved.push(Saved { name: format!("state{slot}/{name}"), shape: shape.clone(), divided_by });
            }
        }
        saved
    }

    /// Writes a checkpoint. Where several processes train together, each writes the rows of tables that it has to a file of
    /// its own, and the checkpoint is complete once the file that names these is renamed.
    pub(super) fn save_checkpoint(&mut self) -> Result<()> {
        let Some(folder) = self.options.checkpoint.clone() else { return Ok(()) };
        self.read_best()?;
        let with_best = self.progress.best_epoch.is_some();
        let params = self.own_params()?;
        let states = self.states_of_params()?;
        let saved = self.saved(with_best);
        let best: &[Vec<f32>] = if with_best { &self.best } else { &[] };
        let elements = params.iter().chain(best).chain(&states);
        let (of_parts, of_all): (Vec<_>, Vec<_>) =
            saved.iter().zip(elements).partition(|(saved, _)| saved.divided_by.is_some());
        let mut progress = self.progress.clone();
        progress.parts = None;
        if !of_parts.is_empty() {
            let generation = self.progress.parts.as_ref().map_or(0, |parts| parts.generation) + 1;
            let parts = Parts { generation, step: progress.steps_done, ..Parts::default() };
            // Also where a file could not be written, so that no later one has the name of another.
            self.progress.parts = Some(parts.clone());
            progress.parts = Some(save_parts(&mut *self.session, &folder, parts, &of_parts)?);
        }
        let tensors =
            of_all.iter().map(|(saved, data)| (saved.name.clone(), Tensor { shape: saved.shape.clone(), data }));
        let mut written = Ok(());
        if self.session.writes_files() {
            written = checkpoint::save(&folder, &progress, tensors.collect());
            // Before the other processes go on, which may write the next parts.
            if written.is_ok() {
                checkpoint::remove_old_parts(&folder, progress.parts.as_ref());
            }
        }
        all_written(&mut *self.session, written)?;
        self.progress.parts = progress.parts;
        Ok(())
    }

    /// The elements that this process has of all tensors of a checkpoint, in the order of [`Trainer::saved`].
    fn own_elements(&mut self, folder: &Path, progress: &Progress, mut file: weights::File) -> Result<Vec<Vec<f32>>> {
        let saved = self.saved(progress.best_epoch.is_some());
        let expected: Vec<(String, Vec<usize>)> = saved.iter().map(|it| (it.name.clone(), it.shape.clone())).collect();
        let in_file = file.tensors.iter().map(|(name, (shape, _))| (&name[..], &shape[..]));
        let in_parts = progress.parts.iter().flat_map(Parts::shapes);
        weights::check_shapes(&checkpoint::file_of(folder), &in_file.chain(in_parts).collect(), &expected)?;
        let rows = |it: &Saved| match it.divided_by {
            Some(vertex) => self.session.own_rows(vertex, it.shape[0]),
            None => 0..it.shape.first().copied().unwrap_or(1),
        };
        let wanted = saved.iter().map(|it| (&it.name[..], rows(it))).collect();
        let mut of_parts =
            progress.parts.as_ref().map_or_else(|| Ok(BTreeMap::new()), |it| it.read(folder, &wanted))?;
        let own = |it: &Saved| match (of_parts.remove(&it.name), file.tensors.remove(&it.name)) {
            (Some(own), _) => own,
            (None, Some((_, all))) if it.divided_by.is_some() => {
                let (rows, width) = (rows(it), it.shape[1..].iter().product::<usize>());
                all[rows.start * width..rows.end * width].to_vec()
            }
            (None, all) => all.map_or_else(Vec::new, |(_, all)| all),
        };
        let all: Vec<Vec<f32>> = saved.iter().map(own).collect();
        for (it, own) in saved.iter().zip(&all) {
            let expected = rows(it).len() * it.shape.get(1..).unwrap_or_default().iter().product::<usize>();
            if own.len() != expected {
                let path = checkpoint::file_of(folder);
                let reason = format!("is damaged: `{}` has {} elements, not {expected}", it.name, own.len());
                return Err(ExecError::Weights { path, reason });
            }
        }
        Ok(all)
    }

    pub(super) fn resume(&mut self) -> Result<()> {
        let Some(folder) = self.options.checkpoint.clone() else {
            return Err(ExecError::Unsupported("to resume, name the folder of the checkpoint".into()));
        };
        let (progress, file) = checkpoint::load(&folder, &self.executable.model)?;
        let path = checkpoint::file_of(&folder);
        let identity = self.progress.identity.take();
        if let Some(now) = &identity {
            let (before, allowed) = (progress.identity.as_ref(), self.options.allow_changed);
            // A resumed run keeps its seed, from the command line or the model.
            let warning = checkpoint::check_identity(&path, before, now, allowed, &[SEED])?;
            self.warnings.extend(warning);
            if let Some((before, now)) = before.and_then(|it| it.setting(SEED)).zip(now.setting(SEED))
                && before != now
                && self.options.seed.is_none()
            {
                self.warnings.push(format!(
                    "the train block has the seed {now}, and had the seed {before}: the run goes on with its own, {}",
                    progress.seed
                ));
            }
        }
        if self.options.seed.is_some_and(|seed| seed != progress.seed) {
            let reason =
                format!("was trained with seed {}, so it cannot be resumed with seed {}", progress.seed, self.seed);
            return Err(ExecError::Weights { path, reason });
        }
        let own = self.batches.as_ref().map_or((0, 0), |batches| (batches.num_batches(), batches.size()));
        let within = &progress.within;
        if within.batches > 0 && within.of != own {
            let ((batches, size), (other, other_size)) = (within.of, own);
            let reason = format!(
                "was written within an epoch of {batches} batches of {size}, so it cannot be resumed with {other} of \
                 {other_size}"
            );
            return Err(ExecError::Weights { path, reason });
        }
        let mut own = self.own_elements(&folder, &progress, file)?.into_iter();
        let num_params = self.shapes().len();
        let params = self.current()?.params();
        own.by_ref().take(num_params).enumerate().try_for_each(|(i, own)| params.write_own(i, &own))?;
        if progress.best_epoch.is_some() {
            self.best = own.by_ref().take(num_params).collect();
            self.best_of = progress.best_epoch;
            // Makes room for them on a device.
            self.best_on_device = self.session.params().keep_best()?;
            let params = self.session.params();
            self.best.iter().enumerate().try_for_each(|(i, best)| params.write_best(i, best))?;
        }
        for (index, (of, _)) in self.states().into_iter().enumerate() {
            let count = self.params_of_state(of).len();
            let state: Vec<Vec<f32>> = own.by_ref().take(count).collect();
            self.write_state(index, &state.concat())?;
        }
        self.seed = progress.seed;
        let order = self.progress.order;
        if let (Some(before), Some(now)) = (progress.order, order)
            && before != now
        {
            self.warnings.push(format!(
                "vertices are in the order {}, and were in the order {} when the checkpoint was written: results may differ in \
                 last bits from those of a run that was not stopped",
                now.words(),
                before.words()
            ));
        }
        self.progress = progress;
        self.progress.order = order;
        self.progress.identity = identity.or(self.progress.identity.take());
        Ok(())
    }
}
