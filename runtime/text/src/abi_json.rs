//! The JSON reader's part of the C ABI.

use crate::abi::{give, guard, Bytes, Status, Text};
use crate::error::TextError;
use crate::json_reader;

/// JSON as Python reads it, turned into the JSON that every reader takes. `json` may be anything.
///
/// # Safety
/// `json` is readable; `out` is writable; `error` is writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_read_python_json(
    json: Text,
    out: *mut Bytes,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let strict = json_reader::to_strict(json.as_bytes("the JSON")?);
        give(out, Bytes::from_vec(strict.map_err(TextError::data_loss)?.into_bytes()))
    })
}
