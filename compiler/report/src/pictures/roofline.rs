//! The roofline (Williams, Waterman and Patterson 2009): achieved performance of kernels, and limits of the machine.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Result, TEXT, Width, colour_of, palette, svg, text_width, words};
use crate::profile::{Kernel, Profile};
use crate::table::{amount, bytes};

/// Number of labelled kernels, the slowest ones.
const LABELS: usize = 12;

/// Smallest share of a run of a displayed kernel.
pub const LEAST: f64 = 1e-3;

/// A rectangle in pixels: left, top, right, bottom.
type Box4 = (i32, i32, i32, i32);

/// One point per kernel: FLOPs per distinct byte, and FLOP/s; its area is the time. Roofs are the peak FLOP/s and the
/// bandwidth of each memory level.
pub fn roofline(profile: &Profile, width: Width) -> Result<String> {
    let machine = &profile.machine;
    let shown = |k: &&Kernel| k.intensity() > 0.0 && k.flops_per_s() > 0.0 && profile.share(k.measured_ms) >= LEAST;
    let all: Vec<&Kernel> = profile.by_time().into_iter().filter(shown).collect();
    let slowest = machine.levels.iter().map(|level| level.stream_bytes_per_s).fold(f64::INFINITY, f64::min);
    let fold = |of: &dyn Fn(&Kernel) -> f64, start: f64, pick: fn(f64, f64) -> f64| {
        all.iter().map(|kernel| of(kernel)).fold(start, pick)
    };
    let peak = machine.fma_flops;
    let x0 = fold(&Kernel::intensity, 0.1, f64::min) / 2.0;
    let x1 = fold(&Kernel::intensity, peak / slowest, f64::max) * 3.0;
    let y0 = match fold(&Kernel::flops_per_s, f64::INFINITY, f64::min) {
        least if least.is_finite() => least.min(peak / 30.0) / 3.0,
        _ => peak / 1e3,
    };
    let y1 = fold(&Kernel::flops_per_s, peak, f64::max) * 2.5;
    let narrow = width == Width::Narrow;
    let height = if narrow { 330 } else { 440 };
    svg((width.pixels(), height), |root| {
        let mut chart = ChartBuilder::on(root)
            .margin_right(16)
            .margin_top(8)
            .x_label_area_size(48)
            .y_label_area_size(if narrow { 52 } else { 76 })
            .build_cartesian_2d((x0..x1).log_scale(), (y0..y1).log_scale())?;
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(TRANSPARENT)
            .bold_line_style(palette::GRID.light)
            .axis_style(palette::AXIS.light)
            .x_labels(if narrow { 5 } else { 9 })
            .y_labels(if narrow { 6 } else { 8 })
            .x_label_formatter(&|x| amount(*x))
            .y_label_formatter(&|y| amount(*y))
            .x_label_style(words(palette::SOFT, TEXT, HPos::Center, VPos::Top))
            .y_label_style(words(palette::SOFT, TEXT, HPos::Right, VPos::Center))
            .x_desc("FLOPs for each distinct byte")
            .axis_desc_style(words(palette::SOFT, TEXT, HPos::Center, VPos::Center));
        if !narrow {
            mesh.y_desc("FLOP/s");
        }
        mesh.draw()?;

        let mut taken: Vec<Box4> = vec![];
        // Roofs: the bandwidth lines up to the peak, and the horizontal peak to the right.
        for level in &machine.levels {
            let rate = level.stream_bytes_per_s;
            let (from, to) = (x0.max(y0 / rate), (peak / rate).min(x1));
            let line = [(from, from * rate), (to, to * rate), (x1, peak)];
            chart.draw_series(LineSeries::new(line, palette::AXIS.light.stroke_width(2)))?;
        }
        let label = format!("{}FLOP/s", amount(peak));
        let style = words(palette::SOFT, TEXT, HPos::Right, VPos::Bottom);
        let (right, top) = chart.backend_coord(&(x1, peak));
        taken.push((right - text_width(&label, TEXT), top - 20, right, top));
        chart.draw_series([EmptyElement::at((x1, peak)) + Text::new(label, (-2, -5), style)])?;

        // Labels of roofs at the left, if they do not overlap; the others are listed beside the picture.
        let (left, _) = chart.backend_coord(&(x0, y0));
        for level in &machine.levels {
            let rate = level.stream_bytes_per_s;
            let label = match narrow {
                true => level.name.clone(),
                false => format!("{} {}/s", level.name, bytes(rate)),
            };
            let wide = text_width(&label, TEXT);
            // Slightly above the line at the end of the label, so that the line runs below it.
            let (mut at, mut free) = (x0.max(y0 / rate), None);
            while at < peak / rate {
                let (px, py) = chart.backend_coord(&(at, at * rate));
                let place = (px - wide - 6, py - 18, px - 4, py - 2);
                if place.0 >= left && taken.iter().all(|other| !meet(*other, place)) {
                    free = Some((at, place));
                    break;
                }
                at *= 1.1;
            }
            if let Some((at, place)) = free {
                taken.push(place);
                let style = words(palette::SOFT, TEXT, HPos::Right, VPos::Center);
                chart.draw_series([EmptyElement::at((at, at * rate)) + Text::new(label, (-6, -9), style)])?;
            }
        }

        // Large points first, so that small ones are drawn on top.
        let radius = |kernel: &Kernel| 3 + (14.0 * profile.share(kernel.measured_ms).sqrt()) as i32;
        let mut points = vec![];
        for kernel in &all {
            let at = (kernel.intensity(), kernel.flops_per_s());
            let (x, y) = chart.backend_coord(&at);
            let r = radius(kernel);
            points.push((x - r, y - r, x + r, y + r));
            chart.draw_series([Circle::new(at, r + 1, palette::GROUND.light.filled())])?;
            chart.draw_series([Circle::new(at, r, colour_of(kernel).light.filled())])?;
        }
        for (kernel, point) in all.iter().zip(&points).take(LABELS) {
            let label = kernel.name();
            let (wide, r) = (text_width(&label, TEXT), radius(kernel));
            let (x, y) = ((point.0 + point.2) / 2, (point.1 + point.3) / 2);
            let places = [
                (r + 3, 0, (x + r + 3, y - 8, x + r + 5 + wide, y + 8)),
                (-r - 3 - wide, 0, (x - r - 5 - wide, y - 8, x - r - 3, y + 8)),
                (-wide / 2, -r - 9, (x - wide / 2, y - r - 18, x + wide / 2, y - r - 1)),
                (-wide / 2, r + 10, (x - wide / 2, y + r + 2, x + wide / 2, y + r + 18)),
            ];
            let free = |place: Box4| {
                place.0 >= left
                    && place.2 < width.pixels() as i32
                    && taken.iter().all(|other| !meet(*other, place))
                    && points.iter().all(|other| other == point || !meet(*other, place))
            };
            if let Some((dx, dy, place)) = places.into_iter().find(|(_, _, place)| free(*place)) {
                taken.push(place);
                let style = words(palette::INK, TEXT, HPos::Left, VPos::Center);
                let at = (kernel.intensity(), kernel.flops_per_s());
                chart.draw_series([EmptyElement::at(at) + Text::new(label, (dx, dy), style)])?;
            }
        }
        Ok(())
    })
}

fn meet(a: Box4, b: Box4) -> bool {
    a.0 < b.2 && b.0 < a.2 && a.1 < b.3 && b.1 < a.3
}

#[cfg(test)]
mod tests {
    use super::meet;

    #[test]
    fn rectangles_meet_where_they_share_more_than_an_edge() {
        assert!(meet((0, 0, 10, 10), (9, 9, 20, 20)));
        assert!(!meet((0, 0, 10, 10), (10, 0, 20, 10)));
        assert!(!meet((0, 0, 10, 10), (0, 11, 10, 20)));
    }
}
