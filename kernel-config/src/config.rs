//! The text of a kernel config: parse it strictly, merge fragments, write it back. It must never guess: a line that is
//! neither an option, an unset option, a comment nor empty is an error.

use std::{collections::BTreeMap, fmt};

use crate::Fragment;

/// The options that a config names, by name without `CONFIG_`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelConfig {
    options: BTreeMap<String, Value>,
}

/// Value of one option in a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `=y`
    Yes,
    /// `=m`
    Module,
    /// `is not set`
    No,
    /// A number, or a string with its quotes.
    Text(String),
}

/// Why a text is not a config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("line {line} is neither an option nor a comment: {text:?}")]
    Line { line: usize, text: String },
    #[error("line {line} names an option that is not letters, digits and underscores: {text:?}")]
    Name { line: usize, text: String },
    #[error("line {line} gives {option} a value that is neither y, m, a number nor a quoted string: {text:?}")]
    Value { line: usize, option: String, text: String },
    #[error("line {line} names {option} a second time")]
    Twice { line: usize, option: String },
}

/// Why fragments do not make one config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    #[error("read the fragment {topic}")]
    Parse { topic: &'static str, source: ParseError },
    #[error("{option} has different values in the fragments {first} and {second}")]
    Conflict { option: String, first: &'static str, second: &'static str },
}

/// Merges fragments. The same option may stand in two topics, but only with the same value.
///
/// # Errors
/// A fragment that is no config, or two that contradict each other.
pub fn merge(fragments: &[Fragment]) -> Result<KernelConfig, MergeError> {
    let mut merged = KernelConfig::default();
    let mut origin: BTreeMap<String, &'static str> = BTreeMap::new();
    for fragment in fragments {
        let topic = fragment.topic;
        let config = KernelConfig::parse(fragment.text).map_err(|source| MergeError::Parse { topic, source })?;
        for (option, value) in config.options {
            match (merged.options.get(&option), origin.get(&option)) {
                (Some(earlier), Some(first)) if *earlier != value => {
                    return Err(MergeError::Conflict { option, first, second: topic });
                }
                _ => {} // new, or said again with the same value
            }
            origin.entry(option.clone()).or_insert(topic);
            merged.options.insert(option, value);
        }
    }
    Ok(merged)
}

impl KernelConfig {
    /// Parses a fragment or a whole `.config`.
    ///
    /// # Errors
    /// The first line that is not understood, or that names an option again.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut options = BTreeMap::new();
        for (index, text) in text.lines().enumerate() {
            let line = index + 1;
            let Some((option, value)) = parse_line(line, text.trim_end())? else { continue };
            if options.insert(option.clone(), value).is_some() {
                return Err(ParseError::Twice { line, option });
            }
        }
        Ok(Self { options })
    }

    /// Value of an option; `None` when the config does not name it.
    #[must_use]
    pub fn get(&self, option: &str) -> Option<&Value> {
        self.options.get(option)
    }

    /// The names of all options the config speaks about, sorted.
    pub fn options(&self) -> impl Iterator<Item = &str> {
        self.options.keys().map(String::as_str)
    }
}

/// Writes the kernel's own syntax, sorted by option: what `.config` is appended with.
impl fmt::Display for KernelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (option, value) in &self.options {
            match value {
                Value::Yes => writeln!(f, "CONFIG_{option}=y")?,
                Value::Module => writeln!(f, "CONFIG_{option}=m")?,
                Value::No => writeln!(f, "# CONFIG_{option} is not set")?,
                Value::Text(text) => writeln!(f, "CONFIG_{option}={text}")?,
            }
        }
        Ok(())
    }
}

fn parse_line(line: usize, text: &str) -> Result<Option<(String, Value)>, ParseError> {
    if let Some(unset) = text.strip_prefix("# CONFIG_").and_then(|rest| rest.strip_suffix(" is not set")) {
        return Ok(Some((parse_name(line, unset)?, Value::No)));
    }
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let Some((name, value)) = text.strip_prefix("CONFIG_").and_then(|rest| rest.split_once('=')) else {
        return Err(ParseError::Line { line, text: text.to_owned() });
    };
    let option = parse_name(line, name)?;
    let value =
        parse_value(value).ok_or_else(|| ParseError::Value { line, option: option.clone(), text: value.to_owned() })?;
    Ok(Some((option, value)))
}

/// Names are letters, digits and underscores; a few are not in capitals.
fn parse_name(line: usize, name: &str) -> Result<String, ParseError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(legal) {
        return Err(ParseError::Name { line, text: name.to_owned() });
    }
    Ok(name.to_owned())
}

fn parse_value(value: &str) -> Option<Value> {
    match value {
        "y" => Some(Value::Yes),
        "m" => Some(Value::Module),
        quoted if quoted.len() >= 2 && quoted.starts_with('"') && quoted.ends_with('"') => {
            Some(Value::Text(quoted.to_owned()))
        }
        number if is_number(number) => Some(Value::Text(number.to_owned())),
        _ => None, // an unquoted word: no kernel tool writes one
    }
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    match digits.strip_prefix("0x") {
        Some(hexadecimal) => !hexadecimal.is_empty() && hexadecimal.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragments(texts: [&'static str; 2]) -> [Fragment; 2] {
        [Fragment { topic: "one", text: texts[0] }, Fragment { topic: "two", text: texts[1] }]
    }

    /// Proves: O4. What is written is what was read.
    #[test]
    fn a_config_survives_the_round_trip() {
        let text = "# CONFIG_A is not set\nCONFIG_B=y\nCONFIG_C=\"x y\"\nCONFIG_D=0x10\nCONFIG_E=-1\nCONFIG_F=m\n";
        assert_eq!(KernelConfig::parse(text).expect("a config").to_string(), text);
    }

    /// Proves: O4. Anything that is not config syntax is refused with its line.
    #[test]
    fn nonsense_is_refused() {
        for text in
            ["CONFIG_A", "A=y", "CONFIG_=y", "CONFIG_A B=y", "CONFIG_A=yes", "CONFIG_A=", "CONFIG_A=\"", " CONFIG_A=y"]
        {
            KernelConfig::parse(text).expect_err(text);
        }
        assert_eq!(
            KernelConfig::parse("CONFIG_A=y\n\nCONFIG_A=y\n"),
            Err(ParseError::Twice { line: 3, option: "A".to_owned() })
        );
    }

    /// Proves: O4. Two fragments that contradict each other do not merge; two that agree do.
    #[test]
    fn contradicting_fragments_are_refused() {
        let error = merge(&fragments(["CONFIG_A=y\n", "# CONFIG_A is not set\n"])).expect_err("y against n");
        assert_eq!(error, MergeError::Conflict { option: "A".to_owned(), first: "one", second: "two" });
        let merged = merge(&fragments(["CONFIG_A=y\n", "CONFIG_A=y\nCONFIG_B=1\n"])).expect("they agree");
        assert_eq!(merged.to_string(), "CONFIG_A=y\nCONFIG_B=1\n");
    }
}
