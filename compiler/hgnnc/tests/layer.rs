//! A model as a layer: what is given, what is kept, and what is refused. `tests/models` compares the numbers with the oracle.

use std::sync::Arc;

use hgnnc::layer::{Layer, LayerJob, Mode, Pass, TensorInfo};
use hgnnc::{Device, Error, Silent};
use hgnnc_dataset::{Dataset, DenseFeatures, Features, RelationData, VertexTypeData};

const MODEL: &str = "
use std::gcn::GcnConv

schema Library {
    vertex Paper from \"paper\" { x: f32[2] }
    vertex Author from \"author\" { x: f32[3] }
    relation cites: Paper -> Paper
    relation writes: Author -> Paper
}

layer Sum(hidden: dim) over graphs: [*] of x: *[in] -> *[hidden] {
    aggregate e: g in graphs {
        param w: [in, hidden] = glorot
        z = sum(e.src.x @ w) over in_edges
    }
    fuse v: * across graphs {
        out = sum(v.z) across graphs
    }
}

model Net(schema: Library) {
    let h = Sum(hidden: 2) over [cites, writes] of features
    output z: Paper = h.Paper
    output z_wide: Paper = concat(h.Paper, Paper.x)
}
";

/// Three papers, of which the last is isolated, and two authors with features.
fn library() -> Dataset {
    let vertex = |name: &str, count: usize| VertexTypeData { name: name.into(), count, ..VertexTypeData::default() };
    let mut author = vertex("author", 2);
    author.features = Some(Features::Dense(DenseFeatures { dim: 3, rows: vec![1.0, 0.0, 2.0, 0.0, 1.0, 1.0].into() }));
    let relation = |name: &str, src: usize, edges: &[(u32, u32)]| RelationData {
        name: name.into(),
        src,
        dst: 0,
        src_ids: edges.iter().map(|edge| edge.0).collect(),
        dst_ids: edges.iter().map(|edge| edge.1).collect(),
        ..RelationData::default()
    };
    Dataset {
        name: "library".into(),
        vertex_types: vec![vertex("paper", 3), author],
        relations: vec![relation("cites", 0, &[(0, 1), (1, 0), (1, 1)]), relation("writes", 1, &[(0, 0), (1, 0)])],
        ..Dataset::default()
    }
}

fn job(text: &str, given: &[&str]) -> LayerJob {
    let given = given.iter().map(|name| (*name).to_owned()).collect();
    LayerJob { given, device: Device::Cpu, threads: 1, graph_cache: None, ..LayerJob::new("net.hgnn", text) }
}

fn open(text: &str, given: &[&str]) -> Result<Layer, Error> {
    Layer::new(&job(text, given), &Arc::new(library()), &mut Silent)
}

fn refusal(text: &str, given: &[&str]) -> String {
    open(text, given).expect_err("an error").to_string()
}

fn views(all: &[Vec<f32>]) -> Vec<&[f32]> {
    all.iter().map(Vec::as_slice).collect()
}

const X: [f32; 6] = [1.0, -1.0, 0.5, 2.0, 3.0, 4.0];
const ONES: [f32; 6] = [1.0; 6];
const EVALUATION: Mode = Mode::Evaluation;

fn forward(layer: &mut Layer, x: &[f32], params: &[Vec<f32>]) -> Pass {
    layer.forward(&[x], &views(params), EVALUATION).expect("a pass")
}

#[test]
fn names_and_shapes_are_listed() {
    let layer = open(MODEL, &["Paper.x"]).expect("a layer");
    let shown = |info: &TensorInfo| format!("{} {:?}", info.name, info.shape);
    assert_eq!(layer.inputs().map(shown).collect::<Vec<_>>(), ["Paper.x [3, 2]"]);
    assert_eq!(layer.outputs().map(shown).collect::<Vec<_>>(), ["z [3, 2]", "z_wide [3, 4]"]);
    assert_eq!(layer.params().map(shown).collect::<Vec<_>>(), ["h.w.cites [2, 2]", "h.w.writes [3, 2]"]);
    assert!(!layer.has_dropout());
}

