//! Masks of grammars over the committed tokenizers. The folder of another model's tokenizer in
//! MACRAME_TOKENIZER makes `masks_are_timed` time those of its vocabulary.

use std::path::PathBuf;
use std::time::Instant;

use macrame_text::{Code, Engine, Kind, Matcher, Tokenizer};

const NAMES: [&str; 3] = ["byte_level", "byte_fallback", "unigram"];

fn folder(name: &str) -> PathBuf {
    let tests = "../../tests/unit/runtime/text/testdata";
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(tests).join(name)
}

struct Model {
    tokenizer: Tokenizer,
    engine: Engine,
}

fn model(name: &str) -> Model {
    let tokenizer = Tokenizer::load(&folder(name)).expect("the fixture loads");
    let engine = Engine::new(&tokenizer).expect("an engine");
    Model { tokenizer, engine }
}

impl Model {
    fn compile(&self, kind: Kind, source: &str) -> Matcher {
        self.engine.compile(kind, source).unwrap_or_else(|e| panic!("{source}: {e}"))
    }

    fn mask(&self, matcher: &mut Matcher, ahead: &[u32]) -> Vec<u32> {
        let mut bits = vec![u32::MAX; self.engine.size().div_ceil(32)];
        matcher.mask(ahead, &mut bits).expect("a mask");
        (0..self.engine.size() as u32)
            .filter(|id| bits[*id as usize / 32] >> (id % 32) & 1 == 1)
            .collect()
    }

    /// Writes an answer: of what the mask allows, `choose` takes one; None when it was not over
    /// after `most` tokens.
    fn answer(
        &self,
        matcher: &mut Matcher,
        most: usize,
        mut choose: impl FnMut(&[u32]) -> u32,
    ) -> Option<Vec<u32>> {
        let ends = self.tokenizer.eos_ids();
        let mut ids = Vec::new();
        while ids.len() < most {
            let allowed = self.mask(matcher, &[]);
            assert!(!allowed.is_empty(), "nothing may follow {ids:?}");
            let id = choose(&allowed);
            if ends.contains(&id) {
                return Some(ids);
            }
            ids.push(id);
            if matcher.take(id).expect("a token that the mask allowed") {
                return Some(ids);
            }
        }
        None
    }

    fn text(&self, ids: &[u32]) -> String {
        self.tokenizer.decode(ids, true).expect("text").trim_start().to_string()
    }

    fn ids(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode(text, false, false).expect("ids")
    }
}

/// The numbers of a small generator, for tests that have to come out the same.
fn dice(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % bound
    }
}

#[test]
fn one_of_the_choices_is_the_answer() {
    for name in NAMES {
        let model = model(name);
        for seed in 0..20 {
            let mut matcher = model.compile(Kind::Choice, r#"["yes", "no", "may be. no"]"#);
            let mut roll = dice(seed);
            let ids = model.answer(&mut matcher, 40, |ids| ids[roll(ids.len())]).expect("an end");
            let text = model.text(&ids);
            assert!(["yes", "no", "may be. no"].contains(&text.as_str()), "{name}: {text:?}");
        }
    }
}

#[test]
fn whatever_is_chosen_an_object_is_json() {
    let model = model("byte_level");
    let schema = r#"{"type": "object", "properties": {"a": {"type": "string", "maxLength": 8},
        "b": {"enum": [1, "zwei", null]}}, "required": ["a", "b"], "additionalProperties": false}"#;
    for seed in 0..40 {
        let mut matcher = model.compile(Kind::JsonSchema, schema);
        let mut roll = dice(seed);
        let ids = model.answer(&mut matcher, 2000, |ids| ids[roll(ids.len())]).expect("an end");
        let value: serde_json::Value = serde_json::from_str(&model.text(&ids)).expect("JSON");
        assert!(value["a"].as_str().is_some_and(|text| text.chars().count() <= 8), "{value}");
        assert!([1.into(), "zwei".into(), serde_json::Value::Null].contains(&value["b"]));
        assert_eq!(value.as_object().map(|object| object.len()), Some(2), "{value}");
    }
}

