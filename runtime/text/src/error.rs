//! The one error type: a code that C++ maps to `absl::StatusCode`, and a sentence for a person.

use std::fmt;

/// What kind of failure it was. The numbers are those of `absl::StatusCode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// The caller's text, messages or template arguments can't be used.
    InvalidArgument = 3,
    /// A file or a template isn't there.
    NotFound = 5,
    /// A named bound was reached.
    ResourceExhausted = 8,
    /// Right request, wrong moment or wrong model for it.
    FailedPrecondition = 9,
    /// The model's template said no (`raise_exception`); the message is the template's.
    Aborted = 10,
    /// A prompt that is longer than the model's context.
    OutOfRange = 11,
    /// A defect of this library.
    Internal = 13,
    /// Whatever does it is busy: the same may be done later.
    Unavailable = 14,
    /// A file says what can't be true.
    DataLoss = 15,
}

impl Code {
    /// The code of this number; one that is none is a defect.
    pub fn of(number: u64) -> Code {
        use Code::*;
        let all = [
            InvalidArgument,
            NotFound,
            ResourceExhausted,
            FailedPrecondition,
            Aborted,
            OutOfRange,
            Unavailable,
            DataLoss,
        ];
        all.into_iter().find(|code| *code as u64 == number).unwrap_or(Internal)
    }
}

/// A failure with a sentence that says what happened and where.
#[derive(Clone, Debug)]
pub struct TextError {
    /// What kind of failure it was.
    pub code: Code,
    /// What happened, to which file, and what to do next.
    pub message: String,
}

impl TextError {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        TextError { code, message: message.into() }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        TextError::new(Code::InvalidArgument, message)
    }

    pub fn data_loss(message: impl Into<String>) -> Self {
        TextError::new(Code::DataLoss, message)
    }

    pub fn exhausted(message: impl Into<String>) -> Self {
        TextError::new(Code::ResourceExhausted, message)
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TextError {}

pub type Result<T> = std::result::Result<T, TextError>;
