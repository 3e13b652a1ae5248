//! Expressions of a rule, as the kernel runs them one after the other (`net/netfilter/nf_tables_core.c`): each loads into a register,
//! compares one, or does something to the packet. Their attributes are those of `include/uapi/linux/netfilter/nf_tables.h`, and they
//! are shown as `nft --debug=netlink` shows them.

use std::fmt;

use crate::attribute::Attributes;
use crate::message::Family;

/// Register of a rule: 16 bytes from a number of 1 to 4 on, or 4 bytes from 8 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Register(u32);

impl Register {
    pub(crate) const FIRST: Self = Self(1);
    pub(crate) const SECOND: Self = Self(2);

    /// The register `bytes` behind the first.
    pub(crate) fn behind(bytes: usize) -> Self {
        let bytes = u32::try_from(bytes).expect("a key is short");
        if bytes % 16 == 0 { Self(1 + bytes / 16) } else { Self(8 + bytes / 4) }
    }
}

/// Place in a packet that offsets count from (`NFT_PAYLOAD_*_HEADER`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    Network = 1,
    Transport = 2,
}

/// Fact about a packet beside its bytes (`NFT_META_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meta {
    Mark = 3,
    InputName = 6,
    OutputName = 7,
    Family = 15,
    Protocol = 16,
}

/// Fact about a packet's connection (`NFT_CT_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connection {
    State = 0,
    Direction = 1,
    Status = 2,
}

/// Way of a packet in its connection (`IP_CT_DIR_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Original = 0,
    Reply = 1,
}

/// Address that a route is looked up for (`NFTA_FIB_F_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looked {
    Source = 1,
    Destination = 2,
}

/// Way to compare (`NFT_CMP_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal = 0,
    Unequal = 1,
    AtMost = 3,
    AtLeast = 5,
}

/// End of a packet in a chain (`NF_*`, `NFT_*`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept,
    Drop,
    Continue,
    Return,
    Jump(String),
    Goto(String),
}

/// Set that a rule names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetName {
    pub(crate) name: String,
    /// Number of an anonymous set within its transaction.
    pub(crate) number: Option<u32>,
}

/// Data that a found element gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gives {
    Nothing,
    Verdict,
    /// A value, from the first register on.
    Value,
}

/// Expression of a rule. What is loaded goes to the first register, unless one is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expression {
    Payload {
        header: Header,
        offset: u32,
        bytes: u32,
        to: Register,
    },
    Meta(Meta, Register),
    SetMeta(Meta),
    Connection(Connection),
    /// Type of the route to an address.
    Route(Looked),
    /// Number below `below`, by chance.
    Random {
        below: u32,
    },
    Compare(Comparison, Vec<u8>),
    Bitwise {
        mask: Vec<u8>,
        xor: Vec<u8>,
    },
    Value(Register, Vec<u8>),
    Verdict(Verdict),
    Lookup {
        set: SetName,
        comparison: Comparison,
        gives: Gives,
    },
    /// Puts the first register into a set, or renews its timeout there.
    Update(String),
    Masquerade {
        is_random: bool,
    },
    /// New destination: its address is in the first register. Some flags are said, and the kernel finds the others.
    Destination {
        family: Family,
        port: Option<Register>,
        flags: Option<u32>,
    },
    /// Refusal as ICMP says it, of this kind and code.
    Reject {
        kind: u32,
        code: u8,
    },
    /// The packet belongs to no connection.
    Untracked,
    Counter,
}

/// Attributes of one expression, and of a list of them (`NFTA_EXPR_*`, `NFTA_LIST_ELEM`).
const NAME: u16 = 1;
const DATA: u16 = 2;
const ELEMENT: u16 = 1;
/// Route to an address of the machine's own (`RTN_LOCAL`), and that it is the type which is asked for (`NFT_FIB_RESULT_ADDRTYPE`).
pub(crate) const LOCAL: u32 = 2;
const ROUTE_TYPE: u32 = 3;
/// `NF_NAT_RANGE_PROTO_SPECIFIED`, `NF_NAT_RANGE_PROTO_RANDOM_FULLY`.
pub(crate) const WITH_PORT: u32 = 2;
const FULLY_RANDOM: u32 = 16;

