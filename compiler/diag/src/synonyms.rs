//! Names from other tools and from papers, with their equivalents in this language.
//!
//! Lookup ignores case, `_` and `-` ([`fold`]). The tables are consulted only for unknown names, so a name that the
//! language or a file defines is never reinterpreted.

/// The syntactic position of a word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "the variants are named for their position in the language")]
pub enum Place {
    Function,
    Argument,
    Value,
    /// A field name, after a dot.
    Field,
    /// After `metrics`, or in a criterion.
    Metric,
    Loss,
    Optimizer,
    Schedule,
    /// An initializer, after the shape of a parameter.
    Initialiser,
    /// The keyword of a train block entry.
    Entry,
    FieldType,
    /// The keyword of a schema declaration.
    Declaration,
    /// The keyword of a top-level declaration.
    Item,
    /// The keyword of a layer block.
    Block,
    /// The kind of a layer's parameter.
    Kind,
    /// The scope of a reduction, after `over`.
    Scope,
    /// The name of an edge endpoint, such as `src`.
    End,
}

impl Place {
    /// All positions, in the order of the enum.
    pub const ALL: [Place; 17] = [
        Place::Function,
        Place::Argument,
        Place::Value,
        Place::Field,
        Place::Metric,
        Place::Loss,
        Place::Optimizer,
        Place::Schedule,
        Place::Initialiser,
        Place::Entry,
        Place::FieldType,
        Place::Declaration,
        Place::Item,
        Place::Block,
        Place::Kind,
        Place::Scope,
        Place::End,
    ];

    fn table(self) -> &'static [Row] {
        match self {
            Place::Function => FUNCTIONS,
            Place::Argument => ARGUMENTS,
            Place::Value => VALUES,
            Place::Field => FIELDS,
            Place::Metric => METRICS,
            Place::Loss => LOSSES,
            Place::Optimizer => OPTIMIZERS,
            Place::Schedule => SCHEDULES,
            Place::Initialiser => INITIALISERS,
            Place::Entry => ENTRIES,
            Place::FieldType => FIELD_TYPES,
            Place::Declaration => DECLARATIONS,
            Place::Item => ITEMS,
            Place::Block => BLOCKS,
            Place::Kind => KINDS,
            Place::Scope => SCOPES,
            Place::End => ENDS,
        }
    }
}

/// The equivalent of a word of another tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meant {
    /// One of these names, whichever is known.
    Names(&'static [&'static str]),
    /// A list whose elements are listed individually, by these names.
    Each(&'static [&'static str]),
    /// A construct with another syntax. `{=20}` stands for the value after the word, or 20 by default.
    Advice(&'static str),
}

type Row = (&'static [&'static str], Meant);

/// The equivalent of `word` at a position, if another tool uses it there.
pub fn meant(place: Place, word: &str) -> Option<Meant> {
    let word = fold(word);
    place.table().iter().find(|(words, _)| words.contains(&word.as_str())).map(|(_, meant)| *meant)
}

/// All table rows of a position.
pub fn rows(place: Place) -> impl Iterator<Item = (&'static [&'static str], Meant)> {
    place.table().iter().copied()
}

/// Normalizes a word: lower case, without separators.
pub fn fold(word: &str) -> String {
    folded(word).collect()
}

/// Are two words equal after normalization?
pub fn alike(a: &str, b: &str) -> bool {
    folded(a).eq(folded(b))
}

fn folded(word: &str) -> impl Iterator<Item = char> {
    word.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase)
}

/// Fills the value after the word, or the default, into the advice.
pub fn fill(advice: &str, value: Option<&str>) -> String {
    let parts = advice.split_once("{=").and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match parts {
        Some((before, (usual, after))) => format!("{before}{}{after}", value.unwrap_or(usual)),
        None => advice.to_owned(),
    }
}

/// Is it a module name of another tool, as in `F.relu(x)`?
pub fn is_module(word: &str) -> bool {
    MODULES.contains(&fold(word).as_str())
}