#[test]
fn expressions_and_grammars_hold_the_whole_answer() {
    let model = model("byte_level");
    let date = "[0-9]{4}-[01][0-9]";
    let sums = "start: NUMBER (\"+\" NUMBER)*\nNUMBER: /[1-9]{1,3}/";
    for seed in 0..20 {
        let mut roll = dice(seed);
        let mut matcher = model.compile(Kind::Regex, date);
        let ids = model.answer(&mut matcher, 40, |ids| ids[roll(ids.len())]).expect("an end");
        assert_eq!(model.text(&ids).len(), 7);
        let mut matcher = model.compile(Kind::Lark, sums);
        if let Some(ids) = model.answer(&mut matcher, 200, |ids| ids[roll(ids.len())]) {
            let text = model.text(&ids);
            assert!(text.split('+').all(|n| (1..=3).contains(&n.len())), "{text}");
        }
    }
}

#[test]
fn an_answer_ends_only_where_it_may() {
    let model = model("byte_level");
    let ends = model.tokenizer.eos_ids();
    assert!(!ends.is_empty());
    let mut matcher = model.compile(Kind::Regex, "ab?");
    assert!(model.mask(&mut matcher, &[]).iter().all(|id| !ends.contains(id)));
    let ids = model.ids("a");
    assert!(!matcher.take(ids[0]).unwrap());
    let allowed = model.mask(&mut matcher, &[]);
    assert!(ends.iter().all(|end| allowed.contains(end)), "{allowed:?}");
    assert!(matcher.take(model.ids("b")[0]).unwrap(), "nothing may follow");
    assert_eq!(model.mask(&mut matcher, &[]), ends);
}

#[test]
fn looking_ahead_takes_nothing() {
    let model = model("byte_level");
    let schema = r#"{"type": "array", "items": {"type": "integer"}, "maxItems": 5}"#;
    let ids = model.ids("[12, 345, 6]");
    for cut in 0..ids.len() {
        let mut matcher = model.compile(Kind::JsonSchema, schema);
        assert_eq!(matcher.admitted(&ids).unwrap(), ids.len());
        for id in &ids[..cut] {
            matcher.take(*id).unwrap();
        }
        let mut alone = matcher.fork();
        let before = model.mask(&mut matcher, &[]);
        for ahead in 0..=ids.len() - cut {
            let seen = model.mask(&mut matcher, &ids[cut..cut + ahead]);
            let mut other = alone.fork();
            for id in &ids[cut..cut + ahead] {
                other.take(*id).unwrap();
            }
            assert_eq!(seen, model.mask(&mut other, &[]), "{ahead} ahead of {cut}");
        }
        assert_eq!(model.mask(&mut matcher, &[]), before);
        assert_eq!(model.mask(&mut alone, &[]), before);
        let wrong = [model.ids("x")[0]];
        assert_eq!(matcher.admitted(&wrong).unwrap(), 0);
        assert_eq!(model.mask(&mut matcher, &[]), before);
    }
}

#[test]
fn control_tokens_are_never_text() {
    for name in NAMES {
        let model = model(name);
        let mut matcher = model.compile(Kind::Regex, "(?s:.)*");
        let ends = model.tokenizer.eos_ids();
        for id in model.mask(&mut matcher, &[]) {
            assert!(ends.contains(&id) || !model.tokenizer.is_special(id), "{name}: {id}");
        }
    }
}

