//! Schemas: vertex types, relations, metapaths and families, resolved and joined with types checked.

mod graphs;

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use hgnnc_diag::{Diagnostic, Diagnostics, Span, codes};
use hgnnc_hir::Initialiser;
use hgnnc_ir::dataflow::Step;
use hgnnc_syntax::ast;

use crate::consts::Consts;
use crate::initialiser::Written;
use crate::names::{did_you_mean, duplicate};

pub use graphs::{EDGES, EdgesKey, GraphRef, LayerGraphs, duplicate_graph};

/// Semantic graphs that all families and all uses of layers of a model may name together, each counted once for itself
/// and once for each of its steps. Lists of lists multiply what is written.
const MAX_NAMED: usize = 1 << 22;

/// A resolved schema. Everything in it is named by its position.
#[derive(Debug, Default)]
pub struct Schema {
    /// The name in the declaration.
    pub name: String,
    /// Vertex types, by position.
    pub vertices: Vec<VertexInfo>,
    /// Relations, by position; steps of metapaths refer to it.
    pub relations: Vec<RelationInfo>,
    /// Metapaths, their steps resolved.
    pub metapaths: Vec<MetapathInfo>,
    /// Families, their members resolved.
    pub families: Vec<FamilyInfo>,
    /// Names whose declarations are wrong: reported once, and not again where they are used. Fields are
    /// `Paper.x`.
    pub broken: HashSet<String>,
    /// The constants of its file.
    consts: Consts,
    /// The declaration of each name.
    index: HashMap<String, Named>,
    /// The part of [`MAX_NAMED`] that is used up.
    named: Cell<usize>,
}

/// The kind and position of a declaration of a schema.
#[derive(Debug, Clone, Copy)]
enum Named {
    Vertex(usize),
    Relation(usize),
    Metapath(usize),
    Family(usize),
}

/// A vertex type and its fields.
#[derive(Debug)]
pub struct VertexInfo {
    /// Name in the model.
    pub name: String,
    /// Name in the dataset.
    pub dataset_name: String,
    /// The place that gives this name: behind `from`, or the declared name.
    pub dataset_name_span: Span,
    /// Its name in the declaration.
    pub span: Span,
    /// Features and labels of its vertices.
    pub fields: Vec<FieldInfo>,
    /// Mentioned anywhere outside its declaration.
    pub used: Cell<bool>,
}

impl VertexInfo {
    /// The fields that hold features, in the order of their declarations. The first one is what `features` has of the
    /// vertex type.
    pub fn features(&self) -> impl Iterator<Item = &FieldInfo> {
        self.fields.iter().filter(|f| f.kind.is_feature())
    }

    /// The field that holds its time.
    pub fn time(&self) -> Option<&FieldInfo> {
        self.fields.iter().find(|f| f.kind == FieldKind::Time)
    }

    /// The field that is the time as of which a vertex is read.
    pub fn cutoff(&self) -> Option<&FieldInfo> {
        self.fields.iter().find(|f| f.kind == FieldKind::Cutoff)
    }

    /// The fields whose values the dataset has, as features.
    pub fn matrices(&self) -> impl Iterator<Item = &FieldInfo> {
        self.fields.iter().filter(|f| matches!(f.kind, FieldKind::Real { .. }))
    }

    /// The dataset's field that a matrix is, before a dataset is known; `None` for its `features`.
    pub fn dataset_field(&self, field: &FieldInfo) -> Option<String> {
        match &field.dataset_name {
            Some(name) => Some(name.clone()).filter(|name| name != FEATURES),
            None if self.matrices().nth(1).is_none() => None,
            None => Some(field.name.clone()),
        }
    }
}

/// The name of the features of a vertex type that have no name of their own in the dataset.
pub const FEATURES: &str = "features";

/// A field of a vertex type or relation.
#[derive(Debug, Clone)]
pub struct FieldInfo {
    /// Its name in the model.
    pub name: String,
    /// Its name in the declaration.
    pub span: Span,
    /// Its type in the declaration.
    pub ty_span: Span,
    /// The kind of its values, with their width.
    pub kind: FieldKind,
    /// The initial values of learned rows.
    pub init: Initialiser,
    /// Name in the dataset, where one is written.
    pub dataset_name: Option<String>,
    /// Read by the model as a value, of a vertex type.
    pub used: Cell<bool>,
}