const MODULES: &[&str] = &[
    "torch",
    "nn",
    "f",
    "fn",
    "functional",
    "tf",
    "tensorflow",
    "keras",
    "layers",
    "np",
    "numpy",
    "dgl",
    "pyg",
    "optim",
    "jax",
    "jnp",
    "math",
    "torchgeometric",
    "geometric",
    "metrics",
    "losses",
    "optimizers",
    "initializers",
    "init",
];

use Meant::{Advice, Each, Names};

const FUNCTIONS: &[Row] = &[
    (
        &["lstm", "lstmcell", "gru", "grucell", "rnn", "rnncell"],
        Advice(
            "a recurrence over in-edges is `fold(first, step) over in_edges`, whose step is made of `before` and gates such as `sigmoid(a) * b`; `SageLstmConv` of `std::sage` is an LSTM",
        ),
    ),
    (&["var"], Names(&["variance"])),
    (&["std", "stddev"], Advice("write `sqrt(variance(x) over … + 1e-5)`, with the scope that it goes over")),
    (&["cat", "concatenate", "hstack", "join"], Names(&["concat"])),
    (
        &["einsum", "tensordot", "inner"],
        Advice("`x @ w` is a row times a matrix, `dot(a, b)` multiplies two rows, `matmul(a, b)` two matrices"),
    ),
    (&["mm", "bmm"], Names(&["matmul"])),
    (&["dense", "fc", "lazylinear", "heterolinear", "mlp"], Advice("`linear(x, n)` projects to the width `n`")),
    (&["logsoftmax"], Advice("losses take logits: leave it out; otherwise it is `x - logsumexp(x) over last`")),
    (&["silu", "swish"], Advice("write `x * sigmoid(x)`")),
    (&["prelu", "rrelu"], Advice("write `leaky_relu(x, slope: 0.01)`")),
    (&["relu6", "clamp", "clampmin", "clampmax"], Advice("write `min(max(x, low), high)`")),
    (
        &["edgesoftmax", "scattersoftmax", "segmentsoftmax", "sparsesoftmax"],
        Advice("write `softmax(score) over in_edges`"),
    ),
    (
        &[
            "scatter",
            "scatteradd",
            "scattersum",
            "segmentsum",
            "indexadd",
            "segmentreduce",
            "unsortedsegmentsum",
            "propagate",
        ],
        Advice("write `sum(x) over in_edges`, in an `aggregate` block"),
    ),
    (&["scattermean", "segmentmean"], Advice("write `mean(x) over in_edges`, in an `aggregate` block")),
    (&["scattermax", "segmentmax"], Advice("write `max(x) over in_edges`, in an `aggregate` block")),
    (
        &[
            "updateall",
            "multiupdateall",
            "applyedges",
            "messagepassing",
            "sendandrecv",
            "pull",
            "push",
            "reduce",
            "aggregate",
        ],
        Advice("messages are computed in an `aggregate` block: `z = sum(e.src.h) over in_edges`"),
    ),
    (
        &["copyu", "copysrc", "copye", "umule", "uaddv", "udotv", "umulv", "uadde", "srcmuledge"],
        Advice("an edge `e` has its ends as `e.src.h` and `e.dst.h`, and its data as `e.weight`"),
    ),
    (&["permute", "swapaxes", "t"], Advice("`transpose(x)` swaps the last two dimensions")),
    (&["view", "unsqueeze", "squeeze", "expand", "resize"], Names(&["reshape"])),
    (&["parameter", "addweight", "variable"], Advice("a parameter is declared: `param NAME: [n, m]`")),
    (
        &["globalmeanpool", "meannodes", "avgpooling", "readoutnodes", "globalavgpool"],
        Advice("write `mean(x) over vertices`"),
    ),
    (&["globaladdpool", "sumnodes", "sumpooling", "globalsumpool"], Advice("write `sum(x) over vertices`")),
    (&["globalmaxpool", "maxnodes", "maxpooling"], Advice("write `max(x) over vertices`")),
    (
        &["degree", "indegree", "outdegree", "indegrees", "outdegrees"],
        Advice("degrees are fields: `e.dst.in_degree` and `e.src.out_degree` in `aggregate`, `v.in_degree` in `fuse`"),
    ),
    (&["vstack", "dstack"], Names(&["stack"])),
    (&["chunk", "split", "narrow", "indexselect"], Advice("a part of a dimension is `x[0..8]`, one element `x[0]`")),
    (&["norm", "normalize"], Names(&["l2_normalize", "row_normalize"])),
    (&["batchnorm1d", "graphnorm", "instancenorm"], Names(&["batch_norm"])),
    (
        &["where", "maskedfill", "select"],
        Advice("a comparison is 1 where it holds, else 0: multiply by it, as in `(s > 0) * x`"),
    ),
    (&["detach", "nograd"], Names(&["stop_gradient"])),
    (
        &["sequential", "modulelist", "moduledict", "compose"],
        Advice("a `let` for each layer, or calls in each other: `linear(relu(linear(x, 8)), 3)`"),
    ),
    (
        &["heteroconv", "heterographconv", "tohetero", "heteroconvs"],
        Advice("one layer runs over several semantic graphs: `RgcnConv(hidden: 8) over [writes, cites] of features`"),
    ),
    (
        &["embedding", "nodeembedding"],
        Advice("learned features are declared in the schema: `vertex Paper { x: embedding[64] }`"),
    ),
    (
        &["metapath2vec", "node2vec", "deepwalk", "skipgram"],
        Advice("walks along a metapath draw links: `output score: links = Dot() over links(PAP) of features`"),
    ),
    (&["onehot"], Advice("features that tell vertices apart are declared in the schema: `vertex Paper { x: onehot }`")),
    (&["dropout1d", "dropout2d", "alphadropout", "featuredropout"], Names(&["dropout"])),
    (
        &["randn", "rand", "tensor", "full", "constant"],
        Advice(
            "numbers stand for themselves, `zeros([n])` and `ones([n])` repeat them; learned ones are declared: `param b: [n] = zeros`",
        ),
    ),
    (&["len", "size", "shape"], Advice("`width(x)` is the last width of `x`")),
    (
        &["crossentropy", "binarycrossentropy", "nllloss", "mseloss", "crossentropyloss"],
        Advice("a loss stands in the train block: `loss cross_entropy(OUTPUT, VertexType.label)`"),
    ),
    (&["to", "cuda", "cpu"], Advice("a model does not say where it runs: that is an option of the command")),
    (&["print", "display"], Advice("nothing is printed; `hgnnc infer` writes the outputs of a model")),
    (&["ln", "log1p"], Names(&["log"])),
    (&["power"], Names(&["pow"])),
    (&["average", "avg"], Names(&["mean"])),
    (&["amax", "maximum"], Names(&["max"])),
    (&["amin", "minimum"], Names(&["min"])),
    (&["expit"], Names(&["sigmoid"])),
];

