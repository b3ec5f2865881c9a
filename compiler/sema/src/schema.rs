//! Schemas: vertex types, relations, metapaths and families, resolved and joined with types checked.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use hgnnc_diag::{Diagnostic, Diagnostics, Span, codes};
use hgnnc_ir::VertexType;
use hgnnc_ir::dataflow::{GraphDecl, Step};
use hgnnc_syntax::ast::{self, GraphExpr};

use crate::consts::Consts;
use crate::names::{did_you_mean, duplicate};

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
    /// The declaration of each name.
    index: HashMap<String, Named>,
    /// How much of [`MAX_NAMED`] is used up.
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

/// The identity of the edges of a semantic graph: the types at the ends, the steps, `counted`, `self_loops`, `links`.
pub type EdgesKey = (usize, usize, Vec<Step>, bool, bool, bool);

/// A vertex type and its fields.
#[derive(Debug)]
pub struct VertexInfo {
    /// Name in the model.
    pub name: String,
    /// Name in the dataset.
    pub dataset_name: String,
    /// Its name in the declaration.
    pub span: Span,
    /// Features and labels of its vertices.
    pub fields: Vec<FieldInfo>,
    /// Mentioned anywhere outside its declaration.
    pub used: Cell<bool>,
}

impl VertexInfo {
    /// The field that holds features, where there is one.
    pub fn features(&self) -> Option<&FieldInfo> {
        self.fields.iter().find(|f| f.kind.is_feature())
    }
}

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
    /// Name in the dataset, where one is written.
    pub dataset_name: Option<String>,
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
}

impl FieldKind {
    /// Can it be an input of a layer?
    pub fn is_feature(self) -> bool {
        match self {
            FieldKind::Number | FieldKind::Real { .. } | FieldKind::OneHot | FieldKind::Embedding(_) => true,
            FieldKind::Class(_) | FieldKind::MultiLabel(_) | FieldKind::Target(_) => false,
        }
    }
}

