//! One model for each layer of the standard library.

use crate::world::World;

/// The schema of [`World::library`] and [`World::random_library`].
pub const SCHEMA: &str = "
schema Library {
    vertex Paper { x: f32[5], topic: class[3] }
    vertex Author { x: f32[3] }
    vertex Venue { x: f32[4] }

    relation cites: Paper -> Paper
    relation writes: Author -> Paper
    relation reviews: Author -> Paper
    relation appears_in: Paper -> Venue

    metapath PAP = Paper <-writes- Author -writes-> Paper
    metapath PVP = Paper -appears_in-> Venue <-appears_in- Paper
    metapath PRP = Paper <-reviews- Author -reviews-> Paper
}
";

/// The same schema with sparse, one-hot and learned features.
pub const SPARSE_SCHEMA: &str = "
schema Library {
    vertex Paper { x: f32[6] sparse, topic: class[3] }
    vertex Author { x: onehot }
    vertex Venue { x: embedding[4] }

    relation cites: Paper -> Paper
    relation writes: Author -> Paper
    relation reviews: Author -> Paper
    relation appears_in: Paper -> Venue
}
";

/// The same schema with several fields of features for each vertex type.
pub const FIELDS_SCHEMA: &str = "
schema Library {
    vertex Paper { x: f32[5], id: embedding[2], words: f32[6] sparse, tags: f32[6] sparse, topic: class[3] }
    vertex Author { id: embedding[3], more: embedding[2] }
    vertex Venue { x: f32[4], place: onehot, year: f32 }

    relation cites: Paper -> Paper
    relation writes: Author -> Paper
    relation reviews: Author -> Paper
    relation appears_in: Paper -> Venue
}
";

/// The same schema with times.
pub const TIME_SCHEMA: &str = "
schema Library {
    vertex Paper { x: f32[5], year: time, topic: class[3] }
    vertex Author { x: f32[3], since: time }
    vertex Venue { x: f32[4], since: time }

    relation cites: Paper -> Paper
    relation writes: Author -> Paper
    relation reviews: Author -> Paper
    relation appears_in: Paper -> Venue
}
";

/// A well-conditioned train block: updates are proportional to gradients.
pub const TRAIN: &str = "
train M {
    loss cross_entropy(y, Paper.topic)
    optimizer sgd(lr: 0.1, momentum: 0.9, weight_decay: 0.01)
    epochs 5
    seed 3
    select train.loss
}
";

/// A model under test. Its output is `y: Paper`, with three classes.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Case {
    /// Name of the case.
    pub name: &'static str,
    pub uses: &'static str,
    /// Statements of the model block.
    pub body: &'static str,
    /// Text of the schema.
    pub schema: &'static str,
}

impl Case {
    /// The complete source text.
    pub fn source(&self) -> String {
        self.trained_by(TRAIN)
    }

    /// The complete source text with another train block.
    pub fn trained_by(&self, train: &str) -> String {
        format!("{}\n{}\nmodel M(schema: Library) {{\n{}\n}}\n{train}", self.uses, self.schema, self.body)
    }
}

/// The case called `name`.
///
/// # Panics
/// When there is none.
pub fn case(name: &str) -> Case {
    CASES.iter().copied().find(|c| c.name == name).unwrap_or_else(|| panic!("no case `{name}`"))
}

/// Worlds that every case runs in: the handwritten one, and `drawn` random ones.
pub fn worlds(drawn: u64) -> impl Iterator<Item = World> {
    [World::library(), World::sparse_library()].into_iter().chain((100..100 + drawn).map(World::random_library))
}

const fn of(name: &'static str, uses: &'static str, body: &'static str) -> Case {
    Case { name, uses, body, schema: SCHEMA }
}

