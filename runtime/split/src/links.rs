//! Splits of links.

use hgnnc_dataset::{Dataset, LinkSplitData, Links, RelationData};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::reverses::{Reverses, check, undirected};
use crate::shares::shuffle;
use crate::{Order, Shares, SplitError};

/// Which links are held out.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkSplit {
    /// Positions of the relations whose links are divided, each by itself.
    pub relations: Vec<usize>,
    /// Pairs of a relation and one that holds reverses of its edges; a relation with itself is symmetric. Those that
    /// hold the reverse of every edge are found without being named.
    pub reverses: Vec<(usize, usize)>,
    /// Name of the split.
    pub name: String,
    /// Shares of the distinct links of each relation.
    pub shares: Shares,
    /// The order of links, the first ones to train on. By time, a link has the time of its first edge; by events, each edge is a
    /// link of its own.
    pub order: Order,
}

/// Statistics of a split of links, for a message.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct LinkOutcome {
    /// Distinct links of the training, validation and test part.
    pub links: [usize; 3],
    /// Number of edges that left each relation, by its position; relations that lost none are left out.
    pub removed: Vec<(usize, usize)>,
    /// Pairs of a relation and one that was found to hold the reverse of every edge; of a relation with itself, if it is
    /// symmetric: a link and its other direction are one link.
    pub reverses: Vec<(usize, usize)>,
    /// Pairs of a relation and one that holds the reverses of this share of its edges, and was not named as its reverse:
    /// links may leak through it. From [`crate::SUSPICIOUS`] on.
    pub suspects: Vec<(usize, usize, f64)>,
}

/// Holds out links of the dataset's relations and adds them as a link split.
///
/// A link is held out with everything that would give it away: all equal edges, its other direction in a symmetric
/// relation, and its reverses in reverse relations leave the graph. A symmetric link is in its part once, in the
/// direction of its first edge. Links that neither train nor are held out (shares below 1 together) leave the graph too.
/// By time, edges later than the first held-out link leave the relation and its reverses, so that training sees no
/// future. Held-out links have the times of their first edges, unless a relation has none.
///
/// By events, a pair that comes again is a link again, held out or not: training has the edges before a time, and their
/// reverses. Such links are for models that read them as of their times. Edges of equal times are in one part.
///
/// # Errors
/// Shares that are none, a name that is taken, a split by time of edges without times, relations that are no reverses
/// of each other, and a part that would be empty. The dataset is unchanged then.
pub fn split_links(dataset: &mut Dataset, asked: &LinkSplit) -> Result<LinkOutcome, SplitError> {
    asked.shares.check()?;
    if dataset.link_splits.iter().any(|split| split.name == asked.name) {
        return Err(SplitError::Name(asked.name.clone()));
    }
    let relations = &dataset.relations;
    asked.reverses.iter().try_for_each(|&(relation, reverse)| check(&relations[relation], &relations[reverse]))?;
    // Reverses of each other, in both orders.
    let pairs: Vec<(usize, usize)> = asked.reverses.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect();
    let mut outcome = LinkOutcome::default();
    // With times unless a relation has none.
    let mut parts = [(); 2].map(|()| Links { time: Some(vec![]), ..Links::default() });
    // For each relation that loses edges: whether each edge stays.
    let mut stays: FxHashMap<usize, Vec<bool>> = FxHashMap::default();
    let mut divided: Vec<usize> = Vec::new();
    for &relation in &asked.relations {
        // The links of a reverse are those of the relation that comes before it.
        let is_reverse = |&of: &usize| pairs.contains(&(of, relation)) || outcome.reverses.contains(&(of, relation));
        if divided.iter().any(is_reverse) || divided.contains(&relation) {
            continue;
        }
        divided.push(relation);
        let data = &relations[relation];
        let named: Vec<usize> = pairs.iter().filter(|pair| pair.0 == relation).map(|pair| pair.1).collect();
        let Reverses { all: reverses, found, suspects } = Reverses::find(relations, relation, &named, |_| true)?;
        outcome.reverses.extend(found.into_iter().map(|other| (relation, other)));
        outcome.suspects.extend(suspects.into_iter().map(|(other, share)| (relation, other, share)));
        let symmetric = reverses.contains(&relation);
        let cut = Cut::new(data, symmetric, asked)?;
        for (total, size) in outcome.links.iter_mut().zip(cut.sizes) {
            *total += size;
        }
        for (links, held_out) in parts.iter_mut().zip(&cut.held_out) {
            for &Link { ends: (src, dst), time } in held_out {
                links.src.push(src);
                links.relation.push(relation as u32);
                links.dst.push(dst);
                match (&mut links.time, time) {
                    (Some(times), Some(time)) => times.push(time),
                    (times, _) => *times = None,
                }
            }
        }
        if asked.order == Order::Events
            && let Some(untimed) = reverses.iter().map(|&of| &relations[of]).find(|of| of.time.is_none())
        {
            return Err(SplitError::NoTime(format!("relation `{}`", untimed.name)));
        }
        let mut apply = |of: usize, flipped: bool| {
            let data = &relations[of];
            let stays = stays.entry(of).or_insert_with(|| vec![true; data.num_edges()]);
            for (edge, stays) in stays.iter_mut().enumerate() {
                let (src, dst) = (data.src_ids[edge], data.dst_ids[edge]);
                let time = data.time.as_ref().map(|time| time[edge]);
                *stays &= cut.trains(if flipped { (dst, src) } else { (src, dst) }, time);
            }
        };
        apply(relation, false);
        reverses.into_iter().filter(|&reverse| reverse != relation).for_each(|reverse| apply(reverse, true));
    }
    for (relation, stays) in stays {
        let edges: Vec<usize> = (0..stays.len()).filter(|&edge| stays[edge]).collect();
        if edges.len() < stays.len() {
            outcome.removed.push((relation, stays.len() - edges.len()));
            dataset.relations[relation].keep(&edges);
        }
    }
    outcome.removed.sort_unstable();
    let [val, test] = parts;
    dataset.link_splits.push(LinkSplitData { name: asked.name.clone(), val, test });
    for metapath in &mut dataset.metapaths {
        // Claims about the graph before.
        (metapath.pairs, metapath.self_pairs, metapath.instances, metapath.max_degree) = (None, None, None, None);
    }
    Ok(outcome)
}

