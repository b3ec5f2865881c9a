//! Matrix products against a naive product, with fragments loaded per the PTX ISA and by `ldmatrix`.

mod common;

use hgnnc_ptx_interp::{Class, Counters, Launch, Memory, Module, Value};
use proptest::prelude::*;

const HEAD: &str = ".version 7.8\n.target sm_80\n.address_size 64\n";

/// Runs a kernel of one warp on A and B (bytes) and C (f32, 16 × 8); returns D.
fn run(text: &str, a: &[u8], b: &[u8], c: &[f32]) -> (Vec<f32>, Counters) {
    common::assemble_once(text);
    let module = Module::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut memory = Memory::new();
    let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let mut put = |name: &str, bytes: &[u8]| {
        let at = memory.alloc(name, bytes.len(), 16);
        memory.write(at, bytes).expect("it has this size");
        Value::U64(at)
    };
    let values = [put("a", a), put("b", b), put("c", &bytes(c))];
    let d = memory.alloc("d", 16 * 8 * 4, 16);
    let values: Vec<Value> = values.into_iter().chain([Value::U64(d)]).collect();
    let params = module.kernels()[0].lay_out(&values).expect("four addresses");
    let launch = Launch { block: [32, 1, 1], params, ..Launch::default() };
    let counters = module.run("k", &mut memory, &launch).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    let bytes = memory.read(d, 16 * 8 * 4).expect("all of it is written");
    (bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().expect("4 bytes"))).collect(), counters)
}

/// Loads of C and stores of D; `product` computes `%d0..3` from `%c0..3`. `%g` is lane / 4, `%t` is lane % 4.
fn kernel(product: &str) -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{
        .shared .align 16 .b8 sa[512];
        .shared .align 16 .b8 sb[512];
        .reg .b32 %l, %g, %t, %e, %s, %x; .reg .b64 %pa, %pb, %pc, %pd, %o, %q; .reg .f32 %c<4>, %d<4>; .reg .b32 %a<4>, %b<2>;
        .reg .b16 %h<2>;
        ld.param.u64 %pa, [a]; ld.param.u64 %pb, [b]; ld.param.u64 %pc, [c]; ld.param.u64 %pd, [d];
        mov.u32 %l, %laneid; shr.u32 %g, %l, 2; and.b32 %t, %l, 3;
        mad.lo.u32 %e, %g, 4, %t; mul.wide.u32 %o, %e, 8;
        add.s64 %pc, %pc, %o; add.s64 %pd, %pd, %o;
        ld.global.v2.f32 {{%c0, %c1}}, [%pc]; ld.global.v2.f32 {{%c2, %c3}}, [%pc+256];
        {product}
        st.global.v2.f32 [%pd], {{%d0, %d1}}; st.global.v2.f32 [%pd+256], {{%d2, %d3}};
        ret;
        }}"
    )
}

/// Loads element (row, column) of a matrix at `base`, with `columns` columns, into `to`.
fn element(to: &str, base: &str, row: &str, column: &str, columns: u32, half: bool) -> String {
    let (bytes, load) = if half { (2, "ld.global.u16") } else { (4, "ld.global.b32") };
    format!(
        "add.u32 %x, {row}; mul.lo.u32 %x, %x, {columns}; add.u32 %e, {column}; add.u32 %x, %x, %e;
        mul.wide.u32 %q, %x, {bytes}; add.s64 %q, {base}, %q; {load} {to}, [%q];\n"
    )
}

