//! Link prediction by several processes: the ranks share the pairs of a batch and those of an evaluation.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hgnnc::{DataSource, Job, LinkPair, LinkPairs, ModelSource, Purpose, Ranks, Silent, Split, prepare};
use hgnnc_dataset::{Dataset, LinkSplitData, Links, RelationData, VertexTypeData};
use hgnnc_dist::threads;
use hgnnc_model_tests::assert_close;
use hgnnc_train::TrainOptions;

const USERS: u32 = 40;
const ARTISTS: u32 = 25;

/// Two relations to predict, with learned features, and a reverse that must not tell of them.
pub const MODEL: &str = "
use std::rgcn::RgcnConv
use std::link::DistMult

schema Music {
    vertex User from \"user\" { x: embedding[6] }
    vertex Artist from \"artist\" { x: embedding[6] }
    relation listens: User -> Artist
    relation heard_by: Artist -> User
    relation knows: User -> User
}

model Recommend(schema: Music) {
    let first = relu(RgcnConv(hidden: 6) over [relations] of features)
    let second = RgcnConv(hidden: 6) over [relations] of first
    output score: links = DistMult() over links([listens, knows]) of second
}

train Recommend {
    loss      binary_cross_entropy(score, links)
    optimizer sgd(lr: 0.5, momentum: 0.9)
    batch     32
    negatives uniform(3)
    exclude   [heard_by]
    epochs    4
    seed      5
    select    val.mrr
    metrics   auc, average_precision, mrr, hits_10, recall_20, ndcg_20
}
";

/// Users listen to artists of their taste and know users of the same one; every tenth link is held out.
pub fn music() -> Arc<Dataset> {
    let listens = |user: u32| (0..6).map(move |i| (user, (user * 7 % 5 + 5 * ((user + i * i) % 5)) % ARTISTS));
    let listens: HashSet<(u32, u32)> = (0..USERS).flat_map(listens).collect();
    let knows: HashSet<(u32, u32)> =
        (0..USERS).flat_map(|user| [5, 15].map(|by| (user, (user + by) % USERS))).collect();
    let [listens, knows] = [listens, knows].map(|links| {
        let mut links: Vec<(u32, u32)> = links.into_iter().collect();
        links.sort_unstable();
        links
    });
    let (mut val, mut test) = (Links::default(), Links::default());
    let mut kept = vec![];
    for (relation, links) in [(0, &listens), (2, &knows)] {
        let mut of_relation = vec![];
        for (at, &(src, dst)) in links.iter().enumerate() {
            let into = match at % 20 {
                3 => &mut val,
                13 => &mut test,
                _ => {
                    of_relation.push((src, dst));
                    continue;
                }
            };
            into.src.push(src);
            into.relation.push(relation);
            into.dst.push(dst);
        }
        kept.push(of_relation);
    }
    let relation = |name: &str, (src, dst), edges: Vec<(u32, u32)>| RelationData {
        name: name.into(),
        src,
        dst,
        src_ids: edges.iter().map(|edge| edge.0).collect(),
        dst_ids: edges.iter().map(|edge| edge.1).collect(),
        ..RelationData::default()
    };
    let reversed = kept[0].iter().map(|&(user, artist)| (artist, user)).collect();
    let vertices = |name: &str, count: u32| VertexTypeData {
        name: name.into(),
        count: count as usize,
        ..VertexTypeData::default()
    };
    Arc::new(Dataset {
        name: "music".into(),
        vertex_types: vec![vertices("user", USERS), vertices("artist", ARTISTS)],
        relations: vec![
            relation("listens", (0, 1), kept[0].clone()),
            relation("heard_by", (1, 0), reversed),
            relation("knows", (0, 0), kept[1].clone()),
        ],
        link_splits: vec![LinkSplitData { name: "default".into(), val, test }],
        ..Dataset::default()
    })
}

