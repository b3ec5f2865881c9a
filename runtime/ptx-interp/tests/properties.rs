//! Instructions against reference models in Rust.

mod common;

use hgnnc_ptx_interp::{Launch, Memory, Module, Value};
use proptest::prelude::*;

const HEAD: &str = ".version 7.8\n.target sm_80\n.address_size 64\n";

/// Runs instructions for 32 lanes: `%a`, `%b` and `%c` (32 bits) are inputs, `%d` is the result; `%da`, `%db`, `%dd`
/// are their 64-bit versions, `%h` has 16 bits, `%l` is the lane and `%p` a predicate.
fn apply(instructions: &str, inputs: [&[u64; 32]; 3]) -> [u64; 32] {
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 in, .param .u64 out) {{
        .reg .b32 %l, %a, %b, %c, %d; .reg .b64 %i, %o, %da, %db, %dc, %dd, %z; .reg .b16 %h; .reg .pred %p;
        ld.param.u64 %i, [in]; ld.param.u64 %o, [out];
        mov.u32 %l, %laneid;
        mul.wide.u32 %z, %l, 8;
        add.s64 %i, %i, %z; add.s64 %o, %o, %z;
        ld.global.u64 %da, [%i]; ld.global.u64 %db, [%i+256]; ld.global.u64 %dc, [%i+512];
        cvt.u32.u64 %a, %da; cvt.u32.u64 %b, %db; cvt.u32.u64 %c, %dc;
        mov.u64 %dd, 0;
        {instructions}
        st.global.u64 [%o], %dd;
        ret;
        }}"
    );
    common::assemble_once(&text);
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}: {instructions}"));
    let mut memory = Memory::new();
    let (input, out) = (memory.alloc("in", 768, 8), memory.alloc("out", 256, 8));
    for (i, values) in inputs.iter().enumerate() {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        memory.write(input + 256 * i as u64, &bytes).expect("it is there");
    }
    let params = module.kernels()[0].lay_out(&[Value::U64(input), Value::U64(out)]).expect("two addresses");
    let launch = Launch { block: [32, 1, 1], params, ..Launch::default() };
    module.run("k", &mut memory, &launch).unwrap_or_else(|fault| panic!("{fault}: {instructions}"));
    let bytes = memory.read(out, 256).expect("all lanes write");
    std::array::from_fn(|i| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().expect("8 bytes")))
}

/// The 32-bit result in `%d`.
fn apply32(instruction: &str, inputs: [&[u64; 32]; 3]) -> [u32; 32] {
    apply(&format!("{instruction} cvt.u64.u32 %dd, %d;"), inputs).map(|value| value as u32)
}

fn words() -> impl Strategy<Value = [u64; 32]> {
    let edge =
        prop::sample::select(vec![0u64, 1, 31, 32, 33, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, u64::MAX, 1 << 63]);
    prop::array::uniform32(prop_oneof![edge, any::<u64>(), (0u64..64)])
}

/// Bits of f32: numbers of all magnitudes, and special values.
fn floats() -> impl Strategy<Value = [u64; 32]> {
    let edge = prop::sample::select(vec![
        0f32,
        -0.0,
        0.5,
        1.5,
        2.5,
        -0.5,
        65504.0,
        65520.0,
        1e-7,
        1e-41,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        2147483648.0,
        -2147483904.0,
    ]);
    prop::array::uniform32(prop_oneof![edge, any::<f32>(), -300f32..300.0].prop_map(|x| u64::from(x.to_bits())))
}

const NONE: [u64; 32] = [0; 32];

/// Checks a 32-bit operation against a function.
fn check(
    instruction: &str,
    inputs: [&[u64; 32]; 3],
    model: impl Fn(u32, u32, u32) -> u32,
) -> Result<(), TestCaseError> {
    let found = apply32(instruction, inputs);
    for lane in 0..32 {
        let [a, b, c] = inputs.map(|values| values[lane] as u32);
        let expected = model(a, b, c);
        prop_assert_eq!(found[lane], expected, "{} of {:#x}, {:#x}, {:#x}", instruction, a, b, c);
    }
    Ok(())
}

