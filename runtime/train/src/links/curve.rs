//! Classification metrics of link scores: loss, AUC and average precision.

/// Binary cross entropy and areas under curves, of scores of positive and negative pairs. `None`
/// without pairs to compare.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct ScoreMetrics {
    /// Mean of `softplus(x) - x·y` over links and corrupted links.
    pub loss: Option<f64>,
    /// Area under the ROC curve: probability that a link scores higher than a negative pair; ties count half.
    pub auc: Option<f64>,
    /// Sum over distinct scores, from the highest, of precision times increase of recall.
    pub average_precision: Option<f64>,
}

impl ScoreMetrics {
    /// Metrics of `links` against `others`; the loss uses corrupted links, weighted by the number of negatives per link
    /// in training. NaN scores give NaN.
    pub fn of(links: &[f32], others: &[f32], (replaced, weight): (&[f32], f64)) -> Self {
        if links.is_empty() {
            return Self::default();
        }
        let areas = (!others.is_empty()).then(|| areas(links, others));
        let loss = (!replaced.is_empty()).then(|| loss(links, replaced, weight));
        Self { loss, auc: areas.map(|areas| areas.0), average_precision: areas.map(|areas| areas.1) }
    }
}

fn loss(links: &[f32], replaced: &[f32], weight: f64) -> f64 {
    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    let mean = |scores: &[f32], sign: f64| {
        scores.iter().map(|&x| softplus(sign * f64::from(x))).sum::<f64>() / scores.len() as f64
    };
    (mean(links, -1.0) + weight * mean(replaced, 1.0)) / (1.0 + weight)
}

/// ROC AUC and average precision.
fn areas(links: &[f32], others: &[f32]) -> (f64, f64) {
    if links.iter().chain(others).any(|score| score.is_nan()) {
        return (f64::NAN, f64::NAN);
    }
    let mut all: Vec<(f32, bool)> =
        links.iter().map(|&x| (x, true)).chain(others.iter().map(|&x| (x, false))).collect();
    all.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let (mut found, mut wrong) = (0u64, 0u64);
    let (mut auc, mut average_precision) = (0.0, 0.0);
    for equal in all.chunk_by(|a, b| a.0 == b.0) {
        let own = equal.iter().filter(|pair| pair.1).count() as u64;
        let false_own = equal.len() as u64 - own;
        // Each negative of this score ranks below all previous links, and ties with those of the same score.
        auc += false_own as f64 * (found as f64 + own as f64 / 2.0);
        (found, wrong) = (found + own, wrong + false_own);
        average_precision += own as f64 * found as f64 / (found + wrong) as f64;
    }
    let (num, others) = (links.len() as f64, others.len() as f64);
    (auc / (num * others), average_precision / num)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_those_of_the_definitions() {
        let links = [2.0, 1.0, 0.5, 0.5];
        let others = [1.0, 0.5, -1.0];
        let replaced = [0.25, -3.0];
        let of = ScoreMetrics::of(&links, &others, (&replaced, 5.0));
        // Every link against every negative.
        let mut wins = 0.0;
        for a in links {
            for b in others {
                wins += if a > b {
                    1.0
                } else if a == b {
                    0.5
                } else {
                    0.0
                };
            }
        }
        assert_eq!(of.auc, Some(wins / 12.0));
        // Distinct scores: 2 (1 of 1), 1 (2 of 3), 0.5 (4 of 6).
        assert!(
            (of.average_precision.expect("there are others") - (1.0 + 2.0 / 3.0 + 2.0 * 4.0 / 6.0) / 4.0).abs() < 1e-12
        );
        let cross_entropy = |x: f32, y: f64| {
            let p = 1.0 / (1.0 + (-f64::from(x)).exp());
            -(y * p.ln() + (1.0 - y) * (1.0 - p).ln())
        };
        // Each link with five negatives, represented by the two that were drawn.
        let of_links: f64 = links.iter().map(|&x| cross_entropy(x, 1.0)).sum();
        let of_replaced: f64 = replaced.iter().map(|&x| cross_entropy(x, 0.0)).sum();
        assert!(
            (of.loss.expect("ends were replaced") - (of_links / 4.0 + 5.0 * of_replaced / 2.0) / 6.0).abs() < 1e-12
        );
        let alone = ScoreMetrics::of(&links, &[], (&replaced, 5.0));
        assert_eq!(alone, ScoreMetrics { loss: of.loss, ..ScoreMetrics::default() });
        // Diverged scores give NaN.
        let of = ScoreMetrics::of(&[f32::NAN], &[f32::NAN], (&replaced, 1.0));
        assert!(of.auc.is_some_and(f64::is_nan) && of.average_precision.is_some_and(f64::is_nan), "{of:?}");
    }

    #[test]
    fn extreme_scores_have_a_finite_loss() {
        let of = ScoreMetrics::of(&[1e30, -1e4], &[0.0], (&[-1e30], 1.0));
        assert_eq!(of.loss, Some(1e4 / 4.0));
    }
}
