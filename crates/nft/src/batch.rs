//! A transaction: commands of a text, and the messages that they become. The kernel does all of them or none.

use std::collections::{BTreeMap, BTreeSet};

use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use serde_json::Value;

use crate::attribute::{AttributeError, Attributes, find, number};
use crate::command::{
    self, Absence, Action, Addition, BaseChain, Command, DataText, DataType, ElementText, Exclusiveness, Flushed,
    Placement, Removal, RuleText, SetText,
};
use crate::datatype::{Concatenation, Datatype, VERDICTS, ValueError};
use crate::expression::{SetName, listed, value};
use crate::grammar::GrammarError;
use crate::message::{self, Answers, Family, MessageKind};
use crate::rule::{Anonymous, Listed, SetUse, Statement, address_of, expressions};

/// Flags of a set (`NFT_SET_*`).
const ANONYMOUS: u32 = 1;
const CONSTANT: u32 = 2;
const INTERVAL: u32 = 4;
const MAP: u32 = 8;
const TIMEOUT: u32 = 16;
const BY_RULES: u32 = 32;
/// Size that `nft` gives a set to which rules add elements.
const DYNAMIC_SIZE: u32 = 65535;
/// Elements in one message: fewer than 64 KiB of them.
const ELEMENTS_AT_ONCE: usize = 500;

/// Name of a set, with its table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetKey {
    /// Family of the table.
    pub family: Family,
    /// Table that the set is in.
    pub table: String,
    /// Name of the set, or map.
    pub name: String,
}

impl SetKey {
    /// Question to the kernel for the set's types.
    ///
    /// # Errors
    /// [`AttributeError`] for names that no set can have.
    pub fn question(&self) -> Result<Vec<u8>, AttributeError> {
        let body = Attributes::default().name(1, &self.table).name(2, &self.name).finish()?;
        Ok(message::question(MessageKind::GetSet, NLM_F_ACK, self.family, &body))
    }
}

/// Types of a set's keys and data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetTypes {
    key: Concatenation,
    data: Option<DataType>,
}

impl SetTypes {
    /// Types of a set by what the kernel answers when it is asked for one; none where it is of types that are not known here, or of
    /// ranges.
    #[must_use]
    pub fn of_answers(answers: &Answers) -> Option<Self> {
        Self::of_answer(answers.bodies.first()?)
    }

    /// The same of one answer (`NFTA_SET_*`).
    pub(crate) fn of_answer(body: &[u8]) -> Option<Self> {
        let told = |kind| find(body, kind).and_then(number).and_then(|number| u32::try_from(number).ok());
        Self::of_numbers(told(4)?, told(6), told(3).unwrap_or_default())
    }

    /// Whether an answer is about a map.
    pub(crate) fn is_map(body: &[u8]) -> bool {
        find(body, 3).and_then(number).is_some_and(|flags| flags & u64::from(MAP) != 0)
    }

    /// Key as it is shown.
    pub(crate) fn key(&self, value: &[u8]) -> Option<Value> {
        self.key.shown(value)
    }

    /// Whether elements have data.
    pub(crate) const fn has_data(&self) -> bool {
        self.data.is_some()
    }

    /// Data as they are shown, where they are no verdict.
    pub(crate) fn data(&self, value: &[u8]) -> Option<Value> {
        match self.data.as_ref()? {
            DataType::Value(types) => types.shown(value),
            DataType::Verdict => None,
        }
    }

    fn of_numbers(key: u32, data: Option<u32>, flags: u32) -> Option<Self> {
        let data = match data.filter(|_| flags & MAP != 0) {
            Some(VERDICTS) => Some(DataType::Verdict),
            Some(number) => Some(DataType::Value(Concatenation::from_number(number)?)),
            None => None,
        };
        (flags & INTERVAL == 0).then_some(())?;
        Some(Self { key: Concatenation::from_number(key)?, data })
    }
}

/// Types of sets that the kernel has.
pub type KernelSets = BTreeMap<SetKey, SetTypes>;

/// Why a text is no transaction: nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// A line is not understood.
    #[error("line {line}: {why}")]
    Grammar {
        /// Number of the line, from 1 on.
        line: usize,
        /// Reason that the line gives.
        why: GrammarError,
    },
    /// An element or rule does not go with its set.
    #[error("line {line}: {why}")]
    Set {
        /// Number of the line, from 1 on.
        line: usize,
        /// Mismatch between the two.
        why: SetError,
    },
}

