//! `param` declarations: one parameter for each of what, decompositions, initialisers.

use std::collections::BTreeMap;

use hgnnc_diag::habits::Place;
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_ir::dataflow::Init;
use hgnnc_ir::{Dim, Op};
use hgnnc_syntax::ast::{Decomposition, Expr, ExprKind, Layer, LayerStmt, ParamDecl, Per, Stmt};

use crate::elaborate::{Elaborator, Mistake, Place as Block, Scope, unique_name};
use crate::functions::match_arguments;
use crate::names::suggest;
use crate::value::{Term, Val, ValKind, Width, show_widths};

const INITIALISERS: &[&str] = &["glorot", "he", "zeros", "ones", "constant", "uniform", "normal"];

/// How the declared initialiser reads, before the shape is known.
#[derive(Clone, Copy)]
enum Initialiser {
    /// Fans follow from the shape behind `batch` leading dimensions.
    Glorot {
        batch: usize,
    },
    He {
        batch: usize,
    },
    Fixed(Init),
}

impl Elaborator<'_> {
    /// The term that a declared parameter is: one value, or one for each semantic graph.
    pub fn declare(&mut self, decl: &ParamDecl, scope: &Scope<'_>) -> Term {
        let result = self.try_declare(decl, scope);
        match result {
            Ok(Some(term)) => term,
            Ok(None) => Term::Error,
            Err(mistake) => {
                self.report(*mistake);
                Term::Error
            }
        }
    }

    /// `None`: wrong and reported.
    fn try_declare(&mut self, decl: &ParamDecl, scope: &Scope<'_>) -> Result<Option<Term>, Mistake> {
        let initialiser = match &decl.init {
            None => Initialiser::Glorot { batch: 0 },
            Some(expr) => match self.initialiser(expr, scope)? {
                Some(initialiser) => initialiser,
                None => return Ok(None),
            },
        };
        // Shapes: one, or one for each graph in scope where a width depends on the source type.
        let mut shapes: Vec<Vec<Width>> = vec![vec![]; scope.graphs.len().max(1)];
        let mut varies = false;
        let mut fine = true;
        for dim in &decl.dims {
            match self.width(dim, scope) {
                None => fine = false,
                Some(Ok(width)) => shapes.iter_mut().for_each(|shape| shape.push(width)),
                Some(Err(widths)) => {
                    varies = true;
                    shapes.iter_mut().zip(widths).for_each(|(shape, width)| shape.push(width));
                }
            }
        }
        if !fine {
            return Ok(None);
        }
        for shape in &shapes {
            self.check_size(shape, decl.span)?;
        }
        let per = self.per(decl, scope)?;
        let base = self.parameter_base(decl, scope);
        let type_suffix = match (scope.place, per) {
            (Block::Project(vertex, true) | Block::Fuse(vertex, true), Per::Type) => {
                format!(".{}", self.vertex_name(vertex))
            }
            _ => String::new(),
        };
        // The member that each graph in scope uses, and their names.
        let layer = scope.layer;
        let members: Vec<String> = match (per, layer) {
            (Per::Graph, Some(layer)) => {
                scope.graphs.iter().map(|&g| self.flow.graphs[layer.graphs[g].index()].name.clone()).collect()
            }
            (Per::Src, Some(layer)) => {
                scope.graphs.iter().map(|&g| self.vertex_name(layer.ends[g].0).to_string()).collect()
            }
            (Per::Dst, Some(layer)) => {
                scope.graphs.iter().map(|&g| self.vertex_name(layer.ends[g].1).to_string()).collect()
            }
            _ => vec![],
        };
        if members.is_empty() {
            if matches!(per, Per::Graph | Per::Src | Per::Dst) {
                // A family that is empty here: nothing to declare, nothing that could use it.
                return Ok(Some(Term::PerGraph(vec![])));
            }
            let shape = shapes.swap_remove(0);
            if varies && shapes.iter().any(|s| dims(s) != dims(&shape)) {
                return Err(Box::new(self.two_shapes(scope.place, decl, &shape, &shapes)));
            }
            let name = format!("{base}{type_suffix}");
            if let Some(shared) = self.shared_parameter(&name, &shape, decl, scope)? {
                return Ok(Some(Term::One(shared)));
            }
            let val = self.member(decl, name, &base, shape, initialiser, scope)?;
            return Ok(val.map(Term::One));
        }
        let mut known: BTreeMap<String, Val> = BTreeMap::new();
        let mut vals = vec![];
        for (member, shape) in members.iter().zip(&shapes) {
            if let Some(val) = known.get(member) {
                if val.dims() != dims(shape) {
                    return Err(Box::new(self.two_shapes(scope.place, decl, &val.widths, std::slice::from_ref(shape))));
                }
                vals.push(val.clone());
                continue;
            }
            let name = format!("{base}.{member}");
            let before = self.flow.params.len();
            let val = match self.shared_parameter(&name, shape, decl, scope)? {
                Some(val) => val,
                None => match self.member(decl, name, &base, shape.clone(), initialiser, scope)? {
                    Some(val) => val,
                    None => return Ok(None),
                },
            };
            if let (Per::Graph, Some(layer)) = (per, layer) {
                // The bases of a decomposition belong to all semantic graphs.
                let bases = format!("{base}.bases");
                let graph = layer.graphs[scope.graphs[vals.len()]];
                let own = self.flow.params[before..].iter_mut().filter(|decl| decl.name != bases);
                own.for_each(|decl| decl.of = Some(graph));
            }
            known.insert(member.clone(), val.clone());
            vals.push(val);
        }
        Ok(Some(Term::PerGraph(vals)))
    }

    /// The name that the parameters of a declaration share: `conv.w`, or `conv.fuse.w` where several blocks
    /// of the layer declare a `w`.
    fn parameter_base(&self, decl: &ParamDecl, scope: &Scope<'_>) -> String {
        let name = &decl.name.name;
        let block = match scope.place {
            Block::Model | Block::Layer => None,
            Block::Project(..) => Some("project"),
            Block::Aggregate => Some("aggregate"),
            Block::Fuse(..) => Some("fuse"),
        };
        let repeated = scope.layer.is_some_and(|l| declarations(l.layer, name) > 1);
        let base = match block {
            Some(block) if repeated => format!("{}.{block}.{name}", scope.path),
            _ => format!("{}.{name}", scope.path),
        };
        let base = base.strip_prefix('.').unwrap_or(&base).to_string();
        unique_name(base, |base| self.has_other_params(base, decl.span))
    }

    /// A parameter declared before under the same name: blocks that run for several vertex types share it.
    fn shared_parameter(
        &mut self,
        name: &str,
        shape: &[Width],
        decl: &ParamDecl,
        scope: &Scope<'_>,
    ) -> Result<Option<Val>, Mistake> {
        let Some(param) = self.param_named(name) else { return Ok(None) };
        let position = param.index();
        if decl.decomposition.is_some() || self.param_spans[position] != decl.span {
            return Ok(None);
        }
        if self.flow.params[position].dims != dims(shape) {
            return Err(Box::new(self.two_shapes(scope.place, decl, &self.param_widths[position], &[shape.to_vec()])));
        }
        let value = self.emit(Op::Param(param), &[], decl.span);
        Ok(Some(Val { kind: ValKind::Stored(value), widths: shape.to_vec() }))
    }

    fn two_shapes(&self, block: Block, decl: &ParamDecl, first: &[Width], others: &[Vec<Width>]) -> Diagnostic {
        let other = others.iter().find(|s| dims(s) != dims(first)).map_or(first, Vec::as_slice);
        let mut report = Diagnostic::at(
            codes::SHARED_SHAPE,
            decl.name.span,
            format!("parameter `{}` is shared but would need two shapes", decl.name.name),
            format!("{} and {}", show_widths(&self.flow, first), show_widths(&self.flow, other)),
        )
        .help(match &decl.decomposition {
            Some(Decomposition::Basis(_)) => {
                "a basis is shared: bring all vertex types to one width first, as in `linear(features, 64)`"
            }
            Some(Decomposition::Blocks(_)) | None => match block {
                Block::Project(..) | Block::Fuse(..) => {
                    "leave `shared` out: there is one for each vertex type then; or bring all types to one width before"
                }
                Block::Aggregate => {
                    "declare it `per graph`, `per src` or `per dst`, or project the values in a `project` block"
                }
                Block::Model | Block::Layer => {
                    "declare it in a `project` block, where there is one for each vertex type"
                }
            },
        });
        if let Some((x, y)) = first.iter().zip(other).find(|(x, y)| x.dim != y.dim) {
            report = report.label(x.origin, "one width comes from here").label(y.origin, "the other from here");
        }
        report
    }

    /// One for each of what: as written, or the block's own.
    fn per(&self, decl: &ParamDecl, scope: &Scope<'_>) -> Result<Per, Mistake> {
        let (own, possible): (Per, &[Per]) = match scope.place {
            Block::Model | Block::Layer => (Per::Shared, &[Per::Shared]),
            Block::Project(..) => (Per::Type, &[Per::Type, Per::Shared]),
            Block::Aggregate => (Per::Graph, &[Per::Graph, Per::Src, Per::Dst, Per::Shared]),
            Block::Fuse(..) => (Per::Type, &[Per::Type, Per::Graph, Per::Shared]),
        };
        match decl.per {
            None => Ok(own),
            Some((per, _)) if possible.contains(&per) => Ok(per),
            Some((per, span)) => {
                let word = |per: &Per| match per {
                    Per::Graph => "`per graph`",
                    Per::Type => "`per type`",
                    Per::Src => "`per src`",
                    Per::Dst => "`per dst`",
                    Per::Shared => "`shared`",
                };
                let list: Vec<&str> = possible.iter().map(word).collect();
                Err(Box::new(
                    Diagnostic::at(
                        codes::MODEL_ONLY,
                        span,
                        format!("{} is not possible for a parameter declared here", word(&per)),
                        "does not fit the block",
                    )
                    .help(format!("possible here: {}", list.join(", "))),
                ))
            }
        }
    }

    /// Declares one member of a family of parameters, decomposed where that was asked for.
    fn member(
        &mut self,
        decl: &ParamDecl,
        name: String,
        base: &str,
        shape: Vec<Width>,
        initialiser: Initialiser,
        scope: &Scope<'_>,
    ) -> Result<Option<Val>, Mistake> {
        let decay = !decl.no_decay;
        match &decl.decomposition {
            None => {
                let init = initialise(initialiser, &shape);
                Ok(Some(self.parameter(name, shape, init, decay, decl.span)))
            }
            Some(Decomposition::Basis(number)) => {
                let Some(number) = self.one_width(number, scope) else { return Ok(None) };
                self.basis(decl, (&name, base), shape, number, initialiser, scope.place).map(Some)
            }
            Some(Decomposition::Blocks(number_expr)) => {
                let Some(number) = self.one_width(number_expr, scope) else { return Ok(None) };
                let (Some(blocks), [input, output]) = (number.dim.fixed(), &shape[..]) else {
                    return Err(Box::new(Diagnostic::at(
                        codes::BAD_DECOMPOSITION,
                        decl.span,
                        "a block-diagonal parameter has the shape [in, out]",
                        format!("is {}", show_widths(&self.flow, &shape)),
                    )));
                };
                let (Some(rows), Some(columns)) = (input.dim.fixed(), output.dim.fixed()) else {
                    return Err(Box::new(Diagnostic::at(
                        codes::BAD_DECOMPOSITION,
                        decl.span,
                        "the width of one-hot features cannot be split into blocks",
                        "its extent is not known at compile time",
                    )));
                };
                if rows % blocks != 0 || columns % blocks != 0 {
                    return Err(Box::new(
                        Diagnostic::at(
                            codes::BAD_DECOMPOSITION,
                            number_expr.span,
                            format!("{blocks} blocks do not divide [{rows}, {columns}]"),
                            "must divide both widths",
                        )
                        .label(input.origin, format!("{rows} comes from here"))
                        .label(output.origin, format!("{columns} comes from here")),
                    ));
                }
                let at = |extent, origin| Width { dim: Dim::Fixed(extent), origin };
                let blocked = vec![number, at(rows / blocks, input.origin), at(columns / blocks, output.origin)];
                let init = match initialiser {
                    Initialiser::Glorot { .. } => initialise(Initialiser::Glorot { batch: 1 }, &blocked),
                    Initialiser::He { .. } => initialise(Initialiser::He { batch: 1 }, &blocked),
                    Initialiser::Fixed(init) => init,
                };
                let val = self.parameter(name, blocked, init, decay, decl.span);
                let value = self.stored(&val, decl.span)?;
                Ok(Some(Val { kind: ValKind::BlockDiagonal(value), widths: shape }))
            }
        }
    }

    /// `w = Σ_b a_b V_b` with the bases `V` shared by the family (Schlichtkrull et al. 2018, eq. 3).
    fn basis(
        &mut self,
        decl: &ParamDecl,
        (name, base): (&str, &str),
        shape: Vec<Width>,
        number: Width,
        initialiser: Initialiser,
        block: Block,
    ) -> Result<Val, Mistake> {
        let bases_name = format!("{base}.bases");
        let mut bases_shape = vec![number];
        bases_shape.extend(&shape);
        self.check_size(&bases_shape, decl.span)?;
        let bases = match self.param_named(&bases_name) {
            Some(param) => {
                let known = param.index();
                let found = self.flow.params[known].dims.clone();
                if found != dims(&bases_shape) {
                    return Err(Box::new(self.two_shapes(block, decl, &self.param_widths[known][1..], &[shape])));
                }
                self.emit(Op::Param(param), &[], decl.span)
            }
            None => {
                let init = initialise(initialiser, &shape);
                let val = self.parameter(bases_name, bases_shape, init, !decl.no_decay, decl.span);
                self.stored(&val, decl.span)?
            }
        };
        let leaf = name.strip_prefix(base).unwrap_or(name);
        let fan_out = number.dim.fixed().unwrap_or(1);
        let init = Init::Glorot { fan_in: Dim::Fixed(1), fan_out };
        let coefficients =
            self.parameter(format!("{base}.coefficients{leaf}"), vec![number], init, !decl.no_decay, decl.span);
        let coefficients = self.stored(&coefficients, decl.span)?;
        let value = self.emit(Op::MatMul { batch: 0 }, &[coefficients, bases], decl.span);
        Ok(Val { kind: ValKind::Stored(value), widths: shape })
    }

    fn initialiser(&mut self, expr: &Expr, scope: &Scope<'_>) -> Result<Option<Initialiser>, Mistake> {
        let (name, name_span, args) = match &expr.kind {
            ExprKind::Name(name) => (name.as_str(), expr.span, &[][..]),
            ExprKind::Call(call) => (call.callee.name.as_str(), call.callee.span, &call.args[..]),
            ExprKind::Number(number) => return Ok(Some(Initialiser::Fixed(Init::Constant(*number)))),
            ExprKind::Error => return Ok(None),
            _ => ("", expr.span, &[][..]),
        };
        let names: &[&str] = match name {
            "glorot" | "he" => &["batch"],
            "zeros" | "ones" => &[],
            "constant" => &["value"],
            "uniform" => &["bound"],
            "normal" => &["std"],
            _ => {
                let report = Diagnostic::at(
                    codes::UNKNOWN_CHOICE,
                    name_span,
                    format!("`{name}` is not an initialiser"),
                    "unknown initialiser",
                );
                return Err(Box::new(suggest(report, Place::Initialiser, name, INITIALISERS.iter().copied())));
            }
        };
        let sorted = match match_arguments(args, names, &format!("`{name}`"), expr.span) {
            Ok(sorted) => sorted,
            Err(mistakes) => {
                mistakes.into_iter().for_each(|mistake| self.report(mistake));
                return Ok(None);
            }
        };
        let mut number = None;
        if let Some(Some(argument)) = sorted.first() {
            match self.number(argument, scope) {
                Some(value) => number = Some((value, argument.span)),
                None => return Ok(None),
            }
        }
        let needed = |what: &str| -> Mistake {
            Box::new(Diagnostic::at(
                codes::MISSING_ARGUMENT,
                expr.span,
                format!("`{name}` needs `{what}`"),
                format!("as in `{name}(0.1)`"),
            ))
        };
        let in_range = |(value, span): (f64, Span), low: f64| -> Result<f64, Mistake> {
            if value >= low && value.is_finite() {
                return Ok(value);
            }
            Err(Box::new(Diagnostic::at(
                codes::ARGUMENT_RANGE,
                span,
                format!("`{name}` takes a number that is at least {low}"),
                format!("this is {value}"),
            )))
        };
        Ok(Some(match name {
            "glorot" | "he" => {
                let batch = number.map_or(Ok(0.0), |n| in_range(n, 0.0))? as usize;
                if name == "glorot" { Initialiser::Glorot { batch } } else { Initialiser::He { batch } }
            }
            "zeros" => Initialiser::Fixed(Init::Constant(0.0)),
            "ones" => Initialiser::Fixed(Init::Constant(1.0)),
            "constant" => Initialiser::Fixed(Init::Constant(number.ok_or_else(|| needed("value"))?.0)),
            "uniform" => Initialiser::Fixed(Init::Uniform(in_range(number.ok_or_else(|| needed("bound"))?, 0.0)?)),
            _ => Initialiser::Fixed(Init::Normal { std: in_range(number.ok_or_else(|| needed("std"))?, 0.0)? }),
        }))
    }
}

