//! A strict pass over protobuf bytes, before prost sees them.
//!
//! prost follows protobuf: it skips unknown fields, lets the last of a repeated scalar win and merges messages. What
//! Cairn stores must say one thing only, so [`check`] walks the wire format against a table of the expected message
//! and refuses everything else. It never interprets a value beyond its range, and it never allocates.
//!
//! [`strict_message!`](crate::strict_message) declares a message once, for this pass and for prost.
//!
//! Wire format: <https://protobuf.dev/programming-guides/encoding/>.

/// Schema of a message: the fields that it may hold.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// The message's name, for error texts.
    pub name: &'static str,
    /// Fields that the message may hold; any other number is refused.
    pub fields: &'static [Field],
}

/// Schema of a field of a [`Message`].
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The field number, 1 or more.
    pub number: u32,
    /// The field's name, for error texts.
    pub name: &'static str,
    /// Encoding and bounds of the value.
    pub kind: Kind,
    /// How often it may occur.
    pub rule: Rule,
}

/// Encoding of a field's value on the wire, and its bounds.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A varint of 0 or 1.
    Bool,
    /// A varint below 2^32.
    U32,
    /// Any varint.
    U64,
    /// Four bytes, little-endian.
    Fixed32,
    /// Length-delimited bytes.
    Bytes,
    /// Length-delimited UTF-8.
    Text,
    /// A nested message; it may be empty when nothing in it is required.
    Message(&'static Message),
}

/// How often a field may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Exactly once.
    Required,
    /// At most once.
    Optional,
    /// Any number of times, each with its own tag (never packed).
    Repeated,
    /// Arm of the named oneof: exactly one of its arms occurs, once.
    Arm(&'static str),
}

