//! Functions that change shapes: of each row of a value, or of a value that is the same in every row.

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::text::{show_dim, show_widths};
use hgnnc_hir::{Dim, ExprId, ExprKind as Kind, Form, Reduction, Row, Type, Width};
use hgnnc_ir::{BinaryOp, Space};
use hgnnc_syntax::ast::{Call, Expr, Part};

use crate::checker::{Checker, Mistake, Place, Scope};
use crate::value::{Term, Typed};

impl Checker<'_> {
    /// A value with one row, all of whose elements are equal.
    pub(crate) fn filled(&mut self, shape: &Expr, number: f64, span: Span, scope: &Scope<'_>) -> Term {
        match self.shape(shape, scope) {
            Some(widths) => Term::Value(self.constant(number, widths, span)),
            None => Term::Error,
        }
    }

    fn constant(&mut self, number: f64, widths: Vec<Width>, span: Span) -> Typed {
        let literal = self.literal(number, span);
        self.expr(Kind::Broadcast(literal.id), Type::One(Row::dense(Space::Unit, widths)), span)
    }

    /// The identity matrix `[n, n]`: a column of ones in front of zeros, `[n, n + 1]`, whose elements in order are those of
    /// the matrix, row by row, and some more.
    pub(crate) fn eye(&mut self, n: &Expr, span: Span, scope: &Scope<'_>) -> Term {
        let Some(width) = self.one_width(n, scope) else { return Term::Error };
        let square = vec![width, width];
        if let Err(mistake) = self.check_size(&square, span) {
            self.report(*mistake);
            return Term::Error;
        }
        let Dim::Fixed(n) = width.dim else { return Term::Value(self.constant(0.0, square, span)) };
        let of = |extent: usize| Width { dim: Dim::Fixed(extent), origin: width.origin };
        let ones = self.constant(1.0, vec![width, of(1)], span);
        let zeros = self.constant(0.0, square.clone(), span);
        let mut made = |kind, widths| self.expr(kind, Type::One(Row::dense(Space::Unit, widths)), span).id;
        let joined = made(Kind::Concat(ones.id, zeros.id), vec![width, of(n + 1)]);
        let flat = made(Kind::Flatten(joined), vec![of(n * (n + 1))]);
        let first = made(Kind::Slice { x: flat, axis: 0, start: 0 }, vec![of(n * n)]);
        let value = self.expr(Kind::Reshape(first), Type::One(Row::dense(Space::Unit, square)), span);
        Term::Value(value)
    }

    /// The row `0, 1, …, n - 1`. Numbers are joined with as many that follow them, so `n` of them take about `log2 n` steps.
    pub(crate) fn counting(&mut self, n: &Expr, span: Span, scope: &Scope<'_>) -> Term {
        let Some(width) = self.one_width(n, scope) else { return Term::Error };
        if let Err(mistake) = self.check_size(&[width], span) {
            self.report(*mistake);
            return Term::Error;
        }
        let of = |extent: usize| vec![Width { dim: Dim::Fixed(extent), origin: width.origin }];
        let row = |widths: Vec<Width>| Type::One(Row::dense(Space::Unit, widths));
        let Dim::Fixed(n) = width.dim else { return Term::Value(self.constant(0.0, vec![width], span)) };
        let (mut numbers, mut extent) = (self.constant(0.0, of(1), span), 1);
        while extent < n {
            let by = self.literal(extent as f64, span).id;
            let next = self.expr(Kind::Binary(BinaryOp::Add, numbers.id, by), row(of(extent)), span);
            extent *= 2;
            numbers = self.expr(Kind::Concat(numbers.id, next.id), row(of(extent)), span);
        }
        if extent > n {
            numbers = self.expr(Kind::Slice { x: numbers.id, axis: 0, start: 0 }, row(vec![width]), span);
        }
        Term::Value(numbers)
    }

    /// The last two dimensions of each row, swapped.
    pub(crate) fn transpose(&mut self, x: Term, at: Span, span: Span) -> Term {
        let rule = |this: &mut Self, row: &Row| {
            this.dense(row, at)?;
            let [.., m, n] = row.widths[..] else {
                let found = show_widths(&this.model.tables, &row.widths);
                return Err(Box::new(
                    Diagnostic::at(
                        codes::SHAPE_MISMATCH,
                        at,
                        format!("`transpose` swaps the last two dimensions, and {found} has fewer"),
                        format!("is {found}"),
                    )
                    .help("`reshape` makes a row a matrix"),
                ));
            };
            this.known_extents(row, span)?;
            let lead = &row.widths[..row.widths.len() - 2];
            Ok(Row::dense(row.space, [lead, &[n, m]].concat()))
        };
        self.map(x, at, span, rule, Kind::Transpose)
    }

    /// Refuses values with a dimension that is only known with a dataset.
    pub(crate) fn known_extents(&self, row: &Row, span: Span) -> Result<(), Mistake> {
        if !row.widths.iter().any(|width| matches!(width.dim, Dim::Count(_))) {
            return Ok(());
        }
        Err(Box::new(Diagnostic::at(
            codes::BAD_RESHAPE,
            span,
            "a dimension that depends on the dataset has no parts and no other place",
            "its extent is not known at compile time",
        )))
    }

    /// `[B.., m, k]` times `[B.., k, n]`, row by row.
    pub(crate) fn matrix_product(&mut self, (a, a_span): (Term, Span), (b, b_span): (Term, Span), span: Span) -> Term {
        let rule = |this: &mut Self, a: &Row, b: &Row| {
            this.dense(a, a_span)?;
            this.dense(b, b_span)?;
            this.known_extents(a, a_span)?;
            this.known_extents(b, b_span)?;
            let space = this.common_rows((a, a_span), (b, b_span), span)?;
            if let (Some((lead, [m, k])), Some((rest, [inner, n]))) =
                (a.widths.split_last_chunk::<2>(), b.widths.split_last_chunk::<2>())
                && this.fit(lead, rest)
                && this.may_equal(k.dim, inner.dim)
            {
                return Ok(Row::dense(space, [lead, &[*m, *n]].concat()));
            }
            let tables = &this.model.tables;
            let (left, right) = (show_widths(tables, &a.widths), show_widths(tables, &b.widths));
            Err(Box::new(
                Diagnostic::at(
                    codes::WIDTH_MISMATCH,
                    span,
                    format!("no product of the matrices {left} and {right}"),
                    "takes [.., m, k] and [.., k, n]",
                )
                .label(a_span, format!("is {left}"))
                .label(b_span, format!("is {right}"))
                .help("a row times a matrix is `x @ w`; `transpose(x)` swaps the last two dimensions"),
            ))
        };
        self.map2(a, b, span, rule, Kind::MatrixProduct)
    }

    /// The products of all elements of two rows: `[B.., m]` and `[B.., n]` to `[B.., m, n]`.
    pub(crate) fn outer(&mut self, (a, a_span): (Term, Span), (b, b_span): (Term, Span), span: Span) -> Term {
        let one = Width { dim: Dim::Fixed(1), origin: span };
        let a = self.with_dimension(a, a_span, |lead, last| [lead, &[last, one]].concat());
        let b = self.with_dimension(b, b_span, |lead, last| [lead, &[one, last]].concat());
        self.matrix_product((a, a_span), (b, b_span), span)
    }

    /// Rows in the shape that their last and their other dimensions give.
    fn with_dimension(&mut self, x: Term, at: Span, shape: impl Fn(&[Width], Width) -> Vec<Width>) -> Term {
        let rule = |this: &mut Self, row: &Row| {
            this.dense(row, at)?;
            let Some((last, lead)) = row.widths.split_last() else {
                return Err(Box::new(Diagnostic::at(
                    codes::SHAPE_MISMATCH,
                    at,
                    "an outer product is of values with a dimension",
                    "is a single number per row",
                )));
            };
            Ok(Row::dense(row.space, shape(lead, *last)))
        };
        self.map(x, at, at, rule, Kind::Reshape)
    }

    /// The elements of the last dimension, moved on by so many places; those that fall off the end come first.
    pub(crate) fn roll(&mut self, x: Term, at: Span, (by, by_span): (f64, Span), span: Span) -> Term {
        if by.is_finite() && by.fract() != 0.0 {
            let message = "elements move by a whole number of places";
            self.report(Diagnostic::at(codes::ARGUMENT_RANGE, by_span, message, format!("this is {by}")));
            return Term::Error;
        }
        let last = |row: &Row| row.widths.last().and_then(|width| width.dim.fixed());
        let extents: Vec<Option<usize>> = match &x {
            Term::Value(value) => value.ty.rows().map(last).collect(),
            _ => vec![None],
        };
        let first = extents.first().copied().flatten();
        if extents.iter().any(|extent| *extent != first) {
            self.report(Diagnostic::at(codes::SHARED_SHAPE, at, "these values have different widths", "one is needed"));
            return Term::Error;
        }
        let (Some(extent), true) = (first, by.is_finite()) else {
            // Of unknown widths, or a number that has none.
            let rule = |this: &mut Self, row: &Row| this.reduce_last(row, false, span).map(|_| row.clone());
            return self.map(x, at, span, rule, Kind::Reshape);
        };
        let start = extent - by.rem_euclid(extent as f64) as usize;
        if start == extent {
            return x;
        }
        let end = self.slice_last(x.clone(), at, (start, extent), span);
        let begin = self.slice_last(x, at, (0, start), span);
        self.map2(end, begin, span, |this, a, b| this.concat(&[a.clone(), b.clone()], span), Kind::Concat)
    }

    fn slice_last(&mut self, x: Term, at: Span, (start, end): (usize, usize), span: Span) -> Term {
        let axis = match &x {
            Term::Value(value) => value.ty.rows().next().map_or(0, |row| row.widths.len().saturating_sub(1)),
            _ => 0,
        };
        self.range(x, at, (axis, start, Dim::Fixed(end - start)), span)
    }

    /// So many elements of a dimension, from one on.
    fn range(&mut self, x: Term, at: Span, (axis, start, len): (usize, usize, Dim), span: Span) -> Term {
        let rule = |this: &mut Self, row: &Row| {
            this.dense(row, at)?;
            this.known_extents(row, at)?;
            let mut widths = row.widths.clone();
            widths[axis] = Width { dim: len, origin: span };
            Ok(Row::dense(row.space, widths))
        };
        self.map(x, at, span, rule, |x| Kind::Slice { x, axis, start })
    }

    /// `x[0..8, .., 2]`: what is taken of each dimension, the first one first.
    pub(crate) fn slice(&mut self, base: &Expr, parts: &[Part], span: Span, scope: &Scope<'_>) -> Term {
        let mut x = self.eval(base, scope);
        if let Term::List = x {
            let message = "a list has no parts";
            self.report(Diagnostic::at(codes::NOT_A_VALUE, base.span, message, "a value is needed here"));
            x = Term::Error;
        }
        let mut dimensions = vec![];
        for (axis, part) in parts.iter().enumerate() {
            let mut bounds = vec![];
            for bound in part.bounds() {
                bounds.push(self.bound(bound, scope));
            }
            if bounds.contains(&None) {
                return Term::Error;
            }
            let Some(extent) = self.extent(&x, base.span, axis, span) else { return Term::Error };
            let (start, end) = match part {
                Part::At(_) => {
                    let at = bounds[0].flatten();
                    (at, at.map(|at| at + 1))
                }
                Part::Range(None, None) => {
                    dimensions.push(true);
                    continue;
                }
                Part::Range(start, end) => {
                    let of =
                        |bound: &Option<Expr>, at: usize, other| bound.as_ref().map_or(other, |_| bounds[at].flatten());
                    (of(start, 0, Some(0)), of(end, bounds.len() - 1, extent))
                }
            };
            let written = part.bounds().last().map_or(span, |bound| bound.span);
            if let (Some(start), Some(end)) = (start, end) {
                let beyond = extent.is_some_and(|extent| end > extent);
                if beyond || start >= end {
                    let all = extent.map_or("?".to_owned(), |extent| extent.to_string());
                    let report = match (part, beyond) {
                        (Part::At(_), _) => Diagnostic::at(
                            codes::BAD_SLICE,
                            written,
                            format!("there is no element {start}: the dimension has {all}"),
                            "elements are counted from 0",
                        ),
                        (Part::Range(..), true) => Diagnostic::at(
                            codes::BAD_SLICE,
                            written,
                            format!("{start}..{end} ends behind the dimension, which has {all} elements"),
                            "the end is not taken: `0..n` are all of n",
                        ),
                        (Part::Range(..), false) => Diagnostic::at(
                            codes::BAD_SLICE,
                            written,
                            format!("{start}..{end} holds nothing"),
                            "the end is greater than the start",
                        ),
                    };
                    self.report(report.label(base.span, "of this value"));
                    return Term::Error;
                }
            }
            let len = match (start, end) {
                (Some(start), Some(end)) => Dim::Fixed(end - start),
                _ => self.model.tables.symbols.variable("?"),
            };
            x = self.range(x, base.span, (axis, start.unwrap_or(0), len), span);
            dimensions.push(!matches!(part, Part::At(_)));
        }
        if dimensions.iter().all(|stays| *stays) {
            return x;
        }
        let rule = |_: &mut Self, row: &Row| {
            let stays = |axis: &usize| dimensions.get(*axis).copied().unwrap_or(true);
            let widths = (0..row.widths.len()).filter(stays).map(|axis| row.widths[axis]).collect();
            Ok(Row::dense(row.space, widths))
        };
        self.map(x, base.span, span, rule, Kind::Reshape)
    }

    /// A bound of a slice: `None` for a mistake, and no number for one that the use of the layer gives.
    fn bound(&mut self, bound: &Expr, scope: &Scope<'_>) -> Option<Option<usize>> {
        let number = self.number(bound, scope)?;
        if number.is_nan() {
            return Some(None);
        }
        if number >= 0.0 && number.fract() == 0.0 && number < (1u64 << 40) as f64 {
            return Some(Some(number as usize));
        }
        let help = self.indivisible(bound, scope).unwrap_or_else(|| "`x[width(x) - 1]` is the last element".to_owned());
        self.report(
            Diagnostic::at(
                codes::BAD_SLICE,
                bound.span,
                "elements are counted by whole numbers from 0 on",
                format!("this is {number}"),
            )
            .help(help),
        );
        None
    }

    /// The extent of a dimension of all values; no number where it is not known.
    fn extent(&mut self, x: &Term, at: Span, axis: usize, span: Span) -> Option<Option<usize>> {
        let value = match self.value(x.clone(), at) {
            Ok(value) => value?,
            Err(mistake) => {
                self.report(*mistake);
                return None;
            }
        };
        let mut found: Option<Width> = None;
        for row in value.ty.rows() {
            let tables = &self.model.tables;
            let Some(width) = row.widths.get(axis) else {
                let shape = show_widths(tables, &row.widths);
                let report = Diagnostic::at(
                    codes::BAD_SLICE,
                    span,
                    format!("{shape} has no dimension {axis}"),
                    "more parts than dimensions",
                );
                self.report(report.label(at, format!("is {shape}")));
                return None;
            };
            if let Some(first) = found
                && first.dim != width.dim
            {
                let report = Diagnostic::at(
                    codes::SHARED_SHAPE,
                    at,
                    "these values have different widths",
                    format!("{} and {}", show_dim(tables, first.dim), show_dim(tables, width.dim)),
                );
                self.report(
                    report.label(first.origin, "one comes from here").label(width.origin, "the other from here"),
                );
                return None;
            }
            found = Some(*width);
        }
        Some(found.and_then(|width| width.dim.fixed()))
    }

    /// `stack(a, b, …)`: values of one shape, one after another in a new first dimension. `stack(x) across graphs`: those that
    /// a vertex has for each semantic graph.
    pub(crate) fn stack(&mut self, call: &Call, span: Span, scope: &Scope<'_>) -> Term {
        let mut parts = vec![];
        for arg in &call.args {
            if let Some(name) = &arg.name {
                let message = "`stack` takes values without names";
                self.report(Diagnostic::at(codes::UNKNOWN_ARGUMENT, name.span, message, "unknown argument"));
                return Term::Error;
            }
            let term = self.eval(&arg.value, scope);
            if matches!(term, Term::Error) {
                return Term::Error;
            }
            parts.push((term, arg.value.span));
        }
        let scoped = !call.of.is_empty() || call.over.is_some();
        let mut shape = None;
        let joined = match (&call.across, &call.args[..]) {
            (Some(across), [arg]) if !scoped && self.is_family(across, scope) => {
                let (term, at) = parts.remove(0);
                if let (Place::Fuse(vertex, _), Term::Value(value)) = (scope.place, &term)
                    && matches!(&*value.ty, Type::PerGraph(rows) if rows.is_empty())
                {
                    return self.stack_of_none(vertex, &arg.value, span, scope);
                }
                let flat = self.flat_part(term, at, &mut shape, span);
                if matches!(flat, Term::Error) {
                    return Term::Error;
                }
                let joined = self.across_graphs(Reduction::Concat, flat, &arg.value, across, span, scope);
                self.settle(joined)
            }
            (None, [_, ..]) if !scoped => {
                let mut joined: Option<Term> = None;
                for (part, at) in parts {
                    let flat = self.flat_part(part, at, &mut shape, span);
                    joined = Some(match joined {
                        None => flat,
                        Some(before) => {
                            let rule = |this: &mut Self, a: &Row, b: &Row| this.joined(a, b, span);
                            self.map2(before, flat, span, rule, Kind::Concat)
                        }
                    });
                }
                joined.unwrap_or(Term::Error)
            }
            // The family was reported.
            (Some(_), [_]) if !scoped => Term::Error,
            _ => {
                let message = "`stack` takes values of one shape, as in `stack(a, b)` or `stack(v.z) across graphs`";
                self.report(Diagnostic::at(codes::MISSING_ARGUMENT, span, message, "what is stacked?"));
                Term::Error
            }
        };
        let Some((widths, each)) = shape else { return Term::Error };
        // As many as there are parts of that many elements; how large a family is, only its use says.
        let unknown = self.without_use && call.across.is_some();
        let rule = |this: &mut Self, row: &Row| {
            let all = row.widths[0].dim;
            let symbols = &mut this.model.tables.symbols;
            let count = if unknown { None } else { symbols.divide(all, each) };
            let dim = count.unwrap_or_else(|| symbols.variable("?"));
            Ok(Row::dense(row.space, [&[Width { dim, origin: span }], &widths[..]].concat()))
        };
        self.map(joined, span, span, rule, Kind::Reshape)
    }

    /// A part of a stack in one dimension. All parts have the shape of the first one.
    fn flat_part(&mut self, part: Term, at: Span, shape: &mut Option<(Vec<Width>, Dim)>, span: Span) -> Term {
        let rule = |this: &mut Self, row: &Row| {
            this.dense(row, at)?;
            this.known_extents(row, at)?;
            let dim = this.volume(&row.widths);
            let (first, _) = shape.get_or_insert_with(|| (row.widths.clone(), dim));
            if !this.fit(first, &row.widths) {
                let tables = &this.model.tables;
                let (first, found) = (show_widths(tables, first), show_widths(tables, &row.widths));
                return Err(Box::new(Diagnostic::at(
                    codes::SHAPE_MISMATCH,
                    at,
                    format!("`stack` takes values of one shape, not {first} and {found}"),
                    format!("is {found}"),
                )));
            }
            Ok(Row::dense(row.space, vec![Width { dim, origin: at }]))
        };
        self.map(part, at, span, rule, Kind::Reshape)
    }

    /// The number of elements of a shape.
    fn volume(&mut self, widths: &[Width]) -> Dim {
        let symbols = &mut self.model.tables.symbols;
        let mut all = Dim::Fixed(1);
        for width in widths {
            all = symbols.multiply(all, width.dim).unwrap_or_else(|| symbols.variable("?"));
        }
        all
    }

    /// Two values joined along their last dimension; a single row is repeated, so that a parameter can be joined to
    /// those of every vertex.
    pub(crate) fn joined(&mut self, a: &Row, b: &Row, span: Span) -> Result<Row, Mistake> {
        let on = |row: &Row, other: &Row| match row.space {
            Space::Unit => Row { space: other.space, ..row.clone() },
            _ => row.clone(),
        };
        self.concat(&[on(a, b), on(b, a)], span)
    }

    /// Joins all dimensions of every value.
    pub(crate) fn flatten(&mut self, x: Term, at: Span, span: Span) -> Term {
        // Values of one dimension stay as they are.
        if let Term::Value(value) = &x
            && value.ty.rows().all(|row| row.widths.len() == 1)
        {
            return x;
        }
        let rule = |this: &mut Self, row: &Row| {
            if row.widths.len() == 1 {
                return Ok(row.clone());
            }
            this.check_size(&row.widths, span)?;
            this.known_extents(row, span)?;
            let extent = this.volume(&row.widths);
            this.reshape(row, vec![Width { dim: extent, origin: span }], at, span)
        };
        self.map(x, at, span, rule, Kind::Flatten)
    }

    /// A list of widths.
    pub(crate) fn shape(&mut self, expr: &Expr, scope: &Scope<'_>) -> Option<Vec<Width>> {
        let hgnnc_syntax::ast::ExprKind::List(items) = &expr.kind else {
            self.report(Diagnostic::at(codes::BAD_RESHAPE, expr.span, "a shape is a list: `[8, 64]`", "not a list"));
            return None;
        };
        let mut widths = vec![];
        for item in items {
            widths.push(self.one_width(item, scope)?);
        }
        match self.check_size(&widths, expr.span) {
            Ok(()) => Some(widths),
            Err(mistake) => {
                self.report(*mistake);
                None
            }
        }
    }

    pub(crate) fn reshape(&self, row: &Row, shape: Vec<Width>, at: Span, span: Span) -> Result<Row, Mistake> {
        self.usable(row, at)?;
        if let Form::Sparse(_) = row.form {
            return Err(Box::new(Diagnostic::at(
                codes::SPARSE_VALUE,
                span,
                "sparse features have no other shape",
                "project them first",
            )));
        }
        let tables = &self.model.tables;
        let reshaped = Row::dense(row.space, shape);
        if tables.symbols.may_have_equal_volumes(&row.dims(), &reshaped.dims()) {
            return Ok(reshaped);
        }
        Err(Box::new(
            Diagnostic::at(
                codes::BAD_RESHAPE,
                span,
                format!(
                    "{} and {} have different numbers of elements",
                    show_widths(tables, &row.widths),
                    show_widths(tables, &reshaped.widths)
                ),
                "cannot be reshaped",
            )
            .label(at, format!("is {}", show_widths(tables, &row.widths))),
        ))
    }

    /// Joins values along their last dimension.
    pub(crate) fn concat(&mut self, parts: &[Row], span: Span) -> Result<Row, Mistake> {
        let first = &parts[0];
        let mut total = Some(Dim::Fixed(0));
        for part in parts {
            if part.form == Form::Time {
                self.usable(part, span)?;
            }
            let split = part.widths.split_last().zip(first.widths.split_last());
            let joins = |(last, rest): (&Width, &[Width]), (_, lead): (&Width, &[Width])| {
                let fits = !matches!(last.dim, Dim::Count(_)) && self.fit(rest, lead) && part.space == first.space;
                fits.then_some(last.dim)
            };
            let Some(last) = split.and_then(|(part, first)| joins(part, first)) else {
                let tables = &self.model.tables;
                return Err(Box::new(
                    Diagnostic::at(
                        codes::BAD_CONCAT,
                        span,
                        format!(
                            "{} and {} cannot be joined along their last dimension",
                            show_widths(tables, &first.widths),
                            show_widths(tables, &part.widths)
                        ),
                        "all dimensions but the last must be equal",
                    )
                    .help("`flatten(…)` or `reshape(…)` first"),
                ));
            };
            self.dense(part, span)?;
            let symbols = &mut self.model.tables.symbols;
            total = total.and_then(|total| symbols.add(total, last));
        }
        let dim = total.unwrap_or_else(|| self.model.tables.symbols.variable("?"));
        let mut widths = first.widths.clone();
        widths.pop();
        widths.push(Width { dim, origin: span });
        Ok(Row::dense(first.space, widths))
    }

    /// A single row for every row of a space.
    pub(crate) fn broadcast_row(&self, row: &Row, space: Space, span: Span) -> Result<Row, Mistake> {
        self.dense(row, span)?;
        Ok(Row { space, ..row.clone() })
    }

    /// Repeats a single value for every row of a space; one that has its rows stays as it is.
    pub(crate) fn broadcast(&mut self, value: ExprId, row: &Row, space: Space, span: Span) -> Result<ExprId, Mistake> {
        let broadcast = self.broadcast_row(row, space, span)?;
        if row.space == space {
            return Ok(value);
        }
        Ok(self.expr(Kind::Broadcast(value), Type::One(broadcast), span).id)
    }
}
