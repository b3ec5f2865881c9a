//! Types of single values: the rules of the kinds of expressions, value by value.

use hgnnc_ir::{BinaryOp, Direction, Graph, Space, UnaryOp, VertexType};

use super::Verifier;
use crate::{Axis, Dim, FeatureKind, Features, Form, Reduction, Row, Width};

/// A type, or the rule that an expression breaks.
pub(super) type Rule<T> = Result<T, String>;

/// Refuses values that cannot stand by themselves.
pub(super) fn usable(row: &Row) -> Rule<()> {
    match row.form {
        Form::Dense | Form::Sparse(_) => Ok(()),
        Form::OneHot | Form::OneHotAtEnd => Err("a one-hot value is only multiplied".into()),
        Form::SparseAtEnd => Err("sparse values are multiplied before they are gathered".into()),
        Form::BlockDiagonal => Err("a block-diagonal weight is only the right side of a product".into()),
        Form::Time => Err("a time is only subtracted from and compared with another".into()),
    }
}

pub(super) fn dense(row: &Row) -> Rule<()> {
    usable(row)?;
    if let Form::Sparse(_) = row.form { Err("the zeros of a sparse value would be filled".into()) } else { Ok(()) }
}

pub(super) fn unary(op: UnaryOp, row: &Row) -> Rule<Row> {
    if op.preserves_zero() {
        usable(row)?
    } else {
        dense(row)?
    }
    Ok(row.clone())
}

pub(super) fn features(features: &Features, declared: &Row) -> Rule<Row> {
    let form = match features.kind {
        FeatureKind::Dense | FeatureKind::Embedding(_) => Form::Dense,
        FeatureKind::Sparse | FeatureKind::TrainLabels { .. } => Form::Sparse(features.span),
        FeatureKind::OneHot => Form::OneHot,
        FeatureKind::Time if declared.widths.is_empty() => {
            return Ok(Row { space: Space::Vertices(features.vertex), widths: vec![], form: Form::Time });
        }
        FeatureKind::Time => return Err("a time is one number".into()),
    };
    match (declared.widths[..].first(), features.kind) {
        (Some(Width { dim: Dim::Count(vertex), .. }), FeatureKind::OneHot) if *vertex == features.vertex => {}
        (
            Some(Width { dim: Dim::Fixed(_), .. }),
            FeatureKind::Dense | FeatureKind::Sparse | FeatureKind::Embedding(_) | FeatureKind::TrainLabels { .. },
        ) => {}
        _ => return Err("features have one extent: the declared one, or the number of vertices".into()),
    }
    Ok(Row { space: Space::Vertices(features.vertex), widths: declared.widths[..1].to_vec(), form })
}

/// Values with the same rows, and one without its last dimension. Only sums keep zeros.
pub(super) fn over_last(reduction: Reduction, row: &Row) -> Rule<Row> {
    match reduction {
        Reduction::Sum | Reduction::Mean => usable(row)?,
        Reduction::Max | Reduction::Min | Reduction::LogSumExp | Reduction::Softmax => dense(row)?,
        Reduction::Concat => return Err("dimensions are joined by `flatten`".into()),
    }
    let Some((_, rest)) = row.widths.split_last() else { return Err("there is no last dimension".into()) };
    if reduction == Reduction::Softmax {
        return Ok(row.clone());
    }
    Ok(Row::dense(row.space, rest.to_vec()))
}

/// Over the first of several dimensions, slice by slice.
pub(super) fn over_first(reduction: Reduction, row: &Row) -> Rule<Row> {
    dense(row)?;
    if matches!(reduction, Reduction::Softmax | Reduction::Concat) {
        return Err("slices are summed, averaged, or the greatest or least is taken".into());
    }
    if row.widths.len() < 2 || row.widths.iter().any(|width| matches!(width.dim, Dim::Count(_))) {
        return Err("slices are those of several dimensions of known extents".into());
    }
    Ok(Row::dense(row.space, row.widths[1..].to_vec()))
}

pub(super) fn over_rows(reduction: Reduction, row: &Row) -> Rule<Row> {
    dense(row)?;
    match (row.space, reduction) {
        (Space::Vertices(_), Reduction::Concat) => Err("rows are not joined".into()),
        (Space::Vertices(_), Reduction::Softmax) => Ok(row.clone()),
        (Space::Vertices(_), _) => Ok(Row::dense(Space::Unit, row.widths.clone())),
        (Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..), _) => {
            Err("it has no row for each vertex".into())
        }
    }
}

