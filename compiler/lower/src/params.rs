//! Parameters: names, decompositions, initial values.

use hgnnc_diag::Span;
use hgnnc_hir::{self as hir, Decomposition, Entry, Features, Initialiser, ParamId, ParamNames, UniqueNames};
use hgnnc_ir::dataflow::{Init, ParamDecl};
use hgnnc_ir::{Dim, Op, Param, Value};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use crate::value::{Val, Values};
use crate::{Instance, dims};

/// The names of the parameters of a program.
#[derive(Default)]
pub struct Params {
    /// The declaration of each parameter in the source.
    pub spans: Vec<Span>,
    /// Each name of a parameter, and each of its prefixes that ends before a dot, with the parameters that begin so.
    starts: FxHashMap<String, Start>,
    /// Numbers of the parts behind the last dot of names. A family has the same ones in each layer.
    ends: FxHashMap<String, u32>,
    /// The number of the first base that was free for a path and members.
    free_bases: FxHashMap<(String, Vec<String>), usize>,
    names: UniqueNames,
    /// The parameters of each statement of the model, in the order of evaluation; the last one of each name.
    statements: FxHashMap<String, Vec<Param>>,
    /// Those of the statement that is evaluated.
    made: Vec<Param>,
    /// Those that the statement has of another.
    shared: Option<Shared>,
}

/// Parameters of another statement, which a statement has in the same order.
struct Shared {
    rest: std::vec::IntoIter<Param>,
    /// Those that have been taken, by their names in this statement.
    taken: FxHashMap<String, Param>,
}

/// The parameters whose names are a text, or start with it and a dot.
struct Start {
    /// The declaration of the first of them.
    first: Span,
    /// Are others declared elsewhere?
    others: bool,
    /// The one whose name is the text.
    param: Option<Param>,
    /// The parts behind the last dot, of those whose names go on.
    ends: FxHashSet<u32>,
}

impl Params {
    /// Takes a unique name for the next parameter, declared at `span`.
    fn take(&mut self, name: &str, span: Span) -> String {
        let name = self.names.take(name);
        let param = Param::new(self.spans.len());
        let end = name.rfind('.').map_or("", |dot| &name[dot + 1..]);
        let next = self.ends.len() as u32;
        let end = match self.ends.get(end) {
            Some(&known) => known,
            None => *self.ends.entry(end.to_owned()).or_insert(next),
        };
        for dot in name.match_indices('.').map(|(dot, _)| dot) {
            self.start(&name[..dot], span).ends.insert(end);
        }
        self.start(&name, span).param = Some(param);
        self.spans.push(span);
        name
    }

    /// The entry of `text` in `starts`, after a parameter declared at `span` was added to it.
    fn start(&mut self, text: &str, span: Span) -> &mut Start {
        // Twice, since most texts are known and need no copy.
        if !self.starts.contains_key(text) {
            let new = Start { first: span, others: false, param: None, ends: FxHashSet::default() };
            return self.starts.entry(text.to_owned()).or_insert(new);
        }
        let known = self.starts.get_mut(text).expect("it was just found");
        known.others |= known.first != span;
        known
    }

    /// A statement begins, which may have the parameters of another.
    pub fn begin(&mut self, sharing: Option<&str>) {
        self.made.clear();
        self.shared = sharing
            .and_then(|of| self.statements.get(of))
            .map(|params| Shared { rest: params.clone().into_iter(), taken: FxHashMap::default() });
    }

    /// The statement of this name ends.
    pub fn end(&mut self, name: &str) {
        self.statements.insert(name.to_owned(), std::mem::take(&mut self.made));
        self.shared = None;
    }

    /// The parameter of this name, declared at `span`.
    fn declared(&self, name: &str, span: Span) -> Option<Param> {
        match &self.shared {
            Some(shared) => shared.taken.get(name).copied(),
            None => self.named(name).filter(|param| self.spans[param.index()] == span),
        }
    }

    /// The parameter of this name.
    fn named(&self, name: &str) -> Option<Param> {
        match &self.shared {
            Some(shared) => shared.taken.get(name).copied(),
            None => self.starts.get(name)?.param,
        }
    }

    /// The next parameter of the statement whose parameters this one has.
    fn next_shared(&mut self, name: &str) -> Option<Param> {
        let shared = self.shared.as_mut()?;
        let param = shared.rest.next()?;
        shared.taken.insert(name.to_owned(), param);
        Some(param)
    }