/// Why an element or rule does not go with its set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// Neither the text nor the kernel has such a set.
    #[error("No such file or directory: a set or map `{0}`")]
    Unknown(String),
    /// Fields that are looked up are of other types than the set's keys.
    #[error("the fields are of other types than the keys of `{0}`")]
    Types(String),
    /// A map is named where a set belongs, or the other way round.
    #[error("`{0}` is a map where a set belongs, or a set where a map of verdicts does")]
    Kind(String),
    /// An element of a map without its data, or one of a set with data, or with data of another kind.
    #[error("an element of `{0}` has data of another kind, or none")]
    Data(String),
    /// A value is none of its type.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// More elements, or longer ones, than a message can hold.
    #[error("one command is {0}")]
    Long(#[from] AttributeError),
}

/// Commands of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction(Vec<(usize, Command)>);

/// A command that the kernel refused, so that nothing of the transaction was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelRefusal {
    /// Number of its line, from 1 on.
    pub line: usize,
    /// The kernel's reason (`errno(3)`).
    pub errno: i32,
}

/// Messages of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    messages: Vec<u8>,
    /// Line of each message: its place is the sequence number.
    lines: Vec<usize>,
    /// Text that `nft --debug=netlink` shows of the same commands.
    #[cfg(test)]
    shown: String,
}

impl Transaction {
    /// Reads a text, one command a line.
    ///
    /// # Errors
    /// [`BatchError`] names the first line that is not understood.
    pub fn parse(text: &str) -> Result<Self, BatchError> {
        let mut commands = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let command = command::read(text).map_err(|why| BatchError::Grammar { line, why })?;
            commands.extend(command.map(|command| (line, command)));
        }
        Ok(Self(commands))
    }

    /// Sets that are named before the text declares them: the kernel is to be asked for their types.
    #[must_use]
    pub fn kernel_sets(&self) -> BTreeSet<SetKey> {
        let (mut declared, mut missing) = (BTreeSet::new(), BTreeSet::new());
        for (_, command) in &self.0 {
            let key =
                |name: &str| SetKey { family: command.family, table: command.table.clone(), name: name.to_owned() };
            let named: Vec<&str> = match &command.action {
                Action::Add(_, Addition::Elements { set, .. }) | Action::Remove(_, Removal::Elements { set, .. }) => {
                    vec![set]
                }
                Action::Rule(_, rule) => rule.sets().collect(),
                Action::Add(..) | Action::Remove(..) | Action::Flush(_) => Vec::new(),
            };
            missing.extend(named.into_iter().map(key).filter(|key| !declared.contains(key)));
            if let Action::Add(_, Addition::Set(set)) = &command.action {
                declared.insert(key(&set.name));
            }
        }
        missing
    }

    /// Messages for the kernel, given the types of its sets.
    ///
    /// # Errors
    /// [`BatchError`] names the first line that does not fit its set.
    pub fn batch(&self, kernel: &KernelSets) -> Result<Batch, BatchError> {
        let mut writer = Writer::new(kernel.clone());
        for (line, command) in &self.0 {
            writer.line = *line;
            writer.command(command).map_err(|why| BatchError::Set { line: *line, why })?;
        }
        Ok(writer.batch)
    }
}

impl Batch {
    /// All messages, to be sent at once.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.trial();
        message::end(&mut bytes);
        bytes
    }

    /// The same without their end: the kernel says whether it could do them, and does nothing.
    #[must_use]
    pub fn trial(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.messages.len() + 40);
        message::begin(&mut bytes);
        bytes.extend(&self.messages);
        bytes
    }

    /// Whether nothing is to be sent.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// KernelRefusals among the kernel's answers; none, where all was done.
    #[must_use]
    pub fn refusals(&self, answers: &[u8]) -> Vec<KernelRefusal> {
        let refusal = |(sequence, errno)| {
            // The number 0 is that of the beginning and the end.
            let place = usize::try_from(sequence).ok().and_then(|sequence: usize| sequence.checked_sub(1));
            let line = place.and_then(|place| self.lines.get(place)).or(self.lines.first());
            KernelRefusal { line: line.copied().unwrap_or(1), errno }
        };
        message::errors(answers).into_iter().map(refusal).collect()
    }
}

/// Messages of a transaction, as they are written.
struct Writer {
    batch: Batch,
    line: usize,
    sets: KernelSets,
    /// Number of the last set of this transaction.
    number: u32,
}

/// Set that is declared, or belongs to a rule.
#[derive(Clone, Copy)]
struct Declared<'a> {
    name: &'a str,
    flags: u32,
    key: &'a Concatenation,
    data: Option<&'a DataType>,
    size: Option<u32>,
    timeout: Option<u64>,
    comment: Option<&'a str>,
}

