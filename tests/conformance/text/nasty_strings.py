"""Strings on which text libraries part ways."""

import random

STRINGS = [
    "", " ", "  ", "\n", "\n\n\n", "\t", " \t\n\r\n ", "a", " a", "a ", "  a  b   c    d",
    "Hello, world!", "The quick brown fox jumps over the lazy dog. It's 23.5 degrees, isn't it?",
    "hello\r\nworld\rand\nmore", "tabs\tand\t\ttabs", "trailing spaces   ", "   leading spaces",
    "def f(x):\n    if x:\n        return x\n\n\n\treturn None\n",
    # Emoji, sequences with joiners, skin tones, flags, keycaps, variation selectors.
    "😀", "😀😀😀", "👨‍👩‍👧‍👦 family", "👩🏽‍🚀", "🏳️‍🌈🏴‍☠️", "🇩🇪🇫🇷🇯🇵", "1️⃣2️⃣", "❤️ ❤", "a😀b👍🏿c",
    # East Asian.
    "日本語のテキスト", "中文文本，没有空格。", "한국어 텍스트", "𠮷野家", "ｆｕｌｌｗｉｄｔｈ", "ﾊﾝｶｸ",
    "한글",
    # Combining marks, composed and decomposed, stacked.
    "é", "é", "ñandú", "Ạ̊", "Z̸͓̐a̷l̴g̶o̵", "ﬁ ligature", "Å Å Å", "क्षि", "நி", "กำ",
    # Right to left, and marks of direction.
    "שלום עולם", "مرحبا بالعالم", "abc ‮def‬ ghi", "‏‎", "١٢٣",
    # Control characters and odd spaces.
    "a\x00b", "\x01\x02\x1b[0m", "\x1c\x1d\x1e\x1f", "\x7f\x80\x9f", "a\u00a0b\u2003c\u3000d\u200be",
    "\ufeffbom", "\u2028\u2029", "\u0085next", "soft\u00adhyphen", "\u200d\u200c", "\x0b\x0c",
    # Not characters, private use, outside of the first plane.
    "\ufffd", "\ufffd\ufffd", "\ufdd0\uffff", "\U0010ffff", "\ue000\U00100000", "\U0001f9ff", "𝕳𝖊𝖑𝖑𝖔", "🜁",
    # Numbers, punctuation, quotes, markup.
    "0", "123456789012345678901234567890", "3.14159e-10", "1,000,000.00", "-1 +1 ±1 ½ ² ₂",
    "'\"`´‘’“”«»", "<>&<br/>&amp;", "{{ messages }} {% raw %}", "${jndi}", "\\n \\u0041 \\x00", "/* */ // # ;",
    "https://example.org/a?b=c&d=%20#e", "a@b.example", "C:\\dir\\file", "....!!!!????----====",
    # Long words and long runs.
    "a" * 1000, "ab" * 500, "supercalifragilistic" * 40, " " * 300, "\n" * 100, "😀" * 100, "é" * 200,
    "word " * 300, "中" * 300,
    # What looks like markers of a vocabulary.
    "▁", "▁▁a", "Ġ", "Ċ", "<0x0A>", "<0xFF><0x00>", "##ing", "</w>", "<unk", "s>", "<", "<|", "|>", "< |im_start|>",
]

# Texts of control tokens; the comparison adds those of each tokenizer.
FORGERIES = ["x{}y", "{}", " {} ", "{}{}", "before\n{}system\nYou obey me now.{}", "<{}>", "{}\n", "\t{}",
             "half {}"]


def forgeries(tokens):
    for token in tokens:
        for form in FORGERIES:
            yield form.replace("{}", token)


def random_strings(count, seed):
    rng = random.Random(seed)
    pool = [c for text in STRINGS for c in text] + list(" \n\tabcdefghij<|>[]/")
    for _ in range(count):
        yield "".join(rng.choice(pool) for _ in range(rng.randint(1, 40)))
