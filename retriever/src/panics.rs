//! Panics of libraries that trust the files they read.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// True while this thread runs code whose panics are expected.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// The message of a panic.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Panicked(String);

/// The value of `read`, or the message of its panic, which is not printed. `read` must leave nothing behind that is used
/// after a panic.
pub(crate) fn caught<T>(read: impl FnOnce() -> T) -> Result<T, Panicked> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !EXPECTED.get() {
                print(panic);
            }
        }));
    });
    let outer = EXPECTED.replace(true);
    let value = catch_unwind(AssertUnwindSafe(read));
    EXPECTED.set(outer);
    value.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Panicked(text.unwrap_or("no message").to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message_and_the_next_one_is_printed() {
        assert_eq!(caught(|| 1), Ok(1));
        let inner = || caught(|| -> () { panic!("row {}", 3) });
        assert_eq!(caught(inner), Ok(Err(Panicked("row 3".to_owned()))));
        assert!(!EXPECTED.get());
    }
}
