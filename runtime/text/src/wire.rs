//! What a rank and its text worker say to each other: frames of a length and so many bytes, over a
//! socket between two processes of one program.

use std::io::{self, Read, Write};

use crate::error::{Code, Result, TextError};

/// A frame from the other side that is longer is a defect.
const FRAME_MAX_BYTES: u64 = 256 << 20;

/// Puts values into a frame.
#[derive(Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    pub fn number(mut self, value: u64) -> Writer {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn bytes(self, value: &[u8]) -> Writer {
        let mut out = self.number(value.len() as u64);
        out.0.extend_from_slice(value);
        out
    }

    pub fn ids(self, ids: &[u32]) -> Writer {
        let mut out = self.number(ids.len() as u64);
        ids.iter().for_each(|id| out.0.extend_from_slice(&id.to_le_bytes()));
        out
    }

    pub fn end(self) -> Vec<u8> {
        self.0
    }
}

/// Takes them out again, in the same order.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn of(frame: &'a [u8]) -> Reader<'a> {
        Reader(frame)
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8]> {
        if size > self.0.len() {
            return Err(TextError::new(Code::Internal, "a text worker's frame is cut off"));
        }
        let (taken, rest) = self.0.split_at(size);
        self.0 = rest;
        Ok(taken)
    }

    pub fn number(&mut self) -> Result<u64> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    pub fn flag(&mut self) -> Result<bool> {
        Ok(self.number()? != 0)
    }

    pub fn text(&mut self) -> Result<&'a str> {
        let size = self.number()? as usize;
        std::str::from_utf8(self.take(size)?)
            .map_err(|e| TextError::new(Code::Internal, format!("a text worker's frame: {e}")))
    }

    pub fn ids(&mut self) -> Result<Vec<u32>> {
        let size = (self.number()? as usize).saturating_mul(4);
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap_or_default());
        Ok(self.take(size)?.chunks_exact(4).map(number).collect())
    }
}

pub fn write_frame(to: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    to.write_all(&(frame.len() as u64).to_le_bytes())?;
    to.write_all(frame)
}

/// The next frame. `wait` is asked what to do where none came within the reader's own time limit:
/// an error ends the wait.
pub fn read_frame(
    from: &mut impl Read,
    mut wait: impl FnMut() -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    let mut size = [0; 8];
    read_all(from, &mut size, &mut wait)?;
    let size = u64::from_le_bytes(size);
    if size > FRAME_MAX_BYTES {
        return Err(io::Error::other(format!("a frame of {size} bytes")));
    }
    let mut frame = vec![0; size as usize];
    read_all(from, &mut frame, &mut wait)?;
    Ok(frame)
}

fn read_all(
    from: &mut impl Read,
    mut out: &mut [u8],
    wait: &mut impl FnMut() -> io::Result<()>,
) -> io::Result<()> {
    use io::ErrorKind::{Interrupted, TimedOut, UnexpectedEof, WouldBlock};
    while !out.is_empty() {
        match from.read(out) {
            Ok(0) => return Err(UnexpectedEof.into()),
            Ok(count) => out = &mut out[count..],
            Err(e) if e.kind() == Interrupted => {}
            Err(e) if e.kind() == WouldBlock || e.kind() == TimedOut => wait()?,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
