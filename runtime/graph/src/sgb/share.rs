//! Products shared by several metapaths.
//!
//! Metapaths of one model often have common subpaths: `PAPAP` is `PAP` twice, and `PAPSP` begins with it. The products
//! to share are chosen greedily: among all subpaths (two steps or more, equal directions, counted or not) that occur
//! more than once, the one that saves most by the estimates of `plan.rs`, then the next, each within the remaining
//! budget of intermediates. A subpath that is a whole metapath is its graph as well. Products are built on first use
//! and kept as long as the builder, so the graphs depend neither on the order of requests nor on what is shared.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::plan::{Costs, MAX_PLANNED_STEPS, Plan, Tables};
use super::{Adjacency, MetapathOptions, SemanticGraphs, Step};

/// A product: its steps from rows to columns, and whether paths are counted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Product {
    steps: Vec<Step>,
    counted: bool,
}

#[derive(Default)]
pub(super) struct Shares {
    chosen: BTreeSet<Product>,
    made: BTreeMap<Product, Arc<Adjacency>>,
    /// Tables of the metapaths not built yet; counting paths takes time.
    tables: BTreeMap<Product, Arc<Tables>>,
    /// Upper bound on the bytes of each intermediate.
    budget: u64,
}

/// A metapath in walking order: rows are destinations.
struct Walk {
    steps: Vec<Step>,
    counted: bool,
    tables: Arc<Tables>,
}

impl Walk {
    fn part(&self, part: Range<usize>) -> Product {
        Product { steps: self.steps[part].to_vec(), counted: self.counted }
    }

    /// The cheapest plan, given that the products `chosen` are computed.
    fn costs(&self, chosen: &BTreeSet<Product>) -> Costs {
        Costs::new(&self.tables, &|part| part.len() > 1 && chosen.contains(&self.part(part)))
    }

    /// The cost of the graph under that plan; products already computed cost nothing.
    fn cost(&self, chosen: &BTreeSet<Product>) -> f64 {
        let whole = 0..self.steps.len();
        if chosen.contains(&self.part(whole.clone())) {
            return 0.0;
        }
        self.costs(chosen).walk(whole.clone()) + self.tables.write_cost(whole)
    }
}

