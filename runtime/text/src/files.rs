//! Bounded reading of the small files that lie beside a model's weights.

use std::fs::{File, FileType, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use serde_json::Value;

use crate::error::{Code, Result, TextError};
use crate::json_reader;

/// The largest tokenizer.json seen in the wild is about 35 MB (a 262k vocabulary with merges).
pub const TOKENIZER_FILE_MAX_BYTES: u64 = 256 << 20;
/// config.json, generation_config.json, tokenizer_config.json, special_tokens_map.json.
pub const CONFIG_FILE_MAX_BYTES: u64 = 16 << 20;
/// The longest chat template that any well-known model ships is under 40 kB.
pub const TEMPLATE_MAX_BYTES: u64 = 1 << 20;

/// POSIX leaves its value to the system.
const O_NONBLOCK: i32 = if cfg!(target_os = "linux") { 0o4000 } else { 0x4 };

/// Opens a regular file; `None` when there is no such file. Looks first, because to open a pipe is to
/// wait for its writer; the flag is for what took the file's place in between.
pub fn open_regular(path: &Path) -> Result<Option<(File, u64)>> {
    type Opened = std::result::Result<(File, u64), FileType>;
    let look = || -> std::io::Result<Opened> {
        let kind = std::fs::metadata(path)?.file_type();
        if !kind.is_file() {
            return Ok(Err(kind));
        }
        let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
        let meta = file.metadata()?;
        Ok(if meta.is_file() { Ok((file, meta.len())) } else { Err(meta.file_type()) })
    };
    match look() {
        Ok(Ok(opened)) => Ok(Some(opened)),
        Ok(Err(kind)) => Err(TextError::data_loss(format!(
            "{} is {}, not a file",
            path.display(),
            name_of(kind)
        ))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(unreadable(path, &e)),
    }
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

/// Reads a regular file of at most `max_bytes`; `None` when there is no such file.
pub fn read_if_there(path: &Path, max_bytes: u64) -> Result<Option<Vec<u8>>> {
    let Some((file, file_bytes)) = open_regular(path)? else { return Ok(None) };
    if file_bytes > max_bytes {
        return Err(TextError::exhausted(format!(
            "{} has {} bytes, more than the {} that are accepted",
            path.display(),
            file_bytes,
            max_bytes
        )));
    }
    let mut bytes = Vec::with_capacity(file_bytes as usize);
    // The file may grow between the look and the read: the bound holds for what is read.
    file.take(max_bytes).read_to_end(&mut bytes).map_err(|e| unreadable(path, &e))?;
    Ok(Some(bytes))
}

/// Reads a file that must be there.
pub fn read_required(path: &Path, max_bytes: u64) -> Result<Vec<u8>> {
    read_if_there(path, max_bytes)?
        .ok_or_else(|| TextError::new(Code::NotFound, format!("{} does not exist", path.display())))
}

/// Reads a UTF-8 text file, if it is there.
pub fn read_text_if_there(path: &Path, max_bytes: u64) -> Result<Option<String>> {
    match read_if_there(path, max_bytes)? {
        None => Ok(None),
        Some(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|e| TextError::data_loss(format!("{} is not UTF-8: {e}", path.display()))),
    }
}

/// Reads a JSON object as Python reads it, if the file is there; an absent file is an empty object.
pub fn read_json_object(path: &Path) -> Result<serde_json::Map<String, Value>> {
    let Some(bytes) = read_if_there(path, CONFIG_FILE_MAX_BYTES)? else {
        return Ok(serde_json::Map::new());
    };
    match json_reader::parse(&bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(TextError::data_loss(format!("{} is not a JSON object", path.display()))),
        Err(e) => Err(TextError::data_loss(format!("{} is not JSON: {e}", path.display()))),
    }
}

pub fn unreadable(path: &Path, error: &std::io::Error) -> TextError {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => Code::NotFound,
        _ => Code::FailedPrecondition,
    };
    TextError::new(code, format!("{} can't be read: {error}", path.display()))
}