/// All cases, one per layer of the standard library.
pub const CASES: &[Case] = &[
    of(
        "han",
        "use std::han::HanConv",
        "    let conv = HanConv(hidden: 3, heads: 2, dropout: 0.3, feature_dropout: 0.2, attention: 4) over [PAP, PVP, PRP, cites] of Paper.x
    output y: Paper = linear(conv, 3)",
    ),
    of(
        "rgcn",
        "use std::rgcn::RgcnConv",
        "    let first = dropout(relu(RgcnConv(hidden: 4) over [relations, reverses] of dropout(features, 0.2)), 0.3)
    output y: Paper = RgcnConv(hidden: 3) over [relations, reverses] of first",
    ),
    of(
        "rgcn_basis",
        "use std::rgcn::RgcnBasisConv",
        "    let embedded = linear(features, 4)
    let conv = RgcnBasisConv(hidden: 3, bases: 2) over [relations, reverses] of dropout(embedded, 0.2)
    output y: Paper = conv.Paper",
    ),
    of(
        "rgcn_block",
        "use std::rgcn::RgcnBlockConv",
        "    let embedded = linear(features, 6)
    let conv = RgcnBlockConv(hidden: 4, blocks: 2, bias: false) over [relations, reverses] of dropout(embedded, 0.2)
    output y: Paper = linear(conv.Paper, 3)",
    ),
    of(
        "rgat",
        "use std::rgat::RgatConv",
        "    let conv = RgatConv(hidden: 3, heads: 2, dropout: 0.3) over [relations, reverses] of features
    output y: Paper = linear(conv.Paper, 3)",
    ),
    of(
        "rgat_across",
        "use std::rgat::RgatAcrossConv",
        "    let conv = RgatAcrossConv(hidden: 3, heads: 2, dropout: 0.3) over [relations, reverses] of features
    output y: Paper = linear(conv.Paper, 3)",
    ),
    of(
        "gcn",
        "use std::gcn::GcnConv",
        "    let first = dropout(relu(GcnConv(hidden: 4) over self_loops(cites) of dropout(Paper.x, 0.2)), 0.2)
    output y: Paper = GcnConv(hidden: 3) over cites of first",
    ),
    of(
        "gat",
        "use std::gat::GatConv",
        "    let conv = GatConv(hidden: 3, heads: 2, dropout: 0.3) over [self_loops(cites), PAP] of Paper.x
    output y: Paper = linear(elu(conv), 3)",
    ),
    of(
        "gat_without_loops",
        "use std::gat::GatConv",
        "    let conv = GatConv(hidden: 3, heads: 2, dropout: 0.3) over without_self_loops([cites, PAP]) of Paper.x
    output y: Paper = linear(elu(conv), 3)",
    ),
    of(
        "gat_average",
        "use std::gat::GatConv",
        "    output y: Paper = GatConv(hidden: 3, heads: 2, dropout: 0.3, average: true) over [self_loops(cites), PAP] of Paper.x",
    ),
    of(
        "sage_mean",
        "use std::sage::SageMeanConv",
        "    let first = dropout(relu(SageMeanConv(hidden: 4) over [relations, reverses] of features), 0.2)
    output y: Paper = SageMeanConv(hidden: 3) over [relations, reverses] of first",
    ),
    of(
        "sage_max",
        "use std::sage::SageMaxConv",
        "    let conv = SageMaxConv(hidden: 4, pool: 3) over [relations, reverses] of dropout(features, 0.2)
    output y: Paper = linear(conv.Paper, 3)",
    ),
    of(
        "sage_lstm",
        "use std::sage::SageLstmConv",
        "    let first = dropout(relu(SageLstmConv(hidden: 4, state: 2) over [cites, PAP, writes] at most 3 per vertex of dropout(features, 0.2)), 0.2)
    output y: Paper = SageLstmConv(hidden: 3, state: 2) over cites at most 3 per vertex of first.Paper",
    ),
    of(
        "gin",
        "use std::gin::GinConv",
        "    let conv = GinConv(hidden: 4) over cites of dropout(Paper.x, 0.2)
    output y: Paper = linear(conv, 3)",
    ),
    of(
        "gin_normalized",
        "use std::gin::GinConv",
        "    let conv = GinConv(hidden: 4, normalize: true) over [cites, PAP] of dropout(Paper.x, 0.2)
    output y: Paper = linear(conv, 3)",
    ),
    of(
        "simple_hgn",
        "use std::simple_hgn::SimpleHgnConv",
        "    let first = SimpleHgnConv(hidden: 3, heads: 2, edge: 4, dropout: 0.2) over [relations, reverses] of features
    let second = SimpleHgnConv(hidden: 3, heads: 2, edge: 4, beta: 0.25, normalize: true) over [relations, reverses]
        of (dropout(elu(first.out), 0.2), prev: first.alpha)
    output y: Paper = linear(second.out.Paper, 3)",
    ),
    of(
        "hgt",
        "use std::hgt::HgtConv",
        "    let first = HgtConv(hidden: 3, heads: 2, dropout: 0.2) over [relations, reverses] of features
    let second = HgtConv(hidden: 3, heads: 2) over [relations, reverses] of first
    output y: Paper = linear(second.Paper, 3)",
    ),
    of(
        "hgt_per_relation",
        "use std::hgt::HgtConv",
        "    let first = HgtConv(hidden: 3, heads: 2, dropout: 0.2, per_relation: true) over [relations, reverses] of features
    let second = HgtConv(hidden: 3, heads: 2, per_relation: true, gate: false) over [relations, reverses] of first
    output y: Paper = linear(second.Paper, 3)",
    ),
    Case {
        name: "hgt_rte",
        uses: "use std::hgt::HgtRteConv",
        body: "    let times = {Paper.year, Author.since, Venue.since}
    let embedded = linear(features, 4)
    let first = HgtRteConv(hidden: 3, heads: 2, dropout: 0.2) over [relations, reverses] of (embedded, t: times)
    let second = HgtRteConv(hidden: 3, heads: 2) over [relations, reverses] of (first, t: times)
    output y: Paper = linear(second.Paper, 3)",
        schema: TIME_SCHEMA,
    },
    of(
        "gat_v2",
        "use std::gat::GatV2Conv",
        "    let conv = GatV2Conv(hidden: 3, heads: 2, dropout: 0.3) over [self_loops(cites), PAP] of Paper.x
    output y: Paper = linear(elu(conv), 3)",
    ),
    of(
        "appnp",
        "use std::appnp::AppnpStep",
        "    let h = linear(dropout(Paper.x, 0.2), 3)
    let z = h
    repeat 2 { z = AppnpStep(alpha: 0.2) over self_loops(cites) of (z, start: h) }
    output y: Paper = z",
    ),
    of(
        "sehgnn",
        "use std::sehgnn::SeHgnnConv",
        "    let conv = SeHgnnConv(hidden: 4, attention: 2, dropout: 0.2) over [PAP, relations, reverses] of features
    output y: Paper = linear(conv.Paper, 3)",
    ),
    of(
        "sehgnn_labels",
        "use std::sehgnn::{SeHgnnConv, SeHgnnLabels}",
        "    let known = train_labels(Paper.topic)
    let writers = SeHgnnLabels(hidden: 4, dropout: 0.2) over [without_self_loops(PAP)] of known
    let cited = SeHgnnLabels(hidden: 4) over [without_self_loops(cites)] of known
    let conv = SeHgnnConv(hidden: 4, attention: 2, dropout: 0.2) over [PAP, PVP] of (Paper.x, labels: concat(writers, cited))
    output y: Paper = linear(conv, 3)",
    ),
    of(
        "hidden_labels",
        "use std::rgcn::RgcnConv",
        "    let known = train_labels(Paper.topic, hidden: 0.4)
    let papers = linear(known, 4) + linear(Paper.x, 4)
    let h = relu(RgcnConv(hidden: 4) over [relations, reverses] of {papers, linear(Author.x, 4), linear(Venue.x, 4)})
    output y: Paper = linear(concat(h.Paper, linear(dropout(known, 0.2), 2)), 3)",
    ),
    of(
        "compgcn",
        "use std::compgcn::{CompGcnConv, CompGcnSelf, RelationVectors}",
        "    let embedded = linear(features, 4)
    let given = RelationVectors(width: 4) over [relations, reverses]
    let first = CompGcnConv(hidden: 4) over [relations, reverses] of (embedded, r: given)
    let own = CompGcnSelf(hidden: 4, corr: true) of embedded
    let second = CompGcnConv(hidden: 4, mult: true) over [relations, reverses] of (tanh(first.out + own), r: first.rel)
    let third = CompGcnConv(hidden: 3, corr: true) over [relations, reverses]
        of (dropout(tanh(second.out), 0.2), r: tanh(second.rel))
    output y: Paper = third.out.Paper",
    ),
    of(
        "magnn",
        "use std::magnn::MagnnConv",
        "    let conv = MagnnConv(half: 2, heads: 2, dropout: 0.3, attention: 4) over [PAP, PVP, cites] of features
    output y: Paper = linear(conv.Paper, 3)",
    ),
    of(
        "magnn_mean",
        "use std::magnn::MagnnConv",
        "    let content = linear(features, 2)
    let conv = MagnnConv(half: 1, heads: 3, attention: 3, dropout: 0.2, rotate: false, transform: false)
        over [PAP, PRP, writes] of content
    output y: Paper = linear(conv.Paper, 3)",
    ),
    of(
        "het_gnn",
        "use std::het_gnn::HetGnnConv",
        "    let conv = HetGnnConv(half: 1) over [PAP, cites, writes] at most 3 per vertex of dropout(features, 0.3)
    output y: Paper = linear(conv.Paper, 3)",
    ),
    of(
        "sign",
        "use std::sign::{SignConv, SignStep}",
        "    let one = SignStep() over self_loops(cites) of Paper.x
    let two = SignStep() over self_loops(cites) of one
    let near = SignStep(average: true) over PAP of Paper.x
    let z = SignConv(hidden: 2, operators: 4, dropout: 0.2) of concat(Paper.x, one, two, near)
    output y: Paper = linear(dropout(z, 0.2), 3)",
    ),
    of(
        "nars",
        "use std::sign::{NarsMix, NarsStep, SignConv}",
        "    let x = linear(features, 3)
    let one = NarsStep() over [cites, writes, reverse(writes)] of {x.Paper, x.Author}
    let two = NarsStep() over [cites, writes, reverse(writes)] of one
    let other_one = NarsStep() over [reviews, reverse(reviews)] of {x.Paper, x.Author}
    let other_two = NarsStep() over [reviews, reverse(reviews)] of other_one
    let first = NarsMix(subsets: 2) of concat(one.Paper, other_one.Paper)
    let second = NarsMix(subsets: 2) of concat(two.Paper, other_two.Paper)
    let z = SignConv(hidden: 2, operators: 3, dropout: 0.2) of concat(x.Paper, first, second)
    output y: Paper = linear(z, 3)",
    ),
    of(
        "ie_hgcn",
        "use std::ie_hgcn::IeHgcnConv",
        "    let first = IeHgcnConv(hidden: 4, attention: 3) over [relations, reverses] of dropout(features, 0.2)
    let second = IeHgcnConv(hidden: 3, attention: 2, activation: identity) over [relations, reverses] of dropout(first, 0.2)
    output y: Paper = second.Paper",
    ),
    of(
        "gtn",
        "use std::gtn::{GtnConv, GtnStart, GtnStep}",
        "    let x = linear(dropout(features, 0.2), 2, bias: false)
    let h = GtnStart(channels: 2) of x
    repeat 2 { h = GtnStep(channels: 2, scale: 2) over [relations, reverses] of h }
    let z = GtnConv(channels: 2) of (x, paths: h)
    output y: Paper = linear(z.Paper, 3)",
    ),
    of(
        "r_hgnn",
        "use std::compgcn::RelationVectors
use std::r_hgnn::{RhgnnConv, RhgnnFuse, RhgnnInput}",
        "    let vectors = RelationVectors(width: 4) over [relations, reverses]
    let rows = RhgnnInput(width: 3, dropout: 0.2) over [relations, reverses] of features
    let first = RhgnnConv(hidden: 2, heads: 2, dropout: 0.2) over [relations, reverses] of (rows, r: vectors)
    let second = RhgnnConv(hidden: 2, heads: 2) over [relations, reverses] of (first.rows, r: first.next)
    let fused = RhgnnFuse(heads: 2, dropout: 0.2) over [relations, reverses] of (second.rows, r: second.next)
    output y: Paper = linear(fused, 3)",
    ),
    of(
        "hpn",
        "use std::hpn::HpnConv",
        "    let h = HpnConv(hidden: 4, steps: 2, teleport: 0.3, dropout: 0.2, attention: 3) over self_loops([PAP, PVP]) of Paper.x
    output y: Paper = linear(h, 3)",
    ),
    of(
        "heco",
        "use std::heco::{HecoPathConv, HecoSchemaConv}",
        "    let h = elu(linear(features, 4))
    let schema_view = HecoSchemaConv(dropout: 0.2) over [writes at most 3 per vertex, reverse(appears_in)] of h
    let path_view = HecoPathConv() over self_loops([PAP, PVP]) of dropout(h.Paper, 0.2)
    let turned = HecoPathConv(transform: true) over self_loops(PRP) of h.Paper
    let a = linear(elu(linear(schema_view.Paper, 3)), 3)
    let b = linear(elu(linear(path_view, 3)), 3) sharing a
    output y: Paper = linear(concat(a, b, turned), 3)",
    ),
    of(
        "set2set",
        "use std::readout::Set2Set",
        "    let r = Set2Set(steps: 2) over [writes, reviews] of dropout(Author.x, 0.2)
    output y: Paper = linear(r, 3)",
    ),
    of(
        "dmgi",
        "use std::dmgi::DmgiConv",
        "    let a = linear(dropout(Paper.x, 0.2), 3, bias: false)
    let b = linear(Paper.x, 3, bias: false)
    let real = DmgiConv() over self_loops(PAP) of a
    let fake = DmgiConv() over self_loops(PAP) of (b, s: real.summary) sharing real
    let losses = concat(reshape(real.loss, [1]), reshape(fake.loss, [1]))
    output y: Paper = linear(concat(real.out, fake.out, losses), 3)",
    ),
    Case {
        name: "rgcn_sparse",
        uses: "use std::rgcn::RgcnConv",
        body: "    let first = dropout(relu(RgcnConv(hidden: 4) over [relations, reverses] of {dropout(Paper.x, 0.3), Author.x, Venue.x}), 0.3)
    output y: Paper = RgcnConv(hidden: 3) over [relations, reverses] of first",
        schema: SPARSE_SCHEMA,
    },
    Case {
        name: "several_fields",
        uses: "use std::rgcn::RgcnConv",
        body: "    let papers = linear(concat(Paper.x, Paper.id), 4) + linear(dropout(Paper.words, 0.3), 4) + linear(Paper.tags, 4)
    let authors = linear(concat(Author.more, Author.id), 4)
    let venues = linear(concat(Venue.x, Venue.year), 4) + linear(dropout(Venue.place, 0.3), 4)
    let first = dropout(relu(RgcnConv(hidden: 4) over [relations, reverses] of {papers, authors, venues}), 0.3)
    output y: Paper = RgcnConv(hidden: 3) over [relations, reverses] of first",
        schema: FIELDS_SCHEMA,
    },
];
