//! Lines of values: an operation with its attributes and operands, its type and its stage.

use super::{Parse, Parser, Token};
use crate::dataflow::ValueData;
use crate::metapath::{MetapathReduce, MetapathTerm, PiecewiseLinear};
use crate::ops::{BinaryOp, Direction, Extreme, Op, ProductForm, Reduce, UnaryOp};
use crate::training::RankingLoss;
use crate::types::{Graph, Phase, Space, Stage, Value};
use crate::verify::Place;

impl Parser {
    pub(super) fn value_line(&mut self) -> Parse<Place> {
        let row = self.parsed.flow.values.len();
        let at = self.next;
        let value = self.value()?;
        if value.index() != row {
            return self.error_at(at, format!("this is value %{row}"));
        }
        self.sign("=")?;
        let at = self.next;
        let (op, args) = self.op()?;
        self.sign(":")?;
        let ty = self.ty()?;
        self.sign("@")?;
        let (stage, phase) = self.stage()?;
        let op = match op {
            Written::Op(op) => op,
            Written::Mask { stream, rate } => Op::RandomMask { stream, rate, ty: ty.clone() },
            Written::Broadcast => Op::Broadcast(ty.clone()),
            Written::Reshape => Op::Reshape(ty.dims.clone()),
            Written::Reindex => Op::Reindex(ty.space),
            Written::Unknown(mnemonic) => return self.error_at(at, format!("there is no operation `{mnemonic}`")),
        };
        self.parsed.flow.values.push(ValueData { op, args, ty, stage, phase, origin: None });
        Ok(Place::Value(value))
    }

    /// A stage with its phase: `NA.backward`; without a phase it is the forward pass.
    ///
    /// # Errors
    /// Unless a stage comes next.
    pub fn stage(&mut self) -> Parse<(Stage, Phase)> {
        let at = self.next;
        let text = self.name()?;
        let (stage, phase) = text.split_once('.').unwrap_or((&text, "forward"));
        let stage = Stage::ALL.into_iter().find(|known| known.name() == stage);
        let phases = [Phase::Forward, Phase::Backward, Phase::Update];
        let phase = phases.into_iter().find(|known| known.name() == phase);
        match (stage, phase) {
            (Some(stage), Some(phase)) => Ok((stage, phase)),
            _ => self.error_at(at, format!("there is no stage `{text}`")),
        }
    }

    fn op(&mut self) -> Parse<(Written, Vec<Value>)> {
        let Token::Word(mnemonic) = self.peek().clone() else { return self.expected("an operation") };
        self.take();
        let op = self.op_head(&mnemonic)?;
        let mut args = vec![];
        if matches!(self.peek(), Token::Value(_)) {
            args.push(self.value()?);
            while self.accept(",") {
                args.push(self.value()?);
            }
        }
        Ok((op, args))
    }

