//! Listings as `nft --json` prints them, of what kube-proxy asks for: a table without its elements, a chain, a set or map. A rule is
//! shown by its handle and comment, without its expressions.

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use serde::Serialize;
use serde_json::{Value, json};

use crate::attribute::{AttributeError, Attributes, all, find, name, number};
use crate::batch::SetTypes;
use crate::message::{Answers, Family, MessageKind, question};

/// Version of the JSON's schema, and of the `nft` whose listings these are.
const SCHEMA: u32 = 1;
const VERSION: &str = "1.0.6";
/// Set that belongs to a rule (`NFT_SET_ANONYMOUS`).
const ANONYMOUS: u64 = 1;
/// Kind of user data that is a comment, of rules and elements.
const COMMENT: u8 = 0;

/// Question for what the kernel has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingQuery {
    family: Family,
    table: String,
    what: Listed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Listed {
    Table,
    Chain(String),
    Set(String),
}

/// Why nothing is listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListingError {
    /// The words are no listing that is known here.
    #[error("cannot list `{0}`: a table with --terse, a chain, a set or a map is listed")]
    Unknown(String),
    /// The set has types that are not known here, or ranges.
    #[error("`{0}` has types that are not known here")]
    Types(String),
    /// The kernel's answer is cut off, or of another form.
    #[error("an answer of the kernel cannot be read")]
    Answer,
}

