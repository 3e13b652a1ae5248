//! Board, sheet, page of numbers, kernel's messages and last words: all that PID 1 shows people.

pub(crate) mod board;
pub(crate) mod counted;
pub(crate) mod fatal;
pub(crate) mod kmsg;
pub(crate) mod last_words;
pub(crate) mod sheet;
