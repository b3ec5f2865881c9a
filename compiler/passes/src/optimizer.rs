//! Parameter updates as values of the program, by the options of [`hgnnc_ir::training`].
//!
//! The formulas are PyTorch's, so that a run can be compared step by step. Everything belongs to [`Phase::Update`] and
//! stage PU.

use hgnnc_ir::dataflow::{Binding, Cursor, InputDecl};
use hgnnc_ir::optimizer::{Clip, Optimizer, OptimizerOptions, Schedule};
use hgnnc_ir::{BinaryOp, Dataflow, Op, Output, OutputKind, Param, Phase, Reduce, Stage, Type, UnaryOp, Value};

/// Appends the new value of each parameter and of its optimizer states, and the outputs for them. Parameters
/// that are not in `grads` stay as they are. Declares the inputs `step` and `epoch` where they are needed.
pub fn update(flow: &mut Dataflow, grads: &[(Param, Value)], options: &OptimizerOptions) {
    let before = flow.cursor;
    flow.cursor = Cursor { stage: Stage::PU, phase: Phase::Update, origin: None };
    let mut build = Build { flow };
    let clipped = build.clip(grads, options.clip);
    build.optimize(&clipped, options);
    flow.cursor = before;
}

struct Build<'a> {
    flow: &'a mut Dataflow,
}

