//! The header of a safetensors file, believed only after it was checked against the file.
//!
//! Layout: eight bytes little-endian with the header's length, the header in JSON, then the
//! tensors' bytes back to back without a hole. Each way of lying has its own sentence.

use std::collections::HashSet;
use std::fmt;
use std::io::Read;
use std::path::Path;

use safetensors::tensor::{Dtype, Metadata};
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::Deserialize;
use serde_json::Value;

use crate::error::{Result, TextError};
use crate::files::{open_regular, unreadable};

/// The header of a 1,000-expert shard is about 2 MB; the format's own reader accepts 100 MB.
pub const HEADER_MAX_BYTES: u64 = 32 << 20;
/// The largest public models have some 150,000 tensors over all of their files.
pub const TENSORS_MAX: usize = 200_000;
/// No engine here handles more dimensions.
pub const RANK_MAX: usize = 16;
const LENGTH_BYTES: u64 = 8;
const METADATA_KEY: &str = "__metadata__";

/// One tensor: where its bytes lie in the file and what they mean.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    pub dtype: Dtype,
    pub dtype_name: String,
    pub shape: Vec<u64>,
    /// Byte range `[begin, end)` counted from the start of the file.
    pub begin: u64,
    pub end: u64,
}

/// A checked header; tensors in the order of their bytes.
#[derive(Clone, Debug)]
pub struct Header {
    pub tensors: Vec<Tensor>,
    /// Free text that the writer left, such as `("format", "mlx")`.
    pub metadata: Vec<(String, String)>,
    pub file_bytes: u64,
}

#[derive(Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The header's entries in file order, with repeated names refused.
#[derive(Default)]
struct RawHeader {
    tensors: Vec<(String, RawTensor)>,
    metadata: Vec<(String, String)>,
}

impl Header {
    /// Reads and checks the header of `path`; the tensors' bytes aren't read.
    pub fn read(path: &Path) -> Result<Header> {
        let name = path.display().to_string();
        let (json, file_bytes) = read_json(path, &name)?;
        let raw: RawHeader = serde_json::from_slice(&json)
            .map_err(|e| lie(&name, format!("its header is not valid: {e}")))?;
        let data_begin = LENGTH_BYTES + json.len() as u64;
        let data_bytes = file_bytes - data_begin;
        let mut tensors = Vec::with_capacity(raw.tensors.len());
        for (tensor_name, tensor) in raw.tensors {
            tensors.push(checked_tensor(&name, tensor_name, tensor, data_begin, data_bytes)?);
        }
        tensors.sort_by_key(|tensor| (tensor.begin, tensor.end));
        check_layout(&name, &tensors, data_begin, file_bytes)?;
        // The format's own reader has the last word.
        serde_json::from_slice::<Metadata>(&json)
            .map_err(|e| lie(&name, format!("its header is not valid: {e}")))?;
        Ok(Header { tensors, metadata: raw.metadata, file_bytes })
    }
}

fn lie(name: &str, what: String) -> TextError {
    TextError::data_loss(format!("{name}: {what}"))
}

fn read_json(path: &Path, name: &str) -> Result<(Vec<u8>, u64)> {
    let Some((mut file, file_bytes)) = open_regular(path)? else {
        return Err(unreadable(path, &std::io::ErrorKind::NotFound.into()));
    };
    if file_bytes < LENGTH_BYTES {
        return Err(lie(name, format!("it has {file_bytes} bytes, too few for a header")));
    }
    let mut length = [0u8; LENGTH_BYTES as usize];
    file.read_exact(&mut length).map_err(|e| unreadable(path, &e))?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_MAX_BYTES {
        return Err(lie(
            name,
            format!("its header claims {length} bytes, more than the {HEADER_MAX_BYTES} accepted"),
        ));
    }
    if length > file_bytes - LENGTH_BYTES {
        return Err(lie(
            name,
            format!(
                "it is truncated: its header claims {length} bytes and {} are there",
                file_bytes - LENGTH_BYTES
            ),
        ));
    }
    let mut json = vec![0u8; length as usize];
    file.read_exact(&mut json).map_err(|e| unreadable(path, &e))?;
    if json.first() != Some(&b'{') {
        return Err(lie(name, "its header does not begin with '{'".into()));
    }
    Ok((json, file_bytes))
}