const ARGUMENTS: &[Row] = &[
    (&["learningrate", "baselr", "initiallr"], Names(&["lr"])),
    (
        &["wd", "l2", "decay", "l2reg", "regularization", "kernelregularizer", "weightdecayrate"],
        Names(&["weight_decay"]),
    ),
    (&["betas"], Each(&["beta1", "beta2"])),
    (&["b1", "beta"], Names(&["beta1"])),
    (&["b2"], Names(&["beta2"])),
    (&["epsilon"], Names(&["eps"])),
    (
        &["params", "parameters", "model", "netparameters"],
        Advice("all parameters that the loss depends on are trained: leave it out"),
    ),
    (
        &["p", "prob", "probability", "droprate", "dropoutrate", "featdrop", "attndrop", "dropoutprob"],
        Names(&["rate", "dropout"]),
    ),
    (&["negativeslope", "negslope", "alpha"], Names(&["slope"])),
    (
        &[
            "outfeatures",
            "out",
            "outputdim",
            "outputsize",
            "nout",
            "outdim",
            "outchannels",
            "outfeats",
            "outsize",
            "units",
            "hiddenchannels",
            "hiddensize",
            "hiddendim",
            "hiddenunits",
            "hidfeats",
            "nhid",
            "dim",
            "channels",
            "features",
            "hiddenfeatures",
        ],
        Names(&["hidden", "width"]),
    ),
    (
        &["infeatures", "indim", "inchannels", "infeats", "inputdim", "inputsize", "insize", "inputshape"],
        Advice("the width of the input is known: leave it out"),
    ),
    (&["numheads", "nheads", "nhead", "head", "numattentionheads", "attentionheads"], Names(&["heads"])),
    (
        &["numlayers", "nlayers", "layers", "depth"],
        Advice("each layer of a model is written out: `let first = …` and `let second = … of first`"),
    ),
    (&["stepsize", "milestones", "decaysteps"], Names(&["every"])),
    (&["gamma", "decayrate"], Names(&["factor"])),
    (
        &["tmax", "t0", "totaliters", "totalsteps", "warmupepochs", "warmupsteps", "steps", "maxepochs"],
        Names(&["epochs"]),
    ),
    (&["etamin", "minlr", "lrmin"], Names(&["floor"])),
    (
        &["training", "istraining", "train"],
        Advice("training and evaluation are told apart by themselves: leave it out"),
    ),
    (&["inplace"], Advice("values never change: leave it out")),
    (&["keepdim", "keepdims"], Advice("values broadcast along further dimensions: leave it out")),
    (&["activation", "act", "nonlinearity"], Names(&["activation"])),
    (
        &["addselfloops", "selfloop", "selfloops"],
        Advice("self loops belong to the semantic graph: `over self_loops(cites)`"),
    ),
    (
        &["numrelations", "numrels", "numetypes", "edgetypes", "metadata", "relnames", "numedgetypes"],
        Advice("the semantic graphs behind `over` tell: leave it out"),
    ),
    (&["usebias"], Names(&["bias"])),
    (&["numbases", "nbases"], Names(&["bases"])),
    (&["numblocks"], Names(&["blocks"])),
    (&["weight", "weights", "classweight", "posweight"], Names(&["class_weights"])),
    (&["smoothing", "labelsmooth"], Names(&["label_smoothing"])),
    (&["reduction", "sizeaverage"], Advice("the loss is the mean over the training part: leave it out")),
    (&["ignoreindex"], Advice("the split says which vertices count: leave it out")),
    (&["fromlogits"], Advice("outputs are logits: leave it out")),
    (&["maxnorm", "clipnorm", "clipvalue", "max"], Names(&["limit"])),
    (&["amsgrad", "foreach", "fused", "maximize"], Advice("there is no such variant: leave it out")),
];

