//! Hiding control tokens that stand in a caller's text.
//!
//! A *marker* is a private-use character that occurs in none of the inputs and stands in for one
//! character of a caller's text. Where the first character of a control token's text is replaced
//! so, the tokenizer doesn't see the token, whatever the template does around it; after the
//! template's own tokens have been found, the marker becomes its character again. Lengths and
//! positions stay what they were, so a template hardly ever notices.

use std::collections::{BTreeSet, HashSet};

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

    /// The byte positions of the characters of `text` that must be hidden; none in harmless text.
    ///
    /// The first of each occurrence, overlapping ones too. Where the text stops inside a token or
    /// begins inside one, a character of that part, so that no token is put together from
    /// neighbours.
    fn hidden(&self, text: &str) -> BTreeSet<usize> {
        let mut hidden = BTreeSet::new();
        if let Some(finder) = &self.finder {
            hidden.extend(finder.find_overlapping_iter(text).map(|found| found.start()));
        }
        let tail = text.char_indices().rev().take_while(|(i, _)| text.len() - i < self.longest);
        hidden.extend(tail.map(|(i, _)| i).filter(|i| self.beginnings.contains(&text[*i..])));
        let heads = text.char_indices().map(|(i, c)| i + c.len_utf8());
        if heads.take_while(|end| *end < self.longest).any(|end| self.ends.contains(&text[..end])) {
            hidden.insert(0);
        }
        hidden
    }

    /// Adds to `found` the characters of all strings of `value` that must be hidden.
    pub fn collect(&self, value: &Value, found: &mut BTreeSet<char>) {
        match value {
            Value::String(text) => self.collect_text(text, found),
            Value::Array(list) => list.iter().for_each(|item| self.collect(item, found)),
            Value::Object(map) => map.iter().for_each(|(key, item)| {
                self.collect_text(key, found);
                self.collect(item, found);
            }),
            _ => {}
        }
    }

    /// Whether any string of `value` holds a whole token.
    pub fn finds_in(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.count(text) > 0,
            Value::Array(list) => list.iter().any(|item| self.finds_in(item)),
            Value::Object(map) => {
                map.iter().any(|(key, item)| self.count(key) > 0 || self.finds_in(item))
            }
            _ => false,
        }
    }

    /// How many tokens `text` spells.
    pub fn count(&self, text: &str) -> usize {
        self.finder.as_ref().map_or(0, |finder| finder.find_overlapping_iter(text).count())
    }

    fn collect_text(&self, text: &str, found: &mut BTreeSet<char>) {
        found.extend(self.hidden(text).into_iter().filter_map(|i| text[i..].chars().next()));
    }

    /// Puts markers into every string of `value` that needs them, keys too.
    pub fn mark(&self, value: &mut Value, markers: &Markers, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(TextError::invalid("the request is nested too deep"));
        }
        match value {
            Value::String(text) => *text = self.marked(text, markers),
            Value::Array(list) => {
                for item in list {
                    self.mark(item, markers, depth + 1)?;
                }
            }
            Value::Object(map) => {
                for (key, mut item) in std::mem::take(map) {
                    self.mark(&mut item, markers, depth + 1)?;
                    map.insert(self.marked(&key, markers), item);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn marked(&self, text: &str, markers: &Markers) -> String {
        let hidden = self.hidden(text);
        let stand_in = |(i, c)| if hidden.contains(&i) { markers.hide(c) } else { c };
        text.char_indices().map(stand_in).collect()
    }
}

/// Which private-use character stands for which.
#[derive(Debug, Default)]
pub struct Markers {
    pairs: Vec<(char, char)>,
}

impl Markers {
    /// A marker for each of `hidden`; none of them occurs in `texts`.
    pub fn choose(hidden: &BTreeSet<char>, texts: &[&str]) -> Result<Markers> {
        let used: HashSet<char> =
            texts.iter().flat_map(|text| text.chars()).filter(|c| is_candidate(*c)).collect();
        let mut free = MARKER_CANDIDATES.filter_map(char::from_u32).filter(|c| !used.contains(c));
        let mut pairs = Vec::new();
        for c in hidden {
            let marker = free.next().ok_or_else(|| {
                TextError::invalid("the messages use every private-use character there is")
            })?;
            pairs.push((*c, marker));
        }
        Ok(Markers { pairs })
    }

    /// For another process: `of_text` makes the same of it.
    pub fn to_text(&self) -> String {
        self.pairs.iter().flat_map(|(hidden, marker)| [*hidden, *marker]).collect()
    }

    pub fn of_text(text: &str) -> Markers {
        let chars: Vec<char> = text.chars().collect();
        Markers { pairs: chars.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect() }
    }

    fn hide(&self, c: char) -> char {
        self.pairs.iter().find(|(hidden, _)| *hidden == c).map_or(c, |(_, marker)| *marker)
    }

    /// The character that `c` stands for, or `c` itself.
    pub fn show(&self, c: char) -> char {
        if !is_candidate(c) {
            return c;
        }
        self.pairs.iter().find(|(_, marker)| *marker == c).map_or(c, |(hidden, _)| *hidden)
    }

    /// Whether a marker of `text` was turned into an escape, which can't be undone.
    pub fn are_escaped_in(&self, text: &str) -> bool {
        let lower = text.to_lowercase();
        self.pairs.iter().any(|(_, marker)| {
            let mut units = [0; 2];
            let units = marker.encode_utf16(&mut units).iter();
            lower.contains(&units.map(|unit| format!("\\u{unit:04x}")).collect::<String>())
        })
    }
}

fn is_candidate(c: char) -> bool {
    MARKER_CANDIDATES.contains(&(c as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(text: &str) -> String {
        let tokens = vec!["<|im_start|>".into(), "<a>".into(), "<<a>".into()];
        let breaker = Breaker::new(tokens).unwrap();
        let value = Value::String(text.into());
        let mut hidden = BTreeSet::new();
        breaker.collect(&value, &mut hidden);
        let markers = Markers::choose(&hidden, &[text]).unwrap();
        let marked = breaker.marked(text, &markers);
        assert_eq!(marked.chars().map(|c| markers.show(c)).collect::<String>(), text);
        let markers = Markers::of_text(&markers.to_text());
        assert_eq!(marked.chars().map(|c| markers.show(c)).collect::<String>(), text);
        marked.chars().map(|c| if markers.show(c) == c { c } else { '!' }).collect()
    }

    #[test]
    fn overlapping_occurrences_are_all_hidden() {
        assert_eq!(marked("x<<a>y"), "x!!a>y");
    }

    #[test]
    fn cut_off_tokens_are_hidden_at_the_edge() {
        assert_eq!(marked("tail <|im_"), "tail !|im_");
        assert_eq!(marked("start|> head"), "!tart|> head");
        assert_eq!(marked("plain > text <b"), "plain > text <b");
    }

    #[test]
    fn markers_are_absent_from_all_inputs() {
        let hidden = BTreeSet::from(['<']);
        let markers = Markers::choose(&hidden, &["\u{100000}", "\u{100001}x"]).unwrap();
        assert_eq!(markers.hide('<'), '\u{100002}');
    }
}
