//! tracing's events as lines of the log: constant message first, then the fields. INFO and above reach the console.

use std::fmt::{Debug, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::runtime::clock;

/// Makes this program's events lines of its log.
pub(super) fn install() {
    // Only a second subscriber is refused, and the first one is ours.
    let _already_installed = tracing::subscriber::set_global_default(Lines);
}

#[derive(Debug)]
struct Lines;

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries log what only their authors can use.
        metadata.target().starts_with("init") && *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line { text: format!("{} ", event.metadata().level()), fields: String::new() };
        event.record(&mut line);
        let text = line.text + &line.fields;
        super::write(super::OWN, text.as_bytes());
        if *event.metadata().level() <= Level::INFO {
            let text = format!("[{:>10.3}] {text}\n", clock::uptime().as_secs_f64());
            super::show(|_| &text);
        }
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

struct Line {
    text: String,
    fields: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let result = match field.name() {
            "message" => write!(self.text, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
        result.expect("writing to a String does not fail");
    }
}
