//! Evaluation: metrics, outputs, and the report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use hgnnc_data::classes::ClassCounts;
use hgnnc_data::metrics::{Predictions, Tally};
use hgnnc_data::{BoundData, Candidates, ExecError, Result, copy_rows, part_index};
use hgnnc_graph::order::Order;
use hgnnc_ir::dataflow::Binding;
use hgnnc_ir::outputs::{FamilyOutput, FamilyRows};
use hgnnc_ir::training::{Criterion, LOSS_NUMBER, Measure, Metric, Part, Ranking, Task, Training, is_of_loss};
use hgnnc_ir::types::{Graph, Stage, VertexType};
use hgnnc_session::{Clock, Exchanged, Rows, Session, StepKey};
use hgnnc_trace::{Times, os};

use super::head::Head;
use super::timing::WARM_UP;
use super::{FamilyOutputRows, GraphOutputRows, INFER, OutputRows, ScoredLinks, Trainer};
use crate::links::LinkMeasures;
use crate::report::{ClassReport, GraphReport, GraphWeight, GraphWeights, Metrics, RankReport, Report, Spread};

impl Trainer {
    /// Values of the selection and stopping criteria after an epoch; evaluates only if one of them can be measured.
    pub(super) fn measure(
        &mut self,
        select: Criterion,
        watched: Option<Criterion>,
    ) -> Result<(Option<f64>, Option<f64>)> {
        let possible = |c: Criterion| self.has_rows(c.part, c.measure);
        if !self.options.measure_all && !possible(select) && !watched.is_some_and(possible) {
            return Ok((None, None));
        }
        self.infer_all()?;
        let selected = self.metric(select.part, select.measure)?;
        let watched = match watched {
            Some(same) if same == select => selected,
            Some(other) => self.metric(other.part, other.measure)?,
            None => None,
        };
        Ok((selected, watched))
    }

    /// Measures the metrics that each epoch reports, with the values of the last evaluation.
    pub(super) fn measure_all(&mut self) -> Result<()> {
        self.measured.clear();
        for part in [Part::Train, Part::Val] {
            for index in 0..self.measures.len() {
                if let Some(value) = self.metric(part, self.measures[index].0)? {
                    self.measured.push((part, Arc::clone(&self.measures[index].1), value));
                }
            }
        }
        Ok(())
    }

    /// Runs the evaluation program.
    pub(super) fn infer_all(&mut self) -> Result<()> {
        let start = Instant::now();
        // Step 0: every evaluation shuffles vertices alike, so that losses of epochs are comparable.
        let key = StepKey { seed: self.seed, step: 0, epoch: self.progress.epochs_done };
        let session = self.current()?;
        session.run(INFER, key, &mut Times::default())?;
        session.update(INFER, key, &mut Times::default())?;
        self.link_metrics_stale = true;
        if let Some(head) = &mut self.head {
            head.invalidate();
        }
        let on_device = self.session.elapsed_ms()?;
        let ms = on_device.unwrap_or_else(|| start.elapsed().as_secs_f64() * 1e3);
        if self.timing.infer.len() < self.timing.infer.capacity() || self.timing.infer.len() < 16 {
            self.timing.infer.push(ms);
        }
        Ok(())
    }

    /// Whether a part of the split has rows for a measure.
    pub(super) fn has_rows(&self, part: Part, measure: Measure) -> bool {
        let data = self.session.data();
        match (measure.metric, measure.term) {
            (Metric::Loss, None) if data.truths.is_empty() => part == Part::Train,
            (Metric::Loss, None) => (0..data.truths.len()).all(|term| !data.part_of(term, part).is_empty()),
            (_, term) => !data.part_of(term.unwrap_or(0), part).is_empty(),
        }
    }

    /// A measure of the last evaluation.
    pub(super) fn metric(&mut self, part: Part, measure: Measure) -> Result<Option<f64>> {
        match measure {
            Measure { metric: Metric::Loss, term: None } => self.loss(part),
            Measure { metric, term } => self.metric_of(term.unwrap_or(0), part, metric),
        }
    }