/// A vertex value at an end of the edges of a graph; a single row is the same at every edge.
pub(super) fn gathered(row: &Row, graph: Graph, vertex: VertexType) -> Rule<Row> {
    let form = match row.form {
        Form::Dense => Form::Dense,
        Form::Sparse(_) => Form::SparseAtEnd,
        Form::OneHot => Form::OneHotAtEnd,
        Form::Time => Form::Time,
        Form::SparseAtEnd | Form::OneHotAtEnd | Form::BlockDiagonal => return Err("it is no vertex value".into()),
    };
    match row.space {
        Space::Unit => Ok(row.clone()),
        Space::Vertices(found) if found == vertex => {
            Ok(Row { space: Space::Edges(graph), widths: row.widths.clone(), form })
        }
        _ => Err("it is no value of the vertices at this end".into()),
    }
}

/// The function by which a reduction combines two values.
pub(super) fn combine(reduction: Reduction) -> BinaryOp {
    match reduction {
        Reduction::Sum | Reduction::Mean | Reduction::Concat => BinaryOp::Add,
        Reduction::Max => BinaryOp::Max,
        Reduction::Min => BinaryOp::Min,
        Reduction::Softmax | Reduction::LogSumExp => BinaryOp::LogAddExp,
    }
}

/// The rows of a value that is computed from both, of which one may be a single row.
fn common_rows(a: &Row, b: &Row) -> Rule<Space> {
    match (a.space, b.space) {
        (x, y) if x == y || y == Space::Unit => Ok(x),
        (Space::Unit, y) => Ok(y),
        _ => Err("its operands have rows for different things".into()),
    }
}

/// The last two widths, and those before them.
fn ends(widths: &[Width]) -> Option<(&[Width; 2], &[Width])> {
    widths.split_last_chunk::<2>().map(|(lead, last)| (last, lead))
}

