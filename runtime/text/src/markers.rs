//! Breaking control tokens that stand in a caller's text.
//!
//! A *marker* is one private-use character that occurs in none of the inputs. Put inside a piece
//! of text that spells a control token, it keeps the tokenizer from seeing the token there,
//! whatever the template does around it; after the template's own tokens have been found, the
//! marker is taken out again and the text is what the caller wrote.

use std::collections::HashSet;

use aho_corasick::AhoCorasick;
use serde_json::Value;

use crate::error::{Code, Result, TextError};

/// Supplementary private use area B, which no tokenizer's vocabulary spells out.
const MARKER_CANDIDATES: std::ops::RangeInclusive<u32> = 0x10_0000..=0x10_FFFD;
/// JSON from outside is never nested deeper than serde_json's own limit.
const DEPTH_MAX: usize = 128;

/// Finds whole and cut-off control tokens in a caller's strings.
pub struct Breaker {
    finder: Option<AhoCorasick>,
    /// True beginnings and ends of the tokens, without those that are only white space.
    beginnings: HashSet<String>,
    ends: HashSet<String>,
    longest: usize,
}

impl Breaker {
    /// `tokens` are the texts that a caller must not be able to forge.
    pub fn new(tokens: Vec<String>) -> Result<Breaker> {
        let finder = if tokens.is_empty() {
            None
        } else {
            let built = AhoCorasick::new(&tokens).map_err(|e| {
                TextError::new(Code::Internal, format!("special tokens can't be indexed: {e}"))
            })?;
            Some(built)
        };
        let (mut beginnings, mut ends) = (HashSet::new(), HashSet::new());
        for token in &tokens {
            for (i, _) in token.char_indices().skip(1) {
                beginnings.insert(token[..i].to_string());
                ends.insert(token[i..].to_string());
            }
        }
        beginnings.retain(|part| !part.trim().is_empty());
        ends.retain(|part| !part.trim().is_empty());
        let longest = tokens.iter().map(String::len).max().unwrap_or(0);
        Ok(Breaker { finder, beginnings, ends, longest })
    }

    /// Whether `text` stops inside a token that its right neighbour could complete.
    fn stops_inside(&self, text: &str) -> bool {
        let reach = text.char_indices().rev().take(self.longest);
        reach.take_while(|(i, _)| text.len() - i < self.longest)
            .any(|(i, _)| self.beginnings.contains(&text[i..]))
    }

    /// Whether `text` begins inside a token that its left neighbour could have begun.
    fn begins_inside(&self, text: &str) -> bool {
        let reach = text.char_indices().take(self.longest).map(|(i, c)| i + c.len_utf8());
        reach.take_while(|end| *end < self.longest).any(|end| self.ends.contains(&text[..end]))
    }

    /// The byte positions of `text` at which a marker has to stand; none for harmless text.
    ///
    /// One behind the first character of each occurrence, overlapping ones too; one at the end
    /// when the text stops inside a token, and one at the start when it begins inside a token, so
    /// that no token is put together from neighbours.
    fn cuts(&self, text: &str) -> Vec<usize> {
        let mut cuts = Vec::new();
        if let Some(finder) = &self.finder {
            for found in finder.find_overlapping_iter(text) {
                let first = text[found.start()..].chars().next().map_or(1, char::len_utf8);
                if found.start() + first < found.end() {
                    cuts.push(found.start() + first);
                }
            }
        }
        if self.stops_inside(text) {
            cuts.push(text.len());
        }
        if self.begins_inside(text) {
            cuts.push(0);
        }
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// Whether any string of `value` needs a marker.
    pub fn concerns(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => !self.cuts(text).is_empty(),
            Value::Array(list) => list.iter().any(|item| self.concerns(item)),
            Value::Object(map) => map.iter().any(|(key, item)| {
                !self.cuts(key).is_empty() || self.concerns(item)
            }),
            _ => false,
        }
    }

    /// Puts `marker` into every string of `value` that needs it, keys too.
    pub fn mark(&self, value: &mut Value, marker: char, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(TextError::invalid("the request is nested too deep"));
        }
        match value {
            Value::String(text) => {
                if let Some(marked) = self.marked(text, marker) {
                    *text = marked;
                }
            }
            Value::Array(list) => {
                for item in list {
                    self.mark(item, marker, depth + 1)?;
                }
            }
            Value::Object(map) => {
                for (key, mut item) in std::mem::take(map) {
                    self.mark(&mut item, marker, depth + 1)?;
                    map.insert(self.marked(&key, marker).unwrap_or(key), item);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn marked(&self, text: &str, marker: char) -> Option<String> {
        let cuts = self.cuts(text);
        if cuts.is_empty() {
            return None;
        }
        let mut out = String::with_capacity(text.len() + 4 * cuts.len());
        let mut from = 0;
        for cut in cuts {
            out.push_str(&text[from..cut]);
            out.push(marker);
            from = cut;
        }
        out.push_str(&text[from..]);
        Some(out)
    }
}

/// A marker that occurs in none of `texts`.
pub fn choose_marker(texts: &[&str]) -> Result<char> {
    MARKER_CANDIDATES
        .filter_map(char::from_u32)
        .find(|c| texts.iter().all(|text| !text.contains(*c)))
        .ok_or_else(|| TextError::invalid("the request uses every private-use character"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Breaker {
        Breaker::new(vec!["<|im_start|>".into(), "<a>".into(), "<<a>".into()]).unwrap()
    }

    #[test]
    fn overlapping_occurrences_are_all_broken() {
        assert_eq!(breaker().marked("x<<a>y", '!').unwrap(), "x<!<!a>y");
    }

    #[test]
    fn cut_off_tokens_are_broken_at_the_edge() {
        assert_eq!(breaker().marked("tail <|im_", '!').unwrap(), "tail <|im_!");
        assert_eq!(breaker().marked("start|> head", '!').unwrap(), "!start|> head");
        assert_eq!(breaker().marked("plain > text <b", '!'), None);
    }

    #[test]
    fn the_marker_is_absent_from_all_inputs() {
        assert_eq!(choose_marker(&["\u{100000}", "\u{100001}x"]).unwrap(), '\u{100002}');
    }
}
