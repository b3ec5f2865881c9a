//! Placement policies on small tables, and the upper bound against exhaustive search.

use hgnnc_cache::{Forecast, Outcome, Placement, Policy, Slots, Table, best, place};

fn table(name: &str, row_bytes: u64, written: bool, miss_ns: f64) -> Table {
    Table { name: name.into(), row_bytes, written, miss_ns }
}

/// Papers have rows of 8 bytes; embedding rows of authors have two states besides their 4 bytes, and are written.
fn library() -> (Vec<Table>, Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let tables = vec![table("Paper.x", 8, false, 10.0), table("Author.x", 12, true, 40.0)];
    let accesses = vec![vec![1, 9, 5, 0, 0], vec![4, 0, 6]];
    let degrees = vec![vec![7, 0, 0, 8, 0], vec![0, 9, 1]];
    (tables, accesses, degrees)
}

fn kept(policy: Policy, bytes: u64) -> Vec<Vec<u32>> {
    let (tables, accesses, degrees) = library();
    let forecast = Forecast { accesses: &accesses, degrees: &degrees, seed: 3 };
    let placement = place(policy, bytes, &tables, &forecast);
    placement.tables.iter().map(|slots| slots.vertices().to_vec()).collect()
}

#[test]
fn hotness_keeps_what_was_met_most() {
    // 9 of a paper, 6 of an author, 5 of a paper.
    assert_eq!(kept(Policy::Hotness, 28), [vec![1, 2], vec![2]]);
}

#[test]
fn penalty_keeps_what_saves_most_for_its_bytes() {
    // By nanoseconds a byte: authors 6 * 40/12 = 20 and 4 * 40/12 = 13.3, papers 9 * 10/8 = 11.25 and 6.25.
    assert_eq!(kept(Policy::Penalty, 24), [vec![], vec![0, 2]]);
    assert_eq!(kept(Policy::Penalty, 28), [vec![], vec![0, 2]]);
    assert_eq!(kept(Policy::Penalty, 32), [vec![1], vec![0, 2]]);
}

#[test]
fn shares_divide_bytes_by_accesses_and_penalty() {
    // Papers 15 * 10/8 = 18.75, authors 10 * 40/12 = 33.3: of 60 bytes 21 and 38, but authors have 36 in all.
    assert_eq!(kept(Policy::Shares, 60), [vec![0, 1, 2], vec![0, 1, 2]]);
    // Of 30 bytes 10 and 19.
    assert_eq!(kept(Policy::Shares, 30), [vec![1], vec![2]]);
}

#[test]
fn degree_knows_no_accesses() {
    assert_eq!(kept(Policy::Degree, 28), [vec![0, 3], vec![1]]);
}

#[test]
fn random_depends_on_the_seed() {
    let (tables, _, _) = library();
    let zeros = vec![vec![0; 500], vec![0; 300]];
    let of = |seed| place(Policy::Random, 2000, &tables, &Forecast { accesses: &zeros, degrees: &zeros, seed });
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

/// Nothing fits, everything fits, and a placement never exceeds the memory.
#[test]
fn every_policy_stays_within_the_bytes() {
    let (tables, _, _) = library();
    let all = 5 * 8 + 3 * 12;
    for policy in Policy::ALL {
        for bytes in 0..all + 20 {
            let kept = kept(policy, bytes);
            let used: u64 = kept.iter().zip(&tables).map(|(rows, table)| rows.len() as u64 * table.row_bytes).sum();
            assert!(used <= bytes, "{policy:?} uses {used} of {bytes}");
            if bytes >= all {
                assert_eq!(kept, [vec![0, 1, 2, 3, 4], vec![0, 1, 2]], "{policy:?} with {bytes}");
            }
        }
    }
}

#[test]
fn no_tables_need_no_memory() {
    for policy in Policy::ALL {
        let forecast = Forecast { accesses: &[], degrees: &[], seed: 0 };
        assert_eq!(place(policy, 100, &[], &forecast), Placement::default());
    }
    let empty = [vec![]];
    let forecast = Forecast { accesses: &empty, degrees: &empty, seed: 0 };
    for policy in Policy::ALL {
        let placement = place(policy, 100, &[table("Empty.x", 8, false, 1.0)], &forecast);
        assert_eq!(placement.tables, [Slots::new(0, vec![])]);
    }
}

#[test]
fn an_outcome_counts_what_misses_move() {
    let (tables, accesses, _) = library();
    let placement = Placement { tables: vec![Slots::new(5, vec![2, 1]), Slots::new(3, vec![0])] };
    let found = Outcome::of(&placement, &tables, &accesses);
    // Misses: one paper, six authors, whose rows are read and written.
    let expected = Outcome {
        accesses: 25,
        hits: 18,
        bytes_missed: 8 + 6 * 24,
        bytes_without: 15 * 8 + 10 * 24,
        miss_ms: (10.0 + 240.0) * 1e-6,
    };
    assert_eq!(found, expected);
    assert_eq!(found.hit_rate(), 0.72);
}

/// The best placement by exhaustive search is within one row of the bounds of `best`.
#[test]
fn best_is_the_best_of_all() {
    let (tables, accesses, _) = library();
    let rows: Vec<(usize, u32)> = (0..5).map(|v| (0, v)).chain((0..3).map(|v| (1, v))).collect();
    for bytes in 0..80 {
        let found = best(bytes, &tables, &accesses);
        let (mut hit_rate, mut missed, mut ms) = (0.0f64, u64::MAX, f64::MAX);
        for chosen in 0u32..1 << rows.len() {
            let mut kept = [vec![], vec![]];
            for (bit, &(table, vertex)) in rows.iter().enumerate() {
                if chosen >> bit & 1 == 1 {
                    kept[table].push(vertex);
                }
            }
            if 8 * kept[0].len() + 12 * kept[1].len() > bytes as usize {
                continue;
            }
            let [papers, authors] = kept;
            let placement = Placement { tables: vec![Slots::new(5, papers), Slots::new(3, authors)] };
            let outcome = Outcome::of(&placement, &tables, &accesses);
            hit_rate = hit_rate.max(outcome.hit_rate());
            missed = missed.min(outcome.bytes_missed);
            ms = ms.min(outcome.miss_ms);
        }
        assert!(found.hit_rate <= hit_rate && found.hit_rate >= hit_rate - 9.0 / 25.0, "{bytes}: {found:?} {hit_rate}");
        assert!(found.bytes_missed >= missed && found.bytes_missed <= missed + 6 * 24, "{bytes}: {found:?} {missed}");
        assert!(found.miss_ms >= ms - 1e-12 && found.miss_ms <= ms + 240e-6, "{bytes}: {found:?} {ms}");
    }
}
