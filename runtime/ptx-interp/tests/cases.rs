//! Runs the files of `tests/cases`. Directives in their comments give launches and expectations:
//!
//! ```text
//! //! launch KERNEL [grid X Y Z] [block X Y Z] [shared BYTES] [limit INSTRUCTIONS]
//! //! NAME = u32 5                      the next parameter: a number
//! //! NAME = f32[8] 0 1 2               …: an array; what has no value is unwritten
//! //! NAME = f32[8] iota                …: 0, 1, 2, …
//! //! expect NAME 0 1 2                 the first elements afterwards
//! //! expect NAME[3] 7 8                …: from an index
//! //! count shared_loads.wavefronts 32
//! //! fault SharedRace is written by    the kind, and a part of the message; the line must end in `// fault`
//! //! error `foo` is not supported      the text is no module: a part of the message; the line must end in `// error`
//! ```
//!
//! Texts that parse must be accepted by ptxas, where it is installed.

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;

use hgnnc_ptx_interp::{Counters, Launch, Memory, Module, Type, Value};

fn cases() -> Vec<(PathBuf, String)> {
    let mut files: Vec<_> = std::fs::read_dir("tests/cases")
        .expect("there are cases")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).expect("it is text"))).collect()
}

#[test]
fn all() {
    let mut wrong = Vec::new();
    for (path, text) in cases() {
        if let Err(message) = case(&text) {
            wrong.push(format!("{}: {message}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The arrays of a launch, in device memory.
struct Array {
    address: u64,
    elems: usize,
    ty: Type,
}

struct Running<'a> {
    kernel: &'a str,
    launch: Launch,
    memory: Memory,
    values: Vec<Value>,
    arrays: BTreeMap<&'a str, Array>,
    /// Expected values, with the line of the directive.
    expected: Vec<&'a str>,
}

fn case(text: &str) -> Result<(), String> {
    let directives: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("//! ")).collect();
    let line_of = |number: u32| text.lines().nth(number as usize - 1).unwrap_or("");
    let module = match (Module::parse(text), directives.first().and_then(|line| line.strip_prefix("error "))) {
        (Err(error), Some(message)) => {
            let ok = error.message.contains(message) && line_of(error.line).ends_with("// error");
            return if ok { Ok(()) } else { Err(error.to_string()) };
        }
        (Ok(_), Some(_)) => return Err("parses".to_owned()),
        (module, None) => module.map_err(|error| error.to_string())?,
    };
    let mut launches: Vec<Running> = Vec::new();
    for line in directives {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        match first {
            "launch" => launches.push(launch(rest)),
            "expect" | "count" | "fault" => launches.last_mut().ok_or("no launch")?.expected.push(line),
            name => {
                let value = rest.strip_prefix("= ").ok_or_else(|| format!("`{line}` is no directive"))?;
                argument(launches.last_mut().ok_or("no launch")?, name, value)?;
            }
        }
    }
    if launches.is_empty() {
        return Err("no launch".to_owned());
    }
    for mut running in launches {
        let kernel = module.kernel(running.kernel).ok_or_else(|| format!("no kernel {}", running.kernel))?;
        running.launch.params = kernel.lay_out(&running.values)?;
        // A faulting kernel also faults in reverse order, perhaps elsewhere; any other computes the same.
        let before = running.memory.clone();
        let backward = Launch { backward: true, ..running.launch.clone() };
        let reversed = module.run(running.kernel, &mut running.memory, &backward);
        let reversed = (reversed.is_ok(), std::mem::replace(&mut running.memory, before));
        let result = module.run(running.kernel, &mut running.memory, &running.launch);
        if reversed.0 != result.is_ok() {
            return Err(format!("{}: in reverse order it runs: {}, forward: {result:?}", running.kernel, reversed.0));
        }
        for (name, array) in running.arrays.iter().filter(|_| result.is_ok()) {
            let size = array.elems * array.ty.bytes();
            if reversed.1.read(array.address, size).ok() != running.memory.read(array.address, size).ok() {
                return Err(format!("{}: `{name}` depends on the order", running.kernel));
            }
        }
        let fault = running.expected.iter().find_map(|line| line.strip_prefix("fault "));
        match (&result, fault) {
            (Err(fault), Some(expected)) => {
                let (kind, message) = expected.split_once(' ').unwrap_or((expected, ""));
                let at = fault.line == 0 || line_of(fault.line).ends_with("// fault");
                if format!("{:?}", fault.kind) != kind || !fault.message.contains(message) || !at {
                    return Err(format!("{:?}: {fault}", fault.kind));
                }
            }
            (Ok(_), Some(fault)) => return Err(format!("{}: no fault {fault}", running.kernel)),
            (Err(fault), None) => return Err(format!("{:?}: {fault}", fault.kind)),
            (Ok(counters), None) => {
                for line in &running.expected {
                    expect(&running, counters, line).map_err(|message| format!("{}: {message}", running.kernel))?;
                }
            }
        }
    }
    Ok(())
}

fn launch(line: &str) -> Running<'_> {
    let mut words = line.split_whitespace();
    let kernel = words.next().expect("the kernel is named");
    let mut launch = Launch { max_instructions: 1 << 20, ..Launch::default() };
    let mut key = "";
    let mut axis = 0;
    for word in words {
        let Ok(number) = word.parse::<u64>() else {
            (key, axis) = (word, 0);
            continue;
        };
        match key {
            "grid" => launch.grid[axis] = number as u32,
            "block" => launch.block[axis] = number as u32,
            "shared" => launch.dynamic_shared = number as usize,
            "limit" => launch.max_instructions = number,
            _ => panic!("`{key}` is no part of a launch"),
        }
        axis += 1;
    }
    Running { kernel, launch, memory: Memory::new(), values: Vec::new(), arrays: BTreeMap::new(), expected: Vec::new() }
}

fn bytes_of(ty: Type, word: &str) -> Result<Vec<u8>, String> {
    if let Some(hex) = word.strip_prefix("0x") {
        let bits = u64::from_str_radix(hex, 16).map_err(|error| error.to_string())?;
        return Ok(bits.to_le_bytes()[..ty.bytes()].to_vec());
    }
    let bad = |error: &dyn std::fmt::Display| format!("{word}: {error}");
    Ok(match ty {
        Type::F32 => word.parse::<f32>().map_err(|error| bad(&error))?.to_le_bytes().to_vec(),
        Type::F64 => word.parse::<f64>().map_err(|error| bad(&error))?.to_le_bytes().to_vec(),
        ty => word.parse::<i64>().map_err(|error| bad(&error))?.to_le_bytes()[..ty.bytes()].to_vec(),
    })
}

fn type_of(name: &str) -> Result<Type, String> {
    [Type::U8, Type::U16, Type::S16, Type::U32, Type::S32, Type::U64, Type::S64, Type::F32, Type::F64]
        .into_iter()
        .find(|ty| ty.name() == name)
        .ok_or_else(|| format!("no type {name}"))
}

fn argument<'a>(running: &mut Running<'a>, name: &'a str, value: &str) -> Result<(), String> {
    let (ty, rest) = value.split_once(' ').unwrap_or((value, ""));
    let Some((ty, elems)) = ty.strip_suffix(']').and_then(|ty| ty.split_once('[')) else {
        running.values.push(Value::Bytes(bytes_of(type_of(ty)?, rest)?));
        return Ok(());
    };
    let (ty, elems) = (type_of(ty)?, elems.parse::<usize>().map_err(|error| error.to_string())?);
    let address = running.memory.alloc(name, elems * ty.bytes(), 1);
    let words: Vec<String> = match rest {
        "iota" => (0..elems).map(|i| i.to_string()).collect(),
        rest => rest.split_whitespace().map(str::to_owned).collect(),
    };
    for (i, word) in words.iter().enumerate() {
        let bytes = bytes_of(ty, word)?;
        running.memory.write(address + (i * ty.bytes()) as u64, &bytes).map_err(|error| error.to_string())?;
    }
    running.values.push(Value::U64(address));
    running.arrays.insert(name, Array { address, elems, ty });
    Ok(())
}

fn expect(running: &Running, counters: &Counters, line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let (what, name) = (words.next(), words.next().ok_or("nothing expected")?);
    if what == Some("count") {
        let found = count(counters, name).ok_or_else(|| format!("no counter {name}"))?;
        let expected = words.next().unwrap_or("nothing");
        return if found.to_string() == expected { Ok(()) } else { Err(format!("`{line}`, found {found}")) };
    }
    let (name, first) = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
        Some((name, first)) => (name, first.parse::<usize>().map_err(|error| error.to_string())?),
        None => (name, 0),
    };
    let array = running.arrays.get(name).ok_or_else(|| format!("no array {name}"))?;
    let size = array.ty.bytes();
    for (i, word) in words.enumerate() {
        let address = array.address + ((first + i) * size) as u64;
        let found = running.memory.read(address, size).map_err(|error| format!("`{line}`: {error}"))?;
        if found != bytes_of(array.ty, word)? {
            let found = match array.ty {
                Type::F32 => f32::from_le_bytes(found.try_into().expect("4 bytes")).to_string(),
                _ => format!("{found:x?}"),
            };
            return Err(format!("`{line}`: element {} is {found}, not {word}", first + i));
        }
    }
    Ok(())
}

