//! Knowledge graphs: entities and the relations between them, with links of all relations to predict.
//!
//! Links can be predicted for the same reasons as in the real datasets. Relations that hold in both directions (a verb
//! group, a spouse) hold a link and its reverse, and each is in a part of its own: the reverse of a test link is a training
//! link most of the time. The others stay within a topic, where few popular destinations have most of the links.

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::draw::{self, Pool};
use crate::{Link, Shape, SynthError, Writer};

/// Share of the edges drawn within one topic; the others join any entities.
const AFFINITY: f64 = 0.9;
/// Falls of the popularities of sources and destinations with their ranks.
const EXPONENTS: [f64; 2] = [0.2, 0.6];
/// Name of the split in the real datasets.
const SPLIT: &str = "standard";

/// Sizes of a knowledge graph.
pub(super) struct KnowledgeGraph {
    pub shape: Shape,
    pub entities: usize,
    /// Topics, each of about a hundred entities.
    pub topics: usize,
    /// A line for each relation: its name, the numbers of training, validation and test links, those of the sources and
    /// destinations, and whether nearly all of its links hold both ways.
    pub relations: &'static str,
}

pub(super) const WN18RR: KnowledgeGraph =
    KnowledgeGraph { shape: Shape::Wn18rr, entities: 40_943, topics: 400, relations: include_str!("wn18rr.tsv") };
pub(super) const FB15K237: KnowledgeGraph =
    KnowledgeGraph { shape: Shape::Fb15k237, entities: 14_541, topics: 145, relations: include_str!("fb15k237.tsv") };

struct RelationShape {
    name: &'static str,
    /// Training, validation and test links.
    links: [usize; 3],
    /// Entities that are sources, and those that are destinations: in the table of WN18RR of training links, in that of
    /// FB15k-237 of all. Of links that hold both ways, these are the same.
    ends: [usize; 2],
    both_ways: bool,
}

impl KnowledgeGraph {
    fn relations(&self) -> impl Iterator<Item = RelationShape> {
        self.relations.lines().map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let number = |column: usize| columns[column].parse().expect("the table has numbers");
            RelationShape {
                name: columns[0],
                links: [1, 2, 3].map(number),
                ends: [4, 5].map(number),
                both_ways: columns.get(6) == Some(&"both ways"),
            }
        })
    }
}

pub(super) fn write(
    out: &mut Writer<'_>,
    of: &KnowledgeGraph,
    generator: &str,
    mut rng: ChaCha8Rng,
) -> Result<(), SynthError> {
    let &KnowledgeGraph { shape, entities: num, topics, .. } = of;
    out.line(format_args!(
        "format = 1\nname = \"{shape}\"\ntitle = \"synthetic knowledge graph, the shape of {shape}\""
    ));
    out.line(format_args!("task = \"link-prediction\"\ngenerator = \"{generator}\""));
    out.line(format_args!("\n[[vertex_type]]\nname = \"entity\"\ncount = {num}"));
    let mut topic = vec![0; num];
    for (rank, &entity) in draw::shuffled(num, &mut rng).iter().enumerate() {
        topic[entity as usize] = rank % topics;
    }
    let (mut sources, mut destinations, mut held_out) = (vec![], vec![], [vec![], vec![]]);
    for (at, relation) in of.relations().enumerate() {
        let mut pool = |entities: usize, exponent: f64| {
            let mut ids = draw::shuffled(num, &mut rng);
            ids.truncate(entities);
            Pool::new(ids, exponent, &topic, topics)
        };
        let total: usize = relation.links.iter().sum();
        let mut links = if relation.both_ways {
            let pool = pool(relation.ends[0], EXPONENTS[0]);
            draw::symmetric(&pool, &topic, total.next_multiple_of(2), AFFINITY, &mut rng)
        } else {
            let [sources, destinations] = [0, 1].map(|end| pool(relation.ends[end], EXPONENTS[end]));
            draw::pairs(&sources, &destinations, (&topic, &topic), total, AFFINITY, &mut rng)
        };
        links.shuffle(&mut rng);
        for (part, size) in held_out.iter_mut().zip(&relation.links[1..]) {
            let chosen = links.split_off(links.len() - size);
            part.extend(chosen.into_iter().map(|(source, destination)| Link { source, relation: at, destination }));
        }
        links.truncate(relation.links[0]);
        links.sort_unstable();
        let begin = sources.len();
        for (source, destination) in links {
            sources.push(source as i32);
            destinations.push(destination as i32);
        }
        out.line(format_args!(
            "\n[[relation]]\nname = \"{}\"\nsrc = \"entity\"\ndst = \"entity\"\nedges = {}\nfile = \"edges.npy\"\n\
             columns = [{begin}, {}]",
            relation.name,
            sources.len() - begin,
            sources.len()
        ));
    }
    let edges = sources.len();
    sources.append(&mut destinations);
    out.npy("edges.npy", &[2, edges], &sources)?;
    let [val, test] = &mut held_out;
    val.sort_unstable();
    test.sort_unstable();
    out.link_split(SPLIT, [val, test])
}
