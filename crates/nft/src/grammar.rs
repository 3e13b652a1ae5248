//! Statements of rules as they are written (`nft(8)`), and what of them stands in commands, too. A word that is not known is an error.

use crate::datatype::{Concatenation, Datatype, ValueError};
use crate::expression::{Comparison, Connection, Direction, Looked, Verdict};
use crate::message::Family;
use crate::rule::{Field, Listed, MarkChange, NewDestination, Operand, SetUse, Side, Statement, address_of};
use crate::word::{WordError, Words, number};

/// Most bytes of a comment, as `nft` has it.
pub(crate) const MOST_COMMENT: usize = 128;

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

pub(crate) type Read<T> = Result<T, GrammarError>;

/// The error for a word that has no place where it stands.
pub(crate) fn unexpected<T>(word: impl Into<String>) -> Read<T> {
    Err(WordError::Unexpected(word.into()).into())
}

/// Words that are joined by dots.
pub(crate) fn joined(words: &mut Words) -> Read<Vec<String>> {
    let mut parts = vec![words.text()?];
    while words.accept(".") {
        parts.push(words.text()?);
    }
    Ok(parts)
}

/// Reads a verdict, if one is next.
pub(crate) fn verdict(words: &mut Words) -> Read<Option<Verdict>> {
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

/// Reads a statement of a rule in a table of this family.
///
/// # Errors
/// [`GrammarError`].
pub(crate) fn statement(table: Family, words: &mut Words) -> Read<Statement> {
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

/// Whether the state or status of a connection is one of these, `ct state new,established`, or the packet goes that way,
/// `ct direction reply`.
fn connection(words: &mut Words) -> Read<Statement> {
    // Bits of the kernel: `NF_CT_STATE_BIT` of each state, and `IPS_*`.
    const STATES: &[(&str, u32)] = &[("invalid", 1), ("established", 2), ("related", 4), ("new", 8), ("untracked", 64)];
    const STATUSES: &[(&str, u32)] = &[("snat", 16), ("dnat", 32)];
    words.expect("ct")?;
    if words.accept("direction") {
        let direction = match () {
            () if words.accept("original") => Direction::Original,
            () if words.accept("reply") => Direction::Reply,
            () => return Err(words.unexpected().into()),
        };
        return Ok(Statement::Direction(direction));
    }
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
    if let Some(of) = words.peek().and_then(Family::named).filter(|_| words.ahead(1) == Some("daddr")) {
        let is_other = |other: Family| other != Family::Inet && other != of;
        if is_other(table) || family.is_some_and(is_other) {
            return Err(GrammarError::Families);
        }
        words.bare()?;
        words.bare()?;
        return Ok(NewDestination::Own(of));
    }
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
        let operand = operand(field, &words.text()?)?;
        return compare(field, comparison, operand);
    }
    let mut texts = vec![words.text()?];
    while words.accept(",") {
        texts.push(words.text()?);
    }
    words.expect("}")?;
    if let [one] = texts.as_slice() {
        return compare(field, comparison, operand(field, one)?);
    }
    Ok(Statement::Among(field, comparison, listed(field, &texts)?))
}

/// A comparison, of which those that nobody writes are not known: that a value is outside of a range.
fn compare(field: Field, comparison: Comparison, operand: Operand) -> Read<Statement> {
    if matches!(operand, Operand::Range(..)) && comparison == Comparison::Unequal {
        return unexpected("!=");
    }
    Ok(Statement::Compare(field, comparison, operand))
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
        (Field::Port(_) | Field::PortOf(..), ..) if text.contains('-') => {
            let (first, last) = datatype.range(text)?;
            let bytes = |port: u128| port.to_be_bytes()[14..].to_vec();
            Ok(Operand::Range(bytes(first), bytes(last)))
        }
        _ => Ok(Operand::Exactly(datatype.read(text)?)),
    }
}

fn listed(field: Field, texts: &[String]) -> Read<Listed> {
    let datatype = field.datatype();
    let is_range = |text: &String| text.contains('/') || (datatype == Datatype::Port && text.contains('-'));
    if !texts.iter().any(is_range) {
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
