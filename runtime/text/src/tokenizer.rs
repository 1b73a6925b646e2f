//! A model's tokenizer, exactly as the crate `tokenizers` runs it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use tokenizers::{
    AddedVocabulary, DecoderWrapper, Encoding, Model, NormalizedString, OffsetReferential,
    OffsetType, PreTokenizedString, PreTokenizer, Token,
};

use crate::bounded;
use crate::error::{Code, Result, TextError};
use crate::files::{read_json_object, read_required, TOKENIZER_FILE_MAX_BYTES};
use crate::json_reader;
use crate::markers::{Breaker, Markers};
use crate::prompt_limit::PromptLimit;
use crate::special_tokens::SpecialTokens;
use crate::token_width::{check_growth, longest_token_bytes, takes_in_blanks};
use crate::worker::Pool;

/// The longest text that is encoded at once.
pub const TEXT_MAX_BYTES: usize = 32 << 20;

/// Encodes and decodes; may be shared between threads.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The added tokens again, with special ones read as ordinary text.
    plain_tokens: AddedVocabulary,
    eos_ids: BTreeSet<u32>,
    bos_id: Option<u32>,
    /// Added tokens that steer the model, whoever writes them.
    special: Vec<String>,
    /// Other added tokens: they steer it only where the model's own template writes them.
    ordinary: Vec<String>,
    special_breaker: Arc<Breaker>,
    /// Whether a special token is looked for in normalised text.
    normalized_special: bool,
    /// Whether the model itself spells a special token when it meets its letters.
    spelled_special: bool,
    /// The most bytes of a text that one token stands for, if there is such a number.
    longest_token_bytes: Option<usize>,
    /// Blanks beside a token may belong to it, however many.
    takes_in_blanks: bool,
    /// For texts that may take long; none for a tokenizer that was not loaded for serving.
    workers: Option<Arc<Pool>>,
    has_overrun: AtomicBool,
}

impl Tokenizer {
    /// Reads tokenizer.json and the files that name its special tokens.
    pub fn load(folder: &Path) -> Result<Tokenizer> {
        let path = folder.join("tokenizer.json");
        let bytes = read_required(&path, TOKENIZER_FILE_MAX_BYTES)?;
        let unusable = |e: String| {
            TextError::data_loss(format!("{} is not a usable tokenizer: {e}", path.display()))
        };
        let mut inner = read_tokenizer(bytes).map_err(unusable)?;
        // Some models ship a training-time cut or padding; a prompt must be whole.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(internal)?;
        let names = SpecialTokens::load(folder)?;
        let says_bos =
            read_json_object(&folder.join("tokenizer_config.json"))?.contains_key("bos_token");
        let mut eos_ids = names.eos_ids.clone();
        eos_ids.extend(names.text("eos_token").and_then(|text| inner.token_to_id(text)));
        let named_bos = names.text("bos_token").and_then(|text| inner.token_to_id(text));
        let bos_id = if says_bos { named_bos } else { named_bos.or(names.bos_id) };
        Tokenizer::with_names(inner, eos_ids, bos_id)
    }

    fn with_names(
        inner: tokenizers::Tokenizer,
        eos_ids: BTreeSet<u32>,
        bos_id: Option<u32>,
    ) -> Result<Tokenizer> {
        let mut plain_tokens = inner.get_added_vocabulary().clone();
        plain_tokens.set_encode_special_tokens(true);
        let (mut special, mut ordinary) = (Vec::new(), Vec::new());
        let mut normalized_special = false;
        for token in inner.get_added_tokens_decoder().into_values() {
            if token.content.is_empty() {
                continue;
            }
            if token.special {
                normalized_special |= token.normalized;
                special.push(token.content);
            } else if !token.content.trim().is_empty() {
                ordinary.push(token.content);
            }
        }
        special.sort();
        ordinary.sort();
        normalized_special &= inner.get_normalizer().is_some();
        let model = inner.get_model();
        let spelled_special = special.iter().any(|text| {
            let tokens = model.tokenize(text).unwrap_or_default();
            tokens.iter().any(|token| text.get(token.offsets.0..token.offsets.1) == Some(text))
        });
        let special_breaker = Arc::new(Breaker::new(special.clone())?);
        let longest_token_bytes = longest_token_bytes(&inner);
        let takes_in_blanks = takes_in_blanks(&inner);
        Ok(Tokenizer {
            inner,
            plain_tokens,
            eos_ids,
            bos_id,
            special,
            ordinary,
            special_breaker,
            normalized_special,
            spelled_special,
            longest_token_bytes,
            takes_in_blanks,
            workers: None,
            has_overrun: AtomicBool::new(false),
        })
    }

