//! Statements of a rule, and the expressions that they become: what of a packet is compared needs to be there first, so the family
//! and the protocol are compared before an address or a port is.

use crate::datatype::Datatype;
use crate::expression::{
    Comparison, Connection, Direction, Expression, Gives, Header, LOCAL, Looked, Meta, Register, SetName, Verdict,
    WITH_PORT,
};
use crate::message::Family;

/// Part of a packet, or a fact about it, that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    InputLink,
    OutputLink,
    Family,
    Protocol,
    Source(Family),
    Destination(Family),
    /// Port of whatever protocol it is.
    Port(Side),
    /// Port of this protocol, which is compared, too.
    PortOf(u8, Side),
    IcmpType,
}

/// Side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

/// Value that a field is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operand {
    Exactly(Vec<u8>),
    /// Address whose first bits count.
    Prefix(Vec<u8>, u32),
    /// Beginning of a link's name.
    Beginning(Vec<u8>),
    /// First and last value of a range that the field is in.
    Range(Vec<u8>, Vec<u8>),
}

/// Elements of a set that a rule lists itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listed {
    Values(Vec<Vec<u8>>),
    /// First and last of each, as numbers.
    Ranges(Vec<(u128, u128)>),
}

/// Use that a rule makes of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetUse {
    /// Looks whether the fields are in it.
    Contains(Comparison),
    /// Takes the verdict that a map has for the fields.
    Verdict,
    /// Puts the fields into it, or renews their timeout.
    Update,
}

/// Destination that a packet is sent to instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NewDestination {
    /// This address and port.
    One(Vec<u8>, Vec<u8>),
    /// The one that it has: whoever comes later in the hook changes it no more.
    Own(Family),
    /// By chance one of several, each an address and a port under its number.
    Random { below: u32, each: Vec<(u32, Vec<u8>)> },
}

/// Way to change a packet's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkChange {
    To(u32),
    Or(u32),
    And(u32),
    Xor(u32),
}

/// Statement of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Statement {
    Compare(Field, Comparison, Operand),
    Among(Field, Comparison, Listed),
    /// Use of the set of this name, for these fields.
    Set(SetUse, Vec<Field>, String),
    /// Verdict of one number by chance.
    ByChance {
        below: u32,
        each: Vec<(u32, Verdict)>,
    },
    /// At least one of the bits is set.
    Connection(Connection, u32),
    Direction(Direction),
    /// Whether the address is one of the machine's own.
    IsLocal(Looked),
    Mark {
        mask: u32,
        comparison: Comparison,
        value: u32,
    },
    SetMark(MarkChange),
    Verdict(Verdict),
    Reject,
    Masquerade {
        is_random: bool,
    },
    Destination(NewDestination),
    Untracked,
    Counter,
}

