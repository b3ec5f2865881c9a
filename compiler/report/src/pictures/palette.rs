//! Colours that are distinguishable on light and dark backgrounds, also with colour vision deficiency.
//!
//! Pictures use the light theme. The page's style sheet maps colours to the dark theme ([`dark_rules`]): rules take
//! precedence over the presentation attributes of a picture.

use plotters::style::RGBColor;

/// A colour in the light and the dark theme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Themed {
    /// Colour on a light background.
    pub light: RGBColor,
    /// Colour on a dark background.
    pub dark: RGBColor,
}

const fn themed(light: u32, dark: u32) -> Themed {
    const fn rgb(hex: u32) -> RGBColor {
        RGBColor((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
    }
    Themed { light: rgb(light), dark: rgb(dark) }
}

/// Colour of text in pictures.
pub const INK: Themed = themed(0x0b0b0b, 0xf5f5f3);
/// Colour of axis labels and small text.
pub const SOFT: Themed = themed(0x52514e, 0xc3c2b7);
/// Colour of grid lines.
pub const GRID: Themed = themed(0xe1e0d9, 0x30302d);
/// Colour of axes and roofs.
pub const AXIS: Themed = themed(0x8a8980, 0x8b8a82);
/// Background colour of pictures.
pub const GROUND: Themed = themed(0xfcfcfb, 0x1a1a19);
/// Time outside of stages.
pub const OTHER: Themed = themed(0xa3a29a, 0x75746d);
/// Colour of de-emphasised marks.
pub const PALE: Themed = themed(0xcdccc4, 0x4b4a46);

/// Colours of the stages FP, NA, SF, LC, PU.
pub const STAGES: [Themed; 5] = [
    themed(0x2a78d6, 0x3987e5),
    themed(0xeb6834, 0xd95926),
    themed(0x1baf7a, 0x199e70),
    themed(0xeda100, 0xc98500),
    themed(0x4a3aa7, 0x9085e9),
];

/// Forward, backward, update: shades of one colour, as they are consecutive.
pub const PHASES: [Themed; 3] = [themed(0x0f3f7c, 0xb7d3f6), themed(0x3f8ae0, 0x4c93e8), themed(0x9cc3f2, 0x1f5ba8)];

/// All colours, by group.
const ALL: [&[Themed]; 3] = [&[INK, SOFT, GRID, AXIS, GROUND, OTHER, PALE], &STAGES, &PHASES];

/// A colour as `#2A78D6`, the notation of the pictures.
pub fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Style sheet rules that map pictures to the dark theme.
pub fn dark_rules() -> String {
    let mut rules = String::new();
    for colour in ALL.into_iter().flatten() {
        let (light, dark) = (hex(colour.light), hex(colour.dark));
        for attribute in ["fill", "stroke"] {
            rules.push_str(&format!("svg [{attribute}=\"{light}\"]{{{attribute}:{dark}}}"));
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contrast ratio by WCAG 2 (relative luminance).
    fn contrast(a: RGBColor, b: RGBColor) -> f64 {
        let linear = |channel: u8| match f64::from(channel) / 255.0 {
            c if c <= 0.04045 => c / 12.92,
            c => ((c + 0.055) / 1.055).powf(2.4),
        };
        let luminance = |RGBColor(r, g, b): RGBColor| 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        a.max(b) / a.min(b)
    }

    #[test]
    fn no_two_colours_are_mapped_alike_and_text_can_be_read() {
        let all: Vec<&Themed> = ALL.into_iter().flatten().collect();
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a.light != b.light), "{a:?}");
        }
        for ink in [INK, SOFT] {
            assert!(contrast(ink.light, GROUND.light) >= 7.0, "{ink:?}");
            assert!(contrast(ink.dark, GROUND.dark) >= 7.0, "{ink:?}");
        }
        for mark in STAGES.iter().chain(&PHASES[..2]) {
            // Large marks that are also labelled need less contrast.
            assert!(contrast(mark.light, GROUND.light) >= 2.0, "{mark:?}");
            assert!(contrast(mark.dark, GROUND.dark) >= 3.0, "{mark:?}");
        }
    }
}