    /// `base`, or `base_2`, …: the first that no parameter of another declaration has as its name or as its start.
    fn unique(&self, base: String, span: Span) -> String {
        let taken = |name: &str| self.starts.get(name).is_some_and(|start| start.others || start.first != span);
        let mut unique = base.clone();
        let mut count = 1;
        while taken(&unique) {
            count += 1;
            unique = format!("{base}_{count}");
        }
        unique
    }

    /// `path`, or `path_2`, …: the first under which no member has parameters yet.
    fn free_base(&mut self, path: &str, suffixes: &[String]) -> String {
        let key = (path.to_string(), suffixes.to_vec());
        // Names never become free again: those below were taken the last time.
        let mut number = self.free_bases.get(&key).copied().unwrap_or(1);
        // Without a suffix, any member takes the base.
        let takes = |start: &Start, suffix: &String| {
            let end = suffix.rsplit('.').next().unwrap_or_default();
            let known = || self.ends.get(end).is_some_and(|end| start.ends.contains(end));
            !start.ends.is_empty() && (end.is_empty() || known())
        };
        let base = loop {
            let base = if number == 1 { path.to_string() } else { format!("{path}_{number}") };
            let start = self.starts.get(&base);
            if !start.is_some_and(|start| suffixes.iter().any(|suffix| takes(start, suffix))) {
                break base;
            }
            number += 1;
        };
        self.free_bases.insert(key, number);
        base
    }
}

/// The names of the parameters of a function for one value: `out.weight.Paper`.
pub struct Path {
    base: String,
    suffix: String,
}

impl Path {
    /// The parameter of this name.
    pub fn leaf(&self, leaf: &str) -> String {
        format!("{}.{leaf}{}", self.base, self.suffix)
    }
}

