//! Last.fm: users, artists and tags, with links between users and artists to predict.
//!
//! Users and artists have communities, and most links stay within one: a link can be predicted from the communities of
//! its endpoints and the popularity of the artist.

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::draw::{self, Pool};
use crate::{Link, Shape, SynthError, Writer};

const COMMUNITIES: usize = 12;
const TYPES: [(&str, usize); 3] = [("user", 1892), ("artist", 17632), ("tag", 1088)];
/// Number of training, validation and test links between users and artists.
const LINKS: [usize; 3] = [64_984, 9283, 18_567];
const FRIENDS: usize = 25_434;
const TAGS: usize = 23_253;
/// Share of the edges drawn within one community; the others join any vertices.
const AFFINITY: f64 = 0.8;
/// Name of the split in the real dataset.
const SPLIT: &str = "magnn";

pub(super) fn write(out: &mut Writer<'_>, generator: &str, mut rng: ChaCha8Rng) -> Result<(), SynthError> {
    let shape = Shape::Lastfm;
    out.line(format_args!("format = 1\nname = \"{shape}\"\ntitle = \"synthetic music, the shape of {shape}\""));
    out.line(format_args!("task = \"link-prediction\"\ngenerator = \"{generator}\""));
    let mut orders = vec![];
    let mut communities = vec![];
    for (name, count) in TYPES {
        out.line(format_args!("\n[[vertex_type]]\nname = \"{name}\"\ncount = {count}"));
        let order = draw::shuffled(count, &mut rng);
        let mut community = vec![0; count];
        for (rank, &vertex) in order.iter().enumerate() {
            community[vertex as usize] = rank % COMMUNITIES;
        }
        orders.push(order);
        communities.push(community);
    }
    let pool = |of: usize, exponent: f64| Pool::new(orders[of].clone(), exponent, &communities[of], COMMUNITIES);
    let endpoints = |src: usize, dst: usize| (&communities[src][..], &communities[dst][..]);

    let total = LINKS.iter().sum();
    let mut links = draw::pairs(&pool(0, 0.4), &pool(1, 0.9), endpoints(0, 1), total, AFFINITY, &mut rng);
    links.shuffle(&mut rng);
    // Held-out links are chosen independently of their endpoints.
    let (test, rest) = links.split_at_mut(LINKS[2].min(total));
    let (val, train) = rest.split_at_mut(LINKS[1].min(rest.len()));
    for part in [&mut *test, &mut *val, &mut *train] {
        part.sort_unstable();
    }
    let friends = draw::symmetric(&pool(0, 0.6), &communities[0], FRIENDS, AFFINITY, &mut rng);
    let tags = draw::pairs(&pool(1, 0.6), &pool(2, 0.8), endpoints(1, 2), TAGS, AFFINITY, &mut rng);
    for (name, src, dst, edges) in
        [("user-artist", 0, 1, &*train), ("user-user", 0, 0, &friends), ("artist-tag", 1, 2, &tags)]
    {
        out.relation(name, TYPES[src].0, TYPES[dst].0, edges)?;
    }
    let [val, test] = [val, test].map(|part| {
        part.iter().map(|&(source, destination)| Link { source, relation: 0, destination }).collect::<Vec<Link>>()
    });
    out.link_split(SPLIT, [&val, &test])
}
