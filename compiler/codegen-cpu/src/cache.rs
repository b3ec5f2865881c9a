//! Machine code that this process has generated before.
//!
//! The programs of a model share functions, and so do the runs of several seeds, of a sweep, of a notebook, and the virtual
//! ranks of a simulation. Code holds no addresses, so its bytes serve wherever the text of a function is the same.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use hgnnc_kernel_ir::loops;

use crate::NativeError;

/// Texts and code that are kept, in bytes. A cache that is full starts again: code is cheap to generate.
const CAPACITY: usize = 32 << 20;

/// The code of a function, or the reason why it has none.
pub(crate) type Code = Result<Vec<u8>, NativeError>;

/// Whether products and sums round once, and the text of a function.
type Key = (bool, String);

#[derive(Default)]
pub(crate) struct CodeCache {
    code: HashMap<Key, Arc<OnceLock<Code>>>,
    bytes: usize,
}

static CACHE: LazyLock<Mutex<CodeCache>> = LazyLock::new(Mutex::default);

/// The code of a function, which `generate` makes unless the process has it. Threads that ask for the same function at the same
/// time generate it once.
pub(crate) fn code_of(fma: bool, function: &loops::Function, generate: impl FnOnce() -> Code) -> Code {
    lookup(&CACHE, (fma, function.to_string()), generate)
}

fn lookup(cache: &Mutex<CodeCache>, key: Key, generate: impl FnOnce() -> Code) -> Code {
    // A thread that panics leaves the map whole.
    let lock = || cache.lock().unwrap_or_else(PoisonError::into_inner);
    let text = key.1.len();
    let cell = Arc::clone(lock().code.entry(key).or_default());
    let mut made = None;
    let code = cell.get_or_init(|| {
        let code = generate();
        made = Some(text + code.as_ref().map_or(0, Vec::len));
        code
    });
    if let Some(bytes) = made {
        let mut cache = lock();
        cache.bytes += bytes;
        if cache.bytes > CAPACITY {
            *cache = CodeCache::default();
        }
    }
    code.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_generated_once() {
        let cache = Mutex::default();
        let key = |fma| (fma, "text".to_owned());
        assert_eq!(lookup(&cache, key(true), || Ok(vec![1])), Ok(vec![1]));
        assert_eq!(lookup(&cache, key(true), || panic!("it is known")), Ok(vec![1]));
        assert_eq!(lookup(&cache, key(false), || Ok(vec![2])), Ok(vec![2]));
    }

    #[test]
    fn a_full_cache_starts_again() {
        let cache = Mutex::default();
        let large = || Ok(vec![0; CAPACITY]);
        assert_eq!(lookup(&cache, (true, "large".into()), large).map(|code| code.len()), Ok(CAPACITY));
        assert_eq!(cache.lock().expect("no thread has panicked").code.len(), 0);
        assert_eq!(lookup(&cache, (true, "large".into()), || Ok(vec![3])), Ok(vec![3]));
    }
}
