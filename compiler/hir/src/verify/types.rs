//! Types of expressions: the one that follows from the kind and from the types of the operands, and the one that is
//! written down.

use std::collections::BTreeMap;
use std::sync::Arc;

use hgnnc_ir::{BinaryOp, Direction, Graph, Space, UnaryOp, VertexType};

use super::rows::{Rule, combine, dense, features, gathered, over_rows, unary, usable};
use super::{Place, Verifier};
use crate::print::type_text;
use crate::{Decomposition, EdgeData, Entry, ExprId, ExprKind, Fold, Form, ParamId, PathPart, Reduction, Row, Type};

impl Verifier<'_> {
    /// Compares the type of each expression with the one that its kind gives it.
    pub(super) fn types(&mut self) {
        for (row, expr) in self.model.exprs.iter().enumerate() {
            let place = Place::Expr(ExprId::new(row));
            let family = self.family(&expr.kind);
            match self.infer(&expr.kind, &expr.ty) {
                Err(broken) => self.report(place, format!("{:?}: {broken}", expr.kind)),
                Ok(expected) if !self.agree(&expected, &expr.ty) => {
                    let text = |ty: &Type| type_text(&self.model.tables, ty);
                    let message = format!("{:?}: its type is {}, not {}", expr.kind, text(&expected), text(&expr.ty));
                    self.report(place, message);
                }
                Ok(_) => {
                    if let Err(broken) = self.members(&expr.ty, family.as_ref().ok().and_then(Option::as_deref)) {
                        self.report(place, format!("{:?}: {broken}", expr.kind));
                    }
                }
            }
            if let Err(broken) = &family {
                self.report(place, format!("{:?}: {broken}", expr.kind));
            }
            let is_family = matches!(&*expr.ty, Type::PerGraph(_));
            self.families.push(family.ok().flatten().filter(|_| is_family));
        }
    }

    fn ty(&self, id: ExprId) -> &Type {
        &self.model.expr(id).ty
    }

    /// The type of an expression. What a kind leaves open, such as the shape of a reshaped value, is as declared.
    fn infer(&self, kind: &ExprKind, declared: &Type) -> Rule<Type> {
        match kind {
            ExprKind::Number(_) => Ok(Type::One(Row::dense(Space::Unit, vec![]))),
            ExprKind::Zeros => map(declared, |row| Ok(Row::dense(row.space, row.widths.clone()))),
            ExprKind::Features(of) => Ok(Type::One(features(of, one(declared)?)?)),
            ExprKind::Param(param, entries) => self.param(*param, entries, declared),
            ExprKind::Layer(_) => Ok(Type::PerType(BTreeMap::new())),
            ExprKind::Result(_, of, position) => {
                let (_, result) = self.model.uses[of.index()].results[*position];
                Ok(self.ty(result).clone())
            }

            ExprKind::OfType(x, vertex) => match self.ty(*x) {
                Type::PerType(_) => Ok(Type::One(self.of_vertex(*x, *vertex)?.clone())),
                Type::One(_) | Type::PerGraph(_) | Type::ByGraph(_) => {
                    Err("it selects of values of vertex types".into())
                }
            },
            ExprKind::Types(parts) => self.bundle(parts),
            ExprKind::Members(x, positions) => {
                let rows = per_graph(self.ty(*x))?;
                let ascend = positions.windows(2).all(|pair| pair[0] < pair[1]);
                let chosen = positions.iter().map(|position| rows.get(*position).cloned()).collect::<Option<_>>();
                Ok(Type::PerGraph(chosen.filter(|_| ascend).ok_or("there are no such members")?))
            }
            ExprKind::Repeat(x) => Ok(Type::PerGraph(vec![one(self.ty(*x))?.clone(); per_graph(declared)?.len()])),
            ExprKind::OfGraphs(x, graphs) => {
                let Type::ByGraph(rows) = self.ty(*x) else { return Err("it selects of edge values".into()) };
                // Values of edges are those of the same edges.
                let same = |graph: &Graph, row: &Row| !matches!(row.space, Space::Edges(_)) || rows.contains_key(graph);
                let of =
                    |graph: &Graph| self.model.tables.of_graph(rows, *graph).filter(|row| same(graph, row)).cloned();
                let chosen = graphs.iter().map(of).collect::<Option<_>>();
                Ok(Type::PerGraph(chosen.ok_or("there is no value of a graph")?))
            }
            ExprKind::ByGraph(x, graphs) => self.by_graph(*x, graphs, declared),
            ExprKind::RowsByGraph(parts) => self.rows_by_graph(parts),

            ExprKind::Unary(op, x) => map(self.ty(*x), |row| unary(*op, row)),
            ExprKind::Binary(op, a, b) => map2(self.ty(*a), self.ty(*b), |a, b| self.binary(*op, a, b)),
            ExprKind::Pow(x, _) => {
                let exponent = Row::dense(Space::Unit, vec![]);
                map(self.ty(*x), |row| self.binary(BinaryOp::Pow, row, &exponent))
            }
            ExprKind::Dropout(x, _) => map(self.ty(*x), |row| match row.form {
                Form::OneHot => Ok(row.clone()),
                _ => usable(row).map(|()| row.clone()),
            }),
            ExprKind::StopGradient(x) => map(self.ty(*x), |row| usable(row).map(|()| row.clone())),
            ExprKind::Broadcast(x) => Ok(Type::One(self.repeated(one(self.ty(*x))?, one(declared)?)?)),
            ExprKind::Flatten(x) => zip(self.ty(*x), declared, |row, declared| self.flatten(row, declared)),
            ExprKind::Reshape(x) => zip(self.ty(*x), declared, |row, declared| self.reshape(row, declared)),
            ExprKind::Concat(a, b) => {
                let mut rows = declared.rows();
                let mut declared = || rows.next().ok_or("it has a type for each value");
                map2(self.ty(*a), self.ty(*b), |a, b| self.concat2(a, b, declared()?))
            }

            ExprKind::Slice { x, axis, start } => {
                zip(self.ty(*x), declared, |row, declared| self.slice(row, *axis, *start, declared))
            }
            ExprKind::Transpose(x) => map(self.ty(*x), |row| self.transpose(row)),

            ExprKind::MatrixProduct(a, b) => map2(self.ty(*a), self.ty(*b), |a, b| self.matrix_product(a, b)),
            ExprKind::Product(a, b) => map2(self.ty(*a), self.ty(*b), |a, b| self.product(a, b)),
            ExprKind::Dot(a, b) => map2(self.ty(*a), self.ty(*b), |a, b| self.dot(a, b)),
            ExprKind::Linear { x, names, .. } => {
                self.named(*x, &names.entries)?;
                zip(self.ty(*x), declared, |row, declared| self.linear(row, declared))
            }
            ExprKind::Norm { x, names, .. } => {
                self.named(*x, &names.entries)?;
                map(self.ty(*x), |row| self.norm(row))
            }
            ExprKind::L2Normalize(x, _) | ExprKind::RowNormalize(x) => map(self.ty(*x), |row| self.normalized(row)),

            ExprKind::OverDimension(axis, reduction, x) => {
                map(self.ty(*x), |row| self.over_dimension(*axis, *reduction, row))
            }
            ExprKind::OverRows(reduction, x) => map(self.ty(*x), |row| over_rows(*reduction, row)),
            ExprKind::OverInEdges { x, reduction, across, graphs } => {
                self.over_in_edges(*x, *reduction, *across, graphs, declared)
            }
            ExprKind::Across(reduction, x) => self.across(*reduction, per_graph(self.ty(*x))?, declared),

            ExprKind::SumOfSquares(parts) => {
                let is_summed = |row: &Row| {
                    matches!(row.form, Form::Dense | Form::BlockDiagonal)
                        && matches!(row.space, Space::Unit | Space::Vertices(_))
                };
                match parts.iter().flat_map(|part| self.ty(*part).rows()).all(is_summed) {
                    true => Ok(Type::One(Row::dense(Space::Unit, vec![]))),
                    false => Err("it sums dense values of vertices and parameters".into()),
                }
            }

            ExprKind::AtEnd(end, x, graphs) => self.at_end(*end, *x, graphs),
            ExprKind::AtPosition(x, at) => self.at_position(*x, at),
            ExprKind::HopData(_, data) => self.hop_data(data, declared),
            ExprKind::Fold(fold) => self.fold(fold),
            ExprKind::Before(graphs) => {
                let rows = per_graph(declared)?;
                let row = |(graph, row): (&Graph, &Row)| Row::dense(Space::Edges(*graph), row.widths.clone());
                Ok(Type::PerGraph(graphs.iter().zip(rows).map(row).collect()))
            }
            ExprKind::AlongPath(reduction, parts, graphs) => self.along_path(*reduction, parts, graphs.len()),
            ExprKind::Degree(end, graphs) => {
                self.per_edge_graph(graphs, |graph| Ok(Row::dense(Space::Vertices(self.end(graph, *end)), vec![])))
            }
            ExprKind::DegreeAtEnd { end, counted, graphs } => self.per_edge_graph(graphs, |graph| {
                if end != counted && self.end(graph, *end) != self.end(graph, *counted) {
                    return Err("vertices at this end have no such degree".into());
                }
                Ok(Row::dense(Space::Edges(graph), vec![]))
            }),
            ExprKind::EdgeData(_, data) => self.edge_data(data, declared),
            ExprKind::Scores(x) => match self.ty(*x) {
                Type::ByGraph(_) => map(self.ty(*x), |row| self.score(row)),
                Type::One(_) | Type::PerGraph(_) | Type::PerType(_) => Err("scores are edge values".into()),
            },
            ExprKind::EdgeRows(x, graphs) => self.edge_rows(*x, graphs),
        }
    }

    /// Do types agree, as far as extents are known?
    fn agree(&self, a: &Type, b: &Type) -> bool {
        let same = |(a, b): (&Row, &Row)| a.space == b.space && a.form == b.form && self.fit(&a.widths, &b.widths);
        alike(a, b) && a.rows().zip(b.rows()).all(same)
    }

    /// The entries of a parameter. Shapes are compared with those of other expressions in [`Self::params`].
    fn param(&self, param: ParamId, entries: &[Entry], declared: &Type) -> Rule<Type> {
        if !matches!(declared, Type::One(_) | Type::PerGraph(_)) || entries.len() != declared.num_values() {
            return Err("a parameter has an entry for its value, or for each of a family".into());
        }
        let decomposition = self.model.params[param.index()].decomposition;
        map(declared, |row| match decomposition {
            Decomposition::None | Decomposition::Basis(_) => Ok(Row::dense(Space::Unit, row.widths.clone())),
            Decomposition::Blocks(number) => {
                let divides = |extent: usize| number.dim.fixed().is_none_or(|n| n > 0 && extent.is_multiple_of(n));
                let known = |dim: crate::Dim| dim.is_symbolic() || dim.fixed().is_some_and(divides);
                if row.widths.len() != 2 || !row.widths.iter().all(|width| known(width.dim)) {
                    return Err("blocks divide both extents of a matrix".into());
                }
                Ok(Row { space: Space::Unit, widths: row.widths.clone(), form: Form::BlockDiagonal })
            }
        })
    }

    /// A function has parameters for each of its values.
    fn named(&self, x: ExprId, entries: &[Entry]) -> Rule<()> {
        match entries.len() == self.ty(x).num_values() {
            true => Ok(()),
            false => Err("it does not have parameters for each value".into()),
        }
    }

    /// The value of a vertex type, of one or of several.
    fn of_vertex(&self, x: ExprId, vertex: VertexType) -> Rule<&Row> {
        match self.ty(x) {
            Type::One(row) if [Space::Unit, Space::Vertices(vertex)].contains(&row.space) => Ok(row),
            Type::PerType(rows) => rows.get(&vertex).ok_or_else(|| format!("there is no value of {vertex}")),
            Type::One(_) | Type::PerGraph(_) | Type::ByGraph(_) => Err(format!("it is no value of {vertex}")),
        }
    }

    fn bundle(&self, parts: &[(VertexType, ExprId)]) -> Rule<Type> {
        let mut rows = BTreeMap::new();
        for (vertex, part) in parts {
            if rows.insert(*vertex, self.of_vertex(*part, *vertex)?.clone()).is_some() {
                return Err(format!("there are two values of {vertex}"));
            }
        }
        Ok(Type::PerType(rows))
    }

    fn by_graph(&self, x: ExprId, graphs: &[Graph], declared: &Type) -> Rule<Type> {
        let (rows, Type::ByGraph(declared)) = (per_graph(self.ty(x))?, declared) else {
            return Err("it makes edge values by semantic graph".into());
        };
        if rows.len() != graphs.len() {
            return Err("it does not have a value for each graph".into());
        }
        let mut values = BTreeMap::new();
        for (graph, row) in graphs.iter().zip(rows) {
            let declared = declared.get(graph).ok_or("it has no value of a graph")?;
            if values.insert(*graph, self.on_edges(row, *graph, declared)?).is_some() {
                return Err("there are two values of a graph".into());
            }
        }
        Ok(Type::ByGraph(values))
    }

    fn rows_by_graph(&self, parts: &[(ExprId, Arc<[Graph]>)]) -> Rule<Type> {
        let mut values = BTreeMap::new();
        for (part, graphs) in parts {
            let rows = per_graph(self.ty(*part))?;
            if rows.len() != graphs.len() {
                return Err("it does not have a value for each graph".into());
            }
            for (graph, row) in graphs.iter().zip(rows) {
                let ends = Space::Vertices(self.end(*graph, Direction::In));
                if row.space != Space::Unit && row.space != ends {
                    return Err("a value is neither a single row nor one of the vertices where its graph ends".into());
                }
                if values.insert(*graph, row.clone()).is_some() {
                    return Err("there are two values of a graph".into());
                }
            }
        }
        Ok(Type::ByGraph(values))
    }

    fn over_in_edges(&self, x: ExprId, of: Reduction, across: bool, graphs: &[Graph], ty: &Type) -> Rule<Type> {
        let rows = match self.ty(x) {
            Type::One(row) => vec![row.clone(); graphs.len()],
            Type::PerGraph(rows) if rows.len() == graphs.len() => rows.clone(),
            Type::PerGraph(_) | Type::PerType(_) | Type::ByGraph(_) => {
                return Err("it has no value for each graph".into());
            }
        };
        if of == Reduction::Concat {
            return Err("in-edges are not joined".into());
        }
        let mut edges = vec![];
        for (graph, row) in graphs.iter().zip(&rows) {
            self.messages(*graph)?;
            edges.push(self.on_edges(row, *graph, row)?);
        }
        let destination = |graph: &Graph| self.end(*graph, Direction::In);
        if of == Reduction::Softmax {
            // The log-sum-exp of a destination has the extents of all scores.
            let mut scores: BTreeMap<VertexType, &Row> = BTreeMap::new();
            for (graph, row) in graphs.iter().zip(&edges).filter(|_| across) {
                if !self.fit(&scores.entry(destination(graph)).or_insert(row).widths, &row.widths) {
                    return Err("the scores of a destination have different extents".into());
                }
            }
            return Ok(Type::PerGraph(edges));
        }
        let reduced = graphs.iter().zip(edges).map(|(graph, row)| {
            let vertex = destination(graph);
            (vertex, Row::dense(Space::Vertices(vertex), row.widths))
        });
        if !across {
            return Ok(Type::PerGraph(reduced.map(|(_, row)| row).collect()));
        }
        let mut values: BTreeMap<VertexType, Row> = BTreeMap::new();
        for (vertex, row) in reduced {
            let joined = match values.get(&vertex) {
                Some(known) => self.binary(combine(of), known, &row)?,
                None => row,
            };
            values.insert(vertex, joined);
        }
        // Vertices of other types have no in-edges: zeros, of any extents.
        if let (Type::PerType(declared), true) = (ty, of != Reduction::LogSumExp) {
            for (vertex, row) in declared {
                let zeros = || Row::dense(Space::Vertices(*vertex), row.widths.clone());
                values.entry(*vertex).or_insert_with(zeros);
            }
        }
        Ok(Type::PerType(values))
    }

    /// A reduction over the values that a vertex has for each semantic graph.
    fn across(&self, reduction: Reduction, rows: &[Row], declared: &Type) -> Rule<Type> {
        if rows.is_empty() && reduction == Reduction::Softmax {
            return Ok(Type::PerGraph(vec![]));
        }
        let (first, rest) = rows.split_first().ok_or("it reduces over no semantic graph")?;
        if reduction == Reduction::Concat {
            return Ok(Type::One(self.concat(&rows.iter().collect::<Vec<_>>(), one(declared)?)?));
        }
        usable(first)?;
        let total = rest.iter().try_fold(first.clone(), |total, row| self.binary(combine(reduction), &total, row))?;
        if reduction != Reduction::Softmax {
            return Ok(Type::One(total));
        }
        let share = |row| unary(UnaryOp::Exp, &self.binary(BinaryOp::Sub, row, &total)?);
        Ok(Type::PerGraph(rows.iter().map(share).collect::<Rule<_>>()?))
    }

    fn at_end(&self, end: Direction, x: ExprId, graphs: &[Graph]) -> Rule<Type> {
        let mut rows = vec![];
        for (position, graph) in graphs.iter().enumerate() {
            let vertex = self.end(*graph, end);
            let row = match self.ty(x) {
                Type::PerType(values) => values.get(&vertex),
                Type::PerGraph(values) if values.len() == graphs.len() => values.get(position),
                Type::One(_) | Type::PerGraph(_) | Type::ByGraph(_) => None,
            };
            rows.push(gathered(row.ok_or("there is no value at an end of a graph")?, *graph, vertex)?);
        }
        Ok(Type::PerGraph(rows))
    }

    /// The vertices of a position, and whether its graphs lead to the instances.
    fn position(&self, part: &PathPart) -> Rule<VertexType> {
        let tables = &self.model.tables;
        let instances = tables.edges_of(part.graph).map_or(tables.graphs[part.graph.index()].src, |edges| edges.vertex);
        match part.through {
            None => Ok(self.end(part.graph, Direction::In)),
            Some(through) if tables.graphs[through.index()].dst == instances => Ok(tables.graphs[through.index()].src),
            Some(_) => Err("a position is not one of the instances".into()),
        }
    }

    fn at_position(&self, x: ExprId, at: &[PathPart]) -> Rule<Type> {
        let mut rows = vec![];
        for (position, part) in at.iter().enumerate() {
            let vertex = self.position(part)?;
            let row = match self.ty(x) {
                Type::PerType(values) => values.get(&vertex),
                Type::PerGraph(values) if values.len() == at.len() => values.get(position),
                Type::One(_) | Type::PerGraph(_) | Type::ByGraph(_) => None,
            };
            let row = row.ok_or("there is no value at a position of a path")?;
            if row.form != Form::Time {
                usable(row)?;
            }
            rows.push(gathered(row, part.graph, vertex)?);
        }
        Ok(Type::PerGraph(rows))
    }

    /// Values of edges to predict, as rows of the vertex types that they are.
    fn edge_rows(&self, x: ExprId, graphs: &[Graph]) -> Rule<Type> {
        let rows = per_graph(self.ty(x))?;
        if rows.len() != graphs.len() {
            return Err("a value for each graph".into());
        }
        let mut of_types = BTreeMap::new();
        for (row, &graph) in rows.iter().zip(graphs) {
            dense(row)?;
            let edges = self.model.tables.edges_of(graph).ok_or("these are no edges to predict")?;
            if row.space != Space::Edges(graph) && row.space != Space::Unit {
                return Err("a value is of another graph".into());
            }
            of_types.insert(edges.vertex, Row::dense(Space::Vertices(edges.vertex), row.widths.clone()));
        }
        Ok(Type::PerType(of_types))
    }

    fn hop_data(&self, data: &[(PathPart, EdgeData)], declared: &Type) -> Rule<Type> {
        let mut edges = vec![];
        for (part, data) in data {
            self.position(part)?;
            edges.push((part.through.ok_or("no edge leaves the last vertex")?, *data));
        }
        let Type::PerGraph(rows) = self.edge_data(&edges, declared)? else {
            return Err("a value for each graph".into());
        };
        let at_instance = data.iter().zip(rows).map(|((part, _), row)| Row { space: Space::Edges(part.graph), ..row });
        Ok(Type::PerGraph(at_instance.collect()))
    }

    /// Values along paths: the reduction of those that a member has, or the last.
    fn along_path(&self, of: Option<Reduction>, parts: &[(ExprId, Vec<usize>)], members: usize) -> Rule<Type> {
        let mut values: Vec<Option<Row>> = vec![None; members];
        for (part, positions) in parts {
            let rows = per_graph(self.ty(*part))?;
            if rows.len() != positions.len() {
                return Err("a position does not have a value for each of its members".into());
            }
            for (&position, row) in positions.iter().zip(rows) {
                let value = values.get_mut(position).ok_or("there is no such member")?;
                *value = Some(match (value.take(), of) {
                    (None, _) => row.clone(),
                    (Some(_), None) => row.clone(),
                    (Some(total), Some(Reduction::Softmax | Reduction::Concat)) => {
                        return Err(format!("{total:?} is not reduced along a path"));
                    }
                    (Some(total), Some(reduction)) => self.binary(combine(reduction), &total, row)?,
                });
            }
        }
        Ok(Type::PerGraph(values.into_iter().collect::<Option<_>>().ok_or("a member has no value")?))
    }

    /// A recurrence: its states have one shape, and each of its graphs one in-edge for each destination.
    fn fold(&self, fold: &Fold) -> Rule<Type> {
        let before = per_graph(self.ty(fold.before))?;
        if !matches!(self.model.expr(fold.before).kind, ExprKind::Before(_)) || fold.positions.len() != before.len() {
            return Err("it has no state before an edge".into());
        }
        let tables = &self.model.tables;
        let mut rows = vec![];
        for ((&graph, positions), state) in fold.graphs.iter().zip(&fold.positions).zip(before) {
            let ends = |graph: Graph| (self.end(graph, Direction::Out), self.end(graph, Direction::In));
            let is_position = |of: &Graph| {
                let kept = tables.graphs[of.index()].kept;
                ends(*of) == ends(graph) && kept.is_some_and(|kept| kept.position.is_some())
            };
            if positions.is_empty() || !positions.iter().all(is_position) {
                return Err("a step goes over no single in-edges".into());
            }
            rows.push(Row::dense(Space::Vertices(self.end(graph, Direction::In)), state.widths.clone()));
        }
        for part in [fold.first, fold.step] {
            let ty = self.ty(part);
            let fits = |(row, state): (&Row, &Row)| {
                is_in(row.space, &[state.space]) && row.form == Form::Dense && self.fit(&row.widths, &state.widths)
            };
            let right = match ty {
                Type::One(row) => row.space == Space::Unit && before.iter().all(|state| fits((row, state))),
                Type::PerGraph(rows) => rows.len() == before.len() && rows.iter().zip(before).all(fits),
                Type::PerType(_) | Type::ByGraph(_) => false,
            };
            if !right {
                return Err("a state has another shape than the one before it".into());
            }
        }
        Ok(Type::PerGraph(rows))
    }

    /// A type for each graph, none of which is of pairs to score.
    fn per_edge_graph(&self, graphs: &[Graph], row: impl Fn(Graph) -> Rule<Row>) -> Rule<Type> {
        let row = |graph: &Graph| self.messages(*graph).and_then(|()| row(*graph));
        Ok(Type::PerGraph(graphs.iter().map(row).collect::<Rule<_>>()?))
    }

    fn edge_data(&self, data: &[(Graph, EdgeData)], declared: &Type) -> Rule<Type> {
        let mut declared = per_graph(declared)?.iter();
        let mut rows = vec![];
        for (graph, data) in data {
            self.of_dataset(*graph)?;
            let is_relation = self.model.tables.graphs[graph.index()].steps.len() == 1;
            let widths = match data {
                EdgeData::Count => vec![],
                EdgeData::Weight | EdgeData::Time if is_relation => vec![],
                EdgeData::Features if is_relation => match declared.clone().next().map(|row| &row.widths[..]) {
                    Some([width]) if width.dim.fixed().is_some() => vec![*width],
                    _ => return Err("features have one known extent".into()),
                },
                EdgeData::Weight | EdgeData::Time | EdgeData::Features => return Err("only relations have data".into()),
            };
            declared.next();
            let form = if matches!(data, EdgeData::Time) { Form::Time } else { Form::Dense };
            rows.push(Row { space: Space::Edges(*graph), widths, form });
        }
        Ok(Type::PerGraph(rows))
    }

    /// The semantic graphs that an expression has a value for: its own, or those of its operands.
    fn family(&self, kind: &ExprKind) -> Rule<Option<Arc<[Graph]>>> {
        match kind {
            ExprKind::OfGraphs(_, graphs) | ExprKind::Degree(_, graphs) | ExprKind::DegreeAtEnd { graphs, .. } => {
                return Ok(Some(graphs.clone()));
            }
            ExprKind::EdgeData(_, data) => return Ok(Some(data.iter().map(|(graph, _)| *graph).collect())),
            ExprKind::HopData(_, data) => return Ok(Some(data.iter().map(|(part, _)| part.graph).collect())),
            ExprKind::AtPosition(_, at) => return Ok(Some(at.iter().map(|part| part.graph).collect())),
            ExprKind::AlongPath(_, parts, graphs) => {
                let fits = |(part, positions): &(ExprId, Vec<usize>)| {
                    let chosen = positions.iter().map(|&at| graphs.get(at).copied());
                    self.families[part.index()].as_ref().is_none_or(|known| known.iter().copied().map(Some).eq(chosen))
                };
                return match parts.iter().all(fits) {
                    true => Ok(Some(graphs.clone())),
                    false => Err("values of different semantic graphs are combined".into()),
                };
            }
            ExprKind::Param(_, entries) => {
                let graph = |entry: &Entry| match entry {
                    Entry::Graph(graph) => Some(*graph),
                    Entry::Shared | Entry::Type(_) | Entry::Src(_) | Entry::Dst(_) | Entry::Relation(_) => None,
                };
                return Ok(entries.iter().map(graph).collect::<Option<Vec<Graph>>>().map(Arc::from));
            }
            ExprKind::Members(x, positions) => {
                let chosen = |family: &Arc<[Graph]>| positions.iter().map(|at| family.get(*at).copied()).collect();
                return Ok(self.families[x.index()].as_ref().and_then(chosen));
            }
            // At their sources, edges read what belongs to the reverses of their graphs.
            ExprKind::AtEnd(Direction::Out, x, graphs) if matches!(self.ty(*x), Type::PerGraph(_)) => {
                let tables = &self.model.tables;
                let is_reverse = |(graph, of): (&Graph, &Graph)| tables.reverse_of(*of, [*graph]).is_some();
                let fits = |family: &Arc<[Graph]>| family.iter().zip(graphs.iter()).all(is_reverse);
                return match self.families[x.index()].as_ref().is_some_and(fits) {
                    true => Ok(Some(graphs.clone())),
                    false => Err("sources have rows for the reverses of graphs".into()),
                };
            }
            // Each operand has a family of its own.
            ExprKind::RowsByGraph(parts) => {
                let fits = |(part, graphs): &(ExprId, Arc<[Graph]>)| {
                    self.families[part.index()].as_ref().is_none_or(|family| family == graphs)
                };
                return match parts.iter().all(fits) {
                    true => Ok(None),
                    false => Err("values of different semantic graphs are combined".into()),
                };
            }
            _ => {}
        }
        let own = match kind {
            ExprKind::ByGraph(_, graphs)
            | ExprKind::EdgeRows(_, graphs)
            | ExprKind::AtEnd(_, _, graphs)
            | ExprKind::Before(graphs)
            | ExprKind::Fold(Fold { graphs, .. })
            | ExprKind::OverInEdges { graphs, .. } => Some(graphs.clone()),
            _ => None,
        };
        let mut families = kind.operands().into_iter().filter_map(|x| self.families[x.index()].clone()).chain(own);
        let Some(first) = families.next() else { return Ok(None) };
        match families.all(|family| family == first) {
            true => Ok(Some(first)),
            false => Err("values of different semantic graphs are combined".into()),
        }
    }

    /// Values of vertex types and of semantic graphs have rows of these, or a single one.
    fn members(&self, ty: &Type, family: Option<&[Graph]>) -> Rule<()> {
        let fits = match (ty, family) {
            (Type::PerType(rows), _) => rows.iter().all(|(v, row)| is_in(row.space, &[Space::Vertices(*v)])),
            (Type::ByGraph(rows), _) => {
                let of = |graph: Graph| [Space::Edges(graph), Space::Vertices(self.end(graph, Direction::In))];
                rows.iter().all(|(graph, row)| is_in(row.space, &of(*graph)))
            }
            (Type::PerGraph(rows), Some(family)) => {
                let of = |graph: Graph| {
                    let [src, dst] = [Direction::Out, Direction::In].map(|end| self.end(graph, end));
                    [Space::Edges(graph), Space::Vertices(src), Space::Vertices(dst)]
                };
                rows.len() == family.len() && rows.iter().zip(family).all(|(row, graph)| is_in(row.space, &of(*graph)))
            }
            (Type::PerGraph(_), None) | (Type::One(_), _) => true,
        };
        if fits { Ok(()) } else { Err("a member has rows of something else".into()) }
    }

    /// Entries with the same numbers have the same shape, in all expressions of a parameter.
    pub(super) fn params(&mut self) {
        let mut shapes: BTreeMap<(usize, Option<Entry>), &Row> = BTreeMap::new();
        for (position, expr) in self.model.exprs.iter().enumerate() {
            let ExprKind::Param(param, entries) = &expr.kind else { continue };
            let is_basis = matches!(self.model.params[param.index()].decomposition, Decomposition::Basis(_));
            for (entry, row) in entries.iter().zip(expr.ty.rows()) {
                let shared = *shapes.entry((param.index(), Some(*entry).filter(|_| !is_basis))).or_insert(row);
                if !self.fit(&shared.widths, &row.widths) {
                    let message = format!("{} needs it in another shape", ExprId::new(position));
                    self.report(Place::Param(param.index()), message);
                }
            }
        }
    }
}

