//! An error that nothing can handle: shown, kept for the next boot, and after a while in which a person can read it a
//! reboot. The wait also keeps a machine that fails at every boot from a tight loop.

use std::fmt;
use std::io;
use std::time::Duration;

use model::Chain;

use super::last_words;
use crate::machine::power::{self, PowerRequest};
use crate::runtime::{console, log};

/// As the kernel waits after a panic (`panic=10`).
const READING_TIME: Duration = Duration::from_secs(10);

/// An error that ends this boot, as text for the console.
#[derive(Debug)]
pub(crate) struct Fatal(String);

impl Fatal {
    /// `error` with its sources.
    pub(crate) fn new(error: &(dyn std::error::Error + 'static)) -> Self {
        Self(Chain(error).to_string())
    }

    /// A panic outside every task.
    pub(crate) fn panicked() -> Self {
        Self(String::from("PID 1 panicked"))
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error + 'static> From<E> for Fatal {
    fn from(error: E) -> Self {
        Self::new(&error)
    }
}

/// Shows `error`, leaves it for the next boot, waits, reboots.
pub(crate) fn end(error: &Fatal) -> ! {
    let text = format!("\nCairn cannot go on: {error}\nThe machine reboots in {} s.\n", READING_TIME.as_secs());
    match console::open() {
        Ok(mut console) => {
            let _there_is_nowhere_to_report_it = io::Write::write_all(&mut console, text.as_bytes());
        }
        Err(_no_console) => log::console(&text),
    }
    if let Err(error) = last_words::leave(&text) {
        log::console(&format!("It is not kept for the next boot: {error}.\n"));
    }
    power::wait(READING_TIME);
    power::end(PowerRequest::Reboot)
}
