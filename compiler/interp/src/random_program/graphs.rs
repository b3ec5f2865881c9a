//! Random operations over semantic graphs: attention, convolution, and the patterns around them that passes rewrite.

use super::*;

impl Generator {
    pub(super) fn any_graph(&mut self) -> Graph {
        // Most operations avoid the metapath, whose edges programs rarely need.
        let all = self.flow.graphs.len();
        let few = all - self.flow.metapaths.len();
        let among = if few < all && self.chance(0.95) { few } else { all };
        Graph::new(self.below(among))
    }

    pub(super) fn end(&mut self, graph: Graph, direction: Direction) -> Option<Value> {
        let space = self.flow.graph_end(graph, direction);
        self.pick_where(|ty| ty.space == space && ty.dims.len() <= 3)
    }

    pub(super) fn gather(&mut self) {
        let graph = self.any_graph();
        let (direction, op) = if self.chance(0.5) {
            (Direction::Out, Op::GatherSrc(graph))
        } else {
            (Direction::In, Op::GatherDst(graph))
        };
        let Some(x) = self.end(graph, direction) else { return };
        let mut y = self.flow.add(op, &[x]);
        self.pool.push(y);
        // A candidate for reassociation.
        if let Some(&[width]) = self.fixed_dims(y).as_deref()
            && self.chance(0.6)
        {
            let out = 1 + self.below(4);
            let w = self.weight(vec![Dim::Fixed(width), Dim::Fixed(out)]);
            y = self.flow.add(Op::MatMul { batch: 0 }, &[y, w]);
            let y = self.flow.segment(graph, Direction::In, Reduce::Sum, y);
            self.keep(y);
        }
    }

    pub(super) fn segment(&mut self) {
        let Some(x) = self.pick_where(|ty| matches!(ty.space, Space::Edges(_))) else { return self.gather() };
        let Space::Edges(graph) = self.flow.ty(x).space else { return };
        let direction = if self.chance(0.7) { Direction::In } else { Direction::Out };
        let reduce = Reduce::ALL[self.below(4)];
        let y = self.flow.segment(graph, direction, reduce, x);
        let y = self.clamp(y);
        self.pool.push(y);
    }

    pub(super) fn reduction(&mut self) {
        let x = self.pick();
        let ty = self.flow.ty(x).clone();
        let reduce = Reduce::ALL[self.below(4)];
        let y = if ty.dims.is_empty() || self.chance(0.3) {
            self.flow.add(Op::ReduceSpace(reduce), &[x])
        } else {
            let axes = 1 + self.below(ty.dims.len());
            self.flow.reduce_trailing(reduce, axes, x)
        };
        let mut y = self.clamp(y);
        if self.chance(0.2) {
            let count = self.flow.add(Op::Count(ty.space), &[]);
            let count = self.positive(count);
            y = self.flow.binary(BinaryOp::Div, y, count);
        }
        self.pool.push(y);
    }

    /// Softmax-weighted sum over in-edges, in the form that the front end emits.
    pub(super) fn attention(&mut self) {
        let graph = self.any_graph();
        self.attention_over(graph);
    }

