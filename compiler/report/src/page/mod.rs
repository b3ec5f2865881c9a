//! A profile as one HTML page: the headline, pictures, then tables. The page is self-contained, and its content
//! security policy forbids external requests.

mod tables;

use std::fmt;

use crate::pictures::{self, PictureError, Width, palette, palette::Themed};
use crate::profile::{Profile, Run};
use crate::summary::{PHASES, STAGES, stage_words};
use crate::table::{bytes, digits, percent, time};
use crate::text::machine_text;

/// Text displayed with HTML markup escaped.
pub(crate) struct Plain<'t>(pub &'t str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '&' => f.write_str("&amp;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            letter => write!(f, "{letter}"),
        })
    }
}

/// The contents of `profile.html`.
///
/// # Errors
/// When a picture cannot be drawn.
pub fn page(profile: &Profile) -> Result<String, PictureError> {
    let mut html = head(profile);
    html.push_str(&tiles(profile));
    html.push_str(&figures(profile)?);
    html.push_str(&tables::tables(profile));
    let machine = machine_text(&profile.machine);
    html.push_str(&section(
        "The machine",
        "Peaks and bandwidths that predictions rest on: measured on a processor, from the data sheet of a device.",
        &format!("<pre>{}</pre>", Plain(&machine)),
    ));
    html.push_str("<footer>Written by <code>hgnnc profile</code>. What each figure means stands in docs/profile.md.</footer></main></html>\n");
    Ok(html)
}

fn head(profile: &Profile) -> String {
    let sentences = profile.headline();
    let (first, others) = sentences.split_first().map_or(("", &[][..]), |(first, others)| (first, others));
    let others: String =
        others.iter().map(|text| format!("<p class=\"also\">{}</p>", Plain(&together(text)))).collect();
    let over = [&profile.program[..], &profile.dataset, &profile.device].join(" · ");
    let place = format!("{} · {} {} measured", profile.model, profile.runs, runs(profile));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{}: profile</title>\n<style>{}{}}}</style></head>\n<body><main>\n\
         <header><p class=\"over\"><strong>{}</strong></p><h1>{}</h1>{others}<p class=\"over\">{}</p></header>\n",
        Plain(&profile.program),
        include_str!("style.css"),
        palette::dark_rules(),
        Plain(&over),
        Plain(&together(first)),
        Plain(&place),
    )
}

fn runs(profile: &Profile) -> &'static str {
    match (profile.run, profile.runs) {
        (Run::Epoch, 1) => "epoch",
        (Run::Epoch, _) => "epochs",
        (Run::Batch, 1) => "batch",
        (Run::Batch, _) => "batches",
    }
}

/// Joins numbers and their units by non-breaking spaces.
fn together(text: &str) -> String {
    [" %", " ms", " us", " s ", " GB", " MB", " G", " M"]
        .iter()
        .fold(text.to_string(), |text, unit| text.replace(unit, &unit.replacen(' ', "\u{a0}", 1)))
}

fn tiles(profile: &Profile) -> String {
    let mut tiles = String::from("<dl class=\"tiles\">");
    let mut tile = |what: &str, number: String, small: String| {
        tiles.push_str(&format!(
            "<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>",
            Plain(what),
            Plain(&together(&number)),
            Plain(&together(&small))
        ));
    };
    let range = format!("{} to {}", time(profile.run_min_ms * 1e-3), time(profile.run_max_ms * 1e-3));
    match profile.run {
        Run::Epoch => tile("An epoch", time(profile.run_ms * 1e-3), format!("median; {range}")),
        Run::Batch => {
            tile("A batch", time(profile.run_ms * 1e-3), format!("mean; {range}"));
            let batches = profile.runs_per_epoch;
            tile("An epoch", time(profile.epoch_ms() * 1e-3), format!("{batches} batches"));
        }
    }
    let kernels = profile.kernels_ms() - profile.exchanges_ms();
    let predicted: f64 = profile.kernels.iter().filter_map(|kernel| kernel.predicted_ms).sum();
    tile(
        "In kernels",
        percent(profile.share(kernels)),
        format!("{} of them", profile.kernels.iter().filter(|kernel| !kernel.is_exchange()).count()),
    );
    if predicted > 0.0 {
        let lower = format!("what is predicted, {}", time(predicted * 1e-3));
        tile("Kernels take", format!("{}×", digits(kernels / predicted)), lower);
    }
    if let Some(memory) = &profile.memory
        && let Some((step, most)) = memory.peak()
    {
        tile(
            "Values in memory",
            bytes((most + memory.fixed_bytes) as f64),
            format!("at the most, at k{}", step.kernel),
        );
    }
    tile("Semantic graphs", time(profile.once.sgb_ms * 1e-3), "built once".into());
    let threads = if profile.threads == 1 { "thread" } else { "threads" };
    tile("On", format!("{} {threads}", profile.threads), profile.device.clone());
    tiles + "</dl>\n"
}

