//! Colours that are told apart on light and on dark ground, by people who see fewer colours too.
//!
//! Pictures are drawn in the light ones. A page maps them to the dark ones by style sheet ([`dark_rules`]): rules of a
//! style sheet take precedence over the attributes that a picture has.

use plotters::style::RGBColor;

/// A colour in both themes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Themed {
    /// On light ground.
    pub light: RGBColor,
    /// On dark ground.
    pub dark: RGBColor,
}

const fn themed(light: u32, dark: u32) -> Themed {
    const fn rgb(hex: u32) -> RGBColor {
        RGBColor((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
    }
    Themed { light: rgb(light), dark: rgb(dark) }
}

/// What text is written in.
pub const INK: Themed = themed(0x0b0b0b, 0xf5f5f3);
/// What axes and small text are written in.
pub const SOFT: Themed = themed(0x52514e, 0xc3c2b7);
/// Lines of a grid.
pub const GRID: Themed = themed(0xe1e0d9, 0x30302d);
/// Lines of axes and roofs.
pub const AXIS: Themed = themed(0x8a8980, 0x8b8a82);
/// The ground of pictures.
pub const GROUND: Themed = themed(0xfcfcfb, 0x1a1a19);
/// What belongs to no stage.
pub const OTHER: Themed = themed(0xa3a29a, 0x75746d);
/// What is beside something more important.
pub const PALE: Themed = themed(0xcdccc4, 0x4b4a46);

/// FP, NA, SF, LC, PU.
pub const STAGES: [Themed; 5] = [
    themed(0x2a78d6, 0x3987e5),
    themed(0xeb6834, 0xd95926),
    themed(0x1baf7a, 0x199e70),
    themed(0xeda100, 0xc98500),
    themed(0x4a3aa7, 0x9085e9),
];

/// Forward, backward, update: steps of one colour, since they follow each other.
pub const PHASES: [Themed; 3] = [themed(0x0f3f7c, 0xb7d3f6), themed(0x3f8ae0, 0x4c93e8), themed(0x9cc3f2, 0x1f5ba8)];

/// All of them.
const ALL: [&[Themed]; 3] = [&[INK, SOFT, GRID, AXIS, GROUND, OTHER, PALE], &STAGES, &PHASES];

/// `#2A78D6`, as pictures have it.
pub fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Rules that give pictures their dark colours.
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

    /// Contrast by WCAG 2, eq. for relative luminance.
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
            // Large marks, each named by text as well.
            assert!(contrast(mark.light, GROUND.light) >= 2.0, "{mark:?}");
            assert!(contrast(mark.dark, GROUND.dark) >= 3.0, "{mark:?}");
        }
    }
}
