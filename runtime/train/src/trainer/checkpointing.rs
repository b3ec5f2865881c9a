//! Parameters, best-epoch parameters and checkpoints of a trainer.

use std::path::Path;
use std::time::Instant;

use hgnnc_data::stacks::num_own_params;
use hgnnc_data::{ExecError, Result, SEED, StateId};
use hgnnc_ir::VertexRows;
use hgnnc_ir::types::{Dim, Param, VertexType};

use super::Trainer;
use crate::checkpoint;
use crate::weights::{self, Tensor};

impl Trainer {
    /// Keeps the current parameters as the best ones, on the device if it has memory for them. The host copy is then
    /// updated at the checkpoint interval, so that it survives a device failure, and on request.
    pub(super) fn keep_best(&mut self, epoch: u64) -> Result<()> {
        if self.current()?.params().keep_best()? {
            self.best_on_device = true;
            return if self.best_read.elapsed() >= self.options.checkpoint_every { self.read_best() } else { Ok(()) };
        }
        let params = self.session.params();
        self.best.iter_mut().enumerate().try_for_each(|(i, kept)| params.read(i, kept))?;
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
        self.best.iter().enumerate().try_for_each(|(i, kept)| params.write(i, kept))
    }

    /// Current parameters, in the order of the model.
    ///
    /// # Errors
    /// When a device fails.
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

    /// Name and shape of the parameter that an optimizer state belongs to, which may be a stack of parameters.
    fn shape_of(&self, param: Param) -> (String, Vec<usize>) {
        let data = self.session.data();
        // The program of batches has stacks of its own.
        let tables = self.executable.train.as_ref().unwrap_or(&self.executable.infer);
        let own = num_own_params(&self.executable.infer);
        let decl = if param.index() < own {
            &self.executable.infer.params[param.index()]
        } else {
            &tables.params[param.index()]
        };
        let members = |vertex: VertexType| match tables.vertex_types[vertex.index()].rows {
            VertexRows::Members(stack) if param.index() >= own => Some(tables.stacks[stack.index()].members.len()),
            _ => None,
        };
        let extent = |dim: &Dim| match *dim {
            Dim::Fixed(extent) => extent,
            Dim::Count(vertex) => members(vertex).unwrap_or_else(|| data.num_vertices[vertex.index()]),
        };
        (decl.name.clone(), decl.dims.iter().map(extent).collect())
    }

    /// Writes the current parameters by name; after [`Trainer::run`] those of the best epoch.
    ///
    /// # Errors
    /// When the file cannot be written; an old one is then unchanged.
    pub fn save_weights(&mut self, path: &Path) -> Result<()> {
        let values = self.params()?;
        let shapes = self.shapes();
        let tensors = shapes.into_iter().zip(&values).map(|((name, shape), data)| (name, Tensor { shape, data }));
        if self.session.writes_files() { weights::write(path, tensors.collect(), None) } else { Ok(()) }
    }

    /// Writes the parameters of the best epoch by name, and returns the epoch: after a device failure, the best one
    /// with a host copy. Writes nothing without a best epoch.
    ///
    /// # Errors
    /// When the file cannot be written; an old one is then unchanged.
    pub fn save_best(&mut self, path: &Path) -> Result<Option<u64>> {
        // After a device failure the previous host copy is used.
        let _ = self.read_best();
        if self.best_of.is_some() {
            let shapes = self.shapes();
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

    /// Elements of an optimizer state, in the order of the dataset.
    fn read_state(&mut self, index: usize) -> Result<Vec<f32>> {
        self.current()?;
        match &mut self.batches {
            Some(batches) => {
                let own = batches.read_state(index)?;
                match batches.rows_of_state(index) {
                    Some(_) => self.session.all_rows(own),
                    None => Ok(own),
                }
            }
            None => self.session.params().read_state(index),
        }
    }

    /// Overwrites an optimizer state, in the order of the dataset.
    fn write_state(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        self.current()?;
        match &mut self.batches {
            Some(batches) => {
                let own = match batches.rows_of_state(index) {
                    Some(vertex) => {
                        let rows = self.session.data().num_vertices[vertex.index()];
                        let (own, width) = (self.session.own_rows(rows), numbers.len() / rows.max(1));
                        &numbers[own.start * width..own.end * width]
                    }
                    None => numbers,
                };
                batches.write_state(index, own)
            }
            None => self.session.params().write_state(index, numbers),
        }
    }

    pub(super) fn save_checkpoint(&mut self) -> Result<()> {
        let Some(folder) = self.options.checkpoint.clone() else { return Ok(()) };
        self.read_best()?;
        let shapes = self.shapes();
        let params = self.params()?;
        let own_states = self.states();
        let states: Vec<Vec<f32>> = (0..own_states.len()).map(|i| self.read_state(i)).collect::<Result<_>>()?;
        let mut tensors = vec![];
        for ((name, shape), data) in shapes.iter().zip(&params) {
            tensors.push((format!("param/{name}"), Tensor { shape: shape.clone(), data }));
        }
        if self.progress.best_epoch.is_some() {
            for ((name, shape), data) in shapes.iter().zip(&self.best) {
                tensors.push((format!("best/{name}"), Tensor { shape: shape.clone(), data }));
            }
        }
        for (&(param, slot), data) in own_states.iter().zip(&states) {
            let (name, shape) = self.shape_of(param);
            tensors.push((format!("state{slot}/{name}"), Tensor { shape, data }));
        }
        if self.session.writes_files() { checkpoint::save(&folder, &self.progress, tensors) } else { Ok(()) }
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
        let shapes = self.shapes();
        let mut expected: Vec<(String, Vec<usize>)> =
            shapes.iter().map(|(name, shape)| (format!("param/{name}"), shape.clone())).collect();
        if progress.best_epoch.is_some() {
            expected.extend(shapes.iter().map(|(name, shape)| (format!("best/{name}"), shape.clone())));
        }
        let states = self.states();
        expected.extend(states.iter().map(|&(param, slot)| {
            let (name, shape) = self.shape_of(param);
            (format!("state{slot}/{name}"), shape)
        }));
        weights::check(&path, &file, &expected)?;
        let params = self.current()?.params();
        for (i, (name, _)) in shapes.iter().enumerate() {
            params.write(i, &file.tensors[&format!("param/{name}")].1)?;
        }
        if progress.best_epoch.is_some() {
            self.best = shapes.iter().map(|(name, _)| file.tensors[&format!("best/{name}")].1.clone()).collect();
            self.best_of = progress.best_epoch;
            // Makes room for them on a device.
            self.best_on_device = self.session.params().keep_best()?;
            let params = self.session.params();
            self.best.iter().enumerate().try_for_each(|(i, best)| params.write_best(i, best))?;
        }
        for (i, &(param, slot)) in states.iter().enumerate() {
            let name = format!("state{slot}/{}", self.shape_of(param).0);
            self.write_state(i, &file.tensors[&name].1)?;
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
