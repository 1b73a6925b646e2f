"""Every filter, test, method, operator and rule of Jinja, by value: what `transformers` renders.

`TEMPLATES` are (source, list of variables): each source is rendered once with each entry. A source
of the tables sees the value under test as `x`; values that JSON can't spell are made by `PRELUDE`.
"""

import itertools

# Made inside of the template, by the name in `k`.
PRELUDE = (
    "{% set x = (1, 'b', 2.5) if k == 'tuple' else () if k == 'no tuple' else (1,) if k == 'one' "
    "else range(4) if k == 'range' else nothing if k == 'undefined' else '<b>&'|e if k == 'markup' "
    "else 'plain'|safe if k == 'safe' else {1: 'a', 2.5: 'b', none: 'c', true: 'd'} if k == 'keys' "
    "else {'a': 1, 'b': 2}.items() if k == 'items' else [3, 1, 2]|map('string') if k == 'generator' "
    "else namespace(a=1, b='x') if k == 'namespace' else [(1, 2), (3,)] if k == 'tuples' "
    "else {'a': 1}.keys() if k == 'key view' else range if k == 'function' else 2 ** 70 if k == 'big' "
    "else [1, 2]|reverse if k == 'reversed' else cycler(1, 2) if k == 'cycler' else given %}")
MADE = ["tuple", "no tuple", "one", "range", "undefined", "markup", "safe", "keys", "items",
        "generator", "namespace", "tuples", "key view", "function", "big", "reversed", "cycler"]
GIVEN = [
    None, True, False, 0, 1, -7, 255, 12345678901, 0.0, -0.0, 1.0, 2.5, -3.75, 0.1, 1e16, 1e-7, 1.5e300,
    123456.789, 2.675, "", "a", "Hello World", "  pad\t\n", "42", " -17 ", "3.99", "1e3", "0x1F", "1_000",
    "it's \"q\" \\ \n\t\r\x07\x7f\x85\xa0\xad", "Größe STRASSE ß ŉ ǆ ﬁ ΟΔΟΣ", "日本語 中文", "\U0001f600 e\u0301 \u200b\u2028x",
    "a,b,,c", "key=value", "<b>\"x\" & 'y'</b>", "100%", "%s and %d", "{} {0} {a}", "line one\n\nline two\r\nthree",
    "ALL UPPER 1", "٣٤", "²", "Ⅷ", "tail ", "x-y_z (w) [v] {u} <t>", "\ue000\U0010ffff",
    [], [1], [3, 1, 2], ["b", "A", "c", "a"], [1, 2.0, True, None, "x"], [[1, 2], [3]], [0, "", None, False],
    {}, {"a": 1}, {"b": 2, "A": 1, "c": [1, {"d": None}]}, {"items": 1, "get": 2, "keys": [3]},
    [{"n": "x", "v": 2}, {"n": "y", "v": 1}, {"n": "X", "v": 3}], {"n": {"m": [10, 20]}}, {"1": "one", "x y": "<&>"},
]
VALUES = [dict(k=name, given=None) for name in MADE] + [dict(k="", given=value) for value in GIVEN]

