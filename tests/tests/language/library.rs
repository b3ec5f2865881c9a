//! The standard library and the examples: right, without a warning, and formatted canonically.

use std::time::Instant;

use hgnnc_driver::diag::Severity;
use hgnnc_driver::{
    Disabled, Endpoints, LowerOptions, STDLIB, SizeInfo, analyze, codes, format, leave_precomputed, lower,
};
use hgnnc_machine::Machine;
use hgnnc_syntax::ast::{Item, Layer, LayerGraphs, ParamKind, RowsOf, ValueRows};
use hgnnc_tests::{check, sources};

#[test]
fn examples_are_right() {
    let mut slowest = (String::new(), std::time::Duration::ZERO);
    for (name, text) in sources(&["examples"]) {
        let start = Instant::now();
        let outcome = check(&name, &text);
        assert!(outcome.diagnostics.is_empty(), "{name}:\n{}", outcome.reports());
        assert!(outcome.analysis.model.is_some(), "{name} has a model");
        let start = (start, Instant::now());
        drop(analyze(&name, &text));
        let took = start.1.elapsed();
        if took > slowest.1 {
            slowest = (name, took);
        }
    }
    // Not an assertion: machines differ.
    println!("the slowest example to analyze is {}: {:?}", slowest.0, slowest.1);
}

/// Every layer of the library in a model of its own, with every optional argument left out.
#[test]
fn library_layers_are_right() {
    for (module, text) in STDLIB {
        let alone = analyze(&format!("stdlib/{module}.hgnn"), text);
        let codes_found: Vec<_> = alone.diagnostics.iter().map(|d| d.code).collect();
        for code in &codes_found {
            // A library is no model, and so uses none of its layers.
            assert!([codes::NO_MODEL, codes::UNUSED_DECLARATION].contains(code), "{module}: {code}");
        }
        let layers = alone.module.items.iter().filter_map(|item| match item {
            Item::Layer(layer) => Some(layer),
            _ => None,
        });
        for layer in layers {
            let file = model_of(module, layer);
            let outcome = check("model.hgnn", &file);
            assert!(outcome.diagnostics.is_empty(), "{}\n{file}", outcome.reports());
        }
    }
}

/// Layers of models without a mistake have none without the models: their widths and arguments are names then.
#[test]
fn layers_are_right_without_a_use() {
    let mut layers = 0;
    let all = sources(&["examples", "tests/cases/language", "tests/bench"]);
    // A case of several files cannot be cut to its layers.
    for (name, text) in all.into_iter().filter(|(_, text)| !text.contains("\n//--- ")) {
        let mut module = analyze(&name, &text).module;
        module.items.retain(|item| matches!(item, Item::Use(_) | Item::Const(_) | Item::Layer(_)));
        layers += module.items.iter().filter(|item| matches!(item, Item::Layer(_))).count();
        let alone = check(&name, &format(&module, &text));
        let mut errors = alone.diagnostics.iter().filter(|report| report.severity() == Severity::Error);
        assert!(errors.all(|report| report.code == codes::NO_MODEL), "{}", alone.reports());
    }
    assert!(layers >= 10, "{layers} layers are declared beside models");
}