impl Instance<'_> {
    /// One base for all values, so that `out.weight.Paper` and `out.weight.Author` belong together.
    pub fn paths_of(&mut self, names: &ParamNames) -> Vec<Path> {
        let path = match (self.prefix.is_empty(), names.statement.is_empty()) {
            (true, _) => names.statement.clone(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}.{}", self.prefix, names.statement),
        };
        let suffixes: Vec<String> = names.entries.iter().map(|entry| self.suffix(*entry)).collect();
        let base = self.params.free_base(&path, &suffixes);
        suffixes.into_iter().map(|suffix| Path { base: base.clone(), suffix }).collect()
    }

    /// The end of the name of an entry: `.Paper`.
    fn suffix(&self, entry: Entry) -> String {
        let name = match entry {
            Entry::Shared => return String::new(),
            Entry::Type(vertex) | Entry::Src(vertex) | Entry::Dst(vertex) => {
                &self.flow.vertex_types[vertex.index()].name
            }
            Entry::Graph(graph) => &self.flow.graphs[graph.index()].name,
            Entry::Relation(relation) => &self.flow.relations[relation as usize].name,
        };
        [".", name].concat()
    }

    /// Declares a parameter and returns its value.
    pub fn parameter(&mut self, name: String, dims: Vec<Dim>, init: Init, decay: bool, span: Span) -> Val {
        let param = match self.params.next_shared(&name) {
            Some(shared) => shared,
            None => self.new_parameter(&name, dims, init, decay, span),
        };
        self.params.made.push(param);
        Val::Stored(self.emit(Op::Param(param), &[], span))
    }

    fn new_parameter(&mut self, name: &str, dims: Vec<Dim>, init: Init, decay: bool, span: Span) -> Param {
        let name = self.params.take(name, span);
        self.flow.declare_param(ParamDecl::new(name, dims, init, decay))
    }

    /// The table of learned rows of a vertex type.
    pub fn embedding(&mut self, features: &Features, dims: Vec<Dim>, init: Initialiser) -> Value {
        let init = initial(init, &dims);
        // It belongs to the schema, wherever it is read first.
        let param = self.new_parameter(&features.name, dims, init, true, features.span);
        self.emit(Op::Param(param), &[], features.span)
    }

    /// The entries of a declared parameter.
    pub fn declare(&mut self, param: ParamId, entries: &[Entry], ty: &hir::Type) -> Values {
        let decl = &self.model.params[param.index()];
        let path = match (self.prefix.as_str(), decl.block) {
            ("", _) => decl.name.clone(),
            (prefix, Some(block)) => format!("{prefix}.{block}.{}", decl.name),
            (prefix, None) => format!("{prefix}.{}", decl.name),
        };
        let base = self.params.unique(path, decl.span);
        let mut first = FxHashMap::with_capacity_and_hasher(entries.len(), FxBuildHasher);
        let mut values: Vec<Val> = Vec::with_capacity(entries.len());
        for (entry, row) in entries.iter().zip(ty.rows()) {
            let first = *first.entry(*entry).or_insert(values.len());
            let known = values.get(first).cloned();
            values.push(known.unwrap_or_else(|| self.entry(decl, &base, *entry, dims(row))));
        }
        match ty {
            hir::Type::One(_) => Values::One(values.swap_remove(0)),
            hir::Type::PerGraph(_) | hir::Type::PerType(_) | hir::Type::ByGraph(_) => Values::PerGraph(values),
        }
    }

    fn entry(&mut self, decl: &hir::Param, base: &str, entry: Entry, dims: Vec<Dim>) -> Val {
        let name = [base, &self.suffix(entry)].concat();
        // Blocks that run for several vertex types share a parameter.
        if decl.decomposition == Decomposition::None
            && let Some(param) = self.params.declared(&name, decl.span)
        {
            return Val::Stored(self.emit(Op::Param(param), &[], decl.span));
        }
        let before = self.flow.params.len();
        let value = match decl.decomposition {
            Decomposition::None => {
                let init = initial(decl.init, &dims);
                self.parameter(name, dims, init, decl.decay, decl.span)
            }
            Decomposition::Basis(number) => self.basis(decl, (&name, base), dims, number.dim.resolved()),
            Decomposition::Blocks(number) => self.blocks(decl, name, dims, number.dim.resolved()),
        };
        if let Entry::Graph(graph) = entry {
            // The bases of a decomposition belong to all semantic graphs.
            let bases = format!("{base}.bases");
            let own = self.flow.params[before..].iter_mut().filter(|decl| decl.name != bases);
            own.for_each(|decl| decl.of = Some(graph));
        }
        value
    }

    /// A block-diagonal matrix `[in, out]`.
    fn blocks(&mut self, decl: &hir::Param, name: String, dims: Vec<Dim>, number: Dim) -> Val {
        let extent = |dim: Dim| dim.fixed().expect("the verifier refuses blocks of other widths");
        let [rows, columns] = [dims[0], dims[1]].map(|dim| Dim::Fixed(extent(dim) / extent(number)));
        let blocked = vec![number, rows, columns];
        let init = match decl.init {
            Initialiser::Glorot { .. } => Initialiser::Glorot { batch: 1 },
            Initialiser::He { .. } => Initialiser::He { batch: 1 },
            other => other,
        };
        let init = initial(init, &blocked);
        let blocks = self.parameter(name, blocked, init, decl.decay, decl.span).stored();
        Val::BlockDiagonal { blocks, dims: [dims[0], dims[1]] }
    }

    /// `w = Σ_b a_b V_b` with the bases `V` shared by the family (Schlichtkrull et al. 2018, eq. 3).
    fn basis(&mut self, decl: &hir::Param, (name, base): (&str, &str), dims: Vec<Dim>, number: Dim) -> Val {
        let bases_name = format!("{base}.bases");
        let bases = match self.params.named(&bases_name) {
            Some(param) => self.emit(Op::Param(param), &[], decl.span),
            None => {
                let shape = [&[number], &dims[..]].concat();
                self.parameter(bases_name, shape, initial(decl.init, &dims), decl.decay, decl.span).stored()
            }
        };
        let leaf = name.strip_prefix(base).unwrap_or(name);
        let init = Init::Glorot { fan_in: Dim::Fixed(1), fan_out: number.fixed().unwrap_or(1) };
        let name = format!("{base}.coefficients{leaf}");
        let coefficients = self.parameter(name, vec![number], init, decl.decay, decl.span).stored();
        Val::Stored(self.emit(Op::MatMul { batch: 0 }, &[coefficients, bases], decl.span))
    }
}

/// The initial values of a shape. Fans: the first dimension behind the batch dimensions comes in, the product of the
/// others goes out. A vector goes out of a single number.
fn initial(initialiser: Initialiser, shape: &[Dim]) -> Init {
    let batch = match initialiser {
        Initialiser::Constant(number) => return Init::Constant(number),
        Initialiser::Uniform(bound) => return Init::Uniform(bound),
        Initialiser::Normal(std) => return Init::Normal { std },
        Initialiser::Glorot { batch } | Initialiser::He { batch } => batch.min(shape.len()),
    };
    let (fan_in, fan_out) = match &shape[batch..] {
        [] => (Dim::Fixed(1), 1),
        [only] => (Dim::Fixed(1), only.fixed().unwrap_or(1)),
        [first, rest @ ..] => (*first, rest.iter().filter_map(|dim| dim.fixed()).product()),
    };
    match initialiser {
        Initialiser::He { .. } => Init::He { fan_in },
        _ => Init::Glorot { fan_in, fan_out },
    }
}