impl Verifier<'_> {
    pub(super) fn may_equal(&self, a: Dim, b: Dim) -> bool {
        !self.model.tables.symbols.differ(a, b)
    }

    pub(super) fn fit(&self, a: &[Width], b: &[Width]) -> bool {
        a.len() == b.len() && self.begins(a, b)
    }

    /// Are the widths `first` those that `widths` begins with?
    pub(super) fn begins(&self, widths: &[Width], first: &[Width]) -> bool {
        widths.len() >= first.len() && widths.iter().zip(first).all(|(a, b)| self.may_equal(a.dim, b.dim))
    }

    pub(super) fn binary(&self, op: BinaryOp, a: &Row, b: &Row) -> Rule<Row> {
        let of_times =
            (a.form, b.form) == (Form::Time, Form::Time) && matches!(op, BinaryOp::Sub | BinaryOp::Eq | BinaryOp::Gt);
        if !of_times {
            usable(a)?;
            usable(b)?;
        }
        if a.space != b.space && a.space != Space::Unit && b.space != Space::Unit {
            return Err("its operands have rows for different things".into());
        }
        let (longer, shorter) = if a.widths.len() >= b.widths.len() { (a, b) } else { (b, a) };
        if !self.begins(&longer.widths, &shorter.widths) {
            return Err("the extents of one operand are not the first ones of the other".into());
        }
        let is_whole = |row: &Row| row.widths.len() == longer.widths.len();
        let form = match (a.form, b.form) {
            (Form::Dense, Form::Dense) | (Form::Time, Form::Time) => Form::Dense,
            (Form::Sparse(of), Form::Sparse(other)) if op.zero_with_zero() && of == other => Form::Sparse(of),
            (Form::Sparse(_), Form::Dense) if matches!(op, BinaryOp::Mul | BinaryOp::Div) && is_whole(a) => a.form,
            (Form::Dense, Form::Sparse(_)) if op == BinaryOp::Mul && is_whole(b) => b.form,
            _ => return Err("the zeros of a sparse value would be filled".into()),
        };
        let space = if a.space == Space::Unit { b.space } else { a.space };
        Ok(Row { space, widths: longer.widths.clone(), form })
    }

    /// A row repeated for those of another space, and for the elements of further dimensions.
    pub(super) fn repeated(&self, row: &Row, declared: &Row) -> Rule<Row> {
        dense(row)?;
        if row.space != Space::Unit || !self.begins(&declared.widths, &row.widths) {
            return Err("only single rows are repeated, and for further dimensions".into());
        }
        Ok(Row::dense(declared.space, declared.widths.clone()))
    }

    /// A value of the edges of a graph: as it is, or a single row for all of them.
    pub(super) fn on_edges(&self, row: &Row, graph: Graph, declared: &Row) -> Rule<Row> {
        let edges = Row { space: Space::Edges(graph), ..declared.clone() };
        if row.space == edges.space { usable(row).map(|()| row.clone()) } else { self.repeated(row, &edges) }
    }

    pub(super) fn flatten(&self, row: &Row, declared: &Row) -> Rule<Row> {
        if row.widths.len() == 1 {
            return Ok(row.clone());
        }
        if declared.widths.len() != 1 || row.widths.iter().any(|width| matches!(width.dim, Dim::Count(_))) {
            return Err("known extents are joined in one".into());
        }
        self.reshape(row, declared)
    }

    pub(super) fn reshape(&self, row: &Row, declared: &Row) -> Rule<Row> {
        dense(row)?;
        if !self.model.tables.symbols.may_have_equal_volumes(&row.dims(), &declared.dims()) {
            return Err("both shapes have different numbers of elements".into());
        }
        Ok(Row::dense(row.space, declared.widths.clone()))
    }

    /// Values joined along their last dimension. The extent is compared with the declared one.
    pub(super) fn concat(&self, parts: &[&Row], declared: &Row) -> Rule<Row> {
        let mut lasts = vec![];
        for part in parts {
            dense(part)?;
            let first = parts[0].widths.split_last();
            let Some(((last, rest), (_, lead))) = part.widths.split_last().zip(first) else {
                return Err("there is no last dimension".into());
            };
            if part.space != parts[0].space || !self.fit(rest, lead) || matches!(last.dim, Dim::Count(_)) {
                return Err("its parts differ in more than the last dimension".into());
            }
            lasts.push(last.dim);
        }
        let (Some(first), Some(total)) = (parts.first(), declared.widths.last()) else {
            return Err("there is no last dimension".into());
        };
        if !self.model.tables.symbols.may_be_sum(total.dim, lasts) {
            return Err("its last extent is not the sum of those of its parts".into());
        }
        let mut widths = first.widths.clone();
        widths.splice(widths.len() - 1.., [*total]);
        Ok(Row::dense(first.space, widths))
    }

    /// Two values joined along their last dimension, of which one may be a single row.
    pub(super) fn concat2(&self, a: &Row, b: &Row, declared: &Row) -> Rule<Row> {
        let on = |row: &Row, other: &Row| match row.space {
            Space::Unit => Row { space: other.space, ..row.clone() },
            _ => row.clone(),
        };
        self.concat(&[&on(a, b), &on(b, a)], declared)
    }

    /// A part of a dimension, as long as the declared one.
    pub(super) fn slice(&self, row: &Row, axis: usize, start: usize, declared: &Row) -> Rule<Row> {
        dense(row)?;
        let (Some(from), Some(to)) = (row.widths.get(axis), declared.widths.get(axis)) else {
            return Err("there is no dimension at this position".into());
        };
        let fixed = |dims: &[Width]| dims.iter().all(|width| !matches!(width.dim, Dim::Count(_)));
        if !fixed(&row.widths) {
            return Err("slices are those of known extents".into());
        }
        if let (Some(all), Some(len)) = (from.dim.fixed(), to.dim.fixed())
            && start + len > all
        {
            return Err("a slice ends behind its dimension".into());
        }
        let mut widths = row.widths.clone();
        widths[axis] = *to;
        Ok(Row::dense(row.space, widths))
    }

    /// The last two dimensions, swapped.
    pub(super) fn transpose(&self, row: &Row) -> Rule<Row> {
        dense(row)?;
        let [.., m, n] = row.widths[..] else { return Err("a matrix has two dimensions".into()) };
        if [m, n].iter().any(|width| matches!(width.dim, Dim::Count(_))) {
            return Err("only known extents are swapped".into());
        }
        let lead = &row.widths[..row.widths.len() - 2];
        Ok(Row::dense(row.space, [lead, &[n, m]].concat()))
    }

    /// Products of matrices `[B.., m, k]` and `[B.., k, n]` of the same row.
    pub(super) fn matrix_product(&self, a: &Row, b: &Row) -> Rule<Row> {
        dense(a)?;
        dense(b)?;
        let space = common_rows(a, b)?;
        let (Some((&[m, k], lead)), Some((&[inner, n], rest))) = (ends(&a.widths), ends(&b.widths)) else {
            return Err("a matrix has two dimensions".into());
        };
        if a.widths.iter().chain(&b.widths).any(|width| matches!(width.dim, Dim::Count(_))) {
            return Err("matrices of rows have known extents".into());
        }
        if !self.fit(lead, rest) || !self.may_equal(k.dim, inner.dim) {
            return Err("the extents of the matrices do not fit".into());
        }
        Ok(Row::dense(space, [lead, &[m, n]].concat()))
    }

    /// `a @ b`: over the last dimension of `a` and the one of `b` at the same place.
    pub(super) fn product(&self, a: &Row, b: &Row) -> Rule<Row> {
        let space = if b.space == Space::Unit { a.space } else { common_rows(a, b)? };
        if b.space != Space::Unit {
            dense(a)?;
            if a.widths.iter().chain(&b.widths).any(|width| matches!(width.dim, Dim::Count(_))) {
                return Err("matrices of rows have known extents".into());
            }
        }
        if a.form == Form::BlockDiagonal {
            return Err("a block-diagonal weight is only the right side of a product".into());
        }
        if a.widths.is_empty() || !self.begins(&b.widths, &a.widths) {
            return Err("the extents of the left side are not the first ones of the right".into());
        }
        let batch = a.widths.len() - 1;
        if b.form == Form::BlockDiagonal {
            dense(a)?;
            if batch > 0 {
                return Err("a block-diagonal weight has no batch dimensions".into());
            }
        } else {
            dense(b)?;
        }
        let widths = [&a.widths[..batch], &b.widths[batch + 1..]].concat();
        Ok(Row::dense(space, widths))
    }

    pub(super) fn dot(&self, a: &Row, b: &Row) -> Rule<Row> {
        if !self.fit(&a.widths, &b.widths) {
            return Err("its operands have different shapes".into());
        }
        over_last(Reduction::Sum, &self.binary(BinaryOp::Mul, a, b)?)
    }

    /// `x W + b`, of any width.
    pub(super) fn linear(&self, x: &Row, declared: &Row) -> Rule<Row> {
        if x.form == Form::BlockDiagonal {
            return Err("a block-diagonal weight is only the right side of a product".into());
        }
        if x.widths.len() != 1 || declared.widths.len() != 1 {
            return Err("a linear map is between values of one dimension".into());
        }
        Ok(Row::dense(x.space, declared.widths.clone()))
    }

    pub(super) fn norm(&self, x: &Row) -> Rule<Row> {
        dense(x)?;
        if x.widths.len() == 1 { Ok(x.clone()) } else { Err("values of one dimension are normalised".into()) }
    }

    /// Rows divided by a number for each of them.
    pub(super) fn normalized(&self, x: &Row) -> Rule<Row> {
        let length = over_last(Reduction::Sum, x)?;
        self.binary(BinaryOp::Div, x, &length)
    }

    pub(super) fn over_dimension(&self, axis: Axis, reduction: Reduction, row: &Row) -> Rule<Row> {
        match axis {
            Axis::First => over_first(reduction, row),
            Axis::Last => over_last(reduction, row),
        }
    }

    /// A score of pairs as a single number.
    pub(super) fn score(&self, row: &Row) -> Rule<Row> {
        dense(row)?;
        let is_number = match row.widths[..] {
            [] => true,
            [width] => self.may_equal(width.dim, Dim::Fixed(1)),
            _ => false,
        };
        if is_number { Ok(Row::dense(row.space, vec![])) } else { Err("a score is a single number".into()) }
    }

    /// The vertex type at an end of a graph of a family.
    pub(super) fn end(&self, graph: Graph, direction: Direction) -> VertexType {
        self.model.tables.end(graph, direction)
    }

    /// Refuses pairs to score, which are no edges of a dataset.
    pub(super) fn of_dataset(&self, graph: Graph) -> Rule<()> {
        match self.model.tables.graphs[graph.index()].links {
            true => Err("pairs to score have no degrees, no data and no reductions".into()),
            false => Ok(()),
        }
    }

    /// Refuses pairs to score and edges to predict, which are no edges that carry messages.
    pub(super) fn messages(&self, graph: Graph) -> Rule<()> {
        self.of_dataset(graph)?;
        match self.model.tables.edges_of(graph) {
            Some(_) => Err("edges to predict have no degrees and no reductions".into()),
            None => Ok(()),
        }
    }
}