const VALUES: &[Row] = &[
    (&["none", "null", "nil"], Advice("leave the argument out: it has a default")),
    (
        &["edgeindex", "edgeindexdict", "adjt", "adj", "edgetype", "g", "graph", "hg"],
        Advice("semantic graphs stand behind `over`, by the names of relations and metapaths"),
    ),
    (
        &["edgeweight", "edgeattr", "edgefeat", "edgefeats"],
        Advice("data of edges are declared with the relation and read in `aggregate`: `e.weight`"),
    ),
    (
        &["xdict", "hdict", "x", "feat", "feats", "nodefeatures"],
        Advice("features are `Paper.x` of one vertex type, `features` of all"),
    ),
    (
        &["numclasses", "nclasses", "numfeatures", "numnodes", "hiddenchannels", "outchannels", "inchannels"],
        Advice("write the number, or declare it: `const NAME = 3`"),
    ),
    (&["self", "this"], Advice("names stand for themselves, without `self`")),
    (
        &["trainmask", "valmask", "testmask", "trainidx"],
        Advice("the split of the dataset says which vertices are for training"),
    ),
    (&["inf", "nan", "infinity"], Advice("numbers are finite")),
];

const FIELDS: &[Row] = &[
    (
        &["t", "mt", "h"],
        Advice("`transpose(x)` swaps the last two dimensions; `dot(a, b)` multiplies two values row by row"),
    ),
    (&["shape", "size"], Advice("`width(x)` is the last width of `x`")),
    (
        &["ndata", "srcdata", "dstdata", "nodes"],
        Advice("features are `Paper.x` in a model, `v.x` in `project`, `e.src.x` in `aggregate`"),
    ),
    (&["edata", "edges"], Advice("data of edges are `e.weight` in `aggregate`")),
];