fn checked_tensor(
    name: &str,
    tensor_name: String,
    raw: RawTensor,
    data_begin: u64,
    data_bytes: u64,
) -> Result<Tensor> {
    let wrong = |what: String| lie(name, format!("tensor \"{tensor_name}\" {what}"));
    let dtype: Dtype = serde_json::from_value(Value::String(raw.dtype.clone()))
        .map_err(|_| wrong(format!("has the unknown dtype \"{}\"", raw.dtype)))?;
    if raw.shape.len() > RANK_MAX {
        return Err(wrong(format!("has {} dimensions, more than {RANK_MAX}", raw.shape.len())));
    }
    if let Some(dim) = raw.shape.iter().find(|dim| i64::try_from(**dim).is_err()) {
        return Err(wrong(format!("has a dimension of {dim}, more than 63 bits hold")));
    }
    let bits = raw
        .shape
        .iter()
        .try_fold(dtype.bitsize() as u64, |bits, dim| bits.checked_mul(*dim))
        .ok_or_else(|| wrong(format!("has a shape {:?} that overflows 64 bits", raw.shape)))?;
    let (begin, end) = raw.data_offsets;
    if begin > end {
        return Err(wrong(format!("ends at {end}, before it begins at {begin}")));
    }
    if end > data_bytes {
        return Err(wrong(format!(
            "ends at byte {end} of {data_bytes}: the file is truncated or its header lies"
        )));
    }
    if bits % 8 != 0 || bits / 8 != end - begin {
        return Err(wrong(format!(
            "has shape {:?} of {}, which takes {} bytes, but {} are set aside",
            raw.shape,
            raw.dtype,
            bits.div_ceil(8),
            end - begin
        )));
    }
    Ok(Tensor {
        name: tensor_name,
        dtype,
        dtype_name: raw.dtype,
        shape: raw.shape,
        begin: data_begin + begin,
        end: data_begin + end,
    })
}

fn check_layout(name: &str, tensors: &[Tensor], data_begin: u64, file_bytes: u64) -> Result<()> {
    let mut at = data_begin;
    for tensor in tensors {
        if tensor.begin < at {
            return Err(lie(name, format!("tensor \"{}\" overlaps its neighbour", tensor.name)));
        }
        if tensor.begin > at {
            return Err(lie(
                name,
                format!(
                    "there is a hole of {} bytes before tensor \"{}\"",
                    tensor.begin - at,
                    tensor.name
                ),
            ));
        }
        at = tensor.end;
    }
    if at != file_bytes {
        return Err(lie(
            name,
            format!("{} bytes follow the last tensor and belong to none", file_bytes - at),
        ));
    }
    Ok(())
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(RawHeaderVisitor)
    }
}

struct RawHeaderVisitor;

impl<'de> Visitor<'de> for RawHeaderVisitor {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<RawHeader, A::Error> {
        let mut out = RawHeader::default();
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format!("\"{key}\" is there twice")));
            }
            if key == METADATA_KEY {
                // Some writers say null where they leave none.
                let texts: Option<std::collections::BTreeMap<String, String>> = map.next_value()?;
                out.metadata = texts.into_iter().flatten().collect();
                continue;
            }
            if out.tensors.len() == TENSORS_MAX {
                return Err(A::Error::custom(format!("it has more than {TENSORS_MAX} tensors")));
            }
            let tensor: RawTensor = map.next_value()?;
            out.tensors.push((key, tensor));
        }
        Ok(out)
    }
}
