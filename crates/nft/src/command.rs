//! Commands as they are written, one a line (`nft(8)`).
//!
//! ```text
//!   add|create|delete|destroy|flush table|chain|set|map …    add|delete|destroy element … { … }
//!   add|insert|replace|delete|destroy rule [family] TABLE CHAIN [handle N] STATEMENT… [comment TEXT]
//! ```

use crate::datatype::{Concatenation, Datatype};
use crate::expression::Verdict;
use crate::grammar::{GrammarError, MOST_COMMENT, Read, joined, statement, unexpected, verdict};
use crate::message::Family;
use crate::rule::Statement;
use crate::word::{WordError, Words};

/// Command about a table, or something in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) family: Family,
    pub(crate) table: String,
    pub(crate) action: Action,
}

/// Act of a command upon its table, or upon something in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Makes something, which may be there already unless it is made exclusively.
    Add(Exclusiveness, Addition),
    Remove(Absence, Removal),
    Flush(Flushed),
    Rule(Placement, RuleText),
}

/// Whether something may be there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exclusiveness {
    MayExist,
    MustBeNew,
}

/// Whether something may be absent already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absence {
    IsFine,
    IsAnError,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Addition {
    Table { comment: Option<String> },
    Chain { name: String, base: Option<BaseChain>, comment: Option<String> },
    Set(SetText),
    Elements { set: String, elements: Vec<ElementText> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Removal {
    Table,
    Chain(String),
    Set(String),
    Elements { set: String, elements: Vec<ElementText> },
    Rule { chain: String, handle: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flushed {
    Table,
    Chain(String),
    Set(String),
}

/// Chain that the kernel itself sends packets to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BaseChain {
    pub(crate) kind: String,
    /// Number of the hook (`NF_INET_*`).
    pub(crate) hook: u32,
    pub(crate) priority: i32,
    pub(crate) policy: Option<Policy>,
}

/// Verdict at the end of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Drop = 0,
    Accept = 1,
}

/// Declaration of a set or map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetText {
    pub(crate) name: String,
    pub(crate) key: Concatenation,
    /// Data of a map's elements.
    pub(crate) data: Option<DataType>,
    /// Whether rules add elements to it.
    pub(crate) is_dynamic: bool,
    /// Milliseconds until an element is gone; none where elements have no timeout, or each its own.
    pub(crate) timeout: Option<u64>,
    pub(crate) has_timeouts: bool,
    pub(crate) size: Option<u32>,
    pub(crate) comment: Option<String>,
}

/// Type of what the elements of a map give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DataType {
    Verdict,
    Value(Concatenation),
}

/// Element whose words are read once the types of its set are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ElementText {
    pub(crate) key: Vec<String>,
    pub(crate) data: Option<DataText>,
    pub(crate) comment: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DataText {
    Verdict(Verdict),
    Value(Vec<String>),
}

