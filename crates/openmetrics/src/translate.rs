//! Translation of a page in Prometheus' text format 0.0.4 (prometheus.io, Exposition formats) into one of OpenMetrics.
//!
//! A counter is called `…_total`, and its family is not: one whose name does not end so, and any family that would take the name of
//! another one's sample, becomes families of unknown type, which keep the names that their samples have.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::{FamilyKind, PageWriter};

/// Page that is not in the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of its page {problem}")]
pub struct BadPage {
    /// Number of the line, from 1.
    pub line: usize,
    problem: &'static str,
}

/// Writes a page anew.
///
/// # Errors
/// [`BadPage`] names the first line that says nothing.
pub fn translate(page: &str) -> Result<String, BadPage> {
    let mut families = Families::default();
    for (index, line) in page.lines().enumerate() {
        families.take(line.trim()).map_err(|problem| BadPage { line: index + 1, problem })?;
    }
    Ok(families.write())
}

/// Families of a page in their order.
#[derive(Debug, Default)]
struct Families<'t> {
    families: Vec<Family<'t>>,
    by_name: HashMap<&'t str, usize>,
    /// Family that was spoken of last.
    current: Option<usize>,
}

/// Family with its samples.
#[derive(Debug)]
struct Family<'t> {
    name: &'t str,
    kind: FamilyKind,
    help: &'t str,
    samples: Vec<Sample<'t>>,
}

/// Line of a family.
#[derive(Debug)]
struct Sample<'t> {
    name: &'t str,
    labels: Labels<'t>,
    value: &'t str,
    /// When it was taken, in milliseconds since 1970.
    at: Option<i64>,
}

/// Labels of a sample: what is left of the text behind its opening brace.
#[derive(Debug, Clone)]
struct Labels<'t>(&'t str);