#[test]
fn gradients_are_those_of_the_formula() {
    let mut layer = open(MODEL, &["Paper.x"]).expect("a layer");
    // z = A x w + B y v, with identities as weights; the isolated paper has zeros.
    let params = [vec![1.0, 0.0, 0.0, 1.0], vec![1.0, 0.0, 0.0, 1.0, 0.0, 0.0]];
    let pass = forward(&mut layer, &X, &params);
    assert_eq!(layer.output(0), [0.5 + 1.0, 2.0 + 1.0, 1.5, 1.0, 0.0, 0.0]);
    assert_eq!(layer.output(1)[..4], [1.5, 3.0, 1.0, -1.0]);
    let wide: Vec<f32> = (0..12).map(|at| if at % 4 < 2 { 0.0 } else { 10.0 }).collect();
    layer.backward(pass, &[Some(&ONES), Some(&wide)]).expect("gradients");
    // Paper 0 has one out-edge, paper 1 two, paper 2 none; and each is copied to `z_wide`.
    assert_eq!(layer.input_gradient(0), Some(&[11.0, 11.0, 12.0, 12.0, 10.0, 10.0][..]));
    // Σ over edges of the row of the source.
    assert_eq!(layer.param_gradient(0), Some(&[1.0 + 0.5 + 0.5, 2.0, -1.0 + 2.0 + 2.0, 3.0][..]));
    assert_eq!(layer.param_gradient(1), Some(&[1.0, 1.0, 1.0, 1.0, 3.0, 3.0][..]));
}

/// A given field takes the place of the dataset's own, and leaves the others to the dataset.
#[test]
fn some_fields_of_a_vertex_type_are_given() {
    let text = MODEL
        .replace("{ x: f32[2] }", "{ x: f32[2], year: f32 }")
        .replace("concat(h.Paper, Paper.x)", "concat(h.Paper, Paper.x, Paper.year)");
    let shown =
        |layer: &Layer| layer.inputs().map(|info| format!("{} {:?}", info.name, info.shape)).collect::<Vec<_>>();
    let both = open(&text, &["Paper.year", "Paper.x"]).expect("the dataset has neither");
    assert_eq!(shown(&both), ["Paper.year [3, 1]", "Paper.x [3, 2]"]);
    assert!(refusal(&text, &["Paper.year"]).contains("`Paper` has no features `x` in the dataset"));

    let mut data = library();
    data.vertex_types[0].features = Some(Features::Dense(DenseFeatures { dim: 2, rows: X.to_vec().into() }));
    let mut layer = Layer::new(&job(&text, &["Paper.year"]), &Arc::new(data), &mut Silent).expect("a layer");
    assert_eq!(shown(&layer), ["Paper.year [3, 1]"]);
    forward(&mut layer, &[7.0, 8.0, 9.0], &[vec![1.0, 0.0, 0.0, 1.0], vec![1.0, 0.0, 0.0, 1.0, 0.0, 0.0]]);
    assert_eq!(layer.output(1)[..5], [1.5, 3.0, 1.0, -1.0, 7.0]);
    assert_eq!(layer.output(1)[10..], [0.0, 0.0, 3.0, 4.0, 9.0]);
}

#[test]
fn outputs_are_those_of_vertices() {
    let attention = MODEL.replace("use std::gcn::GcnConv", "use std::gat::GatConv").replace(
        "    output z: Paper = h.Paper",
        "    let conv = GatConv(hidden: 2) over cites of Paper.x
    output z: Paper = conv
    output alpha: edges = conv.alpha",
    );
    let layer = open(&attention, &["Paper.x"]).expect("a layer");
    assert_eq!(layer.outputs().map(|info| &info.name[..]).collect::<Vec<_>>(), ["z", "z_wide"]);
    let links = MODEL
        .replace("use std::gcn::GcnConv", "use std::link::DistMult")
        .replace("output z: Paper = h.Paper", "output score: links = DistMult() over links(cites) of h");
    assert!(refusal(&links, &["Paper.x"]).contains("`score` has a row for each pair of vertices"));
    assert!(refusal(MODEL, &["Paper.x", "Paper.x"]).contains("`Paper.x` is given twice"));
}

