//! The settings of a train block as a table, so that they can be compared with those saved in a checkpoint.

use std::collections::BTreeMap;

use hgnnc_ir::PathRows;
use hgnnc_ir::optimizer::{Clip, Optimizer, Schedule};

use crate::model::Analyzed;

/// All settings of a train block that affect the course of training, by name. Excluded: the loss (part of the program),
/// the split (part of the data), the number of epochs, and the reported metrics.
pub fn settings(model: &Analyzed) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let Some(spec) = &model.train else { return settings };
    let mut set = |name: &str, value: String| {
        settings.insert(name.to_owned(), value);
    };
    let training = &spec.training;
    set("seed", training.seed.to_string());
    set("select", training.selection());
    if let Some(stop) = &training.stop {
        set("stop", training.criterion_name(stop.criterion));
        set("patience", stop.patience.to_string());
    }

    let options = &spec.optimizer;
    let (name, decay) = match options.optimizer {
        Optimizer::Sgd { momentum, nesterov, weight_decay, .. } => {
            set("momentum", number(momentum));
            set("nesterov", nesterov.to_string());
            ("sgd", weight_decay)
        }
        Optimizer::Adam { beta1, beta2, eps, weight_decay, .. }
        | Optimizer::AdamW { beta1, beta2, eps, weight_decay, .. } => {
            set("beta1", number(beta1));
            set("beta2", number(beta2));
            set("eps", number(eps));
            let name = if matches!(options.optimizer, Optimizer::Adam { .. }) { "adam" } else { "adamw" };
            (name, weight_decay)
        }
    };
    set("optimizer", name.to_owned());
    set("learning rate", number(options.optimizer.learning_rate()));
    set("weight decay", number(decay));
    set("schedule", schedule(&options.schedule));
    match options.clip {
        None => {}
        Some(Clip::GlobalNorm(limit)) => set("clip", format!("norm({})", number(limit))),
        Some(Clip::Value(limit)) => set("clip", format!("value({})", number(limit))),
    }

    let period = model.flow.paths.iter().find_map(|path| match path.rows {
        PathRows::Links { period } => Some(period),
        _ => None,
    });
    if let Some(period) = period.filter(|period| *period > 1) {
        set("cutoff", format!("time every {period}"));
    } else if period.is_some() || model.flow.graphs.iter().any(|graph| graph.past) {
        set("cutoff", "time".to_owned());
    }
    if let Some(batch) = &training.batch {
        set("batch", batch.size.to_string());
        let drawn = model.flow.graphs.iter().enumerate().filter(|(_, graph)| !graph.links && graph.derived.is_none());
        for (index, graph) in drawn.filter(|_| !batch.fanouts.is_empty()) {
            let hops: Vec<String> = batch.fanouts.iter().map(|hop| hop[index].to_string()).collect();
            set(&format!("fanout of `{}`", graph.name), format!("[{}]", hops.join(", ")));
        }
        if let Some(reuse) = batch.reuse {
            set("reuse", format!("hot({}, batches: {})", number(reuse.share), reuse.batches));
        }
    }
    if let Some(links) = training.links() {
        set("negatives", links.negatives.to_string());
        let name = |&relation: &u32| &model.flow.relations[relation as usize].name[..];
        let exclude: Vec<&str> = links.exclude.iter().map(name).collect();
        set("exclude", format!("[{}]", exclude.join(", ")));
    }
    settings
}

fn number(number: f64) -> String {
    format!("{number:?}")
}

fn schedule(of: &Schedule) -> String {
    match of {
        Schedule::Constant => "constant".into(),
        Schedule::Step { every, factor } => format!("step(every: {every}, factor: {factor:?})"),
        Schedule::Exponential { factor } => format!("exponential(factor: {factor:?})"),
        Schedule::Cosine { epochs, floor } => format!("cosine(epochs: {epochs}, floor: {floor:?})"),
        Schedule::Warmup { epochs, then } => format!("warmup(epochs: {epochs}, then: {})", schedule(then)),
    }
}
