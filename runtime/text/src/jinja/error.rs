//! Why a template could not be compiled or rendered.

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The template does what Jinja forbids too.
    Failed,
    /// `raise_exception`; the message is the template's.
    Raised,
    /// A bound on steps or time.
    Steps,
    /// More memory than a prompt can need.
    Memory,
    /// More output than a prompt may have.
    Output,
    /// Jinja can do it and this library can't.
    Unsupported,
}

#[derive(Clone, Debug)]
pub struct Error {
    pub kind: Kind,
    pub message: String,
    /// The line of the template; 0 when it isn't known.
    pub line: u32,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(message: impl Into<String>) -> Error {
        Error { kind: Kind::Failed, message: message.into(), line: 0 }
    }

    pub fn of(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), line: 0 }
    }

    pub fn unsupported(what: impl std::fmt::Display) -> Error {
        Error::of(Kind::Unsupported, format!("it uses {what}, which is not supported"))
    }

    /// Adds the line, unless a place further inside gave one.
    pub fn at(mut self, line: u32) -> Error {
        if self.line == 0 {
            self.line = line;
        }
        self
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "{} (line {line})", self.message),
        }
    }
}