fn model_of(module: &str, layer: &Layer) -> String {
    let name = &layer.name.name;
    let arguments: Vec<String> = (layer.params.iter())
        .filter(|param| param.default.is_none())
        .map(|param| match param.kind {
            Some(ParamKind::Dim) => format!("{}: 2", param.name.name),
            other => panic!("{name} has an argument of kind {other:?} without a default"),
        })
        .collect();
    let arguments = arguments.join(", ");
    let one_type = matches!(layer.over, Some(LayerGraphs { ends: Some(_), .. }));
    let (over, input, select) = if one_type {
        ("[cites, reverse(cites)]", "Paper.x", "")
    } else {
        ("[relations, reverse(writes)]", "features", ".Paper")
    };
    // Edges read rows of their sources for the reverses of their semantic graphs.
    let by_graph = |rows: &ValueRows| matches!(rows, ValueRows::OfEachGraph(_));
    let of_results = layer.results.iter().any(|result| by_graph(&result.rows));
    let over = match of_results || layer.inputs.iter().any(|input| by_graph(&input.rows)) {
        true => "[relations, reverses]",
        false => over,
    };
    // A recurrence takes a step for each in-edge.
    let limited = over.to_owned() + " at most 3 per vertex";
    let over = if ["HetGnnConv", "SageLstmConv"].contains(&name.as_str()) { &limited } else { over };
    let select = if !layer.results[0].is_unnamed() && layer.results.len() > 1 {
        format!(".{}{select}", layer.results[0].name.name)
    } else {
        select.into()
    };
    // A layer that scores pairs runs over links, and its inputs may be several.
    let family = layer.over.as_ref().map(|over| over.name.name.as_str());
    let of_pairs =
        matches!(&layer.results[0].rows, ValueRows::Of(RowsOf::Name(rows)) if Some(rows.name.as_str()) == family);
    let (over, output) = match of_pairs {
        // One that gives several numbers runs over edges to predict.
        true if !layer.results[0].dims.is_empty() => ("edges(relations)".to_owned(), "y: edges(cites) = h".to_owned()),
        true => (
            format!("links({})", over.replace("[relations, reverse(writes)]", "relations")),
            "score: links = h".to_owned(),
        ),
        false if of_results => {
            let rows = if layer.results.len() > 1 { ".rows" } else { "" };
            (over.to_owned(), format!("logits: Paper = linear((Total() over {over} of h{rows}).Paper, 3)"))
        }
        false if layer.results[0].rows == ValueRows::PerGraph => (over.to_owned(), "weights: graphs = h".to_owned()),
        false if layer.results[0].dims.is_empty() => {
            (over.to_owned(), format!("logits: Paper = linear(reshape(h{select}, [1]), 3)"))
        }
        false => (over.to_owned(), format!("logits: Paper = linear(h{select}, 3)")),
    };
    // Rows of semantic graphs come from a layer as well.
    let vectors = format!("Vectors() over {}", over.trim_start_matches("links(").trim_end_matches(')'));
    let rows = format!("Rows() over {over}");
    // An input of single numbers takes times.
    let given = |name: &str, of: &ValueRows, dims: usize| match of {
        ValueRows::PerGraph => vectors.clone(),
        ValueRows::OfEachGraph(_) => rows.clone(),
        // Two channels of features with their degrees.
        ValueRows::Of(_) if name == "paths" => "concat(features, features, ones([2]))".to_owned(),
        ValueRows::Of(_) if dims == 0 => "{Paper.year, Author.since}".to_owned(),
        ValueRows::Of(_) => input.to_owned(),
    };
    let inputs: Vec<String> = (layer.inputs.iter().filter(|own| !own.optional))
        .map(|own| format!("{}: {}", own.name.name, given(&own.name.name, &own.rows, own.dims.len())))
        .collect();
    let of = match &inputs[..] {
        [] => String::new(),
        [_] => format!(" of {}", inputs[0].split_once(": ").expect("a name and a value").1),
        _ => format!(" of ({})", inputs.join(", ")),
    };
    let mut declared = String::new();
    if inputs.iter().any(|input| input.ends_with(&vectors)) {
        declared += "layer Vectors() over graphs: [*] -> r: per graph[6] {
    aggregate e: g in graphs {
        param vector: [6]
        r = vector
    }
}
";
    }
    if inputs.iter().any(|input| input.ends_with(&rows)) {
        declared += "layer Rows() over graphs: [*] -> rows: *[6] per graph {
    aggregate e: g in graphs {
        rows = mean(e.src.out_degree * ones([6])) over in_edges
    }
}
";
    }
    if of_results {
        declared += "layer Total() over graphs: [*] of x: *[in] per graph -> *[in] {
    fuse v: * across graphs {
        out = sum(v.x) across graphs
    }
}
";
    }
    let over = if layer.over.is_some() { format!(" over {over}") } else { String::new() };
    let other_type = "\n    vertex Author { x: f32[6], since: time }\n    relation writes: Author -> Paper";
    let other_type = if one_type { "" } else { other_type };
    let relations = match layer.over {
        Some(_) => format!("\n    relation cites: Paper -> Paper{other_type}"),
        None => String::new(),
    };
    format!(
        "use std::{module}::{name}

{declared}
schema S {{
    vertex Paper {{ x: f32[6], year: time, topic: class[3] }}{relations}
}}

model M(schema: S) {{
    let h = {name}({arguments}){over}{of}
    output {output}
}}
"
    )
}

#[test]
fn files_are_formatted() {
    for (name, text) in sources(&["examples", "stdlib"]) {
        let module = analyze(&name, &text).module;
        let formatted = format(&module, &text);
        assert!(formatted == text, "{name} is not formatted as `hgnnc fmt` would:\n{formatted}");
    }
}

/// Sizes may be those of data that no memory holds: numbers that are compared with each other then are the largest that
/// there are, and nothing overflows.
#[test]
fn examples_are_lowered_for_sizes_beyond_all_memory() {
    for (name, text) in sources(&["examples"]) {
        let analysis = analyze(&name, &text);
        let mut model = analysis.model.unwrap_or_else(|| panic!("{name} has a model"));
        leave_precomputed(&mut model, &Disabled::default());
        let flow = &model.flow;
        for (size, with_ends) in [(1 << 40, false), (u64::MAX, true)] {
            let of = |count: usize| vec![size; count];
            let ends = Endpoints { sources: size, destinations: size, max_out: size, max_in: size };
            let sizes = SizeInfo {
                vertices: of(flow.vertex_types.len()),
                edges: of(flow.graphs.len()),
                ends: if with_ends { vec![ends; flow.graphs.len()] } else { vec![] },
                stored: of(flow.patterns.len()),
                columns: of(flow.patterns.len()),
            };
            let machine = Machine::sheet("sm_80");
            let options = LowerOptions { sizes: Some(sizes), machine, ..LowerOptions::default() };
            let lowered = lower(&model, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(lowered.arena.is_some(), "{name}");
        }
    }
}