impl SemanticGraphs<'_> {
    /// Announces the metapaths that will be requested, so that their common subpaths are built once. The graphs are the
    /// same without it. Shared products take at most a quarter of the smallest memory budget among them, by upper
    /// bounds on their entries.
    ///
    /// Returns the shared products, as steps from source to destination. Skips metapaths in the cache, and those with
    /// steps that do not join.
    pub fn share(&self, metapaths: &[(Vec<Step>, MetapathOptions)]) -> Vec<Vec<Step>> {
        let wanted = metapaths.iter().filter(|(steps, options)| {
            (2..=MAX_PLANNED_STEPS).contains(&steps.len())
                && self.endpoints("", steps, false).is_ok()
                && !self.is_cached(steps, *options)
        });
        let wanted: Vec<(Vec<Step>, MetapathOptions)> = wanted
            .map(|(steps, options)| (steps.iter().rev().map(|step| step.flipped()).collect(), *options))
            .collect();
        let Some(budget) = wanted.iter().map(|(_, options)| options.memory_budget / 4).min() else { return vec![] };
        let candidates = candidates(&wanted);
        if candidates.is_empty() {
            return vec![];
        }
        let walk = |(steps, options): (Vec<Step>, MetapathOptions)| {
            let chain: Vec<Arc<Adjacency>> = steps.iter().map(|&step| self.step(step)).collect();
            let tables = Arc::new(Tables::new(&chain, options.memory_budget / 4, options.counted));
            Walk { steps, counted: options.counted, tables }
        };
        let walks: Vec<Walk> = wanted.into_iter().map(walk).collect();
        let chosen = choose(&walks, &candidates, budget as f64);
        let forward = |product: &Product| product.steps.iter().rev().map(|step| step.flipped()).collect();
        let shared = chosen.iter().map(forward).collect();
        let tables = walks.iter().map(|walk| (walk.part(0..walk.steps.len()), Arc::clone(&walk.tables))).collect();
        *self.shares() = Shares { chosen, made: BTreeMap::new(), tables, budget };
        shared
    }

    /// Tables of a metapath's splits, if they are known.
    pub(super) fn known_tables(&self, steps: &[Step], counted: bool) -> Option<Arc<Tables>> {
        self.shares().tables.get(&Product { steps: steps.to_vec(), counted }).cloned()
    }

    /// Whether a product is shared.
    pub(super) fn is_shared(&self, steps: &[Step], counted: bool) -> bool {
        steps.len() > 1 && self.shares().chosen.contains(&Product { steps: steps.to_vec(), counted })
    }

    /// A shared product, built on first use; `None` if it is not shared.
    pub(super) fn shared(&self, steps: &[Step], counted: bool) -> Option<Arc<Adjacency>> {
        if !self.is_shared(steps, counted) {
            return None;
        }
        let product = Product { steps: steps.to_vec(), counted };
        let budget = {
            let shares = self.shares();
            if let Some(made) = shares.made.get(&product) {
                return Some(Arc::clone(made));
            }
            shares.budget
        };
        // A strict subpath may be shared as well.
        let is_part = |part: &Range<usize>| part.len() < steps.len();
        let chain = steps.iter().map(|&step| self.step(step)).collect();
        let plan =
            Plan::new(chain, budget, counted, None, &|part| is_part(&part) && self.is_shared(&steps[part], counted));
        let plan = plan.store(&|part| if is_part(&part) { self.shared(&steps[part], counted) } else { None });
        let made = Arc::new(plan.product());
        self.shares().made.insert(product, Arc::clone(&made));
        Some(made)
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Subpaths that occur more than once, with their first occurrence: index of the metapath, and range of its steps.
fn candidates(walks: &[(Vec<Step>, MetapathOptions)]) -> BTreeMap<Product, (usize, Range<usize>)> {
    let mut met: BTreeMap<Product, (usize, usize, Range<usize>)> = BTreeMap::new();
    for (walk, (steps, options)) in walks.iter().enumerate() {
        for start in 0..steps.len() {
            for end in start + 2..=steps.len() {
                let product = Product { steps: steps[start..end].to_vec(), counted: options.counted };
                met.entry(product).or_insert((0, walk, start..end)).0 += 1;
            }
        }
    }
    met.into_iter()
        .filter(|(_, (times, ..))| *times > 1)
        .map(|(product, (_, walk, part))| (product, (walk, part)))
        .collect()
}

fn choose(walks: &[Walk], candidates: &BTreeMap<Product, (usize, Range<usize>)>, budget: f64) -> BTreeSet<Product> {
    let total = |chosen: &BTreeSet<Product>| -> f64 {
        let build = |product: &Product| {
            let (walk, part) = &candidates[product];
            let mut others = chosen.clone();
            others.remove(product);
            walks[*walk].tables.store_cost(part.clone(), &walks[*walk].costs(&others))
        };
        let graphs: f64 = walks.iter().map(|walk| walk.cost(chosen)).sum();
        graphs + chosen.iter().map(build).sum::<f64>()
    };
    let mut chosen = BTreeSet::new();
    let (mut best, mut left) = (total(&chosen), budget);
    loop {
        let fits = |(product, (walk, part)): (&Product, &(usize, Range<usize>))| {
            let bytes = walks[*walk].tables.bytes(part.clone());
            (!chosen.contains(product) && bytes <= left).then(|| (product.clone(), bytes))
        };
        let with = |(product, bytes): (Product, f64)| {
            let mut more = chosen.clone();
            more.insert(product);
            (total(&more), more, bytes)
        };
        let next = candidates.iter().filter_map(fits).map(with).min_by(|a, b| a.0.total_cmp(&b.0));
        match next {
            Some((cost, more, bytes)) if cost < best => (best, chosen, left) = (cost, more, left - bytes),
            _ => return chosen,
        }
    }
}
