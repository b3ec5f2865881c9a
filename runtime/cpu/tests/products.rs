//! Every instruction set against the portable version, and that against products in f64.

use hgnnc_kernels::Rows;
use hgnnc_kernels::product::{Extents, by_row, mat_mul, mat_mul_t, outer};
use hgnnc_kernels::simd::{self, Dispatch, Level};

fn numbers(seed: u64, len: usize) -> Vec<f32> {
    (0..len).map(|i| (hgnnc_ir::random::uniform(seed, i as u64) * 2.0 - 1.0) as f32).collect()
}

/// Operands of products of all forms.
struct Products {
    of: Extents,
    rows: usize,
    x: Vec<f32>,
    y: Vec<f32>,
    w: Vec<f32>,
    /// Initial contents of accumulated results.
    held: Vec<f32>,
}

impl Products {
    fn new(rows: usize, batch: usize, k: usize, n: usize) -> Self {
        Self {
            of: Extents { batch, k, n },
            rows,
            x: numbers(1, rows * batch * k),
            y: numbers(2, rows * batch * n),
            w: numbers(3, batch * k * n),
            held: numbers(4, batch * k * n),
        }
    }

    /// Bands of the result of `outer`: all, and where there are several rows, some in the middle.
    fn bands(&self) -> Vec<std::ops::Range<usize>> {
        let k = self.of.k;
        std::iter::once(0..k).chain((k > 2).then(|| k / 3..k - 1)).collect()
    }

    /// Results of the kernels at this SIMD level.
    fn at(&self, level: Level) -> Vec<(String, Vec<f32>)> {
        let (of, rows) = (self.of, self.rows);
        let Extents { batch, k, n } = of;
        let dispatch = Dispatch::default().at_most(level);
        let mut results = vec![];
        // Overwritten results start as NaN.
        let mut out = vec![f32::NAN; rows * batch * n];
        mat_mul(dispatch, of, rows, &self.x, &self.w, &mut out);
        results.push(("matmul".to_owned(), out));
        let mut out = vec![f32::NAN; rows * batch * k];
        mat_mul_t(dispatch, of, rows, &self.y, &self.w, &mut out);
        results.push(("matmul_t".to_owned(), out));
        for band in self.bands() {
            let len = batch * band.len() * n;
            let mut out = vec![f32::NAN; len];
            outer(dispatch, of, rows, band.clone(), &self.x, &self.y, &mut out, false);
            results.push((format!("outer {band:?}"), out));
            let mut out = self.held[..len].to_vec();
            outer(dispatch, of, rows, band.clone(), &self.x, &self.y, &mut out, true);
            results.push((format!("outer {band:?}, added"), out));
        }
        results
    }

    /// Exact results in f64, by definition.
    fn exact(&self) -> Vec<Vec<f64>> {
        let Extents { batch, k, n } = self.of;
        let x = |r: usize, b: usize, i: usize| f64::from(self.x[(r * batch + b) * k + i]);
        let y = |r: usize, b: usize, j: usize| f64::from(self.y[(r * batch + b) * n + j]);
        let w = |b: usize, i: usize, j: usize| f64::from(self.w[(b * k + i) * n + j]);
        let mut results = vec![vec![], vec![]];
        for r in 0..self.rows {
            for b in 0..batch {
                results[0].extend((0..n).map(|j| (0..k).map(|i| x(r, b, i) * w(b, i, j)).sum::<f64>()));
                results[1].extend((0..k).map(|i| (0..n).map(|j| y(r, b, j) * w(b, i, j)).sum::<f64>()));
            }
        }
        for band in self.bands() {
            let mut sums = vec![];
            for b in 0..batch {
                for i in band.clone() {
                    sums.extend((0..n).map(|j| (0..self.rows).map(|r| x(r, b, i) * y(r, b, j)).sum::<f64>()));
                }
            }
            let added = sums.iter().zip(&self.held).map(|(sum, &held)| sum + f64::from(held)).collect();
            results.extend([sums, added]);
        }
        results
    }
}

fn close(what: &str, found: &[f32], expected: &[f64], depth: usize) {
    assert_eq!(found.len(), expected.len(), "{what}");
    // Sums of products of numbers below one: an error of half a unit per addition, at the very most.
    let bound = 6e-8 * (depth as f64 + 2.0) * (depth as f64).sqrt().max(1.0);
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(f) - e).abs() <= bound, "{what}, element {i}: {f} instead of {e}");
    }
}

