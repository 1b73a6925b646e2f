//! Which texts and grammars take little, whatever they are given to.
//!
//! What a tokenizer or a grammar's compiler takes can't be said before. But where it is out of
//! proportion, there is something long that hangs together: combining characters that are sorted,
//! blanks that a pattern tries again and again, letters that make one word. A text without such a
//! stretch, and not too long as a whole, is worked on where it is; so is a small grammar of the
//! plain kind. All others go to a worker process (see `worker`).

use serde_json::{Map, Value};
use unicode_normalization_alignments::char::canonical_combining_class;

/// A longer text goes to a worker, however tame it is: its memory is then given back.
pub const TAME_TEXT_MAX_BYTES: usize = 512 << 10;
/// Letters, digits, blanks or other characters in a row.
const STRETCH_MAX_CHARS: usize = 2048;
/// Characters in a row that combine with the one before them; Unicode's own advice is 30.
const COMBINING_MAX_CHARS: usize = 128;
/// Of a plain schema or a list of choices.
const PLAIN_GRAMMAR_MAX_BYTES: usize = 8 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Blank,
    Other,
}

fn class_of(c: char) -> Class {
    match c {
        _ if c.is_alphabetic() => Class::Letter,
        _ if c.is_whitespace() => Class::Blank,
        _ if c.is_numeric() => Class::Digit,
        _ => Class::Other,
    }
}

/// Whether every tokenizer that people use takes time and memory in proportion to `text`.
pub fn is_tame_text(text: &str) -> bool {
    if text.len() <= COMBINING_MAX_CHARS {
        return true;
    }
    if text.len() > TAME_TEXT_MAX_BYTES {
        return false;
    }
    let (mut class, mut stretch, mut combining) = (Class::Other, 0, 0);
    for c in text.chars() {
        let next = class_of(c);
        stretch = if next == class { stretch + 1 } else { 1 };
        class = next;
        let combines = !c.is_ascii() && canonical_combining_class(c) != 0;
        combining = if combines { combining + 1 } else { 0 };
        if stretch > STRETCH_MAX_CHARS || combining > COMBINING_MAX_CHARS {
            return false;
        }
    }
    true
}

/// Whether a list of choices is short enough to be compiled in proportion to its length.
pub fn is_plain_choice(source: &str) -> bool {
    source.len() <= PLAIN_GRAMMAR_MAX_BYTES
}

/// Whether a JSON schema holds only what is compiled in proportion to its length: no patterns, no
/// counts that unfold, nothing that is combined with what stands beside it.
pub fn is_plain_schema(source: &str) -> bool {
    source.len() <= PLAIN_GRAMMAR_MAX_BYTES
        && serde_json::from_str(source).is_ok_and(|schema| is_plain(&schema))
}

fn is_plain(schema: &Value) -> bool {
    match schema {
        Value::Bool(_) => true,
        Value::Object(members) => has_plain_members(members),
        _ => false,
    }
}

fn has_plain_members(members: &Map<String, Value>) -> bool {
    // What these mean together with others is worked out by the compiler, case by case.
    let stands_alone = |name: &str| name == "anyOf" || name == "$ref";
    let says_nothing = |name: &str| {
        matches!(name, "title" | "description" | "default" | "examples" | "$schema" | "$id")
            || matches!(name, "$defs" | "definitions" | "strict")
    };
    let is_alone = members.keys().any(|name| stands_alone(name));
    let many = |value: &Value| value.as_object().is_some_and(|all| all.values().all(is_plain));
    members.iter().all(|(name, value)| match name.as_str() {
        "$defs" | "definitions" => many(value),
        name if says_nothing(name) => true,
        "anyOf" => value.as_array().is_some_and(|all| all.iter().all(is_plain)),
        "$ref" => {
            value.is_string() && members.keys().filter(|name| stands_alone(name)).count() == 1
        }
        _ if is_alone => false,
        "properties" => many(value),
        "items" | "additionalProperties" => is_plain(value),
        "type" | "enum" | "const" | "required" => true,
        _ => false,
    })
}
