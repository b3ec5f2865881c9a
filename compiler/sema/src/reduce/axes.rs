//! Reductions over a trailing dimension or over the rows: `max(x) over last`, `sum(x) over first`, `mean(x) over V`.

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_ir::{BinaryOp, Dim, Op, Reduce, Space, UnaryOp, VertexType};
use hgnnc_syntax::ast::Ident;

use super::Kind;
use crate::elaborate::{Elaborator, Mistake};
use crate::value::{Val, ValKind, Width, show_space, show_widths};

/// `over first` is written out slice by slice: it is meant for heads.
const MOST_SLICES: usize = 1024;

impl Elaborator<'_> {
    pub(super) fn over_last(&mut self, kind: Kind, val: Val, at: Span, span: Span) -> Result<Val, Mistake> {
        let Some(width) = val.widths.last().copied() else {
            return Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                at,
                "a single number per row has no dimension to reduce over",
                format!("is {}", show_widths(&self.flow, &val.widths)),
            )));
        };
        match kind {
            Kind::Concat => Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                span,
                "use `flatten` to join dimensions",
                "cannot concatenate over a dimension",
            ))),
            Kind::Softmax => {
                let lse = self.reduce_last(val.clone(), Reduce::Lse, span)?;
                let shifted = self.elementwise(BinaryOp::Sub, val, at, lse, at, span)?;
                let share = self.apply_unary(UnaryOp::Exp, shifted, span)?;
                let value = self.stored(&share, span)?;
                self.doubt_softmax(width.dim.fixed(), "the last dimension is 1", value, span);
                Ok(share)
            }
            Kind::Mean => {
                let count = match width.dim {
                    Dim::Fixed(extent) => self.constant(extent as f64, span),
                    Dim::Count(vertex) => self.count(Space::Vertices(vertex), span),
                };
                let sum = self.reduce_last(val, Reduce::Sum, span)?;
                self.elementwise(BinaryOp::Div, sum, at, count, span, span)
            }
            Kind::Sum | Kind::Max | Kind::Min | Kind::LogSumExp => {
                let sparse = matches!(val.kind, ValKind::Stored(v) if self.flow.is_sparse(v));
                if sparse && kind != Kind::Sum {
                    return Err(Box::new(Diagnostic::at(
                        codes::SPARSE_VALUE,
                        at,
                        "only sums are taken over the rows of sparse features",
                        "sparse features",
                    )));
                }
                self.reduce_last(val, kind.base(), span)
            }
        }
    }

    /// Over the first trailing dimension (heads): slices, combined element by element in order.
    pub(super) fn over_first(&mut self, kind: Kind, val: Val, at: Span, span: Span) -> Result<Val, Mistake> {
        let (Some(Width { dim: Dim::Fixed(first), .. }), true) = (val.widths.first().copied(), val.widths.len() >= 2)
        else {
            return Err(Box::new(
                Diagnostic::at(
                    codes::WRONG_SCOPE,
                    at,
                    "`over first` needs at least two dimensions",
                    format!("is {}", show_widths(&self.flow, &val.widths)),
                )
                .help("`over last` reduces a single dimension"),
            ));
        };
        let op = match kind {
            Kind::Sum | Kind::Mean => BinaryOp::Add,
            Kind::Max => BinaryOp::Max,
            Kind::Min => BinaryOp::Min,
            Kind::LogSumExp => BinaryOp::LogAddExp,
            Kind::Softmax | Kind::Concat => {
                return Err(Box::new(Diagnostic::at(
                    codes::WRONG_SCOPE,
                    span,
                    "only sum, mean, max and min reduce over the first dimension",
                    "not possible `over first`",
                )));
            }
        };
        if first > MOST_SLICES {
            return Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                at,
                format!("`over first` takes at most {MOST_SLICES} slices"),
                format!("is {}", show_widths(&self.flow, &val.widths)),
            )));
        }
        let rest: Vec<Width> = val.widths[1..].to_vec();
        let Some(len) = rest.iter().map(|w| w.dim.fixed()).product::<Option<usize>>() else {
            return Err(Box::new(Diagnostic::at(
                codes::BAD_RESHAPE,
                at,
                "the extents must be known at compile time",
                "depends on the dataset",
            )));
        };
        let value = self.dense(&val, at)?;
        let flat = self.emit(Op::Reshape(vec![Dim::Fixed(first * len)]), &[value], span);
        let mut total: Option<Val> = None;
        for index in 0..first {
            let slice = self.emit(Op::Slice { start: index * len, len }, &[flat], span);
            let slice = self.emit(Op::Reshape(rest.iter().map(|w| w.dim).collect()), &[slice], span);
            let slice = Val { kind: ValKind::Stored(slice), widths: rest.clone() };
            total = Some(match total {
                None => slice,
                Some(sum) => self.elementwise(op, sum, at, slice, at, span)?,
            });
        }
        let total = total.expect("extents are at least 1");
        if kind != Kind::Mean {
            return Ok(total);
        }
        let count = self.constant(first as f64, span);
        self.elementwise(BinaryOp::Div, total, at, count, span, span)
    }

    pub(super) fn over_rows(
        &mut self,
        kind: Kind,
        val: Val,
        at: Span,
        over: &Ident,
        wanted: Option<VertexType>,
        span: Span,
    ) -> Result<Val, Mistake> {
        let value = self.stored(&val, at)?;
        let space = self.flow.ty(value).space;
        let fits = match (space, wanted) {
            (Space::Vertices(found), Some(wanted)) => found == wanted,
            (Space::Vertices(_), None) => true,
            (Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Ends(..), _) => false,
        };
        if !fits {
            return Err(Box::new(
                Diagnostic::at(
                    codes::WRONG_SCOPE,
                    over.span,
                    "this value does not have the rows that it is reduced over",
                    match wanted {
                        Some(wanted) => format!("stands for the vertices of type `{}`", self.vertex_name(wanted)),
                        None => "needs one row per vertex".to_string(),
                    },
                )
                .label(at, format!("has {}", show_space(&self.flow, space))),
            ));
        }
        self.dense(&val, at)?;
        match kind {
            Kind::Mean => self.mean_over_rows(val, at, span),
            Kind::Softmax => {
                let lse = self.emit(Op::ReduceSpace(Reduce::Lse), &[value], span);
                let lse = Val { kind: ValKind::Stored(lse), widths: val.widths.clone() };
                let shifted = self.elementwise(BinaryOp::Sub, val, at, lse, at, span)?;
                self.apply_unary(UnaryOp::Exp, shifted, span)
            }
            Kind::Sum | Kind::Max | Kind::Min | Kind::LogSumExp => {
                let value = self.emit(Op::ReduceSpace(kind.base()), &[value], span);
                Ok(Val { kind: ValKind::Stored(value), ..val })
            }
            Kind::Concat => Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                span,
                "all vertices of a type cannot be concatenated",
                "use sum, mean, max, min or softmax",
            ))),
        }
    }
}
