//! The named tokens of a model: what a template calls `bos_token`, and which ids end an answer.
//!
//! Models say this in up to four files that often disagree, so the end-of-text ids are the union
//! of all of them: stopping on one id too many is what every serving tool does, while missing one
//! lets the model talk on for ever.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::Result;
use crate::files::read_json_object;

/// The names that a template may see, as `transformers` hands them in.
const NAMED_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Named tokens in text form, and the ids given as numbers.
#[derive(Clone, Debug, Default)]
pub struct SpecialTokens {
    /// `("bos_token", "<s>")` and so on; absent ones are left out.
    pub named: Vec<(String, String)>,
    /// Ids that a configuration file gives as numbers.
    pub eos_ids: BTreeSet<u32>,
    /// The id that config.json gives for the first token.
    pub bos_id: Option<u32>,
}

impl SpecialTokens {
    /// Reads the four files of `folder`; absent ones count as empty.
    pub fn load(folder: &Path) -> Result<SpecialTokens> {
        let tokenizer_config = read_json_object(&folder.join("tokenizer_config.json"))?;
        let special_map = read_json_object(&folder.join("special_tokens_map.json"))?;
        let generation = read_json_object(&folder.join("generation_config.json"))?;
        let config = read_json_object(&folder.join("config.json"))?;
        let mut out = SpecialTokens::default();
        for name in NAMED_TOKENS {
            // tokenizer_config.json wins, also with a null: that is how a model says "none".
            let field = tokenizer_config.get(name).or_else(|| special_map.get(name));
            if let Some(text) = field.and_then(token_text) {
                out.named.push((name.to_string(), text));
            }
        }
        for map in [&generation, &config] {
            collect_ids(map.get("eos_token_id"), &mut out.eos_ids);
        }
        if let Some(Value::Object(inner)) = config.get("text_config") {
            collect_ids(inner.get("eos_token_id"), &mut out.eos_ids);
        }
        out.bos_id = first_id(&[&config, &generation], "bos_token_id");
        Ok(out)
    }

    /// The text of a named token, if the model has one.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.named.iter().find(|(n, _)| n == name).map(|(_, text)| text.as_str())
    }
}

fn token_text(field: &Value) -> Option<String> {
    match field {
        Value::String(text) => Some(text.clone()),
        Value::Object(map) => map.get("content").and_then(Value::as_str).map(str::to_string),
        _ => None,
    }
}

fn as_id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

fn collect_ids(field: Option<&Value>, into: &mut BTreeSet<u32>) {
    match field {
        Some(Value::Array(list)) => into.extend(list.iter().filter_map(as_id)),
        Some(value) => into.extend(as_id(value)),
        None => {}
    }
}

fn first_id(maps: &[&Map<String, Value>], key: &str) -> Option<u32> {
    maps.iter().find_map(|map| match map.get(key) {
        Some(Value::Array(list)) => list.first().and_then(as_id),
        Some(value) => as_id(value),
        None => None,
    })
}