/// Set that belongs to one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Anonymous<'a> {
    Set(Datatype, &'a Listed),
    Verdicts(&'a [(u32, Verdict)]),
    /// Addresses of a family, each with a port.
    Destinations(Family, &'a [(u32, Vec<u8>)]),
}

const ICMP: u8 = 1;

impl Field {
    pub(crate) const fn datatype(self) -> Datatype {
        match self {
            Self::InputLink | Self::OutputLink => Datatype::Link,
            Self::Family => Datatype::Family,
            Self::Protocol => Datatype::Protocol,
            Self::Source(family) | Self::Destination(family) => address_of(family),
            Self::Port(_) | Self::PortOf(..) => Datatype::Port,
            Self::IcmpType => Datatype::IcmpType,
        }
    }

    /// Place in the packet.
    const fn place(self) -> Option<(Header, u32)> {
        match self {
            Self::Source(Family::Ip6) => Some((Header::Network, 8)),
            Self::Destination(Family::Ip6) => Some((Header::Network, 24)),
            Self::Source(Family::Ip | Family::Inet) => Some((Header::Network, 12)),
            Self::Destination(Family::Ip | Family::Inet) => Some((Header::Network, 16)),
            Self::Port(Side::Source) | Self::PortOf(_, Side::Source) | Self::IcmpType => Some((Header::Transport, 0)),
            Self::Port(Side::Destination) | Self::PortOf(_, Side::Destination) => Some((Header::Transport, 2)),
            Self::InputLink | Self::OutputLink | Self::Family | Self::Protocol => None,
        }
    }

    /// Loads the first bytes of it.
    fn load(self, bytes: usize, to: Register) -> Expression {
        let meta = match (self, self.place()) {
            (_, Some((header, offset))) => {
                let bytes = u32::try_from(bytes).expect("a field is short");
                return Expression::Payload { header, offset, bytes, to };
            }
            (Self::InputLink, None) => Meta::InputName,
            (Self::OutputLink, None) => Meta::OutputName,
            (Self::Family, None) => Meta::Family,
            (_, None) => Meta::Protocol,
        };
        Expression::Meta(meta, to)
    }
}

/// Type of a family's addresses.
pub(crate) const fn address_of(family: Family) -> Datatype {
    match family {
        Family::Ip6 => Datatype::Ipv6,
        Family::Ip | Family::Inet => Datatype::Ipv4,
    }
}

/// Expressions of a rule, as far as they are known.
#[derive(Debug)]
pub(crate) struct Expressions<F> {
    table: Family,
    /// Family and protocol that a packet has which gets here.
    family: Option<Family>,
    protocol: Option<u8>,
    expressions: Vec<Expression>,
    anonymous: F,
}

/// Expressions of a rule in a table of this family; `anonymous` makes the sets that belong to it.
pub(crate) fn expressions<E>(
    statements: &[Statement],
    table: Family,
    anonymous: impl FnMut(&Anonymous<'_>) -> Result<SetName, E>,
) -> Result<Vec<Expression>, E> {
    let family = (table != Family::Inet).then_some(table);
    let mut rule = Expressions { table, family, protocol: None, expressions: Vec::new(), anonymous };
    statements.iter().try_for_each(|statement| rule.push(statement))?;
    Ok(rule.expressions)
}

impl<E, F: FnMut(&Anonymous<'_>) -> Result<SetName, E>> Expressions<F> {
    fn push(&mut self, statement: &Statement) -> Result<(), E> {
        match statement {
            Statement::Compare(field, comparison, operand) => self.compare(*field, *comparison, operand),
            Statement::Among(field, comparison, listed) => {
                let set = (self.anonymous)(&Anonymous::Set(field.datatype(), listed))?;
                self.load(&[*field]);
                self.lookup(set, *comparison, Gives::Nothing);
            }
            Statement::Set(used, fields, set) => {
                self.load(fields);
                let name = SetName { name: set.clone(), number: None };
                match used {
                    SetUse::Contains(comparison) => self.lookup(name, *comparison, Gives::Nothing),
                    SetUse::Verdict => self.lookup(name, Comparison::Equal, Gives::Verdict),
                    SetUse::Update => self.expressions.push(Expression::Update(name.name)),
                }
            }
            Statement::ByChance { below, each } => {
                let map = (self.anonymous)(&Anonymous::Verdicts(each))?;
                self.expressions.push(Expression::Random { below: *below });
                self.lookup(map, Comparison::Equal, Gives::Verdict);
            }
            Statement::Connection(of, bits) => {
                self.expressions.push(Expression::Connection(*of));
                self.bits(*bits, Comparison::Unequal, 0);
            }
            Statement::Direction(way) => {
                self.expressions.push(Expression::Connection(Connection::Direction));
                self.equal(&[*way as u8]);
            }
            Statement::IsLocal(of) => {
                self.expressions.push(Expression::Route(*of));
                self.equal(&LOCAL.to_ne_bytes());
            }
            Statement::Mark { mask, comparison, value } => {
                self.expressions.push(Expression::Meta(Meta::Mark, Register::FIRST));
                self.bits(*mask, *comparison, *value);
            }
            Statement::SetMark(change) => self.set_mark(*change),
            Statement::Verdict(verdict) => self.expressions.push(Expression::Verdict(verdict.clone())),
            Statement::Reject => self.expressions.push(self.refusal()),
            Statement::Masquerade { is_random } => {
                self.expressions.push(Expression::Masquerade { is_random: *is_random });
            }
            Statement::Destination(to) => self.destination(to)?,
            Statement::Untracked => self.expressions.push(Expression::Untracked),
            Statement::Counter => self.expressions.push(Expression::Counter),
        }
        Ok(())
    }

    fn compare(&mut self, field: Field, comparison: Comparison, operand: &Operand) {
        self.need(field);
        let all = field.datatype().bytes();
        let load = |bytes| field.load(bytes, Register::FIRST);
        match operand {
            Operand::Exactly(value) => {
                self.expressions.extend([load(all), Expression::Compare(comparison, value.clone())]);
            }
            Operand::Beginning(value) => {
                self.expressions.extend([load(all), Expression::Compare(comparison, value.clone())]);
            }
            Operand::Range(first, last) => self.expressions.extend([
                load(all),
                Expression::Compare(Comparison::AtLeast, first.clone()),
                Expression::Compare(Comparison::AtMost, last.clone()),
            ]),
            Operand::Prefix(address, bits) => {
                let mask: Vec<u8> = (0..all).map(|byte| mask(*bits, byte)).collect();
                let value: Vec<u8> = address.iter().zip(&mask).map(|(byte, mask)| byte & mask).collect();
                let whole = mask.iter().take_while(|mask| **mask == u8::MAX).count();
                if bits % 8 == 0 && whole > 0 {
                    let value = value[..whole].to_vec();
                    self.expressions.extend([load(whole), Expression::Compare(comparison, value)]);
                } else {
                    let xor = vec![0; all];
                    self.expressions.extend([
                        load(all),
                        Expression::Bitwise { mask, xor },
                        Expression::Compare(comparison, value),
                    ]);
                }
            }
        }
        if let (Field::Family, Comparison::Equal, Operand::Exactly(value)) = (field, comparison, operand) {
            self.family = [Family::Ip, Family::Ip6].into_iter().find(|family| value[..] == [*family as u8]);
        }
    }

    /// Loads fields, one behind the other.
    fn load(&mut self, fields: &[Field]) {
        let mut place = 0;
        for field in fields {
            self.need(*field);
            let bytes = field.datatype().bytes();
            self.expressions.push(field.load(bytes, Register::behind(place)));
            place += bytes.next_multiple_of(4);
        }
    }

    /// Has the packet be of the family and protocol that the field is of.
    fn need(&mut self, field: Field) {
        let (family, protocol) = match field {
            Field::Source(family) | Field::Destination(family) => (Some(family), None),
            Field::IcmpType => (Some(Family::Ip), Some(ICMP)),
            Field::PortOf(protocol, _) => (None, Some(protocol)),
            Field::InputLink | Field::OutputLink | Field::Family | Field::Protocol | Field::Port(_) => (None, None),
        };
        if let Some(family) = family.filter(|family| self.family != Some(*family)) {
            self.expressions.push(Expression::Meta(Meta::Family, Register::FIRST));
            self.equal(&[family as u8]);
            self.family = Some(family);
        }
        if let Some(protocol) = protocol.filter(|protocol| self.protocol != Some(*protocol)) {
            self.expressions.push(Expression::Meta(Meta::Protocol, Register::FIRST));
            self.equal(&[protocol]);
            self.protocol = Some(protocol);
        }
    }

    fn set_mark(&mut self, change: MarkChange) {
        let bitwise = |mask: u32, xor: u32| Expression::Bitwise {
            mask: mask.to_ne_bytes().to_vec(),
            xor: xor.to_ne_bytes().to_vec(),
        };
        let changed = match change {
            MarkChange::To(mark) => vec![Expression::Value(Register::FIRST, mark.to_ne_bytes().to_vec())],
            MarkChange::Or(bits) => vec![Expression::Meta(Meta::Mark, Register::FIRST), bitwise(!bits, bits)],
            MarkChange::And(bits) => vec![Expression::Meta(Meta::Mark, Register::FIRST), bitwise(bits, 0)],
            MarkChange::Xor(bits) => vec![Expression::Meta(Meta::Mark, Register::FIRST), bitwise(u32::MAX, bits)],
        };
        self.expressions.extend(changed);
        self.expressions.push(Expression::SetMeta(Meta::Mark));
    }

    fn destination(&mut self, to: &NewDestination) -> Result<(), E> {
        let family = self.family.unwrap_or(Family::Ip);
        let (port, flags) = match to {
            NewDestination::One(address, port) => {
                self.expressions.push(Expression::Value(Register::FIRST, address.clone()));
                self.expressions.push(Expression::Value(Register::SECOND, port.clone()));
                (Some(Register::SECOND), Some(WITH_PORT))
            }
            NewDestination::Own(family) => {
                self.load(&[Field::Destination(*family)]);
                (None, None)
            }
            NewDestination::Random { below, each } => {
                let map = (self.anonymous)(&Anonymous::Destinations(family, each))?;
                self.expressions.push(Expression::Random { below: *below });
                self.lookup(map, Comparison::Equal, Gives::Value);
                (Some(Register::behind(address_of(family).bytes())), None)
            }
        };
        self.expressions.push(Expression::Destination { family, port, flags });
        Ok(())
    }

    /// Refusal that says: the port is unreachable.
    const fn refusal(&self) -> Expression {
        match self.table {
            Family::Ip => Expression::Reject { kind: 0, code: 3 },
            Family::Ip6 => Expression::Reject { kind: 0, code: 4 },
            Family::Inet => Expression::Reject { kind: 2, code: 1 },
        }
    }

    fn lookup(&mut self, set: SetName, comparison: Comparison, gives: Gives) {
        self.expressions.push(Expression::Lookup { set, comparison, gives });
    }

    fn equal(&mut self, value: &[u8]) {
        self.expressions.push(Expression::Compare(Comparison::Equal, value.to_vec()));
    }

    /// Compares some bits of a number.
    fn bits(&mut self, mask: u32, comparison: Comparison, value: u32) {
        let [mask, value, none] = [mask, value, 0].map(|number: u32| number.to_ne_bytes().to_vec());
        self.expressions.extend([Expression::Bitwise { mask, xor: none }, Expression::Compare(comparison, value)]);
    }
}

/// Mask of one byte of an address whose first bits count.
fn mask(bits: u32, byte: usize) -> u8 {
    let before = u32::try_from(8 * byte).expect("an address is short");
    let counted = bits.saturating_sub(before).min(8);
    u8::MAX.checked_shl(8 - counted).unwrap_or(0)
}
