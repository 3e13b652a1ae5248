//! Strict reader of OpenMetrics 1.0 text: what a page breaks of the specification is an error, also what monitoring systems forgive. It
//! knows nothing of how our pages are made. Series that are there twice are not looked for.

use std::collections::{BTreeMap, BTreeSet};

/// Page that was read.
#[derive(Debug, Default, PartialEq)]
pub struct MetricsPage {
    /// Types of its families, by name.
    pub families: BTreeMap<String, String>,
    /// Samples in their order.
    pub samples: Vec<MetricSample>,
}

/// Line with a number.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    /// Name with the suffix that it has in its family.
    pub name: String,
    /// Labels, unescaped.
    pub labels: BTreeMap<String, String>,
    /// Number.
    pub value: f64,
}

impl MetricsPage {
    /// Values of the samples of that name which have these labels, among others.
    pub fn values<'p>(&'p self, name: &'p str, labels: &'p [(&str, &str)]) -> impl Iterator<Item = f64> + 'p {
        let fits = |sample: &MetricSample| {
            labels.iter().all(|(label, said)| sample.labels.get(*label).is_some_and(|text| text == said))
        };
        self.samples.iter().filter(move |sample| sample.name == name && fits(sample)).map(|sample| sample.value)
    }
}

/// Reads a page.
///
/// # Errors
/// The first line that breaks a rule, with the rule.
pub fn read(page: &str) -> Result<MetricsPage, String> {
    let body = page.strip_suffix("# EOF\n").ok_or("the page does not end with `# EOF`")?;
    if !(body.is_empty() || body.ends_with('\n')) {
        return Err("the end has no line of its own".to_owned());
    }
    let mut reader = Reader::default();
    for line in body.split_terminator('\n') {
        reader.line(line).map_err(|rule| format!("{rule}: {line}"))?;
    }
    reader.close()?;
    Ok(reader.page)
}