impl Writer {
    const fn new(sets: KernelSets) -> Self {
        let batch = Batch {
            messages: Vec::new(),
            lines: Vec::new(),
            #[cfg(test)]
            shown: String::new(),
        };
        Self { batch, line: 0, sets, number: 0 }
    }

    fn command(&mut self, Command { family, table, action }: &Command) -> Result<(), SetError> {
        let (family, named) = (*family, Attributes::default().name(1, table));
        match action {
            Action::Add(exclusiveness, addition) => self.add(*exclusiveness, (family, table), addition),
            Action::Remove(absence, removal) => self.remove(*absence, (family, table), removal),
            Action::Flush(Flushed::Table) => self.push(MessageKind::DeleteRule, 0, family, named),
            Action::Flush(Flushed::Chain(chain)) => self.push(MessageKind::DeleteRule, 0, family, named.name(2, chain)),
            Action::Flush(Flushed::Set(set)) => self.push(MessageKind::DeleteElements, 0, family, named.name(2, set)),
            Action::Rule(placement, rule) => self.rule((family, table), *placement, rule),
        }
    }

    fn add(
        &mut self,
        exclusiveness: Exclusiveness,
        (family, table): (Family, &str),
        addition: &Addition,
    ) -> Result<(), SetError> {
        let flags = match exclusiveness {
            Exclusiveness::MayExist => NLM_F_CREATE,
            Exclusiveness::MustBeNew => NLM_F_CREATE | NLM_F_EXCL,
        };
        let named = Attributes::default().name(1, table);
        match addition {
            Addition::Table { comment } => {
                let table = comment.iter().fold(named.number(2, 0), |table, text| table.bytes(6, &said(0, text)));
                self.push(MessageKind::NewTable, flags, family, table)
            }
            Addition::Chain { name, base, comment } => {
                let chain = base.iter().fold(named.name(3, name), based);
                let chain = comment.iter().fold(chain, |chain, text| chain.bytes(12, &said(0, text)));
                self.push(MessageKind::NewChain, flags, family, chain)
            }
            Addition::Set(set) => {
                let types = SetTypes { key: set.key.clone(), data: set.data.clone() };
                self.sets.insert(SetKey { family, table: table.to_owned(), name: set.name.clone() }, types);
                self.declare(flags, (family, table), declared(set)).map(drop)
            }
            Addition::Elements { set, elements } => {
                self.elements(MessageKind::NewElements, flags, (family, table), (set, elements))
            }
        }
    }

    fn remove(&mut self, absence: Absence, (family, table): (Family, &str), removal: &Removal) -> Result<(), SetError> {
        use MessageKind::{
            DeleteChain, DeleteElements, DeleteRule, DeleteSet, DeleteTable, DestroyChain, DestroyElements,
            DestroyRule, DestroySet, DestroyTable,
        };
        let either = |delete, destroy| if absence == Absence::IsFine { destroy } else { delete };
        let named = Attributes::default().name(1, table);
        match removal {
            Removal::Table => self.push(either(DeleteTable, DestroyTable), 0, family, named),
            Removal::Chain(chain) => self.push(either(DeleteChain, DestroyChain), 0, family, named.name(3, chain)),
            Removal::Set(set) => self.push(either(DeleteSet, DestroySet), 0, family, named.name(2, set)),
            Removal::Elements { set, elements } => {
                self.elements(either(DeleteElements, DestroyElements), 0, (family, table), (set, elements))
            }
            Removal::Rule { chain, handle } => {
                let rule = named.name(2, chain).long(3, *handle);
                self.push(either(DeleteRule, DestroyRule), 0, family, rule)
            }
        }
    }

    fn types(&self, (family, table): (Family, &str), set: &str) -> Result<SetTypes, SetError> {
        let key = SetKey { family, table: table.to_owned(), name: set.to_owned() };
        self.sets.get(&key).cloned().ok_or(SetError::Unknown(key.name))
    }

    /// Elements of a named set. Those that are removed may be named without their data.
    fn elements(
        &mut self,
        kind: MessageKind,
        flags: u16,
        place: (Family, &str),
        (set, elements): (&str, &[ElementText]),
    ) -> Result<(), SetError> {
        let types = self.types(place, set)?;
        let is_added = kind == MessageKind::NewElements;
        let element = |text: &ElementText| {
            let element = Attributes::default().nested(1, &value(&types.key.read(&text.key)?));
            let element = match (&types.data, &text.data) {
                (Some(DataType::Verdict), Some(DataText::Verdict(verdict))) => element.nested(2, &verdict.attributes()),
                (Some(DataType::Value(types)), Some(DataText::Value(words))) => {
                    element.nested(2, &value(&types.read(words)?))
                }
                (None, None) => element,
                (Some(_), None) if !is_added => element,
                (_, _) => return Err(SetError::Data(set.to_owned())),
            };
            Ok(text.comment.iter().fold(element, |element, comment| element.bytes(6, &said(0, comment))))
        };
        let elements = elements.iter().map(element).collect::<Result<Vec<_>, _>>()?;
        self.push_elements((kind, flags), place, &SetName { name: set.to_owned(), number: None }, &elements)
    }