    /// The loss in the last evaluation: the weighted sum of its terms, of which those without a ground truth have the
    /// same value for all parts. `None` where a term has no vertices.
    fn loss(&mut self, part: Part) -> Result<Option<f64>> {
        let Some(training) = &self.executable.training else { return Ok(None) };
        if training.trained.is_empty() && part != Part::Train {
            return Ok(None);
        }
        let mut loss = 0.0;
        let (terms, has_number) = (training.trained.len(), training.has_number);
        for term in 0..terms {
            let Some(value) = self.metric_of(term, part, Metric::Loss)? else { return Ok(None) };
            let weight = self.executable.training.as_ref().map_or(1.0, |training| training.trained[term].weight);
            loss += weight * value;
        }
        if has_number {
            match self.session.read(INFER, LOSS_NUMBER)? {
                Some(Rows { numbers: [number], .. }) => loss += f64::from(*number),
                _ => return Err(ExecError::Unsupported(format!("internal error: no result `{LOSS_NUMBER}`"))),
            }
        }
        Ok(Some(loss))
    }

    /// A metric of a trained output in the last evaluation. From a device only counts are downloaded where they suffice.
    fn metric_of(&mut self, term: usize, part: Part, metric: Metric) -> Result<Option<f64>> {
        if let Some((links, session)) = self.up_to_date_links()? {
            return links.metric(session, part, metric);
        }
        let trained = self.executable.training.as_ref().and_then(|training| training.trained.get(term));
        let Some(trained) = trained else { return Ok(None) };
        let (vertices, task) = (self.session.data().part_of(term, part).len(), trained.task);
        if vertices == 0 {
            return Ok(None);
        }
        if let Some(head) = &mut self.head {
            let start = Instant::now();
            let value = head.metric(&mut *self.session, part, metric);
            if let Some(ms) = self.timing.infer.last_mut() {
                *ms += start.elapsed().as_secs_f64() * 1e3;
            }
            return value;
        }
        // Only the first trained output is counted there.
        if term == 0 && Tally::has(metric) && self.session.count(part_index(part), &mut self.tally)? {
            return Ok(self.tally.metric(metric, task, vertices));
        }
        let needed = if metric == Metric::Loss { &self.row_losses[term] } else { &trained.output };
        self.session.fetch(INFER, needed)?;
        // Moved out while `self` is borrowed.
        let mut tally = std::mem::take(&mut self.tally);
        let value = self.metric_with(term, part, metric, &mut tally);
        self.tally = tally;
        Ok(value)
    }

    /// Link metrics over the values of the last evaluation, and its session.
    fn up_to_date_links(&mut self) -> Result<Option<(&mut LinkMeasures, &mut dyn Session)>> {
        if let (Some(links), true) = (&mut self.links, self.link_metrics_stale) {
            links.refresh(&mut *self.session, INFER)?;
            self.link_metrics_stale = false;
        }
        Ok(self.links.as_mut().map(|links| (links, &mut *self.session)))
    }

    fn metric_with(&self, term: usize, part: Part, metric: Metric, tally: &mut Tally) -> Option<f64> {
        let trained = self.executable.training.as_ref()?.trained.get(term)?;
        let row_loss = self.session.result(INFER, &self.row_losses[term]).map(|rows| rows.numbers);
        // The loss needs no outputs.
        let outputs = self.session.result(INFER, &trained.output);
        let Rows { width, numbers: outputs, .. } = match metric {
            Metric::Loss => Rows { width: 0, vertex: None, numbers: &[] },
            _ => outputs?,
        };
        let data = self.session.data();
        let (target, rows) = (data.labels_of(term)?, data.part_of(term, part));
        Predictions { outputs, width, row_loss, target, rows, task: trained.task }.metric(metric, tally)
    }