/// Losses of epochs, parameters on the rank that has all of them, metrics of all parts, and scores of some pairs.
#[derive(Clone, PartialEq, Debug)]
struct Trained {
    losses: Vec<f64>,
    params: Vec<f32>,
    metrics: Vec<f64>,
    scores: Vec<f32>,
}

fn train(source: &str, data: &Arc<Dataset>, ranks: Option<Ranks>) -> Result<Trained, hgnnc::Error> {
    let model = ModelSource::Text { path: PathBuf::from("music.hgnn"), text: source.into() };
    let options = TrainOptions { threads: 1, ..TrainOptions::default() };
    let data = DataSource::Loaded(Arc::clone(data));
    let job = Job { data, options, ranks, graph_cache: None, ..Job::new(model) };
    let mut prepared = prepare(Purpose::Train, &job, &mut Silent)?;
    let mut losses = vec![];
    prepared.trainer.run(&AtomicBool::new(false), &mut |epoch| losses.push(epoch.loss))?;
    let writes = job.ranks.as_ref().is_none_or(|ranks| ranks.comm.rank() == 0);
    let params = if writes { prepared.trainer.params()?.concat() } else { vec![] };
    let metrics =
        prepared.trainer.evaluate()?.into_values().flat_map(std::collections::BTreeMap::into_values).collect();
    let pair = |at: i64| LinkPair { src: at * 3 % 40, relation: 2 * (at % 2), dst: at * 5 % 25 };
    let pairs = LinkPairs::new("pairs", (0..30).map(pair).collect());
    let scores = prepared.score_links(&pairs)?;
    Ok(Trained { losses, params, metrics, scores })
}

/// Trains on virtual ranks, which all come to the same bits; the result of the first one.
fn train_on(ranks: usize, source: &str, data: &Arc<Dataset>) -> Trained {
    let on_rank = |comm: &Arc<dyn hgnnc_dist::Comm>| train(source, data, Some(Ranks::new(Arc::clone(comm))));
    let all: Vec<Trained> = (threads::run(ranks, on_rank).into_iter().enumerate())
        .map(|(rank, trained)| trained.unwrap_or_else(|error| panic!("rank {rank} of {ranks}: {error}")))
        .collect();
    let shared = |of_rank: &Trained| Trained { params: vec![], ..of_rank.clone() };
    assert!(all.iter().all(|of_rank| shared(of_rank) == shared(&all[0])), "{ranks} ranks differ");
    all.into_iter().next().expect("there is a rank")
}

fn wide(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|&x| f64::from(x)).collect()
}

/// With all in-edges, ranks compute the sums of one process in another order.
fn ranks_learn_as_one_process(source: &str) {
    for (ranks, together, alone) in on_ranks_and_alone(source) {
        assert_close(&format!("metrics of {ranks} ranks"), &together.metrics, &alone.metrics, 1e-3);
    }
}

/// The runs of several numbers of ranks beside that of one process, whose losses, parameters and scores are close.
fn on_ranks_and_alone(source: &str) -> Vec<(usize, Trained, Trained)> {
    let data = music();
    let alone = train(source, &data, None).unwrap_or_else(|error| panic!("{error}"));
    assert!(alone.losses.last() < alone.losses.first(), "{:?}", alone.losses);
    let on = |ranks: usize| {
        let together = train_on(ranks, source, &data);
        let what = |of: &str| format!("{of} of {ranks} ranks");
        assert_close(&what("losses"), &together.losses, &alone.losses, 2e-5);
        assert_close(&what("parameters"), &wide(&together.params), &wide(&alone.params), 1e-4);
        assert_close(&what("scores"), &wide(&together.scores), &wide(&alone.scores), 1e-4);
        (ranks, together, alone.clone())
    };
    (1..=4).map(on).collect()
}

#[test]
fn negatives_of_all_vertices() {
    ranks_learn_as_one_process(MODEL);
}

