//! What each token of a vocabulary adds to a text, byte for byte.
//!
//! A grammar is held against bytes, because a token may begin or end in the middle of a character.
//! Two spellings have bytes that are no whole characters: byte-level vocabularies (GPT-2's, and most
//! since) write each byte as a printable character, those with byte fallback write one as "<0xE2>".

use tokenizers::DecoderWrapper;

use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// Longer tokens are never chosen in an answer with a structure: GLM has one of 1,024 spaces.
const TOKEN_MAX_BYTES: usize = 1000;

/// A token that steers the model, or that adds nothing, has no bytes.
pub struct TokenTable {
    /// By id; empty where an id is free.
    pub bytes: Vec<Vec<u8>>,
    /// How control tokens are spelled, those that end an answer too.
    pub control: Vec<(u32, String)>,
}

impl TokenTable {
    pub fn of(tokenizer: &Tokenizer) -> Result<TokenTable> {
        let vocabulary = tokenizer.vocabulary();
        let size = vocabulary.iter().map(|(id, _)| *id as usize + 1).max().unwrap_or(0);
        let ends = tokenizer.eos_ids();
        let byte_level = tokenizer.decoder().is_some_and(is_byte_level);
        let mut table = TokenTable { bytes: vec![Vec::new(); size], control: Vec::new() };
        for (id, spelled) in vocabulary {
            if ends.binary_search(&id).is_ok() || tokenizer.is_special(id) {
                table.control.push((id, spelled));
                continue;
            }
            let bytes = bytes_of(tokenizer, byte_level, id, &spelled)?;
            if bytes.len() <= TOKEN_MAX_BYTES {
                table.bytes[id as usize] = bytes;
            }
        }
        table.control.sort();
        Ok(table)
    }
}

fn bytes_of(tokenizer: &Tokenizer, byte_level: bool, id: u32, spelled: &str) -> Result<Vec<u8>> {
    match byte_level {
        true => Ok(bytes_of_byte_level(spelled)),
        false => bytes_of_decoded(tokenizer, id, spelled),
    }
}

/// The U+FFFD characters at the end of the text of `ids` that stand for a character that is cut
/// off there, and not for broken bytes or for U+FFFD itself.
pub fn cut_off_marks(tokenizer: &Tokenizer, ids: &[u32]) -> Result<usize> {
    let byte_level = tokenizer.decoder().is_some_and(is_byte_level);
    let mut bytes = Vec::new();
    for id in ids {
        let spelled = tokenizer.id_to_token(*id).unwrap_or_default();
        bytes.extend(bytes_of(tokenizer, byte_level, *id, &spelled)?);
    }
    // One mark for the whole part in byte-level vocabularies, one for each byte in the others.
    Ok(match cut_off_bytes(&bytes) {
        0 => 0,
        _ if byte_level => 1,
        count => count,
    })
}

/// How many bytes at the end begin a character that isn't whole.
fn cut_off_bytes(bytes: &[u8]) -> usize {
    let first = (1..=bytes.len().min(3)).find(|back| bytes[bytes.len() - back] & 0xc0 != 0x80);
    let Some(count) = first else { return 0 };
    match std::str::from_utf8(&bytes[bytes.len() - count..]) {
        Err(e) if e.error_len().is_none() => count,
        _ => 0,
    }
}

fn is_byte_level(decoder: &DecoderWrapper) -> bool {
    match decoder {
        DecoderWrapper::ByteLevel(_) => true,
        DecoderWrapper::Sequence(list) => list.get_decoders().iter().any(is_byte_level),
        _ => false,
    }
}

/// A token with a character that stands for no byte is added text, and taken as it is.
fn bytes_of_byte_level(spelled: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = spelled.chars().map(byte_of_char).collect();
    bytes.unwrap_or_else(|| spelled.as_bytes().to_vec())
}

/// Bytes that print stand for themselves, the other 68 were given the characters from U+0100 on.
fn byte_of_char(c: char) -> Option<u8> {
    let code = c as u32;
    let rank = |n: u32| match n {
        0..=0x20 => n,
        0x21..=0x42 => n - 0x21 + 0x7f,
        _ => 0xad,
    };
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => Some(code as u8),
        0x100..=0x143 => Some(rank(code - 0x100) as u8),
        _ => None,
    }
}

/// What the tokenizer's own decoder makes of it behind another token: some decoders drop the space
/// that a text begins with.
fn bytes_of_decoded(tokenizer: &Tokenizer, id: u32, spelled: &str) -> Result<Vec<u8>> {
    if let Some(byte) = byte_of_fallback(spelled) {
        return Ok(vec![byte]);
    }
    let once = tokenizer.decode(&[id], false)?;
    let twice = tokenizer.decode(&[id, id], false)?;
    let bytes = twice.strip_prefix(once.as_str()).unwrap_or(&once).as_bytes().to_vec();
    Ok(bytes)
}

fn byte_of_fallback(spelled: &str) -> Option<u8> {
    let digits = spelled.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_level_spellings_are_all_bytes_once() {
        let mut seen = [false; 256];
        for code in 0..0x200 {
            let byte = char::from_u32(code).and_then(byte_of_char);
            if let Some(byte) = byte {
                assert!(!seen[byte as usize], "two characters stand for {byte}");
                seen[byte as usize] = true;
            }
        }
        assert!(seen.iter().all(|seen| *seen));
        assert_eq!(bytes_of_byte_level("Ġa"), b" a");
        assert_eq!(bytes_of_byte_level("Ċ"), b"\n");
        assert_eq!(bytes_of_byte_level("âĤ"), [0xe2, 0x82]);
        assert_eq!(bytes_of_byte_level("中"), "中".as_bytes());
    }

    #[test]
    fn a_cut_off_character_is_told_from_broken_bytes() {
        for (bytes, count) in [
            (&b""[..], 0),
            (b"a", 0),
            (b"a\xf0\x9f\x98\x80", 0),
            (b"a\xf0\x9f\x98", 3),
            (b"a\xf0", 1),
            (b"\xe2\x82", 2),
            (b"\x80\x80\x80\x80", 0),
            (b"\xf0\x28", 0),
            ("\u{fffd}".as_bytes(), 0),
        ] {
            assert_eq!(cut_off_bytes(bytes), count, "{bytes:?}");
        }
    }

    #[test]
    fn fallback_bytes_are_two_hexadecimal_digits() {
        assert_eq!(byte_of_fallback("<0xE2>"), Some(0xe2));
        for other in ["<0xE>", "<0x+1>", "<0xE2", "0xE2", "<0xZZ>"] {
            assert_eq!(byte_of_fallback(other), None, "{other}");
        }
    }
}