#[test]
fn what_cant_be_used_is_told_in_a_sentence() {
    let model = model("byte_level");
    let cases: [(Kind, &str, &str); 11] = [
        (Kind::JsonSchema, "{", "is not JSON"),
        (Kind::JsonSchema, "[]", "neither an object nor true"),
        (Kind::JsonSchema, "false", "no text matches"),
        (Kind::JsonSchema, r#"{"not": {"type": "string"}}"#, "not"),
        (Kind::JsonSchema, r#"{"type": "strnig"}"#, "strnig"),
        (Kind::JsonSchema, r##"{"$ref": "#/$defs/nowhere"}"##, "nowhere"),
        (Kind::JsonSchema, r#"{"type": "integer", "minimum": 2, "maximum": 1}"#, "can't be used"),
        (Kind::Regex, "a(b", "can't be used"),
        (Kind::Lark, "start: nothing_here", "nothing_here"),
        (Kind::Choice, "[]", "0 entries"),
        (Kind::Choice, r#"["a", 1]"#, "something else"),
    ];
    for (kind, source, part) in cases {
        let Err(error) = model.engine.compile(kind, source) else { panic!("{source} compiles") };
        assert!(error.message.contains(part), "{source}: {error}");
        assert!(!error.message.contains('\n') && error.message.len() < 600, "{source}: {error}");
        assert_eq!(error.code, Code::InvalidArgument, "{source}: {error}");
    }
    let long = format!("\"{}\"", "a".repeat(macrame_text::GRAMMAR_MAX_BYTES));
    let error = model.engine.compile(Kind::JsonSchema, &long).err().expect("too long");
    assert!(error.message.contains("bytes, more than"), "{error}");
}

#[test]
fn choices_are_taken_by_the_letter() {
    let model = model("byte_level");
    let mut matcher = model.compile(Kind::Choice, r#"["(50 %) [a-z]*", "ä\\\"\n"]"#);
    for text in ["(50 %) [a-z]*", "ä\\\"\n"] {
        let ids = model.ids(text);
        assert_eq!(matcher.admitted(&ids).unwrap(), ids.len(), "{text}");
    }
    assert!(matcher.admitted(&model.ids("(50 %) a")).unwrap() < model.ids("(50 %) a").len());
}

#[test]
fn json_is_compact() {
    let model = model("byte_level");
    let schema = r#"{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array",
        "items": {"type": "boolean"}}}, "required": ["a", "b"], "additionalProperties": false}"#;
    for (text, fits) in [
        (r#"{"a":1,"b":[true,false]}"#, true),
        (r#"{"a": 1, "b": [true, false]}"#, true),
        (r#"{ "a":1,"b":[]}"#, false),
        (r#"{"a":  1,"b":[]}"#, false),
        (r#"{"a" :1,"b":[]}"#, false),
        (r#"{"a":1 ,"b":[]}"#, false),
        (r#"{"a":1,"b":[ true]}"#, false),
        (r#"{"a":1,"b":[true ]}"#, false),
        ("{\"a\":1,\n\"b\":[]}", false),
        ("\n{\"a\":1,\"b\":[]}", false),
    ] {
        let mut matcher = model.compile(Kind::JsonSchema, schema);
        let ids = model.ids(text);
        assert_eq!(matcher.admitted(&ids).unwrap() == ids.len(), fits, "{text}");
    }
    let mut matcher = model.compile(Kind::JsonObject, "");
    for id in model.ids("{") {
        matcher.take(id).unwrap();
    }
    assert_eq!(matcher.admitted(&model.ids("\n")).unwrap(), 0);
}

#[test]
#[ignore = "a measurement: MACRAME_TOKENIZER names a folder"]
fn masks_are_timed() {
    let folder = std::env::var_os("MACRAME_TOKENIZER").expect("MACRAME_TOKENIZER");
    let tokenizer = Tokenizer::load(&PathBuf::from(folder)).expect("a tokenizer");
    let began = Instant::now();
    let engine = Engine::new(&tokenizer).expect("an engine");
    println!("engine of {} tokens: {:?}", engine.size(), began.elapsed());
    let model = Model { tokenizer, engine };
    let schema = r##"{"type": "object", "properties": {"name": {"type": "string"}, "age":
        {"type": "integer", "minimum": 0, "maximum": 130}, "tags": {"type": "array", "items":
        {"type": "string"}}, "address": {"$ref": "#/$defs/address"}}, "required": ["name", "age",
        "tags", "address"], "$defs": {"address": {"type": "object", "properties": {"street":
        {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}}}}"##;
    for (kind, source) in [(Kind::JsonSchema, schema), (Kind::JsonObject, "")] {
        let began = Instant::now();
        drop(model.compile(kind, source));
        let first = began.elapsed();
        let began = Instant::now();
        let mut matcher = model.compile(kind, source);
        println!("{kind:?}: compiled in {first:?}, found again in {:?}", began.elapsed());
        let text = "{\"name\": \"Ada Lovelace, of London\", \"age\": 36, \"tags\": [\"first\", \
                    \"a longer one, with more words\"], \"address\": {\"street\": \"St James's \
                    Square 12\", \"zip\": \"12345\"}}";
        let (mut times, mut takes) = (Vec::new(), Vec::new());
        let mut bits = vec![0; model.engine.size().div_ceil(32)];
        for id in model.ids(text) {
            let began = Instant::now();
            matcher.mask(&[], &mut bits).expect("a mask");
            times.push(began.elapsed());
            let began = Instant::now();
            matcher.take(id).expect("a token");
            takes.push(began.elapsed());
        }
        times.sort();
        takes.sort();
        println!(
            "{} masks: median {:?}, 90 % {:?}, most {:?}; taking: median {:?}",
            times.len(),
            times[times.len() / 2],
            times[times.len() * 9 / 10],
            times[times.len() - 1],
            takes[takes.len() / 2]
        );
    }
}

/// A padded model may draft ids that its tokenizer does not have.
#[test]
fn an_id_beyond_the_vocabulary_has_no_place_and_harms_nothing() {
    let model = model("byte_level");
    let mut matcher = model.compile(Kind::Choice, r#"["red", "blue"]"#);
    let beyond = model.engine.size() as u32 + 7;
    assert_eq!(matcher.admitted(&[beyond]).expect("an answer"), 0);
    assert!(!model.mask(&mut matcher, &[]).is_empty());
}

const SCHEMA: &str = r#"{"type": "object", "properties": {"a": {"type": "string", "maxLength": 40},
    "b": {"enum": [1, "zwei", null]}}, "required": ["a", "b"], "additionalProperties": false}"#;

/// What a grammar holds when it is compiled anew by an engine that has compiled others.
fn bytes_of(source: &str) -> usize {
    let model = model("byte_level");
    model.compile(Kind::JsonObject, "");
    let before = model.engine.bytes_held();
    let _matcher = model.compile(Kind::JsonSchema, source);
    model.engine.bytes_held() - before
}

fn model_with_room(bytes: usize) -> Model {
    let tokenizer = Tokenizer::load(&folder("byte_level")).expect("the fixture loads");
    let engine = Engine::with_room(&tokenizer, bytes).expect("an engine");
    Model { tokenizer, engine }
}

#[test]
fn requests_that_wait_share_one_grammar() {
    let model = model("byte_level");
    let mut waiting = vec![model.compile(Kind::JsonSchema, SCHEMA)];
    let one = model.engine.bytes_held();
    assert!(one > 0);
    for _ in 0..50 {
        let another = model.compile(Kind::JsonSchema, SCHEMA);
        waiting.push(another.fork());
        waiting.push(another);
    }
    assert_eq!(model.engine.bytes_held(), one);
    let mut answer = waiting.pop().expect("one that waits");
    model.mask(&mut answer, &[]);
    let begun = model.engine.bytes_held();
    assert!(begun > one, "an answer under way has tables of its own");
    for id in model.ids(r#"{"a": "some words that make the tables grow"#) {
        answer.take(id).expect("a token that has a place");
        model.mask(&mut answer, &[]);
    }
    assert!(model.engine.bytes_held() > begun, "what they grow by counts too");
    drop(answer);
    assert_eq!(model.engine.bytes_held(), one);
}

#[test]
fn grammars_beyond_the_room_are_refused_in_a_sentence() {
    let model = model_with_room(1);
    let error = model.engine.compile(Kind::JsonSchema, SCHEMA).err().expect("no room");
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("the JSON schema is too large to be followed now"), "{error}");
    assert!(!error.message.contains("restart"), "{error}");
    assert_eq!(model.engine.bytes_held(), 0);
}

#[test]
fn answers_beyond_the_room_are_refused_until_others_end() {
    let model = model_with_room(4 * bytes_of(SCHEMA));
    let one = model.compile(Kind::JsonSchema, SCHEMA);
    let waiting = model.engine.bytes_held();
    let mut bits = vec![0; model.engine.size().div_ceil(32)];
    let (mut answers, mut refused) = (Vec::new(), None);
    while refused.is_none() && answers.len() < 1000 {
        let mut answer = one.fork();
        match answer.mask(&[], &mut bits) {
            Ok(()) => answers.push(answer),
            Err(error) => refused = Some(error),
        }
    }
    let refused = refused.expect("answers have a bound");
    assert!(!answers.is_empty());
    assert_eq!(refused.code, Code::InvalidArgument);
    assert!(refused.message.contains("send it again later"), "{refused}");
    answers.clear();
    assert_eq!(model.engine.bytes_held(), waiting);
    assert!(one.fork().mask(&[], &mut bits).is_ok());
}