const METRICS: &[Row] = &[
    (
        &["acc", "categoricalaccuracy", "sparsecategoricalaccuracy", "binaryaccuracy", "accuracyscore"],
        Names(&["accuracy"]),
    ),
    (&["f1", "f1score", "fscore", "fbeta", "multiclassf1score"], Names(&["micro_f1", "macro_f1"])),
    (&["f1micro", "micro"], Names(&["micro_f1"])),
    (&["f1macro", "macro"], Names(&["macro_f1"])),
    (&["rocauc", "aucroc", "rocaucscore", "auroc"], Names(&["auc"])),
    (&["ap", "averageprecisionscore", "prauc", "auprc", "map", "aucpr"], Names(&["average_precision"])),
    (&["meanabsoluteerror", "l1"], Names(&["mae"])),
    (&["mse", "meansquarederror", "rootmeansquarederror", "r2", "r2score"], Names(&["rmse"])),
    (&["meanreciprocalrank", "rr"], Names(&["mrr"])),
    (&["hits", "hit", "hitsatk", "hitrate"], Names(&["hits_1", "hits_3", "hits_10"])),
    (&["recallatk", "recallat20"], Names(&["recall_20"])),
    (&["ndcg", "dcg", "ndcgscore", "ndcgatk", "ndcgat20"], Names(&["ndcg_20"])),
    (
        &["precision", "recall", "confusionmatrix", "precisionscore", "recallscore"],
        Advice(
            "precision and recall are not measured by themselves: `micro_f1` and `macro_f1` are made of them; of links there is \
             `recall_20`",
        ),
    ),
    (&["valloss", "crossentropy", "nll"], Names(&["loss"])),
];

const LOSSES: &[Row] = &[
    (
        &[
            "nll",
            "nllloss",
            "ce",
            "crossentropyloss",
            "categoricalcrossentropy",
            "sparsecategoricalcrossentropy",
            "softmaxcrossentropy",
            "softmaxcrossentropywithlogits",
        ],
        Names(&["cross_entropy"]),
    ),
    (
        &[
            "bce",
            "bceloss",
            "bcewithlogits",
            "bcewithlogitsloss",
            "binarycrossentropywithlogits",
            "sigmoidcrossentropy",
            "binarycrossentropyloss",
            "logloss",
        ],
        Names(&["binary_cross_entropy"]),
    ),
    (&["l1", "l1loss", "meanabsoluteerror", "maeloss"], Names(&["mae"])),
    (&["l2", "l2loss", "mseloss", "meansquarederror", "rmse"], Names(&["mse"])),
    (&["huber", "huberloss", "smoothl1", "smoothl1loss"], Names(&["mse", "mae"])),
    (&["bprloss", "bayesianpersonalizedranking"], Names(&["bpr"])),
    (
        &["marginrankingloss", "marginloss", "triplet", "tripletloss", "hinge", "hingeloss", "maxmargin"],
        Names(&["margin_ranking"]),
    ),
    (&["nssa", "nssaloss", "adversarial", "adversarialloss", "selfadversarialloss"], Names(&["self_adversarial"])),
    (
        &["infonce", "nce", "sampledsoftmax", "softmaxloss", "ntxent"],
        Advice(
            "links are told from their own negative samples by `cross_entropy(OUTPUT, links)`; `std::contrast` has losses without links",
        ),
    ),
];