#[derive(Debug, Default)]
struct Reader {
    page: MetricsPage,
    /// Family that is being read: name, type, which descriptors it had, and its samples.
    family: Option<(String, String, BTreeSet<String>, Vec<MetricSample>)>,
    /// Names that families have taken.
    taken: BTreeSet<String>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let Some(descriptor) = line.strip_prefix("# ") else { return self.sample(line) };
        let mut parts = descriptor.splitn(3, ' ');
        let (Some(what), Some(name), Some(text)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("a descriptor has three words");
        };
        if self.family.as_ref().is_none_or(|(current, ..)| current != name) {
            self.close().map_err(|_| "the family before is not whole")?;
            let is_new = !self.page.families.contains_key(name) && is_name(name, ":");
            self.family = is_new.then(|| (name.to_owned(), "unknown".to_owned(), BTreeSet::new(), Vec::new()));
        }
        let (_, kind, said, samples) = self.family.as_mut().ok_or("a family is there once, and has a name")?;
        if !samples.is_empty() || !said.insert(what.to_owned()) {
            return Err("a descriptor is said once, before the samples");
        }
        match what {
            "TYPE" if KINDS.contains(&text) => text.clone_into(kind),
            "HELP" if unescaped(text).is_some() => {}
            "UNIT" if name.ends_with(&format!("_{text}")) => {}
            _ => return Err("no such descriptor"),
        }
        Ok(())
    }

    fn sample(&mut self, line: &str) -> Result<(), &'static str> {
        let name_end = line.find(['{', ' ']).ok_or("a sample has a value")?;
        let (name, mut rest) = line.split_at(name_end);
        let mut labels = BTreeMap::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            while !rest.starts_with('}') {
                let (label, text) = rest.split_once("=\"").ok_or("a label has a value")?;
                let end = quote(text).ok_or("a label's value ends")?;
                let said = unescaped(&text[..end]).ok_or("a label's value is escaped")?;
                if !is_name(label, "") || labels.insert(label.to_owned(), said).is_some() {
                    return Err("a label has a name of its own");
                }
                rest = &text[end + 1..];
                match rest.strip_prefix(',') {
                    Some(next) if !next.starts_with('}') => rest = next,
                    Some(_) => return Err("a comma is followed by a label"),
                    None if rest.starts_with('}') => {}
                    None => return Err("labels have commas between them"),
                }
            }
            rest = &rest[1..];
        }
        let numbers: Vec<_> = rest.strip_prefix(' ').ok_or("one space is before the value")?.split(' ').collect();
        let (value, at) = match numbers[..] {
            [value] => (value, "0"),
            [value, at] => (value, at),
            _ => return Err("a sample has a value, and a time at most"),
        };
        let value = number(value).ok_or("a value is a number")?;
        number(at).filter(|at| at.is_finite()).ok_or("a time is a number")?;
        let sample = MetricSample { name: name.to_owned(), labels, value };
        let of_family = |(family, kind, ..): &(String, String, _, _)| is_of(family, kind, name);
        if !self.family.as_ref().is_some_and(of_family) {
            self.close().map_err(|_| "the family before is not whole")?;
            if self.page.families.contains_key(name) || !is_name(name, ":") {
                return Err("a family is there once, and has a name");
            }
            self.family = Some((name.to_owned(), "unknown".to_owned(), BTreeSet::new(), Vec::new()));
        }
        let (family, kind, _, samples) = self.family.as_mut().expect("there is one now");
        judge(family, kind, &sample)?;
        samples.push(sample);
        Ok(())
    }

    /// Ends the family that is being read.
    fn close(&mut self) -> Result<(), String> {
        let Some((name, kind, _, samples)) = self.family.take() else { return Ok(()) };
        for suffix in suffixes(&kind) {
            if !self.taken.insert(format!("{name}{suffix}")) {
                return Err(format!("another family has samples called {name}{suffix}"));
            }
        }
        if kind == "histogram" {
            whole_buckets(&name, &samples)?;
        }
        self.page.samples.extend(samples);
        self.page.families.insert(name, kind);
        Ok(())
    }
}

const KINDS: [&str; 8] = ["unknown", "gauge", "counter", "stateset", "info", "histogram", "gaugehistogram", "summary"];

/// Suffixes of samples that a family of this type may have.
fn suffixes(kind: &str) -> &'static [&'static str] {
    match kind {
        "counter" => &["", "_total", "_created"],
        "histogram" => &["", "_bucket", "_count", "_sum", "_created"],
        "gaugehistogram" => &["", "_bucket", "_gcount", "_gsum"],
        "summary" => &["", "_count", "_sum", "_created"],
        "info" => &["", "_info"],
        _ => &[""],
    }
}

fn is_of(family: &str, kind: &str, sample: &str) -> bool {
    let Some(suffix) = sample.strip_prefix(family) else { return false };
    suffixes(kind).contains(&suffix)
        && !(suffix.is_empty() && ["counter", "histogram", "gaugehistogram", "info"].contains(&kind))
}

/// Rules of a type for each of its samples.
fn judge(family: &str, kind: &str, sample: &MetricSample) -> Result<(), &'static str> {
    let suffix = &sample.name[family.len()..];
    let bound = |label| sample.labels.get(label).and_then(|text| number(text).map(|bound| (bound, text)));
    let is_float = |text: &str| text.contains(['.', 'e', 'E']) || text.ends_with("Inf");
    match (kind, suffix) {
        ("counter", "_total") | ("histogram", "_count" | "_bucket" | "_sum") | ("summary", "_count" | "_sum")
            if sample.value.is_nan() || sample.value < 0.0 =>
        {
            Err("what is counted is not less than nothing")
        }
        ("histogram", "_bucket") if !bound("le").is_some_and(|(_, text)| is_float(text)) => Err("a bucket has a bound"),
        ("summary", "") if !bound("quantile").is_some_and(|(q, text)| (0.0..=1.0).contains(&q) && is_float(text)) => {
            Err("a quantile is between 0.0 and 1.0")
        }
        ("info", _) if (sample.value - 1.0).abs() > f64::EPSILON => Err("an info has the value 1"),
        ("stateset", _) if !sample.labels.contains_key(family) => Err("a state is a label of the family's name"),
        _ => Ok(()),
    }
}