/// The kind of values that a field holds, and their width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A single number: the weight of an edge.
    Number,
    /// Features as a matrix of f32.
    Real {
        /// Columns of the matrix.
        width: usize,
        /// Is the matrix stored as CSR?
        sparse: bool,
    },
    /// The identity matrix as features.
    OneHot,
    /// A learnable row per vertex.
    Embedding(usize),
    /// One class of several.
    Class(usize),
    /// Several labels at once.
    MultiLabel(usize),
    /// Real numbers to predict.
    Target(usize),
    /// A time, of which differences are numbers.
    Time,
    /// The time as of which a vertex without a time is read, under a cutoff.
    Cutoff,
}

impl FieldKind {
    /// Can it be an input of a layer?
    pub fn is_feature(self) -> bool {
        match self {
            FieldKind::Number | FieldKind::Real { .. } | FieldKind::OneHot | FieldKind::Embedding(_) => true,
            FieldKind::Class(_) | FieldKind::MultiLabel(_) | FieldKind::Target(_) => false,
            FieldKind::Time | FieldKind::Cutoff => false,
        }
    }

    /// Is it what an output is compared with?
    pub fn is_label(self) -> bool {
        !self.is_feature() && !self.is_time()
    }

    /// Is it a time, of the dataset or of a cutoff?
    pub fn is_time(self) -> bool {
        matches!(self, FieldKind::Time | FieldKind::Cutoff)
    }
}

/// A relation: edges from one vertex type to another.
#[derive(Debug)]
pub struct RelationInfo {
    /// Name in the model.
    pub name: String,
    /// Name in the dataset.
    pub dataset_name: String,
    /// The place that gives this name: behind `from`, or the declared name.
    pub dataset_name_span: Span,
    /// Position of the source type.
    pub src: usize,
    /// Position of the destination type.
    pub dst: usize,
    /// Its name in the declaration.
    pub span: Span,
    /// Edge weight, features and labels.
    pub fields: Vec<FieldInfo>,
    /// The name of its edges as rows: `edges(rates)`.
    pub edges_name: String,
    /// Mentioned anywhere outside its declaration.
    pub used: Cell<bool>,
}

impl RelationInfo {
    /// The field that holds the times of its edges.
    pub fn time(&self) -> Option<&FieldInfo> {
        self.fields.iter().find(|f| f.kind == FieldKind::Time)
    }
}

/// A metapath: a path of relations.
#[derive(Debug)]
pub struct MetapathInfo {
    /// Its name in the model.
    pub name: String,
    /// Path instances instead of distinct pairs.
    pub counted: bool,
    /// Position of the first type.
    pub src: usize,
    /// Position of the last type.
    pub dst: usize,
    /// The hops of the path, from `src` to `dst`.
    pub steps: Vec<Step>,
    /// Its name in the declaration.
    pub span: Span,
    /// Mentioned anywhere outside its declaration.
    pub used: Cell<bool>,
}

/// A family: semantic graphs that a layer runs over.
#[derive(Debug)]
pub struct FamilyInfo {
    /// Its name in the model.
    pub name: String,
    /// Its name in the declaration.
    pub span: Span,
    /// Its members, in the order of the source.
    pub members: Vec<GraphRef>,
    /// Mentioned anywhere outside its declaration.
    pub used: Cell<bool>,
}