    fn push_elements(
        &mut self,
        (kind, flags): (MessageKind, u16),
        (family, table): (Family, &str),
        set: &SetName,
        elements: &[Attributes],
    ) -> Result<(), SetError> {
        for some in elements.chunks(ELEMENTS_AT_ONCE) {
            let list = some.iter().fold(Attributes::default(), |list, element| list.nested(1, element));
            let message = Attributes::default().name(2, &set.name).name(1, table);
            let message = set.number.into_iter().fold(message, |message, number| message.number(4, number));
            self.push(kind, flags, family, message.nested(3, &list))?;
        }
        Ok(())
    }

    /// Declares a set, and gives it a number within this transaction.
    fn declare(&mut self, flags: u16, (family, table): (Family, &str), set: Declared<'_>) -> Result<SetName, SetError> {
        #[cfg(test)]
        self.show_set(table, &set);
        self.number += 1;
        let Declared { name, key, data, size, timeout, comment, .. } = set;
        let numbers = Attributes::default().name(1, table).name(2, name).number(3, set.flags);
        let mut message = numbers.number(4, key.number()).number(5, length(key.bytes()));
        // What a listing needs to show values again: in whose byte order they are.
        let mut user = told(0, order(key));
        match data {
            Some(DataType::Verdict) => {
                message = message.number(6, VERDICTS).number(7, 0);
                user.extend(told(1, 0));
            }
            Some(DataType::Value(types)) => {
                message = message.number(6, types.number()).number(7, length(types.bytes()));
                user.extend(told(1, order(types)));
            }
            None => {}
        }
        user.extend(told(2, 0));
        user.extend(comment.into_iter().flat_map(|comment| said(7, comment)));
        let description = size.into_iter().fold(Attributes::default(), |it, size| it.number(1, size));
        message = message.nested(9, &description).number(10, self.number);
        message = timeout.into_iter().fold(message, |message, timeout| message.long(11, timeout));
        self.push(MessageKind::NewSet, flags, family, message.bytes(13, &user))?;
        Ok(SetName { name: name.to_owned(), number: Some(self.number) })
    }

    fn rule(
        &mut self,
        place: (Family, &str),
        placement: Placement,
        RuleText { chain, statements, comment }: &RuleText,
    ) -> Result<(), SetError> {
        statements.iter().try_for_each(|statement| self.fits(place, statement))?;
        let expressions = expressions(statements, place.0, |set| self.anonymous(place, set))?;
        #[cfg(test)]
        self.show_rule(place, chain, &expressions);
        let rule = Attributes::default().name(1, place.1).name(2, chain).nested(4, &listed(&expressions));
        let rule = comment.iter().fold(rule, |rule, comment| rule.bytes(7, &said(0, comment)));
        let (flags, rule) = match placement {
            Placement::Last => (NLM_F_CREATE | NLM_F_APPEND, rule),
            Placement::First => (NLM_F_CREATE, rule),
            Placement::Behind(handle) => (NLM_F_CREATE | NLM_F_APPEND, rule.long(6, handle)),
            Placement::Before(handle) => (NLM_F_CREATE, rule.long(6, handle)),
            Placement::Replacing(handle) => (NLM_F_REPLACE, rule.long(3, handle)),
        };
        self.push(MessageKind::NewRule, flags, place.0, rule)
    }

    /// Whether the fields of a statement are of the types of the set that it names.
    fn fits(&self, place: (Family, &str), statement: &Statement) -> Result<(), SetError> {
        let Statement::Set(used, fields, set) = statement else { return Ok(()) };
        let types = self.types(place, set)?;
        let data = (*used == SetUse::Verdict).then_some(DataType::Verdict);
        if types.data != data {
            return Err(SetError::Kind(set.clone()));
        }
        let fields: Vec<Datatype> = fields.iter().map(|field| field.datatype()).collect();
        if types.key.parts() == fields { Ok(()) } else { Err(SetError::Types(set.clone())) }
    }