    /// Metrics of all parts with the current parameters: the loss, those of the model, and the usual ones of its task.
    ///
    /// # Errors
    /// When a device fails.
    pub fn evaluate(&mut self) -> Result<Metrics> {
        self.infer_all()?;
        // Ranking scores all pairs of vertices: it runs only on request, and not for training links.
        let training = self.executable.training.as_ref();
        let asked: Vec<Ranking> = training.map_or_else(Vec::new, |training| {
            let criteria = training.stop.map(|stop| stop.criterion).into_iter().chain([training.select]);
            let metrics = criteria.map(|of| of.measure.metric).chain(training.metrics.iter().copied());
            metrics.filter_map(Metric::ranking).collect()
        });
        let named = |training: &Training| -> Vec<(Measure, String)> {
            let measures = training.measures(&Metric::ALL).into_iter();
            measures.map(|measure| (measure, training.measure_name(measure))).collect()
        };
        let measures = training.map(named).unwrap_or_default();
        let mut all = Metrics::new();
        for part in [Part::Train, Part::Val, Part::Test] {
            let mut values = BTreeMap::new();
            for (measure, name) in &measures {
                if measure.metric.ranking().is_some_and(|ranking| part == Part::Train || !asked.contains(&ranking)) {
                    continue;
                }
                if let Some(value) = self.metric(part, *measure)? {
                    values.insert(name.clone(), value);
                }
            }
            if !values.is_empty() {
                all.insert(part.name(), values);
            }
        }
        Ok(all)
    }

