//! The public API: memory, modules and launches.

use hgnnc_ptx_interp::{Cache, FaultKind, Launch, Memory, Module, Value};

const TEXT: &str = r#"
.version 7.8
.target sm_90
.address_size 64
.file 1 "model.hgnn"
.const .align 16 .b64 table[2];
.global .align 4 .u32 calls;
.visible .entry copy(.param .u32 n, .param .align 8 .b8 pair[16])
.maxntid 32, 1, 1
{
    .reg .b64 %a<6>;
    .reg .b32 %r<6>;
    .reg .pred %p;
    ld.const.v2.u64 {%a0, %a1}, [table];
    ld.param.u32 %r0, [n];
    mov.u32 %r1, %tid.x;
    setp.ge.u32 %p, %r1, %r0;
    @%p ret;
    mul.wide.u32 %a2, %r1, 4;
    add.s64 %a3, %a0, %a2;
    add.s64 %a4, %a1, %a2;
    .loc 1 14 3
    ld.global.u32 %r2, [%a3];
    ld.param.u32 %r3, [pair+8];
    add.u32 %r2, %r2, %r3;
    st.global.u32 [%a4], %r2;
    atom.global.add.u32 %r4, [calls], 1;
    ret;
}
"#;

fn numbers(memory: &Memory, address: u64, count: usize) -> Vec<u32> {
    let bytes = memory.read(address, 4 * count).expect("it is written");
    bytes.chunks(4).map(|c| u32::from_le_bytes(c.try_into().expect("4 bytes"))).collect()
}

#[test]
fn variables_are_filled_and_stay() {
    let module = Module::parse(TEXT).expect("it is PTX");
    let mut memory = Memory::new();
    let (from, to) = (memory.alloc("from", 128, 16), memory.alloc("to", 128, 16));
    memory.write(from, &(0..32u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>()).expect("it has this size");
    let table = module.variable("table", &mut memory).expect("it is declared");
    memory.write(table, &[from.to_le_bytes(), to.to_le_bytes()].concat()).expect("it has this size");
    assert_eq!(module.variable("tables", &mut memory), None);

    let kernel = module.kernel("copy").expect("it is declared");
    assert_eq!(kernel.params[1].offset, 8);
    assert_eq!(kernel.max_threads, Some([32, 1, 1]));
    let pair = Value::Bytes([7u64.to_le_bytes(), 100u64.to_le_bytes()].concat());
    let params = kernel.lay_out(&[Value::U32(32), pair.clone()]).expect("they fit");
    let launch = Launch { block: [32, 1, 1], params, ..Launch::default() };
    let mut cache = Cache::new(1 << 20);
    let first = module.run_with("copy", &mut memory, &launch, &mut cache).expect("it runs");
    assert_eq!(numbers(&memory, to, 3), [100, 101, 102]);
    // The second run hits the cache filled by the first, and has counters of its own.
    let second = module.run_with("copy", &mut memory, &launch, &mut cache).expect("it runs");
    assert_eq!((first.device_read_bytes, second.device_read_bytes), (128 + 32, 0));
    assert_eq!(cache.flush(), 128 + 32);
    let calls = module.variable("calls", &mut memory).expect("it is declared");
    assert_eq!(numbers(&memory, calls, 1), [64]);
    let mut both = first.clone();
    both.merge(&second);
    assert_eq!(both.lane_total(), 2 * first.lane_total());

    let wrong = kernel.lay_out(&[Value::F32(1.0), pair]).expect_err("a float for an integer");
    assert_eq!(wrong, "parameter `n` of `copy` is .u32");
}

#[test]
fn faults_name_the_place() {
    let module = Module::parse(TEXT).expect("it is PTX");
    let mut memory = Memory::new();
    let (from, to) = (memory.alloc("features", 120, 16), memory.alloc("to", 128, 16));
    memory.fill(from, 120, 0).expect("it has this size");
    let table = module.variable("table", &mut memory).expect("it is declared");
    memory.write(table, &[from.to_le_bytes(), to.to_le_bytes()].concat()).expect("it has this size");
    let kernel = module.kernel("copy").expect("it is declared");
    let params = kernel.lay_out(&[Value::U32(32), Value::Bytes(vec![0; 16])]).expect("they fit");
    let launch = Launch { block: [32, 1, 1], params, ..Launch::default() };
    let fault = module.run("copy", &mut memory, &launch).expect_err("30 numbers are not 32");
    assert_eq!(
        fault.to_string(),
        "kernel copy, line 23 (model.hgnn:14), block (0, 0, 0), thread (30, 0, 0): \
         4 bytes at offset 120 of `features` (120 bytes)"
    );

    memory.free(from).expect("it is there");
    let fault = module.run("copy", &mut memory, &launch).expect_err("it is gone");
    assert_eq!(fault.kind, FaultKind::OutOfBounds);
    assert_eq!(fault.message, "4 bytes at offset 0 of `features`, which has been freed");
    assert!(memory.free(from).is_err());

    let error = memory.read(to, 4).expect_err("it is uninitialised");
    assert_eq!(error.to_string(), "reads offset 0 of `to` (128 bytes), which has not been written");
    assert!(module.run("copies", &mut memory, &launch).is_err());
}

#[test]
fn a_text_may_declare_less_shared_memory_than_a_launch_may_ask_for() {
    // ptxas rejects this text.
    let text = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry large() {
            .shared .align 16 .b8 large[49168];
            .reg .b32 %at;
            mov.u32 %at, large;
            ret;
        }";
    let module = Module::parse(text).expect("it is PTX");
    let fault = module.run("large", &mut Memory::new(), &Launch::default()).expect_err("it is too large");
    assert_eq!(fault.kind, FaultKind::Launch);
    assert!(fault.message.contains("49168 bytes of shared memory are declared, the most are 49152"), "{fault}");
}