impl Schema {
    /// Resolves a schema; what is wrong with it is reported and left out.
    pub fn resolve(schema: &ast::Schema, consts: &Consts, diagnostics: &mut Diagnostics) -> Schema {
        let mut resolved = Schema { name: schema.name.name.clone(), consts: consts.clone(), ..Schema::default() };
        let mut seen: HashMap<String, Span> = HashMap::new();
        let mut declare = |name: &ast::Ident, what: &str, diagnostics: &mut Diagnostics| {
            if diagnostics.has_enough() {
                return false;
            }
            if let Some(first) = seen.get(&name.name) {
                diagnostics.push(duplicate(what, name, *first));
                return false;
            }
            if ["relations", "reverses", "metapaths", "features", "vertices"].contains(&name.name.as_str()) {
                diagnostics.push(
                    Diagnostic::at(
                        codes::RESERVED_NAME,
                        name.span,
                        format!("`{}` has a meaning of its own", name.name),
                        "choose another name",
                    )
                    .help("`relations`, `reverses` and `metapaths` are families, `features` the features of all vertex types, `vertices` a scope"),
                );
                return false;
            }
            seen.insert(name.name.clone(), name.span);
            true
        };
        // Types first: relations and metapaths may stand before them.
        for item in &schema.items {
            if let ast::SchemaItem::Vertex(vertex) = item
                && declare(&vertex.name, "vertex type", diagnostics)
            {
                let fields = resolve_fields(&vertex.fields, true, consts, diagnostics);
                let known: HashSet<&str> = fields.iter().map(|f| f.name.as_str()).collect();
                for field in &vertex.fields {
                    if !known.contains(field.name.name.as_str()) {
                        resolved.broken.insert(format!("{}.{}", vertex.name.name, field.name.name));
                    }
                }
                resolved.index.insert(vertex.name.name.clone(), Named::Vertex(resolved.vertices.len()));
                resolved.vertices.push(VertexInfo {
                    name: vertex.name.name.clone(),
                    dataset_name: vertex.from.as_ref().map_or(vertex.name.name.clone(), |t| t.value.clone()),
                    dataset_name_span: vertex.from.as_ref().map_or(vertex.name.span, |t| t.span),
                    span: vertex.name.span,
                    fields,
                    used: Cell::new(false),
                });
            }
        }
        for item in &schema.items {
            if let ast::SchemaItem::Relation(relation) = item
                && declare(&relation.name, "relation", diagnostics)
            {
                let src = resolved.vertex(&relation.src, diagnostics);
                let dst = resolved.vertex(&relation.dst, diagnostics);
                let fields = resolve_fields(&relation.fields, false, consts, diagnostics);
                for field in &fields {
                    if matches!(
                        field.kind,
                        FieldKind::Real { sparse: true, .. } | FieldKind::OneHot | FieldKind::Embedding(_)
                    ) {
                        diagnostics.push(
                            Diagnostic::at(
                                codes::MODEL_ONLY,
                                field.ty_span,
                                "a relation has a weight, dense features, a time and labels only",
                                "not possible on edges",
                            )
                            .help("write `weight: f32`, `features: f32[8]`, or a label such as `fraud: class[2]`"),
                        );
                    }
                }
                let known: HashSet<&str> = fields.iter().map(|f| f.name.as_str()).collect();
                for field in relation.fields.iter().filter(|field| !known.contains(field.name.name.as_str())) {
                    resolved.broken.insert(format!("{}.{}", relation.name.name, field.name.name));
                }
                if src.is_none() || dst.is_none() {
                    resolved.broken.insert(relation.name.name.clone());
                }
                if let (Some(src), Some(dst)) = (src, dst) {
                    resolved.index.insert(relation.name.name.clone(), Named::Relation(resolved.relations.len()));
                    resolved.relations.push(RelationInfo {
                        name: relation.name.name.clone(),
                        dataset_name: relation.from.as_ref().map_or(relation.name.name.clone(), |t| t.value.clone()),
                        dataset_name_span: relation.from.as_ref().map_or(relation.name.span, |t| t.span),
                        src,
                        dst,
                        span: relation.name.span,
                        edges_name: format!("edges({})", relation.name.name),
                        fields,
                        used: Cell::new(false),
                    });
                }
            }
        }
        for item in &schema.items {
            if let ast::SchemaItem::Metapath(metapath) = item
                && declare(&metapath.name, "metapath", diagnostics)
            {
                match resolved.join(metapath, diagnostics) {
                    Some(info) => {
                        resolved.index.insert(metapath.name.name.clone(), Named::Metapath(resolved.metapaths.len()));
                        resolved.metapaths.push(info);
                    }
                    None => {
                        resolved.broken.insert(metapath.name.name.clone());
                    }
                }
            }
        }
        for item in &schema.items {
            if let ast::SchemaItem::Family(family) = item
                && declare(&family.name, "family", diagnostics)
            {
                let (name, span) = (family.name.name.clone(), family.name.span);
                let members = resolved.graphs(&family.graphs, None, diagnostics);
                // A family of families that doubles at each level would have no end of members.
                match members.filter(|members| resolved.each_once(family, members, diagnostics)) {
                    Some(members) => {
                        resolved.index.insert(name.clone(), Named::Family(resolved.families.len()));
                        resolved.families.push(FamilyInfo { name, span, members, used: Cell::new(false) });
                    }
                    None => {
                        resolved.broken.insert(name);
                    }
                }
            }
        }
        resolved
    }