#[test]
fn gradients_of_inputs_can_be_left_out() {
    let mut all = open(MODEL, &["Paper.x"]).expect("a layer");
    let job = LayerJob { input_gradients: false, ..job(MODEL, &["Paper.x"]) };
    let mut without = Layer::new(&job, &Arc::new(library()), &mut Silent).expect("a layer");
    let params = all.initial_params(1).expect("values");
    for layer in [&mut all, &mut without] {
        let pass = forward(layer, &X, &params);
        layer.backward(pass, &[Some(&ONES), Some(&[1.0; 12])]).expect("gradients");
    }
    assert_eq!(without.input_gradient(0), None);
    assert_eq!(without.output(0), all.output(0));
    assert!((0..2).all(|param| without.param_gradient(param) == all.param_gradient(param)));
}

#[test]
fn an_output_without_a_gradient_has_no_influence() {
    let mut layer = open(MODEL, &["Paper.x"]).expect("a layer");
    let params = layer.initial_params(1).expect("values");
    let pass = forward(&mut layer, &X, &params);
    layer.backward(pass, &[Some(&ONES), Some(&[0.0; 12])]).expect("gradients");
    let expected: Vec<Vec<f32>> = (0..2).map(|at| layer.param_gradient(at).expect("a gradient").to_vec()).collect();
    let pass = forward(&mut layer, &X, &params);
    layer.backward(pass, &[Some(&ONES), None]).expect("gradients");
    for (at, expected) in expected.iter().enumerate() {
        assert_eq!(layer.param_gradient(at), Some(&expected[..]));
    }
}

#[test]
fn one_pass_is_kept_and_computed_again_where_it_is_not() {
    let mut layer = open(MODEL, &["Paper.x"]).expect("a layer");
    let params = layer.initial_params(7).expect("values");
    let gradient = |layer: &mut Layer, pass: Pass| -> Vec<f32> {
        layer.backward(pass, &[Some(&ONES), None]).expect("gradients");
        layer.param_gradient(0).expect("a gradient").to_vec()
    };
    let first = forward(&mut layer, &X, &params);
    assert!(layer.keeps(first));
    let expected = gradient(&mut layer, first);
    // It went backward.
    assert!(!layer.keeps(first));
    let again = layer.backward(first, &[None, None]).expect_err("an error");
    assert!(again.to_string().contains("no longer kept"), "{again}");
    // Another one followed it.
    let first = forward(&mut layer, &X, &params);
    let second = forward(&mut layer, &[0.0; 6], &params);
    assert!(!layer.keeps(first) && layer.keeps(second));
    assert_eq!(gradient(&mut layer, second), [0.0; 4]);
    let first = forward(&mut layer, &X, &params);
    assert_eq!(gradient(&mut layer, first), expected);
}

#[test]
fn gradients_are_there_after_a_backward_pass_only() {
    let mut layer = open(MODEL, &["Paper.x"]).expect("a layer");
    assert!(layer.output(0).is_empty());
    let params = layer.initial_params(0).expect("values");
    let pass = forward(&mut layer, &X, &params);
    assert_eq!((layer.output(0).len(), layer.param_gradient(0)), (6, Some(&[][..])));
    layer.backward(pass, &[None, None]).expect("gradients");
    assert_eq!(layer.param_gradient(0), Some(&[0.0; 4][..]));
}