/// Attributes of a list of expressions.
pub(crate) fn listed(expressions: &[Expression]) -> Attributes {
    expressions.iter().fold(Attributes::default(), |list, expression| {
        let (name, data) = expression.attributes();
        list.nested(ELEMENT, &Attributes::default().name(NAME, name).nested(DATA, &data))
    })
}

/// Attributes of a value (`NFTA_DATA_VALUE`).
pub(crate) fn value(bytes: &[u8]) -> Attributes {
    Attributes::default().bytes(1, bytes)
}

impl Verdict {
    /// Attributes of a verdict (`NFTA_DATA_VERDICT`, `NFTA_VERDICT_*`).
    pub(crate) fn attributes(&self) -> Attributes {
        let (code, chain): (i32, _) = match self {
            Self::Drop => (0, None),
            Self::Accept => (1, None),
            Self::Continue => (-1, None),
            Self::Jump(chain) => (-3, Some(chain)),
            Self::Goto(chain) => (-4, Some(chain)),
            Self::Return => (-5, None),
        };
        let verdict = Attributes::default().number(1, code.cast_unsigned());
        let verdict = chain.into_iter().fold(verdict, |verdict, chain| verdict.name(2, chain));
        Attributes::default().nested(2, &verdict)
    }
}

impl Expression {
    /// Name of the expression, and its attributes.
    fn attributes(&self) -> (&'static str, Attributes) {
        let first = Register::FIRST.0;
        let none = Attributes::default();
        match self {
            Self::Payload { header, offset, bytes, to } => {
                ("payload", none.number(1, to.0).number(2, *header as u32).number(3, *offset).number(4, *bytes))
            }
            Self::Meta(meta, to) => ("meta", none.number(2, *meta as u32).number(1, to.0)),
            Self::SetMeta(meta) => ("meta", none.number(2, *meta as u32).number(3, first)),
            Self::Connection(of) => ("ct", none.number(2, *of as u32).number(1, first)),
            Self::Route(of) => ("fib", none.number(3, *of as u32).number(2, ROUTE_TYPE).number(1, first)),
            Self::Random { below } => ("numgen", none.number(1, first).number(2, *below).number(3, 1).number(4, 0)),
            Self::Compare(comparison, with) => {
                ("cmp", none.number(1, first).number(2, *comparison as u32).nested(3, &value(with)))
            }
            Self::Bitwise { mask, xor } => {
                let bytes = u32::try_from(mask.len()).expect("a mask is short");
                let numbers = none.number(1, first).number(2, first).number(3, bytes).number(6, 0);
                ("bitwise", numbers.nested(4, &value(mask)).nested(5, &value(xor)))
            }
            Self::Value(to, bytes) => ("immediate", none.number(1, to.0).nested(2, &value(bytes))),
            Self::Verdict(verdict) => ("immediate", none.number(1, 0).nested(2, &verdict.attributes())),
            Self::Lookup { set, comparison, gives } => {
                let lookup = none.name(1, &set.name).number(2, first);
                let lookup = match gives {
                    Gives::Nothing => lookup,
                    Gives::Verdict => lookup.number(3, 0),
                    Gives::Value => lookup.number(3, first),
                };
                let lookup = set.number.into_iter().fold(lookup, |lookup, number| lookup.number(4, number));
                ("lookup", if *comparison == Comparison::Unequal { lookup.number(5, 1) } else { lookup })
            }
            Self::Update(set) => ("dynset", none.number(4, first).name(1, set).number(3, 1)),
            Self::Masquerade { is_random } => ("masq", if *is_random { none.number(1, FULLY_RANDOM) } else { none }),
            Self::Destination { family, port, flags } => {
                let nat = none.number(1, 1).number(2, *family as u32).number(3, first);
                let nat = port.iter().fold(nat, |nat, port| nat.number(5, port.0));
                ("nat", flags.iter().fold(nat, |nat, flags| nat.number(7, *flags)))
            }
            Self::Reject { kind, code } => ("reject", none.number(1, *kind).bytes(2, &[*code])),
            Self::Untracked => ("notrack", none),
            Self::Counter => ("counter", none.long(1, 0).long(2, 0)),
        }
    }
}

