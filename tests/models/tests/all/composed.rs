//! Layers of statements: their uses are what their statements are in a model.

use hgnnc_model_tests::{Compiled, compile};

use crate::language::{SCHEMA, worlds};

const LAYERS: &str = "
layer Mean(hidden: dim) over graphs: [V -> V] of x: V[in] -> V[hidden], alpha: graphs {
    project v: V { param w: [in, hidden] h = v.x @ w }
    aggregate e: g in graphs {
        param a: [hidden]
        alpha = softmax(dot(e.src.h, a)) over in_edges
        z = sum(alpha * e.src.h) over in_edges
    }
    fuse v: V across graphs { out = sum(v.z) across graphs + v.h }
}
layer Residual(rate = 0.2) over graphs: [V -> V] of x: V[in] -> V[in], alpha: graphs {
    param scale: [in] = ones
    let conv = Mean(hidden: in) over graphs of layer_norm(x)
    alpha = conv.alpha
    out = x * scale + dropout(tanh(conv), rate)
}
layer Deep(hidden: dim, layers: dim) over graphs: [V -> V] of x: V[in] -> V[hidden] {
    let h = linear(x, hidden)
    repeat layers { h = Residual() over graphs of h }
    out = h
}";

/// `h` is a value of `A` of width 3.
fn model(body: &str) -> Compiled {
    compile(&format!(
        "{SCHEMA}\n{LAYERS}\nmodel M(schema: S) {{\n{body}\noutput y: A = linear(h, 2) }}\n\
         train M {{ loss cross_entropy(y, A.topic) optimizer sgd(lr: 0.1) epochs 1 }}"
    ))
}

/// The text of the program of a training step, without the names of parameters.
fn program(compiled: &Compiled) -> String {
    let mut flow = compiled.training().clone();
    for (position, param) in flow.params.iter_mut().enumerate() {
        param.name = format!("p{position}");
    }
    flow.to_string()
}

#[test]
fn statements_are_those_of_a_model() {
    let composed = model("let h = Deep(hidden: 3, layers: 2) over [s, ABA] of A.x");
    let written = model(
        "let first = linear(A.x, 3)
         param scale: [3] = ones
         let a = Mean(hidden: 3) over [s, ABA] of layer_norm(first)
         let second = first * scale + dropout(tanh(a), 0.2)
         param scale_2: [3] = ones
         let b = Mean(hidden: 3) over [s, ABA] of layer_norm(second)
         let h = second * scale_2 + dropout(tanh(b), 0.2)",
    );
    assert_eq!(program(&composed), program(&written));
}

/// The parameters of a statement are named for it, and for the statements of the layers that it uses.
#[test]
fn names_of_parameters() {
    let compiled =
        model("let h = Deep(hidden: 3, layers: 1) over [s] of A.x + Deep(hidden: 3, layers: 2) over [s] of A.x");
    let names: Vec<&str> = compiled.model.flow.params.iter().map(|param| param.name.as_str()).collect();
    let block = |path: &str| {
        let of_block = ["scale", "conv.scale", "conv.shift", "conv.w", "conv.a.s"];
        of_block.map(|name| format!("{path}.{name}"))
    };
    let linear = |path: &str| [format!("{path}.weight"), format!("{path}.bias")];
    let first = [&linear("h.h")[..], &block("h.h")].concat();
    let second = [&linear("h_2.h")[..], &block("h_2.h"), &block("h_2.h_2")].concat();
    assert_eq!(names, [first, second, linear("y").to_vec()].concat());
}

/// `sharing` gives a use all parameters of another, those of the layers that it uses as well.
#[test]
fn parameters_are_shared() {
    let shared = model(
        "let one = Deep(hidden: 3, layers: 2) over [s] of A.x
         let two = Deep(hidden: 3, layers: 2) over [s] of (-A.x) sharing one
         let h = one * two",
    );
    let alone = model("let h = Deep(hidden: 3, layers: 2) over [s] of A.x");
    assert_eq!(shared.model.flow.params.len(), alone.model.flow.params.len());
    for world in worlds() {
        crate::gradients::gradients_are_differences("shared", &shared.model.flow, &shared.bind(&world));
    }
}
