//! The workers' part of the C ABI.

use std::path::PathBuf;
use std::ptr;

use crate::abi::{guard, Bytes, Status, Text};
use crate::tame::is_tame_text;
use crate::{worker, worker_loop};

/// From here on work on texts that may take long is done by processes of `program` that run
/// `macrame_text_worker_serve` when they are started with `--text-worker`; empty: of this program.
///
/// # Safety
/// `program` is readable; `error` is writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_use_workers(program: Text, error: *mut Bytes) -> Status {
    guard(error, || {
        worker::use_program(PathBuf::from(program.as_str("the path")?));
        Ok(())
    })
}

/// Does the work of a parent that gave its socket as descriptor 0, until it is gone.
#[no_mangle]
pub extern "C" fn macrame_text_worker_serve() {
    // SAFETY: there is no error text to write.
    unsafe {
        guard(ptr::null_mut(), || {
            worker_loop::serve();
            Ok(())
        });
    }
}

/// Whether a text takes time and memory in proportion to its length; false for what is not UTF-8.
///
/// # Safety
/// `text` is readable.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_is_tame(text: Text) -> bool {
    text.as_str("the text").is_ok_and(is_tame_text)
}
