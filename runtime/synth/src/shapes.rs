//! Sizes of the imitated datasets, and the strength of their communities.
//!
//! Counts, names, widths, classes and split sizes are those of the real dataset; the Zipf exponents are set so that
//! metapath graphs have about the sizes of the real ones. The strengths (`affinity`, `signal`, `label_noise`) are
//! chosen so that features alone classify fairly and features averaged over the semantic graphs classify well.

pub(super) struct TypeShape {
    pub name: &'static str,
    pub count: usize,
    /// Bag of words; `None` for a type without features.
    pub words: Option<Words>,
}

/// A binary bag of words.
#[derive(Clone, Copy)]
pub(super) struct Words {
    /// Size of the vocabulary.
    pub dim: usize,
    /// Words per vertex, on average, before doubles are dropped.
    pub per_vertex: usize,
    /// Share of the words drawn from those of the vertex's class instead of all words.
    pub signal: f64,
}

/// How the edges of a relation are drawn.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pattern {
    /// Distinct pairs; every vertex gets one first if there are enough edges. Exponents of the degree power laws.
    Zipf { src: f64, dst: f64 },
    /// Both directions of distinct pairs, no self loops.
    Symmetric { degree: f64 },
    /// Self pairs and both directions of cliques (papers with a common author).
    Cliques,
}

pub(super) struct RelationShape {
    pub name: &'static str,
    /// Position of the vertex type.
    pub src: usize,
    pub dst: usize,
    pub edges: usize,
    pub pattern: Pattern,
    /// Share of the edges drawn within one class; the others join any vertices.
    pub affinity: f64,
}

pub(super) struct SplitShape {
    pub name: &'static str,
    pub train: usize,
    pub val: usize,
    pub test: usize,
    /// Whether each class has the same number of training (and validation) vertices.
    pub balanced: bool,
}

/// A dataset with one labelled vertex type, its first.
pub(super) struct GraphShape {
    pub title: &'static str,
    pub types: &'static [TypeShape],
    pub relations: &'static [RelationShape],
    /// Number of labelled vertices of each class, all of the first type.
    pub per_class: &'static [usize],
    /// Share of the labelled vertices with a random community: bounds the accuracy of any model.
    pub label_noise: f64,
    pub split: SplitShape,
    /// Names, and steps as in `dataset.toml`.
    pub metapaths: &'static [(&'static str, &'static [&'static str])],
}

const fn words(dim: usize, per_vertex: usize, signal: f64) -> Option<Words> {
    Some(Words { dim, per_vertex, signal })
}

const fn zipf(src: f64, dst: f64) -> Pattern {
    Pattern::Zipf { src, dst }
}

pub(super) const ACM: GraphShape = GraphShape {
    title: "papers / authors / subjects",
    types: &[
        TypeShape { name: "paper", count: 3025, words: words(1902, 85, 0.18) },
        TypeShape { name: "author", count: 5912, words: words(1902, 118, 0.18) },
        TypeShape { name: "subject", count: 57, words: words(1902, 480, 0.18) },
    ],
    relations: &[
        RelationShape { name: "paper-author", src: 0, dst: 1, edges: 9936, pattern: zipf(0.3, 0.55), affinity: 0.85 },
        RelationShape { name: "paper-subject", src: 0, dst: 2, edges: 3025, pattern: zipf(0.0, 2.2), affinity: 0.8 },
    ],
    per_class: &[994, 970, 1061],
    label_noise: 0.06,
    split: SplitShape { name: "gtn", train: 600, val: 300, test: 2125, balanced: true },
    metapaths: &[
        ("PAP", &[">paper-author", "<paper-author"]),
        ("PSP", &[">paper-subject", "<paper-subject"]),
        ("APA", &["<paper-author", ">paper-author"]),
        ("SPS", &["<paper-subject", ">paper-subject"]),
        ("APSPA", &["<paper-author", ">paper-subject", "<paper-subject", ">paper-author"]),
        ("PAPAP", &[">paper-author", "<paper-author", ">paper-author", "<paper-author"]),
        ("PAPSP", &[">paper-author", "<paper-author", ">paper-subject", "<paper-subject"]),
    ],
};

