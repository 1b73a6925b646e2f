//! What a tokenizer's own rules say of sizes: how many bytes of a text one token stands for at
//! most, and how many bytes its steps can make of one.
//!
//! Both are judged from the steps that tokenizer.json lists. The first is none where a step drops
//! text or joins any amount of it: an unknown word is one token there, however long.

use serde::Deserialize;
use serde_json::Value;
use tokenizers::{ModelWrapper, Tokenizer};

use crate::error::{Result, TextError};

/// Steps of a normaliser, a pre-tokenizer or a decoder, sequences within sequences counted.
const STEPS_MAX: usize = 512;
/// What all steps of one kind may make of a byte. A SentencePiece model's: some 200.
const GROWTH_MAX: f64 = 4096.0;
/// Unicode's compatibility decomposition makes 18 characters of one at most.
const DECOMPOSED_GROWTH: f64 = 18.0;
/// Composition makes one character of several: three bytes of nine, at most.
const COMPOSED_SHRINK: usize = 4;

#[derive(Deserialize)]
struct Steps {
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    decoder: Option<Value>,
}

/// Refuses a tokenizer.json whose steps can make more than `GROWTH_MAX` bytes of one: thirty
/// replacements of a letter by two make a gigabyte of it.
pub fn check_growth(tokenizer_json: &[u8]) -> Result<()> {
    let steps = serde_json::from_slice::<Steps>(tokenizer_json)
        .map_err(|e| TextError::data_loss(e.to_string()))?;
    for (name, step) in [
        ("normalizer", &steps.normalizer),
        ("pre_tokenizer", &steps.pre_tokenizer),
        ("decoder", &steps.decoder),
    ] {
        let mut growth = Growth { factor: 1.0, steps: 0, decomposes: false };
        growth.add(step.as_ref().unwrap_or(&Value::Null));
        if growth.steps > STEPS_MAX {
            return Err(TextError::data_loss(format!(
                "its {name} has more than {STEPS_MAX} steps"
            )));
        }
        if growth.factor > GROWTH_MAX {
            return Err(TextError::data_loss(format!(
                "its {name} can make {:.0} bytes of one, more than {GROWTH_MAX:.0}: no real \
                 tokenizer does that, so get the model anew from a source that you trust",
                growth.factor.min(1e18)
            )));
        }
    }
    Ok(())
}

struct Growth {
    factor: f64,
    steps: usize,
    decomposes: bool,
}

impl Growth {
    fn add(&mut self, step: &Value) {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return;
        }
        for list in ["normalizers", "pretokenizers", "decoders"] {
            step[list].as_array().into_iter().flatten().for_each(|inner| self.add(inner));
        }
        let content = step["content"].as_str().map_or(0, str::len) as f64;
        self.factor *= match step["type"].as_str().unwrap_or_default() {
            "Replace" => replaced(step, content),
            "Prepend" => 1.0 + step["prepend"].as_str().map_or(0, str::len) as f64,
            "Metaspace" => 4.0 + step["replacement"].as_str().map_or(0, str::len) as f64,
            "BertNormalizer" => 3.0 * self.decomposed_once(),
            "NFC" | "NFD" | "NFKC" | "NFKD" | "Precompiled" | "StripAccents" => {
                self.decomposed_once()
            }
            "ByteLevel" | "Lowercase" => 2.0,
            _ => 1.0,
        };
    }

    // What is decomposed stays so.
    fn decomposed_once(&mut self) -> f64 {
        if std::mem::replace(&mut self.decomposes, true) {
            1.0
        } else {
            DECOMPOSED_GROWTH
        }
    }
}

fn replaced(step: &Value, content: f64) -> f64 {
    if let Some(text) = step["pattern"]["String"].as_str() {
        if !text.is_empty() {
            return (content / text.len() as f64).max(1.0);
        }
    }
    let pattern = step["pattern"]["Regex"].as_str().unwrap_or_default();
    if may_match_nothing(pattern) {
        1.0 + content
    } else {
        content.max(1.0)
    }
}

/// Whether the expression may match between two characters. Only some simple ones are known not to.
fn may_match_nothing(pattern: &str) -> bool {
    let optional = |c: char| matches!(c, '*' | '?' | '|' | '^' | '$' | '(' | '\\' | '{' | '}');
    let plain = pattern.replace("\\s", " ").replace(" {2,}", "  ").replace("\\.", ".");
    plain.is_empty() || plain.contains(optional)
}