    pub(super) fn attention_over(&mut self, graph: Graph) {
        let (Some(src), Some(dst)) = (self.end(graph, Direction::Out), self.end(graph, Direction::In)) else { return };
        if self.flow.ty(src).dims.is_empty() || self.flow.ty(dst).dims.is_empty() {
            return;
        }
        let mut ends = vec![];
        for (end, op) in [(src, Op::GatherSrc(graph)), (dst, Op::GatherDst(graph))] {
            let a = self.weight(self.flow.ty(end).dims.clone());
            let product = self.flow.binary(BinaryOp::Mul, end, a);
            let axes = self.flow.ty(end).dims.len();
            let score = self.flow.reduce_trailing(Reduce::Sum, axes, product);
            ends.push(self.flow.add(op, &[score]));
        }
        // Scores of one end are vertex values; some of the vertices have no edges.
        let score = match self.below(8) {
            0 => ends[0],
            1 => ends[1],
            2 => self.flow.binary(BinaryOp::Sub, ends[0], ends[1]),
            _ => self.flow.binary(BinaryOp::Add, ends[0], ends[1]),
        };
        let score = self.piecewise_linear(score);
        let lse = self.flow.segment(graph, Direction::In, Reduce::Lse, score);
        let lse = self.flow.add(Op::GatherDst(graph), &[lse]);
        let difference = self.flow.binary(BinaryOp::Sub, score, lse);
        let alpha = self.flow.unary(UnaryOp::Exp, difference);
        let mut values = src;
        if let Some(&[width]) = self.fixed_dims(src).as_deref()
            && self.chance(0.6)
        {
            let out = 1 + self.below(5);
            let w = self.weight(vec![Dim::Fixed(width), Dim::Fixed(out)]);
            values = self.flow.add(Op::MatMul { batch: 0 }, &[src, w]);
        }
        let messages = self.flow.add(Op::GatherSrc(graph), &[values]);
        let messages = self.flow.binary(BinaryOp::Mul, messages, alpha);
        self.reduced_messages(graph, messages);
    }

    /// A leaky ReLU, or another function that is linear on either side of zero.
    fn piecewise_linear(&mut self, x: Value) -> Value {
        let half = self.flow.constant(0.5);
        match self.below(8) {
            0 => x,
            1 => self.flow.unary(UnaryOp::Relu, x),
            2 => {
                let scaled = self.flow.binary(BinaryOp::Mul, x, half);
                self.flow.unary(UnaryOp::LeakyRelu(0.2), scaled)
            }
            3 => {
                let score = self.flow.unary(UnaryOp::LeakyRelu(0.2), x);
                let negated = self.flow.unary(UnaryOp::Neg, score);
                self.flow.binary(BinaryOp::Div, negated, half)
            }
            _ => self.flow.unary(UnaryOp::LeakyRelu(0.2), x),
        }
    }

    /// Sums, extremes and gates of weighted messages. Passes may rewrite or rematerialize the weights; forward and
    /// backward must still agree on the winning message.
    pub(super) fn reduced_messages(&mut self, graph: Graph, messages: Value) {
        let over = |generator: &mut Self, reduce: Reduce, x: Value| {
            let reduced = generator.flow.segment(graph, Direction::In, reduce, x);
            if reduce == Reduce::Sum { reduced } else { generator.clamp(reduced) }
        };
        let extreme = [Reduce::Max, Reduce::Min][self.below(2)];
        let z = match self.below(8) {
            0..3 => over(self, Reduce::Sum, messages),
            3 | 4 => over(self, extreme, messages),
            5 => over(self, Reduce::Lse, messages),
            // The distance to the largest message: 0 at the winner. Its gradient there is either cut or cancels out.
            6 => {
                let extreme = over(self, extreme, messages);
                let extreme = self.flow.add(Op::GatherDst(graph), &[extreme]);
                let distance = self.flow.binary(BinaryOp::Sub, messages, extreme);
                let gated = self.flow.unary(UnaryOp::Relu, distance);
                let both = self.flow.binary(BinaryOp::Add, gated, messages);
                over(self, Reduce::Sum, both)
            }
            // Messages combined with the mean message.
            _ => {
                let sum = over(self, Reduce::Sum, messages);
                let half = self.flow.constant(0.5);
                let mean = self.flow.binary(BinaryOp::Mul, sum, half);
                let mean = self.flow.add(Op::GatherDst(graph), &[mean]);
                let f = [BinaryOp::Max, BinaryOp::Min][self.below(2)];
                let gated = self.flow.binary(f, messages, mean);
                let reduce = [Reduce::Sum, extreme][self.below(2)];
                over(self, reduce, gated)
            }
        };
        self.keep(z);
    }

