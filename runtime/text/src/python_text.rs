//! Strings as Python strips, splits, classifies and prints them.

use std::sync::OnceLock;

use regex_syntax::hir::{Class, HirKind};

/// What `str.isspace()` is true for: White_Space and the four information separators.
pub fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// A set of characters by a property of Unicode.
pub struct CharClass {
    pattern: &'static str,
    ranges: OnceLock<Vec<(char, char)>>,
}

impl CharClass {
    const fn new(pattern: &'static str) -> CharClass {
        CharClass { pattern, ranges: OnceLock::new() }
    }

    pub fn has(&self, c: char) -> bool {
        let ranges = self.ranges.get_or_init(|| {
            let hir = regex_syntax::parse(self.pattern).expect("a class of Unicode");
            match hir.into_kind() {
                HirKind::Class(Class::Unicode(class)) => {
                    class.iter().map(|range| (range.start(), range.end())).collect()
                }
                _ => Vec::new(),
            }
        });
        ranges
            .binary_search_by(|(first, last)| match () {
                () if *last < c => std::cmp::Ordering::Less,
                () if *first > c => std::cmp::Ordering::Greater,
                () => std::cmp::Ordering::Equal,
            })
            .is_ok()
    }
}

/// `str.isalpha()`
pub static LETTER: CharClass = CharClass::new(r"\p{L}");
/// `str.isdecimal()`
pub static DECIMAL: CharClass = CharClass::new(r"\p{Nd}");
/// `str.isdigit()`: also superscripts and circled digits, which Unicode calls Numeric_Type=Digit.
pub static DIGIT: CharClass = CharClass::new(
    r"(?x)[
    \p{Nd}\u{b2}\u{b3}\u{b9}\u{1369}-\u{1371}\u{19da}\u{2070}\u{2074}-\u{2079}\u{2080}-\u{2089}
    \u{2460}-\u{2468}\u{2474}-\u{247c}\u{2488}-\u{2490}\u{24ea}\u{24f5}-\u{24fd}\u{24ff}
    \u{2776}-\u{277e}\u{2780}-\u{2788}\u{278a}-\u{2792}\u{10a40}-\u{10a43}\u{10e60}-\u{10e68}
    \u{11052}-\u{1105a}\u{1f100}-\u{1f10a}
]",
);
/// `str.isnumeric()`: also the ideographs that stand for numbers.
pub static NUMERIC: CharClass = CharClass::new(
    r"(?x)[
    \p{N}\u{3405}\u{3483}\u{382a}\u{3b4d}\u{4e00}\u{4e03}\u{4e07}\u{4e09}\u{4e5d}\u{4e8c}
    \u{4e94}\u{4e96}\u{4ebf}-\u{4ec0}\u{4edf}\u{4ee8}\u{4f0d}\u{4f70}\u{5104}\u{5146}\u{5169}
    \u{516b}\u{516d}\u{5341}\u{5343}-\u{5345}\u{534c}\u{53c1}-\u{53c4}\u{56db}\u{58f1}\u{58f9}
    \u{5e7a}\u{5efe}-\u{5eff}\u{5f0c}-\u{5f0e}\u{5f10}\u{62fe}\u{634c}\u{67d2}\u{6f06}\u{7396}
    \u{767e}\u{8086}\u{842c}\u{8cae}\u{8cb3}\u{8d30}\u{9621}\u{9646}\u{964c}\u{9678}\u{96f6}
    \u{f96b}\u{f973}\u{f978}\u{f9b2}\u{f9d1}\u{f9d3}\u{f9fd}\u{20001}\u{20064}\u{200e2}\u{20121}
    \u{2092a}\u{20983}\u{2098c}\u{2099c}\u{20aea}\u{20afd}\u{20b19}\u{22390}\u{22998}\u{23b1b}
    \u{2626d}\u{2f890}
]",
);
/// What `repr` writes as an escape.
pub static UNPRINTABLE: CharClass = CharClass::new(r"[\p{C}\p{Z}--\u{20}]");
static TITLECASE: CharClass = CharClass::new(r"\p{Lt}");
static CASED: CharClass = CharClass::new(r"\p{Cased}");
static CASE_IGNORABLE: CharClass = CharClass::new(r"\p{Case_Ignorable}");

/// `repr(float)`: the shortest digits that read back, with an exponent outside of 1e-4 .. 1e16.
pub fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let shortest = format!("{number:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number == 0.0 || (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// `repr(str)`; `ascii`: as `ascii()` writes it.
pub fn write_string_repr(text: &str, ascii: bool, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            c if !ascii && !UNPRINTABLE.has(c) => out.push(c),
            c => match c as u32 {
                code @ 0..=0xff => out.push_str(&format!("\\x{code:02x}")),
                code @ 0x100..=0xffff => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
        }
    }
    out.push(quote);
}

/// `str.strip(chars)` and its one-sided forms; without `chars`, white space goes.
pub fn python_strip<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let gone = |c: char| match chars {
        Some(set) => set.contains(c),
        None => is_python_space(c),
    };
    let mut rest = text;
    if left {
        rest = rest.trim_start_matches(gone);
    }
    if right {
        rest = rest.trim_end_matches(gone);
    }
    rest
}

