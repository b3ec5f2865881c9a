//! Horizontal bar charts.

use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::palette::{self, Themed};
use super::{Result, TEXT, Width, colour_of, colour_of_stage, svg, text_width, words};
use crate::profile::{Kernel, Profile, Rank, Run};
use crate::summary::{KINDS, STAGES};
use crate::table::{amount, bytes, digits, percent, time};

/// A bar: its name, its consecutive segments in milliseconds, a mark, and a label at its end.
struct Bar {
    name: String,
    segments: Vec<(f64, Themed)>,
    /// Position of the mark across the bar, in milliseconds.
    mark: Option<f64>,
    behind: String,
}

impl Bar {
    fn end(&self) -> f64 {
        self.segments.iter().map(|(ms, _)| ms).sum::<f64>().max(self.mark.unwrap_or(0.0))
    }
}

/// Height of a bar with spacing, and height of the axis, in pixels.
const ROW: u32 = 26;
const AXIS: u32 = 44;

fn bars(rows: &[Bar], width: Width) -> Result<String> {
    let size = (width.pixels(), ROW * rows.len().max(1) as u32 + AXIS);
    let names = rows.iter().map(|row| text_width(&row.name, TEXT)).max().unwrap_or(0) as u32 + 12;
    let behind = rows.iter().map(|row| text_width(&row.behind, TEXT)).max().unwrap_or(0) + 10;
    let plot = f64::from(size.0.saturating_sub(names + 16));
    let most = rows.iter().map(Bar::end).fold(0.0, f64::max).max(1e-9);
    // Reserves room for the end label of the longest bar.
    let most = most * plot / (plot - f64::from(behind)).max(0.3 * plot);
    let last = rows.len().max(1) - 1;
    svg(size, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin_right(16)
            .x_label_area_size(AXIS)
            .y_label_area_size(names)
            .build_cartesian_2d(0.0..most, (0..last).into_segmented())?;
        let name = |at: &SegmentValue<usize>| match at {
            SegmentValue::CenterOf(index) => rows.get(last - index.min(&last)).map_or("", |row| &row.name).to_string(),
            SegmentValue::Exact(_) | SegmentValue::Last => String::new(),
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(palette::GRID.light)
            .axis_style(palette::AXIS.light)
            .x_labels(if width == Width::Full { 8 } else { 4 })
            .y_labels(rows.len())
            .x_label_formatter(&|ms| digits_of_axis(*ms))
            .y_label_formatter(&name)
            .x_label_style(words(palette::SOFT, TEXT, HPos::Center, VPos::Top))
            .y_label_style(words(palette::INK, TEXT, HPos::Right, VPos::Center))
            .x_desc("ms")
            .axis_desc_style(words(palette::SOFT, TEXT, HPos::Center, VPos::Center))
            .draw()?;
        for (index, row) in rows.iter().enumerate() {
            let row_at = last - index;
            let mut start = 0.0;
            for (ms, colour) in row.segments.iter().filter(|(ms, _)| *ms > 0.0) {
                let corners = [(start, SegmentValue::Exact(row_at)), (start + ms, SegmentValue::Exact(row_at + 1))];
                let mut bar = Rectangle::new(corners, colour.light.filled());
                // A gap of one pixel between segments.
                bar.set_margin(4, 4, 0, 1);
                chart.draw_series([bar])?;
                start += ms;
            }
            if let Some(mark) = row.mark {
                let ends = [(mark, SegmentValue::Exact(row_at)), (mark, SegmentValue::Exact(row_at + 1))];
                chart.draw_series([PathElement::new(ends, palette::INK.light.stroke_width(2))])?;
            }
            let style = words(palette::SOFT, TEXT, HPos::Left, VPos::Center);
            let at = (row.end(), SegmentValue::CenterOf(row_at));
            chart.draw_series([EmptyElement::at(at) + Text::new(row.behind.clone(), (7, 0), style)])?;
        }
        Ok(())
    })
}

fn digits_of_axis(ms: f64) -> String {
    match ms {
        ms if ms >= 10.0 => format!("{ms:.0}"),
        0.0 => "0".into(),
        ms => {
            let text = format!("{ms:.4}");
            text.trim_end_matches('0').trim_end_matches('.').into()
        }
    }
}

/// Time by stage and direction, and time outside of stages.
pub fn stages(profile: &Profile, width: Width) -> Result<String> {
    let behind = |ms: f64| format!("{} ({})", time(ms * 1e-3), percent(profile.share(ms)));
    let mut rows: Vec<Bar> = profile
        .stages()
        .iter()
        .map(|stage| Bar {
            name: stage.stage.into(),
            segments: stage.phases.into_iter().zip(palette::PHASES).collect(),
            mark: None,
            behind: behind(stage.ms()),
        })
        .collect();
    rows.extend(profile.rest().iter().filter(|part| profile.share(part.ms) >= 0.0005).map(|part| Bar {
        name: part.name.into(),
        segments: vec![(part.ms, palette::OTHER)],
        mark: None,
        behind: behind(part.ms),
    }));
    bars(&rows, width)
}

