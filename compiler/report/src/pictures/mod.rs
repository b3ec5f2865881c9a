//! SVG charts of a profile, drawn by `plotters`, each in two widths, so that text keeps its size on a phone.

mod bars;
mod memory;
pub mod palette;
mod roofline;

pub use bars::{kernels, kinds, pipeline, ranks, stages};
pub use memory::memory;
pub use roofline::roofline;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::profile::Kernel;
use crate::summary::STAGES;
use palette::Themed;

/// Width of a picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// The full width of the page on a desktop screen.
    Full,
    /// Half of the page on a desktop screen.
    Half,
    /// The width of a phone screen.
    Narrow,
}

impl Width {
    /// Width of the picture in pixels.
    pub fn pixels(self) -> u32 {
        match self {
            Width::Full => 1060,
            Width::Half => 520,
            Width::Narrow => 350,
        }
    }
}

/// The error of a picture that could not be drawn.
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

/// Font size in pixels.
const TEXT: f64 = 12.0;

/// Draws a picture into a string.
fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&root)?;
        root.present()?;
    }
    Ok(text)
}

/// Text style with colour and anchor. The library writes `size / 1.24` into the picture.
fn words(colour: Themed, pixels: f64, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    ("sans-serif", pixels * 1.24).into_font().color(&colour.light).pos(Pos::new(horizontal, vertical))
}

/// Estimated width of a text in pixels, for a wide font.
fn text_width(text: &str, pixels: f64) -> i32 {
    (text.chars().count() as f64 * pixels * 0.62).ceil() as i32
}

/// Colour of the kernel's main stage.
fn colour_of(kernel: &Kernel) -> Themed {
    colour_of_stage(&kernel.stage)
}

fn colour_of_stage(stage: &str) -> Themed {
    STAGES.iter().position(|known| *known == stage).map_or(palette::OTHER, |index| palette::STAGES[index])
}
