//! Gradients of reductions: of edges to vertices, of trailing dimensions, of rows, and of the paths of metapaths.
//!
//! A sum hands its gradient on to every element, a log-sum-exp by the softmax weights, and an extreme to the element
//! that it is: of edges to one of them, found by its rank, of others to all that are equal to it, in equal shares.
//! Gathers are the other way round: the gradient of a row is the sum over the edges that read it.

use hgnnc_ir::dataflow::{Binding, InputDecl};
use hgnnc_ir::infer::TypeError;
use hgnnc_ir::{
    BinaryOp, Direction, Extreme, Graph, Input, MetapathReduce, MetapathTerm, Op, Phase, Reduce, Space, Type, UnaryOp,
    Value,
};

use super::{Built, Tape};

impl Tape<'_> {
    /// The rules of the reductions of edge values `x` to vertices or endpoints.
    pub(super) fn segment_rule(
        &mut self,
        (graph, direction, reduce): (Graph, Direction, Reduce),
        x: Value,
        y: Value,
        g: Value,
    ) -> Result<(), TypeError> {
        let gather = match direction {
            Direction::In => Op::GatherDst(graph),
            Direction::Out => Op::GatherSrc(graph),
        };
        let dx = match reduce {
            // y[v] = Σ_e x[e]: dx[e] = g[v(e)].
            Reduce::Sum => self.flow.push(gather, &[g])?,
            // y[v] = ln Σ_e exp x[e]: dx[e] = g[v(e)] exp(x[e] - y[v(e)]), the softmax. It is built as
            // forward softmax is, so that common subexpressions make them one value. No guard: y[v(e)]
            // belongs to a row with an edge, -∞ only if all its x are, and then forward softmax is NaN.
            Reduce::Lse => {
                let y = self.flow.push(gather.clone(), &[y])?;
                let weight = self.softmax(x, y)?;
                let g = self.flow.push(gather, &[g])?;
                self.flow.push(Op::Binary(BinaryOp::Mul), &[g, weight])?
            }
            // dx[e] = g[v(e)] if e is the edge that y[v(e)] comes from, else 0.
            Reduce::Max => self.gradient_of_extreme(x, (graph, direction, Extreme::Max), gather, g)?,
            Reduce::Min => self.gradient_of_extreme(x, (graph, direction, Extreme::Min), gather, g)?,
        };
        self.give(x, dx)
    }

    /// The gradient `g` of the largest (smallest) elements of rows, at the edges that they come from.
    fn gradient_of_extreme(&mut self, x: Value, over: (Graph, Direction, Extreme), gather: Op, g: Value) -> Built {
        let (graph, direction, extreme) = over;
        // In the forward phase, in the traversal that has the elements.
        let backward = self.flow.cursor;
        self.flow.cursor.phase = Phase::Forward;
        let rank = self.edge_rank(graph, direction)?;
        let winner = self.flow.push(Op::SegmentArg { graph, direction, extreme }, &[x, rank])?;
        self.flow.cursor = backward;
        let winner = self.flow.push(gather.clone(), &[winner])?;
        let mask = self.flow.push(Op::Binary(BinaryOp::Eq), &[winner, rank])?;
        let g = self.flow.push(gather, &[g])?;
        self.flow.push(Op::Binary(BinaryOp::Mul), &[g, mask])
    }

    /// The ranks of the edges of a graph, an input of its own.
    fn edge_rank(&mut self, graph: Graph, direction: Direction) -> Built {
        let binding = Binding::EdgeRank(graph, direction);
        let known = self.flow.inputs.iter().position(|decl| decl.binding == binding);
        let input = known.map(Input::new).unwrap_or_else(|| {
            let name = format!("{}.rank.{}", self.flow.graphs[graph.index()].name, direction.name());
            let ty = Type::new(Space::Edges(graph), vec![]);
            self.flow.inputs.push(InputDecl { name, ty, binding });
            Input::new(self.flow.inputs.len() - 1)
        });
        self.flow.push(Op::Input(input), &[])
    }

    /// The sum of edge values for the rows of `like`: all vertices at this end, or those with edges.
    pub(super) fn sum_of_edges(&mut self, graph: Graph, direction: Direction, like: Value, g: Value) -> Built {
        self.flow.push(sum_like(self.flow.ty(like).space, graph, direction), &[g])
    }

    /// The rules of [`Op::Segment`] for reductions whose result broadcasts back by itself.
    pub(super) fn reduction(&mut self, x: Value, reduce: Reduce, sum: Op, y: Value, g: Value) -> Result<(), TypeError> {
        let dx = match reduce {
            // y = Σ x: every element gets g.
            Reduce::Sum => {
                let from = self.flow.ty(x);
                let dense = Type::new(from.space, from.dims.clone());
                self.flow.push(Op::Broadcast(dense), &[g])?
            }
            // y = ln Σ exp x: dx = g exp(x - y).
            Reduce::Lse => {
                let weight = self.softmax(x, y)?;
                self.flow.push(Op::Binary(BinaryOp::Mul), &[g, weight])?
            }
            Reduce::Max | Reduce::Min => {
                let mask = self.flow.push(Op::Binary(BinaryOp::Eq), &[x, y])?;
                let share = self.share(g, mask, sum)?;
                self.flow.push(Op::Binary(BinaryOp::Mul), &[mask, share])?
            }
        };
        self.give(x, dx)
    }

    /// `g` divided by the number of ones of `mask` in the same reduction. Rows over nothing divide by 1.
    fn share(&mut self, g: Value, mask: Value, sum: Op) -> Built {
        let count = self.flow.push(sum, &[mask])?;
        let count = self.with_constant(BinaryOp::Max, count, 1.0)?;
        self.flow.push(Op::Binary(BinaryOp::Div), &[g, count])
    }

    /// The softmax weights `exp(x - y)` of scores with their log-sum-exp.
    pub(super) fn softmax(&mut self, x: Value, y: Value) -> Built {
        let difference = self.flow.push(Op::Binary(BinaryOp::Sub), &[x, y])?;
        self.flow.push(Op::Unary(UnaryOp::Exp), &[difference])
    }

    /// The gradients of `a = Σ e^(s - n_j) w` and `l = ln Σ e^s` over paths with `s = f(x_i + y_j)`, for the
    /// destinations `j` or for the sources `i`. With the sums `P[w]` for the other end and `P'[w]` with the slopes
    /// `f'`:
    ///
    /// ```text
    /// dw = P[g], and for the end that owns the sum g · P'[w], for the other one w · P'[g]; dn = -a · g, or -w · P[g]
    /// ```
    pub(super) fn metapath_rule(
        &mut self,
        sum: MetapathReduce,
        args: &[Value],
        value: Value,
        g: Value,
    ) -> Result<(), TypeError> {
        if sum.term == MetapathTerm::WeightedSlope {
            return Err(TypeError("the slopes of attention scores have no gradient".into()));
        }
        let other = sum.direction.opposite();
        let (n, w) = if sum.term == MetapathTerm::LogSumExp { (value, None) } else { (args[2], args.get(3).copied()) };
        let scored = [args[0], args[1], n];
        let of = |with: Option<Value>| scored.into_iter().chain(with).collect::<Vec<Value>>();
        let needed = |tape: &Self, arg: Value| tape.needed[arg.index()];
        let is_in = sum.direction == Direction::In;
        let (own, far) = if is_in { (args[1], args[0]) } else { (args[0], args[1]) };
        if needed(self, own) {
            let slopes =
                self.flow.push(Op::MetapathReduce(sum.with(sum.direction, MetapathTerm::WeightedSlope)), &of(w))?;
            let d = self.times_summed(g, slopes, own)?;
            self.give(own, d)?;
        }
        if needed(self, far) {
            let slopes =
                self.flow.push(Op::MetapathReduce(sum.with(other, MetapathTerm::WeightedSlope)), &of(Some(g)))?;
            let d = match w {
                Some(w) => self.times_summed(w, slopes, far)?,
                None => slopes,
            };
            self.give(far, d)?;
        }
        if sum.term == MetapathTerm::LogSumExp {
            return Ok(());
        }
        let back = Op::MetapathReduce(sum.with(other, MetapathTerm::WeightedSum));
        if let Some(w) = w.filter(|&w| needed(self, w)) {
            let d = self.flow.push(back.clone(), &of(Some(g)))?;
            self.give(w, d)?;
        }
        if needed(self, n) {
            let d = match (is_in, w) {
                (true, _) => self.times_summed(g, value, n)?,
                (false, Some(w)) => {
                    let back = self.flow.push(back, &of(Some(g)))?;
                    self.times_summed(w, back, n)?
                }
                (false, None) => self.flow.push(back, &of(Some(g)))?,
            };
            let d = self.flow.push(Op::Unary(UnaryOp::Neg), &[d])?;
            self.give(n, d)?;
        }
        Ok(())
    }

    /// `a · b`, summed over the dimensions that `like` does not have.
    fn times_summed(&mut self, a: Value, b: Value, like: Value) -> Built {
        let product = self.flow.push(Op::Binary(BinaryOp::Mul), &[a, b])?;
        let axes = self.flow.ty(product).dims.len() - self.flow.ty(like).dims.len();
        if axes == 0 {
            return Ok(product);
        }
        self.flow.push(Op::ReduceTrailing { reduce: Reduce::Sum, axes }, &[product])
    }
}

/// The sum of edge values for rows of a space.
fn sum_like(rows: Space, graph: Graph, direction: Direction) -> Op {
    match rows {
        Space::Endpoints(..) => Op::SegmentEndpoints { graph, direction, reduce: Reduce::Sum },
        _ => Op::Segment { graph, direction, reduce: Reduce::Sum },
    }
}