const OPTIMIZERS: &[Row] = &[
    (&["adamoptimizer", "torchadam", "sparseadam", "radam", "nadam", "adamax", "amsgrad"], Names(&["adam"])),
    (
        &["rmsprop", "adagrad", "adadelta", "lbfgs", "lion", "lamb"],
        Advice("there are `adam`, `adamw` and `sgd`; `adam` adapts its step to each parameter as this one does"),
    ),
    (&["momentum", "nesterov"], Advice("write `sgd(lr: 0.1, momentum: 0.9)`")),
    (&["gd", "gradientdescent"], Names(&["sgd"])),
];

const SCHEDULES: &[Row] = &[
    (&["cosineannealing", "cosineannealinglr", "cosinedecay", "cosinelr", "cosineschedule"], Names(&["cosine"])),
    (&["steplr", "multistep", "multisteplr", "stepdecay"], Names(&["step"])),
    (&["exponentiallr", "exponentialdecay", "exp"], Names(&["exponential"])),
    (
        &["linearwarmup", "warmupcosine", "cosinewarmup", "onecycle", "onecyclelr", "linearlr"],
        Advice("write `warmup(epochs: 10, then: cosine(epochs: 190))`"),
    ),
    (
        &["reducelronplateau", "plateau"],
        Advice("the rate does not follow the validation; `step(every: 50, factor: 0.5)` lowers it by and by"),
    ),
    (&["none", "constantlr", "lambdalr"], Names(&["constant"])),
];

const INITIALISERS: &[Row] = &[
    (&["xavier", "xavieruniform", "xaviernormal", "glorotuniform", "glorotnormal"], Names(&["glorot"])),
    (&["kaiming", "kaiminguniform", "kaimingnormal", "heuniform", "henormal"], Names(&["he"])),
    (&["zero", "zerosinit"], Names(&["zeros"])),
    (&["one", "onesinit"], Names(&["ones"])),
    (&["randn", "gaussian", "truncnormal", "truncatednormal", "randomnormal"], Names(&["normal"])),
    (&["rand", "random", "randomuniform"], Names(&["uniform"])),
    (&["const", "fill"], Names(&["constant"])),
    (&["orthogonal", "lecun", "lecununiform", "lecunnormal"], Names(&["glorot", "he"])),
];

