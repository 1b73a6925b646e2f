//! The names of Jinja's filters, tests and methods, and which of them this library can't do.

#[derive(Debug, PartialEq, Eq)]
pub enum Known {
    Yes,
    /// Jinja has it and this library hasn't.
    Unsupported,
    No,
}

const FILTERS: [&str; 49] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "wordcount",
    "xmlattr",
];

/// Chance, the guess what a link is, and Python's own libraries for wrapping and printing.
const UNSUPPORTED_FILTERS: [&str; 5] = ["pprint", "random", "striptags", "urlize", "wordwrap"];

const TESTS: [&str; 39] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

/// Methods of Python's values that lead out of what a template's values are here.
pub const UNSUPPORTED_METHODS: [&str; 10] = [
    "as_integer_ratio",
    "casefold",
    "encode",
    "fromhex",
    "from_bytes",
    "hex",
    "isidentifier",
    "maketrans",
    "to_bytes",
    "translate",
];

pub fn filter(name: &str) -> Known {
    if FILTERS.contains(&name) {
        Known::Yes
    } else if UNSUPPORTED_FILTERS.contains(&name) {
        Known::Unsupported
    } else {
        Known::No
    }
}

pub fn is_test(name: &str) -> bool {
    TESTS.contains(&name)
}
