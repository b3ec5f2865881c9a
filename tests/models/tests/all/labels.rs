//! Labels of the training part as values: worked by hand, never those of the vertex itself, never those of other parts.

use std::sync::atomic::AtomicBool;

use hgnnc_data::{BindOptions, bind};
use hgnnc_dataset::{Dataset, LabelValues, SplitData};
use hgnnc_diag::{Severity, codes};
use hgnnc_driver::{LowerOptions, analyze};
use hgnnc_ir::dataflow::{Binding, Matrix};
use hgnnc_ir::random::{mask_element, mask_key, uniform};
use hgnnc_ir::{Input, Op};
use hgnnc_model_tests::cases::SCHEMA;
use hgnnc_model_tests::compiled::{compile, interpret};
use hgnnc_model_tests::engine::{self, bound_data};
use hgnnc_model_tests::{World, assert_close, dataset, worlds};
use hgnnc_train::TrainOptions;

const LAYERS: &str = "
use std::gat::GatConv
use std::gcn::GcnConv
use std::rgcn::RgcnConv
layer Mean() over graphs: [V -> V] of x: V[in] -> V[in] {
    aggregate e: g in graphs { z = mean(e.src.x) over in_edges }
    fuse v: V across graphs { out = sum(v.z) across graphs }
}
layer Gate() over graphs: [V -> V] of x: V[in] -> V[in] {
    aggregate e: g in graphs {
        let score = softmax(dot(e.src.x, e.dst.x)) over in_edges across graphs
        z = sum(score * e.src.x) over in_edges
    }
    fuse v: V across graphs { out = v.x + sum(v.z) across graphs }
}
layer Ways() over graphs: [V -> V] of x: V[in], y: V[in] -> V[in] {
    aggregate e: g in graphs { z = max(e.src.x) over in_edges }
    fuse v: V across graphs {
        let importance = mean(dot(v.z, v.y)) over V
        out = sum(softmax(importance) across graphs * v.z) across graphs
    }
}
layer Recur() over graphs: [V -> V] of x: V[in], y: V[in] -> V[in] {
    aggregate e: g in graphs {
        z = fold(e.dst.x, tanh(before * e.src.x + e.src.y)) over in_edges
    }
    fuse v: V across graphs { out = sum(v.z) across graphs }
}
layer Walk() over graphs: [V -> V] of x: V[in] -> V[in] {
    aggregate p: path in graphs { z = mean(p.at(0).x) over in_edges }
    fuse v: V across graphs { out = sum(v.z) across graphs }
}
";

/// Papers 0 to 3 with the classes 0, 1, 2, 1, of which the first three are in the training part, and 3 cites and is
/// cited.
#[test]
fn rows_are_one_hot_in_the_training_part_and_0_elsewhere() {
    let source = format!(
        "{LAYERS} {SCHEMA}
        model M(schema: Library) {{
            let known = train_labels(Paper.topic) @ eye(3)
            output known: Paper = known
            output around: Paper = Mean() over [without_self_loops(cites)] of known
        }}"
    );
    let compiled = compile(&source);
    let edges = [(0, 1), (1, 1), (2, 3), (0, 3), (3, 0), (1, 0)];
    let world = World::new(
        1,
        &[("Paper", 4), ("Author", 1), ("Venue", 1)],
        &[("cites", &edges), ("writes", &[]), ("reviews", &[]), ("appears_in", &[])],
    );
    let mut bindings = compiled.bind(&world);
    let place = train_labels(&compiled.infer.inputs);
    let known = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]];
    bindings.inputs.get_mut(&place).expect("it is bound").data = known.concat();
    let run = interpret(&compiled.infer, &bindings);
    let value = |name: &str| &run[compiled.infer.result(name).expect("an output")].data;
    assert_close("labels", value("known"), &known.concat(), 0.0);
    // Paper 1 has itself among its neighbours, paper 2 none, and paper 3 no label.
    let around = [[0.0, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.5, 0.0, 0.5]];
    assert_close("means", value("around"), &around.concat(), 1e-12);
}

