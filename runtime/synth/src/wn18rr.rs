//! WN18RR: groups of synonyms and the relations between them, with links of all relations to predict.
//!
//! Links can be predicted here for the same reasons as there. Relations that hold in both directions (a verb group, a derived form) hold a link
//! and its reverse, and each is in a part of its own: the reverse of a test link is a training link most of the time. The others stay
//! within a topic, where few popular destinations have most of the links.

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::draw::{self, Pool};
use crate::{Link, Shape, SynthError, Writer};

const ENTITIES: usize = 40_943;
/// Topics, each of a hundred entities.
const TOPICS: usize = 400;
/// Share of the edges drawn within one topic; the others join any entities.
const AFFINITY: f64 = 0.9;
/// Falls of the popularities of sources and destinations with their ranks.
const EXPONENTS: [f64; 2] = [0.2, 0.6];
/// Name of the split in the real dataset.
const SPLIT: &str = "standard";

struct RelationShape {
    name: &'static str,
    /// Training, validation and test links.
    links: [usize; 3],
    ends: Ends,
}

/// The number of entities at the ends of training links.
enum Ends {
    /// Entities that are sources, and those that are destinations, drawn apart.
    Apart(usize, usize),
    /// Entities that are both, of links of which nearly all have their reverse.
    Symmetric(usize),
}

const fn relation(name: &'static str, links: [usize; 3], ends: Ends) -> RelationShape {
    RelationShape { name, links, ends }
}

const RELATIONS: [RelationShape; 11] = [
    relation("_also_see", [1299, 41, 56], Ends::Symmetric(707)),
    relation("_derivationally_related_form", [29_715, 1078, 1074], Ends::Symmetric(16_102)),
    relation("_has_part", [4816, 154, 172], Ends::Apart(1978, 3990)),
    relation("_hypernym", [34_796, 1174, 1251], Ends::Apart(34_033, 9500)),
    relation("_instance_hypernym", [2921, 107, 122], Ends::Apart(2466, 404)),
    relation("_member_meronym", [7402, 273, 253], Ends::Apart(3095, 7340)),
    relation("_member_of_domain_region", [923, 34, 26], Ends::Apart(114, 873)),
    relation("_member_of_domain_usage", [629, 22, 24], Ends::Apart(25, 594)),
    relation("_similar_to", [80, 3, 3], Ends::Symmetric(77)),
    relation("_synset_domain_topic_of", [3116, 105, 114], Ends::Apart(2972, 309)),
    relation("_verb_group", [1138, 43, 39], Ends::Symmetric(978)),
];

pub(super) fn write(out: &mut Writer<'_>, generator: &str, mut rng: ChaCha8Rng) -> Result<(), SynthError> {
    let shape = Shape::Wn18rr;
    out.line(format_args!(
        "format = 1\nname = \"{shape}\"\ntitle = \"synthetic knowledge graph, the shape of {shape}\""
    ));
    out.line(format_args!("task = \"link-prediction\"\ngenerator = \"{generator}\""));
    out.line(format_args!("\n[[vertex_type]]\nname = \"entity\"\ncount = {ENTITIES}"));
    let mut topic = vec![0; ENTITIES];
    for (rank, &entity) in draw::shuffled(ENTITIES, &mut rng).iter().enumerate() {
        topic[entity as usize] = rank % TOPICS;
    }
    let (mut sources, mut destinations, mut held_out) = (vec![], vec![], [vec![], vec![]]);
    for (at, relation) in RELATIONS.iter().enumerate() {
        let mut pool = |entities: usize, exponent: f64| {
            let mut ids = draw::shuffled(ENTITIES, &mut rng);
            ids.truncate(entities);
            Pool::new(ids, exponent, &topic, TOPICS)
        };
        let total: usize = relation.links.iter().sum();
        let mut links = match relation.ends {
            Ends::Symmetric(entities) => {
                let pool = pool(entities, EXPONENTS[0]);
                draw::symmetric(&pool, &topic, total.next_multiple_of(2), AFFINITY, &mut rng)
            }
            Ends::Apart(sources, destinations) => {
                let pools = [pool(sources, EXPONENTS[0]), pool(destinations, EXPONENTS[1])];
                draw::pairs(&pools[0], &pools[1], (&topic, &topic), total, AFFINITY, &mut rng)
            }
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