fn check(rows: usize, batch: usize, k: usize, n: usize) {
    let products = Products::new(rows, batch, k, n);
    let exact = products.exact();
    let depth = rows.max(k).max(n);
    let portable = products.at(Level::Base);
    for ((form, found), expected) in portable.iter().zip(&exact) {
        close(&format!("{form} [{rows}; {batch} x {k} x {n}], portable"), found, expected, depth);
    }
    for level in simd::available().into_iter().skip(1) {
        for ((form, found), (_, expected)) in products.at(level).iter().zip(&portable) {
            let expected: Vec<f64> = expected.iter().map(|&e| f64::from(e)).collect();
            close(&format!("{form} [{rows}; {batch} x {k} x {n}], {level:?}"), found, &expected, depth);
        }
    }
}

#[test]
fn products_of_all_shapes_are_those_in_double_precision() {
    // Rows around the heights of tiles, extents around the widths of vectors, tiles, panels and steps.
    for rows in [0, 1, 3, 5, 12, 47, 131] {
        for (k, n) in [(1, 1), (1, 7), (7, 1), (3, 3), (8, 8), (64, 64), (16, 3), (3, 16), (65, 5), (5, 65)] {
            check(rows, 1, k, n);
        }
        for (k, n) in
            [(33, 17), (17, 33), (48, 63), (100, 2), (2, 100), (97, 40), (40, 193), (129, 1), (1, 129), (64, 349)]
        {
            check(rows, 1, k, n);
        }
        for (batch, k, n) in
            [(8, 8, 1), (8, 1, 8), (3, 5, 1), (2, 16, 1), (4, 4, 1), (3, 1, 1), (5, 1, 16), (7, 7, 1), (5, 37, 1)]
        {
            check(rows, batch, k, n);
        }
        for (batch, k, n) in [(2, 9, 4), (3, 20, 19), (8, 16, 16), (2, 64, 3), (2, 3, 64)] {
            check(rows, batch, k, n);
        }
        // Small blocks, whose rows have parts of a vector, one, and several with and without a rest.
        for (batch, size) in [(2, 2), (3, 2), (8, 2), (13, 2), (32, 2), (2, 4), (4, 4), (5, 4), (2, 8), (3, 8), (8, 8)]
        {
            check(rows, batch, size, size);
        }
    }
    check(9, 1, 2100, 3);
    check(7, 1, 3, 2100);
    check(300, 1, 64, 8);
    check(6, 1, 1000, 2);
    check(6, 2, 0, 3);
    check(6, 2, 3, 0);
    check(6, 0, 3, 3);
}

#[test]
fn products_within_rows_are_those_in_double_precision() {
    let shapes =
        [(1, 8, 64), (8, 64, 1), (5, 19, 1), (1, 3, 7), (2, 2, 2), (3, 5, 33), (1, 1, 100), (4, 16, 16), (1, 70, 1)];
    for (m, k, n) in shapes {
        for groups in [1, 3] {
            // Row i of the left operand meets row `picked[i]` of the right one.
            let picked = [2, 0, 1, 2];
            let (left, right, width) = (groups * m * k, groups * k * n, groups * m * n);
            let (a, b) = (numbers(5, picked.len() * left), numbers(6, 3 * right));
            let element = |row: usize, group: usize, i: usize, j: usize| {
                let at = |p: usize| {
                    (row * left + (group * m + i) * k + p, picked[row] as usize * right + (group * k + p) * n + j)
                };
                (0..k).map(|p| f64::from(a[at(p).0]) * f64::from(b[at(p).1])).sum::<f64>()
            };
            let mut exact = vec![];
            for row in 0..picked.len() {
                for group in 0..groups {
                    exact.extend((0..m * n).map(|at| element(row, group, at / n, at % n)));
                }
            }
            for level in simd::available() {
                let mut out = vec![f32::NAN; picked.len() * width];
                let operands = ((Rows::Each(&a), left), (Rows::Picked(&b, &picked), right));
                by_row(Dispatch::default().at_most(level), operands.0, operands.1, (m, k, n), &mut out);
                close(&format!("{groups} x [{m}, {k}] x [{k}, {n}], {level:?}"), &out, &exact, k);
            }
        }
    }
}
