//! What PID 1 shows people: the board and the sheet that draws it, what the kernel says, what ends a boot for good.

pub(crate) mod board;
pub(crate) mod fatal;
pub(crate) mod kmsg;
pub(crate) mod last_words;
pub(crate) mod sheet;