fn count(counters: &Counters, name: &str) -> Option<u64> {
    let (group, part) = name.split_once('.').unwrap_or((name, ""));
    let global = |traffic: &hgnnc_ptx_interp::GlobalTraffic| match part {
        "requests" => Some(traffic.requests),
        "sectors" => Some(traffic.sectors),
        "ideal_sectors" => Some(traffic.ideal_sectors),
        "bytes" => Some(traffic.bytes),
        _ => None,
    };
    let shared = |traffic: &hgnnc_ptx_interp::SharedTraffic| match part {
        "requests" => Some(traffic.requests),
        "wavefronts" => Some(traffic.wavefronts),
        "ideal_wavefronts" => Some(traffic.ideal_wavefronts),
        _ => None,
    };
    let class = |of: &dyn Fn(hgnnc_ptx_interp::Class) -> u64| {
        hgnnc_ptx_interp::Class::ALL.into_iter().find(|class| format!("{class:?}") == part).map(of)
    };
    match group {
        "warp" => class(&|class| counters.warp_of(class)),
        "lane" => class(&|class| counters.lane_of(class)),
        "flops" => Some(counters.flops),
        "mma_flops" => Some(counters.mma_flops),
        "global_loads" => global(&counters.global_loads),
        "global_stores" => global(&counters.global_stores),
        "global_atomics" => global(&counters.global_atomics),
        "shared_loads" => shared(&counters.shared_loads),
        "shared_stores" => shared(&counters.shared_stores),
        "shared_atomics" => shared(&counters.shared_atomics),
        "device_read_bytes" => Some(counters.device_read_bytes),
        "device_written_bytes" => Some(counters.device_written_bytes),
        "branches" => Some(counters.branches),
        "divergent_branches" => Some(counters.divergent_branches),
        "barriers" => Some(counters.barriers),
        "blocks" => Some(counters.blocks),
        _ => None,
    }
}