/// A relation: edges from one vertex type to another.
#[derive(Debug)]
pub struct RelationInfo {
    /// Name in the model.
    pub name: String,
    /// Name in the dataset.
    pub dataset_name: String,
    /// Position of the source type.
    pub src: usize,
    /// Position of the destination type.
    pub dst: usize,
    /// Its name in the declaration.
    pub span: Span,
    /// Edge weight and features.
    pub fields: Vec<FieldInfo>,
    /// Mentioned anywhere outside its declaration.
    pub used: Cell<bool>,
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

/// A semantic graph as a model names it. Messages go from `src` to `dst`.
#[derive(Debug, Clone)]
pub struct GraphRef {
    /// Name: `PAP`, `reverse_written_by`, `PAP_self_loops`.
    pub name: String,
    /// Position of the source type.
    pub src: usize,
    /// Position of the destination type.
    pub dst: usize,
    /// The hops of the path, from `src` to `dst`.
    pub steps: Vec<Step>,
    /// Path instances are counted.
    pub counted: bool,
    /// Missing edges (v, v) are added.
    pub self_loops: bool,
    /// Its edges are pairs to score.
    pub links: bool,
    /// The expression that names it.
    pub span: Span,
}

impl Schema {
    /// Resolves a schema; what is wrong with it is reported and left out.
    pub fn resolve(schema: &ast::Schema, consts: &Consts, diagnostics: &mut Diagnostics) -> Schema {
        let mut resolved = Schema { name: schema.name.name.clone(), ..Schema::default() };
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
                    if !matches!(field.kind, FieldKind::Number | FieldKind::Real { sparse: false, .. }) {
                        diagnostics.push(
                            Diagnostic::at(
                                codes::MODEL_ONLY,
                                field.ty_span,
                                "a relation has weights and dense features only",
                                "not possible on edges",
                            )
                            .help("write `weight: f32` or `features: f32[8]`"),
                        );
                    }
                }
                if src.is_none() || dst.is_none() {
                    resolved.broken.insert(relation.name.name.clone());
                }
                if let (Some(src), Some(dst)) = (src, dst) {
                    resolved.index.insert(relation.name.name.clone(), Named::Relation(resolved.relations.len()));
                    resolved.relations.push(RelationInfo {
                        name: relation.name.name.clone(),
                        dataset_name: relation.from.as_ref().map_or(relation.name.name.clone(), |t| t.value.clone()),
                        src,
                        dst,
                        span: relation.name.span,
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
                let members = resolved.graphs(&family.graphs, diagnostics);
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
        let found = match named {
            Some(Named::Relation(position)) => Some(*position),
            Some(Named::Vertex(_) | Named::Metapath(_) | Named::Family(_)) | None => None,
        };
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

    /// The semantic graphs that an expression names, in order. Names of too many are reported.
    pub fn graphs(&self, expr: &GraphExpr, diagnostics: &mut Diagnostics) -> Option<Vec<GraphRef>> {
        let graphs = self.members(expr, diagnostics)?;
        (self.named.get() <= MAX_NAMED).then_some(graphs)
    }

    /// Counts semantic graphs before they are written out. Says so when they become too many, once.
    fn count<'g>(
        &self,
        graphs: impl Iterator<Item = &'g [Step]>,
        span: Span,
        diagnostics: &mut Diagnostics,
    ) -> Option<()> {
        let before = self.named.get();
        let after = graphs.fold(before, |sum, steps| sum.saturating_add(1 + steps.len()));
        self.named.set(after);
        if before <= MAX_NAMED && after > MAX_NAMED {
            let report = Diagnostic::at(
                codes::TOO_LARGE,
                span,
                "the families of this model name too many semantic graphs",
                format!("here they come to more than {MAX_NAMED} semantic graphs and steps"),
            );
            diagnostics.push(report.help("name each semantic graph in as few families as possible"));
        }
        (after <= MAX_NAMED).then_some(())
    }

    fn members(&self, expr: &GraphExpr, diagnostics: &mut Diagnostics) -> Option<Vec<GraphRef>> {
        match expr {
            GraphExpr::Name(name) => self.named_graphs(name, diagnostics),
            GraphExpr::List(items, _) => {
                // Every item is looked at, so that all mistakes are reported.
                let found: Vec<_> = items.iter().map(|item| self.members(item, diagnostics)).collect();
                Some(found.into_iter().collect::<Option<Vec<_>>>()?.concat())
            }
            GraphExpr::Filter { graphs, into, vertex } => {
                let all = self.members(graphs, diagnostics)?;
                let vertex = self.vertex(vertex, diagnostics)?;
                Some(all.into_iter().filter(|g| if *into { g.dst == vertex } else { g.src == vertex }).collect())
            }
            GraphExpr::Call { function, argument, span } => match function.name.as_str() {
                "reverse" => {
                    let graphs = self.members(argument, diagnostics)?;
                    graphs.into_iter().map(|g| self.reverse(g, *span, diagnostics)).collect()
                }
                "self_loops" => {
                    let graphs = self.members(argument, diagnostics)?;
                    graphs.into_iter().map(|g| self.with_self_loops(g, *span, diagnostics)).collect()
                }
                "links" => {
                    let graphs = self.members(argument, diagnostics)?;
                    graphs.into_iter().map(|g| self.links(g, *span, diagnostics)).collect()
                }
                "identity" => {
                    let GraphExpr::Name(name) = &**argument else {
                        diagnostics.push(Diagnostic::at(
                            codes::NOT_A_GRAPH,
                            argument.span(),
                            "`identity` takes a vertex type",
                            "not a vertex type",
                        ));
                        return None;
                    };
                    let vertex = self.vertex(name, diagnostics)?;
                    Some(vec![GraphRef {
                        name: format!("identity_{}", name.name),
                        src: vertex,
                        dst: vertex,
                        steps: vec![],
                        counted: false,
                        self_loops: true,
                        links: false,
                        span: *span,
                    }])
                }
                _ => {
                    diagnostics.push(did_you_mean(
                        Diagnostic::at(
                            codes::UNKNOWN_FUNCTION,
                            function.span,
                            format!("no function `{}` makes a semantic graph", function.name),
                            "unknown here",
                        ),
                        &function.name,
                        ["reverse", "self_loops", "identity", "links"],
                    ));
                    None
                }
            },
        }
    }

    fn reverse(&self, graph: GraphRef, span: Span, diagnostics: &mut Diagnostics) -> Option<GraphRef> {
        if graph.links {
            let what = "pairs to score have the direction of their relation";
            diagnostics.push(Diagnostic::at(codes::NOT_A_GRAPH, span, what, "cannot be reversed"));
            return None;
        }
        Some(GraphRef { span, ..graph.reversed() })
    }

    /// The pairs that a relation may join.
    fn links(&self, graph: GraphRef, span: Span, diagnostics: &mut Diagnostics) -> Option<GraphRef> {
        match graph.steps[..] {
            [step] if !step.reverse && !graph.self_loops && !graph.links => {
                Some(GraphRef { name: format!("links_{}", graph.name), links: true, span, ..graph })
            }
            _ => {
                let report = Diagnostic::at(
                    codes::NOT_A_GRAPH,
                    span,
                    format!("`{}` has no links to predict", graph.name),
                    "links are those of a relation",
                );
                diagnostics.push(report.help("name a relation as it is declared: `links(likes)`, `links(relations)`"));
                None
            }
        }
    }

    fn with_self_loops(&self, graph: GraphRef, span: Span, diagnostics: &mut Diagnostics) -> Option<GraphRef> {
        if graph.links {
            let what = "pairs to score have no self loops";
            diagnostics.push(Diagnostic::at(codes::NOT_A_GRAPH, span, what, "of pairs to score"));
            return None;
        }
        if graph.src != graph.dst {
            let (src, dst) = (&self.vertices[graph.src], &self.vertices[graph.dst]);
            let mut report = Diagnostic::at(
                codes::BIPARTITE_SELF_LOOP,
                span,
                format!("`{}` cannot have self loops: it joins different vertex types", graph.name),
                format!("goes from `{}` to `{}`", src.name, dst.name),
            )
            .help("give the layer a term for the vertex itself in its `fuse` block instead");
            if let [step] = graph.steps[..] {
                report = report.label(self.relations[step.relation as usize].span, "declared here");
            }
            diagnostics.push(report);
            return None;
        }
        Some(GraphRef { name: format!("{}_self_loops", graph.name), self_loops: true, span, ..graph })
    }

    fn named_graphs(&self, name: &ast::Ident, diagnostics: &mut Diagnostics) -> Option<Vec<GraphRef>> {
        let span = name.span;
        let one = [Step { relation: 0, reverse: false }];
        match name.name.as_str() {
            all @ ("relations" | "reverses") => {
                self.count(self.relations.iter().map(|_| &one[..]), span, diagnostics)?;
                let graphs = (0..self.relations.len()).map(|r| self.relation_graph(r, span));
                return Some(if all == "relations" {
                    graphs.collect()
                } else {
                    graphs.map(GraphRef::reversed).collect()
                });
            }
            "metapaths" => {
                self.count(self.metapaths.iter().map(|m| &m.steps[..]), span, diagnostics)?;
                return Some((0..self.metapaths.len()).map(|m| self.metapath_graph(m, span)).collect());
            }
            _ => {}
        }
        match self.index.get(&name.name) {
            Some(Named::Relation(relation)) => {
                self.count([&one[..]].into_iter(), span, diagnostics)?;
                return Some(vec![self.relation_graph(*relation, span)]);
            }
            Some(Named::Metapath(metapath)) => {
                self.count([&self.metapaths[*metapath].steps[..]].into_iter(), span, diagnostics)?;
                return Some(vec![self.metapath_graph(*metapath, span)]);
            }
            Some(Named::Family(family)) => {
                let family = &self.families[*family];
                family.used.set(true);
                self.count(family.members.iter().map(|g| &g.steps[..]), span, diagnostics)?;
                return Some(family.members.iter().map(|g| GraphRef { span, ..g.clone() }).collect());
            }
            Some(Named::Vertex(_)) | None => {}
        }
        if self.broken.contains(&name.name) {
            return None;
        }
        let known = self.relations.iter().map(|r| r.name.as_str());
        let known = known.chain(self.metapaths.iter().map(|m| m.name.as_str()));
        let known = known.chain(self.families.iter().map(|f| f.name.as_str()));
        let known = known.chain(["relations", "reverses", "metapaths"]);
        let mut report = Diagnostic::at(
            codes::UNKNOWN_RELATION,
            span,
            format!("schema `{}` has no relation, metapath or family `{}`", self.name, name.name),
            "not declared",
        );
        if self.vertex_named(&name.name).is_some() {
            report = report.help(format!("`{0}` is a vertex type; its identity graph is `identity({0})`", name.name));
        } else if let Some(relation) = self.reversed(&name.name) {
            report = report.help(format!(
                "edges against their direction are `reverse({relation})`, those of all relations `reverses`"
            ));
        } else {
            report = did_you_mean(report, &name.name, known);
        }
        diagnostics.push(report);
        None
    }

    /// The relation of which a name is that of the reverse, as other tools form it.
    fn reversed(&self, name: &str) -> Option<&str> {
        let prefixes = ["rev_", "reverse_", "inv_", "inverse_", "reversed_"];
        let suffixes = ["_rev", "_inv", "_reverse", "_inverse"];
        let without = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix));
        let without = without.or_else(|| suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)))?;
        self.relations.iter().map(|relation| relation.name.as_str()).find(|known| *known == without)
    }

    fn relation_graph(&self, relation: usize, span: Span) -> GraphRef {
        let info = &self.relations[relation];
        info.used.set(true);
        GraphRef {
            name: info.name.clone(),
            src: info.src,
            dst: info.dst,
            steps: vec![Step { relation: relation as u32, reverse: false }],
            counted: false,
            self_loops: false,
            links: false,
            span,
        }
    }

    fn metapath_graph(&self, metapath: usize, span: Span) -> GraphRef {
        let info = &self.metapaths[metapath];
        info.used.set(true);
        let MetapathInfo { name, counted, src, dst, steps, .. } = info;
        GraphRef {
            name: name.clone(),
            src: *src,
            dst: *dst,
            steps: steps.clone(),
            counted: *counted,
            self_loops: false,
            links: false,
            span,
        }
    }
}