/// `str.splitlines()`: every line break that Python knows, and no empty last line.
pub fn python_split_lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let is_break = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}')
            || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_break).unwrap_or(rest.len());
        let after = &rest[end..];
        let skip = match after.strip_prefix("\r\n") {
            Some(_) => 2,
            None => after.chars().next().map_or(0, char::len_utf8),
        };
        lines.push(&rest[..if keep_ends { end + skip } else { end }]);
        rest = &rest[end + skip..];
    }
    lines
}

fn push_title(c: char, out: &mut String) {
    // Three letters have a form for titles that is neither large nor small.
    match c {
        '\u{1c4}'..='\u{1c6}' => out.push('\u{1c5}'),
        '\u{1c7}'..='\u{1c9}' => out.push('\u{1c8}'),
        '\u{1ca}'..='\u{1cc}' => out.push('\u{1cb}'),
        '\u{1f1}'..='\u{1f3}' => out.push('\u{1f2}'),
        c if TITLECASE.has(c) || ('\u{10d0}'..='\u{10ff}').contains(&c) => out.push(c),
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => {
            out.extend(char::from_u32(c as u32 + 8));
        }
        '\u{149}' => out.push_str("\u{2bc}N"),
        '\u{1fb3}' => out.push('\u{1fbc}'),
        '\u{1fc3}' => out.push('\u{1fcc}'),
        '\u{1ff3}' => out.push('\u{1ffc}'),
        _ => {
            // A ligature's capital is several letters, of which only the first is large here.
            let mut upper = c.to_uppercase();
            out.extend(upper.next());
            out.extend(upper.flat_map(char::to_lowercase));
        }
    }
}

/// The small form of the letter at `at`, with Greek's final sigma.
fn push_lower(text: &str, at: usize, c: char, out: &mut String) {
    if c != '\u{3a3}' {
        out.extend(c.to_lowercase());
        return;
    }
    let cased = |mut chars: Box<dyn Iterator<Item = char> + '_>| {
        chars.find(|c| !CASE_IGNORABLE.has(*c)).is_some_and(|c| CASED.has(c))
    };
    let is_final = cased(Box::new(text[..at].chars().rev()))
        && !cased(Box::new(text[at + c.len_utf8()..].chars()));
    out.push(if is_final { '\u{3c2}' } else { '\u{3c3}' });
}

/// `str.title()`: a letter is large exactly when no letter stands before it.
pub fn python_title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for (at, c) in text.char_indices() {
        match inside {
            true => push_lower(text, at, c, &mut out),
            false => push_title(c, &mut out),
        }
        inside = CASED.has(c);
    }
    out
}

/// `str.capitalize()`
pub fn python_capitalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match at {
            0 => push_title(c, &mut out),
            _ => push_lower(text, at, c, &mut out),
        }
    }
    out
}

/// `str.swapcase()`
pub fn python_swapcase(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        if c.is_uppercase() {
            push_lower(text, at, c, &mut out);
        } else if c.is_lowercase() {
            out.extend(c.to_uppercase());
        } else {
            out.push(c);
        }
    }
    out
}

/// `str.isupper()` or `str.islower()`: some letter has a case, and all that have one have this.
pub fn is_all_case(text: &str, upper: bool) -> bool {
    let mut found = false;
    for c in text.chars() {
        let (right, wrong) = match upper {
            true => (c.is_uppercase(), c.is_lowercase()),
            false => (c.is_lowercase(), c.is_uppercase()),
        };
        if wrong || TITLECASE.has(c) {
            return false;
        }
        found |= right;
    }
    found
}

/// `str.istitle()`
pub fn is_title(text: &str) -> bool {
    let (mut found, mut inside) = (false, false);
    for c in text.chars() {
        let large = c.is_uppercase() || TITLECASE.has(c);
        if large == inside && (large || c.is_lowercase()) {
            return false;
        }
        inside = large || c.is_lowercase();
        found |= inside;
    }
    found
}

/// A word character of Python's `re`: `\w`.
pub fn is_word_char(c: char) -> bool {
    c == '_' || LETTER.has(c) || NUMERIC.has(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_printed_as_python_does() {
        for (number, text) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e16, "1e+16"),
            (123456789012345.0, "123456789012345.0"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (1.5e300, "1.5e+300"),
        ] {
            assert_eq!(python_float(number), text);
        }
    }

    #[test]
    fn lines_and_titles() {
        let lines = python_split_lines("a\r\nb\rc\n\nd\u{2028}", false);
        assert_eq!(lines, ["a", "b", "c", "", "d"]);
        assert_eq!(python_split_lines("a\r\nb", true), ["a\r\n", "b"]);
        assert_eq!(python_title("they're 2nd \u{1f600}x \u{fb01}n"), "They'Re 2Nd \u{1f600}X Fin");
        assert_eq!(python_title("ΟΔΟΣ σ"), "Οδος Σ");
    }

    #[test]
    fn strings_are_escaped_as_python_does() {
        let mut out = String::new();
        write_string_repr("it's\u{a0}\u{200b}é\u{1f600}\u{e000}", false, &mut out);
        assert_eq!(out, "\"it's\\xa0\\u200bé\u{1f600}\\ue000\"");
    }
}