/// Checks an f32 operation against a function; all NaN are equal.
fn check_f32(
    instruction: &str,
    inputs: [&[u64; 32]; 3],
    model: impl Fn(f32, f32, f32) -> f32,
) -> Result<(), TestCaseError> {
    let found = apply32(instruction, inputs);
    for lane in 0..32 {
        let [a, b, c] = inputs.map(|values| f32::from_bits(values[lane] as u32));
        let (found, expected) = (f32::from_bits(found[lane]), model(a, b, c));
        let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        prop_assert!(same, "{} of {:e}, {:e}, {:e}: {:e}, not {:e}", instruction, a, b, c, found, expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn integers(a in words(), b in words(), c in words()) {
        let i = [&a, &b, &c];
        check("add.u32 %d, %a, %b;", i, |a, b, _| a.wrapping_add(b))?;
        check("sub.s32 %d, %a, %b;", i, |a, b, _| a.wrapping_sub(b))?;
        check("add.sat.s32 %d, %a, %b;", i, |a, b, _| (a as i32).saturating_add(b as i32) as u32)?;
        check("mul.lo.u32 %d, %a, %b;", i, |a, b, _| a.wrapping_mul(b))?;
        check("mul.hi.u32 %d, %a, %b;", i, |a, b, _| ((u64::from(a) * u64::from(b)) >> 32) as u32)?;
        check("mul.hi.s32 %d, %a, %b;", i, |a, b, _| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32)?;
        check("mad.lo.s32 %d, %a, %b, %c;", i, |a, b, c| a.wrapping_mul(b).wrapping_add(c))?;
        check("div.u32 %d, %a, %b;", i, |a, b, _| a.checked_div(b).unwrap_or(u32::MAX))?;
        check("rem.u32 %d, %a, %b;", i, |a, b, _| a.checked_rem(b).unwrap_or(a))?;
        check("min.s32 %d, %a, %b;", i, |a, b, _| (a as i32).min(b as i32) as u32)?;
        check("max.u32 %d, %a, %b;", i, |a, b, _| a.max(b))?;
        check("abs.s32 %d, %a;", i, |a, _, _| (a as i32).wrapping_abs() as u32)?;
        check("neg.s32 %d, %a;", i, |a, _, _| a.wrapping_neg())?;
        check("shl.b32 %d, %a, %b;", i, |a, b, _| a.checked_shl(b).unwrap_or(0))?;
        check("shr.u32 %d, %a, %b;", i, |a, b, _| a.checked_shr(b).unwrap_or(0))?;
        check("shr.s32 %d, %a, %b;", i, |a, b, _| ((a as i32) >> b.min(31)) as u32)?;
        check("shf.l.wrap.b32 %d, %a, %b, %c;", i, |a, b, c| (((u64::from(b) << 32 | u64::from(a)) << (c & 31)) >> 32) as u32)?;
        check("shf.r.clamp.b32 %d, %a, %b, %c;", i, |a, b, c| ((u64::from(b) << 32 | u64::from(a)) >> c.min(32)) as u32)?;
        check("lop3.b32 %d, %a, %b, %c, 0x96;", i, |a, b, c| a ^ b ^ c)?;
        check("lop3.b32 %d, %a, %b, %c, 0xca;", i, |a, b, c| a & b | !a & c)?;
        check("popc.b32 %d, %a;", i, |a, _, _| a.count_ones())?;
        check("clz.b32 %d, %a;", i, |a, _, _| a.leading_zeros())?;
        check("brev.b32 %d, %a;", i, |a, _, _| a.reverse_bits())?;
        check("sad.u32 %d, %a, %b, %c;", i, |a, b, c| a.abs_diff(b).wrapping_add(c))?;
        check("prmt.b32 %d, %a, %b, 0x0123;", i, |a, _, _| a.swap_bytes())?;
        check("prmt.b32 %d, %a, %b, 0x5410;", i, |a, b, _| a & 0xffff | b << 16)?;
        check("prmt.b32 %d, %a, %b, 0x9999;", i, |a, _, _| if a >> 15 & 1 == 1 { u32::MAX } else { 0 })?;
        // Bit by bit, as in the PTX ISA.
        check("bfe.u32 %d, %a, %b, %c;", i, |a, b, c| {
            let (pos, len) = (b & 0xff, c & 0xff);
            (0..len.min(32)).filter(|i| pos + i <= 31).fold(0, |d, i| d | (a >> (pos + i) & 1) << i)
        })?;
        check("bfe.s32 %d, %a, %b, %c;", i, |a, b, c| {
            let (pos, len) = (b & 0xff, c & 0xff);
            let sign = if len == 0 { 0 } else { a >> (pos + len - 1).min(31) & 1 };
            (0..32).fold(0, |d, i| d | if i < len && pos + i <= 31 { a >> (pos + i) & 1 } else { sign } << i)
        })?;
        check("bfi.b32 %d, %a, %b, %c, 5;", i, |a, b, c| {
            let pos = c & 0xff;
            (0..5).filter(|i| pos + i <= 31).fold(b, |d, i| d & !(1 << (pos + i)) | (a >> i & 1) << (pos + i))
        })?;
        check("setp.lt.s32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", i, |a, b, _| u32::from((a as i32) < (b as i32)))?;
        check("setp.hs.u32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", i, |a, b, _| u32::from(a >= b))?;
        check("cvt.u32.u8 %d, %a;", i, |a, _, _| a & 0xff)?;
        check("cvt.s32.s8 %d, %a;", i, |a, _, _| a as i8 as u32)?;
        check("cvt.sat.u8.s32 %d, %a;", i, |a, _, _| (a as i32).clamp(0, 255) as u32)?;
        check("cvt.u16.u32 %h, %a; cvt.s32.s16 %d, %h;", i, |a, _, _| a as i16 as u32)?;
        check("slct.u32.s32 %d, %a, %b, %c;", i, |a, b, c| if c as i32 >= 0 { a } else { b })?;
        let wide = apply("mul.wide.s32 %dd, %a, %b;", i);
        let mad = apply("mad.wide.u32 %dd, %a, %b, %dc;", i);
        let high = apply("mul.hi.u64 %dd, %da, %db;", i);
        let extended = apply("cvt.s64.s32 %dd, %a;", i);
        for lane in 0..32 {
            let [x, y] = [a[lane], b[lane]];
            prop_assert_eq!(wide[lane], (i64::from(x as i32) * i64::from(y as i32)) as u64);
            prop_assert_eq!(mad[lane], (x & 0xffff_ffff).wrapping_mul(y & 0xffff_ffff).wrapping_add(c[lane]));
            prop_assert_eq!(high[lane], ((u128::from(x) * u128::from(y)) >> 64) as u64);
            prop_assert_eq!(extended[lane], x as i32 as i64 as u64);
        }
    }

    #[test]
    fn floating_point(a in floats(), b in floats(), c in floats()) {
        let i = [&a, &b, &c];
        check_f32("add.rn.f32 %d, %a, %b;", i, |a, b, _| a + b)?;
        check_f32("sub.f32 %d, %a, %b;", i, |a, b, _| a - b)?;
        check_f32("mul.f32 %d, %a, %b;", i, |a, b, _| a * b)?;
        check_f32("fma.rn.f32 %d, %a, %b, %c;", i, |a, b, c| a.mul_add(b, c))?;
        check_f32("div.rn.f32 %d, %a, %b;", i, |a, b, _| a / b)?;
        check_f32("sqrt.rn.f32 %d, %a;", i, |a, _, _| a.sqrt())?;
        check_f32("rcp.rn.f32 %d, %a;", i, |a, _, _| 1.0 / a)?;
        check_f32("neg.f32 %d, %a;", i, |a, _, _| -a)?;
        check_f32("abs.f32 %d, %a;", i, |a, _, _| a.abs())?;
        check_f32("copysign.f32 %d, %a, %b;", i, |a, b, _| b.copysign(a))?;
        check_f32("add.sat.f32 %d, %a, %b;", i, |a, b, _| if (a + b).is_nan() { 0.0 } else { (a + b).clamp(0.0, 1.0) + 0.0 })?;
        check_f32("mul.ftz.f32 %d, %a, %b;", i, |a, b, _| {
            let flush = |x: f32| if x.is_subnormal() { 0f32.copysign(x) } else { x };
            flush(flush(a) * flush(b))
        })?;
        check_f32("min.f32 %d, %a, %b;", i, |a, b, _| {
            if a == b { f32::from_bits(a.to_bits() | b.to_bits()) } else { a.min(b) }
        })?;
        check_f32("max.NaN.f32 %d, %a, %b;", i, |a, b, _| {
            if a.is_nan() || b.is_nan() { f32::NAN } else if a == b { f32::from_bits(a.to_bits() & b.to_bits()) } else { a.max(b) }
        })?;
        check("setp.lt.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", i, |a, b, _| u32::from(f32::from_bits(a) < f32::from_bits(b)))?;
        check("setp.ne.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", i, |a, b, _| {
            let (a, b) = (f32::from_bits(a), f32::from_bits(b));
            u32::from(!a.is_nan() && !b.is_nan() && a != b)
        })?;
        check("setp.geu.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", i, |a, b, _| {
            let (a, b) = (f32::from_bits(a), f32::from_bits(b));
            u32::from(a.is_nan() || b.is_nan() || a >= b)
        })?;
        check("testp.subnormal.f32 %p, %a; selp.u32 %d, 1, 0, %p;", i, |a, _, _| u32::from(f32::from_bits(a).is_subnormal()))?;
        // The two directed sums enclose the exact one, and are adjacent unless it is exact.
        let [down, up] = ["rm", "rp"].map(|r| apply32(&format!("add.{r}.f32 %d, %a, %b;"), i));
        for lane in 0..32 {
            let [x, y] = [a[lane], b[lane]].map(|bits| f32::from_bits(bits as u32));
            let (down, up) = (f32::from_bits(down[lane]), f32::from_bits(up[lane]));
            prop_assert!(down == up || down.next_up() == up || (x + y).is_nan(), "{x:e} {y:e}: {down:e} {up:e}");
        }
    }

    #[test]
    fn conversions(a in floats(), n in words()) {
        let i = [&a, &n, &NONE];
        let f = f32::from_bits;
        check("cvt.rzi.s32.f32 %d, %a;", i, |a, _, _| f(a) as i32 as u32)?;
        check("cvt.rzi.u32.f32 %d, %a;", i, |a, _, _| f(a) as u32)?;
        check("cvt.rni.s32.f32 %d, %a;", i, |a, _, _| f(a).round_ties_even() as i32 as u32)?;
        check("cvt.rmi.s32.f32 %d, %a;", i, |a, _, _| f(a).floor() as i32 as u32)?;
        check_f32("cvt.rpi.f32.f32 %d, %a;", i, |a, _, _| a.ceil())?;
        check_f32("cvt.sat.f32.f32 %d, %a;", i, |a, _, _| if a.is_nan() { 0.0 } else { a.clamp(0.0, 1.0) + 0.0 })?;
        check("cvt.rn.f32.s32 %d, %b;", i, |_, b, _| (b as i32 as f32).to_bits())?;
        check("cvt.rn.f32.u32 %d, %b;", i, |_, b, _| (b as f32).to_bits())?;
        check("cvt.rz.f32.u32 %d, %b;", i, |_, b, _| {
            let nearest = b as f32;
            if f64::from(nearest) > f64::from(b) { nearest.next_down().to_bits() } else { nearest.to_bits() }
        })?;
        check("cvt.rna.tf32.f32 %d, %a;", i, |a, _, _| {
            if f(a).is_finite() { a.wrapping_add(0x1000) & !0x1fff } else { a & !0x1fff }
        })?;
        // To bf16 and back gives the nearest of the two neighbours, the even one on a tie.
        check("cvt.rn.bf16.f32 %h, %a; mov.b32 %d, {0, %h};", i, |a, _, _| {
            let (low, high) = (a & 0xffff_0000, (a & 0xffff_0000).wrapping_add(0x1_0000));
            if f(a).is_nan() { 0x7fff_0000 } else if a & 0xffff < 0x8000 || a & 0x1_ffff == 0x8000 { low } else { high }
        })?;
        check_f32("cvt.f64.f32 %dd, %a; cvt.rn.f32.f64 %d, %dd; mov.u64 %dd, 0;", i, |a, _, _| a)?;
        check_f32("cvt.rn.f16.f32 %h, %a; cvt.f32.f16 %d, %h;", i, |a, _, _| {
            // Units of f16 around `a`: 2^-24, or 2^(e-10).
            let magnitude = f64::from(a.abs());
            let unit = if magnitude < 2f64.powi(-14) { 2f64.powi(-24) } else { 2f64.powi(magnitude.log2().floor() as i32 - 10) };
            let rounded = (magnitude / unit).round_ties_even() * unit;
            if a.is_finite() { (if rounded > 65504.0 { f32::INFINITY } else { rounded as f32 }).copysign(a) } else { a }
        })?;
        check("cvt.rn.bf16x2.f32 %d, %a, %b; and.b32 %d, %d, 0xffff0000;", i, |a, _, _| {
            apply32("cvt.rn.bf16.f32 %h, %a; mov.b32 %d, {0, %h};", [&[u64::from(a); 32], &NONE, &NONE])[0]
        })?;
        let doubles = apply("cvt.rn.f64.s64 %dd, %db;", i);
        for lane in 0..32 {
            prop_assert_eq!(doubles[lane], (n[lane] as i64 as f64).to_bits());
        }
    }

    /// Against CUDA: `__shfl_*_sync(mask, value, b, width)` with the `c` operand that nvcc generates.
    #[test]
    fn shuffles(a in words(), b in 0u32..32, log in 0u32..6) {
        let width = 1 << log;
        let up = (32 - width) << 8;
        type Model = fn(u32, u32, u32) -> Option<u32>;
        let models: [(&str, u32, Model); 4] = [
            ("up", up, |at, b, _| at.checked_sub(b)),
            ("down", up | 31, |at, b, width| Some(at + b).filter(|&from| from < width)),
            ("idx", up | 31, |_, b, width| Some(b % width)),
            // Lanes of lower segments may be read.
            ("bfly", 31, |at, b, _| Some(at ^ b)),
        ];
        for (mode, c, model) in models {
            let width = if mode == "bfly" { 32 } else { width };
            let found = apply32(
                &format!("{{ .reg .b32 %x; .reg .pred %q; shfl.sync.{mode}.b32 %x|%q, %a, {b}, {c}, -1;
                    selp.u32 %d, 0x80000000, 0, %q; and.b32 %x, %x, 0x7fffffff; or.b32 %d, %d, %x; }}"),
                [&a, &NONE, &NONE],
            );
            for lane in 0..32u32 {
                let (first, at) = (lane / width * width, lane % width);
                let from = model(at, b, width).map(|from| first + from);
                let value = a[from.unwrap_or(lane) as usize] as u32 & 0x7fff_ffff;
                prop_assert_eq!(found[lane as usize], value | u32::from(from.is_some()) << 31, "{} {} {}", mode, b, lane);
            }
        }
    }

    #[test]
    fn votes(a in words(), mask in 1u32..) {
        let inside: Vec<usize> = (0..32).filter(|&lane| mask >> lane & 1 == 1).collect();
        let odd = inside.iter().filter(|&&lane| a[lane] & 1 == 1).count();
        let ballot = inside.iter().filter(|&&lane| a[lane] & 1 == 1).fold(0u32, |bits, lane| bits | 1 << lane);
        let run = |instruction: &str| apply32(
            &format!("{{ .reg .b32 %m, %x; .reg .pred %in, %odd, %r; mov.u32 %d, 0;
                mov.u32 %m, %lanemask_eq; and.b32 %m, %m, {mask}; setp.ne.u32 %in, %m, 0;
                and.b32 %x, %a, 1; setp.eq.u32 %odd, %x, 1;
                @!%in bra OUT; {instruction} OUT: }}"),
            [&a, &NONE, &NONE],
        );
        let all = run(&format!("vote.sync.all.pred %r, %odd, {mask}; selp.u32 %d, 1, 2, %r;"));
        let any = run(&format!("vote.sync.any.pred %r, !%odd, {mask}; selp.u32 %d, 1, 2, %r;"));
        let bits = run(&format!("vote.sync.ballot.b32 %d, %odd, {mask};"));
        let equal = run(&format!("match.any.sync.b32 %d, %x, {mask};"));
        let sum = run(&format!("redux.sync.add.u32 %d, %x, {mask};"));
        let most = run(&format!("redux.sync.max.s32 %d, %a, {mask};"));
        let largest = inside.iter().map(|&lane| a[lane] as i32).max().unwrap_or(0);
        for &lane in &inside {
            prop_assert_eq!(all[lane], if odd == inside.len() { 1 } else { 2 });
            prop_assert_eq!(any[lane], if odd < inside.len() { 1 } else { 2 });
            prop_assert_eq!(bits[lane], ballot);
            prop_assert_eq!(equal[lane], if a[lane] & 1 == 1 { ballot } else { mask & !ballot });
            prop_assert_eq!(sum[lane], odd as u32);
            prop_assert_eq!(most[lane], largest as u32);
        }
    }
}
