//! Writer of a page: family by family, each with its type and what it counts.

use std::fmt::{self, Display, Write};

/// Type of a family (OpenMetrics 1.0, Metric Types), as far as pages here have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// A number that only grows, until what counts begins anew.
    Counter,
    /// A number of now.
    Gauge,
    /// Observations by size.
    Histogram,
    /// Observations by quantile.
    Summary,
    /// Words that do not change, as labels.
    Info,
    /// Anything.
    Unknown,
}

impl FamilyKind {
    /// Ends of names that samples of such a family may have beside its own; a family takes all of these names.
    pub(crate) const fn suffixes(self) -> &'static [&'static str] {
        match self {
            Self::Counter => &["_total", "_created"],
            Self::Gauge | Self::Unknown => &[],
            Self::Histogram => &["_bucket", "_count", "_sum", "_created"],
            Self::Summary => &["_count", "_sum", "_created"],
            Self::Info => &["_info"],
        }
    }
}

impl Display for FamilyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
            Self::Info => "info",
            Self::Unknown => "unknown",
        })
    }
}

/// Page that is being written.
#[derive(Debug, Default)]
pub struct PageWriter(String);

impl PageWriter {
    /// Begins a family; its name is none of another one's, and has no suffix of its type.
    pub fn family(&mut self, kind: FamilyKind, name: &str, help: &str) -> FamilyWriter<'_> {
        let mut escaped = String::new();
        escape(help, &mut escaped);
        self.head(kind, name, &escaped);
        let suffix = match kind {
            FamilyKind::Counter | FamilyKind::Info => kind.suffixes()[0],
            FamilyKind::Gauge | FamilyKind::Histogram | FamilyKind::Summary | FamilyKind::Unknown => "",
        };
        FamilyWriter { page: self, name: format!("{name}{suffix}") }
    }

    /// Page with its end, to which nothing is added.
    #[must_use]
    pub fn end(mut self) -> String {
        self.0.push_str("# EOF\n");
        self.0
    }

    /// Begins a family whose help is escaped already.
    pub(crate) fn head(&mut self, kind: FamilyKind, name: &str, help: &str) {
        self.line(format_args!("# TYPE {name} {kind}"));
        if !help.is_empty() {
            self.line(format_args!("# HELP {name} {help}"));
        }
    }

    pub(crate) fn line(&mut self, line: fmt::Arguments<'_>) {
        // A string takes whatever is written to it.
        let _always_written = writeln!(self.0, "{line}");
    }
}

/// Family whose samples are being written.
#[derive(Debug)]
pub struct FamilyWriter<'p> {
    page: &'p mut PageWriter,
    name: String,
}

impl FamilyWriter<'_> {
    /// Writes a sample; no other one of the family has these labels.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let mut text = String::new();
        for (name, said) in labels {
            text.push_str(if text.is_empty() { "{" } else { "," });
            text.push_str(name);
            text.push_str("=\"");
            escape(said, &mut text);
            text.push('"');
        }
        if !text.is_empty() {
            text.push('}');
        }
        self.page.line(format_args!("{}{text} {value}", self.name));
    }
}

/// Text as it stands between quotes, or behind a family's name.
fn escape(text: &str, into: &mut String) {
    for char in text.chars() {
        match char {
            '\\' => into.push_str("\\\\"),
            '"' => into.push_str("\\\""),
            '\n' => into.push_str("\\n"),
            char => into.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use testkit::openmetrics::read;

    use super::*;

    /// Proves: Q3
    #[test]
    fn a_page_is_families_and_an_end() {
        let mut page = PageWriter::default();
        page.family(FamilyKind::Info, "cairn_build", "What runs.")
            .sample(&[("version", "1"), ("of", "a \"b\"\\\n")], 1);
        page.family(FamilyKind::Gauge, "cairn_uptime_seconds", "Age.").sample(&[], 1.5);
        page.family(FamilyKind::Counter, "cairn_starts", "").sample(&[("service", "etcd")], 3);
        let page = page.end();
        let expected = r#"# TYPE cairn_build info
# HELP cairn_build What runs.
cairn_build_info{version="1",of="a \"b\"\\\n"} 1
# TYPE cairn_uptime_seconds gauge
# HELP cairn_uptime_seconds Age.
cairn_uptime_seconds 1.5
# TYPE cairn_starts counter
cairn_starts_total{service="etcd"} 3
# EOF
"#;
        assert_eq!(page, expected);
        assert_eq!(read(&page).map(|page| page.samples.len()), Ok(3));
    }

    proptest! {
        /// Labels and helps say anything, and the page stays one. Proves: Q3
        #[test]
        fn texts_do_not_break_a_page(help in "\\PC*|[\n\"\\\\a]{0,5}", said in "\\PC*|[\n\"\\\\a]{0,5}") {
            let mut page = PageWriter::default();
            page.family(FamilyKind::Gauge, "x", &help).sample(&[("y", &said)], 1);
            let read = read(&page.end()).map_err(TestCaseError::fail)?;
            prop_assert_eq!(read.samples.len(), 1);
        }
    }
}
