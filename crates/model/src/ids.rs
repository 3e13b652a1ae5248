//! Identities: what names a machine, a cluster, a disk, an image. All are public values.

use std::fmt;
use std::str::FromStr;

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// The inverse of [`hex`]: lower case and nothing else, so that an identity has one spelling.
fn unhex<const LEN: usize>(text: &str) -> Option<[u8; LEN]> {
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None, // every other byte is no digit
    };
    if text.len() != 2 * LEN {
        return None;
    }
    let mut bytes = [0; LEN];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(bytes)
}

/// Not the identity's bytes, each as two lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id in lower-case hex digits, or not of this length")]
pub struct BadHex;

macro_rules! hex_id {
    ($($(#[$doc:meta])* $name:ident, $len:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub [u8; $len]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = BadHex;

            fn from_str(text: &str) -> Result<Self, BadHex> {
                unhex(text).map(Self).ok_or(BadHex)
            }
        }
    )*};
}

hex_id! {
    /// First 16 bytes of SHA-256("cairn/v1/machine" ‖ Ed25519 public key); prints as 32 hex digits.
    MachineId, 16;
    /// First 16 bytes of SHA-256("cairn/v1/cluster" ‖ SPKI of the cluster CA); prints as 32 hex digits.
    ClusterId, 16;
    /// SHA-256 of an enrolment config's bytes as they were read.
    ConfigDigest, 32;
    /// Root hash of a dm-verity tree: names an image.
    RootHash, 32;
    /// First 16 bytes of SHA-256("cairn/v1/ticket" ‖ Ed25519 public key of the ticket); prints as 32 hex digits.
    TicketId, 16;
    /// A ticket's public key (Ed25519, raw): what the cluster knows of the ticket.
    TicketPubKey, 32;
    /// A machine's public key (Ed25519, raw), which its id is made of.
    MachinePubKey, 32;
    /// An owner's public key (Ed25519, raw): the one that signs and calls.
    OwnerPubKey, 32;
    /// A public key (Ed25519, raw) of a person who uses the cluster's Kubernetes.
    UserPubKey, 32;
    /// A machine's public key in the VPN (X25519, raw).
    VpnPubKey, 32;
}

impl RootHash {
    /// The partition UUID of the system slot that holds this image: the hash's first 16 bytes.
    #[must_use]
    pub fn partition_uuid(self) -> Uuid {
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&self.0[..16]);
        Uuid(uuid)
    }
}