/// How often a layer declares a parameter of that name.
fn declarations(layer: &Layer, name: &str) -> usize {
    let mut count = 0;
    for stmt in &layer.body {
        match stmt {
            LayerStmt::Param(decl) => count += usize::from(decl.name.name == name),
            LayerStmt::Block(block) => {
                let is_it = |stmt: &&Stmt| matches!(stmt, Stmt::Param(decl) if decl.name.name == name);
                count += block.body.iter().filter(is_it).count();
            }
        }
    }
    count
}

fn dims(shape: &[Width]) -> Vec<Dim> {
    shape.iter().map(|w| w.dim).collect()
}

/// Fans: the first dimension behind the batch dimensions comes in, the product of the others goes out.
/// A vector goes out of a single number.
fn initialise(initialiser: Initialiser, shape: &[Width]) -> Init {
    let batch = match initialiser {
        Initialiser::Fixed(init) => return init,
        Initialiser::Glorot { batch } | Initialiser::He { batch } => batch.min(shape.len()),
    };
    let product = |widths: &[Width]| widths.iter().filter_map(|w| w.dim.fixed()).product::<usize>();
    let (fan_in, fan_out) = match &shape[batch..] {
        [] => (Dim::Fixed(1), 1),
        [only] => (Dim::Fixed(1), only.dim.fixed().unwrap_or(1)),
        [first, rest @ ..] => (first.dim, product(rest)),
    };
    match initialiser {
        Initialiser::He { .. } => Init::He { fan_in },
        _ => Init::Glorot { fan_in, fan_out },
    }
}