/// Whether buckets grow, the last has no bound, and the count is what that says.
fn whole_buckets(name: &str, samples: &[MetricSample]) -> Result<(), String> {
    let group = |sample: &MetricSample| {
        let mut labels = sample.labels.clone();
        labels.remove("le");
        labels
    };
    let mut last: BTreeMap<BTreeMap<String, String>, (f64, f64)> = BTreeMap::new();
    for bucket in samples.iter().filter(|sample| sample.name == format!("{name}_bucket")) {
        let le = number(&bucket.labels["le"]).expect("judged");
        let before = last.insert(group(bucket), (le, bucket.value));
        if before.is_some_and(|(bound, value)| bound >= le || value > bucket.value) {
            return Err(format!("buckets of {name} do not grow"));
        }
    }
    if last.values().any(|(le, _)| le.is_finite()) {
        return Err(format!("{name} has no bucket for all"));
    }
    for count in samples.iter().filter(|sample| sample.name == format!("{name}_count")) {
        if last.get(&group(count)).is_none_or(|(_, all)| (all - count.value).abs() > f64::EPSILON) {
            return Err(format!("{name} counts what its buckets do not"));
        }
    }
    Ok(())
}

fn is_name(name: &str, more: &str) -> bool {
    let is_one = |char: char| char.is_ascii_alphanumeric() || char == '_' || more.contains(char);
    !name.is_empty() && name.chars().all(is_one) && !name.starts_with(|char: char| char.is_ascii_digit())
}

fn number(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        _ if text.chars().all(|char| char.is_ascii_digit() || "+-.eE".contains(char)) => text.parse().ok(),
        _ => None, // no number
    }
}

/// Where the quote is that ends a text.
fn quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.find(|char| {
        let ends = char == '"' && !escaped;
        escaped = char == '\\' && !escaped;
        ends
    })
}

fn unescaped(text: &str) -> Option<String> {
    let (mut plain, mut chars) = (String::new(), text.chars());
    while let Some(char) = chars.next() {
        plain.push(match char {
            '"' => return None,
            '\\' => match chars.next()? {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                _ => return None, // nothing else is escaped
            },
            char => char,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each rule refuses a page that differs from one that is taken. Proves: Q3
    #[test]
    fn what_breaks_a_rule_is_refused() {
        let good = "# TYPE a counter\n# HELP a b \\\" c\na_total{x=\"\\\\\"} 1 2.5\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_count 1\n# EOF\n";
        assert_eq!(read(good).map(|page| page.values("a_total", &[("x", "\\")]).collect::<Vec<_>>()), Ok(vec![1.0]));
        for (from, to) in [
            ("# EOF\n", ""),
            ("# EOF\n", "# EOF"),
            ("counter", "count"),
            ("a_total{", "a{"),
            ("\\\" c", "\" c"),
            ("x=\"\\\\\"", "x=\"\\\\\","),
            ("x=\"\\\\\"", "x=\"\\d\""),
            ("} 1 2.5", "} -1 2.5"),
            ("} 1 2.5", "}  1 2.5"),
            ("} 1 2.5", "} 1 2.5 3"),
            ("h_count 1", "h_count 2"),
            ("le=\"+Inf\"", "le=\"1.0\""),
            ("le=\"+Inf\"", "l=\"+Inf\""),
            ("# TYPE h histogram", "# TYPE a_total gauge\na_total 1\n# TYPE h histogram"),
            ("# TYPE h histogram", "a_total 1\n\n# TYPE h histogram"),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from}");
            assert!(read(&bad).is_err(), "{bad}");
        }
    }
}