/// Why bytes are not the message they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// There is nothing: a file that was never written.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// The bytes end inside a tag, a length or a value.
    #[error("{0} ends in the middle of a field")]
    Truncated(&'static str),
    /// A varint of more bytes than it needs, or beyond 64 bits.
    #[error("{0} holds an overlong number")]
    Overlong(&'static str),
    /// A field this version does not know.
    #[error("{message} has an unknown field {number}")]
    Unknown { message: &'static str, number: u64 },
    /// A known field of another wire type.
    #[error("field {field} of {message} has the wrong wire type")]
    WireType { message: &'static str, field: &'static str },
    /// A field that may occur once occurs again.
    #[error("field {field} of {message} occurs twice")]
    Twice { message: &'static str, field: &'static str },
    /// Two arms of one oneof.
    #[error("{message} has more than one {oneof}")]
    TwoArms { message: &'static str, oneof: &'static str },
    /// A required field is not there.
    #[error("{message} lacks field {field}")]
    Missing { message: &'static str, field: &'static str },
    /// No arm of a oneof.
    #[error("{message} lacks one of its {oneof} fields")]
    NoArm { message: &'static str, oneof: &'static str },
    /// A number that its field cannot hold.
    #[error("field {field} of {message} is out of range")]
    Range { message: &'static str, field: &'static str },
    /// A text that is not UTF-8.
    #[error("field {field} of {message} is not UTF-8")]
    NotUtf8 { message: &'static str, field: &'static str },
}

/// Checks that `bytes` are exactly one message of the shape of `schema`.
///
/// # Errors
/// [`FormatError`] names the first thing that is not as the table says.
pub fn check(bytes: &[u8], schema: &Message) -> Result<(), FormatError> {
    if bytes.is_empty() {
        return Err(FormatError::Empty(schema.name));
    }
    message(bytes, schema)
}

/// The number in field `number` of the outermost message, where there is one; for a version that must be looked at
/// before the rest of the message can be understood. Other fields are skipped, of whatever kind they are.
///
/// # Errors
/// [`FormatError`] when the bytes are no protobuf at all, or when the field occurs twice or as something else.
pub fn version(bytes: &[u8], schema: &Message, field: &'static str, number: u32) -> Result<Option<u64>, FormatError> {
    if bytes.is_empty() {
        return Err(FormatError::Empty(schema.name));
    }
    let mut reader = Reader { rest: bytes, message: schema.name };
    let mut found = None;
    while !reader.rest.is_empty() {
        let (read, value) = reader.field()?;
        if read != u64::from(number) {
            continue;
        }
        let Value::Varint(value) = value else {
            return Err(FormatError::WireType { message: schema.name, field });
        };
        if found.replace(value).is_some() {
            return Err(FormatError::Twice { message: schema.name, field });
        }
    }
    Ok(found)
}

fn message(bytes: &[u8], schema: &Message) -> Result<(), FormatError> {
    let mut reader = Reader { rest: bytes, message: schema.name };
    while !reader.rest.is_empty() {
        let before = reader.rest;
        let (number, value) = reader.field()?;
        let Some(field) = schema.fields.iter().find(|field| u64::from(field.number) == number) else {
            return Err(FormatError::Unknown { message: schema.name, number });
        };
        let earlier = &bytes[..bytes.len() - before.len()];
        once(earlier, schema, field)?;
        fits(value, schema.name, field)?;
    }
    schema.fields.iter().try_for_each(|field| present(bytes, schema, field))
}

/// Refuses `field` if the bytes before it hold it already, or another arm of its oneof.
fn once(earlier: &[u8], schema: &Message, field: &Field) -> Result<(), FormatError> {
    let twice = FormatError::Twice { message: schema.name, field: field.name };
    match field.rule {
        Rule::Repeated => Ok(()),
        Rule::Required | Rule::Optional if occurs(earlier, schema, field)? => Err(twice),
        Rule::Required | Rule::Optional => Ok(()),
        Rule::Arm(_) if occurs(earlier, schema, field)? => Err(twice),
        Rule::Arm(oneof) if any_arm(earlier, schema, oneof)? => {
            Err(FormatError::TwoArms { message: schema.name, oneof })
        }
        Rule::Arm(_) => Ok(()),
    }
}

fn present(bytes: &[u8], schema: &Message, field: &Field) -> Result<(), FormatError> {
    match field.rule {
        Rule::Required if !occurs(bytes, schema, field)? => {
            Err(FormatError::Missing { message: schema.name, field: field.name })
        }
        Rule::Arm(oneof) if !any_arm(bytes, schema, oneof)? => Err(FormatError::NoArm { message: schema.name, oneof }),
        Rule::Required | Rule::Arm(_) | Rule::Optional | Rule::Repeated => Ok(()),
    }
}

fn any_arm(bytes: &[u8], schema: &Message, oneof: &'static str) -> Result<bool, FormatError> {
    for arm in schema.fields.iter().filter(|arm| arm.rule == Rule::Arm(oneof)) {
        if occurs(bytes, schema, arm)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn occurs(bytes: &[u8], schema: &Message, field: &Field) -> Result<bool, FormatError> {
    let mut reader = Reader { rest: bytes, message: schema.name };
    while !reader.rest.is_empty() {
        if reader.field()?.0 == u64::from(field.number) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn fits(value: Value<'_>, message_name: &'static str, field: &Field) -> Result<(), FormatError> {
    let range = FormatError::Range { message: message_name, field: field.name };
    match (field.kind, value) {
        (Kind::Bool, Value::Varint(number)) if number > 1 => Err(range),
        (Kind::U32, Value::Varint(number)) if u32::try_from(number).is_err() => Err(range),
        (Kind::Bool | Kind::U32 | Kind::U64, Value::Varint(_)) => Ok(()),
        (Kind::Fixed32, Value::Four) | (Kind::Bytes, Value::Delimited(_)) => Ok(()),
        (Kind::Text, Value::Delimited(bytes)) => match std::str::from_utf8(bytes) {
            Ok(_) => Ok(()),
            Err(_) => Err(FormatError::NotUtf8 { message: message_name, field: field.name }),
        },
        (Kind::Message(schema), Value::Delimited(bytes)) => message(bytes, schema),
        (
            Kind::Bool | Kind::U32 | Kind::U64 | Kind::Fixed32 | Kind::Bytes | Kind::Text | Kind::Message(_),
            Value::Varint(_) | Value::Four | Value::Eight | Value::Delimited(_) | Value::Group,
        ) => Err(FormatError::WireType { message: message_name, field: field.name }),
    }
}

#[derive(Clone, Copy)]
enum Value<'a> {
    Varint(u64),
    Four,
    Eight,
    Delimited(&'a [u8]),
    /// Groups and the two reserved wire types: no table has a field of such a kind.
    Group,
}

struct Reader<'a> {
    rest: &'a [u8],
    message: &'static str,
}

impl<'a> Reader<'a> {
    fn field(&mut self) -> Result<(u64, Value<'a>), FormatError> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.take(8).map(|_| Value::Eight)?,
            2 => {
                let length = self.varint()?;
                Value::Delimited(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Four)?,
            _ => Value::Group,
        };
        Ok((tag >> 3, value))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], FormatError> {
        let length = usize::try_from(length).map_err(|_| FormatError::Truncated(self.message))?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(FormatError::Truncated(self.message))?;
        self.rest = rest;
        Ok(taken)
    }

    /// A base-128 varint in its shortest form.
    fn varint(&mut self) -> Result<u64, FormatError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7f);
            let overlong = (shift == 63 && bits > 1) || (shift > 0 && byte == 0);
            if overlong {
                return Err(FormatError::Overlong(self.message));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(FormatError::Overlong(self.message))
    }
}

/// Declares a message once: the struct that prost decodes it into, and the table by which [`check`] refuses what is none.
/// A line is `number rule kind name;`, with rule and kind as in [`Rule`] and [`Kind`]; a nested message is
/// `message(Struct, TABLE)`. Whoever uses it depends on prost.
///
/// ```
/// use formats::strict::{self, FormatError};
/// use prost::Message as _;
///
/// formats::strict_message! {
///     /// A point and its marks.
///     struct PointWire, POINT = "Point" {
///         1 required u32 x;
///         2 repeated bytes marks;
///     }
/// }
///
/// let bytes = PointWire { x: 5, marks: vec![vec![7]] }.encode_to_vec();
/// assert_eq!(strict::check(&bytes, &POINT), Ok(()));
/// assert_eq!(strict::check(&bytes[2..], &POINT), Err(FormatError::Missing { message: "Point", field: "x" }));
/// ```
#[macro_export]
macro_rules! strict_message {
    ($(#[$meta:meta])* struct $wire:ident, $table:ident = $name:literal { $($lines:tt)* }) => {
        $crate::strict_message!(@ [$([$meta])* $wire $table $name] [] [] $($lines)*);
    };
    (@ [$([$meta:meta])* $wire:ident $table:ident $name:literal] [$($fields:tt)*] [$($rows:tt)*]) => {
        #[derive(Clone, PartialEq, ::prost::Message)]
        $(#[$meta])*
        pub(crate) struct $wire { $($fields)* }

        #[doc = concat!("The table of `", $name, "`.")]
        pub(crate) const $table: $crate::strict::Message =
            $crate::strict::Message { name: $name, fields: &[$($rows)*] };
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt required u32 $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(uint32, required, tag = $number)] pub(crate) $field: u32,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::U32, Required),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt required u64 $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(uint64, required, tag = $number)] pub(crate) $field: u64,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::U64, Required),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt required bool $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(bool, required, tag = $number)] pub(crate) $field: bool,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::Bool, Required),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt required fixed32 $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(fixed32, required, tag = $number)] pub(crate) $field: u32,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::Fixed32, Required),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt required bytes $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(bytes = "vec", required, tag = $number)] pub(crate) $field: ::std::vec::Vec<u8>,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::Bytes, Required),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt required text $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(string, required, tag = $number)] pub(crate) $field: ::std::string::String,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::Text, Required),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*]
        $number:tt required message($inner:ident, $inner_table:ident) $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(message, required, tag = $number)] pub(crate) $field: $inner,]
            [$($rows)* $crate::strict_message!(@row $number $field
                $crate::strict::Kind::Message(&$inner_table), Required),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt optional u32 $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(uint32, optional, tag = $number)] pub(crate) $field: ::std::option::Option<u32>,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::U32, Optional),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt optional bool $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(bool, optional, tag = $number)] pub(crate) $field: ::std::option::Option<bool>,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::Bool, Optional),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt optional u64 $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(uint64, optional, tag = $number)] pub(crate) $field: ::std::option::Option<u64>,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::U64, Optional),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt optional fixed32 $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(fixed32, optional, tag = $number)] pub(crate) $field: ::std::option::Option<u32>,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::Fixed32, Optional),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt optional bytes $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(bytes = "vec", optional, tag = $number)] pub(crate) $field: ::std::option::Option<::std::vec::Vec<u8>>,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::Bytes, Optional),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt optional text $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(string, optional, tag = $number)] pub(crate) $field: ::std::option::Option<::std::string::String>,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::Text, Optional),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*]
        $number:tt optional message($inner:ident, $inner_table:ident) $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(message, optional, tag = $number)] pub(crate) $field: ::std::option::Option<$inner>,]
            [$($rows)* $crate::strict_message!(@row $number $field
                $crate::strict::Kind::Message(&$inner_table), Optional),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt repeated u32 $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(uint32, repeated, packed = "false", tag = $number)] pub(crate) $field: ::std::vec::Vec<u32>,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::U32, Repeated),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt repeated bytes $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(bytes = "vec", repeated, tag = $number)] pub(crate) $field: ::std::vec::Vec<::std::vec::Vec<u8>>,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::Bytes, Repeated),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*] $number:tt repeated text $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(string, repeated, tag = $number)] pub(crate) $field: ::std::vec::Vec<::std::string::String>,]
            [$($rows)* $crate::strict_message!(@row $number $field $crate::strict::Kind::Text, Repeated),]
            $($rest)*);
    };
    (@ $head:tt [$($fields:tt)*] [$($rows:tt)*]
        $number:tt repeated message($inner:ident, $inner_table:ident) $field:ident; $($rest:tt)*) => {
        $crate::strict_message!(@ $head
            [$($fields)* #[prost(message, repeated, tag = $number)] pub(crate) $field: ::std::vec::Vec<$inner>,]
            [$($rows)* $crate::strict_message!(@row $number $field
                $crate::strict::Kind::Message(&$inner_table), Repeated),]
            $($rest)*);
    };
    (@row $number:tt $field:ident $kind:expr, $rule:ident) => {
        $crate::strict::Field {
            number: $number,
            name: stringify!($field),
            kind: $kind,
            rule: $crate::strict::Rule::$rule,
        }
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INNER: Message =
        Message { name: "Inner", fields: &[Field { number: 1, name: "text", kind: Kind::Text, rule: Rule::Optional }] };
    const OUTER: Message = Message {
        name: "Outer",
        fields: &[
            Field { number: 1, name: "version", kind: Kind::U32, rule: Rule::Required },
            Field { number: 2, name: "flag", kind: Kind::Bool, rule: Rule::Optional },
            Field { number: 3, name: "list", kind: Kind::U64, rule: Rule::Repeated },
            Field { number: 4, name: "left", kind: Kind::Message(&INNER), rule: Rule::Arm("side") },
            Field { number: 5, name: "right", kind: Kind::Bytes, rule: Rule::Arm("side") },
            Field { number: 6, name: "address", kind: Kind::Fixed32, rule: Rule::Optional },
        ],
    };

    #[test]
    fn a_message_of_the_table_passes() {
        for good in [
            &[0x08, 1, 0x2a, 0][..],
            &[0x2a, 1, 0xff, 0x08, 0],
            &[0x08, 1, 0x10, 1, 0x18, 7, 0x18, 7, 0x22, 4, 0x0a, 2, 0xc3, 0xa4, 0x35, 1, 2, 3, 4],
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x22, 0],
        ] {
            assert_eq!(check(good, &OUTER), Ok(()), "{good:02x?}");
        }
    }

    #[test]
    fn whatever_the_table_does_not_say_is_refused_by_name() {
        let message = "Outer";
        let rows: &[(&[u8], FormatError, &str)] = &[
            (&[], FormatError::Empty(message), "Outer is empty"),
            (&[0x08], FormatError::Truncated(message), "Outer ends in the middle of a field"),
            (&[0x08, 0x80], FormatError::Truncated(message), "Outer ends in the middle of a field"),
            (&[0x08, 1, 0x2a, 2, 1], FormatError::Truncated(message), "Outer ends in the middle of a field"),
            (&[0x08, 1, 0x35, 1, 2, 3], FormatError::Truncated(message), "Outer ends in the middle of a field"),
            (&[0x08, 0x81, 0x00, 0x2a, 0], FormatError::Overlong(message), "Outer holds an overlong number"),
            (&[0x88, 0x00, 1, 0x2a, 0], FormatError::Overlong(message), "Outer holds an overlong number"),
            (
                &[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
                FormatError::Overlong(message),
                "Outer holds an overlong number",
            ),
            (&[0x38, 1], FormatError::Unknown { message, number: 7 }, "Outer has an unknown field 7"),
            (&[0x00, 1], FormatError::Unknown { message, number: 0 }, "Outer has an unknown field 0"),
            (
                &[0x0a, 1, 1],
                FormatError::WireType { message, field: "version" },
                "field version of Outer has the wrong wire type",
            ),
            (
                &[0x0b],
                FormatError::WireType { message, field: "version" },
                "field version of Outer has the wrong wire type",
            ),
            (
                &[0x1a, 2, 1, 1],
                FormatError::WireType { message, field: "list" },
                "field list of Outer has the wrong wire type",
            ),
            (
                &[0x08, 1, 0x08, 1, 0x2a, 0],
                FormatError::Twice { message, field: "version" },
                "field version of Outer occurs twice",
            ),
            (
                &[0x08, 1, 0x2a, 0, 0x2a, 0],
                FormatError::Twice { message, field: "right" },
                "field right of Outer occurs twice",
            ),
            (
                &[0x08, 1, 0x22, 0, 0x2a, 0],
                FormatError::TwoArms { message, oneof: "side" },
                "Outer has more than one side",
            ),
            (&[0x2a, 0], FormatError::Missing { message, field: "version" }, "Outer lacks field version"),
            (&[0x08, 1], FormatError::NoArm { message, oneof: "side" }, "Outer lacks one of its side fields"),
            (&[0x10, 2], FormatError::Range { message, field: "flag" }, "field flag of Outer is out of range"),
            (
                &[0x08, 0x80, 0x80, 0x80, 0x80, 0x10],
                FormatError::Range { message, field: "version" },
                "field version of Outer is out of range",
            ),
            (
                &[0x08, 1, 0x22, 3, 0x0a, 1, 0xff],
                FormatError::NotUtf8 { message: "Inner", field: "text" },
                "field text of Inner is not UTF-8",
            ),
            (
                &[0x08, 1, 0x22, 2, 0x10, 1],
                FormatError::Unknown { message: "Inner", number: 2 },
                "Inner has an unknown field 2",
            ),
        ];
        for (bytes, error, text) in rows {
            assert_eq!(check(bytes, &OUTER), Err(*error), "{bytes:02x?}");
            assert_eq!(error.to_string(), *text);
        }
    }

    #[test]
    fn a_version_is_found_among_fields_of_a_later_time() {
        assert_eq!(version(&[0x7a, 1, 9, 0x08, 2, 0x79, 0, 0, 0, 0, 0, 0, 0, 0], &OUTER, "version", 1), Ok(Some(2)));
        assert_eq!(version(&[0x7a, 1, 9], &OUTER, "version", 1), Ok(None));
        let twice = FormatError::Twice { message: "Outer", field: "version" };
        assert_eq!(version(&[0x08, 2, 0x08, 3], &OUTER, "version", 1), Err(twice));
        let other = FormatError::WireType { message: "Outer", field: "version" };
        assert_eq!(version(&[0x0a, 0], &OUTER, "version", 1), Err(other));
        assert_eq!(version(&[], &OUTER, "version", 1), Err(FormatError::Empty("Outer")));
    }

    proptest! {
        #[test]
        fn no_bytes_panic_it_and_no_prefix_of_a_message_is_read_as_more(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let _ = check(&bytes, &OUTER);
            let _ = version(&bytes, &OUTER, "version", 1);
            let good = [0x08, 1, 0x10, 1, 0x22, 4, 0x0a, 2, 0xc3, 0xa4];
            let appended = [&good[..], &bytes].concat();
            if let Ok(()) = check(&appended, &OUTER) {
                // only the fields that are still free may follow
                prop_assert!(bytes.is_empty() || bytes[0] == 0x18 || bytes[0] == 0x35);
            }
        }
    }
}