# To text, by every way.
TO_TEXT = [
    "x", "x ~ ''", "x ~ x", "'' ~ x ~ 1", "[x]", "[x]|join", "[x, x]|join('-')", "'%s' % x", "'%s' % (x,)",
    "'%r' % (x,)", "'%a' % (x,)", "'%s|%s' % (x, 1)", "'%10s|' % (x,)", "'%-10.3s|' % (x,)", "'%s'|format(x)",
    "'%(a)s'|format(a=x)", "'{}'.format(x)", "'{!r}'.format(x)", "'{!s:>12}'.format(x)", "'{0} {0!a}'.format(x)",
    "'{a}'.format(a=x)", "'{:>8}'.format(x)", "'{:08}'.format(x)", "'{x[0]}'.format(x=x)", "'{x.a}'.format(x=x)",
    "x|string", "x|upper", "x|lower", "x|title", "x|capitalize", "x|trim", "x|trim('a ')", "x|replace('a', 'b')",
    "x|replace('', '-')", "'abc'|replace('b', x)", "x|center(20)", "x|e", "x|forceescape", "x|safe", "x|escape ~ '<'",
    "x|safe + '<'", "'<' + x|e", "x|e|upper + '&'", "x|tojson", "x|tojson(indent=2)", "x|tojson(ensure_ascii=true)",
    "x|tojson(separators=(',', ':'))", "x|tojson(sort_keys=true)", "x|tojson(indent=1, sort_keys=true)",
    "{'k': x}", "(x,)", "{'k': x}|tojson", "[x]|tojson", "(x, 1)|tojson(indent='  ')", "x|urlencode", "x|string|length",
    "x|default('D')", "x|default('D', true)", "x|d", "x|indent", "x|indent(2, true)", "x|indent('>', blank=true)",
    "x|truncate(5)", "x|truncate(8, true, '…', 0)", "x|wordcount", "x|filesizeformat", "x|filesizeformat(true)",
    "x|xmlattr", "x|attr('upper') is defined", "x|attr('a')", "dict(a=x)", "namespace(a=x)", "(x if x)", "x if not x",
]
FILTERS = [
    "x|length", "x|count", "x|list", "x|first", "x|last", "x|reverse", "x|reverse|list", "x|sort", "x|sort(true)",
    "x|sort(case_sensitive=true)", "x|sort(attribute='n')", "x|sort(attribute='v,n', reverse=true)", "x|unique|list",
    "x|unique(true)|list", "x|unique(attribute='n')|list", "x|min", "x|max", "x|min(attribute='v')", "x|max(true)",
    "x|sum", "x|sum(start=0.5)", "x|sum(attribute='v')", "x|sum(start=[])", "x|join(',')", "x|join(', ', attribute='n')",
    "x|join(1)", "x|batch(2)|list", "x|batch(2, 'z')|list", "x|slice(2)|list", "x|slice(2, 'z')|list", "x|items|list",
    "x|dictsort", "x|dictsort(true)", "x|dictsort(by='value')", "x|dictsort(reverse=true)", "x|map('upper')|list",
    "x|map('string')|join('|')", "x|map(attribute='n')|list", "x|map(attribute='n', default='?')|list", "x|map('int')|list",
    "x|map('default', 'q')|list", "x|map('replace', 'a', 'b')|list", "x|select|list", "x|reject|list", "x|select('string')|list",
    "x|select('equalto', 1)|list", "x|reject('none')|list", "x|select('in', [1, 2, 'a'])|list", "x|selectattr('v')|list",
    "x|selectattr('v', 'gt', 1)|list", "x|rejectattr('n', 'equalto', 'x')|list", "x|selectattr('n', 'defined')|list",
    "x|groupby('n')", "x|groupby('n', case_sensitive=true)", "x|groupby('q', default='none')", "x|abs", "x|int", "x|int(7)",
    "x|int(0, 16)", "x|int(base=0)", "x|int(default='no')", "x|float", "x|float(1.5)", "x|float('no')", "x|round", "x|round(1)",
    "x|round(2)", "x|round(-2)", "x|round(1, 'ceil')", "x|round(1, 'floor')", "x|round(0, 'ceil')|int", "x|list|tojson",
    "x|list|string", "x|list|length", "x|first|default('none')", "x|map('length')|list", "x|unknown if false else 'soft'",
    "x|map('unknown')|list", "x|select('unknown')|list",
]
TESTS = ["boolean", "callable", "defined", "escaped", "even", "false", "filter", "float", "integer", "iterable", "lower",
         "mapping", "none", "number", "odd", "sequence", "string", "test", "true", "undefined", "upper", "divisibleby 3",
         "divisibleby(2)", "sameas none", "sameas true", "in [1, 'a', 2.5, none]", "in 'abc'", "in x", "eq 1", "== 1.0",
         "equalto 'a'", "ne 1", "gt 1", "greaterthan 2", "ge 1", "lt 2", "lessthan 'b'", "le 1", "not none", "not defined"]
METHODS = [
    "capitalize()", "center(20)", "center(15, '*')", "count('a')", "count('')", "count('a', 1, 5)", "endswith('d')",
    "endswith(('x', 'd'))", "expandtabs(4)", "find('o')", "find('')", "find('l', 3)", "format('p', a='q')", "index('a')",
    "isalnum()", "isalpha()", "isascii()", "isdecimal()", "isdigit()", "islower()", "isnumeric()", "isprintable()",
    "isspace()", "istitle()", "isupper()", "join(['p', 'q'])", "join('ab')", "join([1])", "ljust(12)", "ljust(12, '.')",
    "lower()", "lstrip()", "lstrip('Ha')", "partition('=')", "partition(' ')", "removeprefix('He')", "removesuffix('ld')",
    "replace('l', 'L')", "replace('l', 'L', 1)", "replace('', '.')", "replace('', '.', 2)", "rfind('o')", "rfind('')",
    "rindex('o')", "rjust(12)", "rpartition(' ')", "rsplit()", "rsplit(' ')", "rsplit(none, 1)", "rsplit(',', 1)", "rstrip()",
    "split()", "split(' ')", "split(',')", "split(none, 1)", "split(' ', 1)", "split(',', maxsplit=1)", "split('')",
    "split('\\n')", "splitlines()", "splitlines(true)", "startswith('H')", "startswith(('a', 'H'))", "startswith('e', 1)",
    "strip()", "strip('d ')", "swapcase()", "title()", "upper()", "zfill(8)", "get('a')", "get('zz')", "get('zz', 'dd')",
    "get(1)", "items()", "items()|list", "keys()", "keys()|list", "values()", "values()|list", "values()|list|tojson", "copy()",
    "pop()", "append(1)", "update({})", "count(1)", "index(1)", "index(3, 0, 2)", "bit_length()", "conjugate()",
    "nothing()", "format_map({'a': 1})", "fromkeys(['a'], 0)",
]
ATTRIBUTES = ["a", "n", "real", "imag", "numerator", "start", "items", "keys", "append", "upper", "__class__", "_x", "a.b",
              "n.m.0", "0", "1", "-1", "get"]
