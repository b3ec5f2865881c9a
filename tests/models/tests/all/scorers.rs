//! Scores of pairs against their papers' equations, as values of edges to predict, on all engines.

use hgnnc_model_tests::assert_close;
use hgnnc_model_tests::compiled::compile;
use hgnnc_model_tests::plain::{Plain, Rows, add, dot, relu};

use crate::devices::{on_device, on_processor, options, run};
use crate::differential::{engine_agrees, kernels_agree};
use crate::edges::world;
use crate::gradients::gradients_are_differences;

/// Scores of ratings, whose ends have rows of `width` elements, from given vectors of the relations.
fn source(uses: &str, width: usize, score: &str) -> String {
    format!(
        r#"
use std::compgcn::RelationVectors
use std::link::{uses}
schema S {{
    vertex User {{ x: f32[3] }}
    vertex Movie {{ x: f32[4] }}
    relation rates: User -> Movie {{ mood: class[3] from "mood" }}
    relation trusts: User -> User
}}
model M(schema: S) {{
    let r = RelationVectors(width: {width}) over [rates, trusts]
    let h = tanh(linear(features, {width}))
    let b = linear(features, 1)
    let s = {score}
    output score: edges(rates) = s
    output y: edges(rates) = linear(reshape(s, [1]), 3)
}}
train M {{
    loss cross_entropy(y, rates.mood)
    optimizer sgd(lr: 0.1, momentum: 0.9)
    epochs 4
    select train.loss
}}"#
    )
}

/// Dettmers et al. 2018, eq. 1, of an image with `rows` rows of x above `rows` rows of r, with kernels of `kernel` × `kernel`.
fn conv_e(p: &Plain<'_>, (rows, filters, kernel): (usize, usize, usize), x: &[f64], y: &[f64]) -> f64 {
    let image = [x, p.vector("r.vector.rates")].concat();
    let (height, width) = (2 * rows, x.len() / rows);
    let (w, c) = (p.param("s.w"), p.vector("s.c"));
    let mut maps = vec![];
    for (filter, bias) in c.iter().enumerate().take(filters) {
        for top in 0..=height - kernel {
            for left in 0..=width - kernel {
                let mut sum = *bias;
                for i in 0..kernel {
                    for j in 0..kernel {
                        sum += w.row(filter)[i * kernel + j] * image[(top + i) * width + left + j];
                    }
                }
                maps.push(relu(sum));
            }
        }
    }
    let hidden = add(&p.param("s.fc").apply(&maps), p.vector("s.d"));
    dot(&hidden.into_iter().map(relu).collect::<Vec<_>>(), y) + p.number("s.b.edges_rates")
}

/// Values by loops, gradients by differences; kernels and engine against the interpreter; the PTX interpreter against the
/// processor.
#[test]
fn conv_e_is_the_paper() {
    // Kernels as wide as the image, of another size, of one element; images of one column.
    for (width, rows, filters, kernel) in [(6, 2, 2, 3), (12, 3, 3, 2), (6, 2, 3, 1), (4, 4, 2, 1)] {
        for bias in [false, true] {
            let inputs = if bias { "(h, r: r, bias: b)" } else { "(h, r: r)" };
            let call =
                format!("ConvE(rows: {rows}, filters: {filters}, kernel: {kernel}) over edges(rates) of {inputs}");
            let source = source("ConvE", width, &call);
            let compiled = compile(&source);
            let world = world();
            let p = Plain::of(&compiled, &world);
            let of_type = |path: &str, v: &str| p.linear(path, &format!(".{v}"), &p.input(&format!("{v}.x")));
            let tanh = |rows: Rows| -> Rows { rows.iter().map(|row| row.iter().map(|x| x.tanh()).collect()).collect() };
            let (users, movies) = (tanh(of_type("h", "User")), tanh(of_type("h", "Movie")));
            let score = |&(src, dst): &(usize, usize)| {
                let own = if bias { of_type("b", "Movie")[dst][0] } else { 0.0 };
                conv_e(&p, (rows, filters, kernel), &users[src], &movies[dst]) + own
            };
            let expected: Vec<f64> = p.edges("rates").iter().map(score).collect();
            assert_close(&call, &compiled.output(&world, "score").data, &expected, 1e-10);

            let bindings = compiled.bind(&world);
            gradients_are_differences(&call, &compiled.model.flow, &bindings);
            let optimised = compiled.optimised(&world);
            let train = optimised.train.as_ref().expect("a train block");
            for (program, oracle) in [(&optimised.infer, &compiled.infer), (train, compiled.training())] {
                engine_agrees(&call, program, oracle, &bindings);
                kernels_agree(&call, program, &bindings);
            }
            let expected = run(&mut on_processor(&compiled, &world, options(3)));
            let found = run(&mut on_device(&compiled, &world, options(3)));
            assert_close("losses on a device", &found.losses, &expected.losses, 2e-4);
        }
    }
}
