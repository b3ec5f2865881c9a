//! Synthetic datasets: they load, have the sizes of their shapes, and hide communities that a graph model can find.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use hgnnc_dataset::{Dataset, Features, LabelValues};
use hgnnc_graph::{DatasetInfo, MetapathOptions, RelationOptions, SemanticGraph, SemanticGraphs};
use hgnnc_synth::{Outcome, Shape, SynthError, generate};

fn made(shape: Shape, dir: &Path) -> Dataset {
    let target = dir.join(shape.name());
    assert_eq!(generate(shape, 0, &target).unwrap(), Outcome::Written);
    Dataset::load(&target).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn sizes_are_those_of_the_real_datasets() {
    let dir = tempfile::tempdir().unwrap();
    // Edges per relation, then (fewest, most pairs) per metapath: within a third of the real ones, DBLP as published.
    type Sizes = (Shape, usize, &'static [(&'static str, u64, u64)]);
    let expected: [Sizes; 6] = [
        (
            Shape::Acm,
            9936 + 3025,
            &[("PAP", 20_000, 40_000), ("PSP", 1_500_000, 2_900_000), ("APSPA", 6_500_000, 13_000_000)],
        ),
        (Shape::AcmHan, 29281 + 3025, &[("PAP", 29281, 29281), ("PSP", 1_500_000, 2_900_000)]),
        (Shape::Imdb, 4278 + 12828, &[("MDM", 11_000, 23_000), ("MAM", 57_000, 114_000)]),
        (
            Shape::Dblp,
            19645 + 14328 + 85810,
            &[("APA", 10_000, 17_000), ("APVPA", 4_000_000, 6_000_000), ("APTPA", 5_600_000, 8_400_000)],
        ),
        (Shape::Cora, 10556, &[("PP", 10556, 10556), ("PPP", 60_000, 130_000)]),
        (Shape::Aifb, 29043, &[]),
    ];
    let mut wrong = Vec::new();
    for (shape, edges, paths) in expected {
        let start = std::time::Instant::now();
        let dataset = made(shape, dir.path());
        println!("{shape}: {} ms", start.elapsed().as_millis());
        assert_eq!(dataset.name, shape.name());
        assert_eq!(dataset.num_edges(), edges, "{shape}");
        let info = DatasetInfo::new(&dataset).unwrap();
        println!("{info}");
        for (path, &(name, least, most)) in paths.iter().map(|p| (info.metapaths.iter().find(|m| m.name == p.0), p)) {
            let pairs = path.unwrap().pairs;
            assert_eq!(dataset.metapath(name).unwrap().pairs, Some(pairs), "{shape} {name}: written and measured");
            if !(least..=most).contains(&pairs) {
                wrong.push(format!("{shape} {name}: {pairs} pairs, not {least} to {most}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_same_seed_gives_the_same_files() {
    let dir = tempfile::tempdir().unwrap();
    let read = |name: &str, seed: u64| {
        let target = dir.path().join(name);
        generate(Shape::Cora, seed, &target).unwrap();
        let mut files: Vec<_> = std::fs::read_dir(&target).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        files.iter().map(|f| (f.file_name().unwrap().to_owned(), std::fs::read(f).unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(read("a", 1), read("b", 1));
    assert_ne!(read("a", 1), read("c", 2));
}

#[test]
fn a_target_is_kept_replaced_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("deep/er/cora");
    assert_eq!(generate(Shape::Cora, 0, &target).unwrap(), Outcome::Written);
    assert_eq!(generate(Shape::Cora, 0, &target).unwrap(), Outcome::Kept);
    assert_eq!(generate(Shape::Cora, 1, &target).unwrap(), Outcome::Written);
    // An incomplete dataset is generated again.
    std::fs::remove_file(target.join("cites.npy")).unwrap();
    assert_eq!(generate(Shape::Cora, 1, &target).unwrap(), Outcome::Written);
    Dataset::load(&target).unwrap();
    // An empty folder may be replaced; a folder with other contents may not.
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert_eq!(generate(Shape::Cora, 0, &empty).unwrap(), Outcome::Written);
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("thesis.tex"), "precious").unwrap();
    assert!(matches!(generate(Shape::Cora, 0, &other), Err(SynthError::Occupied(_))));
    assert!(other.join("thesis.tex").exists());
    let inside_file = other.join("thesis.tex/cora");
    assert!(matches!(generate(Shape::Cora, 0, &inside_file), Err(SynthError::Io { .. })));
    // No temporary folders remain beside the targets.
    let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["deep", "empty", "other"]);
    assert!("acmm".parse::<Shape>().unwrap_err().to_string().contains("there is acm, acm_han"));
}

/// Multinomial logistic regression on `Σ_g mean_g(x) W_g`, over the vertex's own row and the mean over its
/// in-neighbours in each graph; needs no training machinery.
struct Regression<'a> {
    dataset: &'a Dataset,
    /// For each block: rows of the target vertices over input columns, as (column, value) lists.
    graphs: Vec<Option<SemanticGraph>>,
}

impl Regression<'_> {
    /// Test accuracy, in per cent.
    fn accuracy(&self) -> f64 {
        let ds = self.dataset;
        let LabelValues::Single { classes, of } = &ds.labels[0].values else { panic!("single labels") };
        let (k, n, split) = (*classes, of.len(), &ds.splits[0]);
        // Input rows: the features, or one-hot ids for a type without features.
        let rows: Vec<Vec<u32>> = match &ds.vertex_types[ds.labels[0].vertex_type].features {
            Some(Features::Sparse(x)) => (0..n).map(|v| x.row(v).0.to_vec()).collect(),
            _ => (0..n as u32).map(|v| vec![v]).collect(),
        };
        let dim = rows.iter().flatten().max().map_or(0, |&c| c as usize + 1);
        let value = |v: usize| 1.0 / (rows[v].len().max(1) as f32).sqrt();
        let blocks = self.graphs.len();
        let mut w = vec![0f32; blocks * dim * k];
        let (mut m1, mut m2) = (vec![0f32; w.len()], vec![0f32; w.len()]);
        let mut logits = vec![0f32; n * k];
        for step in 1..=60i32 {
            logits.fill(0.0);
            let mut errors = vec![0f32; n * k];
            for (b, graph) in self.graphs.iter().enumerate() {
                let w = &w[b * dim * k..(b + 1) * dim * k];
                let mut xw = vec![0f32; n * k];
                for v in 0..n {
                    for &c in &rows[v] {
                        for j in 0..k {
                            xw[v * k + j] += value(v) * w[c as usize * k + j];
                        }
                    }
                }
                for v in 0..n {
                    let own = [v as u32];
                    let from = graph.as_ref().map_or(&own[..], |g| g.in_neighbors(v));
                    for &u in from {
                        for j in 0..k {
                            logits[v * k + j] += xw[u as usize * k + j] / from.len() as f32;
                        }
                    }
                }
            }
            for &v in &split.train {
                let v = v as usize;
                let row = &logits[v * k..][..k];
                let max = row.iter().fold(f32::MIN, |a, &b| a.max(b));
                let sum: f32 = row.iter().map(|l| (l - max).exp()).sum();
                for j in 0..k {
                    let p = (row[j] - max).exp() / sum;
                    errors[v * k + j] = (p - f32::from(of[v] as usize == j)) / split.train.len() as f32;
                }
            }
            let mut grad = vec![0f32; w.len()];
            for (b, graph) in self.graphs.iter().enumerate() {
                let grad = &mut grad[b * dim * k..(b + 1) * dim * k];
                let mut back = vec![0f32; n * k];
                for &v in &split.train {
                    let own = [v];
                    let from = graph.as_ref().map_or(&own[..], |g| g.in_neighbors(v as usize));
                    for &u in from {
                        for j in 0..k {
                            back[u as usize * k + j] += errors[v as usize * k + j] / from.len() as f32;
                        }
                    }
                }
                for v in 0..n {
                    for &c in &rows[v] {
                        for j in 0..k {
                            grad[c as usize * k + j] += value(v) * back[v * k + j];
                        }
                    }
                }
            }
            // Adam with weight decay.
            let (c1, c2) = (1.0 - 0.9f32.powi(step), 1.0 - 0.99f32.powi(step));
            for i in 0..w.len() {
                let g = grad[i] + 5e-4 * w[i];
                m1[i] = 0.9 * m1[i] + 0.1 * g;
                m2[i] = 0.99 * m2[i] + 0.01 * g * g;
                w[i] -= 0.05 * (m1[i] / c1) / ((m2[i] / c2).sqrt() + 1e-8);
            }
        }
        let right = |v: &&u32| {
            let row = &logits[**v as usize * k..][..k];
            let best = (0..k).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
            best as i32 == of[**v as usize]
        };
        100.0 * split.test.iter().filter(right).count() as f64 / split.test.len() as f64
    }
}

#[test]
fn neighbours_tell_more_than_features_and_not_everything() {
    let dir = tempfile::tempdir().unwrap();
    // Bounds on the accuracy in per cent: own features alone, and with the means over the named metapaths.
    let expected = [
        (Shape::Acm, &["PAP", "PSP"][..], 66.0..82.0, 86.0..95.0),
        (Shape::AcmHan, &["PAP", "PSP"], 66.0..82.0, 86.0..95.0),
        (Shape::Imdb, &["MDM", "MAM"], 60.0..80.0, 80.0..95.0),
        (Shape::Dblp, &["APA", "APVPA", "APTPA"], 65.0..82.0, 86.0..96.0),
        (Shape::Cora, &["PP", "PPP"], 45.0..70.0, 76.0..92.0),
    ];
    let mut wrong = Vec::new();
    for (shape, paths, alone, together) in expected {
        let dataset = made(shape, dir.path());
        let graphs = SemanticGraphs::new(&dataset);
        let own = Regression { dataset: &dataset, graphs: vec![None] }.accuracy();
        let graph = |name: &&str| {
            let path = dataset.metapath(name).unwrap();
            Some(graphs.metapath(name, &path.steps, MetapathOptions::default()).unwrap())
        };
        let all = std::iter::once(None).chain(paths.iter().map(graph)).collect();
        let both = Regression { dataset: &dataset, graphs: all }.accuracy();
        println!("{shape}: {own:.1} % from features, {both:.1} % with neighbours");
        if !alone.contains(&own) || !together.contains(&both) {
            wrong.push(format!("{shape}: {own:.1} % not in {alone:?} or {both:.1} % not in {together:?}"));
        }
    }
    // AIFB has no features: ids of the neighbours by relation and direction.
    let dataset = made(Shape::Aifb, dir.path());
    let graphs = SemanticGraphs::new(&dataset);
    let all = (0..dataset.relations.len())
        .flat_map(|r| [false, true].map(|reverse| RelationOptions { reverse, ..Default::default() }).map(|o| (r, o)))
        .map(|(r, options)| Some(graphs.relation(r, options).unwrap()))
        .collect();
    let accuracy = Regression { dataset: &dataset, graphs: all }.accuracy();
    println!("aifb: {accuracy:.1} % from neighbours");
    if !(80.0..100.1).contains(&accuracy) {
        wrong.push(format!("aifb: {accuracy:.1} %"));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// No edge joins two molecules, and the label says whether elements 1 and 2 are bound to each other, but for the noise.
#[test]
fn molecules_have_their_label_from_their_structure() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = made(Shape::Molecules, dir.path());
    let [bond, part_of] = &dataset.relations[..] else { panic!("two relations") };
    let Some(Features::Dense(x)) = &dataset.vertex_types[0].features else { panic!("dense features") };
    let element = |atom: u32| x.row(atom as usize).iter().position(|&is_it| is_it == 1.0).unwrap();
    let molecule = |atom: u32| part_of.dst_ids[atom as usize];
    assert!(
        part_of.src_ids.iter().copied().eq(0..dataset.vertex_types[0].count as u32),
        "each atom is in one molecule"
    );
    let mut bound = vec![false; dataset.vertex_types[1].count];
    for (&a, &b) in bond.src_ids.iter().zip(&bond.dst_ids) {
        assert_eq!(molecule(a), molecule(b));
        bound[molecule(a) as usize] |= (element(a), element(b)) == (1, 2);
    }
    let LabelValues::Single { of, .. } = &dataset.labels[0].values else { panic!("classes") };
    let right = of.iter().zip(&bound).filter(|(class, bound)| (**class == 1) == **bound).count() as f64;
    let active = of.iter().filter(|class| **class == 1).count() as f64;
    let all = of.len() as f64;
    assert!((0.87..0.93).contains(&(right / all)) && (0.35..0.65).contains(&(active / all)), "{right} {active} {all}");
}

/// Recent references are of the topic of a paper, classics of another one, and nothing is cited before it is written.
#[test]
fn citations_have_their_topic_from_recent_references() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = made(Shape::Citations, dir.path());
    let [paper, author] = &dataset.vertex_types[..] else { panic!("two vertex types") };
    let (year, since) = (paper.time.as_ref().unwrap(), author.time.as_ref().unwrap());
    let [cites, writes] = &dataset.relations[..] else { panic!("two relations") };
    let LabelValues::Single { of, .. } = &dataset.labels[0].values else { panic!("classes") };
    let (mut same, mut all) = ([0.0; 2], [0.0; 2]);
    for ((&src, &dst), &time) in cites.src_ids.iter().zip(&cites.dst_ids).zip(cites.time.as_ref().unwrap()) {
        let age = year[src as usize] - year[dst as usize];
        assert!(time == year[src as usize] && (1..=3).contains(&age) || age > 8, "{age}");
        let kind = usize::from(age > 8);
        all[kind] += 1.0;
        same[kind] += f64::from(u8::from(of[src as usize] == of[dst as usize]));
    }
    assert!(same[0] / all[0] > 0.85 && same[1] / all[1] < 0.1, "{same:?} of {all:?}");
    assert!(all[1] / all[0] > 0.5, "there are classics: {all:?}");
    for (&author, &paper) in writes.src_ids.iter().zip(&writes.dst_ids) {
        assert!(since[author as usize] <= year[paper as usize]);
    }
    let split = &dataset.splits[0];
    let years = |ids: &[u32]| {
        let years = ids.iter().map(|&paper| year[paper as usize]);
        (years.clone().min().unwrap(), years.max().unwrap())
    };
    assert!(years(&split.train).1 < years(&split.val).0 && years(&split.val).1 < years(&split.test).0);
}

/// The genre of a play is mostly that of the same user a week before, and seldom that of ten weeks before; parts follow each other.
#[test]
fn plays_are_like_recent_ones_of_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = made(Shape::Plays, dir.path());
    let [plays] = &dataset.relations[..] else { panic!("one relation") };
    let days = plays.time.as_ref().unwrap();
    let mut of_week: HashMap<(u32, i64), Vec<u32>> = HashMap::new();
    for ((&user, &artist), &day) in plays.src_ids.iter().zip(&plays.dst_ids).zip(days) {
        of_week.entry((user, day / 7)).or_default().push(artist % 8);
    }
    let alike = |weeks: i64| {
        let (mut same, mut all) = (0, 0);
        for ((user, week), genres) in &of_week {
            for before in of_week.get(&(*user, week - weeks)).into_iter().flatten() {
                same += genres.iter().filter(|genre| *genre == before).count();
                all += genres.len();
            }
        }
        f64::from(same as u32) / f64::from(all as u32)
    };
    assert!(alike(1) > 0.5 && alike(10) < 0.3, "{} and {}", alike(1), alike(10));
    let [val, test] = [&dataset.link_splits[0].val, &dataset.link_splits[0].test].map(|of| of.time.as_ref().unwrap());
    let last = |days: &[i64]| days.iter().copied().max();
    assert!(last(days) < val.iter().copied().min() && last(val) < test.iter().copied().min());
    let pairs: HashSet<(u32, u32)> = plays.src_ids.iter().copied().zip(plays.dst_ids.iter().copied()).collect();
    assert!(pairs.len() < plays.src_ids.len(), "pairs come again");
}

/// Links of a relation that holds in both directions have their reverse among the training links, mostly; no link is in two parts.
#[test]
fn links_of_wn18rr_are_known_the_other_way_round() {
    knows_links_the_other_way_round(
        Shape::Wn18rr,
        (11, 86_835, [3034, 3134]),
        ["_derivationally_related_form", "_hypernym"],
    );
}

#[test]
fn links_of_fb15k237_are_known_the_other_way_round() {
    let both_ways = "/base/popstra/celebrity/dated./base/popstra/dated/participant";
    knows_links_the_other_way_round(
        Shape::Fb15k237,
        (237, 272_115, [17_535, 20_466]),
        [both_ways, "/people/person/profession"],
    );
}

/// Has so many relations, training links, and links of the other parts; those of the first relation named hold both
/// ways, of the second do not.
fn knows_links_the_other_way_round(shape: Shape, sizes: (usize, usize, [usize; 2]), [both_ways, one_way]: [&str; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let dataset = made(shape, dir.path());
    let names: Vec<&str> = dataset.relations.iter().map(|relation| &relation.name[..]).collect();
    assert_eq!((names.len(), dataset.num_edges()), (sizes.0, sizes.1));
    let known: Vec<HashSet<(u32, u32)>> = dataset
        .relations
        .iter()
        .map(|relation| relation.src_ids.iter().copied().zip(relation.dst_ids.iter().copied()).collect())
        .collect();
    let [split] = &dataset.link_splits[..] else { panic!("one split") };
    assert_eq!([split.val.len(), split.test.len()], sizes.2);
    let links: Vec<(usize, (u32, u32))> = split
        .test
        .relation
        .iter()
        .zip(split.test.src.iter().zip(&split.test.dst))
        .map(|(&relation, (&src, &dst))| (relation as usize, (src, dst)))
        .collect();
    let share_reversed = |name: &str| {
        let relation = names.iter().position(|known| *known == name).unwrap();
        let of = links.iter().filter(|link| link.0 == relation);
        let reversed = of.clone().filter(|(_, (src, dst))| known[relation].contains(&(*dst, *src))).count();
        reversed as f64 / of.count() as f64
    };
    assert!(share_reversed(both_ways) > 0.7, "{}", share_reversed(both_ways));
    assert!(share_reversed(one_way) < 0.01);
    assert!(links.iter().all(|(relation, link)| !known[*relation].contains(link)));
}
