//! Operands of expressions, and the expression behind names and members.

use hgnnc_diag::Span;

use crate::{Block, Expr, ExprId, ExprKind, FeatureKind, Features, Item, Label, LayerUse, Model, Reduction};

impl ExprKind {
    /// About how many operations a value of it takes.
    pub fn operations(&self) -> usize {
        match self {
            ExprKind::Layer(_)
            | ExprKind::Result(..)
            | ExprKind::OfType(..)
            | ExprKind::Types(_)
            | ExprKind::Members(..)
            | ExprKind::Repeat(_)
            | ExprKind::OfGraphs(..)
            | ExprKind::ByGraph(..)
            | ExprKind::RowsByGraph(_) => 0,
            ExprKind::Number(_)
            | ExprKind::Features(_)
            | ExprKind::Param(..)
            | ExprKind::Unary(..)
            | ExprKind::Binary(..)
            | ExprKind::StopGradient(_)
            | ExprKind::Broadcast(_)
            | ExprKind::Zeros
            | ExprKind::Flatten(_)
            | ExprKind::Reshape(_)
            | ExprKind::Concat(..)
            | ExprKind::Transpose(_)
            | ExprKind::Product(..)
            | ExprKind::Scores(_)
            | ExprKind::EdgeRows(..)
            | ExprKind::EdgeData(..)
            | ExprKind::AtEnd(..) => 1,
            ExprKind::AtPosition(..) | ExprKind::HopData(..) => 3,
            ExprKind::AlongPath(_, parts, _) => parts.len(),
            ExprKind::Pow(..) | ExprKind::Dropout(..) | ExprKind::Dot(..) => 2,
            ExprKind::Slice { .. } | ExprKind::MatrixProduct(..) => 3,
            ExprKind::OverDimension(_, reduction, _)
            | ExprKind::OverRows(reduction, _)
            | ExprKind::Across(reduction, _) => match reduction {
                Reduction::Mean | Reduction::Softmax => 3,
                _ => 1,
            },
            ExprKind::OverInEdges { reduction, .. } => match reduction {
                Reduction::Softmax => 5,
                Reduction::Mean => 7,
                Reduction::Max | Reduction::Min => 9,
                Reduction::Sum | Reduction::LogSumExp | Reduction::Concat => 1,
            },
            // Each step is counted where the expression is made, since it takes the operations of others again.
            ExprKind::Fold(_) => 0,
            ExprKind::Before(_) => 1,
            ExprKind::Degree(..) => 3,
            ExprKind::SumOfSquares(parts) => 4 * parts.len(),
            ExprKind::DegreeAtEnd { .. } | ExprKind::Linear { .. } => 4,
            ExprKind::L2Normalize(..) | ExprKind::RowNormalize(_) => 6,
            ExprKind::Norm { .. } => 17,
        }
    }

    /// The expressions that it is computed from.
    pub fn operands(&self) -> Vec<ExprId> {
        match self {
            ExprKind::Number(_)
            | ExprKind::Features(_)
            | ExprKind::Param(..)
            | ExprKind::Layer(_)
            | ExprKind::Zeros
            | ExprKind::Degree(..)
            | ExprKind::DegreeAtEnd { .. }
            | ExprKind::EdgeData(..)
            | ExprKind::Before(_)
            | ExprKind::HopData(..) => vec![],
            ExprKind::Fold(fold) => vec![fold.first, fold.step, fold.before],
            ExprKind::AlongPath(_, parts, _) => parts.iter().map(|(part, _)| *part).collect(),
            ExprKind::SumOfSquares(parts) => parts.clone(),
            ExprKind::Types(parts) => parts.iter().map(|(_, part)| *part).collect(),
            ExprKind::RowsByGraph(parts) => parts.iter().map(|(part, _)| *part).collect(),
            ExprKind::Binary(_, a, b)
            | ExprKind::Concat(a, b)
            | ExprKind::Product(a, b)
            | ExprKind::MatrixProduct(a, b)
            | ExprKind::Dot(a, b) => vec![*a, *b],
            ExprKind::Result(x, ..)
            | ExprKind::OfType(x, _)
            | ExprKind::Members(x, _)
            | ExprKind::Repeat(x)
            | ExprKind::OfGraphs(x, _)
            | ExprKind::ByGraph(x, _)
            | ExprKind::Unary(_, x)
            | ExprKind::Pow(x, _)
            | ExprKind::Dropout(x, _)
            | ExprKind::StopGradient(x)
            | ExprKind::Broadcast(x)
            | ExprKind::Flatten(x)
            | ExprKind::Reshape(x)
            | ExprKind::Slice { x, .. }
            | ExprKind::Transpose(x)
            | ExprKind::Linear { x, .. }
            | ExprKind::Norm { x, .. }
            | ExprKind::L2Normalize(x, _)
            | ExprKind::RowNormalize(x)
            | ExprKind::OverDimension(_, _, x)
            | ExprKind::OverRows(_, x)
            | ExprKind::OverInEdges { x, .. }
            | ExprKind::Across(_, x)
            | ExprKind::AtEnd(_, x, _)
            | ExprKind::AtPosition(x, _)
            | ExprKind::Scores(x)
            | ExprKind::EdgeRows(x, _) => vec![*x],
        }
    }
}