    /// Reports the first semantic graph that a family holds twice.
    fn each_once(&self, family: &ast::FamilyDecl, members: &[GraphRef], diagnostics: &mut Diagnostics) -> bool {
        let mut seen: HashMap<EdgesKey, &GraphRef> = HashMap::new();
        for graph in members {
            match seen.entry(graph.edges_key()) {
                Entry::Occupied(first) => {
                    let report = duplicate_graph(first.get(), graph);
                    diagnostics.push(report.label(family.name.span, "in this family"));
                    return false;
                }
                Entry::Vacant(place) => place.insert(graph),
            };
        }
        true
    }

    /// The position of the vertex type of that name.
    pub fn vertex_named(&self, name: &str) -> Option<usize> {
        match self.index.get(name) {
            Some(Named::Vertex(position)) => Some(*position),
            Some(Named::Relation(_) | Named::Metapath(_) | Named::Family(_)) | None => None,
        }
    }

    /// The position of the relation of that name.
    pub fn relation_named(&self, name: &str) -> Option<usize> {
        match self.index.get(name) {
            Some(Named::Relation(position)) => Some(*position),
            Some(Named::Vertex(_) | Named::Metapath(_) | Named::Family(_)) | None => None,
        }
    }

    /// A vertex type without fields, and a relation from it to itself, declared at `span`.
    pub fn with_one_relation(vertex: &str, relation: &str, span: Span) -> Schema {
        let vertex = VertexInfo {
            name: vertex.to_owned(),
            dataset_name: String::new(),
            dataset_name_span: span,
            span,
            fields: vec![],
            used: Cell::new(true),
        };
        let relation = RelationInfo {
            name: relation.to_owned(),
            dataset_name: String::new(),
            dataset_name_span: span,
            src: 0,
            dst: 0,
            span,
            edges_name: format!("edges({relation})"),
            fields: vec![],
            used: Cell::new(true),
        };
        Schema { vertices: vec![vertex], relations: vec![relation], ..Schema::default() }
    }

    /// The position of a vertex type; marks it as used.
    pub fn vertex(&self, name: &ast::Ident, diagnostics: &mut Diagnostics) -> Option<usize> {
        let found = self.vertex_named(&name.name);
        match found {
            Some(index) => self.vertices[index].used.set(true),
            None => diagnostics.push(did_you_mean(
                Diagnostic::at(
                    codes::UNKNOWN_VERTEX_TYPE,
                    name.span,
                    format!("schema `{}` has no vertex type `{}`", self.name, name.name),
                    "not declared",
                ),
                &name.name,
                self.vertices.iter().map(|v| v.name.as_str()),
            )),
        }
        found
    }

    /// The position of a relation; marks it as used.
    fn relation(&self, name: &ast::Ident, diagnostics: &mut Diagnostics) -> Option<usize> {
        let named = self.index.get(&name.name);
        let found = self.relation_named(&name.name);
        match found {
            Some(index) => self.relations[index].used.set(true),
            None if self.broken.contains(&name.name) => {}
            None if matches!(named, Some(Named::Metapath(_))) => diagnostics.push(
                Diagnostic::at(
                    codes::UNKNOWN_RELATION,
                    name.span,
                    format!("`{}` is a metapath", name.name),
                    "a step is a relation",
                )
                .help("metapaths are made of relations: write its steps instead of it"),
            ),
            None => diagnostics.push(did_you_mean(
                Diagnostic::at(
                    codes::UNKNOWN_RELATION,
                    name.span,
                    format!("schema `{}` has no relation `{}`", self.name, name.name),
                    "not declared",
                ),
                &name.name,
                self.relations.iter().map(|r| r.name.as_str()),
            )),
        }
        found
    }

