//! `param` declarations: one parameter for each of what, decompositions, initialisers.

use hgnnc_declare::initialiser::Written;
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::text::show_widths;
use hgnnc_hir::{Decomposition, Entry, ExprKind as Kind, Form, Initialiser, Param, ParamId, Row, Type, Width};
use hgnnc_ir::Space;
use hgnnc_syntax::ast::{self, Expr, Layer, LayerPart, ParamDecl, Per, Stmt};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::checker::{Checker, Mistake, Place as Block, Scope, SharedPart};
use crate::eval::Widths;
use crate::value::Term;

impl Checker<'_> {
    /// The term that a declared parameter is: one value, or one for each semantic graph.
    pub(crate) fn declare(&mut self, decl: &ParamDecl, scope: &Scope<'_>) -> Term {
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
        let init = match &decl.init {
            None => Initialiser::Glorot { batch: 0 },
            Some(expr) => match self.initialiser(expr, scope)? {
                Some(initialiser) => initialiser,
                None => return Ok(None),
            },
        };
        // Shapes: one, or one for each graph in scope where a width depends on the source type.
        let widths: Vec<Option<Widths>> = decl.dims.iter().map(|dim| self.width(dim, scope)).collect();
        let Some(widths) = widths.into_iter().collect::<Option<Vec<Widths>>>() else { return Ok(None) };
        let shape = |graph: usize| {
            let width = |widths: &Widths| match widths {
                Widths::One(width) => Some(*width),
                Widths::PerGraph(widths) => widths.get(graph).copied(),
            };
            widths.iter().filter_map(width).collect()
        };
        let mut shapes: Vec<Vec<Width>> = (0..scope.graphs.len().max(1)).map(shape).collect();
        for shape in &shapes {
            self.check_size(shape, decl.span)?;
        }
        let per = self.per(decl, scope)?;
        if per == Per::Hop {
            return self.per_hop(decl, init, (shapes.swap_remove(0), &shapes), scope);
        }
        // The entry that each graph in scope uses.
        let entries: Vec<Entry> = match (per, scope.layer) {
            (Per::Graph, Some(layer)) => scope.graphs.iter().map(|&g| Entry::Graph(layer.graphs[g])).collect(),
            (Per::Src, Some(layer)) => scope.graphs.iter().map(|&g| Entry::Src(layer.ends[g].0)).collect(),
            (Per::Dst, Some(layer)) => scope.graphs.iter().map(|&g| Entry::Dst(layer.ends[g].1)).collect(),
            _ => vec![],
        };
        if entries.is_empty() {
            if matches!(per, Per::Graph | Per::Src | Per::Dst) {
                // A family that is empty here: nothing to declare, nothing that could use it.
                let param = self.param(decl, init, Decomposition::None, scope);
                let value = self.expr(Kind::Param(param, vec![]), Type::PerGraph(vec![]), decl.span);
                return Ok(Some(Term::Value(value)));
            }
            let shape = shapes.swap_remove(0);
            if shapes.iter().any(|other| !self.fit(other, &shape)) {
                return Err(Box::new(self.two_shapes(scope.place, decl, &shape, &shapes)));
            }
            let entry = match (scope.place, per) {
                (Block::Project(vertex, true) | Block::Fuse(vertex, true), Per::Type) => Entry::Type(vertex),
                _ => Entry::Shared,
            };
            let Some((decomposition, row)) = self.entry(decl, entry, shape, scope)? else { return Ok(None) };
            let param = self.param(decl, init, decomposition, scope);
            return Ok(Some(self.single(Kind::Param(param, vec![entry]), row, decl.span)));
        }
        let mut first = FxHashMap::with_capacity_and_hasher(entries.len(), FxBuildHasher);
        let mut rows: Vec<Row> = Vec::with_capacity(entries.len());
        let mut decomposition = Decomposition::None;
        for (entry, shape) in entries.iter().zip(shapes) {
            let first = *first.entry(*entry).or_insert(rows.len());
            if let Some(row) = rows.get(first) {
                if !self.fit(&row.widths, &shape) {
                    return Err(Box::new(self.two_shapes(scope.place, decl, &row.widths, &[shape])));
                }
                rows.push(row.clone());
                continue;
            }
            let Some((made_of, row)) = self.entry(decl, *entry, shape, scope)? else { return Ok(None) };
            decomposition = made_of;
            rows.push(row);
        }
        let param = self.param(decl, init, decomposition, scope);
        Ok(Some(Term::Value(self.expr(Kind::Param(param, entries), Type::PerGraph(rows), decl.span))))
    }

    /// A parameter with an entry for each relation that paths walk along, all of one shape.
    fn per_hop(
        &mut self,
        decl: &ParamDecl,
        init: Initialiser,
        (shape, others): (Vec<Width>, &[Vec<Width>]),
        scope: &Scope<'_>,
    ) -> Result<Option<Term>, Mistake> {
        if others.iter().any(|other| !self.fit(other, &shape)) {
            return Err(Box::new(self.two_shapes(scope.place, decl, &shape, others)));
        }
        if decl.decomposition.is_some() {
            return Err(Box::new(Diagnostic::at(
                codes::BAD_DECOMPOSITION,
                decl.span,
                "a parameter of each hop is not decomposed",
                "has `per hop` and a decomposition",
            )));
        }
        let param = self.param(decl, init, Decomposition::None, scope);
        Ok(Some(Term::PerHop(param, Row::dense(Space::Unit, shape))))
    }

    /// Adds a declaration to the model.
    fn param(
        &mut self,
        decl: &ParamDecl,
        init: Initialiser,
        decomposition: Decomposition,
        scope: &Scope<'_>,
    ) -> ParamId {
        let name = &decl.name.name;
        let block = match scope.place {
            Block::Model | Block::Composed | Block::Layer => None,
            Block::Project(..) => Some("project"),
            Block::Aggregate => Some("aggregate"),
            Block::Fuse(..) => Some("fuse"),
        };
        // The instances of a block declare one parameter, unless they need different ones.
        let of = scope.layer.map(|layer| layer.id);
        let key = (of, self.time, decl.span);
        if let Some(&known) = self.params.get(&key) {
            let param = &self.model.params[known.index()];
            if param.init == init && param.decomposition == decomposition {
                return known;
            }
        }
        let repeated = scope.layer.is_some_and(|l| declarations(l.layer, name) > 1);
        let is_new = self.params.insert(key, ParamId::new(self.model.params.len())).is_none();
        let times = self.times_declared.entry((of, decl.span)).or_default();
        *times += usize::from(is_new);
        self.model.params.push(Param {
            name: if *times > 1 { format!("{name}_{times}") } else { name.clone() },
            block: block.filter(|_| repeated),
            init,
            decay: !decl.no_decay,
            decomposition,
            span: decl.span,
        });
        ParamId::new(self.model.params.len() - 1)
    }

    /// Compares a shared part of a parameter with what another vertex type or entry needs of it.
    fn share(&mut self, decl: &ParamDecl, part: SharedPart, shape: &[Width], scope: &Scope<'_>) -> Result<(), Mistake> {
        let key = ((scope.layer.map(|layer| layer.id), self.time, decl.span), part);
        if let Some(known) = self.shared_widths.get(&key) {
            if !self.fit(known, shape) {
                // The number of bases is the same for all.
                let skipped = usize::from(part == SharedPart::Bases);
                let (first, other) = (&known[skipped..], shape[skipped..].to_vec());
                return Err(Box::new(self.two_shapes(scope.place, decl, first, &[other])));
            }
            return Ok(());
        }
        self.shared_widths.insert(key, shape.to_vec());
        Ok(())
    }

    fn two_shapes(&self, block: Block, decl: &ParamDecl, first: &[Width], others: &[Vec<Width>]) -> Diagnostic {
        let other = others.iter().find(|other| !self.fit(other, first)).map_or(first, Vec::as_slice);
        let mut report = Diagnostic::at(
            codes::SHARED_SHAPE,
            decl.name.span,
            format!("parameter `{}` is shared but would need two shapes", decl.name.name),
            format!("{} and {}", show_widths(&self.model.tables, first), show_widths(&self.model.tables, other)),
        )
        .help(match &decl.decomposition {
            Some(ast::Decomposition::Basis(_)) => {
                "a basis is shared: bring all vertex types to one width first, as in `linear(features, 64)`"
            }
            Some(ast::Decomposition::Blocks(_)) | None => match block {
                Block::Project(..) | Block::Fuse(..) => {
                    "leave `shared` out: there is one for each vertex type then; or bring all types to one width before"
                }
                Block::Aggregate => {
                    "declare it `per graph`, `per src` or `per dst`, or project the values in a `project` block"
                }
                Block::Model | Block::Composed | Block::Layer => {
                    "declare it in a `project` block, where there is one for each vertex type"
                }
            },
        });
        if let Some((x, y)) = self.mismatch(first, other) {
            report = report.label(x.origin, "one width comes from here").label(y.origin, "the other from here");
        }
        report
    }

    /// One for each of what: as written, or the block's own.
    fn per(&self, decl: &ParamDecl, scope: &Scope<'_>) -> Result<Per, Mistake> {
        let (own, possible): (Per, &[Per]) = match scope.place {
            Block::Model | Block::Composed | Block::Layer => (Per::Shared, &[Per::Shared]),
            Block::Project(..) => (Per::Type, &[Per::Type, Per::Shared]),
            Block::Aggregate if scope.layer.is_some_and(|layer| layer.of_paths) => {
                (Per::Graph, &[Per::Graph, Per::Src, Per::Dst, Per::Hop, Per::Shared])
            }
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
                    Per::Hop => "`per hop`",
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

    /// An entry of a parameter: what it is made of, and its type.
    fn entry(
        &mut self,
        decl: &ParamDecl,
        entry: Entry,
        shape: Vec<Width>,
        scope: &Scope<'_>,
    ) -> Result<Option<(Decomposition, Row)>, Mistake> {
        match &decl.decomposition {
            None => {
                // Each semantic graph has one entry, and there may be thousands of them.
                if !matches!(entry, Entry::Graph(_)) {
                    self.share(decl, SharedPart::Entry(entry), &shape, scope)?;
                }
                Ok(Some((Decomposition::None, Row::dense(Space::Unit, shape))))
            }
            Some(ast::Decomposition::Basis(number)) => {
                let Some(number) = self.one_width(number, scope) else { return Ok(None) };
                let bases = [&[number], &shape[..]].concat();
                self.check_size(&bases, decl.span)?;
                self.share(decl, SharedPart::Bases, &bases, scope)?;
                Ok(Some((Decomposition::Basis(number), Row::dense(Space::Unit, shape))))
            }
            Some(ast::Decomposition::Blocks(number_expr)) => {
                let Some(number) = self.one_width(number_expr, scope) else { return Ok(None) };
                self.check_blocks(decl, &shape, (number, number_expr.span))?;
                let row = Row { space: Space::Unit, widths: shape, form: Form::BlockDiagonal };
                Ok(Some((Decomposition::Blocks(number), row)))
            }
        }
    }

    /// Do so many blocks divide a matrix?
    fn check_blocks(&self, decl: &ParamDecl, shape: &[Width], (number, at): (Width, Span)) -> Result<(), Mistake> {
        let [input, output] = shape else {
            return Err(Box::new(Diagnostic::at(
                codes::BAD_DECOMPOSITION,
                decl.span,
                "a block-diagonal parameter has the shape [in, out]",
                format!("is {}", show_widths(&self.model.tables, shape)),
            )));
        };
        if [number, *input, *output].iter().any(|width| width.dim.is_symbolic()) {
            return Ok(());
        }
        let Some(blocks) = number.dim.fixed() else {
            return Err(Box::new(Diagnostic::at(
                codes::BAD_DECOMPOSITION,
                decl.span,
                "a block-diagonal parameter has the shape [in, out]",
                format!("is {}", show_widths(&self.model.tables, shape)),
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
                    at,
                    format!("{blocks} blocks do not divide [{rows}, {columns}]"),
                    "must divide both widths",
                )
                .label(input.origin, format!("{rows} comes from here"))
                .label(output.origin, format!("{columns} comes from here")),
            ));
        }
        Ok(())
    }

    /// An initialiser; `None`: wrong and reported.
    fn initialiser(&mut self, expr: &Expr, scope: &Scope<'_>) -> Result<Option<Initialiser>, Mistake> {
        let written = match Written::of(expr) {
            Ok(written) => written,
            Err(mistakes) => {
                mistakes.into_iter().for_each(|mistake| self.report(mistake));
                return Ok(None);
            }
        };
        let Some(written) = written else { return Ok(None) };
        let number = match written.argument {
            None => None,
            Some(argument) => match self.number(argument, scope) {
                Some(number) => Some(number),
                None => return Ok(None),
            },
        };
        written.initialiser(number).map(Some)
    }
}

/// How often a layer declares a parameter of that name.
fn declarations(layer: &Layer, name: &str) -> usize {
    let is_it = |stmt: &&Stmt| matches!(stmt, Stmt::Param(decl) if decl.name.name == name);
    let mut count = 0;
    for stmt in layer.parts() {
        match stmt {
            LayerPart::Statement(stmt) => count += usize::from(is_it(&stmt)),
            LayerPart::Block(block) => count += block.body.iter().filter(is_it).count(),
        }
    }
    count
}