impl LayerUse {
    /// The expressions that it evaluates, in order: its inputs, statements, fields and results.
    pub fn exprs(&self) -> impl Iterator<Item = ExprId> {
        let of_block = |block: &Block| {
            let stmts = block.instances.iter().flat_map(|instance| &instance.body).map(|stmt| stmt.value);
            let fields = block.instances.iter().flat_map(|instance| &instance.fields).map(|(_, field)| *field);
            stmts.chain(fields).collect::<Vec<_>>()
        };
        let of_item = move |item: &Item| match item {
            Item::Stmt(stmt) => vec![stmt.value],
            Item::Block(block) => of_block(block),
        };
        let inputs = self.inputs.iter().map(|(_, input)| *input);
        let results = self.results.iter().map(|(_, result)| *result);
        inputs.chain(self.body.iter().flat_map(of_item)).chain(results)
    }
}

impl Model {
    /// By position: is the expression part of a statement, an output or the loss?
    pub fn reached(&self) -> Vec<bool> {
        let outputs = self.outputs.values().map(|output| output.of.value());
        let mut all: Vec<ExprId> = self.body.iter().map(|stmt| stmt.value).chain(outputs).collect();
        all.extend(self.loss.iter().flat_map(|loss| &loss.terms).map(|term| term.value));
        self.reached_from(all)
    }

    /// Does a value read the labels of a field (`Paper.topic`) with a share of them hidden in training? That share.
    pub fn hidden_labels(&self, value: ExprId, label: &Label) -> Option<f64> {
        let reached = self.reached_from(vec![value]);
        let share = |(expr, _): (&Expr, bool)| match &expr.kind {
            ExprKind::Features(Features { kind: FeatureKind::TrainLabels { hidden }, vertex, name, .. })
                if *hidden > 0.0 && (*vertex, name) == (label.vertex, &label.name) =>
            {
                Some(*hidden)
            }
            _ => None,
        };
        self.exprs.iter().zip(reached).filter(|(_, reached)| *reached).find_map(share)
    }

    /// The place of labels of which training hides a share, if statements or the loss read any.
    pub fn hidden_at(&self) -> Option<Span> {
        let hides = |(expr, _): &(&Expr, bool)| match &expr.kind {
            ExprKind::Features(Features { kind: FeatureKind::TrainLabels { hidden }, .. }) => *hidden > 0.0,
            _ => false,
        };
        let reached = self.exprs.iter().zip(self.reached()).filter(|(_, reached)| *reached);
        reached.into_iter().find(hides).map(|(expr, _)| expr.span)
    }

    fn reached_from(&self, mut stack: Vec<ExprId>) -> Vec<bool> {
        let mut reached = vec![false; self.exprs.len()];
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut reached[id.index()], true) {
                let kind = &self.expr(id).kind;
                stack.extend(kind.operands());
                if let ExprKind::Layer(layer) = kind {
                    stack.extend(self.uses[layer.index()].exprs());
                }
            }
        }
        reached
    }

    /// The expression that computes the values of `id`: behind results of layers and selected members.
    pub fn computed(&self, mut id: ExprId) -> &Expr {
        loop {
            let expr = self.expr(id);
            id = match &expr.kind {
                ExprKind::Result(_, layer, result) => self.uses[layer.index()].results[*result].1,
                ExprKind::OfType(x, vertex) => match &self.computed(*x).kind {
                    ExprKind::Types(parts) => match parts.iter().find(|(known, _)| known == vertex) {
                        Some((_, part)) => *part,
                        None => *x,
                    },
                    _ => *x,
                },
                ExprKind::Types(parts) if parts.len() == 1 => parts[0].1,
                ExprKind::Members(x, _) | ExprKind::Repeat(x) | ExprKind::OfGraphs(x, _) | ExprKind::ByGraph(x, _) => {
                    *x
                }
                _ => return expr,
            };
        }
    }
}