SUBSCRIPTS = ["0", "-1", "5", "1.0", "true", "'a'", "'items'", "'upper'", "none", "1:", ":2", "::2", "::-1", "-2:", "1:-1", "10:",
              "-10:2", "3:1:-1", "none:none", ":none:2", "'a':", "0, 1", "nothing"]
OPERANDS = ["0", "1", "2", "-3", "7", "0.5", "-2.5", "1e3", "true", "none", "''", "'ab'", "'%s'", "[]", "[1]", "(1,)", "()", "{}",
            "{'a': 1}", "nothing", "range(2)", "'<'|safe", "10**20", "9007199254740993", "9007199254740992.0"]
# A text so many times, or a power of it, is more than a machine's memory: Python tries.
LARGE = ["10**20", "9007199254740993", "9007199254740992.0"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]

EXPRESSIONS = """
1 + 2 * 3 ** 2 - -1
2 ** 3 ** 2
-2 ** 2
(-2) ** 2
2 ** -1
-1|abs
(-1)|abs
- 1 ~ 'a'
1 - 1 ~ 'a'
1 ~ 2 + 3
7 // 2 ~ ' ' ~ -7 // 2 ~ ' ' ~ 7 // -2 ~ ' ' ~ -7 % 3 ~ ' ' ~ 7 % -3
7.5 // 2 ~ ' ' ~ -7.5 // 2 ~ ' ' ~ -7.5 % 2 ~ ' ' ~ 7.5 % -2
1 / 3 ~ ' ' ~ 10 / 5 ~ ' ' ~ 1e20 / 3
0.1 + 0.2
1 < 2 < 3
3 > 2 > 2
1 < 2 == true
1 == 1.0 == true
not 1 in [1]
not true == false
1 in [1] == true
'a' not in 'abc' or 'b' in 'abc'
'a' < 'b' and [1, 2] < [1, 3] and (1,) < (1, 0)
true + true
true ~ none ~ 1.0 ~ 1
none ~ true ~ false ~ 1e100 ~ 1e22 ~ 123456789.0 ~ 1e-5
'a' 'b' "c"
'a' * 3 ~ [1] * 2 ~ (1,) * 2 ~ 2 * 'b' ~ -1 * 'c'
[1] + [2] ~ (1,) + (2,)
'%05.1f|%+d|%x|%X|%o|%e|%g|%c|%%|%5s|%-5s|' % (3.14159, 5, 255, 255, 8, 12345.678, 0.0001, 65, 'a', 'b')
'%g %g %g %G %#x %#o % d %05d %-5d| %.3d' % (1e10, 123456, 1234567, 1e-10, 255, 8, 5, -42, 7, 5)
'%*d|%.*f|%i|%u' % (5, 42, 2, 3.14159, 7, 8)
'%(a)s %(b)05d' % {'a': 'x', 'b': 42}
'%s' % {'a': 1}
'%d' % 3.99
'%d' % '3'
'%s %s' % ('a',)
'%s' % ('a', 'b')
'{:,} {:_} {:,.2f} {:+} {:e} {:%} {:x} {:#b} {:^9}| {:<5}| {:*>7}|'.format(1234567, 1234567, 1234567.891, 5, 12345.678, 0.256, 255, 5, 'mid', 'l', 'r')
'{:g} {:g} {:.3} {:.3} {:010.3f} {:=+8d} {:08,d} {:c}'.format(1e10, 0.0001, 3.14159, 1e10, -3.14159, 42, 12345, 97)
'{:.0f} {:.0f} {:.0f} {:.1f} {:.2f}'.format(0.5, 1.5, 2.5, 0.25, 2.675)
'{:z.1f} {:#x} {:#.0f} {:n} {:d}'.format(-0.01, 255, 3, 7, true)
'{0[a]} {0.b} {1[0]} {c[d]}'.format({'a': 1, 'b': 2}, [5], c={'d': 9})
'{{}} {}'.format(1)
'{:{}}|{:>{w}}'.format('a', 5, 'b', w=4)
'{} {1}'.format(1, 2)
'{'.format(1)
'{}'.format()
'{:s} {:.2}'.format('abc', 'abc')
'{!x}'.format(1)
'{:d}'.format('a')
'{a.b.c}'.format(a={'b': {'c': 1}})
'{a[b][0]}'.format(a={'b': [7]})
'{}'.format('<')|e
'%s'|safe % '<'
'{}'|safe|string
('{}'|safe).format('<')
('<'|e).join(['>', 'a'])
('a<'|e)|replace('a', '>')
('<b>'|e).split('&')
('<b>'|e)[0:3] + '<'
('<b>'|e).upper() ~ '<'
['<', '>'|safe]|join('&')
'a' is string and 1 is not string
1 is divisibleby 1 and 2 is odd
4 is divisibleby(2) ~ (3 is odd)
[1, 2, 3]|first ~ [1, 2, 3]|last
[1, 2, 3].0 ~ [1, 2, 3].2
[[1, 2], [3, 4]].1.0
[[1, [7, 8]]].0.1.1
{'a': [{'b': 1}]}.a.0.b
x.0.1 is defined
(1, 2).0
'abc'[1] ~ 'abc'[-1] ~ 'abc'[1:] ~ 'abc'[::-1]
'日本語'[1:2] ~ '日本語'|length
1_000 + 0x1f + 0b11 + 0o17
1e3 ~ 1.5e-3 ~ 1_0.0_1 ~ 0
00
1.
1.e5
.5
'\\x41\\u00e9\\U0001f600\\n\\t\\\\\\'\\"\\101\\q\\
end'
'\\N{DIGIT ONE}'
'\\ud83d'
'\\x4'
{'a': 1, 'a': 2}
{1: 'a', true: 'b', 1.0: 'c'}
{(1, 2): 'a'}
{[1]: 'a'}
{'a': 1}['a'] ~ {1: 2}[1] ~ {1: 2}[true]
{'a': 1} == {'a': 1.0}
[1, [2]] == [1, [2.0]]
(1, 2) == [1, 2]
none == nothing
nothing == also_nothing
nothing in [1]
nothing in nothing
1 in nothing
nothing.a
nothing['a']
nothing()
nothing + 1
nothing ~ 'a'
nothing[1:]
{}.a.b
{}.a is defined
{}['a']['b'] is defined
'a'.b
1.real
(1).real
1 if nothing else 2
(1 if false)
(1 if false) is defined
(1 if false) ~ 'a'
'a' if 1 else 'b' if 2 else 'c'
1 if 0 else 2 if 0 else 3
range(5)|list ~ range(1, 5, 2)|list ~ range(5, 0, -2)|list ~ range(0)|list
range(5)[1:3] ~ range(5)[-1] ~ range(10)[::3] ~ range(5)|length
range(100001)
range(0, 1, 0)
range('a')
range(1.0)
3 in range(5)
dict(a=1, b=2)
dict([('a', 1)], b=2)
dict({'a': 1}, **{'b': 2})
dict(*[[('k', 'v')]])
namespace(a=1).a
namespace(_a=1)
namespace(a=1)['a']
namespace({'a': 2}).a
cycler('a', 'b').next()
cycler()
joiner()() ~ joiner('-')()
lipsum(1)
raise_exception('no')
raise_exception('a' ~ 1)
raise_exception()
strftime_now('%Y-%m-%d %H:%M:%S %d %B %b %A %a %j %y %e %-d %p %I %M')
strftime_now('%D %F %T %R %c %x %X %U %W %V %G %u %w %C %h %n %t %% %Q')
'a'|upper|lower|title
'a'|default('b')|upper
'a' |  upper
[3, 1]|sort|first
[1, 2]|join(d='-')
['a', 'b']|map('upper')
['a', 'b']|map('upper')|join
[1, 2, 3]|select('odd')|list|length
[1, 2, 3]|map('string')|length
'abc'|list|join('.')
'abc'|reverse ~ 'abc'|first ~ 'abc'|last
'a b'|urlencode ~ {'a b': 'c/d'}|urlencode ~ [('x', 'y z')]|urlencode
'foo bar baz qux'|truncate(9) ~ 'foo bar baz qux'|truncate(9, true) ~ 'foo bar baz qux'|truncate(11, false, '...', 0)
'x'|truncate(1)
'hello there-world (foo) [bar]'|title
"they're bill's"|title
'a\\nb\\n\\nc'|indent(2)
'a\\nb'|indent(width=3, first=true)
'42.23'|int ~ '0b101'|int(0, 2) ~ 'ff'|int(base=16) ~ '0o7'|int(0, 0) ~ 'z'|int(-1) ~ '1_0'|int
'inf'|float ~ 'nan'|float ~ '-Infinity'|float ~ '1_0.5'|float ~ '1__0'|float
'inf'|float|int
42.55|round ~ 42.55|round(1, 'floor') ~ 2.5|round ~ 3.5|round ~ 0.5|round ~ 1e22|round ~ 5|round ~ 5.0|round
1234.5678|round(-2) ~ 1250|round(-2) ~ 1350|round(-2) ~ 2.675|round(2) ~ 1e-10|round(5)
1|round(1, 'x')
2.5|round(none)
'a'|round
true|int ~ true|float ~ none|int ~ none|float ~ []|int ~ 1.9|int ~ -1.9|int ~ 1e20|int
true|abs ~ -2.5|abs
[1, 'a']|sort
[none, 1]|max
[2, 1.5, true]|min ~ ['b', 'A']|min ~ ['b', 'A']|min(true)
[]|min
[]|first
[]|last ~ []|sum ~ []|max
[[1], [2]]|sum(start=[])
['a', 'b']|sum(start='')
{'b': 1, 'a': 2}|dictsort ~ {'b': 1, 'a': 2}|dictsort(by='value') ~ {'b': 1, 'a': 2}|list ~ {'b': 1, 'a': 2}|first
{'a': 1}|items|list ~ {'a': 1}|length
[1, 2, 3, 4, 5]|batch(2)|list ~ [1, 2, 3, 4, 5]|slice(3)|list ~ [1, 2, 3, 4, 5]|batch(3, 0)|list
[1, 2]|batch(0)|list
[1, 2]|slice(0)|list
{'a': {'b': [1, 2]}}|attr('a')
'a'|attr('upper')()
[{'a': {'b': 1}}]|map(attribute='a.b')|list
[['x', 'y']]|map(attribute=1)|list
[[1, 2], [3]]|map('first')|list
[{'a': 1}]|selectattr('a', 'equalto', 1)|map(attribute='a')|first
[1, 2]|tojson ~ {'a': none}|tojson ~ 'é'|tojson ~ 'é'|tojson(ensure_ascii=true) ~ 1.0|tojson ~ (1,)|tojson
{'b': 1, 'a': [1, {'c': 2}], 'e': [], 'd': {}}|tojson(indent=2)
{'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':'))
{1: 1, 2.5: 2, true: 3, none: 4}|tojson
{(1, 2): 3}|tojson
[1, 2]|tojson(indent=0)
[1, [2]]|tojson(indent='\\t')
[1]|tojson(true, 2)
[1]|tojson(unknown=1)
nothing|tojson
{'a': nothing}|tojson
range(3)|tojson
'\\x7f\\x00\\u2028/<>&\\''|tojson ~ '\\x7f\\u2028😀'|tojson(ensure_ascii=true)
1e400 ~ -1e400
1e400|tojson
[1.0, 1e16, 1e-5, 0.1]|tojson
10 ** 20 ~ 2 ** 64 - 1
10 ** 20|tojson
2 ** 0.5 ~ 4 ** 0.5 ~ 0 ** 0
0 ** -1
1 / 0
1 // 0
1 % 0
1.0 % 0
(-8) ** 0.5
'abc' is sameas 'abc'
none is sameas none
[] is sameas []
1 is sameas 1
1 is sameas true
'upper' is filter and 'odd' is test and 'nope' is not filter
x is defined and x is none
x is not defined
1 is 1
'a' is in ['a']
'a' is in('abc')
1 is eq 1 and 2 is gt 1
1 is lessthan 2
'A' is upper and 'a' is lower and '1' is not lower
[] is sequence ~ {} is sequence ~ 'a' is sequence ~ (1,) is sequence ~ 1 is sequence ~ none is iterable
[].append(1)
[].append
[].append is defined
{}.update({'a': 1})
{'a': 1}.pop('a')
[1].copy() ~ {'a': 1}.copy()
[1, 2, 1].count(1) ~ [1, 2].index(2)
(1, 2, 1).count(1) ~ (1, 2).index(2)
'a-b'.split('-')[0]
'a'.upper ~ ''
'a'.upper is callable
'a'.upper is defined
{'items': 1}.items
{'items': 1}['items']
{'items': 1}.items()|list
{'x': 1}.x ~ {'x': 1}['x'] ~ {'x': 1}.get('x')
{}.__class__
''.__class__.__mro__
'a'.encode('utf-8')
'a'.casefold()
'a'.translate({})
1.5.is_integer()
(1.5).is_integer() ~ (2.0).is_integer() ~ (5).bit_length()
self
self.x
loop
loop.index
caller
caller()
varargs
[1, 2,]
(1, 2,)
{'a': 1,}
[,]
f(1)
'a'('b')
none()
'%' % 1
'abc' % ()
'abc' % 1
'abc' % {}
'abc' % []
[1, 2, 3][1:][0]
[1, 2, 3][:]
[1, 2, 3][-2:]
[1, 2, 3][::0]
[1, 2, 3]['a']
[1, 2, 3][1.0]
'abc'['a']
{'a': 1}[[1]]
{'a': 1}[0]
[1, 2][0, 1]
1[0]
none[0]
none.a
none.a.b
true.a
'a' ~ 'b' * 2 ~ 'c'
'a' + 'b' ~ 'c'
'a' + 1
1 + '1'
'1' * '1'
[1] + (1,)
{} + {}
not []
not not 1
1 and 2
0 or 'x'
'' or none or 0
1 and nothing
+'a'
-'a'
-true
+1.5
--1
1--1
1 if true else
'unterminated
(1
[1
{'a'
1)
a b
a.
a..b
a|
a|1
a is
a is not
a[]
a[1
{{ 1 }}
1 ! 2
1 & 2
a = 1
1 <> 2
1 => 2
True and False or None
true True TRUE
TRUE
""".strip("\n").replace("\\\nend", "\\§end").split("\n")