/// The parts of the links of one relation.
struct Cut {
    symmetric: bool,
    /// Number of links of each part.
    sizes: [usize; 3],
    /// Links of the validation and the test part.
    held_out: [Vec<Link>; 2],
    /// All links but those to train on.
    left_out: FxHashSet<(u32, u32)>,
    /// Training has no edges that are later; `None`: all but those of links that are left out.
    until: Option<i64>,
}

/// All edges that join the same two vertices.
#[derive(Clone, Copy)]
struct Link {
    /// Source and destination of its first edge.
    ends: (u32, u32),
    /// The earliest time of its edges, if the relation has times.
    time: Option<i64>,
}

impl Cut {
    fn new(data: &RelationData, symmetric: bool, asked: &LinkSplit) -> Result<Cut, SplitError> {
        if asked.order == Order::Events {
            return Self::of_events(data, symmetric, asked);
        }
        // Distinct links in the order of their first edges.
        let mut number: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let mut links: Vec<Link> = Vec::new();
        if asked.order == Order::Time && data.time.is_none() {
            return Err(SplitError::NoTime(format!("relation `{}`", data.name)));
        }
        for (edge, (&src, &dst)) in data.src_ids.iter().zip(&data.dst_ids).enumerate() {
            let time = data.time.as_ref().map(|time| time[edge]);
            let at = *number.entry(undirected((src, dst), symmetric)).or_insert_with(|| {
                links.push(Link { ends: (src, dst), time });
                links.len() as u32 - 1
            });
            let first = &mut links[at as usize].time;
            *first = (*first).min(time);
        }
        let mut order: Vec<u32> = (0..links.len() as u32).collect();
        match asked.order {
            Order::Random(seed) => shuffle(&mut order, seed),
            Order::Time | Order::Events => order.sort_by_key(|&link| links[link as usize].time),
        }
        let sizes = asked.shares.sizes(order.len());
        asked.shares.check_parts(sizes, order.len(), &format!("links of `{}`", data.name))?;
        let [train, val, test] = asked.shares.cut(&order);
        let first = order.get(sizes[0]).filter(|_| asked.order == Order::Time);
        let until = first.and_then(|&link| links[link as usize].time);
        let held_out = |part: &[u32]| part.iter().map(|&link| links[link as usize]).collect::<Vec<_>>();
        Ok(Cut {
            symmetric,
            sizes,
            held_out: [held_out(&val), held_out(&test)],
            left_out: order[train.len()..]
                .iter()
                .map(|&link| undirected(links[link as usize].ends, symmetric))
                .collect(),
            until,
        })
    }

    /// Each edge is a link at its time; of equal ones, and of both directions of a symmetric link, the first.
    fn of_events(data: &RelationData, symmetric: bool, asked: &LinkSplit) -> Result<Cut, SplitError> {
        let Some(times) = &data.time else { return Err(SplitError::NoTime(format!("relation `{}`", data.name))) };
        let ends = data.src_ids.iter().copied().zip(data.dst_ids.iter().copied());
        let mut known = FxHashSet::default();
        let first = |&((src, dst), time): &((u32, u32), i64)| known.insert((undirected((src, dst), symmetric), time));
        let mut links: Vec<((u32, u32), i64)> = ends.zip(times.iter().copied()).filter(first).collect();
        links.sort_by_key(|link| link.1);
        // A part ends where the time of the next one begins.
        let [train, val, test] = asked.shares.sizes(links.len());
        let begins = |at: usize| links.get(at).map_or(links.len(), |link| links.partition_point(|of| of.1 < link.1));
        let ends = [train, train + val, train + val + test].map(begins);
        let sizes = [ends[0], ends[1] - ends[0], ends[2] - ends[1]];
        asked.shares.check_parts(sizes, links.len(), &format!("links of `{}`", data.name))?;
        let link = |&(ends, time): &((u32, u32), i64)| Link { ends, time: Some(time) };
        Ok(Cut {
            symmetric,
            sizes,
            held_out: [&links[ends[0]..ends[1]], &links[ends[1]..ends[2]]].map(|part| part.iter().map(link).collect()),
            left_out: FxHashSet::default(),
            until: links.get(ends[0]).map(|first| first.1.saturating_sub(1)),
        })
    }

    /// Whether an edge of the relation stays in the training graph.
    fn trains(&self, link: (u32, u32), time: Option<i64>) -> bool {
        let is_later = self.until.zip(time).is_some_and(|(until, time)| time > until);
        !is_later && !self.left_out.contains(&undirected(link, self.symmetric))
    }
}
