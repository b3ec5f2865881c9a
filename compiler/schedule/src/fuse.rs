//! Fuses short sequences of element-wise instructions, without a value between them.
//!
//! Only single-use values disappear, so nothing is recomputed, and results are identical to the last bit.
//!
//! `then(f(a, b))`: the attention score of an edge, `leaky_relu(a + b)`, and the exponentials of a softmax, `exp(a -
//! b)`.
//!
//! `step(x) · c + d`, the slope of a leaky ReLU, becomes a select between `c + d` and `d`. It needs only the sign of
//! `x`, which equals the sign of `leaky_relu(x)`, so `x` itself need not be stored.

use hgnnc_ir::{BinaryOp, UnaryOp};
use hgnnc_kernel_ir::kernel::{Dest, Index, Instr, KernelOp, Level, Local, Operand, Source};
use hgnnc_machine::{KernelFeature, KernelFeatures};

/// The form in which an instruction is scheduled.
#[derive(Clone, PartialEq, Debug)]
pub enum Form {
    Plain,
    /// Fused into its only user.
    Gone,
    /// Replaced by an operation that computes its operands as well.
    Fused(KernelOp),
}

/// Whether the runtime has a kernel for `then(f(a, b))`: the scores and exponentials of attention.
fn has_kernel(f: BinaryOp, then: UnaryOp) -> bool {
    matches!((f, then), (BinaryOp::Add, UnaryOp::LeakyRelu(_)) | (BinaryOp::Sub, UnaryOp::Exp))
}

