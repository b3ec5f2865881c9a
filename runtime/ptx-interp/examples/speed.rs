//! Measures the interpreter: lane instructions per second, for loops of one kind of instruction each.

use std::time::Instant;

use hgnnc_ptx_interp::{Launch, Memory, Module, Value};

/// A loop of 1000 iterations of this body. `%i` is the counter, `%a` and `%s` are addresses of the thread's word in
/// global and shared memory, `%u` and `%g` are uniform and scattered addresses in global memory, and `%x`, `%y`, `%m`,
/// `%n` are numbers.
fn kernel(body: &str) -> String {
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out) {{
        .shared .align 16 .b8 tile[1024];
        .reg .pred %p; .reg .b32 %i, %m, %n, %t, %s; .reg .b64 %a, %o, %u, %g; .reg .f32 %x, %y, %z, %w, %v;
        ld.param.u64 %a, [out];
        mov.u64 %u, %a;
        mov.u32 %t, %tid.x;
        mul.wide.u32 %o, %t, 4;
        add.s64 %a, %a, %o;
        cvt.u32.u64 %s, %o;
        mul.lo.u64 %o, %o, 36; and.b64 %o, %o, 1008; add.s64 %g, %u, %o;
        mov.u32 %i, 0; mov.u32 %m, 7; mov.u32 %n, 3;
        mov.f32 %x, 0f3F000000; mov.f32 %y, 0f3F333333; mov.f32 %z, 0f3E99999A;
        st.shared.f32 [%s], %x;
        bar.sync 0;
    LOOP:
        {body}
        add.u32 %i, %i, 1;
        setp.lt.u32 %p, %i, 1000;
        @%p bra LOOP;
        st.global.f32 [%a], %x;
        ret;
        }}"
    )
}

fn main() {
    let fma = "fma.rn.f32 %x, %x, %y, %z;";
    let cases = [
        ("integer add", "add.u32 %m, %m, %n;".repeat(8)),
        ("integer mad", "mad.lo.u32 %m, %m, %n, %n;".repeat(8)),
        ("f32 add", "add.f32 %x, %x, %y;".repeat(8)),
        ("f32 fma", fma.repeat(8)),
        (
            "f32 fma, half of the lanes",
            format!("and.b32 %n, %t, 1; setp.eq.u32 %p, %n, 0; {}", format!("@%p {fma}").repeat(8)),
        ),
        ("f32 ex2", "ex2.approx.ftz.f32 %x, %y;".repeat(8)),
        ("ld.global", "ld.global.f32 %x, [%a];".repeat(8)),
        ("ld.global, all the same", "ld.global.f32 %x, [%u];".repeat(8)),
        ("ld.global.v4, a gather", "ld.global.v4.f32 {%x, %z, %w, %v}, [%g];".repeat(8)),
        ("st.global", "st.global.f32 [%a], %y;".repeat(8)),
        ("ld.shared", "ld.shared.f32 %x, [%s];".repeat(8)),
        ("st.shared", "st.shared.f32 [%s], %x;".repeat(8)),
        ("shfl", "shfl.sync.bfly.b32 %x, %x, 1, 31, -1;".repeat(8)),
    ];
    for (name, body) in cases {
        let module = Module::parse(&kernel(&body)).expect("it is PTX");
        let mut memory = Memory::new();
        let out = memory.alloc("out", 1024, 256);
        memory.fill(out, 1024, 0).expect("it is there");
        let params = module.kernels()[0].lay_out(&[Value::U64(out)]).expect("an address");
        let launch = Launch { block: [256, 1, 1], params, ..Launch::default() };
        let mut best = f64::INFINITY;
        let mut executed = 0;
        for _ in 0..5 {
            let start = Instant::now();
            let counters = module.run("k", &mut memory, &launch).expect("it runs");
            best = best.min(start.elapsed().as_secs_f64());
            executed = counters.lane_total();
        }
        println!("{name:30} {:8.0} M lane instructions/s", executed as f64 / best / 1e6);
    }
}