/// A UUID as its 16 bytes in printed order (RFC 9562, section 4); a GPT stores it mixed-endian.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The bytes as a GPT stores them: first three groups little-endian (UEFI 2.10, appendix A).
    #[must_use]
    pub const fn to_gpt(self) -> [u8; 16] {
        let b = self.0;
        [b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]
    }

    /// The inverse of [`Self::to_gpt`] (the permutation is its own inverse).
    #[must_use]
    pub const fn from_gpt(bytes: [u8; 16]) -> Self {
        Self(Self(bytes).to_gpt())
    }

    /// Parses the 8-4-4-4-12 form at compile time; for constants.
    ///
    /// # Panics
    /// When `text` is not of that form: a constant fails to compile.
    #[must_use]
    pub const fn constant(text: &str) -> Self {
        match parse_uuid(text.as_bytes()) {
            Some(uuid) => uuid,
            None => panic!("not a UUID of the 8-4-4-4-12 form"),
        }
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            if matches!(position, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

/// Not a UUID of the 8-4-4-4-12 form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID of the 8-4-4-4-12 form")]
pub struct BadUuid;

impl FromStr for Uuid {
    type Err = BadUuid;

    fn from_str(text: &str) -> Result<Self, BadUuid> {
        parse_uuid(text.as_bytes()).ok_or(BadUuid)
    }
}

const fn parse_uuid(text: &[u8]) -> Option<Uuid> {
    if text.len() != 36 {
        return None;
    }
    let mut bytes = [0u8; 16];
    let (mut read, mut nibbles) = (0, 0);
    while read < 36 {
        let byte = text[read];
        if matches!(read, 8 | 13 | 18 | 23) {
            if byte != b'-' {
                return None;
            }
        } else {
            let nibble = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                b'A'..=b'F' => byte - b'A' + 10,
                _ => return None,
            };
            bytes[nibbles / 2] = bytes[nibbles / 2] << 4 | nibble;
            nibbles += 1;
        }
        read += 1;
    }
    Some(Uuid(bytes))
}

/// Names one formatted data partition; made when it is formatted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DiskUuid(pub Uuid);

impl fmt::Display for DiskUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Host name and Kubernetes node name: `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct NodeName(String);

/// Why a text is no node name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadNodeName {
    /// Other characters than a-z, 0-9 and inner hyphens, or not 1 to 63 of them.
    #[error("a node name is 1 to 63 of a-z, 0-9 and inner hyphens")]
    Form,
    /// `m-` and 12 hex digits: kept for names derived from machine ids.
    #[error("names of the form m- and 12 hex digits are kept for names derived from the machine's id")]
    Reserved,
}

impl NodeName {
    /// The name of a machine whose config names none: `m-` and the first 12 digits of its id.
    #[must_use]
    pub fn derived(machine: MachineId) -> Self {
        let id = machine.to_string();
        Self(format!("m-{}", &id[..12]))
    }

    /// A name chosen by a person.
    ///
    /// # Errors
    /// [`BadNodeName`] when the form is wrong or reserved.
    pub fn chosen(name: &str) -> Result<Self, BadNodeName> {
        let name = Self::stored(name)?;
        let derived = name.0.strip_prefix("m-").is_some_and(|rest| {
            rest.len() == 12 && rest.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'))
        });
        if derived { Err(BadNodeName::Reserved) } else { Ok(name) }
    }

    /// A name that was stored before, chosen or derived.
    ///
    /// # Errors
    /// [`BadNodeName::Form`] when it is not a name at all.
    pub fn stored(name: &str) -> Result<Self, BadNodeName> {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let well_formed =
            (1..=63).contains(&name.len()) && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-');
        if well_formed { Ok(Self(name.to_owned())) } else { Err(BadNodeName::Form) }
    }

    /// Text of the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Proves: S6
    #[test]
    fn node_names_follow_the_grammar_and_leave_derived_names_alone() {
        for good in ["a", "node-1", "0", &"x".repeat(63), "m-0123456789abc", "m-0123456789ag"] {
            assert!(NodeName::chosen(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", &"x".repeat(64), "ä"] {
            assert_eq!(NodeName::chosen(bad), Err(BadNodeName::Form), "{bad}");
        }
        let derived = NodeName::derived(MachineId([0xab; 16]));
        assert_eq!(derived.as_str(), "m-abababababab");
        assert_eq!(NodeName::chosen(derived.as_str()), Err(BadNodeName::Reserved));
        assert_eq!(NodeName::stored(derived.as_str()), Ok(derived));
    }

    #[test]
    fn a_root_hash_names_its_slot_in_mixed_endian() {
        let mut hash = [0; 32];
        hash.iter_mut().zip(0..).for_each(|(byte, value)| *byte = value);
        let uuid = RootHash(hash).partition_uuid();
        assert_eq!(uuid.to_string(), "00010203-0405-0607-0809-0a0b0c0d0e0f");
        assert_eq!(uuid.to_gpt(), [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15]);
    }

    #[test]
    fn an_id_is_its_digits_in_lower_case_and_nothing_else() {
        assert_eq!("0a".repeat(16).parse(), Ok(ClusterId([10; 16])));
        for bad in ["", "0a", &"zz".repeat(16), &"0A".repeat(16), &"+a".repeat(16), &"0a".repeat(17), &"ä".repeat(16)]
        {
            assert_eq!(bad.parse::<ClusterId>(), Err(BadHex), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn an_id_is_read_as_it_prints(bytes: [u8; 32]) {
            prop_assert_eq!(RootHash(bytes).to_string().parse(), Ok(RootHash(bytes)));
        }

        /// Proves: K1
        #[test]
        fn any_spelling_of_a_uuid_is_the_same_uuid(bytes: [u8; 16]) {
            let uuid = Uuid(bytes);
            prop_assert_eq!(uuid.to_string().parse(), Ok(uuid));
            prop_assert_eq!(uuid.to_string().to_uppercase().parse(), Ok(uuid));
            prop_assert_eq!(Uuid::from_gpt(uuid.to_gpt()), uuid);
        }

        #[test]
        fn no_text_panics_the_uuid_parser(text in ".{0,40}") {
            let _ = text.parse::<Uuid>();
        }
    }
}