/// Bytes in words of four, as the machine reads them.
fn shown(bytes: &[u8]) -> String {
    let word = |bytes: &[u8]| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        format!("0x{:08x}", u32::from_ne_bytes(word))
    };
    bytes.chunks(4).map(word).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Continue => f.write_str("continue"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump -> {chain}"),
            Self::Goto(chain) => write!(f, "goto -> {chain}"),
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = |comparison: Comparison| match comparison {
            Comparison::Equal => "eq",
            Comparison::Unequal => "neq",
            Comparison::AtMost => "lte",
            Comparison::AtLeast => "gte",
        };
        let meta = |meta: Meta| match meta {
            Meta::Mark => "mark",
            Meta::InputName => "iifname",
            Meta::OutputName => "oifname",
            Meta::Family => "nfproto",
            Meta::Protocol => "l4proto",
        };
        match self {
            Self::Payload { header, offset, bytes, to } => {
                let header = if *header == Header::Network { "network" } else { "transport" };
                write!(f, "[ payload load {bytes}b @ {header} header + {offset} => reg {} ]", to.0)
            }
            Self::Meta(of, to) => write!(f, "[ meta load {} => reg {} ]", meta(*of), to.0),
            Self::SetMeta(of) => write!(f, "[ meta set {} with reg 1 ]", meta(*of)),
            Self::Connection(Connection::State) => f.write_str("[ ct load state => reg 1 ]"),
            Self::Connection(Connection::Direction) => f.write_str("[ ct load direction => reg 1 ]"),
            Self::Connection(Connection::Status) => f.write_str("[ ct load status => reg 1 ]"),
            Self::Route(Looked::Source) => f.write_str("[ fib saddr type => reg 1 ]"),
            Self::Route(Looked::Destination) => f.write_str("[ fib daddr type => reg 1 ]"),
            Self::Random { below } => write!(f, "[ numgen reg 1 = random mod {below} ]"),
            Self::Compare(comparison, with) => write!(f, "[ cmp {} reg 1 {} ]", by(*comparison), shown(with)),
            Self::Bitwise { mask, xor } => {
                write!(f, "[ bitwise reg 1 = ( reg 1 & {} ) ^ {} ]", shown(mask), shown(xor))
            }
            Self::Value(to, bytes) => write!(f, "[ immediate reg {} {} ]", to.0, shown(bytes)),
            Self::Verdict(verdict) => write!(f, "[ immediate reg 0 {verdict} ]"),
            Self::Lookup { set, comparison, gives } => {
                let gives = match gives {
                    Gives::Nothing => "",
                    Gives::Verdict => " dreg 0",
                    Gives::Value => " dreg 1",
                };
                let inverted = if *comparison == Comparison::Unequal { " 0x1" } else { "" };
                write!(f, "[ lookup reg 1 set {}{gives}{inverted} ]", set.name)
            }
            Self::Update(set) => write!(f, "[ dynset update reg_key 1 set {set} ]"),
            Self::Masquerade { is_random: true } => write!(f, "[ masq flags {FULLY_RANDOM:#x} ]"),
            Self::Masquerade { is_random: false } => f.write_str("[ masq ]"),
            Self::Destination { family, port, flags } => {
                let port = port.map_or_else(String::new, |port| format!(" proto_min reg {}", port.0));
                let flags = flags.map_or_else(String::new, |flags| format!(" flags {flags:#x}"));
                write!(f, "[ nat dnat {} addr_min reg 1{port}{flags} ]", family.name())
            }
            Self::Reject { kind, code } => write!(f, "[ reject type {kind} code {code} ]"),
            Self::Untracked => f.write_str("[ notrack ]"),
            Self::Counter => f.write_str("[ counter pkts 0 bytes 0 ]"),
        }
    }
}