/// Time by kind of kernel, with the achieved rates.
pub fn kinds(profile: &Profile, width: Width) -> Result<String> {
    let rows: Vec<Bar> = KINDS
        .iter()
        .zip(profile.kinds())
        .filter(|(_, total)| total.kernels > 0)
        .map(|((kind, words), total)| {
            let rates = format!("{}FLOP/s, {}/s", unit(total.flops_per_s()), bytes(total.bytes_per_s()));
            let share = percent(profile.share(total.ms));
            Bar {
                name: if width == Width::Narrow { (*kind).into() } else { format!("{kind} {words}") },
                segments: vec![(total.ms, palette::STAGES[0])],
                mark: Some(total.predicted_ms).filter(|&ms| ms > 0.0),
                behind: if width == Width::Narrow { rates } else { format!("{share}; {rates}") },
            }
        })
        .collect();
    bars(&rows, width)
}

fn unit(number: f64) -> String {
    let text = amount(number);
    if text.ends_with(|c: char| c.is_ascii_alphabetic()) { text } else { format!("{text} ") }
}

/// The slowest kernels, with their predicted time.
pub fn kernels(profile: &Profile, width: Width) -> Result<String> {
    const MOST: usize = 14;
    /// Kernels below this share of a run are shown only if there are no others.
    const LEAST: f64 = 0.005;
    let all = profile.by_time().into_iter().enumerate();
    let rows: Vec<Bar> = all
        .take_while(|(index, kernel)| *index < 3 || profile.share(kernel.measured_ms) >= LEAST)
        .take(MOST)
        .map(|(_, kernel)| {
            let ratio = kernel.ratio().map_or(String::new(), |ratio| format!("{}×", digits(ratio)));
            let long = format!("{} {} {}, {}", kernel.name(), kernel.stage, kernel.phase, shortened(&kernel.rows));
            Bar {
                name: if width == Width::Full { long } else { format!("{} {}", kernel.name(), kernel.stage) },
                segments: by_stage(kernel),
                mark: kernel.predicted_ms,
                behind: match width {
                    Width::Full if kernel.bound.is_empty() => ratio,
                    Width::Full => format!("{ratio} {}", kernel.bound),
                    Width::Half | Width::Narrow => ratio,
                },
            }
        })
        .collect();
    bars(&rows, width)
}

/// The time of a kernel, split by stage.
fn by_stage(kernel: &Kernel) -> Vec<(f64, Themed)> {
    if kernel.is_exchange() {
        return vec![(kernel.measured_ms, palette::OTHER)];
    }
    if kernel.shares.is_empty() {
        return vec![(kernel.measured_ms, colour_of(kernel))];
    }
    let share = |stage: &str| kernel.shares.get(stage).copied().unwrap_or(0.0);
    STAGES.iter().map(|stage| (share(stage) * kernel.measured_ms, colour_of_stage(stage))).collect()
}

fn shortened(text: &str) -> String {
    const MOST: usize = 34;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

/// Time of a run on each of several processes.
pub fn ranks(profile: &Profile, width: Width) -> Result<String> {
    let row = |of: &Rank| Bar {
        name: format!("rank {}", of.rank),
        segments: vec![
            (of.computing_ms, palette::STAGES[0]),
            (of.waiting_ms, palette::STAGES[1]),
            (of.loading_ms, palette::OTHER),
        ],
        mark: None,
        behind: format!("{} computing", time(of.computing_ms * 1e-3)),
    };
    bars(&profile.ranks.iter().map(row).collect::<Vec<_>>(), width)
}

/// Work per batch of the computing thread, and of the concurrent loader thread.
pub fn pipeline(profile: &Profile, width: Width) -> Result<Option<String>> {
    let (Run::Batch, Some(batch)) = (profile.run, &profile.batch) else { return Ok(None) };
    let row = |name: &str, ms: f64, colour: Themed| Bar {
        name: name.into(),
        segments: vec![(ms, colour)],
        mark: None,
        behind: time(ms * 1e-3),
    };
    let others = profile.waits_for_ranks_ms();
    let computing = profile.run_ms - batch.waiting_ms - batch.binding_ms - batch.rows_ms - batch.values_ms - others;
    let (own, beside) = (palette::STAGES[0], palette::OTHER);
    let mut rows = vec![
        row("computing", computing.max(0.0), own),
        row("rows", batch.rows_ms, own),
        row("binding", batch.binding_ms, own),
        row("waiting", batch.waiting_ms, palette::STAGES[1]),
        row("sampling", batch.sampling_ms, beside),
        row("features", batch.features_ms, beside),
        row("graphs", batch.graphs_ms, beside),
    ];
    if !profile.ranks.is_empty() {
        rows.insert(4, row("other ranks", others, palette::STAGES[1]));
    }
    if batch.values_ms > 0.0 {
        rows.insert(1, row("reused values", batch.values_ms, own));
    }
    bars(&rows, width).map(Some)
}
