//! Memory use over a run.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Result, TEXT, Width, palette, svg, words};
use crate::profile::Profile;
use crate::summary::STAGES;
use crate::table::bytes;

/// Stacked areas of live bytes at each kernel, by the stage that produced the values. `None` if the profile has no
/// liveness.
pub fn memory(profile: &Profile, width: Width) -> Result<Option<String>> {
    let Some(memory) = profile.memory.as_ref().filter(|memory| !memory.steps.is_empty()) else { return Ok(None) };
    let steps = memory.steps.len();
    let fixed = memory.fixed_bytes as f64;
    let (peak, most) = memory.peak().map_or((0, 0.0), |(step, most)| (step.kernel, most as f64 + fixed));
    let top = (most * 1.16).max(1.0);
    // The upper edge of each band at each step: persistent values at the bottom, then by stage.
    let mut edges = vec![vec![fixed; steps]];
    for stage in STAGES {
        let below = &edges[edges.len() - 1];
        let own = |at: usize| memory.steps[at].bytes.get(stage).map_or(0.0, |&bytes| bytes as f64);
        edges.push((0..steps).map(|at| below[at] + own(at)).collect());
    }
    let picture = svg((width.pixels(), 260), |root| {
        let mut chart = ChartBuilder::on(root)
            .margin_right(16)
            .margin_top(8)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..steps as f64, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(palette::GRID.light)
            .axis_style(palette::AXIS.light)
            .x_labels(if width == Width::Narrow { 4 } else { 8 })
            .y_labels(5)
            .x_label_formatter(&|at| {
                let step = memory.steps.get((*at).max(0.0) as usize);
                step.map_or(String::new(), |step| format!("k{}", step.kernel))
            })
            .y_label_formatter(&|size| bytes(*size))
            .x_label_style(words(palette::SOFT, TEXT, HPos::Center, VPos::Top))
            .y_label_style(words(palette::SOFT, TEXT, HPos::Right, VPos::Center))
            .x_desc("launches of a run, by their first kernel")
            .axis_desc_style(words(palette::SOFT, TEXT, HPos::Center, VPos::Center))
            .draw()?;
        let zeros = vec![0.0; steps];
        let bands = std::iter::once((&zeros, &edges[0], palette::PALE))
            .chain(edges.windows(2).zip(palette::STAGES).map(|(pair, colour)| (&pair[0], &pair[1], colour)));
        for (lower, upper, colour) in bands {
            if lower == upper {
                continue;
            }
            // One step per launch: along the upper edge, and back along the lower one.
            let corner = |edge: &[f64], at: usize| [(at as f64, edge[at]), ((at + 1) as f64, edge[at])];
            let there = (0..steps).flat_map(|at| corner(upper, at));
            let back = (0..steps).rev().flat_map(|at| corner(lower, at).into_iter().rev());
            chart.draw_series([Polygon::new(there.chain(back).collect::<Vec<_>>(), colour.light.filled())])?;
        }
        let step = memory.steps.iter().position(|step| step.kernel == peak).unwrap_or(0);
        let side = if 2 * step > steps { HPos::Right } else { HPos::Left };
        let label = format!("{} at k{peak}", bytes(most));
        let style = words(palette::INK, TEXT, side, VPos::Bottom);
        chart.draw_series([EmptyElement::at((step as f64 + 0.5, most)) + Text::new(label, (0, -5), style)])?;
        Ok(())
    })?;
    Ok(Some(picture))
}