    /// Attention of the destinations of paths over their sources, or the reverse.
    pub(super) fn metapath_attention(&mut self) {
        let first = self.any_graph();
        let middle = self.flow.graphs[first.index()].dst;
        let follows: Vec<usize> =
            (0..self.flow.graphs.len()).filter(|&graph| self.flow.graphs[graph].src == middle).collect();
        if follows.is_empty() {
            return;
        }
        let second = Graph::new(follows[self.below(follows.len())]);
        let (Some(src), Some(dst)) = (self.end(first, Direction::Out), self.end(second, Direction::In)) else { return };
        let heads = 1 + self.below(3);
        let scores = [src, dst].map(|end| {
            let end_dims = self.flow.ty(end).dims.clone();
            let flat = self.flow.add(Op::Reshape(vec![Dim::Fixed(self.bindings.width(&end_dims))]), &[end]);
            let w = self.weight(vec![Dim::Fixed(self.bindings.width(&end_dims)), Dim::Fixed(heads)]);
            self.flow.add(Op::MatMul { batch: 0 }, &[flat, w])
        });
        let below = [-0.5, 0.0, 0.2, 1.0][self.below(4)];
        let above = [-1.0, 0.5, 1.0, 1.0][self.below(4)];
        let score = PiecewiseLinear { below, above };
        let sum = MetapathReduce { first, second, direction: Direction::In, score, term: MetapathTerm::LogSumExp };
        let lse = self.flow.add(Op::MetapathReduce(sum), &scores);
        let direction = if self.chance(0.7) { Direction::In } else { Direction::Out };
        let mut args = vec![scores[0], scores[1], lse];
        let other = if direction == Direction::In { src } else { dst };
        if self.chance(0.8) {
            let width = self.bindings.width(&self.flow.ty(other).dims.clone());
            let flat = self.flow.add(Op::Reshape(vec![Dim::Fixed(width)]), &[other]);
            let per_head = 1 + self.below(4);
            let w = self.weight(vec![Dim::Fixed(width), Dim::Fixed(heads), Dim::Fixed(per_head)]);
            args.push(self.flow.add(Op::MatMul { batch: 0 }, &[flat, w]));
        }
        let z = self.flow.add(Op::MetapathReduce(sum.with(direction, MetapathTerm::WeightedSum)), &args);
        self.keep(z);
        let lse = self.clamp(lse);
        self.keep(lse);
    }

    /// The mean over in-edges of projected source features.
    pub(super) fn convolution(&mut self) {
        let graph = self.any_graph();
        let Some(src) = self.end(graph, Direction::Out) else { return };
        let Some(&[width]) = self.fixed_dims(src).as_deref() else { return };
        let out = 1 + self.below(5);
        let w = self.weight(vec![Dim::Fixed(width), Dim::Fixed(out)]);
        let projected = self.flow.add(Op::MatMul { batch: 0 }, &[src, w]);
        let mut messages = self.flow.add(Op::GatherSrc(graph), &[projected]);
        let one = self.flow.constant(1.0);
        let ones = self.flow.add(Op::Broadcast(Type::new(Space::Edges(graph), vec![])), &[one]);
        if self.chance(0.4) {
            // At an edge the source has positive degree. Elsewhere the degree may be 0.
            let degree = self.flow.segment(graph, Direction::Out, Reduce::Sum, ones);
            let degree = self.flow.add(Op::GatherSrc(graph), &[degree]);
            let root = self.flow.unary(UnaryOp::Sqrt, degree);
            messages = self.flow.binary(BinaryOp::Div, messages, root);
        }
        let sum = self.flow.segment(graph, Direction::In, Reduce::Sum, messages);
        let degree = self.flow.segment(graph, Direction::In, Reduce::Sum, ones);
        let degree = self.flow.binary(BinaryOp::Max, degree, one);
        let mean = self.flow.binary(BinaryOp::Div, sum, degree);
        self.keep(mean);
    }