    /// The part of an operation before its operands.
    fn op_head(&mut self, mnemonic: &str) -> Parse<Written> {
        if let Some(f) = UnaryOp::PLAIN.into_iter().find(|f| f.name() == mnemonic) {
            return Ok(Written::Op(Op::Unary(f)));
        }
        if let Some(f) = BinaryOp::ALL.into_iter().find(|f| f.name() == mnemonic) {
            return Ok(Written::Op(Op::Binary(f)));
        }
        let reduce_of = |name: &str| Reduce::ALL.into_iter().find(|reduce| reduce.name() == name);
        let segment = mnemonic.strip_prefix("segment.").or_else(|| mnemonic.strip_prefix("segment_endpoints."));
        if let Some((reduce, direction)) = segment.and_then(|rest| rest.split_once('.')) {
            let direction = [Direction::In, Direction::Out].into_iter().find(|known| known.name() == direction);
            let extreme = [Extreme::Max, Extreme::Min].into_iter().find(|known| known.arg_name() == reduce);
            if let (Some(extreme), Some(direction), true) = (extreme, direction, mnemonic.starts_with("segment.")) {
                let graph = self.graph()?;
                self.comma_before_value()?;
                return Ok(Written::Op(Op::SegmentArg { graph, direction, extreme }));
            }
            let (Some(reduce), Some(direction)) = (reduce_of(reduce), direction) else {
                return Ok(Written::Unknown(mnemonic.to_owned()));
            };
            let graph = self.graph()?;
            self.comma_before_value()?;
            return Ok(Written::Op(if mnemonic.starts_with("segment_endpoints.") {
                Op::SegmentEndpoints { graph, direction, reduce }
            } else {
                Op::Segment { graph, direction, reduce }
            }));
        }
        if let Some((term, direction)) = mnemonic.strip_prefix("metapath.").and_then(|rest| rest.split_once('.')) {
            let term = MetapathTerm::ALL.into_iter().find(|known| known.name() == term);
            let direction = [Direction::In, Direction::Out].into_iter().find(|known| known.name() == direction);
            let (Some(term), Some(direction)) = (term, direction) else {
                return Ok(Written::Unknown(mnemonic.to_owned()));
            };
            return Ok(Written::Op(Op::MetapathReduce(self.metapath_reduce(term, direction)?)));
        }
        if let Some(reduce) = mnemonic.strip_prefix("reduce.").and_then(reduce_of) {
            self.sign("(")?;
            self.word("axes")?;
            let axes = self.integer()?;
            self.sign(")")?;
            return Ok(Written::Op(Op::ReduceTrailing { reduce, axes }));
        }
        if let Some(reduce) = mnemonic.strip_prefix("reduce_space.").and_then(reduce_of) {
            return Ok(Written::Op(Op::ReduceSpace(reduce)));
        }
        Ok(Written::Op(match mnemonic {
            "input" => Op::Input(self.input()?),
            "param" => Op::Param(self.param()?),
            "state" => {
                let (param, slot) = self.slot()?;
                Op::State(param, slot)
            }
            "const" => Op::Const(self.float()?),
            "count" => {
                let space = if self.accept("[") {
                    self.sign("]")?;
                    Space::Unit
                } else {
                    self.space()?
                };
                Op::Count(space)
            }
            "random_mask" => {
                self.sign("(")?;
                self.word("stream")?;
                let stream = self.integer()?;
                self.sign(",")?;
                self.word("rate")?;
                let rate = self.float()?;
                self.sign(")")?;
                return Ok(Written::Mask { stream, rate });
            }
            "leaky_relu" => {
                self.sign("(")?;
                let slope = self.float()?;
                self.sign(")")?;
                Op::Unary(UnaryOp::LeakyRelu(slope))
            }
            "broadcast" => return Ok(Written::Broadcast),
            "reshape" => return Ok(Written::Reshape),
            "reindex" => return Ok(Written::Reindex),
            "link_loss.cross_entropy" => Op::LinkLoss(RankingLoss::CrossEntropy),
            "link_loss.bpr" => Op::LinkLoss(RankingLoss::Bpr),
            "link_loss.margin_ranking" | "link_loss.self_adversarial" => {
                self.sign("(")?;
                let number = self.float()?;
                self.sign(")")?;
                Op::LinkLoss(match mnemonic {
                    "link_loss.margin_ranking" => RankingLoss::Margin(number),
                    _ => RankingLoss::SelfAdversarial(number),
                })
            }
            "stop_gradient" => Op::StopGradient,
            "concat" => Op::Concat,
            "slice" => {
                self.sign("(")?;
                let start = self.integer()?;
                self.sign(",")?;
                let len = self.integer()?;
                self.sign(")")?;
                Op::Slice { start, len }
            }
            "transpose" => {
                self.sign("(")?;
                let axis = self.integer()?;
                self.sign(")")?;
                Op::Transpose { axis }
            }
            "one_hot" => {
                self.sign("(")?;
                let classes = self.integer()?;
                self.sign(")")?;
                Op::OneHot { classes }
            }
            "rows" => Op::Rows,
            "unrows" => Op::Unrows,
            "matmul" => Op::MatMul { batch: self.batch()? },
            "matmul_t" => Op::MatMulT { batch: self.batch()? },
            "outer" => Op::Outer { batch: self.batch()? },
            "row_product" => Op::RowProduct { batch: self.batch()? },
            "grouped.matmul" | "grouped.matmul_t" | "grouped.outer" => {
                let known = |form: &ProductForm| mnemonic.strip_prefix("grouped.") == Some(form.name());
                let form = ProductForm::ALL.into_iter().find(known).expect("the mnemonic names a form");
                let batch = self.batch()?;
                let members = self.graph()?;
                self.comma_before_value()?;
                Op::Grouped { form, batch, members }
            }
            "gather.src" => {
                let graph = self.graph()?;
                self.comma_before_value()?;
                Op::GatherSrc(graph)
            }
            "gather.dst" => {
                let graph = self.graph()?;
                self.comma_before_value()?;
                Op::GatherDst(graph)
            }
            "sum_ranks" => Op::SumRanks,
            "exchange" => {
                let to = self.vertex()?;
                self.comma_before_value()?;
                Op::Exchange(to)
            }
            "gather_rows.src" | "gather_rows.dst" | "scatter_rows.src" | "scatter_rows.dst" => {
                let direction = if mnemonic.ends_with("src") { Direction::Out } else { Direction::In };
                let graph = self.graph()?;
                self.comma_before_value()?;
                if mnemonic.starts_with("gather_rows") {
                    Op::GatherRows(graph, direction)
                } else {
                    Op::ScatterRows(graph, direction)
                }
            }
            "scatter_add" => {
                self.sign("(")?;
                let mut ends = vec![];
                while !self.accept(")") {
                    if !ends.is_empty() {
                        self.sign(",")?;
                    }
                    ends.push(self.end()?);
                }
                Op::ScatterAdd(ends)
            }
            _ => return Ok(Written::Unknown(mnemonic.to_owned())),
        }))
    }

