//! How doc comments begin and how much they say. Of tests that prove a requirement `Proves:` may be all that is said: their
//! names are the sentences.

use super::{
    lists::Rule,
    source::{Item, Kind},
};

/// Words that point at something that the reader has not been told of.
const PRONOUNS: &[&str] = &[
    "It", "Its", "They", "Their", "What", "Who", "Whom", "Whose", "Of", "One", "That", "Those", "These", "Such",
    "Nobody", "Nothing", "Whoever", "Whatever",
];
/// Words that a doc comment of a function or type says at least: fewer only repeat its name.
const WORDS: usize = 4;
/// How the line begins that says what a test proves.
const PROVES: &str = "Proves:";

/// Rules that an item's doc comment breaks, each with its line and what is wrong.
pub(super) fn broken(item: &Item) -> Vec<(Rule, usize, String)> {
    let Some(doc) = item.doc.as_ref().filter(|doc| !doc.text.starts_with(PROVES)) else { return Vec::new() };
    let mut broken = Vec::new();
    let first = doc.text.split(|letter: char| !letter.is_alphanumeric() && letter != '-').next();
    if let Some(first) = first.filter(|first| PRONOUNS.contains(first)) {
        broken.push((
            Rule::Pronoun,
            doc.line,
            format!("a doc comment begins with `{first}`: begin with a noun or a verb"),
        ));
    }
    let words = doc.text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    if item.kind != Kind::Other && words < WORDS {
        let rule = format!("`{}` of `{}` says too little: over three words", doc.text, item.name);
        broken.push((Rule::Short, doc.line, rule));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::{super::source::items, *};

    fn rules(source: &str) -> Vec<(Rule, usize)> {
        items(source).iter().flat_map(broken).map(|(rule, line, _)| (rule, line)).collect()
    }

    #[test]
    fn a_doc_comment_that_begins_with_a_pronoun_is_found() {
        for pronoun in PRONOUNS {
            assert_eq!(rules(&format!("/// {pronoun} is kept here.\nA,\n")), [(Rule::Pronoun, 1)]);
        }
        let source = "//! Whose file this is.\n\n/// Its, as one says, length.\nconst A: u8 = 1;\n";
        assert_eq!(rules(source), [(Rule::Pronoun, 1), (Rule::Pronoun, 3)]);
        for good in
            ["/// One-time code.\n", "/// Items.\n", "/// `It` as a word.\n", "// It is code.\n", "/// A\n/// Who\n"]
        {
            assert_eq!(rules(&format!("{good}const A: u8 = 1;\n")), []);
        }
    }

    #[test]
    fn a_function_or_type_of_which_too_little_is_said_is_found() {
        for declaration in ["fn a() {", "pub struct A;", "pub(crate) trait A {", "type A = B;", "#[test]\nfn a() {"] {
            assert_eq!(rules(&format!("/// Length – in bytes.\n{declaration}\n")), [(Rule::Short, 1)], "{declaration}");
            assert_eq!(rules(&format!("/// Length of all,\n/// summed.\n{declaration}\n")), [], "{declaration}");
        }
        assert_eq!(rules("/// Bytes.\nlength: usize,\n/// Proves: O1\n#[test]\nfn a() {}\n"), []);
    }
}