    /// With processes that load the same folder.
    pub fn with_workers(self, folder: &Path) -> Tokenizer {
        Tokenizer { workers: Some(Pool::of(folder)), ..self }
    }

    pub fn workers(&self) -> Option<&Arc<Pool>> {
        self.workers.as_ref()
    }

    /// Whether a text that ought to take little went beyond its bounds.
    pub fn has_overrun(&self) -> bool {
        self.has_overrun.load(Ordering::Relaxed)
    }

    pub fn note_overrun(&self) {
        self.has_overrun.store(true, Ordering::Relaxed);
    }

    /// Text to ids. With `special_in_text` false, special tokens in `text` are read as letters.
    pub fn encode(&self, text: &str, add_special: bool, special_in_text: bool) -> Result<Vec<u32>> {
        self.encode_within(text, add_special, special_in_text, PromptLimit::none())
    }

    /// The same; `OutOfRange` for a text that is longer than `limit`.
    pub fn encode_within(
        &self,
        text: &str,
        add_special: bool,
        special_in_text: bool,
        limit: PromptLimit,
    ) -> Result<Vec<u32>> {
        check_length(text)?;
        let tokens = match special_in_text {
            true => self.inner.get_added_vocabulary(),
            false => &self.plain_tokens,
        };
        let pieces = tokens.extract_and_normalize(self.inner.get_normalizer(), text);
        let plain = !special_in_text && self.spelled_special;
        let encoding = self.encode_pieces(pieces, plain, limit)?;
        let encoding = self.inner.post_process(encoding, None, add_special).map_err(internal)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Encodes a rendered prompt in which `markers` hide what must not be seen as control tokens.
    ///
    /// The result is what the tokenizer would give for the prompt without markers if the tokens
    /// hidden by them weren't in its table of added tokens.
    pub fn encode_prompt(
        &self,
        prompt: &str,
        markers: Option<&Markers>,
        limit: PromptLimit,
    ) -> Result<Vec<u32>> {
        check_length(prompt)?;
        let tokens = self.inner.get_added_vocabulary();
        let mut pieces = tokens.extract_and_normalize(self.inner.get_normalizer(), prompt);
        if markers.is_some() || self.normalized_special {
            self.refuse_lookalikes(prompt, &pieces)?;
        }
        if let Some(markers) = markers {
            let show = |piece: &mut NormalizedString| {
                piece.map(|c| markers.show(c));
                Ok(())
            };
            pieces.normalize(show).map_err(internal)?;
        }
        Ok(self.encode_pieces(pieces, self.spelled_special, limit)?.get_ids().to_vec())
    }

    /// Refuses a prompt in which some text becomes a special token only by normalisation, such as
    /// full-width letters: neither the template's author nor the caller can have meant that.
    fn refuse_lookalikes(&self, prompt: &str, pieces: &PreTokenizedString) -> Result<()> {
        for (_, (from, to), tokens) in
            pieces.get_splits(OffsetReferential::Original, OffsetType::Byte)
        {
            let Some(token) = tokens.as_ref().and_then(|list| list.first()) else { continue };
            let written = prompt.get(from..to).unwrap_or_default().trim();
            let Some(content) = self.inner.get_added_vocabulary().simple_id_to_token(token.id)
            else {
                continue;
            };
            if written != content.trim() && self.is_special_text(&content) {
                return Err(TextError::invalid(format!(
                    "the text {written:?} would be read as the special token {content:?}; \
                     take it out of the messages"
                )));
            }
        }
        Ok(())
    }

    /// What can be said of a text before any work is done with it: too many bytes for `limit`.
    pub fn check_text(
        &self,
        text: &str,
        markers: Option<&Markers>,
        limit: PromptLimit,
    ) -> Result<()> {
        check_length(text)?;
        let shown = |c: char| markers.map_or(c, |markers| markers.show(c));
        let counts = |c: &char| !(self.takes_in_blanks && c.is_whitespace());
        let bytes = text.chars().map(shown).filter(counts).map(char::len_utf8).sum();
        limit.check_bytes(bytes, self.longest_token_bytes)
    }

    fn encode_pieces(
        &self,
        mut pieces: PreTokenizedString,
        plain: bool,
        limit: PromptLimit,
    ) -> Result<Encoding> {
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(unencodable)?;
        }
        let model = self.inner.get_model();
        let counted = Cell::new(0usize);
        let encode = |piece: &NormalizedString| {
            let tokens = match plain {
                true => self.encode_plain(piece.get())?,
                false => model.tokenize(piece.get())?,
            };
            counted.set(counted.get() + tokens.len());
            if counted.get() > limit.counted_max() || bounded::is_given_up() {
                return Err("too much".into());
            }
            Ok(tokens)
        };
        if let Err(error) = pieces.tokenize(encode) {
            let too_many = counted.get() > limit.counted_max();
            return Err(match too_many {
                true => limit.too_many(counted.get()),
                false => unencodable(error),
            });
        }
        pieces.into_encoding(None, 0, OffsetType::Byte).map_err(internal)
    }

