//! Mutated programs: parsed, checked and formatted, and lowered to kernels and PTX if they are valid.

use hgnnc_diag::{Diagnostics, SourceMap, render};
use hgnnc_driver::{Analyzed, Endpoints, LowerOptions, SizeInfo, analyze, format, lower};
use hgnnc_ptx::Target;
use hgnnc_syntax::ast::Module;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::Subject;
use crate::text::mutate;

/// A fuzz subject of mutated programs.
pub struct Programs {
    corpus: Vec<String>,
    /// The valid programs of `corpus`.
    right: Vec<String>,
    text: String,
}

impl Programs {
    /// The corpus is the programs of the repository.
    pub fn new() -> Self {
        let sources = hgnnc_tests::sources(&["stdlib", "examples", "tests/cases"]);
        let corpus: Vec<String> = sources.into_iter().map(|(_, text)| text).collect();
        let right = corpus.iter().filter(|text| analyze("", text).model.is_some()).cloned().collect();
        Self { corpus, right, text: String::new() }
    }
}

impl Subject for Programs {
    fn outcomes(&self) -> &'static [&'static str] {
        &["not parsed", "not right", "right", "lowered", "written as PTX"]
    }

    fn prepare(&mut self, rng: &mut ChaCha8Rng) -> String {
        // A single mutation of a valid program is often valid.
        let (text, count) = match rng.random_range(0..10) {
            0..5 => (self.right.choose(rng), 1),
            5..8 => (self.right.choose(rng), rng.random_range(2..4)),
            _ => (self.corpus.choose(rng), rng.random_range(1..12)),
        };
        self.text = mutate(text.expect("the repository has programs"), &self.corpus, count, rng);
        self.text.clone()
    }

    fn run(&mut self, rng: &mut ChaCha8Rng) -> Result<usize, String> {
        let text = &self.text;
        let parsed = is_formatted_once(text)?;
        let analysis = analyze("m.hgnn", text);
        let _ = render::plain(&analysis.sources, analysis.diagnostics.iter());
        let Some(model) = &analysis.model else { return Ok(usize::from(parsed)) };
        if !rng.random_ratio(1, 4) {
            return Ok(2);
        }
        let sizes = match rng.random_range(0..4) {
            0 => None,
            _ => Some(sizes(model, rng)),
        };
        // Errors found only by lowering are diagnostics as well.
        let Ok(lowered) = lower(model, &LowerOptions { sizes, ..LowerOptions::default() }) else { return Ok(2) };
        let kernels = &lowered.executable.kernels;
        let kernels = kernels.train.as_ref().unwrap_or(&kernels.infer);
        let _ = hgnnc_kernel_ir::kernel::print(kernels);
        if !rng.random_ratio(1, 3) {
            return Ok(3);
        }
        let target = *[Target::SM_80, Target::SM_90].choose(rng).expect("a list");
        let module = hgnnc_driver::ptx(kernels, target, lowered.train_sizes.as_ref(), &analysis.sources);
        match module {
            Ok(module) if module.text.len() > 100 << 20 => Err(format!("{} bytes of PTX", module.text.len())),
            Ok(_) => Ok(4),
            Err(_) => Ok(3),
        }
    }
}

/// Checks that formatting is idempotent. Returns whether the text parses.
fn is_formatted_once(text: &str) -> Result<bool, String> {
    let Some(module) = parse(text) else { return Ok(false) };
    let first = format(&module, text);
    let Some(module) = parse(&first) else { return Err(format!("what was formatted does not parse:\n{first}")) };
    let second = format(&module, &first);
    match first == second {
        true => Ok(true),
        false => Err(format!("what was formatted is formatted otherwise:\n{first}\n---- second ----\n{second}")),
    }
}

fn parse(text: &str) -> Option<Module> {
    let mut diagnostics = Diagnostics::default();
    let file = SourceMap::default().add("m.hgnn", text);
    let module = hgnnc_syntax::parse(file, text, &mut diagnostics);
    (!diagnostics.has_errors()).then_some(module)
}

/// Dataset sizes up to the limits of the format.
fn sizes(model: &Analyzed, rng: &mut ChaCha8Rng) -> SizeInfo {
    let flow = &model.flow;
    let most = *[10u64, 10_000, 1 << 30].choose(rng).expect("a list");
    let mut size = |most: u64| match rng.random_range(0..8) {
        0 => 0,
        1 => most,
        _ => rng.random_range(0..=most),
    };
    let vertices: Vec<u64> = flow.vertex_types.iter().map(|_| size(most)).collect();
    let of = |graph: &hgnnc_ir::dataflow::GraphDecl| (vertices[graph.src.index()], vertices[graph.dst.index()]);
    let (mut edges, mut ends) = (vec![], vec![]);
    for graph in &flow.graphs {
        let (src, dst) = of(graph);
        let count = if src == 0 || dst == 0 { 0 } else { size(4 * most) };
        edges.push(count);
        let some = count.min(1);
        ends.push(Endpoints {
            sources: size(src.min(count)).max(some),
            destinations: size(dst.min(count)).max(some),
            max_out: size(count).max(some),
            max_in: size(count).max(some),
        });
    }
    let stored = flow.patterns.iter().map(|_| size(4 * most)).collect();
    let columns = flow.patterns.iter().map(|_| size(10_000)).collect();
    let ends = if rng.random_ratio(1, 2) { ends } else { vec![] };
    SizeInfo { vertices, edges, ends, stored, columns }
}
