//! Links of which pairs come again are read as of their times.

use hgnnc_dataset::schema::Schema;
use hgnnc_dataset::{Dataset, LinkSplitData};

/// The number of periods that the links of a starter's cutoff have, or fewer: each costs a row of every vertex at their ends.
const PERIODS: i64 = 20;

/// The length of the periods of links that a split divides by their times: pairs of it come again, and all links have times.
pub fn period(dataset: &Dataset, split: &LinkSplitData, predicted: &[usize]) -> Option<i64> {
    let relations = || predicted.iter().map(|&relation| &dataset.relations[relation]);
    let timed_ends = relations().any(|of| [of.src, of.dst].iter().any(|&end| dataset.vertex_types[end].time.is_some()));
    // A split of pairs holds each of them out of the others.
    let is_of_pairs = dataset.check_links(split, predicted, &[]).is_ok();
    if timed_ends || is_of_pairs {
        return None;
    }
    let held_out = [&split.val, &split.test].into_iter().filter(|part| !part.is_empty()).map(|part| part.time.as_ref());
    let times: Vec<&Vec<i64>> = relations().map(|of| of.time.as_ref()).chain(held_out).collect::<Option<_>>()?;
    let all = || times.iter().copied().flatten().copied();
    let span = all().max()?.saturating_sub(all().min()?);
    Some(span / PERIODS + 1)
}

/// The text of a schema in which these relations have times.
pub fn with_times(schema: &Schema, timed: &[usize]) -> String {
    let heads: Vec<String> = timed.iter().map(|&of| format!("    relation {}: ", schema.relations[of])).collect();
    let mut text = String::new();
    for line in schema.text.lines() {
        if heads.iter().any(|head| line.starts_with(head)) {
            let name = if line.contains(" at: ") { "at_time" } else { "at" };
            text += &match line.strip_suffix(" }") {
                Some(fields) => format!("{fields}, {name}: time }}"),
                None => format!("{line} {{ {name}: time }}"),
            };
        } else {
            text += line;
        }
        text.push('\n');
    }
    text
}
