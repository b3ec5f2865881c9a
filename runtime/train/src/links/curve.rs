//! Classification metrics of link scores: loss, AUC and average precision.

use hgnnc_ir::training::{LinkLoss, RankingLoss};

/// The loss and areas under curves, of scores of positive and negative pairs. `None` without pairs to compare.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct ScoreMetrics {
    /// The loss of training, of links and corrupted links.
    pub loss: Option<f64>,
    /// Area under the ROC curve: probability that a link scores higher than a negative pair; ties count half.
    pub auc: Option<f64>,
    /// Sum over distinct scores, from the highest, of precision times increase of recall.
    pub average_precision: Option<f64>,
}

/// Links with one end replaced.
#[derive(Clone, Copy)]
pub(super) struct Corrupted<'s> {
    /// Their scores.
    pub scores: &'s [f32],
    /// The scores of the links that they corrupt.
    pub of: &'s [f32],
    /// The number of negatives of a link in training, which each of them stands for.
    pub weight: f64,
}

impl ScoreMetrics {
    /// Metrics of `links` against `others`; the loss uses corrupted links. NaN scores give NaN.
    pub fn of(links: &[f32], others: &[f32], (loss, replaced): (LinkLoss, Corrupted<'_>)) -> Self {
        if links.is_empty() {
            return Self::default();
        }
        let areas = (!others.is_empty()).then(|| areas(links, others));
        let loss = (!replaced.scores.is_empty()).then(|| match loss {
            LinkLoss::BinaryCrossEntropy => binary_cross_entropy(links, replaced),
            LinkLoss::Ranking(loss) => ranking(loss, replaced),
        });
        Self { loss, auc: areas.map(|areas| areas.0), average_precision: areas.map(|areas| areas.1) }
    }
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The mean of a ranking loss over corrupted links, each of which stands for all negatives of its link.
fn ranking(loss: RankingLoss, replaced: Corrupted<'_>) -> f64 {
    let pairs = replaced.scores.iter().zip(replaced.of).map(|(&score, &of)| (f64::from(score), f64::from(of)));
    let each = pairs.map(|(score, of)| match loss {
        // As many equal terms in the sum.
        RankingLoss::CrossEntropy => softplus(score - of + replaced.weight.ln()),
        RankingLoss::Bpr => softplus(score - of),
        RankingLoss::Margin(_) if (score - of).is_nan() => score - of,
        RankingLoss::Margin(margin) => (margin + score - of).max(0.0),
        RankingLoss::SelfAdversarial(_) => softplus(-of) + softplus(score),
    });
    each.sum::<f64>() / replaced.scores.len() as f64
}

fn binary_cross_entropy(links: &[f32], Corrupted { scores: replaced, weight, .. }: Corrupted<'_>) -> f64 {
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

    const LOSS: LinkLoss = LinkLoss::BinaryCrossEntropy;

    fn corrupted(scores: &[f32], weight: f64) -> Corrupted<'_> {
        Corrupted { scores, of: scores, weight }
    }

    #[test]
    fn areas_are_those_of_the_definitions() {
        let links = [2.0, 1.0, 0.5, 0.5];
        let others = [1.0, 0.5, -1.0];
        let replaced = [0.25, -3.0];
        let of = ScoreMetrics::of(&links, &others, (LOSS, corrupted(&replaced, 5.0)));
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
        let alone = ScoreMetrics::of(&links, &[], (LOSS, corrupted(&replaced, 5.0)));
        assert_eq!(alone, ScoreMetrics { loss: of.loss, ..ScoreMetrics::default() });
        // Diverged scores give NaN.
        let of = ScoreMetrics::of(&[f32::NAN], &[f32::NAN], (LOSS, corrupted(&replaced, 1.0)));
        assert!(of.auc.is_some_and(f64::is_nan) && of.average_precision.is_some_and(f64::is_nan), "{of:?}");
    }

    #[test]
    fn extreme_scores_have_a_finite_loss() {
        let of = ScoreMetrics::of(&[1e30, -1e4], &[0.0], (LOSS, corrupted(&[-1e30], 1.0)));
        assert_eq!(of.loss, Some(1e4 / 4.0));
    }

    #[test]
    fn ranking_losses_compare_corrupted_links_with_their_own() {
        let (scores, of) = ([0.5f32, -1.0, 2.0], [1.0f32, 1.0, 0.25]);
        let loss = |loss| {
            ScoreMetrics::of(&of, &[], (LinkLoss::Ranking(loss), Corrupted { scores: &scores, of: &of, weight: 4.0 }))
        };
        let mean =
            |each: &dyn Fn(f64) -> f64| scores.iter().zip(of).map(|(&n, s)| each(f64::from(n - s))).sum::<f64>() / 3.0;
        let close = |found: ScoreMetrics, expected: f64| {
            let found = found.loss.expect("links are corrupted");
            assert!((found - expected).abs() < 1e-12, "{found} instead of {expected}");
        };
        close(loss(RankingLoss::CrossEntropy), mean(&|x| (1.0 + 4.0 * x.exp()).ln()));
        close(loss(RankingLoss::Bpr), mean(&|x| (1.0 + x.exp()).ln()));
        close(loss(RankingLoss::Margin(0.5)), mean(&|x| (0.5 + x).max(0.0)));
        let ln_1p_exp = |x: f32| f64::from(x).exp().ln_1p();
        let apart: f64 = scores.iter().zip(of).map(|(&n, s)| ln_1p_exp(-s) + ln_1p_exp(n)).sum();
        close(loss(RankingLoss::SelfAdversarial(0.5)), apart / 3.0);
    }
}
