//! Many small graphs as vertices of a type: readouts against plain loops, and mini-batches of graphs.

use hgnnc_driver::LowerOptions;
use hgnnc_ir::training::{Fanout, MiniBatch};
use hgnnc_model_tests::compiled::{Compiled, compile};
use hgnnc_model_tests::engine::{self, bound_data};
use hgnnc_model_tests::plain::{Plain, Rows, add, dot, relu, softmax, times};
use hgnnc_model_tests::{World, assert_close};
use hgnnc_train::{TrainOptions, Trainer};

use crate::devices::run;

/// GIN on atoms, and all usual readouts to molecules side by side.
const MODEL: &str = "
use std::gin::GinConv
schema S {
    vertex Atom { x: f32[3] }
    vertex Molecule { active: class[3] }
    relation bond: Atom -> Atom
    relation part_of: Atom -> Molecule
}
layer Readout() over graphs: [U -> V] of x: U[in] -> V[4 * in] {
    aggregate e: g in graphs {
        param q: [in]
        total = sum(e.src.x) over in_edges
        average = mean(e.src.x) over in_edges
        largest = max(e.src.x) over in_edges
        chosen = sum(softmax(dot(e.src.x, q)) over in_edges * e.src.x) over in_edges
    }
    fuse v: V across graphs {
        let parts = concat(sum(v.total) across graphs, sum(v.average) across graphs)
        out = concat(parts, sum(v.largest) across graphs, sum(v.chosen) across graphs)
    }
}
model M(schema: S) {
    let h = GinConv(hidden: 4) over bond of Atom.x
    let r = Readout() over part_of of h
    output y: Molecule = linear(r, 3)
    output readouts: Molecule = r
}
train M {
    loss cross_entropy(y, Molecule.active)
    optimizer sgd(lr: 0.1, momentum: 0.9)
    epochs 4
    select train.loss
}
";

/// Molecules of three, one and four atoms, and one without any.
fn world() -> World {
    let bond = [(0, 1), (1, 0), (1, 2), (2, 1), (4, 5), (5, 4), (5, 6), (6, 5), (6, 7), (7, 6), (7, 4), (4, 7)];
    let part_of = [(0, 0), (1, 0), (2, 0), (3, 1), (4, 3), (5, 3), (6, 3), (7, 3)];
    World::new(5, &[("Atom", 8), ("Molecule", 4)], &[("bond", &bond), ("part_of", &part_of)])
}

#[test]
fn readouts_are_their_equations() {
    let compiled = compile(MODEL);
    let world = world();
    let p = Plain::of(&compiled, &world);
    let x = p.input("Atom.x");
    let hidden = |v: usize| {
        let own = times(1.0 + p.number("h.eps"), &x[v]);
        let around = p.edges("bond").into_iter().filter(|edge| edge.1 == v);
        around.fold(own, |sum, (from, _)| add(&sum, &x[from]))
    };
    let first = |v: usize| -> Vec<f64> {
        add(&p.param("h.w1").apply(&hidden(v)), p.vector("h.b1")).into_iter().map(relu).collect()
    };
    let h: Rows = p.linear("h.out", "", &(0..x.len()).map(first).collect());
    let readout = |molecule: usize| {
        let atoms: Vec<&Vec<f64>> =
            p.edges("part_of").into_iter().filter(|edge| edge.1 == molecule).map(|edge| &h[edge.0]).collect();
        let none = vec![0.0; 4];
        let total = atoms.iter().fold(none.clone(), |sum, atom| add(&sum, atom));
        let average = times(1.0 / atoms.len().max(1) as f64, &total);
        let larger = |a: Vec<f64>, b: &&Vec<f64>| a.iter().zip(b.iter()).map(|(a, b)| a.max(*b)).collect();
        let largest: Vec<f64> = match &atoms[..] {
            [] => none.clone(),
            [first, rest @ ..] => rest.iter().fold((*first).clone(), larger),
        };
        let q = p.vector("r.q.part_of");
        let scores: Vec<f64> = atoms.iter().map(|atom| dot(atom, q)).collect();
        let shares = if scores.is_empty() { vec![] } else { softmax(&scores) };
        let chosen = atoms.iter().zip(shares).fold(none, |sum, (atom, share)| add(&sum, &times(share, atom)));
        [total, average, largest, chosen].concat()
    };
    let expected: Rows = (0..4).map(readout).collect();
    assert_close("readouts", &compiled.output(&world, "readouts").data, &expected.concat(), 1e-10);
}

fn trainer(compiled: &Compiled, world: &World) -> Trainer {
    let data = bound_data(compiled.training(), &compiled.bind(world));
    let executable = compiled.lowered(world, LowerOptions::default());
    let options = TrainOptions { threads: 2, ..Default::default() };
    engine::trainer(executable, data, options).unwrap_or_else(|error| panic!("{error}"))
}

/// A batch has all atoms of its molecules and all their bonds: one of all molecules is the whole graph, and the losses of
/// small ones are those of their molecules, so that without steps in between they add up to the same.
#[test]
fn batches_of_graphs_are_these_graphs() {
    let on_batches = |source: &str, size: usize| {
        let mut compiled = compile(source);
        let graphs = compiled.model.flow.graphs.len();
        let training = &mut compiled.model.train.as_mut().expect("a train block").training;
        training.batch =
            Some(MiniBatch { size, all_of: None, fanouts: vec![vec![Fanout::All; graphs]; 2], reuse: None });
        compiled
    };
    let world = world();
    let mut whole = trainer(&compile(MODEL), &world);
    let expected = run(&mut whole).losses;
    let mut batched = trainer(&on_batches(MODEL, 100), &world);
    assert_close("losses", &run(&mut batched).losses, &expected, 1e-4);
    let params = |trainer: &mut Trainer| -> Vec<f64> {
        let params = trainer.params().expect("parameters");
        params.iter().flatten().map(|&x| f64::from(x)).collect()
    };
    assert_close("parameters", &params(&mut batched), &params(&mut whole), 1e-3);
    let still = MODEL.replace("lr: 0.1, momentum: 0.9", "lr: 0");
    let expected = run(&mut trainer(&compile(&still), &world)).losses;
    let found = run(&mut trainer(&on_batches(&still, 1), &world)).losses;
    assert_close("losses of single molecules", &found, &expected, 1e-5);
}