/// Where a rule goes: at the end, at the beginning, behind or before the rule of a handle, or in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    Last,
    First,
    Behind(u64),
    Before(u64),
    Replacing(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleText {
    pub(crate) chain: String,
    pub(crate) statements: Vec<Statement>,
    pub(crate) comment: Option<String>,
}

impl RuleText {
    /// Names of sets that the rule looks into.
    pub(crate) fn sets(&self) -> impl Iterator<Item = &str> {
        self.statements
            .iter()
            .filter_map(|it| if let Statement::Set(_, _, set) = it { Some(set.as_str()) } else { None })
    }
}

/// Reads a line: no command where it is empty, or a comment.
///
/// # Errors
/// [`GrammarError`].
pub(crate) fn read(line: &str) -> Read<Option<Command>> {
    let mut words = Words::of(line)?;
    if words.is_over() {
        return Ok(None);
    }
    let (verb, what) = (words.bare()?, words.bare()?);
    let family = words.peek().and_then(Family::named);
    if family.is_some() {
        words.bare()?;
    }
    let (family, table) = (family.unwrap_or(Family::Ip), words.text()?);
    let action = match (verb.as_str(), what.as_str()) {
        ("add" | "insert" | "replace", "rule") => rule(&verb, family, &mut words)?,
        ("add" | "create", _) => {
            let is_new = verb == "create" && what != "element";
            let exclusiveness = if is_new { Exclusiveness::MustBeNew } else { Exclusiveness::MayExist };
            Action::Add(exclusiveness, addition(&what, &mut words)?)
        }
        ("delete" | "destroy", _) => {
            let absence = if verb == "destroy" { Absence::IsFine } else { Absence::IsAnError };
            Action::Remove(absence, removal(&what, &mut words)?)
        }
        ("flush", "table") => Action::Flush(Flushed::Table),
        ("flush", "chain") => Action::Flush(Flushed::Chain(words.text()?)),
        ("flush", "set" | "map") => Action::Flush(Flushed::Set(words.text()?)),
        ("flush", _) => return unexpected(what),
        _ => return unexpected(verb),
    };
    if words.is_over() { Ok(Some(Command { family, table, action })) } else { Err(words.unexpected().into()) }
}

fn addition(what: &str, words: &mut Words) -> Read<Addition> {
    Ok(match what {
        "table" => Addition::Table { comment: body(words, |_, _| Ok(false))? },
        "chain" => {
            let name = words.text()?;
            let (mut base, mut policy) = (None, None);
            let comment = body(words, |word, words| {
                match word {
                    "type" => base = Some(base_chain(words)?),
                    "policy" => policy = Some(policy_of(words)?),
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
            if policy.is_some() && base.is_none() {
                return unexpected("policy");
            }
            Addition::Chain { name, base: base.map(|base| BaseChain { policy, ..base }), comment }
        }
        "set" | "map" => Addition::Set(set(what == "map", words)?),
        "element" => Addition::Elements { set: words.text()?, elements: elements(words)? },
        other => return unexpected(other),
    })
}

fn removal(what: &str, words: &mut Words) -> Read<Removal> {
    Ok(match what {
        "table" => Removal::Table,
        "chain" => Removal::Chain(words.text()?),
        "set" | "map" => Removal::Set(words.text()?),
        "element" => Removal::Elements { set: words.text()?, elements: elements(words)? },
        "rule" => {
            let chain = words.text()?;
            words.expect("handle")?;
            Removal::Rule { chain, handle: handle(words)? }
        }
        other => return unexpected(other),
    })
}

/// Reads what stands between braces, if anything does: the comment, and all that `each` takes by its first word.
fn body(words: &mut Words, mut each: impl FnMut(&str, &mut Words) -> Read<bool>) -> Read<Option<String>> {
    let mut comment = None;
    if !words.accept("{") {
        return Ok(None);
    }
    while !words.accept("}") {
        if words.accept(";") {
            continue;
        }
        let word = words.bare()?;
        if word == "comment" {
            comment = Some(comment_of(words)?);
        } else if !each(&word, words)? {
            return unexpected(word);
        }
    }
    Ok(comment)
}

fn comment_of(words: &mut Words) -> Read<String> {
    let comment = words.text()?;
    if comment.len() <= MOST_COMMENT { Ok(comment) } else { Err(GrammarError::Comment(comment.len())) }
}

fn base_chain(words: &mut Words) -> Read<BaseChain> {
    const HOOKS: [&str; 5] = ["prerouting", "input", "forward", "output", "postrouting"];
    const KINDS: [&str; 3] = ["filter", "nat", "route"];
    let kind = KINDS.into_iter().find(|kind| words.accept(kind)).ok_or_else(|| words.unexpected())?.to_owned();
    words.expect("hook")?;
    let hook = HOOKS.iter().position(|hook| words.peek() == Some(hook)).ok_or_else(|| words.unexpected())?;
    words.bare()?;
    words.expect("priority")?;
    let priority = words.peek().and_then(|word| word.parse().ok()).ok_or_else(|| words.unexpected())?;
    words.bare()?;
    Ok(BaseChain { kind, hook: u32::try_from(hook).expect("there are five"), priority, policy: None })
}

fn policy_of(words: &mut Words) -> Read<Policy> {
    match () {
        () if words.accept("accept") => Ok(Policy::Accept),
        () if words.accept("drop") => Ok(Policy::Drop),
        () => Err(words.unexpected().into()),
    }
}

fn set(is_map: bool, words: &mut Words) -> Read<SetText> {
    let name = words.text()?;
    let (mut key, mut data, mut timeout, mut size) = (None, None, None, None);
    let (mut is_dynamic, mut has_timeouts) = (false, false);
    let comment = body(words, |word, words| {
        match word {
            "type" => {
                key = Some(types(words)?);
                if is_map {
                    words.expect(":")?;
                    data =
                        Some(if words.accept("verdict") { DataType::Verdict } else { DataType::Value(types(words)?) });
                }
            }
            "flags" => loop {
                match () {
                    () if words.accept("dynamic") => is_dynamic = true,
                    () if words.accept("timeout") => has_timeouts = true,
                    () => return Err(words.unexpected().into()),
                }
                if !words.accept(",") {
                    break;
                }
            },
            "timeout" => {
                timeout = Some(seconds(words)? * 1000);
                has_timeouts = true;
            }
            "size" => size = Some(words.number()?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let key = key.ok_or(WordError::End)?;
    Ok(SetText { name, key, data, is_dynamic, timeout, has_timeouts, size, comment })
}

fn types(words: &mut Words) -> Read<Concatenation> {
    let mut types = Vec::new();
    loop {
        types.push(words.peek().and_then(Datatype::named).ok_or_else(|| words.unexpected())?);
        words.bare()?;
        if !words.accept(".") {
            let count = types.len();
            return Concatenation::of(types).ok_or(GrammarError::Types(count));
        }
    }
}

/// Time in whole seconds, as kube-proxy writes it.
fn seconds(words: &mut Words) -> Read<u64> {
    let number = words.peek().and_then(|word| word.strip_suffix('s')?.parse::<u32>().ok());
    let seconds = number.ok_or_else(|| words.unexpected())?;
    words.bare()?;
    Ok(seconds.into())
}

fn handle(words: &mut Words) -> Read<u64> {
    let handle = words.peek().and_then(|word| word.parse().ok()).ok_or_else(|| words.unexpected())?;
    words.bare()?;
    Ok(handle)
}

fn elements(words: &mut Words) -> Read<Vec<ElementText>> {
    words.expect("{")?;
    let mut elements = Vec::new();
    loop {
        let key = joined(words)?;
        let comment = if words.accept("comment") { Some(comment_of(words)?) } else { None };
        let data = if words.accept(":") {
            Some(match verdict(words)? {
                Some(verdict) => DataText::Verdict(verdict),
                None => DataText::Value(joined(words)?),
            })
        } else {
            None
        };
        elements.push(ElementText { key, data, comment });
        if words.accept("}") {
            return Ok(elements);
        }
        words.expect(",")?;
    }
}

fn rule(verb: &str, family: Family, words: &mut Words) -> Read<Action> {
    let chain = words.text()?;
    let at = if words.accept("handle") { Some(handle(words)?) } else { None };
    let placement = match (verb, at) {
        ("add", None) => Placement::Last,
        ("add", Some(handle)) => Placement::Behind(handle),
        ("insert", None) => Placement::First,
        ("insert", Some(handle)) => Placement::Before(handle),
        (_replace, Some(handle)) => Placement::Replacing(handle),
        (_replace, None) => return Err(words.unexpected().into()),
    };
    let (mut statements, mut comment) = (Vec::new(), None);
    while !words.is_over() {
        if words.accept("comment") {
            comment = Some(comment_of(words)?);
            break;
        }
        statements.push(statement(family, words)?);
    }
    if statements.is_empty() {
        return Err(words.unexpected().into());
    }
    Ok(Action::Rule(placement, RuleText { chain, statements, comment }))
}