#[test]
fn all_features_may_be_given_or_none() {
    let mut all = open(MODEL, &["Author.x", "Paper.x"]).expect("a layer");
    assert_eq!(all.inputs().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["Author.x", "Paper.x"]);
    let params = all.initial_params(3).expect("values");
    let authors = [1.0, 0.0, 2.0, 0.0, 1.0, 1.0];
    let pass = all.forward(&[&authors, &X], &views(&params), EVALUATION).expect("a pass");
    let mut one = open(MODEL, &["Paper.x"]).expect("a layer");
    forward(&mut one, &X, &params);
    assert_eq!(all.output(0), one.output(0));
    all.backward(pass, &[Some(&ONES), None]).expect("gradients");
    // Both authors wrote paper 0.
    let gradient = all.input_gradient(0).expect("a gradient");
    assert_eq!(gradient[..3], gradient[3..]);

    let none = MODEL.replace("{ x: f32[2] }", "{ x: embedding[2] }");
    let mut none = open(&none, &[]).expect("a layer");
    let params = none.initial_params(0).expect("values");
    let pass = none.forward(&[], &views(&params), Mode::Training { seed: 0, step: 1 }).expect("a pass");
    none.backward(pass, &[Some(&ONES), None]).expect("gradients");
    let names: Vec<String> = none.params().map(|info| format!("{} {:?}", info.name, info.shape)).collect();
    assert!(names.iter().any(|name| name.ends_with("[3, 2]") && name.contains("Paper")), "{names:?}");
}

#[test]
fn dropout_is_drawn_by_seed_and_step_and_only_in_training() {
    let text = MODEL.replace("h.Paper\n", "dropout(h.Paper, 0.5)\n");
    let mut layer = open(&text, &["Paper.x"]).expect("a layer");
    assert!(layer.has_dropout());
    let params = [vec![1.0; 4], vec![1.0; 6]];
    let mut outputs = |mode: Mode| {
        layer.forward(&[&[1.0; 6]], &views(&params), mode).expect("a pass");
        layer.output(0).to_vec()
    };
    let training = |seed, step| Mode::Training { seed, step };
    let evaluated = outputs(EVALUATION);
    assert!(evaluated[..4].iter().all(|&x| x > 0.0));
    let drawn: Vec<Vec<f32>> = (1..20).map(|step| outputs(training(1, step))).collect();
    assert_eq!(drawn[4], outputs(training(1, 5)));
    assert!(drawn.iter().any(|other| *other != drawn[0]));
    for (x, at) in drawn.iter().flat_map(|all| all.iter().zip(&evaluated)) {
        assert!(*x == 0.0 || *x == 2.0 * at, "{x} of {at}");
    }
}

#[test]
fn a_train_block_is_ignored() {
    let text = MODEL.replace("x: f32[2]", "x: f32[2], topic: class[2]")
        + "train Net { loss cross_entropy(z, Paper.topic) optimizer adam(lr: 0.1) epochs 3 }";
    let layer = open(&text, &["Paper.x"]).expect("a layer");
    assert_eq!(layer.outputs().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["z", "z_wide"]);
}

#[test]
fn wrong_calls_are_errors() {
    let mut layer = open(MODEL, &["Paper.x"]).expect("a layer");
    let params = layer.initial_params(0).expect("values");
    let params = views(&params);
    let mut fails = |inputs: &[&[f32]], params: &[&[f32]]| {
        layer.forward(inputs, params, EVALUATION).expect_err("an error").to_string()
    };
    assert_eq!(fails(&[], &params), "the layer has 1 inputs, not 0");
    assert_eq!(fails(&[&X[..5]], &params), "the input `Paper.x` has 5 elements; its shape is [3, 2]");
    assert_eq!(fails(&[&X], &params[1..]), "the layer has 2 parameters, not 1");
    assert_eq!(fails(&[&X], &[params[1], params[0]]), "the parameter `h.w.cites` has 6 elements; its shape is [2, 2]");
    let pass = layer.forward(&[&X], &params, EVALUATION).expect("a pass");
    let mut fails = |gradients: &[Option<&[f32]>]| layer.backward(pass, gradients).expect_err("an error").to_string();
    assert_eq!(fails(&[None]), "the layer has 2 gradients of outputs, not 1");
    assert_eq!(fails(&[Some(&X[..2]), None]), "the gradient of the output `z` has 2 elements; its shape is [3, 2]");
    // A call that was refused leaves the pass as it was.
    layer.backward(pass, &[Some(&ONES), None]).expect("gradients");
}