impl<'t> Families<'t> {
    fn take(&mut self, line: &'t str) -> Result<(), &'static str> {
        match line.strip_prefix('#') {
            None if line.is_empty() => Ok(()),
            None => self.sample(line),
            Some(comment) => match word(comment.trim_start()) {
                ("HELP", rest) => {
                    let (name, help) = word(rest);
                    self.speak_of(name)?.help = help;
                    Ok(())
                }
                ("TYPE", rest) => {
                    let (name, kind) = word(rest);
                    let family = self.speak_of(name)?;
                    if !family.samples.is_empty() {
                        return Err("gives a type behind samples");
                    }
                    family.kind = kind_of(kind).ok_or("gives a type that is none")?;
                    Ok(())
                }
                _ => Ok(()), // a comment for people
            },
        }
    }

    fn sample(&mut self, line: &'t str) -> Result<(), &'static str> {
        let sample = Sample::read(line).ok_or("is no sample")?;
        let of_current = self.current.and_then(|at| self.families.get(at)).is_some_and(|it| it.has(sample.name));
        let family = match self.current {
            Some(at) if of_current => &mut self.families[at],
            Some(_) | None => self.speak_of(sample.name)?,
        };
        if !family.has(sample.name) {
            return Err("is a sample that its family has not");
        }
        family.samples.push(sample);
        Ok(())
    }

    /// Family of that name, which is the current one from now on.
    fn speak_of(&mut self, name: &'t str) -> Result<&mut Family<'t>, &'static str> {
        if !is_a_name(name, true) {
            return Err("has a name that is none");
        }
        let at = *self.by_name.entry(name).or_insert_with(|| {
            self.families.push(Family { name, kind: FamilyKind::Unknown, help: "", samples: Vec::new() });
            self.families.len() - 1
        });
        self.current = Some(at);
        Ok(&mut self.families[at])
    }

    fn write(self) -> String {
        let mut families = self.families;
        families.retain(|family| !family.samples.is_empty());
        let mut taken = HashSet::new();
        // Counters come last: theirs are the names that change.
        let (counters, others): (Vec<_>, Vec<_>) = families.iter().partition(|it| it.kind == FamilyKind::Counter);
        let stay: HashSet<_> = others.iter().chain(&counters).filter_map(|family| family.takes(&mut taken)).collect();
        let mut page = PageWriter::default();
        for family in &families {
            if stay.contains(family.name) {
                family.write(&mut page);
            } else {
                family.write_apart(&mut taken, &mut page);
            }
        }
        page.end()
    }
}

impl<'t> Family<'t> {
    /// Whether a sample of that name is one of the family's.
    fn has(&self, sample: &str) -> bool {
        let Some(suffix) = sample.strip_prefix(self.name) else { return false };
        match self.kind {
            FamilyKind::Histogram => ["_bucket", "_count", "_sum"].contains(&suffix),
            FamilyKind::Summary => ["", "_count", "_sum"].contains(&suffix),
            FamilyKind::Counter | FamilyKind::Gauge | FamilyKind::Info | FamilyKind::Unknown => suffix.is_empty(),
        }
    }

    /// Name that the family has in OpenMetrics, if its type allows for that.
    fn new_name(&self) -> Option<&'t str> {
        let grows = |sample: &Sample<'_>| sample.value.parse::<f64>().is_ok_and(|value| value >= 0.0);
        match self.kind {
            FamilyKind::Counter if !self.samples.iter().all(grows) => None,
            FamilyKind::Counter => self.name.strip_suffix("_total").filter(|name| !name.is_empty()),
            FamilyKind::Histogram | FamilyKind::Summary => {
                self.samples.iter().all(|sample| sample.is_measured(self.name)).then_some(self.name)
            }
            FamilyKind::Gauge | FamilyKind::Info | FamilyKind::Unknown => Some(self.name),
        }
    }

    /// Takes the names that are its own in OpenMetrics, where all of them are free; its name in the page then.
    fn takes(&self, taken: &mut HashSet<Cow<'t, str>>) -> Option<&'t str> {
        let name = self.new_name()?;
        let suffixed = self.kind.suffixes().iter().map(|suffix| Cow::Owned(format!("{name}{suffix}")));
        let names: Vec<_> = suffixed.chain([Cow::Borrowed(name)]).collect();
        if names.iter().any(|name| taken.contains(name)) {
            return None;
        }
        taken.extend(names);
        Some(self.name)
    }

    fn write(&self, page: &mut PageWriter) {
        page.head(self.kind, self.new_name().unwrap_or(self.name), &escaped_help(self.help));
        for sample in &self.samples {
            sample.write(self.kind, page);
        }
    }

    /// Writes each of its samples' names as a family of unknown type; what has the name of another family is left out.
    fn write_apart(&self, taken: &mut HashSet<Cow<'t, str>>, page: &mut PageWriter) {
        let mut names: Vec<_> = self.samples.iter().map(|sample| sample.name).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            if taken.insert(Cow::Borrowed(name)) {
                page.head(FamilyKind::Unknown, name, &escaped_help(self.help));
                for sample in self.samples.iter().filter(|sample| sample.name == name) {
                    sample.write(FamilyKind::Unknown, page);
                }
            }
        }
    }
}

impl<'t> Sample<'t> {
    fn read(line: &'t str) -> Option<Self> {
        let end = line.find(|char: char| char == '{' || char.is_ascii_whitespace())?;
        let (name, rest) = line.split_at(end);
        let rest = rest.trim_start();
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(inside) => inside.split_at_checked(Labels(inside).end()?)?,
            None => ("", rest),
        };
        let labels = Labels(labels);
        let mut words = rest.split_ascii_whitespace();
        let (value, at, more) = (words.next()?, words.next(), words.next());
        let names: Vec<_> = labels.clone().map(|(name, _)| name).collect();
        let each_once = names.iter().collect::<HashSet<_>>().len() == names.len();
        let is_whole = is_a_name(name, true) && each_once && more.is_none() && is_a_value(value);
        let at = match at {
            Some(at) => Some(at.parse().ok()?),
            None => None,
        };
        is_whole.then_some(Self { name, labels, value, at })
    }

    /// Whether a sample of a histogram or a summary of that name says where it belongs, and counts nothing that is less than nothing.
    fn is_measured(&self, family: &str) -> bool {
        let bound = |label: &str| self.labels.clone().any(|(name, text)| name == label && is_a_value(text));
        let counts = || self.value.parse::<f64>().is_ok_and(|value| value >= 0.0);
        match self.name.strip_prefix(family) {
            Some("_bucket") => counts() && bound("le"),
            Some("_count" | "_sum") => counts(),
            Some(_) | None => bound("quantile"),
        }
    }

