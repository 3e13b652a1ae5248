//! Progress of long work: one line that changes on a terminal, a line per change anywhere else; one for each machine where
//! several are waited for.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// The line of a spinner is drawn anew this often.
const TICK: Duration = Duration::from_millis(120);

/// Shows what goes on, on the standard error.
#[derive(Debug)]
pub(crate) struct Progress {
    way: Way,
    /// Beginning of each line, which names whose progress it is; may be empty.
    whose: String,
}

#[derive(Debug)]
enum Way {
    /// A person looks.
    Terminal {
        all: MultiProgress,
        /// Drawn from the first word on.
        line: Option<ProgressBar>,
    },
    /// A file or a pipe: the last line written, so that none is repeated.
    Lines { last: String },
}

impl Progress {
    /// A spinner on a terminal, plain lines elsewhere.
    pub(crate) fn start() -> Self {
        let way = if std::io::stderr().is_terminal() {
            Way::Terminal { all: MultiProgress::new(), line: None }
        } else {
            Way::Lines { last: String::new() }
        };
        Self { way, whose: String::new() }
    }

    /// The progress of one of several, beside this one.
    pub(crate) fn of(&self, whose: Option<&str>) -> Self {
        let way = match &self.way {
            Way::Terminal { all, .. } => Way::Terminal { all: all.clone(), line: None },
            Way::Lines { .. } => Way::Lines { last: String::new() },
        };
        Self { way, whose: whose.map_or_else(String::new, |whose| format!("{whose}: ")) }
    }

    /// Shows what goes on now.
    pub(crate) fn show(&mut self, doing: &str) {
        let doing = self.line(doing);
        match &mut self.way {
            Way::Terminal { all, line } => line.get_or_insert_with(|| spinner(all)).set_message(doing),
            Way::Lines { last } if *last == doing => {}
            Way::Lines { last } => {
                // Nobody may be reading progress; the work goes on.
                let _written = writeln!(std::io::stderr(), "{doing}");
                *last = doing;
            }
        }
    }

    /// A step that is done and stays on the screen.
    pub(crate) fn done(&mut self, what: &str) {
        match &self.way {
            Way::Terminal { all, .. } => {
                // As above.
                let _written = all.println(format!("  {}", self.line(what)));
            }
            Way::Lines { .. } => self.show(what),
        }
    }

    fn line(&self, what: &str) -> String {
        format!("{}{}", self.whose, super::printable(what))
    }
}

fn spinner(all: &MultiProgress) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed:>4} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let line = all.add(ProgressBar::new_spinner().with_style(style));
    line.enable_steady_tick(TICK);
    line
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Way::Terminal { line: Some(line), .. } = &self.way {
            line.finish_and_clear();
        }
    }
}