#[test]
fn what_cannot_be_a_layer_is_refused() {
    let wrong = refusal(MODEL, &["Paper.y"]);
    assert!(wrong.contains("no features `Paper.y`; it reads `Paper.x`, `Author.x`"), "{wrong}");
    let narrow = MODEL.replace("    output z_wide: Paper = concat(h.Paper, Paper.x)\n", "");
    let wrong = refusal(&narrow.replace("f32[2] }", "f32[2] sparse }"), &["Paper.x"]);
    assert!(wrong.contains("`Paper.x` is declared sparse"), "{wrong}");
    // The dataset has no features of papers: they are given or an error.
    let wrong = refusal(MODEL, &[]);
    assert!(wrong.contains("`Paper` has no features in the dataset"), "{wrong}");
    let wrong = refusal(&MODEL.replace("= Sum(hidden", "= Summ(hidden"), &["Paper.x"]);
    assert!(wrong.contains("Summ"), "{wrong}");
    let mut unknown = job(MODEL, &["Paper.x"]);
    unknown.disabled.passes.push("nothing".into());
    let wrong = Layer::new(&unknown, &Arc::new(library()), &mut Silent).expect_err("an error");
    assert!(matches!(&wrong, Error::Switch(_)), "{wrong}");
}

/// Papers with word counts, of which most are 0, and citations.
const WORDS: &str = "
use std::rgcn::RgcnConv

schema Library {
    vertex Paper from \"paper\" { words: f32[100] }
    vertex Author from \"author\"
    relation cites: Paper -> Paper
    relation writes: Author -> Paper
    metapath Common = Paper -cites-> Paper <-cites- Paper
}

model Net(schema: Library) {
    let h = RgcnConv(hidden: 4) over [cites, Common] of dropout(Paper.words, 0.5)
    output z: Paper = h
}
";

/// Counts of three papers.
fn words() -> Vec<f32> {
    let mut words = vec![0.0; 300];
    for (at, count) in [(3, 1.0), (40, 2.0), (99, 1.0), (100, 3.0), (140, 1.0), (299, 5.0)] {
        words[at] = count;
    }
    words
}

fn without_input_gradients(text: &str, given: &[&str]) -> Layer {
    let job = LayerJob { input_gradients: false, ..job(text, given) };
    Layer::new(&job, &Arc::new(library()), &mut Silent).expect("a layer")
}

/// Outputs, and the gradients of the parameters for ones.
fn both_passes(layer: &mut Layer, x: &[f32], mode: Mode) -> Vec<Vec<f32>> {
    let params = layer.initial_params(5).expect("values");
    let pass = layer.forward(&[x], &views(&params), mode).expect("a pass");
    let mut found = vec![layer.output(0).to_vec()];
    let ones = vec![1.0; found[0].len()];
    layer.backward(pass, &[Some(&ones)]).expect("gradients");
    found.extend((0..params.len()).map(|at| layer.param_gradient(at).expect("a gradient").to_vec()));
    found
}

