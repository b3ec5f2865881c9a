//! WN18RR: groups of synonyms and the relations between them, with links of all relations to predict.
//!
//! What can be predicted there is here as well. Relations that hold in both directions (a verb group, a derived form) hold a link
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
    /// Entities that are sources, and those that are destinations, of training links.
    ends: [usize; 2],
    /// Whether nearly all links have their reverse.
    symmetric: bool,
}

const fn relation(name: &'static str, links: [usize; 3], ends: [usize; 2], symmetric: bool) -> RelationShape {
    RelationShape { name, links, ends, symmetric }
}

const RELATIONS: [RelationShape; 11] = [
    relation("_also_see", [1299, 41, 56], [707, 787], true),
    relation("_derivationally_related_form", [29_715, 1078, 1074], [16_102, 16_109], true),
    relation("_has_part", [4816, 154, 172], [1978, 3990], false),
    relation("_hypernym", [34_796, 1174, 1251], [34_033, 9500], false),
    relation("_instance_hypernym", [2921, 107, 122], [2466, 404], false),
    relation("_member_meronym", [7402, 273, 253], [3095, 7340], false),
    relation("_member_of_domain_region", [923, 34, 26], [114, 873], false),
    relation("_member_of_domain_usage", [629, 22, 24], [25, 594], false),
    relation("_similar_to", [80, 3, 3], [77, 76], true),
    relation("_synset_domain_topic_of", [3116, 105, 114], [2972, 309], false),
    relation("_verb_group", [1138, 43, 39], [978, 980], true),
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
        let mut pool = |end: usize| {
            let mut ids = draw::shuffled(ENTITIES, &mut rng);
            ids.truncate(relation.ends[end]);
            Pool::new(ids, EXPONENTS[end], &topic, TOPICS)
        };
        let pools = [pool(0), pool(1)];
        let total: usize = relation.links.iter().sum();
        let mut links = if relation.symmetric {
            draw::symmetric(&pools[0], &topic, total.next_multiple_of(2), AFFINITY, &mut rng)
        } else {
            draw::pairs(&pools[0], &pools[1], (&topic, &topic), total, AFFINITY, &mut rng)
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