const ENTRIES: &[Row] = &[
    (
        &["earlystopping", "earlystop", "patience", "earlystoppingpatience", "stoppingpatience"],
        Advice("early stopping is `stop when val.loss has not improved for {=20} epochs`"),
    ),
    (&["lr", "learningrate"], Advice("the learning rate belongs to the optimizer: `optimizer adam(lr: {=0.01})`")),
    (
        &["weightdecay", "wd", "l2", "l2reg"],
        Advice("weight decay belongs to the optimizer: `optimizer adam(lr: 0.01, weight_decay: {=5e-4})`"),
    ),
    (&["momentum"], Advice("momentum belongs to the optimizer: `optimizer sgd(lr: 0.1, momentum: {=0.9})`")),
    (&["batchsize", "bs", "minibatch"], Advice("write `batch {=512}`")),
    (
        &["numneighbors", "numneighbours", "fanouts", "neighbors", "neighborsampling", "numsamples", "samplesizes"],
        Advice("write `fanout {=[10, 10]}`: in-edges that a vertex of a batch draws, hop by hop"),
    ),
    (&["scheduler", "lrscheduler", "lrschedule", "lrdecay"], Advice("write `schedule {=cosine(epochs: 200)}`")),
    (&["warmup", "warmupepochs"], Advice("write `schedule warmup(epochs: {=10})`")),
    (
        &["gradclip", "clipgrad", "clipnorm", "clipgradnorm", "maxgradnorm", "gradientclipping", "gradclipnorm"],
        Advice("write `clip norm({=1.0})`"),
    ),
    (&["clipvalue", "clipgradvalue"], Advice("write `clip value({=1.0})`")),
    (
        &["device", "cuda", "gpu", "accelerator", "numworkers", "workers", "threads"],
        Advice("a model does not say where it is trained: that is an option of `hgnnc train`"),
    ),
    (&["numepochs", "nepochs", "maxepochs", "epoch", "iterations", "steps", "niter"], Advice("write `epochs {=200}`")),
    (&["optim", "optimiser"], Advice("write `optimizer {=adam(lr: 0.01)}`")),
    (
        &["lossfn", "criterion", "lossfunction", "objective", "lossfunc"],
        Advice("write `loss cross_entropy(OUTPUT, VertexType.label)`"),
    ),
    (&["metric", "eval", "evalmetric"], Advice("write `metrics {=accuracy}`")),
    (&["randomseed", "manualseed", "randomstate"], Advice("write `seed {=0}`")),
    (
        &["monitor", "savebest", "bestmodel", "checkpoint"],
        Advice("the epoch whose parameters are kept is chosen by `select val.loss`"),
    ),
    (
        &["classweights", "classweight"],
        Advice(
            "weights of classes belong to the loss: `loss cross_entropy(OUTPUT, VertexType.label, class_weights: {=[1, 2]})`",
        ),
    ),
    (
        &["labelsmoothing"],
        Advice("it belongs to the loss: `loss cross_entropy(OUTPUT, VertexType.label, label_smoothing: {=0.1})`"),
    ),
    (
        &["trainmask", "valmask", "testmask", "validationsplit", "valsplit", "trainratio", "validation", "trainsplit"],
        Advice("the dataset has the splits: `split \"NAME\"` names one"),
    ),
    (&["data", "datapath", "datadir", "root", "datafolder"], Advice("write `dataset {=\"FOLDER\"}`")),
    (&["verbose", "callbacks", "shuffle", "logevery", "loginterval"], Advice("there is nothing to set: leave it out")),
    (
        &["numnegatives", "negsampling", "negativesampling", "negsamplingratio", "numneg"],
        Advice("write `negatives uniform({=1})`"),
    ),
    (
        &["dropout", "hidden", "hiddendim", "numlayers", "heads", "numheads", "hiddenchannels", "activation"],
        Advice("this belongs to the model: it is an argument of its layers"),
    ),
    (&["amp", "mixedprecision", "dtype", "precision", "fp16"], Advice("numbers are 32 bits wide: leave it out")),
];

const FIELD_TYPES: &[Row] = &[
    (
        &[
            "float32",
            "float",
            "double",
            "float64",
            "f64",
            "f16",
            "tensor",
            "floattensor",
            "real",
            "vector",
            "array",
            "dense",
            "matrix",
            "feature",
            "features",
        ],
        Advice("features are `f32{=[128]}`: so many numbers for each vertex"),
    ),
    (
        &[
            "int",
            "int32",
            "int64",
            "i32",
            "i64",
            "long",
            "longtensor",
            "label",
            "labels",
            "category",
            "categorical",
            "enum",
            "classes",
        ],
        Advice("a label that is one of several classes is `class{=[7]}`"),
    ),
    (
        &["boolean", "binary", "multihot", "multiclass", "labelset"],
        Advice("a label that is any of several at once is `multilabel{=[20]}`"),
    ),
    (&["regression", "y", "value", "scalar"], Advice("a real number to predict is `target{=[1]}`")),
    (&["sparsetensor", "csr", "bagofwords", "bow", "coo"], Advice("sparse features are `f32{=[1902]} sparse`")),
    (&["identity", "eye", "id", "index"], Advice("vertices that are told apart by their numbers have `onehot`")),
    (&["emb", "learned", "learnable", "trainable", "lookup"], Advice("learned features are `embedding{=[64]}`")),
    (&["string", "str", "text"], Advice("text is no feature: the dataset has numbers made of it, as `f32{=[128]}`")),
];

const DECLARATIONS: &[Row] = &[
    (&["node", "nodes", "nodetype", "ntype", "entity", "vertextype", "vertices"], Names(&["vertex"])),
    (&["edge", "edges", "edgetype", "etype", "rel", "link", "canonicaletype", "relationship"], Names(&["relation"])),
    (&["path", "meta", "metapaths"], Names(&["metapath"])),
    (
        &["label", "labels", "feature", "features"],
        Advice(
            "features and labels stand in the braces of their vertex type: `vertex Paper { x: f32[128], topic: class[7] }`",
        ),
    ),
];

