//! Links with times: those to learn, and those that are held out, which are messages to what is later.

use std::collections::BTreeMap;

use hgnnc_dataset::dataset::{Dataset, Links};

use super::{CutoffLinks, CutoffRows};

/// Links that are held out, which are messages to what is later than them and than all that is trained on.
pub struct HeldOut {
    /// By relation of links: the number of its own edges. Those that are held out stand behind them while rows are listed.
    edges: BTreeMap<usize, usize>,
    /// The last cutoff of a training link.
    pub trained_until: i64,
}

impl HeldOut {
    /// Of relations without weights and features, which such links do not have.
    pub fn of(rows: &CutoffRows, dataset: &Dataset) -> Self {
        let mut held_out = Self { edges: BTreeMap::new(), trained_until: i64::MIN };
        for links in &rows.links {
            let data = &dataset.relations[links.relation];
            if !rows.outputs_only {
                let last = data.time.iter().flatten().copied().max().map(|time| links.cutoff(time));
                held_out.trained_until = held_out.trained_until.max(last.unwrap_or(i64::MIN));
            }
            if data.weight.is_none() && data.features.is_none() && data.time.is_some() {
                held_out.edges.insert(links.relation, data.src_ids.len());
            }
        }
        held_out
    }

    /// The number of the own edges of a relation, or more.
    pub fn own_edges(&self, relation: usize) -> usize {
        self.edges.get(&relation).copied().unwrap_or(usize::MAX)
    }

    /// The last time of a held-out link of these relations.
    pub fn last_time(&self, rows: &CutoffRows, dataset: &Dataset) -> Option<i64> {
        let split = &dataset.link_splits[rows.split?];
        let of_part = |part: &Links| {
            let times = part.time.iter().flatten().copied().zip(&part.relation);
            let own = times.filter(|(_, of)| rows.links.iter().any(|links| links.relation == **of as usize));
            own.map(|(time, _)| time).max()
        };
        of_part(&split.val).max(of_part(&split.test))
    }

    /// Puts the held-out links behind the edges of their relations.
    pub fn add_to(&self, rows: &CutoffRows, dataset: &mut Dataset) {
        let Some(split) = rows.split else { return };
        let Dataset { relations, link_splits, .. } = dataset;
        for links in [&link_splits[split].val, &link_splits[split].test] {
            for (link, &time) in links.time.iter().flatten().enumerate() {
                let relation = links.relation[link] as usize;
                if !self.edges.contains_key(&relation) {
                    continue;
                }
                let data = &mut relations[relation];
                data.src_ids.push(links.src[link]);
                data.dst_ids.push(links.dst[link]);
                data.time.iter_mut().for_each(|times| times.push(time));
            }
        }
    }

    /// Takes them away again.
    pub fn remove_from(&self, dataset: &mut Dataset) {
        for (&relation, &edges) in &self.edges {
            let data = &mut dataset.relations[relation];
            data.src_ids.truncate(edges);
            data.dst_ids.truncate(edges);
            data.time.iter_mut().for_each(|times| times.truncate(edges));
        }
    }

    /// The links of a part (0: training, then validation and test) with times: source, destination, time.
    pub fn links_of_part<'d>(
        &self,
        rows: &CutoffRows,
        dataset: &'d Dataset,
        links: &CutoffLinks,
        part: usize,
    ) -> Box<dyn Iterator<Item = (u32, u32, i64)> + 'd> {
        if rows.outputs_only {
            return Box::new(std::iter::empty());
        }
        let relation = links.relation;
        let split = rows.split.map(|split| &dataset.link_splits[split]);
        let of_part = match (part, split) {
            (0, _) => {
                let data = &dataset.relations[relation];
                let times = data.time.iter().flatten().copied();
                let edges = data.src_ids.iter().copied().zip(data.dst_ids.iter().copied()).zip(times);
                let own = edges.take(self.own_edges(relation));
                return Box::new(own.map(|((src, dst), time)| (src, dst, time)));
            }
            (1, Some(split)) => &split.val,
            (_, Some(split)) => &split.test,
            (_, None) => return Box::new(std::iter::empty()),
        };
        let times = of_part.time.iter().flatten().copied();
        let all = of_part.src.iter().copied().zip(of_part.dst.iter().copied()).zip(&of_part.relation).zip(times);
        let own = all.filter(move |((_, of), _)| **of as usize == relation);
        Box::new(own.map(|(((src, dst), _), time)| (src, dst, time)))
    }
}