/// The most bytes of a text that one token stands for; none where there is no such number.
pub fn longest_token_bytes(inner: &Tokenizer) -> Option<usize> {
    let normalizer = serde_json::to_value(inner.get_normalizer()).ok()?;
    let pre_tokenizer = serde_json::to_value(inner.get_pre_tokenizer()).ok()?;
    let shrink = shrink_of(&normalizer)?;
    if !keeps_text(&pre_tokenizer) {
        return None;
    }
    let is_byte_level = has_step(&normalizer, "ByteLevel") || has_step(&pre_tokenizer, "ByteLevel");
    if !keeps_characters(inner, is_byte_level) {
        return None;
    }
    let own = inner.get_vocab(false);
    // In a vocabulary of bytes each character stands for one.
    let of_own = |text: &String| if is_byte_level { text.chars().count() } else { text.len() };
    let longest = own.keys().map(of_own).max().unwrap_or(0);
    let added = inner.get_added_tokens_decoder();
    let longest_added = added.values().map(|token| token.content.len()).max().unwrap_or(0);
    Some(longest.max(longest_added).max(4) * shrink)
}

/// Whether tokens are told apart by the white space around them, which they take in.
pub fn takes_in_blanks(inner: &Tokenizer) -> bool {
    inner.get_added_tokens_decoder().values().any(|token| token.lstrip || token.rstrip)
}

// By what factor a text may become shorter; none where a part of it may be lost.
fn shrink_of(step: &Value) -> Option<usize> {
    if step.is_null() {
        return Some(1);
    }
    match step["type"].as_str()? {
        "Sequence" => step["normalizers"]
            .as_array()?
            .iter()
            .try_fold(1usize, |product, inner| product.checked_mul(shrink_of(inner)?)),
        "NFC" | "Lowercase" => Some(COMPOSED_SHRINK),
        "NFD" | "Prepend" | "ByteLevel" => Some(1),
        "Replace" => {
            let pattern = step["pattern"]["String"].as_str()?;
            (step["content"].as_str()?.len() >= pattern.len()).then_some(1)
        }
        _ => None,
    }
}

fn keeps_text(step: &Value) -> bool {
    if step.is_null() {
        return true;
    }
    match step["type"].as_str().unwrap_or_default() {
        "Sequence" => {
            step["pretokenizers"].as_array().is_some_and(|all| all.iter().all(keeps_text))
        }
        "Split" | "Punctuation" => step["behavior"] != "Removed",
        "ByteLevel" | "Metaspace" | "Digits" | "UnicodeScripts" => true,
        _ => false,
    }
}

fn has_step(step: &Value, kind: &str) -> bool {
    step["type"] == kind
        || ["normalizers", "pretokenizers"]
            .iter()
            .any(|list| step[*list].as_array().into_iter().flatten().any(|s| has_step(s, kind)))
}

// Whether each character gets a token of its own when no longer one fits.
fn keeps_characters(inner: &Tokenizer, is_byte_level: bool) -> bool {
    let ModelWrapper::BPE(model) = inner.get_model() else { return false };
    if is_byte_level {
        let bytes = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        return bytes.iter().all(|c| inner.token_to_id(&c.to_string()).is_some());
    }
    let all_bytes = || (0..=255).all(|b| inner.token_to_id(&format!("<0x{b:02X}>")).is_some());
    (model.byte_fallback && all_bytes()) || (model.unk_token.is_some() && !model.fuse_unk)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaces(from: &str, to: &str, times: usize) -> Vec<u8> {
        let one =
            serde_json::json!({"type": "Replace", "pattern": {"String": from}, "content": to});
        let all = serde_json::json!({"type": "Sequence", "normalizers": vec![one; times]});
        serde_json::json!({"normalizer": all}).to_string().into_bytes()
    }

    #[test]
    fn doubling_thirty_times_is_refused() {
        let error = check_growth(&replaces("a", "aa", 30)).expect_err("a gigabyte of a letter");
        assert!(error.message.contains("1073741824 bytes of one"), "{}", error.message);
        assert!(check_growth(&replaces(" ", "\u{2581}", 1)).is_ok());
        assert!(check_growth(&replaces("\u{201c}", "\"", 300)).is_ok());
        assert!(check_growth(&replaces("a", "a", 600)).is_err(), "too many steps");
    }

    #[test]
    fn an_expression_that_matches_nothing_grows() {
        for (pattern, nothing) in
            [(" {2,}", false), ("\\s+", false), ("a*", true), ("", true), ("(?=x)", true)]
        {
            assert_eq!(may_match_nothing(pattern), nothing, "{pattern}");
        }
    }
}