STATEMENTS = [
    # White space
    "a\r\nb\r{% if true %}\r\nc\r\n{% endif %}\r\nd\r\n",
    "a\n{% if true %}\nb\n{% endif %}\nc\n", "  {% if true %}  \n  b\n  {% endif %}  \n",
    "a {%- if true -%} b {%- endif -%} c", "a {%+ if true +%}\n b {%+ endif %} c", "  {%- if true %} x{% endif +%}\n y",
    "{{ 1 }}\n{{ 2 }}\n", "a\n\n", "a\n", "\n", "", " \n {# c #} \n x", "a {#- c -#} b", "{# c #}\nx", "  {# c +#}\nx",
    "{% raw %}{{ x }}{% endraw %}", "{% raw %}\n {{ x }}\n{% endraw %}\ny", "{%- raw -%} a {%- endraw -%} b",
    "x\n  {% raw %} a\n  {% endraw %}\n b", "\t{% set a = 1 %}\t{{ a }}\n", "a\x1c{%- set b = 1 -%}\x1db", "a\xa0{%- if 1 -%}\xa0b{% endif %}",
    "{{- 'a' -}}  b", "x  {{- 'a' }}  b", "x {{+ 1 }}", "{%if true%}a{%endif%}", "{{1}}{{'}}'}}{{ {'a': {'b': 1}} }}",
    "{% if true %}a{% else %}b{% endif %}\n\n\nc", "{%- for i in [1, 2] %}\n {{ i }}\n{%- endfor %}\n", "}} %} #} {", "{ { x } }", "{",
    "line {{ 1 }} {# multi\nline #} end", "{% if x == '%}' %}a{% endif %}b", "{{ '{{' }}{{ \"{%\" }}", "{{ 'a\nb' }}", "{{ 'a\r\nb'|length }}",
    "   {{ 1 }}", "{% set x = 1 %}   {% set y = 2 %}z", "a\n   {%- set x = 1 %}\n   b", "{% filter upper %}a{% endfilter %}", "é{%- if 1 %}ü{% endif -%} ñ",
    # Loops
    "{% for i in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}"
    "{{ loop.revindex0 }}{{ loop.depth }}{{ loop.depth0 }}|{% endfor %}",
    "{% for i in [1, 2, 3] %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{{ loop.cycle('a', 'b') }}{{ loop.changed(i // 2) }}{% endfor %}",
    "{% for i in [] %}a{% else %}b{% endfor %}", "{% for i in [1] %}a{% else %}b{% endfor %}", "{% for i in nothing %}a{% else %}b{% endfor %}",
    "{% for i in none %}a{% endfor %}", "{% for i in 5 %}a{% endfor %}", "{% for c in 'añ😀' %}{{ c }}-{% endfor %}",
    "{% for k in {'a': 1, 'b': 2} %}{{ k }}{% endfor %}", "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }}{% endfor %}",
    "{% for k, v in {'a': 1}|items %}{{ k }}{{ v }}{% endfor %}", "{% for k, v in {'b': 1, 'a': 2}|dictsort %}{{ k }}{{ v }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}",
    "{% for i in [1, 2, 3, 4] if i % 2 == 0 %}{{ i }}{{ loop.index }}{{ loop.last }}{{ loop.length }}{% endfor %}",
    "{% for i in [1, 2, 3] if i > 5 %}a{% else %}none{% endfor %}", "{% for i in [1, 2, 3, 4] if i is odd %}{{ loop.nextitem }},{{ loop.revindex }};{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for i in [1, 2, 3] if ns.n < 2 %}{% set ns.n = ns.n + 1 %}{{ i }}{% endfor %}",
    "{% for i in [1, 2, 3, 4] %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1, 2] %}{% continue %}{% else %}else{% endfor %}", "{% for i in [1, 2] %}{% break %}{% else %}else{% endfor %}",
    "{% break %}", "{% if 1 %}{% continue %}{% endif %}", "{% for i in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for i in [1, 2] %}{% set x %}a{% break %}{% endset %}{% endfor %}b", "{% for i in [1, 2] %}{% filter upper %}a{% break %}{% endfilter %}{% endfor %}b",
    "{% for i in [1, 2] %}{% for j in [3, 4] %}{{ loop.index }}{{ i }}{{ j }} {% if j == 3 %}{% continue %}{% endif %}{% break %}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for item in [{'n': 'a', 'c': [{'n': 'b', 'c': []}]}] recursive %}{{ loop.depth }}{{ item.n }}{% if item.c %}({{ loop(item.c) }}){% endif %}{% endfor %}",
    "{% for i in [1, [2, [3]]] recursive %}{% if i is iterable %}[{{ loop(i) }}]{% else %}{{ i }}{% endif %}{% else %}empty{% endfor %}",
    "{% for i in [1] %}{{ loop([2]) }}{% endfor %}", "{% for i in [1] %}{{ loop }}{% endfor %}", "{% for i in [1, 2]|map('string') %}{{ loop.length }}{{ loop.last }}{{ i }}{% endfor %}",
    "{% for i in [1, 2] %}{{ loop|length }}{% endfor %}", "{% set g = [1, 2]|map('string') %}{% for i in g %}{{ i }}{% endfor %}{% for i in g %}{{ i }}{% endfor %}",
    "{% set g = [1, 2, 3]|map('string') %}{% for i in g %}{{ i }}{% break %}{% endfor %}{{ g|list }}", "{% set g = [1, 'a']|map('abs') %}{{ g|first }}",
    "{% set g = [1, 'a']|map('abs') %}{% for i in g %}{{ i }}{% endfor %}", "{% for i in range(3) %}{{ i }}{% endfor %}{{ i }}", "{% for loop in [1] %}{% endfor %}",
    "{% for i in [1] %}{% set loop = 2 %}{% endfor %}", "{% set loop = 1 %}{{ loop }}", "{% for i in [1, 2] %}{% if loop.first %}{% set o = loop %}{% endif %}{{ o.index }}{% endfor %}",
    "{% for a in [1, 2] %}{% set outer = loop %}{% for b in [1, 2] %}{{ outer.index }}.{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in [1, 2] %}{{ x }}{% endfor %}{{ x }}", "{% for i in (1, 2), (3, 4) %}{{ i }}{% endfor %}", "{% for i in 1, 2 %}{{ i }}{% endfor %}",
    "{% for i in [1,2,3][1:] %}{{ i }}{% endfor %}", "{% for i in x if true else [] %}{{ i }}{% endfor %}", "{% for i in [3,1]|sort %}{{ i }}{% endfor %}",
    # Scopes
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% if false %}{% set x = 2 %}{% endif %}{{ x }}|{{ x is defined }}", "{% if false %}{% set given = 2 %}{% endif %}{{ given }}",
    "{% for i in [1, 2] %}{{ given }}{% set given = i %}{{ given }}{% endfor %}{{ given }}", "{% for i in [1] %}{{ given }}{% endfor %}{% set given = 1 %}{{ given }}",
    "{{ given }}{% for i in [1] %}{{ given }}{% endfor %}{% set given = 1 %}{{ given }}", "{% macro m() %}{{ given }}{% endmacro %}{{ m() }}{% set given = 5 %}{{ m() }}",
    "{% macro m() %}{{ later }}{% endmacro %}{{ m() }}{% set later = 5 %}{{ m() }}", "{% for i in [1, 2] %}{% if i == 1 %}{% set y = 1 %}{% endif %}{{ y }},{% endfor %}",
    "{% for i in [1, 2] %}{% if i == 2 %}{% set given = 'in' %}{% endif %}{{ given }},{% endfor %}{{ given }}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% set a = 3 %}{{ a }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, b) = [1, 2] %}{{ a }}{{ b }}", "{% set a, b = 1 %}", "{% set a = 1, %}{{ a }}", "{% set a = 1, 2 %}{{ a }}",
    "{% set a %}x{{ 1 }}{% endset %}{{ a }}{{ a|length }}", "{% set a | upper | replace('X', 'y') %}x{{ 1 }}z{% endset %}{{ a }}", "{% set a = 1 if false %}{{ a }}{{ a is defined }}",
    "{% set ns = namespace(a=1) %}{% set ns.b = 2 %}{% for i in [1, 2, 3] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns }}{{ ns.c }}",
    "{% set d = {} %}{% set d.a = 1 %}", "{% set ns = namespace() %}{% set ns._a = 1 %}", "{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}",
    "{% set ns = namespace() %}{% set ns.a %}block{% endset %}{{ ns.a }}", "{% set nope.a = 1 %}", "{% set ns = namespace(l=[]) %}{% for i in [1, 2] %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l }}",
    "{% set true = 1 %}", "{% set 1 = 1 %}", "{% set a.b.c = 1 %}", "{% set a[0] = 1 %}", "{% set a =  %}", "{% set %}", "{% set x = y = 1 %}", "{% set range = 3 %}{{ range }}",
    "{{ range }}", "{{ x }}{% set x = 1 %}{{ x }}", "{% set x = x %}{{ x is defined }}", "{% set given = given %}{{ given }}", "{% set given = [given, given] %}{{ given }}",
    "{% if true %}{% for i in [1] %}{% set z = 1 %}{% endfor %}{% endif %}{{ z is defined }}", "{% set f = 'a'.upper %}{{ f() }}", "{% set s = namespace(f=none) %}{{ s.f }}",
    "{% if a %}{% elif given %}{% set w = 1 %}{% else %}{% set w = 2 %}{% endif %}{{ w }}", "{% if nothing %}1{% elif [] %}2{% elif 'x' %}3{% else %}4{% endif %}",
    "{% generation %}a{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}", "{%- generation -%} a {%- endgeneration -%} b", "{% for i in [1] %}{% generation %}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{% for i in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    # Macros
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(c=1, a=2) }}{{ m() }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, a=3) }}", "{% macro m(a=b, b=1) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}{{ m(b=3) }}",
    "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a, a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m() %} x {% endmacro %}[{{ m()|trim }}]",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}body{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% call 1 %}{% endcall %}",
    "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{{ m }}{% macro m() %}{% endmacro %}",
    "{% macro m() %}{% endmacro %}{{ m }}{{ m.name }}{{ m.arguments }}{{ m is callable }}", "{% set ns = namespace(n=0) %}{% macro m() %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endmacro %}{{ m() }}{{ m() }}{{ ns.n }}",
    "{% macro m(ns) %}{% set ns.x = 5 %}{% endmacro %}{% set n = namespace(x=1) %}{{ m(n) }}{{ n.x }}", "{% set x = 1 %}{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}",
    "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ ['a', 'b']|map('upper')|list }}{{ m(m('a')) }}{{ m('a') ~ 'b' }}{{ m('a')|upper }}", "{% macro m() %}{% endmacro %}{{ m(**{'a': 1}) }}", "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 1, 'b': 2}) }}{{ m(1, **{'b': 3}) }}",
    "{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}{{ m(none) }}", "{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1) }}", "{% macro m(caller) %}{{ caller }}{% endmacro %}{{ m(1) }}", "{% if true %}{% macro m() %}a{% endmacro %}{% endif %}{{ m() }}",
    "{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}", "{% macro m() -%}\n  a\n{%- endmacro %}[{{ m() }}]", "{% macro m %}{% endmacro %}", "{% macro m(self) %}{% endmacro %}",
    # Blocks
    "{% filter upper|replace('A', 'b') %}a{{ 'c' }}{% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}", "{% filter nope %}{% endfilter %}", "{% print 1, 2 %}", "{% block a %}x{% endblock %}", "{% include 'x' %}", "{% extends 'x' %}",
    "{% import 'x' as y %}", "{% from 'x' import y %}", "{% autoescape true %}{{ '<' }}{% endautoescape %}", "{% do [].append(1) %}", "{% trans %}a{% endtrans %}", "{% debug %}", "{% nope %}", "{% endif %}", "{% if true %}", "{% if %}{% endif %}", "{% else %}",
    "{% for %}{% endfor %}", "{% for i in %}{% endfor %}", "{% for i %}{% endfor %}", "{% if true %}{% endfor %}", "{{ }}", "{% %}", "{{ 1", "{% if", "{# a", "{{ 1 }} }}", "{% raw %}", "{% endraw %}", "{{ x|nope }}", "{% if false %}{{ x|nope }}{% endif %}ok", "{% if true %}{{ x|nope }}{% endif %}",
    "{% if false %}{{ x is nope }}{% endif %}ok", "{% if false %}{% for i in [] %}{{ i|nope }}{% endfor %}{% endif %}", "{{ (x|nope) if false else 'ok' }}", "{% if 'nope' is filter %}{{ x|nope }}{% else %}no{% endif %}", "{% if true: %}a{% endif %}", "{% for i in [1]: %}a{% endfor %}", "{{ x|random }}", "{{ 'a'|wordwrap }}",
    "{{ messages|length }}{{ messages[0].content }}{{ messages[0]['role'] }}{{ messages[-1].role }}{{ tools is none }}{{ documents }}{{ add_generation_prompt }}", "{{ messages[0] }}", "{{ messages|tojson }}", "{% if tools is iterable and tools|length > 0 %}a{% else %}b{% endif %}", "{% if tools is not none %}a{% endif %}{{ tools is iterable }}{{ tools is sequence }}{{ nothing is iterable }}",
]


def is_large(value):
    return value["k"] == "big" or isinstance(value["given"], int) and abs(value["given"]) > 10**6


def cases():
    """(source, list of variables) in an order that stays."""
    one = [dict(k="", given="G")]
    expressions = itertools.chain(
        TO_TEXT, FILTERS, (f"x is {test}" for test in TESTS), (f"x.{method}" for method in METHODS),
        (f"x.{name}" for name in ATTRIBUTES), (f"x[{key}]" for key in SUBSCRIPTS))
    for expression in expressions:
        yield PRELUDE + "{{ " + expression + " }}", VALUES
    for op in OPERATORS:
        grows = op in ("*", "**")
        for i, other in enumerate(OPERANDS):
            if not (grows and other in LARGE):
                # A part of the values with each operand; all of them with each operator.
                values = VALUES[i % 4::4]
                yield (PRELUDE + "{{ x " + op + " " + other + " }}",
                       [value for value in values if not (grows and is_large(value))])
    for expression in EXPRESSIONS:
        yield "{{ " + expression.replace("§", "\n") + " }}", one
    for source in STATEMENTS:
        yield source, one
