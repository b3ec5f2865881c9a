//! Placement policies.

use hgnnc_ir::random::{bits, mask_key};

use crate::Table;
use crate::placement::{Placement, Slots};

/// Criterion that divides the fast memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum Policy {
    /// Rows by expected time saved per byte.
    #[default]
    Penalty,
    /// A share for each table, by accesses and miss time; within it the hottest rows.
    Shares,
    /// The most accessed rows of all tables.
    Hotness,
    /// Rows of the vertices with the highest out-degree.
    Degree,
    Random,
}

impl Policy {
    /// All policies, the best first.
    pub const ALL: [Policy; 5] = [Policy::Penalty, Policy::Shares, Policy::Hotness, Policy::Degree, Policy::Random];

    /// Name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Penalty => "penalty",
            Policy::Shares => "shares",
            Policy::Hotness => "hotness",
            Policy::Degree => "degree",
            Policy::Random => "random",
        }
    }
}

/// Inputs known before training. Both lists are by table and vertex.
#[derive(Clone, Copy, Debug)]
pub struct Forecast<'a> {
    /// Accesses of each vertex in presampling.
    pub accesses: &'a [Vec<u32>],
    /// Out-degree of each vertex, over all sampled graphs.
    pub degrees: &'a [Vec<u32>],
    /// Seed of random placements.
    pub seed: u64,
}

/// Separates the random numbers of placements from others of the same seed.
const STREAM: u32 = 0x0cac_4e01;

/// The rows that a policy keeps in `bytes` bytes. Rows without any benefit are kept only if room is left; ties go to
/// the first table and the smallest vertex.
///
/// # Panics
/// When a forecast does not have one list per table.
pub fn place(policy: Policy, bytes: u64, tables: &[Table], forecast: &Forecast<'_>) -> Placement {
    let Forecast { accesses, degrees, seed } = *forecast;
    assert_eq!((accesses.len(), degrees.len()), (tables.len(), tables.len()), "a list for each table");
    let of_accesses = |table: usize, vertex: usize| f64::from(accesses[table][vertex]);
    let rows: Vec<usize> = accesses.iter().map(Vec::len).collect();
    match policy {
        Policy::Penalty => {
            let saved: Vec<f64> = tables.iter().map(|table| table.miss_ns / table.row_bytes.max(1) as f64).collect();
            greedy(bytes, tables, &rows, |table, vertex| saved[table] * of_accesses(table, vertex))
        }
        Policy::Hotness => greedy(bytes, tables, &rows, of_accesses),
        Policy::Degree => greedy(bytes, tables, &rows, |table, vertex| f64::from(degrees[table][vertex])),
        Policy::Random => greedy(bytes, tables, &rows, |table, vertex| {
            let key = mask_key(seed, table as u64, STREAM);
            f64::from(bits(key, vertex as u64))
        }),
        Policy::Shares => {
            let shares = shares(bytes, tables, accesses);
            let each = |index: usize| {
                let own = |_: usize, vertex: usize| of_accesses(index, vertex);
                let one = greedy(shares[index], &tables[index..=index], &rows[index..=index], own);
                one.tables.into_iter().next().unwrap_or_default()
            };
            Placement { tables: (0..tables.len()).map(each).collect() }
        }
    }
}

/// Keeps rows by descending worth while they fit. Rows are small compared to the memory, so the sum of worth times
/// bytes is optimal up to one row.
pub(crate) fn greedy(bytes: u64, tables: &[Table], rows: &[usize], worth: impl Fn(usize, usize) -> f64) -> Placement {
    let of_table = |table: usize| (0..rows[table]).map(move |vertex| (table, vertex));
    let mut all: Vec<(f64, u32, u32)> = (0..tables.len())
        .flat_map(of_table)
        .map(|(table, vertex)| (worth(table, vertex), table as u32, vertex as u32))
        .collect();
    let order = |a: &(f64, u32, u32), b: &(f64, u32, u32)| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2)));
    // No more than this many rows fit, so the rest need not be sorted.
    let smallest = tables.iter().map(|table| table.row_bytes.max(1)).min().unwrap_or(1);
    let most = usize::try_from(bytes / smallest).unwrap_or(usize::MAX);
    if most == 0 {
        all.clear();
    } else if most < all.len() && tables.iter().all(|table| table.row_bytes == smallest) {
        all.select_nth_unstable_by(most, order);
        all.truncate(most);
    }
    all.sort_unstable_by(order);
    let mut kept: Vec<Vec<u32>> = vec![vec![]; tables.len()];
    let mut left = bytes;
    for (_, table, vertex) in all {
        let needed = tables[table as usize].row_bytes;
        if needed <= left {
            left -= needed;
            kept[table as usize].push(vertex);
        }
    }
    Placement { tables: rows.iter().zip(kept).map(|(&rows, kept)| Slots::new(rows, kept)).collect() }
}

/// The bytes of each table, in proportion to its accesses times the miss time per byte. Bytes beyond the rows of a
/// table are redistributed among the others in the same way.
fn shares(bytes: u64, tables: &[Table], accesses: &[Vec<u32>]) -> Vec<u64> {
    let weight = |(table, accesses): (&Table, &Vec<u32>)| {
        let accesses: u64 = accesses.iter().map(|&count| u64::from(count)).sum();
        accesses as f64 * table.miss_ns / table.row_bytes.max(1) as f64
    };
    let weights: Vec<f64> = tables.iter().zip(accesses).map(weight).collect();
    let full: Vec<u64> = tables.iter().zip(accesses).map(|(table, rows)| table.row_bytes * rows.len() as u64).collect();
    let mut shares = vec![0; tables.len()];
    let (mut open, mut left): (Vec<usize>, u64) = ((0..tables.len()).collect(), bytes);
    loop {
        let total: f64 = open.iter().map(|&table| weights[table]).sum();
        let share = |table: usize| match total > 0.0 {
            true => (left as f64 * weights[table] / total) as u64,
            // No accesses: equal shares.
            false => left / open.len().max(1) as u64,
        };
        let filled: Vec<usize> = open.iter().copied().filter(|&table| share(table) >= full[table]).collect();
        if filled.is_empty() {
            open.iter().for_each(|&table| shares[table] = share(table));
            return shares;
        }
        for &table in &filled {
            shares[table] = full[table];
            left -= full[table].min(left);
        }
        open.retain(|table| !filled.contains(table));
    }
}