fn figures(profile: &Profile) -> Result<String, PictureError> {
    let both = |wide: Width, draw: &dyn Fn(Width) -> Result<String, PictureError>| -> Result<String, PictureError> {
        Ok(format!("<div class=\"wide\">{}</div><div class=\"narrow\">{}</div>", draw(wide)?, draw(Width::Narrow)?))
    };
    let used: Vec<(Themed, String)> = STAGES
        .iter()
        .zip(palette::STAGES)
        .filter(|(stage, _)| profile.kernels.iter().any(|kernel| kernel.shares.contains_key(**stage)))
        .map(|(stage, colour)| (colour, format!("{stage} {}", stage_words(stage))))
        .collect();
    let phases: Vec<(Themed, String)> =
        palette::PHASES.into_iter().zip(PHASES).map(|(colour, phase)| (colour, phase.to_string())).collect();
    let run = profile.run.name();

    let mut html = section(
        "What kernels reach, and what the machine allows",
        "Each point is a kernel, as large as the time it takes. A point on a line is limited by that level of memory or by \
         arithmetic; the distance below is room. Kernels that compute nothing, or take less than 0.1 %, are not here.",
        &figure(&both(Width::Full, &|width| pictures::roofline(profile, width))?, &used),
    );
    html.push_str("<div class=\"two\">");
    html.push_str(&section(
        &format!("Where {} goes", if run == "epoch" { "an epoch" } else { "a batch" }),
        "Milliseconds by stage and direction, and what belongs to no kernel.",
        &figure(&both(Width::Half, &|width| pictures::stages(profile, width))?, &phases),
    ));
    html.push_str(&section(
        "Kinds of kernels",
        "Milliseconds, with the FLOP/s and bytes per second that they reach. The line is what is predicted.",
        &figure(&both(Width::Half, &|width| pictures::kinds(profile, width))?, &[]),
    ));
    html.push_str("</div>");
    if !profile.ranks.is_empty() {
        html.push_str(&ranks(profile, &both(Width::Full, &|width| pictures::ranks(profile, width))?));
    }
    if profile.run == Run::Batch {
        let picture = both(Width::Full, &|width| Ok(pictures::pipeline(profile, width)?.unwrap_or_default()))?;
        let waiting = if profile.ranks.is_empty() { "" } else { ", or for other ranks" };
        let legend = [
            (palette::STAGES[0], "the thread that computes".to_string()),
            (palette::STAGES[1], format!("waiting for the next batch{waiting}")),
            (palette::OTHER, "beside it: the thread that makes batches".to_string()),
        ];
        let words =
            "Milliseconds of a batch. Making the next one costs nothing while it takes less than computing this one.";
        html.push_str(&section("Making batches beside computing them", words, &figure(&picture, &legend)));
    }
    html.push_str(&section(
        "The longest kernels",
        "The bar is what was measured, divided between the stages of the kernel; the line is what is predicted. Behind it: \
         how many times as long it took, and what limits it.",
        &figure(&both(Width::Full, &|width| pictures::kernels(profile, width))?, &used),
    ));
    if profile.memory.as_ref().is_some_and(|memory| !memory.steps.is_empty()) {
        let picture = both(Width::Full, &|width| Ok(pictures::memory(profile, width)?.unwrap_or_default()))?;
        let mut legend = vec![(palette::PALE, "computed once".to_string())];
        legend.extend(used.iter().cloned());
        let words = format!("Bytes of values that are needed at each point of {run}, by the stage that computed them.");
        let words = words.replace("of epoch", "of an epoch").replace("of batch", "of a batch");
        html.push_str(&section("Memory for values", &words, &figure(&picture, &legend)));
    }
    Ok(html)
}

/// Times and exchanges of each of several processes, in a picture and a table.
fn ranks(profile: &Profile, picture: &str) -> String {
    let mut legend = vec![
        (palette::STAGES[0], "computing".to_string()),
        (palette::STAGES[1], "waiting for other ranks".to_string()),
    ];
    if profile.run == Run::Batch {
        legend.push((palette::OTHER, "waiting for the next batch".to_string()));
    }
    let words = format!(
        "{} Bytes that a rank sends to others, its exchanges with them in a run, and its peak of memory. All other sections show rank 0.",
        profile.imbalance_text().unwrap_or_default()
    );
    section("Ranks", &words, &format!("{}{}", figure(picture, &legend), tables::ranks(profile)))
}

fn figure(picture: &str, legend: &[(Themed, String)]) -> String {
    let swatch = |colour: Themed| {
        let hex = palette::hex(colour.light);
        format!(
            "<svg width=\"11\" height=\"11\" aria-hidden=\"true\"><rect width=\"11\" height=\"11\" rx=\"2\" fill=\"{hex}\"/></svg>"
        )
    };
    let items: String =
        legend.iter().map(|(colour, words)| format!("<li>{}{}</li>", swatch(*colour), Plain(words))).collect();
    let legend = if items.is_empty() { String::new() } else { format!("<ul class=\"legend\">{items}</ul>") };
    format!("<figure>{legend}{picture}</figure>")
}

pub(crate) fn section(title: &str, words: &str, inner: &str) -> String {
    format!("<section><h2>{}</h2><p>{}</p>{inner}</section>\n", Plain(title), Plain(words))
}

#[cfg(test)]
mod tests {
    use super::Plain;

    #[test]
    fn nothing_is_markup_in_text() {
        assert_eq!(Plain("<a href='x'>\"&\"</a>").to_string(), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;&quot;&lt;/a&gt;");
    }
}