/// Texts with a piece deleted, duplicated or swapped are errors, or kernels that run or fault; nothing panics.
#[test]
fn damaged_texts() {
    // A linear congruential generator, so that every run tries the same texts.
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let mut ran = 0;
    for (_, text) in cases() {
        let words: Vec<&str> = text.split_inclusive([' ', ',', '.', ';', '\n']).collect();
        for _ in 0..200 {
            let mut damaged = words.clone();
            for _ in 0..1 + random(2) {
                let (at, other) = (random(damaged.len()), random(damaged.len()));
                match random(4) {
                    0 => drop(damaged.remove(at)),
                    1 => damaged.insert(at, words[other.min(words.len() - 1)]),
                    2 => damaged[at] = words[other.min(words.len() - 1)],
                    _ => damaged.swap(at, other),
                }
            }
            let Ok(module) = Module::parse(&damaged.concat()) else { continue };
            for kernel in module.kernels() {
                let mut memory = Memory::new();
                let a = memory.alloc("a", 256, 16);
                memory.fill(a, 256, 0).expect("it has this size");
                let params = kernel.params.iter().map(|param| match param.bytes {
                    8 => Value::U64(a),
                    bytes => Value::Bytes(vec![1; bytes]),
                });
                let params = kernel.lay_out(&params.collect::<Vec<_>>()).expect("they fit");
                let launch = Launch { block: [40, 1, 1], params, max_instructions: 2000, ..Launch::default() };
                ran += usize::from(module.run(&kernel.name, &mut memory, &launch).is_ok());
            }
        }
    }
    assert!(ran > 100, "{ran}");
}

#[test]
fn the_assembler_accepts_them() {
    let Some(ptxas) = common::assembler() else {
        println!("skipped: no ptxas in the path, and HGNN_PTXAS names none");
        return;
    };
    let wrong: Vec<String> = cases()
        .into_iter()
        .filter(|(_, text)| !text.contains("//! error"))
        .filter_map(|(path, _)| common::assemble(ptxas, &path).err())
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
