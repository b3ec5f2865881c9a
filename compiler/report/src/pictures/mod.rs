//! Pictures of a profile, as SVG: drawn by `plotters`, each in two widths, so that text keeps its size on a phone.

mod bars;
mod memory;
pub mod palette;
mod roofline;

pub use bars::{kernels, kinds, pipeline, stages};
pub use memory::memory;
pub use roofline::roofline;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::profile::Kernel;
use crate::summary::STAGES;
use palette::Themed;

/// How wide a picture is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// For a screen of a desk: as wide as the page.
    Full,
    /// Half of that.
    Half,
    /// For a phone.
    Narrow,
}

impl Width {
    /// In pixels.
    pub fn pixels(self) -> u32 {
        match self {
            Width::Full => 1060,
            Width::Half => 520,
            Width::Narrow => 350,
        }
    }
}

/// A picture that could not be drawn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PictureError(String);

impl std::fmt::Display for PictureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "internal error: a picture of the profile could not be drawn: {}", self.0)
    }
}

impl std::error::Error for PictureError {}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for PictureError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self(error.to_string())
    }
}

type Result<T> = std::result::Result<T, PictureError>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Pixels of text.
const TEXT: f64 = 12.0;

/// Draws into a string.
fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&root)?;
        root.present()?;
    }
    Ok(text)
}

/// Text of a colour, anchored as told. The library writes `size / 1.24` into the picture.
fn words(colour: Themed, pixels: f64, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    ("sans-serif", pixels * 1.24).into_font().color(&colour.light).pos(Pos::new(horizontal, vertical))
}

/// About as many pixels as text takes, in a wide font.
fn text_width(text: &str, pixels: f64) -> i32 {
    (text.chars().count() as f64 * pixels * 0.62).ceil() as i32
}

/// The colour of a kernel's stage.
fn colour_of(kernel: &Kernel) -> Themed {
    colour_of_stage(&kernel.stage)
}

fn colour_of_stage(stage: &str) -> Themed {
    STAGES.iter().position(|known| *known == stage).map_or(palette::OTHER, |index| palette::STAGES[index])
}
