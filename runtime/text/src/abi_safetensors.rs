//! The safetensors headers' part of the C ABI.

use crate::abi::{borrowed, drop_handle, give, guard, Bytes, Status, Text};
use crate::error::TextError;
use crate::safetensors_header::Header;

/// A checked header; what it lends out lives as long as it does.
pub struct HeaderHandle(Header);

/// One tensor of a header. All pointers are lent by the header.
#[repr(C)]
pub struct TensorView {
    pub name: Text,
    /// As the file spells it, e.g. `BF16`.
    pub dtype: Text,
    pub shape: *const u64,
    pub shape_size: usize,
    /// Byte range `[begin, end)` counted from the start of the file.
    pub begin: u64,
    pub end: u64,
}

/// One pair of a header's free text. All pointers are lent by the header.
#[repr(C)]
pub struct MetadataView {
    pub key: Text,
    pub value: Text,
}

fn lend(text: &str) -> Text {
    Text { data: text.as_ptr(), size: text.len() }
}

/// Reads and checks the header of the safetensors file at `path`.
///
/// # Safety
/// `path` is readable; the out parameters are writable; `error` is writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_safetensors_read(
    path: Text,
    out: *mut *mut HeaderHandle,
    tensors: *mut usize,
    metadata: *mut usize,
    file_bytes: *mut u64,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let header = Header::read(&path.as_path()?)?;
        give(tensors, header.tensors.len())?;
        give(metadata, header.metadata.len())?;
        give(file_bytes, header.file_bytes)?;
        give(out, Box::into_raw(Box::new(HeaderHandle(header))))
    })
}

/// Lends the tensor at `index`, in the order of the bytes in the file.
///
/// # Safety
/// `header` is live, `out` writable, `error` writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_safetensors_tensor(
    header: *const HeaderHandle,
    index: usize,
    out: *mut TensorView,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let tensor = borrowed(header)?.0.tensors.get(index);
        let tensor = tensor.ok_or_else(|| TextError::invalid("no tensor has this index"))?;
        give(
            out,
            TensorView {
                name: lend(&tensor.name),
                dtype: lend(&tensor.dtype_name),
                shape: tensor.shape.as_ptr(),
                shape_size: tensor.shape.len(),
                begin: tensor.begin,
                end: tensor.end,
            },
        )
    })
}

/// Lends the pair of free text at `index`.
///
/// # Safety
/// `header` is live, `out` writable, `error` writable or null.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_safetensors_metadata(
    header: *const HeaderHandle,
    index: usize,
    out: *mut MetadataView,
    error: *mut Bytes,
) -> Status {
    guard(error, || {
        let pair = borrowed(header)?.0.metadata.get(index);
        let (key, value) = pair.ok_or_else(|| TextError::invalid("no pair has this index"))?;
        give(out, MetadataView { key: lend(key), value: lend(value) })
    })
}

/// Frees a header.
///
/// # Safety
/// `header` is null or live, and not used again.
#[no_mangle]
pub unsafe extern "C" fn macrame_text_safetensors_free(header: *mut HeaderHandle) {
    drop_handle(header);
}
