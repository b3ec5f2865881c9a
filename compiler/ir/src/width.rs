//! Symbolic sizes: numbers of elements that may depend on vertex counts.

use crate::types::{Dim, VertexType};

/// A product of a constant and vertex counts: `64`, `16 |Paper|`. Symbolic sizes let one kernel
/// program serve every dataset.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Width {
    fixed: usize,
    /// The vertex types, ascending and with repetition.
    counts: Vec<VertexType>,
}

impl Width {
    /// A constant size without vertex counts.
    pub fn fixed(fixed: usize) -> Self {
        Self { fixed, counts: vec![] }
    }

    /// The constant size 1.
    pub fn one() -> Self {
        Self::fixed(1)
    }

    /// The number of vertices of a type.
    pub fn count(vertex: VertexType) -> Self {
        Self { fixed: 1, counts: vec![vertex] }
    }

    /// The product of trailing dimensions: elements per row.
    pub fn of(dims: &[Dim]) -> Self {
        let mut all = Self::one();
        for dim in dims {
            match *dim {
                Dim::Fixed(extent) => all.fixed *= extent,
                Dim::Count(vertex) => all.counts.push(vertex),
            }
        }
        all.counts.sort_unstable();
        all
    }

    /// The product of two sizes.
    pub fn times(&self, other: &Self) -> Self {
        let mut counts = self.counts.clone();
        counts.extend_from_slice(&other.counts);
        counts.sort_unstable();
        Self { fixed: self.fixed * other.fixed, counts }
    }

    /// The quotient, if it is a symbolic size for all vertex counts.
    pub fn divided_by(&self, other: &Self) -> Option<Self> {
        let mut counts = self.counts.clone();
        for vertex in &other.counts {
            counts.remove(counts.iter().position(|known| known == vertex)?);
        }
        let fixed = match (self.fixed, other.fixed) {
            (0, 0) => 0,
            (_, 0) => return None,
            (a, b) if a % b == 0 => a / b,
            _ => return None,
        };
        Some(Self { fixed, counts })
    }

    /// Is it 1 for all vertex counts?
    pub fn is_one(&self) -> bool {
        self.as_fixed() == Some(1)
    }

    /// The constant, if the size depends on no vertex count.
    pub fn as_fixed(&self) -> Option<usize> {
        self.counts.is_empty().then_some(self.fixed)
    }

    /// The constant factor before the vertex counts.
    pub fn factor(&self) -> usize {
        self.fixed
    }

    /// The vertex types whose counts are factors, ascending and with repetition.
    pub fn counts(&self) -> &[VertexType] {
        &self.counts
    }

    /// Evaluates the size. A vertex type beyond `num_vertices` counts 0.
    pub fn eval(&self, num_vertices: &[usize]) -> usize {
        let count = |vertex: &VertexType| num_vertices.get(vertex.index()).copied().unwrap_or(0);
        self.fixed * self.counts.iter().map(count).product::<usize>()
    }
}