/// Object of a listing.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Object {
    Metainfo { version: &'static str, release_name: &'static str, json_schema_version: u32 },
    Table { family: &'static str, name: String, handle: u64 },
    Chain { family: &'static str, table: String, name: String, handle: u64 },
    Set(Members),
    Map(Members),
    Rule(RuleHead),
}

#[derive(Serialize)]
struct Members {
    family: &'static str,
    name: String,
    table: String,
    handle: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    elem: Vec<Value>,
}

#[derive(Serialize)]
struct RuleHead {
    family: &'static str,
    table: String,
    chain: String,
    handle: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
}

#[derive(Serialize)]
struct Document {
    nftables: Vec<Object>,
}

impl ListingQuery {
    /// Reads the words behind `list`.
    ///
    /// # Errors
    /// [`ListingError::Unknown`].
    pub fn parse(words: &[&str], is_terse: bool) -> Result<Self, ListingError> {
        let unknown = || ListingError::Unknown(words.join(" "));
        let (what, rest) = words.split_first().ok_or_else(unknown)?;
        let (family, rest) = match rest.first().and_then(|word| Family::named(word)) {
            Some(family) => (family, &rest[1..]),
            None => (Family::Ip, rest),
        };
        let (table, what) = match (*what, rest) {
            ("table", [table]) if is_terse => (table, Listed::Table),
            ("chain", [table, chain]) => (table, Listed::Chain((*chain).to_owned())),
            ("set" | "map", [table, set]) => (table, Listed::Set((*set).to_owned())),
            _ => return Err(unknown()),
        };
        Ok(Self { family, table: (*table).to_owned(), what })
    }

    /// Questions to the kernel, whose answers [`Self::json`] takes in the same order.
    ///
    /// # Errors
    /// [`AttributeError`] for names that nothing can have.
    pub fn questions(&self) -> Result<Vec<Vec<u8>>, AttributeError> {
        let table = || Attributes::default().name(1, &self.table);
        let questions = match &self.what {
            Listed::Table => vec![
                (MessageKind::GetTable, NLM_F_ACK, table()),
                (MessageKind::GetChain, NLM_F_DUMP, table()),
                (MessageKind::GetSet, NLM_F_DUMP, table()),
                (MessageKind::GetRule, NLM_F_DUMP, table()),
            ],
            Listed::Chain(chain) => vec![
                (MessageKind::GetChain, NLM_F_ACK, table().name(3, chain)),
                (MessageKind::GetRule, NLM_F_DUMP, table().name(2, chain)),
            ],
            Listed::Set(set) => vec![
                (MessageKind::GetSet, NLM_F_ACK, table().name(2, set)),
                (MessageKind::GetElements, NLM_F_DUMP, table().name(2, set)),
            ],
        };
        let ask = |(kind, flags, body): (_, _, Attributes)| Ok(question(kind, flags, self.family, &body.finish()?));
        questions.into_iter().map(ask).collect()
    }

    /// Listing as one line of JSON.
    ///
    /// # Errors
    /// [`ListingError`]; then nothing is to be printed.
    pub fn json(&self, answers: &[Answers]) -> Result<String, ListingError> {
        let metainfo = Object::Metainfo { version: VERSION, release_name: "Cairn", json_schema_version: SCHEMA };
        let mut nftables = vec![metainfo];
        match (&self.what, answers) {
            (Listed::Table, [tables, chains, sets, rules]) => {
                for body in &tables.bodies {
                    let handle = find(body, 4).and_then(number).ok_or(ListingError::Answer)?;
                    nftables.push(Object::Table { family: self.family.name(), name: self.table.clone(), handle });
                }
                self.chains(chains, &mut nftables)?;
                for body in self.of_table(sets) {
                    let flags = find(body, 3).and_then(number).unwrap_or_default();
                    if flags & ANONYMOUS == 0 {
                        nftables.push(self.set(body, Vec::new())?);
                    }
                }
                self.rules(rules, &mut nftables)?;
            }
            (Listed::Chain(_), [chains, rules]) => {
                self.chains(chains, &mut nftables)?;
                self.rules(rules, &mut nftables)?;
            }
            (Listed::Set(set), [sets, elements]) => {
                let body = sets.bodies.first().ok_or(ListingError::Answer)?;
                let types = SetTypes::of_answer(body).ok_or_else(|| ListingError::Types(set.clone()))?;
                let lists = elements.bodies.iter().filter_map(|body| find(body, 3));
                let shown = lists.flat_map(all).map(|(_, element)| shown(&types, element).ok_or(ListingError::Answer));
                nftables.push(self.set(body, shown.collect::<Result<_, _>>()?)?);
            }
            _ => return Err(ListingError::Answer),
        }
        serde_json::to_string(&Document { nftables }).map_err(|_| ListingError::Answer)
    }

    /// Bodies about this table: the kernel tells of others, too, where it is asked for all chains.
    fn of_table<'a>(&'a self, answers: &'a Answers) -> impl Iterator<Item = &'a [u8]> {
        let bodies = answers.bodies.iter().map(Vec::as_slice);
        bodies.filter(|body| find(body, 1).map(name).is_some_and(|table| table == self.table))
    }

    fn chains(&self, answers: &Answers, objects: &mut Vec<Object>) -> Result<(), ListingError> {
        for body in self.of_table(answers) {
            let (name, handle) = (find(body, 3).map(name), find(body, 2).and_then(number));
            let (name, handle) = name.zip(handle).ok_or(ListingError::Answer)?;
            objects.push(Object::Chain { family: self.family.name(), table: self.table.clone(), name, handle });
        }
        Ok(())
    }

    fn rules(&self, answers: &Answers, objects: &mut Vec<Object>) -> Result<(), ListingError> {
        for body in self.of_table(answers) {
            let (chain, handle) = (find(body, 2).map(name), find(body, 3).and_then(number));
            let (chain, handle) = chain.zip(handle).ok_or(ListingError::Answer)?;
            let comment = find(body, 7).and_then(comment);
            let (family, table) = (self.family.name(), self.table.clone());
            objects.push(Object::Rule(RuleHead { family, table, chain, handle, comment }));
        }
        Ok(())
    }

    fn set(&self, body: &[u8], elem: Vec<Value>) -> Result<Object, ListingError> {
        let (name, handle) = (find(body, 2).map(name), find(body, 16).and_then(number));
        let (name, handle) = name.zip(handle).ok_or(ListingError::Answer)?;
        let members = Members { family: self.family.name(), name, table: self.table.clone(), handle, elem };
        Ok(if SetTypes::is_map(body) { Object::Map(members) } else { Object::Set(members) })
    }
}

/// Element as it is shown: its key, with its comment if it has one, and the data of a map.
fn shown(types: &SetTypes, element: &[u8]) -> Option<Value> {
    let mut key = types.key(find(find(element, 1)?, 1)?)?;
    if let Some(comment) = find(element, 6).and_then(comment) {
        key = json!({ "elem": { "val": key, "comment": comment } });
    }
    if !types.has_data() {
        return Some(key);
    }
    let data = find(element, 2)?;
    let data = match find(data, 2) {
        Some(verdict) => shown_verdict(verdict)?,
        None => types.data(find(data, 1)?)?,
    };
    Some(json!([key, data]))
}

fn shown_verdict(verdict: &[u8]) -> Option<Value> {
    let code = u32::try_from(find(verdict, 1).and_then(number)?).ok()?.cast_signed();
    let target = || find(verdict, 2).map(|chain| json!({ "target": name(chain) }));
    Some(match code {
        0 => json!({ "drop": null }),
        1 => json!({ "accept": null }),
        -1 => json!({ "continue": null }),
        -3 => json!({ "jump": target()? }),
        -4 => json!({ "goto": target()? }),
        -5 => json!({ "return": null }),
        _ => return None,
    })
}

/// Comment in user data: pieces of a kind, a length and so many bytes.
fn comment(mut user: &[u8]) -> Option<String> {
    while let [kind, length, rest @ ..] = user {
        let (piece, behind) = rest.split_at_checked((*length).into())?;
        if *kind == COMMENT {
            return Some(name(piece));
        }
        user = behind;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::VERDICTS;
    use crate::expression::{Verdict, value};

    fn answers(bodies: &[Attributes]) -> Answers {
        Answers { bodies: bodies.iter().map(|body| body.clone().finish().expect("they are short")).collect() }
    }

    fn named(table: &str) -> Attributes {
        Attributes::default().name(1, table)
    }

    fn said(text: &str) -> Vec<u8> {
        let length = u8::try_from(text.len() + 1).expect("it is short");
        [&[9, 1, 7, COMMENT, length], text.as_bytes(), &[0]].concat()
    }

    /// Objects of a listing behind the first, which says by whom it is.
    fn objects(words: &[&str], all: &[Answers]) -> Vec<Value> {
        let json = ListingQuery::parse(words, true).and_then(|listing| listing.json(all)).expect("it is listed");
        let mut document: Value = serde_json::from_str(&json).expect("it is JSON");
        let Value::Array(mut objects) = document["nftables"].take() else { panic!("{json}") };
        assert_eq!(objects.remove(0)["metainfo"]["json_schema_version"], 1);
        objects
    }

    #[test]
    fn a_table_is_listed_without_what_is_of_others_or_of_rules() {
        let chain = |table, name| named(table).name(3, name).long(2, 7);
        let set = |name, flags| named("t").name(2, name).number(3, flags).number(4, 7).long(16, 9);
        let rule = |table| named(table).name(2, "c").long(3, 8).bytes(7, &said("why \"so\""));
        let shown = objects(
            &["table", "ip6", "t"],
            &[
                answers(&[named("t").long(4, 1)]),
                answers(&[chain("t", "c"), chain("other", "c")]),
                answers(&[set("s", 0), set("m", 8), set("__set0", 3)]),
                answers(&[rule("t"), rule("other")]),
            ],
        );
        let expected = [
            json!({ "table": { "family": "ip6", "name": "t", "handle": 1 } }),
            json!({ "chain": { "family": "ip6", "table": "t", "name": "c", "handle": 7 } }),
            json!({ "set": { "family": "ip6", "name": "s", "table": "t", "handle": 9 } }),
            json!({ "map": { "family": "ip6", "name": "m", "table": "t", "handle": 9 } }),
            json!({ "rule": { "family": "ip6", "table": "t", "chain": "c", "handle": 8, "comment": "why \"so\"" } }),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn elements_are_listed_with_their_comments_and_data() {
        let map =
            named("t").name(2, "m").number(3, 8).number(4, (7 << 6 | 12) << 6 | 13).number(6, VERDICTS).long(16, 9);
        let key = value(&[10, 96, 0, 1, 6, 0, 0, 0, 1, 187, 0, 0]);
        let element = |verdict: Verdict| Attributes::default().nested(1, &key).nested(2, &verdict.attributes());
        let said = Attributes::default().nested(1, &element(Verdict::Drop).bytes(6, &said("first")));
        let list = said.nested(1, &element(Verdict::Goto(String::from("c"))));
        let shown = objects(&["map", "t", "m"], &[answers(&[map]), answers(&[named("t").nested(3, &list)])]);
        let concat = json!({ "concat": ["10.96.0.1", "tcp", 443] });
        let expected = json!([
            [{ "elem": { "val": concat, "comment": "first" } }, { "drop": null }],
            [concat, { "goto": { "target": "c" } }],
        ]);
        assert_eq!(shown[0]["map"]["elem"], expected);
    }

    #[test]
    fn what_cannot_be_shown_whole_is_not_shown() {
        let json = |words: &[&str], all: &[Answers]| ListingQuery::parse(words, true).and_then(|it| it.json(all));
        let set = |numbers: (u32, u32)| named("t").name(2, "s").number(3, numbers.0).number(4, numbers.1).long(16, 9);
        let of = |set: Attributes, element: &[u8]| {
            let list = Attributes::default().nested(1, &Attributes::default().nested(1, &value(element)));
            json(&["set", "t", "s"], &[answers(&[set]), answers(&[named("t").nested(3, &list)])]).map(drop)
        };
        assert_eq!(of(set((0, 7)), &[10, 0, 0, 1]), Ok(()));
        assert_eq!(of(set((0, 7)), &[10, 0, 0]), Err(ListingError::Answer), "half an address");
        assert_eq!(of(set((4, 7)), &[10, 0, 0, 1]), Err(ListingError::Types(String::from("s"))), "a set of ranges");
        assert_eq!(of(set((0, 9)), &[0; 6]), Err(ListingError::Types(String::from("s"))), "link-layer addresses");
        assert_eq!(json(&["set", "t", "s"], &[]).map(drop), Err(ListingError::Answer));
        for words in [&["table"][..], &["ruleset"], &["table", "inet"], &["chain", "ip", "t"], &["set", "t", "s", "x"]]
        {
            assert_eq!(json(words, &[]).map(drop), Err(ListingError::Unknown(words.join(" "))));
        }
        let whole = ListingQuery::parse(&["table", "t"], false).map(drop);
        assert_eq!(whole, Err(ListingError::Unknown(String::from("table t"))), "with all elements");
    }
}
