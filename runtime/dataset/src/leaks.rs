//! Finds held-out links that leak into training.
//!
//! A validation or test link measures nothing if it is also a training link, or if a message-passing edge duplicates
//! it. Both are found with a hash table of the held-out links and one look-up per edge of the relations concerned, so
//! the cost is linear in links and edges.

use rayon::prelude::*;
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

use crate::dataset::{Dataset, LinkSplitData, RelationData};
use crate::error::{DataError, DataErrors};

/// Relation, source and destination.
type Link = (u32, u32, u32);
/// Source and destination with their vertex types, for a link of any relation between them.
type Pair = ((usize, usize), (u32, u32));

const PARTS: [&str; 2] = ["val", "test"];

impl Dataset {
    /// Checks the link split of a model that predicts the relations `predicted`. `repeats` are relations whose edges
    /// duplicate these links in either direction; predicted relations among them are skipped, since their edges are
    /// training links themselves.
    /// their edges are training links of their own.
    /// Errors when a part contains a link twice, two parts share one (training links are the edges of the relation), or
    /// an edge of `repeats` duplicates a held-out link and no training link.
    pub fn check_links(&self, split: &LinkSplitData, predicted: &[usize], repeats: &[usize]) -> Result<(), DataErrors> {
        let at = format!("link split `{}`", split.name);
        let held_out = held_out(split, predicted);
        let mut errors = self.overlaps(&at, &held_out);
        errors.extend(self.repeated(&at, &held_out, predicted, repeats));
        if errors.is_empty() { Ok(()) } else { Err(DataErrors { folder: self.folder.clone(), errors }) }
    }

    fn overlaps(&self, at: &str, held_out: &HashMap<Link, [u32; 2]>) -> Vec<DataError> {
        let relations: HashSet<u32> = held_out.keys().map(|link| link.0).collect();
        let mut trained = HashSet::default();
        for &relation in &relations {
            let link = |(src, dst)| Some((relation, src, dst)).filter(|link| held_out.contains_key(link));
            trained.extend(find_edges(&self.relations[relation as usize], link));
        }
        let mut errors = vec![];
        let mut report = |first: &str, second: &str, shared: &mut dyn Iterator<Item = Link>| {
            if let (links, Some((relation, src, dst))) = count_and_first(shared) {
                let relation = self.relations[relation as usize].name.clone();
                let (at, first, second) = (at.into(), first.into(), second.into());
                errors.push(DataError::LinkOverlap { at, first, second, links, relation, src, dst });
            }
        };
        let all = || held_out.iter().map(|(&link, &times)| (link, times));
        for (part, name) in PARTS.into_iter().enumerate() {
            let mut shared =
                all().filter(|(link, times)| times[part] > 0 && trained.contains(link)).map(|(link, _)| link);
            report("train", name, &mut shared);
        }
        report("val", "test", &mut all().filter(|(_, times)| times.iter().all(|&n| n > 0)).map(|(link, _)| link));
        for (part, name) in PARTS.into_iter().enumerate() {
            report(name, name, &mut all().filter(|(_, times)| times[part] > 1).map(|(link, _)| link));
        }
        errors
    }

    fn repeated(
        &self,
        at: &str,
        held_out: &HashMap<Link, [u32; 2]>,
        predicted: &[usize],
        repeats: &[usize],
    ) -> Vec<DataError> {
        let mut pairs: HashMap<Pair, [bool; 2]> = HashMap::default();
        if !repeats.is_empty() {
            for (&(relation, src, dst), times) in held_out {
                let of = pairs.entry((endpoints(&self.relations[relation as usize]), (src, dst))).or_default();
                (0..PARTS.len()).for_each(|part| of[part] |= times[part] > 0);
            }
        }
        let mut errors = vec![];
        for &position in repeats.iter().filter(|position| !predicted.contains(position)) {
            let relation = &self.relations[position];
            let (src_type, dst_type) = endpoints(relation);
            // The links that an edge may duplicate: in its own direction and reversed.
            let ways = |(src, dst)| [((src_type, dst_type), (src, dst)), ((dst_type, src_type), (dst, src))];
            let hits = find_edges(relation, |edge| {
                ways(edge).into_iter().any(|pair| pairs.contains_key(&pair)).then_some(edge)
            });
            if hits.is_empty() {
                continue;
            }
            // Between vertices of one type, an edge may duplicate a training link whose reverse is held out.
            let asked: HashSet<Pair> = hits.iter().flat_map(|&edge| ways(edge)).collect();
            let mut trained = HashSet::default();
            for relation in predicted.iter().map(|&position| &self.relations[position]) {
                let of = endpoints(relation);
                trained.extend(find_edges(relation, |edge| Some((of, edge)).filter(|pair| asked.contains(pair))));
            }
            let leaks = hits.into_iter().filter(|&edge| ways(edge).iter().all(|pair| !trained.contains(pair)));
            let leaks: HashSet<(u32, u32)> = leaks.collect();
            for (part, name) in PARTS.into_iter().enumerate() {
                let is_of_part = |pair: &Pair| pairs.get(pair).is_some_and(|parts| parts[part]);
                let mut of_part = leaks.iter().copied().filter(|&edge| ways(edge).iter().any(is_of_part));
                if let (edges, Some((src, dst))) = count_and_first(&mut of_part) {
                    let (at, part, relation) = (at.into(), name.into(), relation.name.clone());
                    errors.push(DataError::LinkRepeated { at, part, edges, relation, src, dst });
                }
            }
        }
        errors
    }
}

/// Number of occurrences of each link of the relations in the validation and the test part.
fn held_out(split: &LinkSplitData, predicted: &[usize]) -> HashMap<Link, [u32; 2]> {
    let predicted: HashSet<usize> = predicted.iter().copied().collect();
    let mut found: HashMap<Link, [u32; 2]> = HashMap::default();
    found.reserve(split.val.len() + split.test.len());
    for (part, links) in [&split.val, &split.test].into_iter().enumerate() {
        for ((&src, &dst), &relation) in links.src.iter().zip(&links.dst).zip(&links.relation) {
            if predicted.contains(&(relation as usize)) {
                let times = found.entry((relation, src, dst)).or_default();
                times[part] = times[part].saturating_add(1);
            }
        }
    }
    found
}

fn endpoints(relation: &RelationData) -> (usize, usize) {
    (relation.src, relation.dst)
}

/// The `Some` results of `find` over the edges of a relation.
fn find_edges<T: Send>(relation: &RelationData, find: impl Fn((u32, u32)) -> Option<T> + Sync) -> Vec<T> {
    const CHUNK: usize = 1 << 14;
    let chunks = relation.src_ids.par_chunks(CHUNK).zip(relation.dst_ids.par_chunks(CHUNK));
    chunks.flat_map_iter(|(src, dst)| src.iter().copied().zip(dst.iter().copied()).filter_map(&find)).collect()
}

/// Number of the items, and the smallest.
fn count_and_first<T: Ord + Copy>(items: &mut dyn Iterator<Item = T>) -> (usize, Option<T>) {
    items.fold((0, None), |(count, first), item| (count + 1, Some(first.map_or(item, |first: T| first.min(item)))))
}
