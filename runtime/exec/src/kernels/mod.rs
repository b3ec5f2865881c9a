//! Loops over blocks of rows: what the block interpreter calls. No kernel knows a plan or a model.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod eights;
pub mod flat;
pub mod product;
pub mod rows;
pub mod segment;
pub mod softmax;
#[cfg(target_arch = "x86_64")]
mod sparse;

/// How a kernel reads an operand of `width` elements per row.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// Row `i` at `i · width`.
    Each(&'a [f32]),
    /// Every row is the same one.
    Same(&'a [f32]),
    /// Row `i` at `index[i] · width`.
    Picked(&'a [f32], &'a [u32]),
}

impl<'a> Rows<'a> {
    /// Row `i`.
    #[inline(always)]
    pub fn row(self, i: usize, width: usize) -> &'a [f32] {
        match self {
            Rows::Each(data) => &data[i * width..(i + 1) * width],
            Rows::Same(data) => &data[..width],
            Rows::Picked(data, index) => {
                let at = index[i] as usize * width;
                &data[at..at + width]
            }
        }
    }
}