    /// The attributes of a reduction over a metapath: `(0.2, 1.0) PSP.1, PSP.2,`.
    fn metapath_reduce(&mut self, term: MetapathTerm, direction: Direction) -> Parse<MetapathReduce> {
        let score = self.slopes()?;
        let first = self.graph()?;
        self.sign(",")?;
        let second = self.graph()?;
        self.comma_before_value()?;
        Ok(MetapathReduce { first, second, direction, score, term })
    }

    /// The slopes of a score below and above zero: `(0.2, 1.0)`.
    ///
    /// # Errors
    /// Unless they come next.
    pub fn slopes(&mut self) -> Parse<PiecewiseLinear> {
        self.sign("(")?;
        let below = self.float()?;
        self.sign(",")?;
        let above = self.float()?;
        self.sign(")")?;
        Ok(PiecewiseLinear { below, above })
    }

    /// An end of a graph: `src PAP` or `dst PAP`.
    pub(crate) fn end(&mut self) -> Parse<(Graph, Direction)> {
        let direction = if self.accept_word("src") {
            Direction::Out
        } else {
            self.word("dst")?;
            Direction::In
        };
        Ok((self.graph()?, direction))
    }

    /// The comma between a table row and the operands, if there are any.
    fn comma_before_value(&mut self) -> Parse<()> {
        if *self.peek() == Token::Sign(":") { Ok(()) } else { self.sign(",") }
    }

    fn batch(&mut self) -> Parse<usize> {
        if !self.accept("(") {
            return Ok(0);
        }
        self.word("batch")?;
        let batch = self.integer()?;
        self.sign(")")?;
        Ok(batch)
    }
}

/// An operation as written: some take the type of their line as an attribute.
enum Written {
    Op(Op),
    Mask { stream: u32, rate: f64 },
    Broadcast,
    Reshape,
    Reindex,
    Unknown(String),
}