    /// Values with a row for each distinct endpoint of a graph, and scatters back to vertices.
    pub(super) fn endpoints(&mut self) {
        let graph = self.any_graph();
        let (direction, gather) = if self.chance(0.5) {
            (Direction::Out, Op::GatherSrc(graph))
        } else {
            (Direction::In, Op::GatherDst(graph))
        };
        let Some(x) = self.end(graph, direction) else { return };
        let mut rows = self.flow.add(Op::GatherRows(graph, direction), &[x]);
        if let Some(&[width]) = self.fixed_dims(rows).as_deref()
            && self.chance(0.5)
        {
            let w = self.weight(vec![Dim::Fixed(width), Dim::Fixed(width)]);
            rows = self.flow.add(Op::MatMul { batch: 0 }, &[rows, w]);
            rows = self.flow.unary(UnaryOp::Tanh, rows);
        }
        self.pool.push(rows);
        let edges = self.flow.add(gather, &[rows]);
        self.pool.push(edges);
        // Every endpoint has an edge, so no reduction is infinite.
        let reduce = Reduce::ALL[self.below(4)];
        let reduced = self.flow.add(Op::SegmentEndpoints { graph, direction, reduce }, &[edges]);
        self.keep(reduced);
        let back = match self.below(3) {
            0 => self.flow.add(Op::ScatterRows(graph, direction), &[x, rows]),
            1 => self.flow.add(Op::ScatterAdd(vec![(graph, direction)]), &[x, rows]),
            _ => {
                let more = self.flow.unary(UnaryOp::Neg, rows);
                self.flow.add(Op::ScatterAdd(vec![(graph, direction), (graph, direction)]), &[x, rows, more])
            }
        };
        self.keep(back);
    }

    /// Patterns that `simplify` should rewrite.
    pub(super) fn algebra(&mut self) {
        let x = self.pick();
        let number = [0.0, 1.0, -1.0, 2.0][self.below(4)];
        let number = self.flow.constant(number);
        let same = self.flow.unary(UnaryOp::Tanh, x);
        let again = self.flow.unary(UnaryOp::Tanh, x);
        let y = match self.below(10) {
            7 => {
                let f = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul][self.below(3)];
                let negated = self.flow.unary(UnaryOp::Neg, again);
                let pair = if self.chance(0.5) { [same, negated] } else { [negated, x] };
                self.flow.binary(f, pair[0], pair[1])
            }
            8 => {
                // A reduction over a broadcast.
                let mut ty = self.flow.ty(x).clone();
                let repeated = 1 + self.below(2);
                ty.dims.extend([Dim::Fixed(3), Dim::Fixed(2)].into_iter().take(repeated));
                let wide = self.flow.add(Op::Broadcast(ty), &[same]);
                let axes = 1 + self.below(repeated);
                let reduce = Reduce::ALL[self.below(4)];
                self.flow.reduce_trailing(reduce, axes, wide)
            }
            9 => {
                // A slice of a slice.
                let Some(&Dim::Fixed(last)) = self.flow.ty(x).dims.last() else { return };
                let from = self.below(last);
                let outer = self.flow.add(Op::Slice { start: from, len: last - from }, &[same]);
                let start = self.below(last - from);
                self.flow.add(Op::Slice { start, len: last - from - start }, &[outer])
            }
            0 => self.flow.binary(BinaryOp::Mul, same, number),
            1 => self.flow.binary(BinaryOp::Add, number, same),
            2 => self.flow.binary(BinaryOp::Sub, same, again),
            3 => {
                let y = self.flow.unary(UnaryOp::Neg, same);
                self.flow.unary(UnaryOp::Neg, y)
            }
            4 => {
                let y = self.flow.unary(UnaryOp::Exp, same);
                self.flow.unary(UnaryOp::Log, y)
            }
            5 => {
                let y = self.flow.binary(BinaryOp::Pow, number, number);
                self.flow.binary(BinaryOp::Add, y, same)
            }
            _ => {
                let ty = self.flow.ty(x).clone();
                let wide = self.flow.add(Op::Broadcast(ty), &[number]);
                self.flow.binary(BinaryOp::Mul, wide, again)
            }
        };
        self.keep(y);
    }
}