/// The product in f64, truncated to f32 at the end.
fn naive(a: impl Fn(usize, usize) -> f32, b: impl Fn(usize, usize) -> f32, c: &[f32], k: usize) -> Vec<f32> {
    let element = |i: usize| {
        let exact = (0..k).fold(f64::from(c[i]), |sum, j| sum + f64::from(a(i / 8, j)) * f64::from(b(j, i % 8)));
        let nearest = exact as f32;
        if f64::from(nearest).abs() > exact.abs() { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
    };
    (0..128).map(element).collect()
}

fn bf16(x: f32) -> (Vec<u8>, f32) {
    let bits = x.to_bits() & 0xffff_0000;
    (bits.to_le_bytes()[2..].to_vec(), f32::from_bits(bits))
}

/// Integers up to 2048 and their halves are exact in f16; only normal numbers are needed here.
fn f16(x: f32) -> (Vec<u8>, f32) {
    let x = (x * 16.0).round() / 16.0;
    if x == 0.0 {
        return (vec![0, 0], 0.0);
    }
    let bits = x.to_bits();
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    let half = (bits >> 16 & 0x8000) as u16 | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16;
    (half.to_le_bytes().to_vec(), x)
}

fn matrix(elems: usize) -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(-8f32..8.0, elems)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// A lane holds A(g, t), A(g+8, t), A(g, t+4), A(g+8, t+4); B(t, g), B(t+4, g).
    #[test]
    fn tf32(a in matrix(128), b in matrix(64), c in matrix(128), wide: bool) {
        let k = if wide { 8 } else { 4 };
        let rows = [("%g, 0", "%t, 0"), ("%g, 8", "%t, 0"), ("%g, 0", "%t, 4"), ("%g, 8", "%t, 4")];
        let mut text = String::new();
        for (i, (row, column)) in rows.iter().enumerate().take(k / 2) {
            text += &element(&format!("%a{i}"), "%pa", row, column, k as u32, false);
        }
        for i in 0..k / 4 {
            text += &element(&format!("%b{i}"), "%pb", &format!("%t, {}", 4 * i), "%g, 0", 8, false);
        }
        text += if wide {
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%d0,%d1,%d2,%d3}, {%a0,%a1,%a2,%a3}, {%b0,%b1}, {%c0,%c1,%c2,%c3};"
        } else {
            "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%d0,%d1,%d2,%d3}, {%a0,%a1}, {%b0}, {%c0,%c1,%c2,%c3};"
        };
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let (d, counters) = run(&kernel(&text), &bytes(&a[..16 * k]), &bytes(&b[..8 * k]), &c);
        // The low 13 bits are ignored.
        let cut = |x: f32| f32::from_bits(x.to_bits() & !0x1fff);
        let expected = naive(|i, j| cut(a[i * k + j]), |i, j| cut(b[i * 8 + j]), &c, k);
        prop_assert_eq!(d, expected);
        prop_assert_eq!(counters.mma_flops, 2 * 16 * 8 * k as u64);
        prop_assert_eq!(counters.warp_of(Class::Mma), 1);
    }

    /// A by `ldmatrix` from its rows, B from its rows by `.trans`.
    #[test]
    fn halves_by_ldmatrix(a in matrix(256), b in matrix(128), c in matrix(128), wide: bool, brain: bool) {
        let k = if wide { 16 } else { 8 };
        let ty = if brain { "bf16" } else { "f16" };
        // `m16n8k8` takes f16 operands as well.
        let convert = if brain { bf16 } else { f16 };
        let halves = |values: &[f32]| -> (Vec<u8>, Vec<f32>) {
            let (bytes, values): (Vec<_>, Vec<_>) = values.iter().map(|&x| convert(x)).unzip();
            (bytes.concat(), values)
        };
        let ((a_bytes, a), (b_bytes, b)) = (halves(&a[..16 * k]), halves(&b[..8 * k]));
        // 16 bytes per lane: A has 16·k·2 bytes, B has k·8·2.
        let copy = |from: &str, to: &str, bytes: usize| format!(
            "{{ .reg .pred %p; .reg .b32 %v<4>; mul.wide.u32 %o, %l, 16; add.s64 %q, {from}, %o; mov.u32 %s, {to};
            mad.lo.u32 %s, %l, 16, %s; setp.lt.u32 %p, %l, {};
            @%p ld.global.v4.b32 {{%v0,%v1,%v2,%v3}}, [%q]; @%p st.shared.v4.b32 [%s], {{%v0,%v1,%v2,%v3}}; }}\n",
            bytes / 16
        );
        let mut text = copy("%pa", "sa", 32 * k) + &copy("%pb", "sb", 16 * k) + "bar.sync 0;\n";
        // Lane l points to row l % 16 of A, at columns 8·(l / 16); and to row l of B.
        text += &format!(
            "and.b32 %x, %l, 15; mov.u32 %s, sa; mad.lo.u32 %s, %x, {}, %s; shr.u32 %x, %l, 4; mad.lo.u32 %s, %x, {}, %s;\n",
            2 * k,
            if wide { 16 } else { 0 }
        );
        text += if wide {
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%a0,%a1,%a2,%a3}, [%s];\n"
        } else {
            "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%a0,%a1}, [%s];\n"
        };
        text += &format!("and.b32 %x, %l, {}; mov.u32 %s, sb; mad.lo.u32 %s, %x, 16, %s;\n", k - 1);
        text += if wide {
            "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%b0,%b1}, [%s];\n"
        } else {
            "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%b0}, [%s];\n"
        };
        text += &if wide {
            format!("mma.sync.aligned.m16n8k16.row.col.f32.{ty}.{ty}.f32 {{%d0,%d1,%d2,%d3}}, {{%a0,%a1,%a2,%a3}}, {{%b0,%b1}}, {{%c0,%c1,%c2,%c3}};")
        } else {
            format!("mma.sync.aligned.m16n8k8.row.col.f32.{ty}.{ty}.f32 {{%d0,%d1,%d2,%d3}}, {{%a0,%a1}}, {{%b0}}, {{%c0,%c1,%c2,%c3}};")
        };
        let (d, _) = run(&kernel(&text), &a_bytes, &b_bytes, &c);
        prop_assert_eq!(d, naive(|i, j| a[i * k + j], |i, j| b[i * 8 + j], &c, k));
    }

    /// The same fragments loaded by element: A(g, 2t), A(g, 2t+1), A(g+8, …), then the columns from 8; B(2t, g), ….
    #[test]
    fn bf16_by_elements(a in matrix(256), b in matrix(128), c in matrix(128)) {
        let halves = |values: &[f32]| -> (Vec<u8>, Vec<f32>) {
            let (bytes, values): (Vec<_>, Vec<_>) = values.iter().map(|&x| bf16(x)).unzip();
            (bytes.concat(), values)
        };
        let ((a_bytes, a), (b_bytes, b)) = (halves(&a), halves(&b));
        let mut text = "add.u32 %s, %t, %t;\n".to_owned();
        for i in 0..4 {
            let (row, column) = (8 * (i % 2), 8 * (i / 2));
            for j in 0..2 {
                let column = format!("%s, {}", column + j);
                text += &element(&format!("%h{j}"), "%pa", &format!("%g, {row}"), &column, 16, true);
            }
            text += &format!("mov.b32 %a{i}, {{%h0, %h1}};\n");
        }
        for i in 0..2 {
            for j in 0..2 {
                text += &element(&format!("%h{j}"), "%pb", &format!("%s, {}", 8 * i + j), "%g, 0", 8, true);
            }
            text += &format!("mov.b32 %b{i}, {{%h0, %h1}};\n");
        }
        text += "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%d0,%d1,%d2,%d3}, {%a0,%a1,%a2,%a3}, {%b0,%b1}, {%c0,%c1,%c2,%c3};";
        let (d, _) = run(&kernel(&text), &a_bytes, &b_bytes, &c);
        prop_assert_eq!(d, naive(|i, j| a[i * 16 + j], |i, j| b[i * 8 + j], &c, 16));
    }
}
