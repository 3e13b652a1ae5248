//! Commands as they are written, one a line, and rules within them (`nft(8)`). A word that is not known is an error.
//!
//! ```text
//!   add|create|delete|destroy|flush table|chain|set|map …    add|delete|destroy element … { … }
//!   add|insert|replace|delete|destroy rule [family] TABLE CHAIN [handle N] STATEMENT… [comment TEXT]
//! ```

use crate::datatype::{Concatenation, Datatype, ValueError};
use crate::expression::{Comparison, Connection, Looked, Verdict};
use crate::message::Family;
use crate::rule::{Field, Listed, MarkChange, NewDestination, Operand, SetUse, Side, Statement, address_of};
use crate::word::{WordError, Words, number};

/// Most bytes of a comment, as `nft` has it.
const MOST_COMMENT: usize = 128;

/// Why a line is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// A word that has no place there, is not known, or is missing.
    #[error(transparent)]
    Word(#[from] WordError),
    /// A value is none of its type.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A comment is too long.
    #[error("a comment of {0} bytes, where {MOST_COMMENT} are the most")]
    Comment(usize),
    /// A set of more types than fit, or of none.
    #[error("a set of {0} types, where one to five fit")]
    Types(usize),
    /// Addresses of two families in one rule.
    #[error("addresses of the other family")]
    Families,
}

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

type Read<T> = Result<T, GrammarError>;

/// The error for a word that has no place where it stands.
fn unexpected<T>(word: impl Into<String>) -> Read<T> {
    Err(WordError::Unexpected(word.into()).into())
}