    /// Joins the hops of a metapath, each to the type that the one before arrives at.
    fn join(&self, metapath: &ast::MetapathDecl, diagnostics: &mut Diagnostics) -> Option<MetapathInfo> {
        let src = self.vertex(&metapath.start, diagnostics)?;
        let mut at = src;
        let mut arrived = (metapath.start.span, format!("the path starts at `{}`", metapath.start.name));
        let mut steps = vec![];
        for hop in &metapath.hops {
            let relation = self.relation(&hop.relation, diagnostics)?;
            let to = self.vertex(&hop.to, diagnostics)?;
            let info = &self.relations[relation];
            let (from, into) = if hop.reverse { (info.dst, info.src) } else { (info.src, info.dst) };
            let arrow = |a: usize, b: usize| format!("`{}` to `{}`", self.vertices[a].name, self.vertices[b].name);
            let walked = if hop.reverse { ", walked backwards, goes" } else { " goes" };
            if from != at {
                let mut report = Diagnostic::at(
                    codes::METAPATH_JOIN,
                    hop.relation.span,
                    format!("metapath `{}` does not join at `{}`", metapath.name.name, hop.relation.name),
                    format!("`{}`{walked} from {}", hop.relation.name, arrow(from, into)),
                )
                .label(arrived.0, arrived.1)
                .label(info.span, "the relation is declared here");
                if into == at {
                    let turned = if hop.reverse {
                        format!("-{}->", hop.relation.name)
                    } else {
                        format!("<-{}-", hop.relation.name)
                    };
                    report = report.help(format!("walk it the other way: `{turned}`"));
                }
                diagnostics.push(report);
                return None;
            }
            if into != to {
                diagnostics.push(
                    Diagnostic::at(
                        codes::METAPATH_JOIN,
                        hop.to.span,
                        format!("metapath `{}` does not arrive at `{}`", metapath.name.name, hop.to.name),
                        format!("expected `{}`", self.vertices[into].name),
                    )
                    .label(hop.relation.span, format!("`{}`{walked} from {}", hop.relation.name, arrow(from, into))),
                );
                return None;
            }
            arrived = (hop.relation.span, format!("`{}` arrives at `{}`", hop.relation.name, self.vertices[into].name));
            at = into;
            steps.push(Step { relation: relation as u32, reverse: hop.reverse });
        }
        Some(MetapathInfo {
            name: metapath.name.name.clone(),
            counted: metapath.counted,
            src,
            dst: at,
            steps,
            span: metapath.name.span,
            used: Cell::new(false),
        })
    }
}

