//! Arrays as the format holds them.

use hgnnc_dataset::{DenseFeatures, Features, FloatArray, SparseFeatures};

/// Less than this share of values that are not zero is stored as CSR: a column number beside each value costs as much as
/// the value, and sparse products read rows out of order.
pub(crate) const SPARSE_BELOW: f64 = 0.25;

/// Dense rows as features: in CSR form if few values are not zero.
pub(crate) fn features(dim: usize, rows: FloatArray) -> Features {
    let stored = rows.iter().filter(|&&x| x != 0.0).count();
    if dim == 0 || stored as f64 >= SPARSE_BELOW * rows.len() as f64 {
        return Features::Dense(DenseFeatures { dim, rows });
    }
    let (mut indptr, mut indices, mut data) = (vec![0], Vec::with_capacity(stored), Vec::with_capacity(stored));
    for row in rows.chunks_exact(dim) {
        for (column, &x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
            indices.push(column as u32);
            data.push(x);
        }
        indptr.push(data.len() as u64);
    }
    Features::Sparse(SparseFeatures { dim, indptr, indices, data: data.into() })
}

/// A finite number of single precision.
pub(crate) fn finite(text: &str) -> Option<f32> {
    let x = text.trim().parse::<f64>().ok()? as f32;
    x.is_finite().then_some(x)
}
