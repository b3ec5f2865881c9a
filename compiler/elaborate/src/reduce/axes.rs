//! Reductions over a trailing dimension or over the rows: `max(x) over last`, `sum(x) over first`, `mean(x) over V`.

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::text::{show_space, show_widths};
use hgnnc_hir::{Axis, Dim, ExprKind as Kind, Form, Reduction, Row, Width};
use hgnnc_ir::{BinaryOp, Space, VertexType};
use hgnnc_syntax::ast::Ident;

use crate::checker::{Checker, Mistake};
use crate::operators::Operand;
use crate::value::Term;

/// `over first` is written out slice by slice: it is meant for heads.
const MOST_SLICES: usize = 1024;

impl Checker<'_> {
    /// Over the last dimension of every value.
    pub(super) fn over_last_dimension(&mut self, kind: Reduction, x: Term, at: Span, span: Span) -> Term {
        let operand = x.clone();
        let rule = |this: &mut Self, row: &Row| this.over_last(kind, row, at, span);
        let result = self.map(x, span, span, rule, |x| Kind::OverDimension(Axis::Last, kind, x));
        if let (Reduction::Softmax, Term::Value(share), Term::Value(operand)) = (kind, &result, operand) {
            for row in operand.ty.rows() {
                let extent = row.widths.last().and_then(|width| width.dim.fixed());
                self.doubt_softmax(extent, "the last dimension is 1", share.id, span);
            }
        }
        result
    }

    fn over_last(&self, kind: Reduction, row: &Row, at: Span, span: Span) -> Result<Row, Mistake> {
        if row.widths.is_empty() {
            return Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                at,
                "a single number per row has no dimension to reduce over",
                format!("is {}", show_widths(&self.model.tables, &row.widths)),
            )));
        }
        match kind {
            Reduction::Concat => Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                span,
                "use `flatten` to join dimensions",
                "cannot concatenate over a dimension",
            ))),
            Reduction::Softmax => {
                let lse = self.reduce_last(row, false, span)?;
                self.elementwise(BinaryOp::Sub, Operand::of(row, at), Operand::of(&lse, at), span)
            }
            Reduction::Mean => self.reduce_last(row, true, span),
            Reduction::Sum | Reduction::Max | Reduction::Min | Reduction::LogSumExp => {
                if matches!(row.form, Form::Sparse(_)) && kind != Reduction::Sum {
                    return Err(Box::new(Diagnostic::at(
                        codes::SPARSE_VALUE,
                        at,
                        "only sums are taken over the rows of sparse features",
                        "sparse features",
                    )));
                }
                self.reduce_last(row, kind == Reduction::Sum, span)
            }
        }
    }

    /// Over the first trailing dimension (heads): slices, combined element by element in order.
    pub(super) fn over_first(&mut self, kind: Reduction, row: &Row, at: Span, span: Span) -> Result<Row, Mistake> {
        let shape = show_widths(&self.model.tables, &row.widths);
        let first = match row.widths[..] {
            [Width { dim: dim @ (Dim::Fixed(_) | Dim::Symbolic(_)), .. }, _, ..] => dim,
            _ => {
                return Err(Box::new(
                    Diagnostic::at(
                        codes::WRONG_SCOPE,
                        at,
                        "`over first` needs at least two dimensions",
                        format!("is {shape}"),
                    )
                    .help("`over last` reduces a single dimension"),
                ));
            }
        };
        if matches!(kind, Reduction::Softmax | Reduction::Concat) {
            return Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                span,
                "only sum, mean, max and min reduce over the first dimension",
                "not possible `over first`",
            )));
        }
        if first.fixed().is_some_and(|first| first > MOST_SLICES) {
            return Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                at,
                format!("`over first` takes at most {MOST_SLICES} slices"),
                format!("is {shape}"),
            )));
        }
        if row.widths[1..].iter().any(|width| matches!(width.dim, Dim::Count(_))) {
            return Err(Box::new(Diagnostic::at(
                codes::BAD_RESHAPE,
                at,
                "the extents must be known at compile time",
                "depends on the dataset",
            )));
        }
        self.dense(row, at)?;
        self.operations += 3 * first.fixed().unwrap_or(0);
        Ok(Row::dense(row.space, row.widths[1..].to_vec()))
    }

    pub(super) fn over_rows(
        &self,
        kind: Reduction,
        row: &Row,
        at: Span,
        over: &Ident,
        wanted: Option<VertexType>,
        span: Span,
    ) -> Result<Row, Mistake> {
        self.usable(row, at)?;
        let fits = match (row.space, wanted) {
            (Space::Vertices(found), Some(wanted)) => found == wanted,
            (Space::Vertices(_), None) => true,
            (Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..), _) => false,
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
                .label(at, format!("has {}", show_space(&self.model.tables, row.space))),
            ));
        }
        self.dense(row, at)?;
        match kind {
            Reduction::Softmax => Ok(row.clone()),
            Reduction::Mean | Reduction::Sum | Reduction::Max | Reduction::Min | Reduction::LogSumExp => {
                Ok(Row::dense(Space::Unit, row.widths.clone()))
            }
            Reduction::Concat => Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                span,
                "all vertices of a type cannot be concatenated",
                "use sum, mean, max, min or softmax",
            ))),
        }
    }
}
