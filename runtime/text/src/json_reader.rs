//! JSON as Python's `json` reads it, for the files beside a model's weights, which Python wrote.
//!
//! Beyond the standard there are `NaN`, `Infinity` and `-Infinity`, integers of any length, keys
//! that come twice (the last one counts, at the place of the first), halves of surrogate pairs, and
//! a byte order mark in front. What the standard's JSON has no words for becomes what is nearest to
//! it: infinities and numbers out of range the largest double, NaN null, half a pair U+FFFD.

use serde_json::{Map, Number, Value};

/// How deep lists and objects may be nested; Python stops at about twice as much.
const DEPTH_MAX: usize = 400;

/// Reads one value; the error says what is wrong and where.
pub fn parse(bytes: &[u8]) -> Result<Value, String> {
    let text = decode(bytes)?;
    let mut reader = Reader { text: &text, at: 0 };
    reader.skip_space();
    let value = reader.value(0)?;
    reader.skip_space();
    match reader.at == text.len() {
        true => Ok(value),
        false => Err(reader.wrong("more text follows the value")),
    }
}

/// The same as text of the JSON that every reader takes.
pub fn to_strict(bytes: &[u8]) -> Result<String, String> {
    parse(bytes).map(|value| value.to_string())
}

/// UTF-8, or what a byte order mark says.
fn decode(bytes: &[u8]) -> Result<String, String> {
    let utf16 = |read: fn([u8; 2]) -> u16| {
        let units: Vec<u16> =
            bytes[2..].chunks_exact(2).map(|pair| read([pair[0], pair[1]])).collect();
        String::from_utf16(&units).map_err(|e| format!("it is not UTF-16: {e}"))
    };
    match bytes {
        [0xff, 0xfe, ..] => utf16(u16::from_le_bytes),
        [0xfe, 0xff, ..] => utf16(u16::from_be_bytes),
        _ => {
            let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            let text = std::str::from_utf8(bytes).map_err(|e| format!("it is not UTF-8: {e}"))?;
            Ok(text.to_string())
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn wrong(&self, what: &str) -> String {
        let before = &self.text.as_bytes()[..self.at.min(self.text.len())];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let begin = before.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        format!("{what} at line {line} column {}", before.len() - begin + 1)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn skip(&mut self, word: &str) -> bool {
        let found = self.text[self.at..].starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err(self.wrong("it is nested too deep"));
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Value::String),
            _ if self.skip("null") || self.skip("NaN") => Ok(Value::Null),
            _ if self.skip("true") => Ok(Value::Bool(true)),
            _ if self.skip("false") => Ok(Value::Bool(false)),
            _ if self.skip("Infinity") => Ok(float(f64::INFINITY)),
            _ if self.skip("-Infinity") => Ok(float(f64::NEG_INFINITY)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.wrong("a value is expected")),
            None => Err(self.wrong("it ends where a value is expected")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut map = Map::new();
        self.skip_space();
        if self.skip("}") {
            return Ok(Value::Object(map));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.wrong("a key in double quotes is expected"));
            }
            let key = self.string()?;
            self.skip_space();
            if !self.skip(":") {
                return Err(self.wrong("':' is expected"));
            }
            self.skip_space();
            let value = self.value(depth + 1)?;
            map.insert(key, value);
            self.skip_space();
            if self.skip("}") {
                return Ok(Value::Object(map));
            }
            if !self.skip(",") {
                return Err(self.wrong("',' or '}' is expected"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, String> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.skip("]") {
            return Ok(Value::Array(items));
        }
        loop {
            self.skip_space();
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.skip("]") {
                return Ok(Value::Array(items));
            }
            if !self.skip(",") {
                return Err(self.wrong("',' or ']' is expected"));
            }
        }
    }

    fn digits(&mut self) -> usize {
        let begin = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - begin
    }

    fn number(&mut self) -> Result<Value, String> {
        let begin = self.at;
        self.skip("-");
        let first = self.peek();
        let whole = self.digits();
        if whole == 0 || (first == Some(b'0') && whole > 1) {
            return Err(self.wrong("a number is not well formed"));
        }
        let mut is_float = false;
        if self.skip(".") {
            is_float = true;
            if self.digits() == 0 {
                return Err(self.wrong("a number ends with its point"));
            }
        }
        if self.skip("e") || self.skip("E") {
            is_float = true;
            if !self.skip("+") {
                self.skip("-");
            }
            if self.digits() == 0 {
                return Err(self.wrong("a number has no exponent"));
            }
        }
        let text = &self.text[begin..self.at];
        if !is_float {
            if let Ok(number) = text.parse::<i64>() {
                return Ok(number.into());
            }
            if let Ok(number) = text.parse::<u64>() {
                return Ok(number.into());
            }
        }
        Ok(float(text.parse().unwrap_or(f64::MAX)))
    }

    fn string(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(end) = rest.find(|c: char| c == '"' || c == '\\' || c < ' ') else {
                return Err(self.wrong("a string has no end"));
            };
            out.push_str(&rest[..end]);
            self.at += end;
            if self.skip("\"") {
                return Ok(out);
            }
            if !self.skip("\\") {
                return Err(self.wrong("a string holds a control character"));
            }
            let escaped = self.peek();
            self.at += 1;
            match escaped {
                Some(c @ (b'"' | b'\\' | b'/')) => out.push(c as char),
                Some(b'n') => out.push('\n'),
                Some(b'r') => out.push('\r'),
                Some(b't') => out.push('\t'),
                Some(b'b') => out.push('\u{8}'),
                Some(b'f') => out.push('\u{c}'),
                Some(b'u') => {
                    let c = self.unicode_escape()?;
                    out.push(c);
                }
                _ => {
                    self.at -= 1;
                    return Err(self.wrong("a string holds an unknown escape"));
                }
            }
        }
    }

    fn unit(&mut self) -> Result<u32, String> {
        let digits = self.text.get(self.at..self.at + 4);
        let is_hex = |digits: &&str| digits.bytes().all(|b| b.is_ascii_hexdigit());
        let unit = digits.filter(is_hex).and_then(|d| u32::from_str_radix(d, 16).ok());
        let unit = unit.ok_or_else(|| self.wrong("\\u needs four hexadecimal digits"))?;
        self.at += 4;
        Ok(unit)
    }

    fn unicode_escape(&mut self) -> Result<char, String> {
        let high = self.unit()?;
        if (0xd800..0xdc00).contains(&high) && self.text[self.at..].starts_with("\\u") {
            let before = self.at;
            self.at += 2;
            let low = self.unit()?;
            if (0xdc00..0xe000).contains(&low) {
                let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        Ok(char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER))
    }
}

fn float(number: f64) -> Value {
    let number = number.clamp(f64::MIN, f64::MAX);
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strict(text: &str) -> String {
        to_strict(text.as_bytes()).unwrap_or_else(|e| e)
    }

    /// The table that C++'s reader is held to as well, and Python's own.
    #[test]
    fn what_python_reads_is_read_and_what_it_refuses_is_refused() {
        let table = include_str!(
            "../../../tests/unit/runtime/text/testdata/python_json_cases.json"
        );
        let cases: Vec<Value> = serde_json::from_str(table).unwrap();
        assert!(cases.len() > 40);
        for case in cases {
            let text = case["text"].as_str().unwrap();
            match parse(text.as_bytes()) {
                Ok(read) => assert_eq!(Some(&read), case.get("value"), "{text}"),
                Err(error) => {
                    assert_eq!(case["refused"], true, "{text}: {error}");
                    assert!(error.contains("line"), "{text}: {error}");
                }
            }
        }
    }

    #[test]
    fn byte_order_marks_and_depth() {
        assert_eq!(strict("\u{feff} {\"a\": [ ] }\n"), r#"{"a":[]}"#);
        let wide: Vec<u8> =
            "\u{feff}{\"ä\": 1}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(to_strict(&wide).unwrap(), r#"{"ä":1}"#);
        assert!(to_strict("[".repeat(100_000).as_bytes()).is_err());
    }
}
