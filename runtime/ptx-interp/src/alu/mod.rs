//! Per-lane functions: a [`Step`](crate::registers::Step) for every operation and type.

macro_rules! step1 {
    ($f:expr) => {{
        fn step(r: &mut $crate::registers::Registers, o: &$crate::registers::Operands, mask: u32) {
            r.map1(o, mask, $f)
        }
        step as $crate::registers::Step
    }};
}
macro_rules! step2 {
    ($f:expr) => {{
        fn step(r: &mut $crate::registers::Registers, o: &$crate::registers::Operands, mask: u32) {
            r.map2(o, mask, $f)
        }
        step as $crate::registers::Step
    }};
}
macro_rules! step3 {
    ($f:expr) => {{
        fn step(r: &mut $crate::registers::Registers, o: &$crate::registers::Operands, mask: u32) {
            r.map3(o, mask, $f)
        }
        step as $crate::registers::Step
    }};
}
macro_rules! step4 {
    ($f:expr) => {{
        fn step(r: &mut $crate::registers::Registers, o: &$crate::registers::Operands, mask: u32) {
            r.map4(o, mask, $f)
        }
        step as $crate::registers::Step
    }};
}

pub(crate) mod compare;
pub(crate) mod convert;
pub(crate) mod float;
pub(crate) mod half;
pub(crate) mod int;
