//! The tables of the HTML page.

use super::{Plain, section};
use crate::columns::Column;
use crate::profile::{Classes, GraphWeights, Profile};
use crate::summary::{PHASES, stage_words};
use crate::table::{amount, digits, percent, time};

/// An HTML table: the first `words` columns are text, and so are those from `names` on.
struct Html {
    words: usize,
    names: usize,
    text: String,
}

impl Html {
    fn new(words: usize, names: usize, heads: &[&str]) -> Self {
        let mut html = Self { words, names, text: "<div class=\"scroll\" tabindex=\"0\"><table><thead>".into() };
        html.cells("th", "", heads.iter().map(|head| (*head).to_string()));
        html.text.push_str("</thead><tbody>");
        html
    }

    fn cells(&mut self, tag: &str, class: &str, cells: impl Iterator<Item = String>) {
        self.text.push_str(&format!("<tr{class}>"));
        for (column, cell) in cells.enumerate() {
            let long = if cell.chars().count() > 40 { " long" } else { "" };
            let class =
                if column < self.words || column >= self.names { format!(" class=\"w{long}\"") } else { String::new() };
            self.text.push_str(&format!("<{tag}{class}>{}</{tag}>", Plain(&cell)));
        }
        self.text.push_str("</tr>");
    }

    fn row(&mut self, cells: Vec<String>) {
        self.cells("td", "", cells.into_iter());
    }

    fn sum(&mut self, cells: Vec<String>) {
        self.cells("td", " class=\"sum\"", cells.into_iter());
    }

    fn end(self) -> String {
        self.text + "</tbody></table></div>"
    }
}

pub(super) fn tables(profile: &Profile) -> String {
    let mut html = section(
        "Stages and directions",
        "What updates parameters within a kernel of the backward pass is counted as update.",
        &stages(profile),
    );
    html.push_str(&section(
        "Kernels",
        "By time. Predicted is what such kernels take on this machine; the ratio says how many times as long it took. Bytes per second count the repeats of \
         gathered rows, FLOP/B distinct bytes. Waits, where they were measured: the part of its time in which it waited for memory beyond \
         the caches of its core.",
        &kernels(profile),
    ));
    for of in &profile.graph_weights {
        html.push_str(&section(
            &format!("Semantic graphs: {}", of.output),
            "An output of the model for each semantic graph, with the parameters after the measured runs; the mean where it \
             has several numbers.",
            &graph_weights(of),
        ));
    }
    // One part: the others are in `profile.json`.
    if let Some((part, classes)) =
        PARTS.iter().find_map(|(part, words)| profile.classes.get(*part).map(|classes| (words, classes)))
    {
        let words = format!(
            "Of the {part} part, with the parameters after the measured runs: what so few runs have learned, not what \
             training reaches."
        );
        html.push_str(&section("Scores of each class", &words, &class_scores(classes)));
        html.push_str(&confusion(classes, part));
    }
    html.push_str(&section(
        "Counters",
        "Of all threads, in user mode, in a few runs of their own.",
        &counters(profile),
    ));
    html
}

/// Parts of the split in the order in which one is chosen, with their names in texts.
const PARTS: [(&str, &str); 3] = [("val", "validation"), ("test", "test"), ("train", "training")];

/// Most classes of a confusion matrix on the page.
const MOST_CONFUSED: usize = 30;

/// Times and exchanges of each of several processes.
pub(super) fn ranks(profile: &Profile) -> String {
    let heads = profile.rank_heads();
    let mut table = Html::new(1, heads.len(), &heads);
    let mut rows = profile.rank_rows();
    let mean = rows.pop().unwrap_or_default();
    rows.into_iter().for_each(|row| table.row(row));
    table.sum(mean);
    table.end()
}

fn class_scores(classes: &Classes) -> String {
    let mut table = Html::new(1, 5, &["class", "vertices", "precision", "recall", "F1"]);
    for of in &classes.scores {
        let scores = [of.precision, of.recall, of.f1].map(|score| format!("{score:.4}"));
        table.row([vec![of.name.clone(), of.support.to_string()], scores.to_vec()].concat());
    }
    table.end()
}

/// The confusion matrix in a section of its own, unless a vertex has several classes or there are too many.
fn confusion(classes: &Classes, part: &str) -> String {
    let Some(counts) = classes.confusion.as_ref().filter(|counts| counts.len() <= MOST_CONFUSED) else {
        return String::new();
    };
    let names = classes.scores.iter().map(|of| &of.name[..]);
    let heads: Vec<&str> = ["class"].into_iter().chain(names.clone()).collect();
    let mut table = Html::new(1, heads.len(), &heads);
    for (name, row) in names.zip(counts) {
        table.row([name.to_string()].into_iter().chain(row.iter().map(u64::to_string)).collect());
    }
    let words = format!("Vertices of the {part} part: a row for each true class, a column for each predicted one.");
    section("Confusion matrix", &words, &table.end())
}