fn assert_close(found: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        assert!((found - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{found} is not {expected}");
    }
}

/// A layer that may read sparse rows, after a pass with outputs that are those of dense rows.
fn after_a_pass(text: &str, given: &[&str], inputs: &[&[f32]]) -> Layer {
    let mut layers = [without_input_gradients(text, given), open(text, given).expect("a layer")];
    let params = layers[0].initial_params(5).expect("values");
    let outputs = layers.each_mut().map(|layer| -> Vec<Vec<f32>> {
        layer.forward(inputs, &views(&params), EVALUATION).expect("a pass");
        (0..layer.outputs().len()).map(|at| layer.output(at).to_vec()).collect()
    });
    assert_close(&outputs[0], &outputs[1]);
    let [layer, _] = layers;
    layer
}

fn reads_sparse_rows(layer: &Layer) -> bool {
    layer.explanations().iter().any(|line| line.starts_with("sparse inputs: "))
}

/// The programs for sparse rows compute what those for dense rows do.
#[test]
fn an_input_that_is_mostly_zeros_is_read_as_sparse_rows() {
    let text = WORDS.replace("dropout(Paper.words, 0.5)", "Paper.words");
    let (mut sparse, mut dense) = (without_input_gradients(&text, &["Paper.words"]), open(&text, &["Paper.words"]));
    let dense = dense.as_mut().expect("a layer");
    assert_close(&both_passes(&mut sparse, &words(), EVALUATION), &both_passes(dense, &words(), EVALUATION));
    let note = "sparse inputs: 2.0 % of the given `Paper.words` are not zero, and only these are read";
    assert!(sparse.explanations().iter().any(|line| line == note), "{:?}", sparse.explanations());
    assert!(!reads_sparse_rows(dense), "a gradient of the input has a number for each zero");
}

/// One other number, in place of one that is stored or of a zero, and the rows are read as they are.
#[test]
fn sparse_rows_are_those_of_each_call() {
    let text = WORDS.replace("dropout(Paper.words, 0.5)", "Paper.words");
    let (mut sparse, mut dense) = (without_input_gradients(&text, &["Paper.words"]), open(&text, &["Paper.words"]));
    let dense = dense.as_mut().expect("a layer");
    for (at, number) in [(0, 0.0), (40, 7.0), (41, 7.0), (299, 0.0), (0, -0.0)] {
        let mut x = words();
        x[at] = number;
        assert_close(&both_passes(&mut sparse, &x, EVALUATION), &both_passes(dense, &x, EVALUATION));
        assert_eq!(reads_sparse_rows(&sparse), x == words(), "{at}");
    }
}

/// Masks of stored elements are drawn by their positions, so they are those of dense rows.
#[test]
fn sparse_inputs_have_the_dropout_of_dense_ones() {
    let (mut sparse, mut dense) = (without_input_gradients(WORDS, &["Paper.words"]), open(WORDS, &["Paper.words"]));
    let dense = dense.as_mut().expect("a layer");
    for step in 1..20 {
        let mode = Mode::Training { seed: 1, step };
        assert_close(&both_passes(&mut sparse, &words(), mode), &both_passes(dense, &words(), mode));
    }
    assert!(reads_sparse_rows(&sparse));
}

/// A pass of sparse rows and one of dense rows are passes of one layer, of which the last one is kept.
#[test]
fn one_pass_is_kept_of_sparse_and_dense_rows() {
    let mut layer = without_input_gradients(WORDS, &["Paper.words"]);
    let params = layer.initial_params(5).expect("values");
    let mut other = words();
    other[7] = 1.0;
    let first = layer.forward(&[&words()], &views(&params), EVALUATION).expect("a pass");
    let second = layer.forward(&[&other], &views(&params), EVALUATION).expect("a pass");
    assert!(!layer.keeps(first) && layer.keeps(second));
    let third = layer.forward(&[&words()], &views(&params), EVALUATION).expect("a pass");
    assert!(!layer.keeps(second) && layer.keeps(third) && reads_sparse_rows(&layer));
}

/// A first call with zeros, which shows shapes, decides nothing.
#[test]
fn sparse_rows_are_the_first_that_are_not_all_zeros() {
    let mut layer = without_input_gradients(WORDS, &["Paper.words"]);
    both_passes(&mut layer, &[0.0; 300], EVALUATION);
    assert!(!reads_sparse_rows(&layer));
    both_passes(&mut layer, &words(), EVALUATION);
    assert!(reads_sparse_rows(&layer));
    // Numbers that change at each call are read as they are, and the programs for the first ones go.
    for at in 0..10 {
        let mut other = words();
        other[200 + at] = 1.0;
        both_passes(&mut layer, &other, EVALUATION);
    }
    both_passes(&mut layer, &words(), EVALUATION);
    assert!(!reads_sparse_rows(&layer));
}

/// Sparse features of one type store other elements: one of two that are multiplied stays dense.
#[test]
fn a_product_of_two_inputs_has_one_that_is_sparse() {
    let text = WORDS
        .replace("{ words: f32[100] }", "{ words: f32[100], shown: f32[100] }")
        .replace("dropout(Paper.words, 0.5)", "(Paper.words * Paper.shown)");
    let mut shown = vec![0.0; 300];
    shown[40] = 2.0;
    let layer = after_a_pass(&text, &["Paper.words", "Paper.shown"], &[&words(), &shown]);
    assert!(layer.explanations().iter().any(|line| line.contains("`Paper.words`")));
    assert!(!layer.explanations().iter().any(|line| line.contains("`Paper.shown`")));
}

/// Two names of one vertex type of the dataset are two inputs.
#[test]
fn inputs_with_one_place_in_the_dataset_stay_dense() {
    let text = WORDS
        .replace("    vertex Author", "    vertex Cited from \"paper\" { words: f32[100] }\n    vertex Author")
        .replace("output z: Paper = h", "output z: Paper = h\n    output other: Cited = linear(Cited.words, 4)");
    let mut other = vec![0.0; 300];
    other[150] = 2.0;
    let layer = after_a_pass(&text, &["Paper.words", "Cited.words"], &[&words(), &other]);
    assert!(!reads_sparse_rows(&layer));
}

/// There is an operation that fills the zeros, or few zeros, or few columns.
#[test]
fn inputs_that_are_better_read_as_they_are() {
    let filled = WORDS.replace("output z: Paper = h", "output z: Paper = concat(h, Paper.words)");
    let mut layer = without_input_gradients(&filled, &["Paper.words"]);
    both_passes(&mut layer, &words(), EVALUATION);
    assert!(!reads_sparse_rows(&layer));

    let mut layer = without_input_gradients(WORDS, &["Paper.words"]);
    let full: Vec<f32> = (0..300).map(|at| if at % 5 == 0 { 1.0 } else { 0.0 }).collect();
    both_passes(&mut layer, &full, EVALUATION);
    // The first rows decide, so that a layer is not compiled at each call.
    both_passes(&mut layer, &words(), EVALUATION);
    assert!(!reads_sparse_rows(&layer));

    let mut layer = without_input_gradients(&WORDS.replace("f32[100]", "f32[50]"), &["Paper.words"]);
    both_passes(&mut layer, &words()[..150], EVALUATION);
    assert!(!reads_sparse_rows(&layer));
}

/// Of two inputs that are mostly zeros, one is also copied to an output.
#[test]
fn only_inputs_whose_zeros_stay_zeros_are_sparse() {
    let text = WORDS
        .replace("{ words: f32[100] }", "{ words: f32[100], topics: f32[64] }")
        .replace("output z: Paper = h", "output z: Paper = concat(h + linear(Paper.topics, 4), Paper.topics)");
    let mut layer = without_input_gradients(&text, &["Paper.topics", "Paper.words"]);
    let mut topics = vec![0.0; 192];
    topics[70] = 1.0;
    let params = layer.initial_params(5).expect("values");
    let pass = layer.forward(&[&topics, &words()], &views(&params), EVALUATION).expect("a pass");
    assert!(layer.explanations().iter().any(|line| line.contains("`Paper.words`")));
    assert!(!layer.explanations().iter().any(|line| line.contains("`Paper.topics`")));
    assert_eq!(layer.output(0)[68..136][4 + 6], 1.0);
    layer.backward(pass, &[Some(&[1.0; 3 * 68])]).expect("gradients");
    assert_eq!((layer.input_gradient(0), layer.input_gradient(1)), (None, None));
}