/// The report of a semantic graph whose edges a family has already.
pub fn duplicate_graph(first: &GraphRef, graph: &GraphRef) -> Diagnostic {
    let message = if first.name == graph.name {
        format!("semantic graph `{}` is in the family twice", graph.name)
    } else {
        format!("`{}` has the same edges as `{}`, which is in the family too", graph.name, first.name)
    };
    let report = if first.span == graph.span {
        Diagnostic::at(codes::DUPLICATE_GRAPH, graph.span, message, "holds it twice")
    } else {
        Diagnostic::at(codes::DUPLICATE_GRAPH, graph.span, message, "again here").label(first.span, "first here")
    };
    report.help("its edges would count twice; leave one of the two out")
}

impl GraphRef {
    /// Graphs with the same edges have the same key.
    pub fn edges_key(&self) -> EdgesKey {
        (self.src, self.dst, self.steps.clone(), self.counted, self.self_loops, self.links)
    }

    /// As a row of a program's table.
    pub fn declaration(&self) -> GraphDecl {
        GraphDecl {
            name: self.name.clone(),
            src: VertexType::new(self.src),
            dst: VertexType::new(self.dst),
            steps: self.steps.clone(),
            counted: self.counted,
            self_loops: self.self_loops,
            links: self.links,
            derived: None,
        }
    }

