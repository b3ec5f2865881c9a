//! The table of diagnostic codes, one line each.
//!
//! E01 text, E02 names, E03 types and shapes, E04 graph schema, metapaths and datasets, E05 training and
//! targets, W warnings. A code never changes its meaning; `hgnnc explain CODE` prints its explanation.

use std::fmt;

use crate::Severity;

/// A stable diagnostic code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(u16);

struct Entry {
    name: &'static str,
    title: &'static str,
    explanation: &'static str,
}

impl Code {
    /// The printed form, such as `E0301`.
    pub fn name(self) -> &'static str {
        TABLE[self.0 as usize].name
    }

    /// A short description of the problem.
    pub fn title(self) -> &'static str {
        TABLE[self.0 as usize].title
    }

    /// The explanation with examples, as Markdown.
    pub fn explanation(self) -> &'static str {
        TABLE[self.0 as usize].explanation
    }

    /// The severity: codes with E are errors, codes with W are warnings.
    pub fn severity(self) -> Severity {
        if self.name().starts_with('W') { Severity::Warning } else { Severity::Error }
    }

    /// Finds a code by its name, ignoring case.
    pub fn find(name: &str) -> Option<Code> {
        Code::all().find(|code| code.name().eq_ignore_ascii_case(name))
    }

    /// All codes, in the order of the table.
    pub fn all() -> impl Iterator<Item = Code> {
        (0..TABLE.len()).map(|index| Code(index as u16))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! codes {
    ($($name:ident $code:literal $title:literal)*) => {
        #[allow(clippy::upper_case_acronyms, non_camel_case_types)]
        #[repr(u16)]
        enum Position { $($name),* }

        $(#[doc = $title] pub const $name: Code = Code(Position::$name as u16);)*

        const TABLE: &[Entry] = &[$(Entry {
            name: $code,
            title: $title,
            explanation: include_str!(concat!("../explain/", $code, ".md")),
        }),*];
    };
}

codes! {
    UNKNOWN_CHARACTER "E0101" "character that no token starts with"
    UNTERMINATED_STRING "E0102" "string without a closing quote"
    BAD_NUMBER "E0103" "malformed number"
    UNEXPECTED_TOKEN "E0104" "unexpected token"
    UNEXPECTED_END "E0105" "file ends in the middle of a construct"
    NUMBER_OUT_OF_RANGE "E0106" "number out of range"
    BAD_ESCAPE "E0107" "unknown escape in a string"
    TOO_DEEP "E0108" "expression nested too deeply"
    TOO_LARGE "E0109" "program too large"
    UNKNOWN_NAME "E0201" "unknown name"
    DUPLICATE_NAME "E0202" "name declared twice"
    UNKNOWN_VERTEX_TYPE "E0203" "unknown vertex type"
    UNKNOWN_RELATION "E0204" "unknown relation, metapath or family"
    UNKNOWN_FIELD "E0205" "unknown field"
    UNKNOWN_LAYER "E0206" "unknown layer"
    UNKNOWN_MODULE "E0207" "unknown module or item in `use`"
    UNKNOWN_FUNCTION "E0208" "unknown function"
    UNKNOWN_ARGUMENT "E0209" "unknown argument"
    MISSING_ARGUMENT "E0210" "missing argument"
    EXTRA_ARGUMENT "E0211" "argument given twice or too many"
    UNKNOWN_CHOICE "E0212" "unknown optimizer, schedule, loss, metric or initialiser"
    RESERVED_NAME "E0213" "name has a meaning of its own"
    UNKNOWN_SCHEMA "E0214" "unknown schema"
    UNKNOWN_MODEL "E0215" "unknown model"
    IMPORT_CYCLE "E0216" "files that import each other"
    MODULE_FILE "E0217" "file that cannot be imported"
    LAYER_OF_ITSELF "E0218" "layer that uses itself"
    WIDTH_MISMATCH "E0301" "product of unequal widths"
    SHAPE_MISMATCH "E0302" "element-wise operation on different shapes"
    EDGE_VALUE_PER_VERTEX "E0303" "edge value where one row per vertex is needed"
    DIFFERENT_SPACES "E0304" "values with rows for different things"
    MISSING_REDUCTION "E0305" "reduction over edges is missing"
    WRONG_SCOPE "E0306" "reduction over a scope that the value does not have"
    MISSING_ACROSS "E0307" "value per semantic graph used without `across`"
    NOT_CONSTANT "E0308" "compile-time number expected"
    BAD_DIMENSION "E0309" "dimension is not a positive whole number"
    BAD_RESHAPE "E0310" "reshape to another number of elements"
    ARGUMENT_RANGE "E0311" "argument outside its range"
    RESULT_MISMATCH "E0312" "result differs from its declared type"
    SPARSE_VALUE "E0313" "operation that would fill the zeros of sparse features"
    ONE_HOT_VALUE "E0314" "one-hot features used other than in a projection"
    LABEL_AS_VALUE "E0315" "label used as a value"
    LABEL_LOSS_MISMATCH "E0316" "label type does not fit the loss"
    CLASS_COUNT "E0317" "output width differs from the number of classes"
    BAD_CONCAT "E0318" "concatenation of values that do not join"
    MISSING_RESULT "E0319" "layer does not assign its result"
    NOT_PROJECTED "E0320" "vertex type that nothing provides a value for"
    SHARED_SHAPE "E0321" "shared parameter would need two shapes"
    NOT_BOOLEAN "E0322" "`true` or `false` expected"
    BAD_DECOMPOSITION "E0323" "decomposition does not fit the parameter"
    NOT_A_VALUE "E0324" "not usable as a value here"
    NOT_A_GRAPH "E0325" "semantic graph expected"
    MODEL_ONLY "E0326" "construct not allowed here"
    DIVISION_BY_ZERO "E0327" "division by 0"
    BAD_SLICE "E0328" "part of a dimension that it does not have"
    TIME_VALUE "E0329" "time used other than in a difference"
    ROWS_PER_GRAPH "E0330" "rows for each semantic graph of vertices where none ends"
    METAPATH_JOIN "E0401" "relations of a metapath do not join"
    BIPARTITE_SELF_LOOP "E0402" "self loops on a relation between different types"
    FAMILY_TYPES "E0403" "semantic graph does not fit the layer"
    EMPTY_FAMILY "E0404" "family without semantic graphs"
    DUPLICATE_GRAPH "E0405" "semantic graph listed twice"
    NOT_COUNTED "E0406" "path count of a graph that is not counted"
    NO_EDGE_DATA "E0407" "edge data that the relation does not declare"
    NO_INCOMING "E0408" "vertex type without incoming semantic graph"
    NO_INSTANCES "E0409" "path instances of a semantic graph that has none"
    FOLD_WITHOUT_LIMIT "E0410" "recurrence over in-edges without a limit"
    NO_SUCH_POSITION "E0411" "vertex or edge that a path does not have"
    NO_REVERSE "E0412" "row of a source for a semantic graph that its family lacks"
    DATA_VERTEX_TYPE "E0420" "vertex type missing in the dataset"
    DATA_RELATION "E0421" "relation missing in the dataset"
    DATA_RELATION_ENDS "E0422" "relation joins other types in the dataset"
    DATA_WIDTH "E0423" "features have another width in the dataset"
    DATA_CLASSES "E0424" "label has another number of classes in the dataset"
    DATA_FEATURES "E0425" "features missing in the dataset"
    DATA_SPLIT "E0426" "split missing in the dataset"
    DATA_LABEL "E0427" "label missing or of another kind in the dataset"
    DATA_LAYOUT "E0428" "features are stored otherwise in the dataset"
    DATA_EDGE "E0429" "edge data missing in the dataset"
    UNSEEN_VERTEX "E0430" "vertex that a trained model has no row for"
    DATA_TIME "E0431" "times missing in the dataset, or too far apart"
    TRAIN_ENTRY "E0501" "train block lacks an entry or has it twice"
    METRIC_TASK "E0502" "metric does not fit the loss"
    LABEL_VERTEX "E0503" "output and label belong to different vertex types"
    NOTHING_TO_TRAIN "E0504" "loss depends on no parameter"
    NO_MODEL "E0505" "file declares no model"
    UNKNOWN_SWITCH "E0506" "unknown pass, fusion or kernel feature"
    FANOUT_HOPS "E0507" "number of fan-outs differs from the number of hops"
    FANOUT_GRAPH "E0508" "fan-out of a semantic graph that the loss does not see"
    NOT_ON_BATCH "E0509" "model that cannot be trained on batches"
    PAIR_VALUE "E0510" "value of pairs to score used otherwise"
    LINK_LOSS "E0511" "loss that does not fit links"
    FANOUT_KIND "E0512" "kind of fan-out that a semantic graph cannot have"
    NOT_REUSED "E0513" "model whose values cannot be reused by batches"
    LOSS_TERM "E0514" "loss that is no sum of terms with constant weights"
    EDGE_ROWS "E0515" "edges to predict used otherwise"
    LABEL_LEAK "E0516" "output that may read the label that it is compared with"
    TRAIN_LABELS "E0517" "labels read as values where they are none"
    CUTOFF "E0518" "cutoff that the model does not keep"
    NOT_HELD_OUT "E0519" "held-out links asked of a metapath"
    UNUSED_PARAM "W0001" "parameter is never used"
    UNUSED_LET "W0002" "value is never used"
    UNUSED_DECLARATION "W0003" "declaration is never used"
    UNUSED_IMPORT "W0004" "import is never used"
    NEVER_DESTINATION "W0005" "vertex type receives no messages"
    NO_GRADIENT "W0006" "parameter does not influence the loss"
    EMPTY_RELATION "W0007" "relation without edges"
    UNUSED_ARGUMENT "W0008" "layer argument is never used"
    LINK_LEAK "W0009" "metapath that walks links to predict"
    USELESS_ALLOW "W0010" "`allow` that silences nothing"
    BOUNDED_LOGITS "W0011" "softmax, sigmoid or another bounded function on logits"
    DROPPED_LOGITS "W0012" "dropout on logits"
    ZERO_RATE "W0013" "learning rate of 0"
    LONG_PATIENCE "W0014" "patience that is not below the number of epochs"
    SHORT_SCHEDULE "W0015" "schedule that ends long before training"
    SOFTMAX_OF_ONE "W0016" "softmax over one element"
    UNIFORM_ATTENTION "W0017" "attention whose score is the same for all in-edges"
    LONG_FOLD "W0018" "recurrence of many steps"
    FANOUT_PRECOMPUTED "W0019" "fan-out of a hop that is precomputed"
}