fn resolve_fields(
    fields: &[ast::FieldDecl],
    of_vertex: bool,
    consts: &Consts,
    diagnostics: &mut Diagnostics,
) -> Vec<FieldInfo> {
    let mut resolved: Vec<FieldInfo> = vec![];
    let mut seen: HashMap<&str, Span> = HashMap::new();
    let mut features: Vec<(bool, Span)> = vec![];
    for field in fields {
        if let Some(first) = seen.get(field.name.name.as_str()) {
            diagnostics.push(duplicate("field", &field.name, *first));
            continue;
        }
        if ["src", "dst", "count", "in_degree", "out_degree"].contains(&field.name.name.as_str()) {
            diagnostics.push(Diagnostic::at(
                codes::RESERVED_NAME,
                field.name.span,
                format!("`{}` has a meaning of its own", field.name.name),
                "choose another name",
            ));
            continue;
        }
        let mut dim = |expr| consts.dimension(expr, diagnostics);
        let kind = match &field.ty {
            // Features of one column; on edges, their weight.
            ast::FieldType::Real { width: None, sparse } if of_vertex => {
                Some(FieldKind::Real { width: 1, sparse: *sparse })
            }
            ast::FieldType::Real { width: None, .. } => Some(FieldKind::Number),
            ast::FieldType::Real { width: Some(width), sparse } => {
                dim(width).map(|width| FieldKind::Real { width, sparse: *sparse })
            }
            ast::FieldType::OneHot => Some(FieldKind::OneHot),
            ast::FieldType::Embedding(width) => dim(width).map(FieldKind::Embedding),
            ast::FieldType::Class(classes) => dim(classes).map(FieldKind::Class),
            ast::FieldType::MultiLabel(labels) => dim(labels).map(FieldKind::MultiLabel),
            ast::FieldType::Target(width) => dim(width).map(FieldKind::Target),
            ast::FieldType::Time => Some(FieldKind::Time),
            ast::FieldType::Cutoff if of_vertex => Some(FieldKind::Cutoff),
            ast::FieldType::Cutoff => {
                let message = "edges are read as of the cutoff of their destinations";
                let report = Diagnostic::at(codes::MODEL_ONLY, field.ty_span, message, "belongs to a vertex type");
                diagnostics.push(report.help(format!("a time of each edge is `{}: time`", field.name.name)));
                continue;
            }
        };
        let init = field.init.as_ref().map_or(Some(Initialiser::Glorot { batch: 0 }), |init| {
            if !matches!(field.ty, ast::FieldType::Embedding(_)) {
                diagnostics.push(
                    Diagnostic::at(
                        codes::MODEL_ONLY,
                        init.span,
                        "only learned rows have initial values",
                        "values of this field are not learned",
                    )
                    .label(field.ty_span, "its type")
                    .help("an `embedding[n]` is learned, as in `id: embedding[16] = uniform(0.1)`"),
                );
                return None;
            }
            initialiser(init, consts, diagnostics)
        });
        if let (Some(kind), Some(from)) = (kind.filter(|kind| kind.is_time()), &field.from) {
            let report = Diagnostic::at(codes::MODEL_ONLY, from.span, "times have no name in a dataset", "a name")
                .label(field.ty_span, "its type")
                .help(match kind {
                    FieldKind::Cutoff => "no dataset has cutoffs, which readers bring: leave `from` out",
                    _ => "a dataset has one `time` for each vertex type and relation: leave `from` out",
                });
            diagnostics.push(report);
            continue;
        }
        if kind.is_some_and(FieldKind::is_time)
            && let Some(first) = resolved.iter().find(|known| known.kind.is_time())
        {
            let whose = if of_vertex { "a vertex type" } else { "a relation" };
            let report =
                Diagnostic::at(codes::DUPLICATE_NAME, field.name.span, format!("{whose} has one time"), "a second one")
                    .label(first.span, "the first one")
                    .help("a further date is a feature: `born: f32`");
            diagnostics.push(report);
            continue;
        }
        if let (Some(kind), Some(init)) = (kind, init) {
            let is_weight = kind == FieldKind::Number;
            if !of_vertex
                && kind.is_feature()
                && let Some((_, first)) = features.iter().find(|(weight, _)| *weight == is_weight)
            {
                let (message, label) = match is_weight {
                    true => ("a relation has one weight", "a second weight"),
                    false => ("a relation has one field of features", "a second field of features"),
                };
                let report = Diagnostic::at(codes::DUPLICATE_NAME, field.name.span, message, label)
                    .label(*first, "the first one")
                    .help("a dataset holds one matrix of each kind: join the columns there");
                diagnostics.push(report);
                continue;
            }
            seen.insert(&field.name.name, field.name.span);
            if kind.is_feature() {
                features.push((is_weight, field.name.span));
            }
            resolved.push(FieldInfo {
                name: field.name.name.clone(),
                span: field.name.span,
                ty_span: field.ty_span,
                kind,
                init,
                dataset_name: field.from.as_ref().map(|t| t.value.clone()),
                used: Cell::new(false),
            });
        }
    }
    resolved
}

/// The initialiser of learned rows, of numbers and constants; `None`: wrong and reported.
fn initialiser(expr: &ast::Expr, consts: &Consts, diagnostics: &mut Diagnostics) -> Option<Initialiser> {
    let made = Written::of(expr).map(|written| {
        let written = written?;
        let number = match written.argument {
            Some(argument) => Some(consts.number(argument, diagnostics)?),
            None => None,
        };
        Some(written.initialiser(number))
    });
    match made {
        Ok(Some(Ok(initialiser))) => return Some(initialiser),
        Ok(Some(Err(mistake))) => diagnostics.push(*mistake),
        Ok(None) => {}
        Err(mistakes) => mistakes.into_iter().for_each(|mistake| diagnostics.push(mistake)),
    }
    None
}