    /// The tokens of `text`, none of them special.
    ///
    /// Unigram models and word lists hold their special tokens as ordinary entries and would spell
    /// "</s>" with one; there the text is cut behind the token's first character.
    fn encode_plain(&self, text: &str) -> tokenizers::Result<Vec<Token>> {
        let model = self.inner.get_model();
        let mut out = Vec::new();
        let mut from = 0;
        let mut until = text.len();
        while from < text.len() {
            let mut tokens = model.tokenize(&text[from..until])?;
            let forged = tokens.iter().find(|token| {
                let written = text.get(from + token.offsets.0..from + token.offsets.1);
                written.is_some_and(|written| {
                    written.len() > first_char_len(written) && self.is_special_text(written)
                })
            });
            if let Some(token) = forged {
                let start = from + token.offsets.0;
                until = start + first_char_len(&text[start..]);
                continue;
            }
            for token in &mut tokens {
                token.offsets = (token.offsets.0 + from, token.offsets.1 + from);
            }
            out.append(&mut tokens);
            from = until;
            until = text.len();
        }
        Ok(out)
    }

    fn is_special_text(&self, text: &str) -> bool {
        self.special.binary_search_by(|special| special.as_str().cmp(text)).is_ok()
    }

    /// Ids to text. Ids that aren't in the vocabulary print as nothing.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        self.inner.decode(ids, skip_special).map_err(internal)
    }

    /// Whether `decode` with `skip_special` leaves this id out.
    pub fn is_special(&self, id: u32) -> bool {
        let tokens = self.inner.get_added_vocabulary();
        tokens.simple_id_to_token(id).is_some_and(|text| tokens.is_special_token(&text))
    }

    /// Every id and how it is spelled; in no order.
    pub fn vocabulary(&self) -> Vec<(u32, String)> {
        self.inner.get_vocab(true).into_iter().map(|(text, id)| (id, text)).collect()
    }

    /// How the tokens of a text become text.
    pub fn decoder(&self) -> Option<&DecoderWrapper> {
        self.inner.get_decoder()
    }

    /// The id of a whole token.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// How a token is spelled in the vocabulary.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Number of tokens, added ones too.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Every id that ends an answer.
    pub fn eos_ids(&self) -> Vec<u32> {
        self.eos_ids.iter().copied().collect()
    }

    /// The id that a text begins with, if the model has one.
    pub fn bos_id(&self) -> Option<u32> {
        self.bos_id
    }

    /// Breaks special tokens only: for the assistant's own text.
    pub fn special_breaker(&self) -> Arc<Breaker> {
        self.special_breaker.clone()
    }

    /// Breaks special tokens, and other added ones that `template` writes.
    pub fn breaker_for(&self, template: &str) -> Result<Arc<Breaker>> {
        let written: Vec<String> =
            self.ordinary.iter().filter(|text| template.contains(*text)).cloned().collect();
        if written.is_empty() {
            return Ok(self.special_breaker());
        }
        Ok(Arc::new(Breaker::new([self.special.clone(), written].concat())?))
    }
}

/// A tokenizer of its file's bytes. Where the plain reader fails, as Python reads them.
fn read_tokenizer(bytes: Vec<u8>) -> std::result::Result<tokenizers::Tokenizer, String> {
    let read = |bytes: &[u8]| {
        check_growth(bytes).map_err(|e| e.message)?;
        tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| e.to_string())
    };
    let refused = match read(&bytes) {
        Ok(read) => return Ok(read),
        Err(refused) => refused,
    };
    let strict = json_reader::to_strict(&bytes)?;
    // Another reading of the same JSON would only say the same again.
    match strict.as_bytes() == bytes {
        true => Err(refused),
        false => read(strict.as_bytes()),
    }
}

fn first_char_len(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

fn check_length(text: &str) -> Result<()> {
    if text.len() > TEXT_MAX_BYTES {
        return Err(TextError::invalid(format!(
            "a text of {} bytes is longer than the {TEXT_MAX_BYTES} that are encoded at once",
            text.len()
        )));
    }
    Ok(())
}

fn internal(error: tokenizers::Error) -> TextError {
    TextError::new(Code::Internal, format!("the tokenizer failed: {error}"))
}

fn unencodable(error: tokenizers::Error) -> TextError {
    TextError::invalid(format!("this text can't be encoded by the model's tokenizer: {error}"))
}