    /// Is this the row of a program's table for it, whatever its name?
    pub fn makes(&self, decl: &GraphDecl) -> bool {
        (self.src, self.dst, &self.steps) == (decl.src.index(), decl.dst.index(), &decl.steps)
            && (self.counted, self.self_loops, self.links) == (decl.counted, decl.self_loops, decl.links)
    }

    /// The same edges with messages the other way.
    fn reversed(self) -> GraphRef {
        let steps = self.steps.iter().rev().map(|s| Step { reverse: !s.reverse, ..*s }).collect();
        let name = match self.name.strip_prefix("reverse_") {
            Some(forward) if self.steps.len() == 1 && self.steps[0].reverse => forward.to_string(),
            _ => format!("reverse_{}", self.name),
        };
        GraphRef { name, src: self.dst, dst: self.src, steps, ..self }
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
        };
        if let Some(kind) = kind {
            let is_weight = kind == FieldKind::Number;
            if kind.is_feature()
                && let Some((_, first)) = features.iter().find(|(weight, _)| *weight == is_weight)
            {
                let (message, label) = match (of_vertex, is_weight) {
                    (true, _) => ("a vertex type has one field of features", "a second field of features"),
                    (false, true) => ("a relation has one weight", "a second weight"),
                    (false, false) => ("a relation has one field of features", "a second field of features"),
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
                dataset_name: field.from.as_ref().map(|t| t.value.clone()),
            });
        }
    }
    resolved
}
