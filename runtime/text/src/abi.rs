//! Types of the C ABI, and the guard that every entry runs under.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::AtomicBool;

use crate::bounded;
use crate::error::{Code, Result, TextError};

/// Zero is success; else a number of `absl::StatusCode`, and the error text is set.
pub type Status = i32;

/// Bytes that the library owns: hand them back with `macrame_text_bytes_free`.
#[repr(C)]
pub struct Bytes {
    pub data: *mut u8,
    pub size: usize,
}

/// Ids that the library owns: hand them back with `macrame_text_ids_free`.
#[repr(C)]
pub struct Ids {
    pub data: *mut u32,
    pub size: usize,
}

/// Text that the caller owns, for the length of the call. UTF-8, no end mark needed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    pub data: *const u8,
    pub size: usize,
}

/// Frees bytes that a function of this library gave; null is fine.
///
/// # Safety
/// `bytes` came from this library and is given back once.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_bytes_free(bytes: Bytes) {
    if !bytes.data.is_null() {
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(bytes.data, bytes.size)));
    }
}

/// Frees ids that a function of this library gave; null is fine.
///
/// # Safety
/// `ids` came from this library and is given back once.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_ids_free(ids: Ids) {
    if !ids.data.is_null() {
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(ids.data, ids.size)));
    }
}

/// Templates and texts that this thread has made from here on are given up soon after `*flag` is
/// true, where they look for it; null: none are.
///
/// # Safety
/// `flag` is null, or lives until it is replaced; it is written as an atomic of one byte.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_watch_cancellation(flag: *const bool) {
    bounded::watch_cancellation(flag.cast::<AtomicBool>());
}

impl Bytes {
    pub(crate) fn from_vec(bytes: Vec<u8>) -> Bytes {
        let boxed = bytes.into_boxed_slice();
        let size = boxed.len();
        Bytes { data: Box::into_raw(boxed).cast(), size }
    }
}

impl Ids {
    pub(crate) fn from_vec(ids: Vec<u32>) -> Ids {
        let boxed = ids.into_boxed_slice();
        let size = boxed.len();
        Ids { data: Box::into_raw(boxed).cast(), size }
    }
}

impl Text {
    /// # Safety
    /// `data` points at `size` readable bytes, or `size` is 0.
    pub(crate) unsafe fn as_str<'a>(self, what: &str) -> Result<&'a str> {
        std::str::from_utf8(self.as_bytes(what)?)
            .map_err(|e| TextError::invalid(format!("{what} is not UTF-8: {e}")))
    }

    /// # Safety
    /// As `as_str`.
    pub(crate) unsafe fn as_bytes<'a>(self, what: &str) -> Result<&'a [u8]> {
        if self.size == 0 {
            return Ok(&[]);
        }
        if self.data.is_null() || self.size > isize::MAX as usize {
            return Err(TextError::invalid(format!("{what} has a length and no bytes")));
        }
        Ok(std::slice::from_raw_parts(self.data, self.size))
    }

    /// # Safety
    /// As `as_str`.
    pub(crate) unsafe fn as_path(self) -> Result<PathBuf> {
        let text = self.as_str("the path")?;
        if text.is_empty() || text.contains('\0') {
            return Err(TextError::invalid("the path is empty or holds a NUL"));
        }
        Ok(PathBuf::from(text))
    }
}

/// # Safety
/// `data` points at `size` readable ids, or `size` is 0.
pub(crate) unsafe fn ids_of<'a>(data: *const u32, size: usize) -> Result<&'a [u32]> {
    if size == 0 {
        return Ok(&[]);
    }
    if data.is_null() || size > isize::MAX as usize / 4 {
        return Err(TextError::invalid("the ids have a length and no data"));
    }
    Ok(std::slice::from_raw_parts(data, size))
}

/// Runs `body`; a panic becomes `Internal`. On failure `error`, if not null, gets the text.
///
/// # Safety
/// `error` is null or points at a writable `Bytes`.
pub(crate) unsafe fn guard(error: *mut Bytes, body: impl FnOnce() -> Result<()>) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let said = panic
            .downcast_ref::<&str>()
            .map(|text| text.to_string())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Err(TextError::new(Code::Internal, format!("the text library failed: {said}")))
    });
    match outcome {
        Ok(()) => 0,
        Err(failure) => {
            if !error.is_null() {
                error.write(Bytes::from_vec(failure.message.into_bytes()));
            }
            failure.code as Status
        }
    }
}

/// Writes `value` to `out`, which the caller must have given.
///
/// # Safety
/// `out` is null or writable.
pub(crate) unsafe fn give<T>(out: *mut T, value: T) -> Result<()> {
    if out.is_null() {
        return Err(TextError::new(Code::Internal, "an out parameter is null"));
    }
    out.write(value);
    Ok(())
}

/// # Safety
/// `handle` is null or a live object of this library.
pub(crate) unsafe fn borrowed<'a, T>(handle: *const T) -> Result<&'a T> {
    handle.as_ref().ok_or_else(|| TextError::new(Code::Internal, "a handle is null"))
}

/// Drops a boxed object; a panic of its destructor stays here.
///
/// # Safety
/// `handle` is null or came from `Box::into_raw`, and is given back once.
pub(crate) unsafe fn drop_handle<T>(handle: *mut T) {
    if !handle.is_null() {
        guard(ptr::null_mut(), || {
            drop(Box::from_raw(handle));
            Ok(())
        });
    }
}
