//! Text of a growing answer, piece by piece.
//!
//! One token may be a part of a character, and some decoders drop the space of the first token
//! only. So a token is decoded together with those that gave the last piece of text, and what
//! comes on top is the new piece; it is held back while it ends in a cut-off character.

use std::sync::Arc;

use crate::error::Result;
use crate::token_table::cut_off_marks;
use crate::tokenizer::Tokenizer;

/// UTF-8 characters have at most four bytes, and emoji tokens of byte-level vocabularies begin or
/// end in the middle of one; after so many ids a cut-off character will never be whole.
const HELD_IDS_MAX: usize = 8;
const REPLACEMENT: char = '\u{fffd}';

/// One answer's decoder. One thread at a time.
pub struct Stream {
    tokenizer: Arc<Tokenizer>,
    skip_special: bool,
    /// The ids that gave the last piece, then the ids held back.
    window: Vec<u32>,
    /// How many of `window` have been given out, and their text.
    given: usize,
    given_text: String,
}

impl Stream {
    pub fn new(tokenizer: Arc<Tokenizer>, skip_special: bool) -> Stream {
        let (window, given_text) = (Vec::new(), String::new());
        Stream { tokenizer, skip_special, window, given: 0, given_text }
    }

    /// Takes the next id and gives the text that is certain now, often none.
    pub fn push(&mut self, id: u32) -> Result<String> {
        if self.skip_special && self.tokenizer.is_special(id) {
            return Ok(String::new());
        }
        self.window.push(id);
        let text = self.tokenizer.decode(&self.window, self.skip_special)?;
        let held = self.window.len() - self.given;
        if text.ends_with(REPLACEMENT) && held < HELD_IDS_MAX {
            return Ok(String::new());
        }
        let piece = self.beyond_given(&text)?;
        if piece.is_empty() && held < HELD_IDS_MAX {
            return Ok(piece);
        }
        self.window.drain(..self.given);
        self.given = self.window.len();
        self.given_text = self.tokenizer.decode(&self.window, self.skip_special)?;
        Ok(piece)
    }

    /// What is still held back, without a character that the answer's end cuts off.
    pub fn finish(&mut self) -> Result<String> {
        let text = self.without_cut_off(&self.window)?;
        let piece = match text.strip_prefix(self.given_text.as_str()) {
            Some(piece) => piece.to_string(),
            // As in beyond_given.
            None => self.without_cut_off(&self.window[self.given..])?,
        };
        self.window.clear();
        self.given = 0;
        self.given_text.clear();
        Ok(piece)
    }

    /// The text of these ids, of which the last are held back.
    fn without_cut_off(&self, ids: &[u32]) -> Result<String> {
        let mut text = self.tokenizer.decode(ids, self.skip_special)?;
        if text.ends_with(REPLACEMENT) && self.given < self.window.len() {
            for _ in 0..cut_off_marks(&self.tokenizer, ids)? {
                text.truncate(text.strip_suffix(REPLACEMENT).unwrap_or(&text).len());
            }
        }
        Ok(text)
    }

    fn beyond_given(&self, text: &str) -> Result<String> {
        match text.strip_prefix(self.given_text.as_str()) {
            Some(piece) => Ok(piece.to_string()),
            // A broken byte can turn its whole run into U+FFFD, also what was given out before.
            None => self.tokenizer.decode(&self.window[self.given..], self.skip_special),
        }
    }
}