fn graph_weights(of: &GraphWeights) -> String {
    let mut table = Html::new(1, 2, &["semantic graph", "weight"]);
    of.weights.iter().for_each(|(graph, weight)| table.row(vec![graph.clone(), format!("{weight:.4}")]));
    table.end()
}

fn stages(profile: &Profile) -> String {
    let mut table =
        Html::new(2, 9, &["", "", PHASES[0], PHASES[1], PHASES[2], "measured", "predicted", "ratio", "share"]);
    let ms = |ms: f64| if ms > 0.0 { time(ms * 1e-3) } else { "–".into() };
    let words = |name: &str, words: &str| vec![name.to_string(), words.to_string()];
    table.row(
        [
            words("SGB", "semantic graph build, once"),
            vec!["–".into(); 3],
            vec![ms(profile.once.sgb_ms)],
            vec![String::new(); 3],
        ]
        .concat(),
    );
    if let Some(batch) = &profile.batch {
        for (name, what, took) in [
            ("sampling", "beside the batch before", batch.sampling_ms),
            ("features", "copying rows, likewise", batch.features_ms),
            ("graphs", "of what was sampled, likewise", batch.graphs_ms),
        ] {
            table.row([words(name, what), vec!["–".into(); 3], vec![ms(took)], vec![String::new(); 3]].concat());
        }
    }
    for stage in profile.stages() {
        let mut cells = words(stage.stage, stage_words(stage.stage));
        cells.extend(stage.phases.map(ms));
        let ratio = if stage.predicted_ms > 0.0 { digits(stage.ms() / stage.predicted_ms) } else { String::new() };
        cells.extend([ms(stage.ms()), ms(stage.predicted_ms), ratio, percent(profile.share(stage.ms()))]);
        table.row(cells);
    }
    for part in profile.rest() {
        let cells = vec![ms(part.ms), String::new(), String::new(), percent(profile.share(part.ms))];
        table.row([words(part.name, part.words), vec!["–".into(); 3], cells].concat());
    }
    let mut cells = words(profile.run.name(), "");
    let stages = profile.stages();
    cells.extend((0..PHASES.len()).map(|phase| ms(stages.iter().map(|stage| stage.phases[phase]).sum())));
    cells.extend([ms(profile.total_ms()), ms(stages.iter().map(|stage| stage.predicted_ms).sum())]);
    cells.extend([String::new(), percent(1.0)]);
    table.sum(cells);
    // The legends explain the abbreviations; a phone has no room to repeat them.
    table.end().replacen("<table>", "<table class=\"stages\">", 1)
}

/// Numbers come before the long names, so that they are visible without scrolling.
const COLUMNS: [Column; 17] = [
    Column::Name,
    Column::Stage,
    Column::Direction,
    Column::Kind,
    Column::Bound,
    Column::Measured,
    Column::Predicted,
    Column::Ratio,
    Column::Waits,
    Column::ForRanks,
    Column::Share,
    Column::FlopsPerSecond,
    Column::OfPeak,
    Column::BytesPerSecond,
    Column::FlopsPerByte,
    Column::Rows,
    Column::Stores,
];

fn kernels(profile: &Profile) -> String {
    let columns = Column::known(&COLUMNS, profile);
    let heads: Vec<_> = columns.iter().map(|column| column.head()).collect();
    let mut table = Html::new(5, heads.len() - 2, &heads);
    for kernel in profile.by_time() {
        table.row(columns.iter().map(|column| column.cell(profile, kernel)).collect());
    }
    table.end()
}

fn counters(profile: &Profile) -> String {
    let mut html = String::new();
    let counted = profile.counted();
    if !counted.is_empty() {
        let stages = profile.stages();
        let heads: Vec<&str> =
            ["event", profile.run.name()].into_iter().chain(stages.iter().map(|stage| stage.stage)).collect();
        let mut table = Html::new(1, heads.len(), &heads);
        for (event, count) in counted {
            let mut cells = vec![event.replace('_', " "), amount(count)];
            cells.extend(stages.iter().map(|stage| amount(profile.counted_in(stage.stage, event))));
            table.row(cells);
        }
        html.push_str(&table.end());
    }
    for missing in &profile.counters.missing {
        let events = missing.events.join(", ").replace('_', " ");
        html.push_str(&format!("<p>Not counted: {}: {}.</p>", Plain(&events), Plain(&missing.reason)));
    }
    html
}