/// Fused forms of all instructions of a traversal.
pub fn forms(instrs: &[Instr], features: KernelFeatures) -> Vec<Form> {
    let mut forms = vec![Form::Plain; instrs.len()];
    if !features.has(KernelFeature::FusedPairs) {
        return forms;
    }
    let mut made: Vec<usize> = vec![];
    let mut uses: Vec<u32> = vec![];
    for (i, instr) in instrs.iter().enumerate() {
        for operand in instr.op.operands() {
            if let Source::Local(local) = operand.source {
                uses[local.index()] += 1;
            }
        }
        if let Dest::Local(_) = instr.dest {
            made.push(i);
            uses.push(0);
        }
    }
    // The instruction whose result is an operand of instruction `i`, element by element.
    let producer = |i: usize, operand: Operand| -> Option<(usize, Local)> {
        let Source::Local(local) = operand.source else { return None };
        let from = made[local.index()];
        let own = match instrs[i].level {
            Level::Edge => operand.index == Index::Edge,
            Level::Row => operand.index == Index::Own,
        };
        let same = own && instrs[from].level == instrs[i].level && instrs[from].width == instrs[i].width;
        same.then_some((from, local))
    };
    let number = |operand: Operand| if let Source::Const(number) = operand.source { Some(number as f32) } else { None };
    for i in 0..instrs.len() {
        // Matches `step(x) · c + d`.
        let KernelOp::Binary(BinaryOp::Add, product, d) = instrs[i].op else { continue };
        let Some(d) = number(d) else { continue };
        let Some((mul, mul_out)) = producer(i, product).filter(|p| uses[p.1.index()] == 1) else { continue };
        let KernelOp::Binary(BinaryOp::Mul, step, c) = instrs[mul].op else { continue };
        let Some(c) = number(c) else { continue };
        let Some((sign, _)) = producer(mul, step).filter(|p| uses[p.1.index()] == 1) else { continue };
        let KernelOp::Unary(UnaryOp::Step, mut a) = instrs[sign].op else { continue };
        let leaky = instrs[..sign].iter().find_map(|instr| match (&instr.op, instr.dest) {
            (KernelOp::Unary(UnaryOp::LeakyRelu(slope), x), Dest::Local(local))
                if *x == a && *slope >= 0.0 && instr.level == instrs[sign].level =>
            {
                Some(local)
            }
            _ => None,
        });
        if let (Some(leaky), Some((_, x))) = (leaky, producer(sign, a)) {
            uses[x.index()] -= 1;
            uses[leaky.index()] += 1;
            a.source = Source::Local(leaky);
        }
        uses[mul_out.index()] = 0;
        forms[mul] = Form::Gone;
        forms[sign] = Form::Gone;
        forms[i] = Form::Fused(KernelOp::Select { a, positive: (c + d).into(), otherwise: d.into() });
    }
    for i in 0..instrs.len() {
        let KernelOp::Unary(then, x) = instrs[i].op else { continue };
        let Some((first, _)) = producer(i, x).filter(|p| uses[p.1.index()] == 1) else { continue };
        let KernelOp::Binary(f, a, b) = instrs[first].op else { continue };
        if has_kernel(f, then) && forms[first] == Form::Plain && forms[i] == Form::Plain {
            forms[first] = Form::Gone;
            forms[i] = Form::Fused(KernelOp::Compose { first: f, then, a, b });
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use hgnnc_ir::Stage;
    use hgnnc_ir::width::Width;

    use super::*;

    fn local(at: u32) -> Operand {
        Operand { source: Source::Local(Local(at)), index: Index::Edge }
    }

    fn number(x: f64) -> Operand {
        Operand { source: Source::Const(x), index: Index::Uniform }
    }

    /// Instructions over edges, each with the next local as its result.
    fn program(ops: Vec<KernelOp>) -> Vec<Instr> {
        let instr = |(i, op)| {
            let dest = Dest::Local(Local(i as u32));
            Instr {
                dest,
                level: Level::Edge,
                op,
                width: Width::fixed(8),
                stage: Stage::NA,
                exact: false,
                from: Default::default(),
            }
        };
        ops.into_iter().enumerate().map(instr).collect()
    }

    /// Gradient of a leaky ReLU, from a mask (0) on: the sum (1), the score (2), its slope (3 to 5), a product (6).
    fn slope(of_leaky: f64) -> Vec<KernelOp> {
        vec![
            KernelOp::Mask { stream: 0, rate: 0.5 },
            KernelOp::Binary(BinaryOp::Add, local(0), number(1.0)),
            KernelOp::Unary(UnaryOp::LeakyRelu(of_leaky), local(1)),
            KernelOp::Unary(UnaryOp::Step, local(1)),
            KernelOp::Binary(BinaryOp::Mul, local(3), number(0.75)),
            KernelOp::Binary(BinaryOp::Add, local(4), number(0.25)),
            KernelOp::Binary(BinaryOp::Mul, local(2), local(5)),
        ]
    }

    #[test]
    fn slopes_are_chosen_by_the_sign_of_the_leaky_relu() {
        let choose = Form::Fused(KernelOp::Select { a: local(2), positive: 1.0, otherwise: 0.25 });
        let (first, then) = (BinaryOp::Add, UnaryOp::LeakyRelu(0.25));
        let score = Form::Fused(KernelOp::Compose { first, then, a: local(0), b: number(1.0) });
        let expected = [Form::Plain, Form::Gone, score, Form::Gone, Form::Gone, choose, Form::Plain];
        assert_eq!(forms(&program(slope(0.25)), KernelFeatures::ALL), expected);
    }

    #[test]
    fn a_falling_leaky_relu_has_not_the_sign_of_its_argument() {
        let forms = forms(&program(slope(-0.25)), KernelFeatures::ALL);
        assert_eq!(forms[5], Form::Fused(KernelOp::Select { a: local(1), positive: 1.0, otherwise: 0.25 }));
        assert_eq!(forms[1..3], [Form::Plain, Form::Plain], "the sum is used twice");
    }

    #[test]
    fn what_is_used_again_stays() {
        let again = |used: u32| {
            let mut ops = slope(0.25);
            ops.push(KernelOp::Unary(UnaryOp::Neg, local(used)));
            forms(&program(ops), KernelFeatures::ALL)
        };
        for used in [3, 4] {
            assert!(!again(used).iter().any(|form| matches!(form, Form::Fused(KernelOp::Select { .. }))), "%{used}");
        }
        assert!(!again(1).iter().any(|form| matches!(form, Form::Fused(KernelOp::Compose { .. }))));
    }

    #[test]
    fn values_of_rows_are_not_computed_for_each_edge() {
        // The difference is a row value, the exponential an edge value.
        let mut instrs = program(vec![
            KernelOp::Mask { stream: 0, rate: 0.5 },
            KernelOp::Binary(BinaryOp::Sub, number(2.0), number(1.0)),
            KernelOp::Unary(UnaryOp::Exp, Operand { index: Index::Own, ..local(1) }),
        ]);
        instrs[1].level = Level::Row;
        assert_eq!(forms(&instrs, KernelFeatures::ALL), [Form::Plain, Form::Plain, Form::Plain]);
        instrs[1].level = Level::Edge;
        instrs[2].op = KernelOp::Unary(UnaryOp::Exp, local(1));
        let (first, then) = (BinaryOp::Sub, UnaryOp::Exp);
        let fused = KernelOp::Compose { first, then, a: number(2.0), b: number(1.0) };
        assert_eq!(forms(&instrs, KernelFeatures::ALL)[1..], [Form::Gone, Form::Fused(fused)]);
    }
}