    fn anonymous(&mut self, place: (Family, &str), set: &Anonymous<'_>) -> Result<SetName, SetError> {
        let one = |datatype| Concatenation::of(vec![datatype]).expect("one fits");
        let numbered = |number: &u32| Attributes::default().nested(1, &value(&number.to_ne_bytes()));
        let (key, data, flags, elements): (_, _, _, Vec<_>) = match set {
            Anonymous::Set(datatype, Listed::Values(values)) => {
                let element = |bytes: &Vec<u8>| Attributes::default().nested(1, &value(bytes));
                (one(*datatype), None, 0, values.iter().map(element).collect())
            }
            Anonymous::Set(datatype, Listed::Ranges(ranges)) => {
                (one(*datatype), None, INTERVAL, boundaries(*datatype, ranges))
            }
            Anonymous::Verdicts(each) => {
                let element = |(number, verdict): &(u32, _)| -> Attributes {
                    numbered(number).nested(2, &crate::expression::Verdict::attributes(verdict))
                };
                (one(Datatype::Integer), Some(DataType::Verdict), MAP, each.iter().map(element).collect())
            }
            Anonymous::Destinations(family, each) => {
                let types = Concatenation::of(vec![address_of(*family), Datatype::Port]).expect("two fit");
                let element = |(number, bytes): &(u32, Vec<u8>)| numbered(number).nested(2, &value(bytes));
                let elements = each.iter().map(element).collect();
                (one(Datatype::Integer), Some(DataType::Value(types)), MAP, elements)
            }
        };
        let declared = Declared {
            name: if data.is_some() { "__map%d" } else { "__set%d" },
            flags: ANONYMOUS | CONSTANT | flags,
            key: &key,
            data: data.as_ref(),
            size: u32::try_from(elements.len()).ok(),
            timeout: None,
            comment: None,
        };
        let set = self.declare(NLM_F_CREATE, place, declared)?;
        self.push_elements((MessageKind::NewElements, NLM_F_CREATE), place, &set, &elements)?;
        Ok(set)
    }

    fn push(&mut self, kind: MessageKind, flags: u16, family: Family, body: Attributes) -> Result<(), SetError> {
        let body = body.finish()?;
        self.batch.lines.push(self.line);
        let sequence = u32::try_from(self.batch.lines.len()).expect("a text is shorter");
        message::message(&mut self.batch.messages, kind, (flags, sequence), family, &body);
        Ok(())
    }
}

fn declared(set: &SetText) -> Declared<'_> {
    let SetText { name, key, data, is_dynamic, timeout, has_timeouts, size, comment } = set;
    let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
    let flags = flag(data.is_some(), MAP) | flag(*has_timeouts, TIMEOUT) | flag(*is_dynamic, BY_RULES);
    let size = size.or(is_dynamic.then_some(DYNAMIC_SIZE));
    Declared { name, flags, key, data: data.as_ref(), size, timeout: *timeout, comment: comment.as_deref() }
}

/// Elements of a set of ranges: where each begins, and where it has ended.
fn boundaries(datatype: Datatype, ranges: &[(u128, u128)]) -> Vec<Attributes> {
    let bytes = |number: u128| number.to_be_bytes()[16 - datatype.bytes()..].to_vec();
    let begins = |number| Attributes::default().nested(1, &value(&bytes(number)));
    let ended = |number| Attributes::default().number(3, 1).nested(1, &value(&bytes(number)));
    let mut elements = Vec::new();
    if ranges.first().is_some_and(|(first, _)| *first > 0) {
        elements.push(ended(0));
    }
    for (first, last) in ranges {
        elements.push(begins(*first));
        if *last < datatype.highest() {
            elements.push(ended(last + 1));
        }
    }
    elements
}

fn based(chain: Attributes, base: &BaseChain) -> Attributes {
    let hook = Attributes::default().number(1, base.hook).number(2, base.priority.cast_unsigned());
    let chain = chain.nested(4, &hook).name(7, &base.kind);
    base.policy.into_iter().fold(chain, |chain, policy| chain.number(5, policy as u32))
}

/// User data that is a text with a zero behind it.
fn said(kind: u8, text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len() + 1).expect("the grammar takes no longer one");
    [&[kind, length], text.as_bytes(), &[0]].concat()
}

/// User data that is a number.
fn told(kind: u8, number: u32) -> Vec<u8> {
    [&[kind, 4], number.to_ne_bytes().as_slice()].concat()
}

/// Byte order of values: the machine's, or the network's.
fn order(types: &Concatenation) -> u32 {
    if types.is_host_order() { 1 } else { 2 }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a value is short")
}

#[cfg(test)]
mod tests;