/// Is it a single row, or one of these spaces?
fn is_in(space: Space, spaces: &[Space]) -> bool {
    space == Space::Unit || spaces.contains(&space)
}

/// Have both a value for the same things?
fn alike(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::One(_), Type::One(_)) => true,
        (Type::PerGraph(a), Type::PerGraph(b)) => a.len() == b.len(),
        (Type::PerType(a), Type::PerType(b)) => a.keys().eq(b.keys()),
        (Type::ByGraph(a), Type::ByGraph(b)) => a.keys().eq(b.keys()),
        _ => false,
    }
}

fn one(ty: &Type) -> Rule<&Row> {
    match ty {
        Type::One(row) => Ok(row),
        Type::PerGraph(_) | Type::PerType(_) | Type::ByGraph(_) => Err("it is not of a single value".into()),
    }
}

fn per_graph(ty: &Type) -> Rule<&[Row]> {
    match ty {
        Type::PerGraph(rows) => Ok(rows),
        Type::One(_) | Type::PerType(_) | Type::ByGraph(_) => Err("it is not of the values of a family".into()),
    }
}

/// Applies a rule to every value.
fn map(ty: &Type, mut rule: impl FnMut(&Row) -> Rule<Row>) -> Rule<Type> {
    Ok(match ty {
        Type::One(row) => Type::One(rule(row)?),
        Type::PerGraph(rows) => Type::PerGraph(rows.iter().map(rule).collect::<Rule<_>>()?),
        Type::PerType(rows) => Type::PerType(rows.iter().map(|(v, row)| Ok((*v, rule(row)?))).collect::<Rule<_>>()?),
        Type::ByGraph(rows) => Type::ByGraph(rows.iter().map(|(g, row)| Ok((*g, rule(row)?))).collect::<Rule<_>>()?),
    })
}

/// Applies a rule to every value and its declared type.
fn zip(ty: &Type, declared: &Type, mut rule: impl FnMut(&Row, &Row) -> Rule<Row>) -> Rule<Type> {
    if !alike(ty, declared) {
        return Err("it does not have the values of its operand".into());
    }
    let mut rows = declared.rows();
    map(ty, |row| rule(row, rows.next().ok_or("it has a type for each value")?))
}

/// Applies a rule to every pair of values; single values meet every member of a family.
fn map2(a: &Type, b: &Type, mut rule: impl FnMut(&Row, &Row) -> Rule<Row>) -> Rule<Type> {
    match (a, b) {
        (Type::One(a), b) => map(b, |b| rule(a, b)),
        (a, Type::One(b)) => map(a, |a| rule(a, b)),
        (Type::PerGraph(_), Type::PerGraph(_))
        | (Type::PerType(_), Type::PerType(_))
        | (Type::ByGraph(_), Type::ByGraph(_)) => zip(a, b, rule),
        _ => Err("values of different kinds of families do not combine".into()),
    }
}