    /// Scores of each class by part, with the current parameters; none if the task has no classes. Classes are named by
    /// their numbers.
    ///
    /// # Errors
    /// When a device fails.
    pub fn infer_class_scores(&mut self) -> Result<BTreeMap<&'static str, ClassReport>> {
        let task = self.executable.training.as_ref().and_then(Training::first).map(|trained| trained.task);
        if matches!(task, Some(Task::Classify { .. } | Task::MultiLabel { .. })) {
            self.infer_all()?;
        }
        self.class_scores()
    }

    /// [`Trainer::infer_class_scores`] of the last evaluation.
    fn class_scores(&mut self) -> Result<BTreeMap<&'static str, ClassReport>> {
        let mut all = BTreeMap::new();
        let Some(trained) = self.executable.training.as_ref().and_then(Training::first) else { return Ok(all) };
        let (task, output) = (trained.task, trained.output.clone());
        if !matches!(task, Task::Classify { .. } | Task::MultiLabel { .. }) {
            return Ok(all);
        }
        for part in [Part::Train, Part::Val, Part::Test] {
            let mut counts = ClassCounts::default();
            if self.rows(part).is_empty() {
                continue;
            }
            if let Some(head) = &mut self.head {
                head.each(&mut *self.session, part, |predictions| counts.add(predictions))?;
            } else if let Some(found) = self.session.count_classes(part_index(part))? {
                counts = found;
            } else {
                self.session.fetch(INFER, &output)?;
                let (data, rows) = (self.session.data(), self.session.result(INFER, &output));
                let (Some(target), Some(Rows { width, numbers: outputs, .. })) = (data.labels(), rows) else {
                    continue;
                };
                counts.add(&Predictions { outputs, width, row_loss: None, target, rows: data.part(part), task });
            }
            all.insert(part.name(), ClassReport::new(&counts));
        }
        Ok(all)
    }

    /// Names of the outputs of vertices.
    pub fn outputs(&self) -> Vec<String> {
        // Inputs of the link scorer are internal, not outputs.
        let score = self.executable.score.iter().flat_map(|score| &score.inputs);
        let given: Vec<&str> = score
            .filter_map(|decl| match &decl.binding {
                Binding::Given(name) => Some(name.as_str()),
                _ => None,
            })
            .collect();
        let given: Vec<&str> = given.into_iter().chain(self.head.iter().flat_map(Head::reads)).collect();
        let members = || self.executable.families.iter().flat_map(|output| &output.members);
        let is_member = |name: &str| members().any(|(_, result)| result == name);
        let is_output = |name: &&str| !is_of_loss(name) && !given.contains(name) && !is_member(name);
        let of_head = self.head.iter().flat_map(Head::results);
        let names = self.session.results(INFER).into_iter().chain(of_head).filter(is_output);
        names.map(str::to_owned).collect()
    }

    /// An output with the current parameters; without a name, the trained one or the only one.
    ///
    /// # Errors
    /// When there is no such output, or a device fails.
    pub fn infer(&mut self, output: Option<&str>) -> Result<OutputRows> {
        self.infer_by(output, |session, name| session.fetch(INFER, name))
    }

    /// [`Trainer::infer`] for a file: where several processes train together, only the one that writes files has rows.
    ///
    /// # Errors
    /// When there is no such output, a device fails, or another process has ended.
    pub fn infer_to_write(&mut self, output: Option<&str>) -> Result<OutputRows> {
        self.infer_by(output, |session, name| session.fetch_to_write(INFER, name))
    }

    fn infer_by(
        &mut self,
        output: Option<&str>,
        fetch: impl Fn(&mut dyn Session, &str) -> Result<()>,
    ) -> Result<OutputRows> {
        let names = self.outputs();
        if names.is_empty() {
            return Err(ExecError::Unsupported(
                "the model has no output of vertices; scores of pairs need a `train` block with a loss of links".into(),
            ));
        }
        let trained = self.executable.training.as_ref().and_then(Training::first).map(|of| of.output.as_str());
        let name = output.or(trained).or(names.first().map(String::as_str)).unwrap_or("").to_owned();
        self.infer_all()?;
        if !names.contains(&name) {
            return Err(ExecError::Unsupported(format!(
                "the model has no output `{name}`; it has {}",
                names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
            )));
        }
        let missing = || ExecError::Unsupported(format!("internal error: no result `{name}`"));
        let (mut data, width, vertex) = match &mut self.head {
            Some(head) if head.results().contains(&name.as_str()) => head.output(&mut *self.session, &name)?,
            _ => {
                fetch(&mut *self.session, &name)?;
                let Rows { width, vertex, numbers } = self.session.result(INFER, &name).ok_or_else(missing)?;
                (numbers.to_vec(), width, vertex)
            }
        };
        if let Some(order) = vertex.and_then(|vertex| self.session.data().orders.of(vertex))
            && !data.is_empty()
        {
            let renumbered = data.clone();
            copy_rows(&renumbered, &order.rank, &mut data);
        }
        Ok(OutputRows { rows: data.len() / width.max(1), width, data })
    }

    /// The outputs of semantic graphs and of edges that the program has.
    pub fn families(&self) -> &[FamilyOutput] {
        &self.executable.families
    }

    /// An output of semantic graphs or of their edges with the current parameters, evaluated on the whole graph; `None`
    /// if the program has no such output.
    ///
    /// # Errors
    /// When a device fails.
    pub fn infer_family(&mut self, output: &str) -> Result<Option<FamilyOutputRows>> {
        let Some(family) = self.executable.families.iter().find(|family| family.name == output).cloned() else {
            return Ok(None);
        };
        self.infer_all()?;
        Ok(Some(self.family_rows(&family)?))
    }

    /// The rows of an output of a family in the last evaluation.
    fn family_rows(&mut self, family: &FamilyOutput) -> Result<FamilyOutputRows> {
        let mut found = FamilyOutputRows { rows: family.rows, width: 1, graphs: vec![] };
        for (graph, result) in &family.members {
            let missing = || ExecError::Unsupported(format!("internal error: no result `{result}`"));
            let Rows { width, numbers, .. } = self.session.read(INFER, result)?.ok_or_else(missing)?;
            let mut data = numbers.to_vec();
            let decl = &self.executable.infer.graphs[graph.index()];
            let edges = match family.rows {
                FamilyRows::Graphs => vec![],
                FamilyRows::Edges => {
                    let bound = self.session.data();
                    let topology = &bound.graphs[graph.index()];
                    let mut edges = topology.edges();
                    in_order_of_dataset(bound, (decl.src, decl.dst), width, &mut edges, &mut data);
                    edges
                }
            };
            found.width = width;
            found.graphs.push(GraphOutputRows { name: decl.name.clone(), ends: (decl.src, decl.dst), edges, data });
        }
        Ok(found)
    }

    /// The mean weight of each semantic graph in each output of semantic graphs, with the current parameters.
    ///
    /// # Errors
    /// When a device fails.
    pub fn infer_graph_weights(&mut self) -> Result<Vec<GraphWeights>> {
        if self.executable.families.iter().any(|family| family.rows == FamilyRows::Graphs) {
            self.infer_all()?;
        }
        self.graph_weights()
    }

    /// [`Trainer::infer_graph_weights`] of the last evaluation.
    fn graph_weights(&mut self) -> Result<Vec<GraphWeights>> {
        let families: Vec<FamilyOutput> =
            self.executable.families.iter().filter(|family| family.rows == FamilyRows::Graphs).cloned().collect();
        let mut all = vec![];
        for family in families {
            let rows = self.family_rows(&family)?;
            let mean = |row: &[f32]| row.iter().map(|&x| f64::from(x)).sum::<f64>() / row.len().max(1) as f64;
            let weight = |of: GraphOutputRows| GraphWeight { graph: of.name, weight: mean(&of.data) };
            all.push(GraphWeights { output: family.name, weights: rows.graphs.into_iter().map(weight).collect() });
        }
        Ok(all)
    }

    /// The relations and metapaths whose pairs the model scores. Empty if it scores none.
    pub fn link_graphs(&self) -> Vec<ScoredLinks> {
        let target = self.executable.training.as_ref().and_then(Training::links);
        let (Some(target), Some(links)) = (target, &self.links) else { return vec![] };
        let tables = &self.executable.infer;
        let of_graph = |(graph, [sources, destinations]): (&Graph, &[Candidates; 2])| {
            let decl = &tables.graphs[graph.index()];
            let (name, of_relation) = match decl.steps[..] {
                [step] => (&tables.relations[tables.relation_of_links(step) as usize].dataset_name[..], true),
                _ => (decl.name.strip_prefix("links_").unwrap_or(&decl.name), false),
            };
            ScoredLinks { name: name.to_owned(), of_relation, ends: (sources.count(), destinations.count()) }
        };
        target.graphs.iter().zip(links.candidates()).map(of_graph).collect()
    }

    /// Scores of pairs (source, destination) with the current parameters, for each of [`Trainer::link_graphs`].
    ///
    /// # Errors
    /// An invalid vertex id, a model that scores no pairs, or a device failure.
    pub fn score_pairs(&mut self, pairs: &[Vec<(u32, u32)>]) -> Result<Vec<Vec<f32>>> {
        self.infer_all()?;
        let Some((links, session)) = self.up_to_date_links()? else {
            return Err(ExecError::Unsupported("the model scores no pairs of vertices".into()));
        };
        let mut rows = vec![];
        for (pairs, [sources, destinations]) in pairs.iter().zip(links.candidates()) {
            let (num_src, num_dst) = (sources.count(), destinations.count());
            if let Some(bad) = pairs.iter().find(|pair| pair.0 as usize >= num_src || pair.1 as usize >= num_dst) {
                return Err(ExecError::Shape {
                    what: "the pairs to score".into(),
                    found: format!("a pair ({}, {})", bad.0, bad.1),
                    expected: format!("ends below {num_src} and {num_dst}"),
                });
            }
            // They read all that there is.
            let row = |&(src, dst): &(u32, u32)| (sources.latest(src), destinations.latest(dst));
            rows.push(pairs.iter().map(row).collect());
        }
        links.scores(session, &rows)
    }

    /// The exchanges of each process, where several train together. All call it.
    fn ranks(&mut self) -> Result<Vec<RankReport>> {
        let of_batches = self.batches.as_ref().map_or_else(Exchanged::default, |batches| batches.exchanged());
        let Exchanged { exchanges, sent_bytes, waited_ns } = self.session.exchanged() + of_batches;
        let epochs_ns = 1e6 * self.timing.epochs.iter().sum::<f64>();
        let train_bytes = match &self.batches {
            Some(batches) => batches.sent_by_steps(),
            None => self.timing.sent_bytes,
        };
        let own = [exchanges, sent_bytes, train_bytes, waited_ns, epochs_ns as u64, os::peak_rss_bytes()];
        let all = self.session.of_all(&own)?;
        let report = |(rank, of_rank): (usize, &Vec<u64>)| match of_rank[..] {
            [exchanges, sent_bytes, train_bytes, waited_ns, epochs_ns, peak_rss_bytes] if all.len() > 1 => {
                Some(RankReport {
                    rank,
                    exchanges,
                    sent_bytes,
                    train_bytes,
                    wait_ms: waited_ns as f64 / 1e6,
                    epochs_ms: epochs_ns as f64 / 1e6,
                    peak_rss_bytes,
                })
            }
            _ => None,
        };
        Ok(all.iter().enumerate().filter_map(report).collect())
    }

    /// Evaluates all parts and returns the report.
    ///
    /// # Errors
    /// When a device fails.
    pub fn report(&mut self) -> Result<Report> {
        let metrics = self.evaluate()?;
        let classes = self.class_scores()?;
        let graph_weights = self.graph_weights()?;
        let ranks = self.ranks()?;
        let arenas = self.arenas();
        let data = self.session.data();
        // The hops of a factored metapath are not reported as semantic graphs.
        let hops: Vec<usize> =
            self.executable.infer.metapaths.iter().flat_map(|path| &path.hops).map(|hop| hop.index()).collect();
        let own = data.graphs.iter().enumerate().filter(|(graph, _)| !hops.contains(graph));
        let semantic_graphs = own
            .map(|(graph, g)| (graph, g, data.origins.get(graph).copied().flatten()))
            .map(|(graph, g, origin)| GraphReport {
                name: g.name.clone(),
                rows: g.num_dst,
                cols: g.num_src,
                edges: g.all_edges(),
                left_out: data.left_out.get(graph).copied().flatten(),
                listed: g.deferred.is_none(),
                cached: origin.map(|origin| origin.cached),
                sgb_ms: origin.map(|origin| 1e3 * origin.took.as_secs_f64()),
            })
            .collect();
        let warm = |times: &[f64]| Spread::of(if times.len() > WARM_UP { &times[WARM_UP..] } else { times });
        let timing = &self.timing;
        let per_epoch = |total: f64| if timing.stage_epochs == 0 { 0.0 } else { total / timing.stage_epochs as f64 };
        // Unknown for a device without a clock.
        let is_known = self.session.clock() == Clock::Steps
            || timing.epochs.is_empty()
            || timing.phases.iter().any(|times| !times.is_empty());
        let known = |phase: usize| is_known.then(|| warm(&timing.phases[phase]));
        let stage_ms = Stage::ALL.iter().zip(timing.stages).map(|(s, total)| (s.name(), per_epoch(total)));
        Ok(Report {
            model: self.executable.model.clone(),
            dataset: data.dataset.clone(),
            device: self.machine.clone(),
            threads: self.threads(),
            seed: self.seed,
            epochs: self.progress.epochs_done,
            best_epoch: self.kept_epoch(),
            select: self.kept_epoch().and(self.executable.training.as_ref()).map(Training::selection),
            outcome: self.outcome.name().into(),
            load_s: data.load_s,
            sgb_s: data.sgb_s,
            compile_s: 0.0,
            train_s: timing.train_s,
            epoch_ms: warm(&timing.epochs),
            forward_ms: known(0),
            backward_ms: known(1),
            update_ms: known(2),
            infer_ms: warm(&timing.infer),
            stage_ms: known(0).map(|_| stage_ms.collect()),
            batches: self.batches.as_ref().map(|batches| batches.report()),
            ranks,
            peak_rss_bytes: os::peak_rss_bytes(),
            arena_bytes: arenas.all.bytes(),
            infer_arena_bytes: arenas.infer.bytes(),
            device_bytes: self.session.device_bytes() + self.batches.as_ref().map_or(0, |it| it.device_bytes()),
            metrics,
            classes,
            baseline: None,
            constants: BTreeMap::new(),
            seeds: vec![],
            mean: None,
            std: None,
            semantic_graphs,
            graph_weights,
            params: self.shapes().iter().map(|(_, shape)| shape.iter().product::<usize>() as u64).sum(),
            losses: self.progress.losses().collect(),
            warnings: self.warnings.clone(),
        })
    }
}

/// Brings edges and their rows of `width` elements into the order that they have with vertices as in the dataset.
fn in_order_of_dataset(
    data: &BoundData,
    (src, dst): (VertexType, VertexType),
    width: usize,
    edges: &mut Vec<(u32, u32)>,
    rows: &mut Vec<f32>,
) {
    let (of_src, of_dst) = (data.orders.of(src), data.orders.of(dst));
    if of_src.is_none() && of_dst.is_none() {
        return;
    }
    let original = |order: Option<&Order>, vertex: u32| order.map_or(vertex, |order| order.original[vertex as usize]);
    let mut places: Vec<(u32, u32, usize)> = (edges.iter().enumerate())
        .map(|(place, &(src, dst))| (original(of_dst, dst), original(of_src, src), place))
        .collect();
    // Equal edges keep their order.
    places.sort_unstable();
    let before = std::mem::take(rows);
    *edges = places.iter().map(|&(dst, src, _)| (src, dst)).collect();
    *rows = places.iter().flat_map(|&(.., place)| &before[place * width..(place + 1) * width]).copied().collect();
}
