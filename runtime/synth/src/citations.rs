//! Citations with times, which imitate no dataset: what a paper is about shows in its recent references only.
//!
//! A paper cites recent papers of its own topic, and classics of one other topic, as many of either. Without times the two topics
//! cannot be told apart. Words lean towards the topic, but weakly; authors have a topic that half of their papers have. The latest
//! papers are those to test on, so that training knows none of the time of the test.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::{Shape, SynthError, Writer};

const PAPERS: usize = 3000;
const AUTHORS: usize = 800;
const TOPICS: usize = 6;
/// Words that belong to each topic, and words of a paper.
const WORDS: (usize, usize) = (4, 4);
/// Share of the words of a paper that are drawn from those of its topic.
const SIGNAL: f64 = 0.3;
/// The first year, and the number of years.
const YEARS: (usize, usize) = (1990, 30);
/// Recent references are at most so many years old, and classics more than so many.
const AGES: (usize, usize) = (3, 8);
/// Most references of either kind.
const REFERENCES: usize = 4;
/// Share of the authors of a paper that have its topic for certain.
const AFFINITY: f64 = 0.4;
/// Share of the papers with another label.
const NOISE: f64 = 0.05;
/// The years before which papers are for training, and for validation.
const SPLIT: [usize; 2] = [2010, 2015];

pub(super) fn write(out: &mut Writer<'_>, generator: &str, mut rng: ChaCha8Rng) -> Result<(), SynthError> {
    let shape = Shape::Citations;
    out.line(format_args!("format = 1\nname = \"{shape}\"\ntitle = \"synthetic citations with times\""));
    out.line(format_args!("task = \"node-classification\"\ngenerator = \"{generator}\"\nlabel_noise = {NOISE:?}"));
    let rng = &mut rng;
    let year: Vec<usize> = (0..PAPERS).map(|_| YEARS.0 + rng.random_range(0..YEARS.1)).collect();
    let topic: Vec<usize> = (0..PAPERS).map(|_| rng.random_range(0..TOPICS)).collect();
    let columns = TOPICS * WORDS.0;
    let mut x = vec![0.0f32; PAPERS * columns];
    for (row, &topic) in x.chunks_exact_mut(columns).zip(&topic) {
        for _ in 0..WORDS.1 {
            let of = if rng.random::<f64>() < SIGNAL { topic } else { rng.random_range(0..TOPICS) };
            row[of * WORDS.0 + rng.random_range(0..WORDS.0)] = 1.0;
        }
    }
    // Papers by topic and year.
    let mut papers = vec![vec![vec![]; YEARS.1]; TOPICS];
    for paper in 0..PAPERS {
        papers[topic[paper]][year[paper] - YEARS.0].push(paper);
    }
    let mut cites = vec![];
    for paper in 0..PAPERS {
        let other = (topic[paper] + rng.random_range(1..TOPICS)) % TOPICS;
        let now = year[paper] - YEARS.0;
        let recent = (now.saturating_sub(AGES.0)..now, topic[paper]);
        let classic = (0..now.saturating_sub(AGES.1), other);
        for (years, of) in [recent, classic] {
            let mut known: Vec<usize> = papers[of][years].concat();
            for _ in 0..REFERENCES.min(known.len()) {
                let chosen = rng.random_range(0..known.len());
                cites.push((paper, known.swap_remove(chosen)));
            }
        }
    }
    cites.sort_unstable();
    let mut of_topic = vec![vec![]; TOPICS];
    (0..AUTHORS).for_each(|author| of_topic[author % TOPICS].push(author));
    let mut writes = vec![];
    for (paper, &topic) in topic.iter().enumerate() {
        for _ in 0..2 {
            let topic = if rng.random::<f64>() < AFFINITY { topic } else { rng.random_range(0..TOPICS) };
            writes.push((of_topic[topic][rng.random_range(0..of_topic[topic].len())], paper));
        }
    }
    writes.sort_unstable();
    writes.dedup();
    let mut since = vec![YEARS.0 + YEARS.1 - 1; AUTHORS];
    writes.iter().for_each(|&(author, paper)| since[author] = since[author].min(year[paper]));

    let vertices = [("paper", "year", &year), ("author", "since", &since)];
    for (name, field, times) in vertices {
        let count = times.len();
        out.line(format_args!("\n[[vertex_type]]\nname = \"{name}\"\ncount = {count}\ntime = \"{name}.{field}.npy\""));
        if name == "paper" {
            let file = "paper.x.npy";
            out.line(format_args!("features = {{ kind = \"dense\", dim = {columns}, file = \"{file}\" }}"));
            out.npy(file, &[count, columns], &x)?;
        }
        let times: Vec<i32> = times.iter().map(|&time| time as i32).collect();
        out.npy(&format!("{name}.{field}.npy"), &[count], &times)?;
    }
    for (name, src, edges) in [("cites", "paper", &cites), ("writes", "author", &writes)] {
        let count = edges.len();
        out.line(format_args!(
            "\n[[relation]]\nname = \"{name}\"\nsrc = \"{src}\"\ndst = \"paper\"\nedges = {count}\nfile = \"{name}.npy\"\n\
             time = \"{name}.year.npy\""
        ));
        let ends: Vec<i32> = edges.iter().map(|e| e.0 as i32).chain(edges.iter().map(|e| e.1 as i32)).collect();
        out.npy(&format!("{name}.npy"), &[2, count], &ends)?;
        // A paper is written, and cites, when it appears.
        let times: Vec<i32> = edges.iter().map(|e| year[if name == "cites" { e.0 } else { e.1 }] as i32).collect();
        out.npy(&format!("{name}.year.npy"), &[count], &times)?;
    }
    let label = |topic: usize, rng: &mut ChaCha8Rng| match rng.random::<f64>() < NOISE {
        true => rng.random_range(0..TOPICS) as i32,
        false => topic as i32,
    };
    let label: Vec<i32> = topic.iter().map(|&topic| label(topic, rng)).collect();
    out.line(format_args!(
        "\n[[label]]\nvertex_type = \"paper\"\nname = \"topic\"\nclasses = {TOPICS}\nfile = \"paper.topic.npy\""
    ));
    out.npy("paper.topic.npy", &[PAPERS], &label)?;
    let part =
        |years: std::ops::Range<usize>| (0..PAPERS as i32).filter(|&p| years.contains(&year[p as usize])).collect();
    let last = YEARS.0 + YEARS.1;
    out.split("paper", "years", [part(YEARS.0..SPLIT[0]), part(SPLIT[0]..SPLIT[1]), part(SPLIT[1]..last)])
}