impl Build<'_> {
    fn clip(&mut self, grads: &[(Param, Value)], clip: Option<Clip>) -> Vec<(Param, Value)> {
        use BinaryOp::{Add, Div, Max, Min, Mul};
        match clip {
            None => grads.to_vec(),
            Some(Clip::Value(limit)) => {
                let mut clipped = vec![];
                for &(param, g) in grads {
                    let low = self.with_constant(Max, g, -limit);
                    clipped.push((param, self.with_constant(Min, low, limit)));
                }
                clipped
            }
            // scale = min(limit / (√Σ g² + 1e-6), 1)
            Some(Clip::GlobalNorm(limit)) => {
                let squares: Vec<Value> = grads.iter().map(|&(_, g)| self.sum_of_squares(g)).collect();
                let Some(total) = squares.into_iter().reduce(|a, b| self.flow.binary(Add, a, b)) else {
                    return vec![];
                };
                let norm = self.flow.unary(UnaryOp::Sqrt, total);
                let norm = self.with_constant(Add, norm, 1e-6);
                let limit = self.flow.constant(limit);
                let scale = self.flow.binary(Div, limit, norm);
                let scale = self.with_constant(Min, scale, 1.0);
                grads.iter().map(|&(param, g)| (param, self.flow.binary(Mul, g, scale))).collect()
            }
        }
    }

    fn sum_of_squares(&mut self, g: Value) -> Value {
        let square = self.flow.binary(BinaryOp::Mul, g, g);
        match self.flow.ty(g).dims.len() {
            0 => square,
            axes => self.flow.reduce_trailing(Reduce::Sum, axes, square),
        }
    }

    fn optimize(&mut self, grads: &[(Param, Value)], options: &OptimizerOptions) {
        if grads.is_empty() {
            return;
        }
        let rate = Rate { lr: options.optimizer.learning_rate(), factor: self.schedule(&options.schedule) };
        match options.optimizer {
            Optimizer::Sgd { lr: _, momentum, nesterov, weight_decay } => {
                let lr = self.scaled(&rate, 1.0);
                for &(param, g) in grads {
                    let w = self.flow.add(Op::Param(param), &[]);
                    let g = self.penalised(param, w, g, weight_decay);
                    let step = self.momentum(param, g, momentum, nesterov);
                    let step = self.flow.binary(BinaryOp::Mul, step, lr);
                    let w = self.flow.binary(BinaryOp::Sub, w, step);
                    self.output(OutputKind::UpdateParam(param), w);
                }
            }
            Optimizer::Adam { lr: _, beta1, beta2, eps, weight_decay } => {
                let corrections = self.corrections(&rate, beta1, beta2);
                for &(param, g) in grads {
                    let w = self.flow.add(Op::Param(param), &[]);
                    let g = self.penalised(param, w, g, weight_decay);
                    self.adam(param, w, g, (beta1, beta2, eps), corrections);
                }
            }
            Optimizer::AdamW { lr: _, beta1, beta2, eps, weight_decay } => {
                let corrections = self.corrections(&rate, beta1, beta2);
                for &(param, g) in grads {
                    let mut w = self.flow.add(Op::Param(param), &[]);
                    // w ← w - lr · weight_decay · w
                    if self.decays(param, weight_decay) {
                        let loss = self.scaled(&rate, weight_decay);
                        let one = self.flow.constant(1.0);
                        let rest = self.flow.binary(BinaryOp::Sub, one, loss);
                        w = self.flow.binary(BinaryOp::Mul, w, rest);
                    }
                    self.adam(param, w, g, (beta1, beta2, eps), corrections);
                }
            }
        }
    }

    /// g + weight_decay · w
    fn penalised(&mut self, param: Param, w: Value, g: Value, weight_decay: f64) -> Value {
        if !self.decays(param, weight_decay) {
            return g;
        }
        let penalty = self.with_constant(BinaryOp::Mul, w, weight_decay);
        self.flow.binary(BinaryOp::Add, g, penalty)
    }

    fn decays(&self, param: Param, weight_decay: f64) -> bool {
        weight_decay != 0.0 && self.flow.params[param.index()].decay
    }

    /// b ← momentum · b + g; the step is b, or g + momentum · b with Nesterov. PyTorch starts with b = g, which is
    /// what b = 0 gives.
    fn momentum(&mut self, param: Param, g: Value, momentum: f64, nesterov: bool) -> Value {
        if momentum == 0.0 {
            return g;
        }
        let old = self.flow.add(Op::State(param, 0), &[]);
        let kept = self.with_constant(BinaryOp::Mul, old, momentum);
        let new = self.flow.binary(BinaryOp::Add, kept, g);
        self.output(OutputKind::UpdateState(param, 0), new);
        if nesterov {
            let ahead = self.with_constant(BinaryOp::Mul, new, momentum);
            self.flow.binary(BinaryOp::Add, g, ahead)
        } else {
            new
        }
    }

    /// m ← β₁ m + (1 - β₁) g, v ← β₂ v + (1 - β₂) g²,
    /// w ← w - lr / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + ε).
    fn adam(&mut self, param: Param, w: Value, g: Value, (beta1, beta2, eps): (f64, f64, f64), by: Corrections) {
        use BinaryOp::{Add, Div, Mul, Sub};
        let square = self.flow.binary(Mul, g, g);
        let m = self.moving_average(param, 0, g, beta1);
        let v = self.moving_average(param, 1, square, beta2);
        let root = self.flow.unary(UnaryOp::Sqrt, v);
        let root = self.flow.binary(Div, root, by.second_root);
        let root = self.with_constant(Add, root, eps);
        let step = self.flow.binary(Div, m, root);
        let step = self.flow.binary(Mul, step, by.step_size);
        let w = self.flow.binary(Sub, w, step);
        self.output(OutputKind::UpdateParam(param), w);
    }

    fn moving_average(&mut self, param: Param, slot: u32, new: Value, beta: f64) -> Value {
        let old = self.flow.add(Op::State(param, slot), &[]);
        let kept = self.with_constant(BinaryOp::Mul, old, beta);
        let added = self.with_constant(BinaryOp::Mul, new, 1.0 - beta);
        let average = self.flow.binary(BinaryOp::Add, kept, added);
        self.output(OutputKind::UpdateState(param, slot), average);
        average
    }

    fn corrections(&mut self, rate: &Rate, beta1: f64, beta2: f64) -> Corrections {
        let lr = self.scaled(rate, 1.0);
        let first = self.bias_correction(beta1);
        let step_size = self.flow.binary(BinaryOp::Div, lr, first);
        let second = self.bias_correction(beta2);
        let second_root = self.flow.unary(UnaryOp::Sqrt, second);
        Corrections { step_size, second_root }
    }

    /// 1 - βᵗ, as -elu(t ln β): elu is `e^x - 1` for negative x, so the difference does not cancel in f32 where
    /// `1 - 0.999` would lose four digits.
    fn bias_correction(&mut self, beta: f64) -> Value {
        if beta <= 0.0 {
            return self.flow.constant(1.0);
        }
        let step = self.counter("step", Binding::StepNumber);
        let exponent = self.with_constant(BinaryOp::Mul, step, beta.ln());
        let negative = self.flow.unary(UnaryOp::Elu, exponent);
        self.flow.unary(UnaryOp::Neg, negative)
    }

    /// The learning rate times `by`.
    fn scaled(&mut self, rate: &Rate, by: f64) -> Value {
        match rate.factor {
            None => self.flow.constant(rate.lr * by),
            Some(factor) => self.with_constant(BinaryOp::Mul, factor, rate.lr * by),
        }
    }

    fn schedule(&mut self, schedule: &Schedule) -> Option<Value> {
        if *schedule == Schedule::Constant {
            return None;
        }
        let epoch = self.counter("epoch", Binding::EpochNumber);
        self.factor(schedule, epoch)
    }

    /// [`Schedule::factor`] at `epoch`; `None` is 1.
    fn factor(&mut self, schedule: &Schedule, epoch: Value) -> Option<Value> {
        use BinaryOp::{Add, Div, Max, Min, Mul, Pow, Sub};
        match schedule {
            Schedule::Constant => None,
            Schedule::Step { every, factor } => {
                let periods = self.with_constant(Div, epoch, (*every).max(1) as f64);
                let periods = self.flow.unary(UnaryOp::Floor, periods);
                let factor = self.flow.constant(*factor);
                Some(self.flow.binary(Pow, factor, periods))
            }
            Schedule::Exponential { factor } => {
                let factor = self.flow.constant(*factor);
                Some(self.flow.binary(Pow, factor, epoch))
            }
            Schedule::Cosine { epochs, floor } => {
                let done = self.with_constant(Div, epoch, (*epochs).max(1) as f64);
                let done = self.with_constant(Min, done, 1.0);
                let angle = self.with_constant(Mul, done, std::f64::consts::PI);
                let wave = self.flow.unary(UnaryOp::Cos, angle);
                let wave = self.with_constant(Add, wave, 1.0);
                let wave = self.with_constant(Mul, wave, 0.5 * (1.0 - floor));
                Some(self.with_constant(Add, wave, *floor))
            }
            // During the warm-up `then` is at its epoch 0, where every schedule is 1.
            Schedule::Warmup { epochs, then } => {
                let rising = self.with_constant(Add, epoch, 1.0);
                let rising = self.with_constant(Div, rising, (*epochs).max(1) as f64);
                let rising = self.with_constant(Min, rising, 1.0);
                let after = self.with_constant(Sub, epoch, *epochs as f64);
                let after = self.with_constant(Max, after, 0.0);
                Some(match self.factor(then, after) {
                    None => rising,
                    Some(factor) => self.flow.binary(Mul, rising, factor),
                })
            }
        }
    }

    fn counter(&mut self, name: &str, binding: Binding) -> Value {
        let input = self.flow.declare_input(InputDecl { name: name.into(), ty: Type::scalar(), binding });
        self.flow.add(Op::Input(input), &[])
    }

    fn with_constant(&mut self, f: BinaryOp, v: Value, number: f64) -> Value {
        let number = self.flow.constant(number);
        self.flow.binary(f, v, number)
    }

    fn output(&mut self, kind: OutputKind, value: Value) {
        self.flow.outputs.push(Output { kind, value });
    }
}

struct Rate {
    lr: f64,
    factor: Option<Value>,
}

#[derive(Clone, Copy)]
struct Corrections {
    /// The bias-corrected learning rate `lr / (1 - β₁ᵗ)`.
    step_size: Value,
    /// The bias correction `√(1 - β₂ᵗ)`.
    second_root: Value,
}