pub(super) const ACM_HAN: GraphShape = GraphShape {
    title: "papers / subjects, in metapath form",
    types: &[
        TypeShape { name: "paper", count: 3025, words: words(1870, 84, 0.18) },
        TypeShape { name: "subject", count: 56, words: None },
    ],
    relations: &[
        RelationShape {
            name: "paper-author-paper",
            src: 0,
            dst: 0,
            edges: 29281,
            pattern: Pattern::Cliques,
            affinity: 0.85,
        },
        RelationShape { name: "paper-subject", src: 0, dst: 1, edges: 3025, pattern: zipf(0.0, 2.2), affinity: 0.8 },
    ],
    per_class: &[1061, 965, 999],
    label_noise: 0.06,
    split: SplitShape { name: "han", train: 600, val: 300, test: 2125, balanced: true },
    metapaths: &[("PAP", &[">paper-author-paper"]), ("PSP", &[">paper-subject", "<paper-subject"])],
};

pub(super) const IMDB: GraphShape = GraphShape {
    title: "movies / directors / actors",
    types: &[
        TypeShape { name: "movie", count: 4278, words: words(3066, 26, 0.36) },
        TypeShape { name: "director", count: 2081, words: words(3066, 26, 0.36) },
        TypeShape { name: "actor", count: 5257, words: words(3066, 26, 0.36) },
    ],
    relations: &[
        RelationShape { name: "movie-director", src: 0, dst: 1, edges: 4278, pattern: zipf(0.0, 0.48), affinity: 0.9 },
        RelationShape { name: "movie-actor", src: 0, dst: 2, edges: 12828, pattern: zipf(0.0, 0.59), affinity: 0.9 },
    ],
    per_class: &[1135, 1584, 1559],
    label_noise: 0.06,
    split: SplitShape { name: "magnn", train: 400, val: 400, test: 3478, balanced: false },
    metapaths: &[
        ("MDM", &[">movie-director", "<movie-director"]),
        ("MAM", &[">movie-actor", "<movie-actor"]),
        ("DMD", &["<movie-director", ">movie-director"]),
        ("AMA", &["<movie-actor", ">movie-actor"]),
        ("DMAMD", &["<movie-director", ">movie-actor", "<movie-actor", ">movie-director"]),
        ("AMDMA", &["<movie-actor", ">movie-director", "<movie-director", ">movie-actor"]),
    ],
};

pub(super) const DBLP: GraphShape = GraphShape {
    title: "authors / papers / terms / venues",
    types: &[
        TypeShape { name: "author", count: 4057, words: words(334, 12, 0.40) },
        TypeShape { name: "paper", count: 14328, words: words(4231, 30, 0.2) },
        TypeShape { name: "term", count: 7723, words: words(50, 6, 0.2) },
        TypeShape { name: "venue", count: 20, words: words(20, 4, 0.2) },
    ],
    relations: &[
        RelationShape { name: "paper-author", src: 1, dst: 0, edges: 19645, pattern: zipf(0.0, 0.88), affinity: 0.92 },
        RelationShape { name: "paper-venue", src: 1, dst: 3, edges: 14328, pattern: zipf(0.0, 1.35), affinity: 0.92 },
        RelationShape { name: "paper-term", src: 1, dst: 2, edges: 85810, pattern: zipf(0.1, 0.9), affinity: 0.75 },
    ],
    per_class: &[1197, 745, 1109, 1006],
    label_noise: 0.06,
    split: SplitShape { name: "magnn", train: 400, val: 400, test: 3257, balanced: false },
    metapaths: &[
        ("APA", &["<paper-author", ">paper-author"]),
        ("APVPA", &["<paper-author", ">paper-venue", "<paper-venue", ">paper-author"]),
        ("APTPA", &["<paper-author", ">paper-term", "<paper-term", ">paper-author"]),
    ],
};

pub(super) const CORA: GraphShape = GraphShape {
    title: "citation graph (homogeneous)",
    types: &[TypeShape { name: "paper", count: 2708, words: words(1433, 22, 0.34) }],
    relations: &[RelationShape {
        name: "cites",
        src: 0,
        dst: 0,
        edges: 10556,
        pattern: Pattern::Symmetric { degree: 0.6 },
        affinity: 0.8,
    }],
    per_class: &[351, 217, 418, 818, 426, 298, 180],
    label_noise: 0.04,
    split: SplitShape { name: "planetoid", train: 140, val: 500, test: 1000, balanced: true },
    metapaths: &[("PP", &[">cites"]), ("PPP", &[">cites", ">cites"])],
};

/// AIFB: the sizes of kinds and relations.
pub(super) const AIFB_TSV: &str = include_str!("aifb.tsv");
pub(super) const AIFB_PER_CLASS: [usize; 4] = [73, 28, 60, 15];
pub(super) const AIFB_AFFINITY: f64 = 0.8;
pub(super) const AIFB_LABEL_NOISE: f64 = 0.0;
