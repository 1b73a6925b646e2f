//! A template's text to tokens, with the white space rules of `trim_blocks` and `lstrip_blocks`.

use super::error::{Error, Result};
use crate::python_text::is_python_space;

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    Text(String),
    BlockBegin,
    BlockEnd,
    VariableBegin,
    VariableEnd,
    Name(String),
    Str(String),
    Int(i128),
    Float(f64),
    /// An operator or a bracket.
    Op(&'static str),
    End,
}

/// The longer ones first.
const OPERATORS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";",
];

/// Tokens, each with its line.
pub fn tokenize(source: &str) -> Result<Vec<(Token, u32)>> {
    let mut text = source.replace("\r\n", "\n").replace('\r', "\n");
    if text.ends_with('\n') {
        text.pop();
    }
    let mut lexer = Lexer { text: &text, at: 0, line: 1, line_starting: true, out: Vec::new() };
    lexer.run()?;
    let line = lexer.line;
    lexer.out.push((Token::End, line));
    Ok(lexer.out)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    /// What was read last ended a line.
    line_starting: bool,
    out: Vec<(Token, u32)>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error::new(message).at(self.line))
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.text[self.at..self.at + bytes];
        self.line += passed.bytes().filter(|b| *b == b'\n').count() as u32;
        self.line_starting = passed.ends_with('\n');
        self.at += bytes;
    }

    fn run(&mut self) -> Result<()> {
        while !self.rest().is_empty() {
            let Some((offset, kind)) = find_tag(self.rest()) else {
                self.emit_text(self.rest().len(), "");
                return Ok(());
            };
            let tag = &self.rest()[offset..];
            let sign = match tag.as_bytes().get(2) {
                Some(b'-') => "-",
                Some(b'+') => "+",
                _ if kind == '{' => "variable",
                _ => "lstrip",
            };
            self.emit_text(offset, sign);
            let sign_bytes = usize::from(sign == "-" || sign == "+");
            if kind == '%' {
                if let Some(length) = raw_tag(&self.rest()[2 + sign_bytes..], "raw", false) {
                    self.advance(2 + sign_bytes + length);
                    self.raw()?;
                    continue;
                }
            }
            self.advance(2 + sign_bytes);
            match kind {
                '#' => self.comment()?,
                '%' => self.code(Token::BlockBegin)?,
                _ => self.code(Token::VariableBegin)?,
            }
        }
        Ok(())
    }

    /// Text before a tag, stripped as the tag's sign asks for.
    fn emit_text(&mut self, length: usize, sign: &str) {
        let line = self.line;
        let text = &self.text[self.at..self.at + length];
        let mut kept = text;
        if sign == "-" {
            kept = text.trim_end_matches(is_python_space);
        } else if sign == "lstrip" {
            let line_begin = text.rfind('\n').map_or(0, |at| at + 1);
            let is_blank = text[line_begin..].chars().all(is_python_space);
            if (line_begin > 0 || self.line_starting) && is_blank {
                kept = &text[..line_begin];
            }
        }
        if !kept.is_empty() {
            self.out.push((Token::Text(kept.to_string()), line));
        }
        if length > 0 {
            self.advance(length);
        }
    }

    fn raw(&mut self) -> Result<()> {
        let rest = self.rest();
        if rest.is_empty() {
            // Jinja only misses an end where something stands in front of it.
            return Ok(());
        }
        let mut from = 0;
        while let Some(found) = rest[from..].find("{%") {
            let at = from + found;
            let sign = match rest.as_bytes().get(at + 2) {
                Some(b'-') => "-",
                Some(b'+') => "+",
                _ => "lstrip",
            };
            let sign_bytes = usize::from(sign != "lstrip");
            if let Some(length) = raw_tag(&rest[at + 2 + sign_bytes..], "endraw", true) {
                self.emit_text(at, sign);
                self.advance(2 + sign_bytes + length);
                return Ok(());
            }
            from = at + 2;
        }
        self.fail("a raw block has no end")
    }

    fn comment(&mut self) -> Result<()> {
        if self.rest().is_empty() {
            return Ok(());
        }
        let Some(end) = self.rest().find("#}") else { return self.fail("a comment has no end") };
        let is_dash = end > 0 && self.rest().as_bytes()[end - 1] == b'-';
        let is_plus = end > 0 && self.rest().as_bytes()[end - 1] == b'+';
        let behind = &self.rest()[end + 2..];
        let more = match (is_dash, is_plus) {
            (true, _) => leading_space(behind),
            (_, true) => 0,
            _ => usize::from(behind.starts_with('\n')),
        };
        self.advance(end + 2 + more);
        Ok(())
    }

    /// The inside of a block or of a variable.
    fn code(&mut self, begin: Token) -> Result<()> {
        let is_block = begin == Token::BlockBegin;
        self.out.push((begin, self.line));
        let close = if is_block { "%}" } else { "}}" };
        let mut brackets: Vec<&'static str> = Vec::new();
        loop {
            let rest = self.rest();
            if brackets.is_empty() {
                if let Some(length) = end_of_code(rest, close, is_block) {
                    let end = if is_block { Token::BlockEnd } else { Token::VariableEnd };
                    self.out.push((end, self.line));
                    self.advance(length);
                    return Ok(());
                }
            }
            let space = leading_space(rest);
            if space > 0 {
                self.advance(space);
                continue;
            }
            let Some(c) = rest.chars().next() else {
                return self.fail("the template ends inside of a tag");
            };
            let line = self.line;
            let (token, length) = if c.is_ascii_digit() {
                self.number(rest)?
            } else if c.is_alphanumeric() || c == '_' {
                let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                let name = &rest[..length.unwrap_or(rest.len())];
                (Token::Name(name.to_string()), name.len())
            } else if c == '"' || c == '\'' {
                self.string(rest, c)?
            } else {
                let Some(op) = OPERATORS.into_iter().find(|op| rest.starts_with(op)) else {
                    return self.fail(format!("the character {c:?} has no place in a tag"));
                };
                match op {
                    "(" => brackets.push(")"),
                    "[" => brackets.push("]"),
                    "{" => brackets.push("}"),
                    ")" | "]" | "}" if brackets.pop() != Some(op) => {
                        return self.fail(format!("{op:?} closes no bracket"));
                    }
                    _ => {}
                }
                (Token::Op(op), op.len())
            };
            self.out.push((token, line));
            self.advance(length);
        }
    }

    fn number(&self, rest: &str) -> Result<(Token, usize)> {
        let bytes = rest.as_bytes();
        let whole = digits(bytes, 0, 10);
        // `x.0.1` is two steps into x, not one by 0.1.
        if self.at == 0 || self.text.as_bytes()[self.at - 1] != b'.' {
            let mut end = whole;
            if bytes.get(end) == Some(&b'.') && digits(bytes, end + 1, 10) > end + 1 {
                end = digits(bytes, end + 1, 10);
            }
            if matches!(bytes.get(end), Some(b'e' | b'E')) {
                let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
                let exponent = digits(bytes, end + 1 + sign, 10);
                if exponent > end + 1 + sign {
                    end = exponent;
                }
            }
            if end > whole {
                let text = rest[..end].replace('_', "");
                return match text.parse() {
                    Ok(number) => Ok((Token::Float(number), end)),
                    Err(_) => self.fail(format!("{text} is not a number")),
                };
            }
        }
        for (marks, radix) in [("bB", 2), ("oO", 8), ("xX", 16)] {
            let marked =
                bytes[0] == b'0' && bytes.get(1).is_some_and(|b| marks.contains(*b as char));
            if !marked {
                continue;
            }
            let from = 2 + usize::from(bytes.get(2) == Some(&b'_'));
            let end = digits(bytes, from, radix);
            if end > from {
                return self.integer(&rest[from..end], radix, end);
            }
        }
        // A leading zero stands alone, or with more zeros.
        let end = match bytes[0] {
            b'0' => {
                let mut end = 1;
                while bytes.get(end) == Some(&b'0')
                    || bytes.get(end) == Some(&b'_') && bytes.get(end + 1) == Some(&b'0')
                {
                    end += 1;
                }
                end
            }
            _ => whole,
        };
        self.integer(&rest[..end], 10, end)
    }

    fn integer(&self, text: &str, radix: u32, length: usize) -> Result<(Token, usize)> {
        match i128::from_str_radix(&text.replace('_', ""), radix) {
            Ok(number) => Ok((Token::Int(number), length)),
            Err(_) => Err(Error::unsupported("an integer of more than 128 bits").at(self.line)),
        }
    }

    fn string(&self, rest: &str, quote: char) -> Result<(Token, usize)> {
        let mut out = String::new();
        let mut chars = rest.char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            if c == quote {
                return Ok((Token::Str(out), at + 1));
            }
            if c != '\\' {
                out.push(c);
                continue;
            }
            let Some((_, escaped)) = chars.next() else { break };
            let plain = match escaped {
                '\n' => continue,
                '\\' | '\'' | '"' => escaped,
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'v' => '\u{b}',
                '0'..='7' | 'x' | 'u' | 'U' => {
                    let (radix, mut text, most) = match escaped {
                        'x' => (16, String::new(), 2),
                        'u' => (16, String::new(), 4),
                        'U' => (16, String::new(), 8),
                        first => (8, first.to_string(), 3),
                    };
                    while text.len() < most {
                        match chars.peek() {
                            Some((_, digit)) if digit.is_digit(radix) => text.push(*digit),
                            _ => break,
                        }
                        chars.next();
                    }
                    if radix == 16 && text.len() < most {
                        return self.fail(format!("\\{escaped} needs {most} hexadecimal digits"));
                    }
                    match u32::from_str_radix(&text, radix).ok().and_then(char::from_u32) {
                        Some(c) => c,
                        None => return self.fail(format!("\\{escaped}{text} is no character")),
                    }
                }
                'N' => return Err(Error::unsupported("the escape \\N").at(self.line)),
                other => {
                    out.push('\\');
                    other
                }
            };
            out.push(plain);
        }
        self.fail("a string has no end")
    }
}