/// A link is compared with its own samples, which are those of one process. Some users have equal neighbours, and so equal
/// scores but for rounding, by which areas under curves differ.
#[test]
fn links_among_their_own_samples() {
    for loss in [
        "cross_entropy(score, links)",
        "bpr(score, links)",
        "margin_ranking(score, links, margin: 0.5)",
        "self_adversarial(score, links)",
    ] {
        on_ranks_and_alone(&MODEL.replace("binary_cross_entropy(score, links)", loss).replace("lr: 0.5", "lr: 0.2"));
    }
}

/// The other links of the batch are those of all ranks.
#[test]
fn negatives_of_the_batch() {
    ranks_learn_as_one_process(&MODEL.replace("uniform(3)", "in_batch(2)"));
}

#[test]
fn negatives_that_are_self_loops() {
    ranks_learn_as_one_process(&MODEL.replace("uniform(3)", "uniform(3, self_loops: true)"));
}

/// All ranks draw the same samples and compute their rows, each for its own links.
#[test]
fn links_that_share_their_samples() {
    let model = MODEL.replace("binary_cross_entropy(score, links)", "cross_entropy(score, links)");
    let model = model.replace("lr: 0.5", "lr: 0.2");
    for negatives in ["shared(8)", "shared_destinations(20)"] {
        ranks_learn_as_one_process(&model.replace("uniform(3)", negatives));
    }
    let sampled = model.replace("batch     32", "batch     32\n    fanout    [3, 3]");
    ranks_learn_as_one_process(&sampled.replace("uniform(3)", "shared(8)"));
}

/// Edges that join the ends of a link of the batch are no messages, whichever rank has the link.
#[test]
fn sampled_neighbours_are_those_of_one_process() {
    ranks_learn_as_one_process(&MODEL.replace("batch     32", "batch     32\n    fanout    [3, 3]"));
}

/// Some ranks have no pairs of a batch.
#[test]
fn batches_of_fewer_links_than_ranks() {
    let source = MODEL.replace("batch     32", "batch     3").replace("epochs    4", "epochs    2");
    ranks_learn_as_one_process(&source.replace("lr: 0.5", "lr: 0.05"));
}

/// Walks are functions of seed and epoch, so all ranks know the links of a batch, whichever has them.
#[test]
fn links_of_metapaths() {
    let with_path = "relation knows: User -> User\n    metapath UAU = User -listens-> Artist <-listens- User";
    let source = MODEL.replace("relation knows: User -> User", with_path);
    ranks_learn_as_one_process(&source.replace("links([listens, knows])", "links([listens, knows, UAU])"));
}

#[test]
fn relations_are_not_shared() {
    let data = music();
    let refused = threads::run(2, |comm| {
        let ranks = Ranks { split: Split::Relations, ..Ranks::new(Arc::clone(comm)) };
        train(MODEL, &data, Some(ranks)).map(drop)
    });
    for refused in refused {
        let message = refused.expect_err("links have no relations to seeds").to_string();
        assert!(message.contains("links are shared by their pairs (`seeds`)"), "{message}");
    }
}

#[test]
fn dropout_of_pairs_is_refused_with_its_place() {
    let scorer = "
layer Noisy()
    over graphs: [*]
    of x: *[in]
    -> score: graphs
{
    aggregate e: g in graphs {
        score = dropout(dot(e.src.x, e.dst.x), 0.5)
    }
}
";
    let source = format!("{}{scorer}", MODEL.replace("DistMult()", "Noisy()").replace("use std::link::DistMult\n", ""));
    let data = music();
    for refused in threads::run(2, |comm| train(&source, &data, Some(Ranks::new(Arc::clone(comm)))).map(drop)) {
        let message = refused.expect_err("masks of pairs depend on the batch").to_string();
        assert!(message.contains("dropout of pairs"), "{message}");
        assert!(message.contains("(music.hgnn:"), "{message}");
    }
    train(&source, &data, None).unwrap_or_else(|error| panic!("{error}"));
}