const ITEMS: &[Row] = &[
    (
        &["import", "include", "open", "from", "require", "mod"],
        Advice("other files and the library are imported with `use`: `use \"layers.hgnn\"`, `use std::han::HanConv`"),
    ),
    (&["graph", "heterograph", "heterodata", "data"], Advice("a graph is declared as `schema NAME { … }`")),
    (
        &["def", "fn", "func", "function", "struct", "class", "module", "net", "network"],
        Advice("layers start with `layer`, models with `model`"),
    ),
    (
        &["training", "trainer", "fit", "config", "optimizer", "compile"],
        Advice("training is declared as `train MODEL { … }`"),
    ),
    (&["let", "var", "val", "param"], Advice("outside of models and layers, values are declared with `const`")),
];

const BLOCKS: &[Row] = &[
    (
        &[
            "message",
            "messages",
            "messagefunc",
            "reduce",
            "reducefunc",
            "propagate",
            "applyedges",
            "edge",
            "edges",
            "attention",
        ],
        Names(&["aggregate"]),
    ),
    (&["transform", "node", "nodes", "vertex", "vertices", "init", "linear"], Names(&["project"])),
    (&["update", "updatefunc", "combine", "readout", "applynodes", "output"], Names(&["fuse"])),
    (&["forward", "def", "fn"], Advice("the body of a layer is made of the blocks `project`, `aggregate` and `fuse`")),
];

const KINDS: &[Row] = &[
    (&["int", "i32", "int32", "i64", "int64", "uint", "usize", "integer", "size"], Names(&["dim"])),
    (&["float", "f32", "f64", "float32", "float64", "double", "number"], Names(&["real"])),
    (&["boolean", "flag"], Names(&["bool"])),
    (&["function", "callable", "str", "string", "activation", "act"], Names(&["fn"])),
];

const SCOPES: &[Row] = &[
    (
        &["incomingedges", "edges", "neighbors", "neighbours", "messages", "mailbox", "sources", "src", "inneighbors"],
        Names(&["in_edges"]),
    ),
    (&["nodes", "node", "batch", "graph", "rows", "all", "vertex"], Names(&["vertices"])),
    (&["features", "channels", "columns", "lastdim", "dim", "width", "classes"], Names(&["last"])),
    (&["heads", "head", "firstdim"], Names(&["first"])),
];

const ENDS: &[Row] = &[
    (
        &["mid", "middle", "between", "via", "path"],
        Advice(
            "an edge of a metapath joins its two ends, whatever lies between: layers over its relations, one after the other, see each vertex on the way",
        ),
    ),
    (&["u", "j", "source", "from", "sender", "head", "start", "s"], Names(&["src"])),
    (&["v", "i", "target", "to", "receiver", "tail", "end", "d", "destination"], Names(&["dst"])),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_folded_and_stand_once() {
        for place in Place::ALL {
            let mut words: Vec<&str> = rows(place).flat_map(|(words, _)| words.iter().copied()).collect();
            let all = words.len();
            assert!(words.iter().all(|word| fold(word) == *word), "{place:?}: {words:?}");
            words.sort_unstable();
            words.dedup();
            assert_eq!(all, words.len(), "{place:?} has a word twice");
        }
    }

    #[test]
    fn advice_takes_the_value_that_was_written() {
        let Some(Meant::Advice(advice)) = meant(Place::Entry, "early_stopping") else { panic!("has advice") };
        assert!(fill(advice, Some("7")).contains("for 7 epochs"));
        assert!(fill(advice, None).contains("for 20 epochs"));
        // Literal braces of the language remain.
        assert_eq!(fill("vertex Paper { x: onehot }", Some("7")), "vertex Paper { x: onehot }");
    }
}