/// Reads a line: no command where it is empty, or a comment.
///
/// # Errors
/// [`GrammarError`].
pub(crate) fn command(line: &str) -> Read<Option<Command>> {
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

/// Words that are joined by dots.
fn joined(words: &mut Words) -> Read<Vec<String>> {
    let mut parts = vec![words.text()?];
    while words.accept(".") {
        parts.push(words.text()?);
    }
    Ok(parts)
}

/// Reads a verdict, if one is next.
fn verdict(words: &mut Words) -> Read<Option<Verdict>> {
    Ok(Some(match () {
        () if words.accept("accept") => Verdict::Accept,
        () if words.accept("drop") => Verdict::Drop,
        () if words.accept("return") => Verdict::Return,
        () if words.accept("continue") => Verdict::Continue,
        () if words.accept("jump") => Verdict::Jump(words.text()?),
        () if words.accept("goto") => Verdict::Goto(words.text()?),
        () => return Ok(None),
    }))
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

fn statement(table: Family, words: &mut Words) -> Read<Statement> {
    if let Some(verdict) = verdict(words)? {
        return Ok(Statement::Verdict(verdict));
    }
    let mark = words.peek() == Some("mark") || (words.peek() == Some("meta") && words.ahead(1) == Some("mark"));
    for (word, statement) in
        [("reject", Statement::Reject), ("notrack", Statement::Untracked), ("counter", Statement::Counter)]
    {
        if words.accept(word) {
            return Ok(statement);
        }
    }
    match words.peek() {
        Some("masquerade") => {
            words.bare()?;
            Ok(Statement::Masquerade { is_random: words.accept("fully-random") })
        }
        Some("dnat") => {
            words.bare()?;
            destination(table, words).map(Statement::Destination)
        }
        Some("update") => update(words),
        Some("ct") => connection(words),
        Some("fib") => local(words),
        Some("numgen") => {
            let below = random(words)?;
            words.expect("vmap")?;
            let each = numbered(words, |words| Ok(verdict(words)?.ok_or_else(|| words.unexpected())?))?;
            Ok(Statement::ByChance { below, each })
        }
        _ if mark => {
            words.accept("meta");
            words.expect("mark")?;
            self::mark(words)
        }
        _ => comparison(words),
    }
}

/// Whether the state or status of a connection is one of these, `ct state new,established`.
fn connection(words: &mut Words) -> Read<Statement> {
    // Bits of the kernel: `NF_CT_STATE_BIT` of each state, and `IPS_*`.
    const STATES: &[(&str, u32)] = &[("invalid", 1), ("established", 2), ("related", 4), ("new", 8), ("untracked", 64)];
    const STATUSES: &[(&str, u32)] = &[("snat", 16), ("dnat", 32)];
    words.expect("ct")?;
    let (of, names) = match () {
        () if words.accept("state") => (Connection::State, STATES),
        () if words.accept("status") => (Connection::Status, STATUSES),
        () => return Err(words.unexpected().into()),
    };
    let mut bits = 0;
    loop {
        let named = names.iter().find(|(name, _)| words.accept(name));
        bits |= named.map(|(_, bit)| *bit).ok_or_else(|| words.unexpected())?;
        if !words.accept(",") {
            return Ok(Statement::Connection(of, bits));
        }
    }
}

fn local(words: &mut Words) -> Read<Statement> {
    words.expect("fib")?;
    let of = match () {
        () if words.accept("saddr") => Looked::Source,
        () if words.accept("daddr") => Looked::Destination,
        () => return Err(words.unexpected().into()),
    };
    words.expect("type")?;
    words.expect("local")?;
    Ok(Statement::IsLocal(of))
}

fn mark(words: &mut Words) -> Read<Statement> {
    if words.accept("and") {
        let mask = words.number()?;
        let comparison = compared(words);
        return Ok(Statement::Mark { mask, comparison, value: words.number()? });
    }
    words.expect("set")?;
    let is_changed = if words.accept("meta") { words.expect("mark").map(|()| true)? } else { words.accept("mark") };
    if !is_changed {
        return Ok(Statement::SetMark(MarkChange::To(words.number()?)));
    }
    let change = match () {
        () if words.accept("or") => MarkChange::Or,
        () if words.accept("and") => MarkChange::And,
        () if words.accept("xor") => MarkChange::Xor,
        () => return Err(words.unexpected().into()),
    };
    Ok(Statement::SetMark(change(words.number()?)))
}

/// Takes the operator of a comparison; without one it is equality.
fn compared(words: &mut Words) -> Comparison {
    if words.accept("!=") {
        return Comparison::Unequal;
    }
    words.accept("==");
    Comparison::Equal
}

fn update(words: &mut Words) -> Read<Statement> {
    words.expect("update")?;
    let set = set_name(words)?.ok_or_else(|| words.unexpected())?;
    words.expect("{")?;
    let fields = fields(words)?;
    words.expect("}")?;
    Ok(Statement::Set(SetUse::Update, fields, set))
}

/// Takes the name of a set, `@name`, if one is next.
fn set_name(words: &mut Words) -> Read<Option<String>> {
    let name = words.peek().and_then(|word| word.strip_prefix('@')).filter(|name| !name.is_empty()).map(str::to_owned);
    if name.is_some() {
        words.bare()?;
    }
    Ok(name)
}

fn random(words: &mut Words) -> Read<u32> {
    words.expect("numgen")?;
    words.expect("random")?;
    words.expect("mod")?;
    match words.number()? {
        0 => unexpected("0"),
        below => Ok(below),
    }
}

/// Reads values under numbers, `{ 0 : …, 1 : … }`.
fn numbered<T>(words: &mut Words, mut each: impl FnMut(&mut Words) -> Read<T>) -> Read<Vec<(u32, T)>> {
    words.expect("{")?;
    let mut all = Vec::new();
    loop {
        let number = words.number()?;
        words.expect(":")?;
        all.push((number, each(words)?));
        if words.accept("}") {
            return Ok(all);
        }
        words.expect(",")?;
    }
}

fn destination(table: Family, words: &mut Words) -> Read<NewDestination> {
    let family = words.peek().and_then(Family::named);
    let address = address_of(family.unwrap_or(table));
    if family.is_some() {
        if table != Family::Inet && family != Some(table) {
            return Err(GrammarError::Families);
        }
        words.bare()?;
    }
    if words.accept("addr") {
        for word in [".", "port", "to"] {
            words.expect(word)?;
        }
        let below = random(words)?;
        words.expect("map")?;
        let types = Concatenation::of(vec![address, Datatype::Port]).ok_or(GrammarError::Types(2))?;
        let each = numbered(words, |words| Ok(types.read(&joined(words)?)?))?;
        return Ok(NewDestination::Random { below, each });
    }
    words.expect("to")?;
    let place = words.bare()?;
    let (host, port) = place.rsplit_once(':').ok_or_else(|| WordError::Unexpected(place.clone()))?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    Ok(NewDestination::One(address.read(bracketed.unwrap_or(host))?, Datatype::Port.read(port)?))
}

/// Reads the fields that are compared, joined by dots.
fn fields(words: &mut Words) -> Read<Vec<Field>> {
    let mut fields = vec![field(words)?];
    while words.accept(".") {
        fields.push(field(words)?);
    }
    Ok(fields)
}

fn field(words: &mut Words) -> Read<Field> {
    /// Fields by their two words.
    const FIELDS: &[(&str, &str, Field)] = &[
        ("ip", "saddr", Field::Source(Family::Ip)),
        ("ip", "daddr", Field::Destination(Family::Ip)),
        ("ip6", "saddr", Field::Source(Family::Ip6)),
        ("ip6", "daddr", Field::Destination(Family::Ip6)),
        ("meta", "l4proto", Field::Protocol),
        ("meta", "nfproto", Field::Family),
        ("meta", "iifname", Field::InputLink),
        ("meta", "oifname", Field::OutputLink),
        ("th", "sport", Field::Port(Side::Source)),
        ("th", "dport", Field::Port(Side::Destination)),
        ("tcp", "sport", Field::PortOf(6, Side::Source)),
        ("tcp", "dport", Field::PortOf(6, Side::Destination)),
        ("udp", "sport", Field::PortOf(17, Side::Source)),
        ("udp", "dport", Field::PortOf(17, Side::Destination)),
        ("sctp", "sport", Field::PortOf(132, Side::Source)),
        ("sctp", "dport", Field::PortOf(132, Side::Destination)),
        ("icmp", "type", Field::IcmpType),
    ];
    for (word, field) in [("iifname", Field::InputLink), ("oifname", Field::OutputLink)] {
        if words.accept(word) {
            return Ok(field);
        }
    }
    let next = (words.peek(), words.ahead(1));
    let known = FIELDS.iter().find(|(first, second, _)| next == (Some(first), Some(second)));
    let field = known.map(|(.., field)| *field).ok_or_else(|| words.unexpected())?;
    words.bare()?;
    words.bare()?;
    Ok(field)
}

/// Reads fields, and the value, set or map that they are compared with.
fn comparison(words: &mut Words) -> Read<Statement> {
    let fields = fields(words)?;
    if words.accept("vmap") {
        let map = set_name(words)?.ok_or_else(|| words.unexpected())?;
        return Ok(Statement::Set(SetUse::Verdict, fields, map));
    }
    let comparison = compared(words);
    if let Some(set) = set_name(words)? {
        return Ok(Statement::Set(SetUse::Contains(comparison), fields, set));
    }
    // A concatenation is compared with a set alone.
    let [field] = fields[..] else { return Err(words.unexpected().into()) };
    if !words.accept("{") {
        return Ok(Statement::Compare(field, comparison, operand(field, &words.text()?)?));
    }
    let mut texts = vec![words.text()?];
    while words.accept(",") {
        texts.push(words.text()?);
    }
    words.expect("}")?;
    if let [one] = texts.as_slice() {
        return Ok(Statement::Compare(field, comparison, operand(field, one)?));
    }
    Ok(Statement::Among(field, comparison, listed(field, &texts)?))
}

fn operand(field: Field, text: &str) -> Read<Operand> {
    let datatype = field.datatype();
    match (field, text.split_once('/'), text.strip_suffix('*')) {
        (Field::InputLink | Field::OutputLink, _, Some(beginning)) if !beginning.is_empty() => {
            let name = datatype.read(beginning)?;
            Ok(Operand::Beginning(name[..beginning.len()].to_vec()))
        }
        (Field::Source(_) | Field::Destination(_), Some((address, bits)), _) => {
            let bits = number(bits).filter(|bits| *bits > 0 && *bits <= datatype.bits());
            let bits = bits.ok_or_else(|| WordError::Unexpected(text.to_owned()))?;
            Ok(Operand::Prefix(datatype.read(address)?, bits))
        }
        _ => Ok(Operand::Exactly(datatype.read(text)?)),
    }
}

fn listed(field: Field, texts: &[String]) -> Read<Listed> {
    let datatype = field.datatype();
    if !texts.iter().any(|text| text.contains('/')) {
        return Ok(Listed::Values(texts.iter().map(|text| datatype.read(text)).collect::<Result<_, _>>()?));
    }
    let mut ranges = texts.iter().map(|text| datatype.range(text)).collect::<Result<Vec<_>, _>>()?;
    ranges.sort_unstable();
    let mut merged: Vec<(u128, u128)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            Some(_) | None => merged.push((first, last)),
        }
    }
    Ok(Listed::Ranges(merged))
}
