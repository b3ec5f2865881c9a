//! Molecules: many small graphs, each with a label that its structure decides.
//!
//! A molecule is a random tree of atoms, and some have one more bond, which closes a ring. An atom knows its element and
//! nothing else. A molecule is active if an atom of the second element is bound to one of the third: a message along a
//! bond tells, and counts of elements do not. A tenth of the molecules has the other label, which bounds the accuracy.

use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::{Shape, SynthError, Writer};

const MOLECULES: usize = 1200;
/// Number of elements, and the shares of their atoms.
const ELEMENTS: [f64; 4] = [0.55, 0.17, 0.17, 0.11];
/// Least and most atoms of a molecule.
const ATOMS: (usize, usize) = (6, 24);
/// Share of the molecules with a ring.
const RINGS: f64 = 0.5;
/// Share of the molecules with the wrong label.
const NOISE: f64 = 0.1;
/// Number of training and validation molecules; the others are for the test.
const SPLIT: [usize; 2] = [800, 200];

pub(super) fn write(out: &mut Writer<'_>, generator: &str, mut rng: ChaCha8Rng) -> Result<(), SynthError> {
    let shape = Shape::Molecules;
    out.line(format_args!("format = 1\nname = \"{shape}\"\ntitle = \"synthetic molecules, many small graphs\""));
    out.line(format_args!("task = \"graph-classification\"\ngenerator = \"{generator}\"\nlabel_noise = {NOISE:?}"));
    let (mut elements, mut molecule_of, mut bonds, mut active) = (vec![], vec![], vec![], vec![]);
    for molecule in 0..MOLECULES {
        let first = elements.len();
        let count = rng.random_range(ATOMS.0..=ATOMS.1);
        elements.extend((0..count).map(|_| element(&mut rng)));
        molecule_of.extend(std::iter::repeat_n(molecule as i32, count));
        let mut own: Vec<(usize, usize)> =
            (1..count).map(|atom| (first + rng.random_range(0..atom), first + atom)).collect();
        if rng.random::<f64>() < RINGS {
            let (a, b) = (first + rng.random_range(0..count), first + rng.random_range(0..count));
            let ring = (a.min(b), a.max(b));
            if ring.0 != ring.1 && !own.contains(&ring) {
                own.push(ring);
            }
        }
        let joins = |&(a, b): &(usize, usize)| matches!((elements[a], elements[b]), (1, 2) | (2, 1));
        let is_wrong = rng.random::<f64>() < NOISE;
        active.push(i32::from(own.iter().any(joins) != is_wrong));
        // Both directions, for messages go both ways.
        bonds.extend(own.iter().flat_map(|&(a, b)| [(a, b), (b, a)]));
    }
    bonds.sort_unstable();
    let atoms = elements.len();
    let mut x = vec![0.0f32; atoms * ELEMENTS.len()];
    for (atom, &element) in elements.iter().enumerate() {
        x[atom * ELEMENTS.len() + element] = 1.0;
    }
    out.line(format_args!(
        "\n[[vertex_type]]\nname = \"atom\"\ncount = {atoms}\nfeatures = {{ kind = \"dense\", dim = {}, file = \"atom.x.npy\" }}",
        ELEMENTS.len()
    ));
    out.npy("atom.x.npy", &[atoms, ELEMENTS.len()], &x)?;
    out.line(format_args!("\n[[vertex_type]]\nname = \"molecule\"\ncount = {MOLECULES}"));
    let bonds: Vec<i32> = bonds.iter().map(|b| b.0 as i32).chain(bonds.iter().map(|b| b.1 as i32)).collect();
    let part_of: Vec<i32> = (0..atoms as i32).chain(molecule_of).collect();
    for (name, dst, ends) in [("bond", "atom", &bonds), ("part-of", "molecule", &part_of)] {
        let edges = ends.len() / 2;
        out.line(format_args!(
            "\n[[relation]]\nname = \"{name}\"\nsrc = \"atom\"\ndst = \"{dst}\"\nedges = {edges}\nfile = \"{name}.npy\""
        ));
        out.npy(&format!("{name}.npy"), &[2, edges], ends)?;
    }
    out.line(format_args!(
        "\n[[label]]\nvertex_type = \"molecule\"\nname = \"active\"\nclasses = 2\nfile = \"active.npy\"\nclass_names = [\"inactive\", \
         \"active\"]"
    ));
    out.npy("active.npy", &[MOLECULES], &active)?;
    let mut order: Vec<i32> = (0..MOLECULES as i32).collect();
    order.shuffle(&mut rng);
    let test = order.split_off(SPLIT[0] + SPLIT[1]);
    let val = order.split_off(SPLIT[0]);
    out.split("molecule", "standard", [order, val, test])
}

/// An element, by its share.
fn element(rng: &mut ChaCha8Rng) -> usize {
    let mut at = rng.random::<f64>();
    for (element, share) in ELEMENTS.iter().enumerate() {
        at -= share;
        if at < 0.0 {
            return element;
        }
    }
    0
}