/// Where digits of `radix`, with single underscores between them, end.
fn digits(bytes: &[u8], from: usize, radix: u32) -> usize {
    let is_digit = |at: usize| bytes.get(at).is_some_and(|b| (*b as char).is_digit(radix));
    let mut at = from;
    while is_digit(at) || at > from && bytes.get(at) == Some(&b'_') && is_digit(at + 1) {
        at += 1;
    }
    at
}

fn leading_space(text: &str) -> usize {
    text.len() - text.trim_start_matches(is_python_space).len()
}

/// The first tag of `text` and its kind: `{`, `%` or `#`.
fn find_tag(text: &str) -> Option<(usize, char)> {
    let bytes = text.as_bytes();
    let second = |at: usize| match bytes.get(at + 1) {
        Some(b'{') => Some('{'),
        Some(b'%') => Some('%'),
        Some(b'#') => Some('#'),
        _ => None,
    };
    text.match_indices('{').find_map(|(at, _)| second(at).map(|kind| (at, kind)))
}

/// The length of `end` and what is trimmed behind it, if the code is over here.
fn end_of_code(rest: &str, close: &str, is_block: bool) -> Option<usize> {
    if let Some(behind) = rest.strip_prefix('-').and_then(|rest| rest.strip_prefix(close)) {
        return Some(3 + leading_space(behind));
    }
    if is_block && rest.strip_prefix('+').is_some_and(|rest| rest.starts_with(close)) {
        return Some(3);
    }
    let behind = rest.strip_prefix(close)?;
    Some(2 + usize::from(is_block && behind.starts_with('\n')))
}

/// The length of `raw %}` or `endraw %}` behind the opening sign.
fn raw_tag(rest: &str, word: &str, is_end: bool) -> Option<usize> {
    let before = leading_space(rest);
    let behind = rest[before..].strip_prefix(word)?;
    let between = leading_space(behind);
    let close = &behind[between..];
    let end = match is_end {
        true => end_of_code(close, "%}", true)?,
        // A newline behind `{% raw %}` stays.
        false if close.starts_with("%}") => 2,
        false => 3 + leading_space(close.strip_prefix("-%}")?),
    };
    Some(before + word.len() + between + end)
}