    fn write(&self, kind: FamilyKind, page: &mut PageWriter) {
        let is_bound = |name: &str| match kind {
            FamilyKind::Histogram => name == "le",
            FamilyKind::Summary => name == "quantile",
            FamilyKind::Counter | FamilyKind::Gauge | FamilyKind::Info | FamilyKind::Unknown => false,
        };
        let mut labels = String::new();
        for (name, text) in self.labels.clone() {
            let bound = if is_bound(name) { as_float(text) } else { Cow::Borrowed(text) };
            let comma = if labels.is_empty() { "{" } else { "," };
            labels.extend([comma, name, "=\"", &*bound, "\""]);
        }
        if !labels.is_empty() {
            labels.push('}');
        }
        let at = self.at.map_or_else(String::new, |at| {
            let sign = if at < 0 { "-" } else { "" };
            format!(" {sign}{}.{:03}", at.unsigned_abs() / 1000, at.unsigned_abs() % 1000)
        });
        page.line(format_args!("{}{labels} {}{at}", self.name, self.value));
    }
}

impl Labels<'_> {
    /// Bytes up to the brace that closes the labels.
    fn end(mut self) -> Option<usize> {
        let whole = self.0.len();
        while self.next().is_some() {}
        let rest = self.0.trim_start().strip_prefix('}')?;
        Some(whole - rest.len())
    }
}

impl<'t> Iterator for Labels<'t> {
    /// Name, and text as it stands between the quotes.
    type Item = (&'t str, &'t str);

    fn next(&mut self) -> Option<(&'t str, &'t str)> {
        let (name, rest) = self.0.split_once('=')?;
        let text = rest.trim_start().strip_prefix('"')?;
        let name = name.trim();
        let mut escaped = false;
        let end = text.find(|char| {
            let ends = char == '"' && !escaped;
            escaped = char == '\\' && !escaped;
            ends
        })?;
        let (text, rest) = (&text[..end], text[end + 1..].trim_start());
        if !is_a_name(name, false) || !is_escaped(text) || !rest.starts_with([',', '}']) {
            return None;
        }
        self.0 = rest.strip_prefix(',').unwrap_or(rest);
        Some((name, text))
    }
}

/// First word of a text, and what follows it.
fn word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(|char: char| char.is_ascii_whitespace()).unwrap_or((text, ""));
    (word, rest.trim_start())
}

fn kind_of(word: &str) -> Option<FamilyKind> {
    match word {
        "counter" => Some(FamilyKind::Counter),
        "gauge" => Some(FamilyKind::Gauge),
        "histogram" => Some(FamilyKind::Histogram),
        "summary" => Some(FamilyKind::Summary),
        "untyped" => Some(FamilyKind::Unknown),
        _ => None, // none of the format's
    }
}

/// Whether a family or, without colons, a label may be called so.
fn is_a_name(name: &str, with_colons: bool) -> bool {
    let is_one = |char: char| char.is_ascii_alphanumeric() || char == '_' || (with_colons && char == ':');
    !name.is_empty() && name.chars().all(is_one) && !name.starts_with(|char: char| char.is_ascii_digit())
}

/// Whether a number is written as both formats write it.
fn is_a_value(text: &str) -> bool {
    let is_a_number = text.chars().all(|char| char.is_ascii_digit() || ".eE+-".contains(char));
    ["NaN", "+Inf", "-Inf"].contains(&text) || (is_a_number && text.parse::<f64>().is_ok())
}

/// Whether each backslash escapes what may be escaped.
fn is_escaped(text: &str) -> bool {
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char == '\\' && !chars.next().is_some_and(|next| ['\\', '"', 'n'].contains(&next)) {
            return false;
        }
    }
    true
}

/// Bound of a bucket as OpenMetrics writes it: never as a whole number.
fn as_float(text: &str) -> Cow<'_, str> {
    if text.chars().all(|char| char.is_ascii_digit() || char == '-') {
        Cow::Owned(format!("{text}.0"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Help, in which Prometheus escapes no quotes and leaves lone backslashes.
fn escaped_help(help: &str) -> String {
    let mut escaped = String::new();
    let mut chars = help.chars().peekable();
    while let Some(char) = chars.next() {
        match (char, chars.peek()) {
            ('\\', Some(next @ ('\\' | 'n'))) => {
                escaped.extend(['\\', *next]);
                chars.next();
            }
            ('\\' | '"', _) => escaped.extend(['\\', char]),
            (char, _) => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