/// The input that has the labels of the training part.
fn train_labels(inputs: &[hgnnc_ir::dataflow::InputDecl]) -> Input {
    let is_it =
        |decl: &hgnnc_ir::dataflow::InputDecl| matches!(decl.binding, Binding::Features(_, Matrix::TrainLabels(_)));
    Input::new(inputs.iter().position(is_it).expect("the model reads labels"))
}

/// The runtime makes the rows of the labels and the split: those of the training part, whatever the others are.
#[test]
fn labels_of_other_parts_are_never_read() {
    let source = format!(
        "{SCHEMA}
        model M(schema: Library) {{
            param w: [3, 3]
            output known: Paper = train_labels(Paper.topic) @ w
            output y: Paper = linear(Paper.x, 3)
        }}
        train M {{ loss cross_entropy(y, Paper.topic) split \"std\" }}"
    );
    let compiled = compile(&source);
    let place = train_labels(&compiled.infer.inputs);
    for seed in 0..worlds(20) {
        let world = World::random_library(seed);
        let bindings = compiled.bind(&world);
        let exe = compiled.lowered(&world, LowerOptions::default());
        let mut data = dataset::dataset(&exe.infer, &bindings, &world);
        // A split that does not name this vertex type's part as its first.
        let all = SplitData { name: "all".into(), vertex_type: 0, train: vec![0], val: vec![], test: vec![] };
        data.splits.insert(0, all);
        let bound = |data: &Dataset, outputs_only, split: Option<&str>| {
            let split = split.map(str::to_owned);
            let bound =
                bind(&exe, data, &BindOptions { outputs_only, split, ..BindOptions::default() }).expect("bound");
            let decl = &exe.infer.inputs[place.index()];
            let hgnnc_ir::Layout::Sparse(pattern) = decl.ty.layout else { panic!("sparse rows") };
            let numbers = match &bound.inputs[place.index()] {
                hgnnc_data::InputData::Numbers(numbers) => numbers.to_vec(),
                _ => panic!("numbers"),
            };
            let mut rows = vec![0.0; 3 * world.count("Paper")];
            let topology = &bound.patterns[pattern.index()];
            for row in 0..world.count("Paper") {
                for at in topology.csc.indptr[row] as usize..topology.csc.indptr[row + 1] as usize {
                    rows[3 * row + topology.csc.indices[at] as usize] = f64::from(numbers[at]);
                }
            }
            rows
        };
        let expected = &bindings.inputs[&place].data;
        assert_eq!(&bound(&data, false, None), expected, "training, world {seed}");
        assert_eq!(&bound(&data, true, None), expected, "outputs only, world {seed}");
        assert_eq!(bound(&data, true, Some("all"))[3..].iter().sum::<f64>(), 0.0, "another split, world {seed}");
        let train = data.splits[1].train.clone();
        let LabelValues::Single { of, .. } = &mut data.labels[0].values else { panic!("classes") };
        let others = (0..).zip(of).filter(|(vertex, _)| !train.contains(vertex));
        others.for_each(|(_, class)| *class = (*class + 1) % 3);
        assert_eq!(&bound(&data, true, None), expected, "other labels of other parts, world {seed}");
    }
}

/// A step of training shows the labels of some vertices and compares the others: no label is both read and compared,
/// over any number of hops and whatever the rows are combined by. Outside of training, all are shown.
#[test]
fn hidden_labels_are_those_that_a_step_learns_from() {
    const HIDDEN: f64 = 0.4;
    let source = format!(
        "{LAYERS} {SCHEMA}
        model M(schema: Library) {{
            let known = train_labels(Paper.topic, hidden: {HIDDEN}) @ eye(3)
            let around = Mean() over [cites, self_loops(PAP)] of known
            let far = batch_norm(GcnConv(hidden: 3) over [cites] of around + known)
            output known: Paper = known
            output y: Paper = linear(far, 3)
        }}
        train M {{ loss cross_entropy(y, Paper.topic, class_weights: [1, 2, 0.5]) + 0.1 * mean(sum(square(y)) over last) over Paper }}"
    );
    let weights = [1.0, 2.0, 0.5];
    let compiled = compile(&source);
    let (flow, place) = (compiled.training(), train_labels(&compiled.training().inputs));
    let truth = flow.inputs.iter().position(|decl| matches!(decl.binding, Binding::Label(..))).map(Input::new);
    let truth = truth.expect("labels are compared");
    let stream = flow.values.iter().find_map(|value| match value.op {
        Op::RandomMask { stream, rate: HIDDEN, .. } => Some(stream),
        _ => None,
    });
    let stream = stream.expect("labels are hidden at random");
    let (mut shown, mut hidden, mut read) = (0, 0, 0);
    for seed in 0..worlds(20) {
        let world = World::random_library(seed);
        let mut bindings = compiled.bind(&world);
        let all = bindings.inputs[&place].data.clone();
        assert_eq!(compiled.output(&world, "known").data, all, "outputs see all labels, world {seed}");
        for step in 0..4 {
            bindings.step = step;
            let loss = |bindings: &_| interpret(flow, bindings)[flow.result("loss").expect("a loss")].data[0];
            let before = loss(&bindings);
            let key = mask_key(bindings.seed, step, stream);
            let is_shown = |vertex: usize| mask_element(key, vertex as u64, HIDDEN) > 0.0;
            let labelled: Vec<usize> =
                (0..world.count("Paper")).filter(|vertex| all[3 * vertex..3 * vertex + 3] != [0.0; 3]).collect();
            let learned: Vec<usize> = labelled.iter().copied().filter(|&vertex| !is_shown(vertex)).collect();
            // The mean over the vertices that are hidden, of outputs that see the others.
            let mut seen = bindings.clone();
            let rows = &mut seen.inputs.get_mut(&place).expect("bound").data;
            learned.iter().for_each(|vertex| rows[3 * vertex..3 * vertex + 3].fill(0.0));
            let y = &interpret(&compiled.infer, &seen)[compiled.infer.result("y").expect("an output")];
            let classes = &bindings.inputs[&truth].data;
            let weighed = learned.iter().map(|&vertex| {
                let (row, class) = (y.row(vertex), classes[vertex] as usize);
                let entropy = row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[class];
                (weights[class] * entropy, weights[class])
            });
            let (sum, weight) = weighed.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            let squares = y.data.iter().map(|x| x * x).sum::<f64>() / world.count("Paper") as f64;
            let expected = if weight > 0.0 { sum / weight } else { 0.0 } + 0.1 * squares;
            assert_close(&format!("loss of world {seed}, step {step}"), &[before], &[expected], 1e-9);
            for vertex in labelled {
                let [mut other_truth, mut other_label] = [bindings.clone(), bindings.clone()];
                let class = &mut other_truth.inputs.get_mut(&truth).expect("bound").data[vertex];
                *class = (*class + 1.0) % 3.0;
                other_label.inputs.get_mut(&place).expect("bound").data[3 * vertex..3 * vertex + 3].rotate_left(1);
                let what = format!("vertex {vertex} of world {seed}, step {step}");
                if is_shown(vertex) {
                    assert_eq!(loss(&other_truth), before, "{what}");
                    read += usize::from(loss(&other_label) != before);
                    shown += 1;
                } else {
                    assert_eq!(loss(&other_label), before, "{what}");
                    assert_ne!(loss(&other_truth), before, "{what}");
                    hidden += 1;
                }
            }
        }
    }
    assert!(shown > 10 && hidden > 10 && 2 * read > shown, "{shown} shown and {read} read, {hidden} hidden");
}

/// A step that hides nothing learns nothing.
#[test]
fn a_step_that_hides_no_label_has_a_loss_of_0() {
    let source = format!(
        "{LAYERS} {SCHEMA}
        model M(schema: Library) {{
            output y: Paper = linear(train_labels(Paper.topic, hidden: 0.0000000001), 3)
        }}
        train M {{ loss cross_entropy(y, Paper.topic) }}"
    );
    let compiled = compile(&source);
    let flow = compiled.training();
    let run = interpret(flow, &compiled.bind(&World::random_library(1)));
    assert_eq!(run[flow.result("loss").expect("a loss")].data, [0.0]);
}

/// In a batch, a seed is hidden wherever its row comes in: what remains to learn is how frequent classes are.
#[test]
fn batches_hide_the_labels_of_their_seeds_at_every_hop() {
    let source = format!(
        "{LAYERS} {SCHEMA}
        model M(schema: Library) {{
            let known = train_labels(Paper.topic, hidden: 0.5)
            let near = GcnConv(hidden: 6) over [identity(Paper)] of linear(known, 6)
            let far = GcnConv(hidden: 6) over [identity(Paper)] of near
            output y: Paper = linear(concat(linear(known, 6), near, far), 3)
        }}
        train M {{ loss cross_entropy(y, Paper.topic) optimizer adam(lr: 0.05) epochs 30 batch 16 select train.loss }}"
    );
    let compiled = compile(&source);
    let papers = 90;
    let edges: [(&str, &[(u32, u32)]); 4] = [("cites", &[]), ("writes", &[]), ("reviews", &[]), ("appears_in", &[])];
    let world = World::new(5, &[("Paper", papers), ("Author", 1), ("Venue", 1)], &edges);
    let data = bound_data(compiled.training(), &compiled.bind(&world));
    let executable = compiled.lowered(&world, LowerOptions::default());
    let options = TrainOptions { threads: 1, ..Default::default() };
    let mut trainer = engine::trainer(executable, data, options).unwrap_or_else(|error| panic!("{error}"));
    let mut losses = vec![];
    trainer.run(&AtomicBool::new(false), &mut |epoch| losses.push(epoch.loss)).expect("it trains");
    let last = losses[20..].iter().sum::<f64>() / 10.0;
    assert!(last > 0.9, "a third of the classes each is a loss of 1.1, a label that is read less than 0.6: {last}");
}

/// A model of random operations on papers, with a value for each statement.
fn random_model(seed: u64) -> String {
    let key = mask_key(seed, 0, 911);
    let mut drawn = 0;
    let mut below = |n: usize| {
        drawn += 1;
        ((uniform(key, drawn) * n as f64) as usize).min(n - 1)
    };
    let graphs = [
        "without_self_loops(PAP)",
        "without_self_loops(PAP)",
        "without_self_loops(cites)",
        "without_self_loops(reverse(cites))",
        "without_self_loops(PVP)",
        "PAP",
        "cites",
        "self_loops(cites)",
        "identity(Paper)",
    ];
    let mut lines = vec![
        "    let v0 = linear(Paper.x, 3)".to_owned(),
        "    let v1 = train_labels(Paper.topic) @ eye(3)".to_owned(),
        "    let v2 = linear(dropout(train_labels(Paper.topic), 0.2), 3)".to_owned(),
    ];
    for number in lines.len()..lines.len() + 2 + below(5) {
        // Values with labels, and the latest ones, are more frequent.
        let mut value = || match below(4) {
            0 => format!("v{}", number - 1),
            1 => format!("v{}", 1 + below(2)),
            _ => format!("v{}", below(number)),
        };
        let (a, b) = (value(), value());
        let mut graph = || graphs[below(graphs.len())];
        let (g, h) = (graph(), graph());
        let (one, both) = (format!("[{g}]"), if g == h { format!("[{g}]") } else { format!("[{g}, {h}]") });
        let line = match below(19) {
            0..=4 => format!("Mean() over {one} of {a}"),
            5 => format!("Mean() over {both} of {a}"),
            6 => format!("Gate() over {both} of {a}"),
            7 => format!("Ways() over {both} of (x: {a}, y: {b})"),
            8 => format!("GatConv(hidden: 3, heads: 1) over {one} of {a}"),
            9 => format!("RgcnConv(hidden: 3) over [writes, reverse(writes)] of {{{a}, Author.x}}.Paper"),
            10 => format!("relu({a} + {b})"),
            16 | 17 => format!(
                "Recur() over [{}] of (x: {a}, y: {b})",
                ["without_self_loops(PAP) at most 2 per vertex", "cites at most 2 per vertex"][below(2)]
            ),
            11 => format!("linear(concat({a}, stop_gradient({b})), 3)"),
            12 => format!("softmax({a}) over last * tanh({b})"),
            13 => format!("layer_norm({a})[1] * {b}"),
            14 => format!("batch_norm({a})"),
            15 => format!("{a} - mean({b}) over Paper"),
            _ => format!("Walk() over [PAP] of {a}"),
        };
        let line = if line.contains("RgcnConv") { format!("({line})") } else { line };
        lines.push(match line.strip_prefix('(').and_then(|l| l.strip_suffix(".Paper)")) {
            Some(conv) => format!("    let w{number} = {conv}\n    let v{number} = w{number}.Paper"),
            None => format!("    let v{number} = {line}"),
        });
    }
    let last = lines.len() - 1;
    format!(
        "{LAYERS} {SCHEMA}
#[allow(W0002)]
#[allow(W0003)]
model M(schema: Library) {{\n{}\n    output y: Paper = linear(v{last}, 3)\n}}
train M {{ loss cross_entropy(y, Paper.topic) }}",
        lines.join("\n")
    )
}

/// An output that passes the check does not change at a vertex when its own label does. Those that are refused do, at
/// least often: otherwise the check would refuse too much to find anything.
#[test]
fn an_output_that_passes_never_reads_its_own_label() {
    let (mut passed, mut read, mut refused, mut right) = (0, 0, 0, 0u64);
    for seed in 0..worlds(250) {
        let source = random_model(seed);
        let analysis = analyze("model.hgnn", &source);
        let errors: Vec<_> =
            analysis.diagnostics.iter().filter(|d| d.severity() == Severity::Error).map(|d| d.code).collect();
        let leaks = errors.contains(&codes::LABEL_LEAK);
        assert!(errors.iter().all(|code| *code == codes::LABEL_LEAK), "{errors:?}\n{source}");
        // The same model without the comparison that is refused.
        let model = source.split("\ntrain M").next().expect("a text");
        let compiled = compile(model);
        let Some(_) =
            compiled.infer.inputs.iter().find(|d| matches!(d.binding, Binding::Features(_, Matrix::TrainLabels(_))))
        else {
            assert!(!leaks, "nothing is read\n{source}");
            continue;
        };
        let place = train_labels(&compiled.infer.inputs);
        let (mut own, mut any) = (false, false);
        for world in [World::library(), World::random_library(seed)] {
            let bindings = compiled.bind(&world);
            let output = |bindings: &_| {
                let run = interpret(&compiled.infer, bindings);
                run[compiled.infer.result("y").expect("an output")].clone()
            };
            let before = output(&bindings);
            for vertex in 0..world.count("Paper") {
                let mut changed = bindings.clone();
                let row = &mut changed.inputs.get_mut(&place).expect("it is bound").data[3 * vertex..3 * vertex + 3];
                row.iter_mut().zip([0.5, -2.0, 3.0]).for_each(|(x, by)| *x += by);
                let after = output(&changed);
                let differs = |v: usize| before.row(v).iter().zip(after.row(v)).any(|(a, b)| a != b);
                assert!(
                    leaks || !differs(vertex),
                    "vertex {vertex} of world {} reads its own label\n{source}",
                    world.seed
                );
                own |= differs(vertex);
                any |= (0..world.count("Paper")).any(differs);
            }
        }
        if leaks {
            refused += 1;
            right += u64::from(own);
        } else {
            passed += 1;
            read += u64::from(any);
        }
    }
    assert!(
        20 * read > worlds(250) && 10 * right > 6 * refused,
        "{read} of {passed} read labels, {right} of {refused} their own"
    );
}
