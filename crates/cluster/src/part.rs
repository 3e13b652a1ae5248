//! A part of orders as bytes: what a machine is told whole, by a hash that says whether it has another one. Decides nothing.
//!
//! ```text
//! message Registries { uint32 version = 1; repeated Registry registries = 2; }
//! ```

use std::collections::BTreeMap;

use keys::derive::sha256;
use model::RegistryHost;
use prost::Message as _;

use crate::record::{self, BadRecord, MOST_REGISTRIES, REGISTRY, RegistryRecord, RegistryWire};

/// Most bytes of a part; a word of a coordinator has room for it.
pub const MOST_PART_BYTES: usize = (4 << 20) - 1024;

const VERSION: u32 = 1;

// Beside the records each has its length in front.
const _: () = assert!(record::MOST_REGISTRIES_BYTES + 8 * MOST_REGISTRIES < MOST_PART_BYTES);

/// Hash of a part's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartHash(pub [u8; 32]);

impl PartHash {
    /// Hash of these contents.
    #[must_use]
    pub fn of(contents: &[u8]) -> Self {
        Self(sha256(&[contents]))
    }
}

/// Part with its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OrderPart {
    contents: Vec<u8>,
    hash: PartHash,
}

impl OrderPart {
    pub(crate) fn of(contents: Vec<u8>) -> Self {
        Self { hash: PartHash::of(&contents), contents }
    }

    /// Part that names all registries; none where there is none.
    pub(crate) fn of_registries(registries: &BTreeMap<RegistryHost, RegistryRecord>) -> Option<Self> {
        let registries: Vec<_> = registries.values().map(RegistryRecord::to_wire).collect();
        let is_there = !registries.is_empty();
        is_there.then(|| Self::of(RegistriesWire { version: VERSION, registries }.encode_to_vec()))
    }

    pub(crate) fn contents(&self) -> &[u8] {
        &self.contents
    }

    pub(crate) const fn hash(&self) -> PartHash {
        self.hash
    }
}

/// Reads the part that names all registries.
///
/// # Errors
/// [`BadRecord`] names what makes no sense.
pub fn decode_registries(contents: &[u8]) -> Result<Vec<RegistryRecord>, BadRecord> {
    let wire: RegistriesWire = record::decode_within(MOST_PART_BYTES, contents, &REGISTRIES)?;
    let registries = wire.registries.into_iter().map(RegistryRecord::read).collect::<Result<Vec<_>, _>>()?;
    let in_order = registries.is_sorted_by(|one, other| one.host() < other.host());
    if !in_order || !(1..=MOST_REGISTRIES).contains(&registries.len()) {
        return Err(BadRecord::Contradiction("it names 1 to 64 registries in their order, each once"));
    }
    Ok(registries)
}

formats::strict_message! {
    struct RegistriesWire, REGISTRIES = "Registries" {
        1 required u32 version;
        2 repeated message(RegistryWire, REGISTRY) registries;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    /// Proves: W5
    #[test]
    fn a_part_is_read_as_it_was_told_and_in_order_alone() {
        let all = [1, 2].map(|n| fixture::registry(n, n));
        let part = OrderPart::of_registries(&all.iter().map(|it| (it.host(), it.clone())).collect());
        let contents = part.expect("two").contents().to_vec();
        assert_eq!(decode_registries(&contents), Ok(all.to_vec()));
        assert_eq!(OrderPart::of_registries(&BTreeMap::new()), None, "none is no part");
        let of = |registries: Vec<RegistryWire>| RegistriesWire { version: VERSION, registries }.encode_to_vec();
        let [one, two] = all.each_ref().map(RegistryRecord::to_wire);
        let disordered = Err(BadRecord::Contradiction("it names 1 to 64 registries in their order, each once"));
        for registries in [vec![], vec![two, one.clone()], vec![one.clone(), one.clone()]] {
            assert_eq!(decode_registries(&of(registries)), disordered);
        }
        let many = |count: usize| {
            let host = |n: usize| format!("r{n:03}.example.org");
            of((0..count).map(|n| RegistryWire { host: host(n), ..one.clone() }).collect())
        };
        assert!(decode_registries(&many(MOST_REGISTRIES)).is_ok());
        assert_eq!(decode_registries(&many(MOST_REGISTRIES + 1)), disordered);
        assert!(matches!(decode_registries(&contents[..contents.len() - 1]), Err(BadRecord::Malformed(_))));
        assert!(matches!(decode_registries(&vec![0; MOST_PART_BYTES + 1]), Err(BadRecord::TooLarge { .. })));
    }
}
