//! Progress of long work: one line that changes on a terminal, a line per change anywhere else.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The line of a spinner is drawn anew this often.
const TICK: Duration = Duration::from_millis(120);

/// Shows what goes on, on the standard error.
#[derive(Debug)]
pub(crate) enum Progress {
    /// A person looks.
    Terminal(ProgressBar),
    /// A file or a pipe: the last line written, so that none is repeated.
    Lines {
        /// What was written last.
        last: String,
    },
}

impl Progress {
    /// A spinner on a terminal, plain lines elsewhere.
    pub(crate) fn start() -> Self {
        if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{spinner} {elapsed:>4} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner().with_style(style);
            bar.enable_steady_tick(TICK);
            Self::Terminal(bar)
        } else {
            Self::Lines { last: String::new() }
        }
    }

    /// What goes on now.
    pub(crate) fn show(&mut self, doing: &str) {
        let doing = super::printable(doing);
        match self {
            Self::Terminal(bar) => bar.set_message(doing),
            Self::Lines { last } if *last == doing => {}
            Self::Lines { last } => {
                // Nobody may be reading progress; the work goes on.
                let _written = writeln!(std::io::stderr(), "{doing}");
                *last = doing;
            }
        }
    }

    /// A step that is done and stays on the screen.
    pub(crate) fn done(&mut self, what: &str) {
        match self {
            Self::Terminal(bar) => bar.println(format!("  {}", super::printable(what))),
            Self::Lines { .. } => self.show(what),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Self::Terminal(bar) = self {
            bar.finish_and_clear();
        }
    }
}
