//! Text of Rust files, as rustfmt writes it: lines of code apart from strings and comments, and what they declare. An
//! attribute, a doc comment and a declaration each begin a line. It judges nothing.

/// A line of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The code, without what stands in strings.
    pub(super) code: String,
    /// The comment behind it, with its marks.
    pub(super) comment: &'a str,
}

/// State of the text between two letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Code,
    String,
    /// A raw string with so many `#` around its quotes.
    Raw(usize),
}

/// All lines of a file. A string may go on over many.
pub(super) fn lines(source: &str) -> Vec<Line<'_>> {
    let mut within = Within::Code;
    source.lines().map(|text| line(text, &mut within)).collect()
}

fn line<'a>(text: &'a str, within: &mut Within) -> Line<'a> {
    let mut code = String::new();
    let mut at = 0;
    while let Some(letter) = text[at..].chars().next() {
        let rest = &text[at..];
        let mut taken = letter.len_utf8();
        match *within {
            Within::Code if rest.starts_with("//") => return Line { code, comment: rest },
            Within::Code if rest.starts_with("'\"'") => taken = 3,
            Within::Code if rest.starts_with("'\\") => taken = 3 + rest[2..].chars().next().map_or(0, char::len_utf8),
            Within::Code if letter == '"' => {
                let hashes = code.len() - code.trim_end_matches('#').len();
                let raw = code.trim_end_matches('#').ends_with('r');
                *within = if raw { Within::Raw(hashes) } else { Within::String };
            }
            Within::Code => code.push(letter),
            Within::String if letter == '\\' => taken += rest[1..].chars().next().map_or(0, char::len_utf8),
            Within::String if letter == '"' => *within = Within::Code,
            Within::Raw(hashes) if letter == '"' && rest[1..].starts_with(&"#".repeat(hashes)) => {
                taken += hashes;
                *within = Within::Code;
            }
            Within::String | Within::Raw(_) => {}
        }
        at += taken.min(rest.len());
    }
    Line { code, comment: "" }
}

/// The same lines, with blank ones in place of what is compiled for tests alone.
pub(super) fn without_tests(mut lines: Vec<Line<'_>>) -> Vec<Line<'_>> {
    let mut at = 0;
    while at < lines.len() {
        if lines[at].code.trim() == "#[cfg(test)]" {
            let end = end_of_item(&lines, at + 1);
            lines[at..end].fill(Line::default());
            at = end;
        } else {
            at += 1;
        }
    }
    lines
}

/// Where an item ends, given where its attributes or its first line stand: behind its last line.
fn end_of_item(lines: &[Line<'_>], at: usize) -> usize {
    let indent = |code: &str| code.len() - code.trim_start().len();
    let column = lines.get(at).map_or(0, |line| indent(&line.code));
    let mut open = 0;
    for (index, Line { code, .. }) in lines.iter().enumerate().skip(at) {
        if open > 0 || code.trim_start().starts_with("#[") {
            open += balance(code);
        } else if indent(code) <= column && code.trim_end().ends_with([';', ',', '}']) {
            return index + 1;
        }
    }
    lines.len()
}

/// How many lines a function has between its braces, given where its first line stands; one without a body has none.
pub(super) fn body(lines: &[Line<'_>], at: usize) -> usize {
    let end = end_of_item(lines, at);
    let opened = lines[at..end].iter().position(|line| line.code.trim_end().ends_with('{'));
    opened.map_or(0, |opened| (end - at).saturating_sub(opened + 2))
}

/// A declaration, or anything else that has a doc comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    /// Line of the declaration, from 1; below a file's head, the first line of code.
    pub(super) line: usize,
    pub(super) kind: Kind,
    /// Empty for what is neither a function nor a type.
    pub(super) name: String,
    pub(super) doc: Option<Doc>,
}

/// Kinds of items that the house rules tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Function,
    /// A function that the test harness runs.
    Test,
    /// Struct, enum, union, trait or alias.
    Type {
        public: bool,
    },
    /// Head of a file, field, variant, constant, module.
    Other,
}

/// A doc comment: the line where it begins, and its text in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Doc {
    pub(super) line: usize,
    pub(super) text: String,
}

/// All functions and types of a file, and whatever else has a doc comment, in their order.
pub(super) fn items(source: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut doc: Option<(Doc, &str)> = None;
    let mut test = false;
    let mut open = 0; // brackets of an attribute that goes on
    for (index, Line { code, comment }) in lines(source).into_iter().enumerate() {
        let line = index + 1;
        let code = code.trim_start();
        let said = if code.is_empty() { said(comment) } else { None };
        if let Some((head, _)) = doc.take_if(|(_, mark)| *mark == HEAD && said.is_none_or(|(mark, _)| mark != HEAD)) {
            items.push(Item { line, kind: Kind::Other, name: String::new(), doc: Some(head) });
        }
        if let Some((mark, words)) = said {
            let (doc, _) = doc.get_or_insert((Doc { line, text: String::new() }, mark));
            doc.text = [&doc.text, words].join(" ").trim().to_owned();
        } else if open > 0 || code.starts_with("#[") || code.starts_with("#![") {
            test |= code.starts_with("#[test]") || code.starts_with("#[tokio::test");
            open += balance(code);
        } else if !code.is_empty() {
            let doc = doc.take().map(|(doc, _)| doc);
            let (kind, name) = declaration(code).unwrap_or((Kind::Other, ""));
            let kind = if test && kind == Kind::Function { Kind::Test } else { kind };
            if kind != Kind::Other || doc.is_some() {
                items.push(Item { line, kind, name: name.to_owned(), doc });
            }
            test = false;
        }
    }
    items
}

/// Mark of the doc comment at the head of a file.
const HEAD: &str = "//!";

/// The mark of a doc comment's line, and its words.
fn said(comment: &str) -> Option<(&'static str, &str)> {
    let marks = [HEAD, "///"].into_iter();
    let mut said = marks.filter_map(|mark| Some((mark, comment.strip_prefix(mark)?)));
    said.find(|(_, words)| !words.starts_with('/')).map(|(mark, words)| (mark, words.trim()))
}

/// How many brackets a line opens more than it closes.
fn balance(code: &str) -> i32 {
    let sign = |letter| i32::from(letter == '[') - i32::from(letter == ']');
    code.chars().map(sign).sum()
}

/// Kind and name of what a line declares, where that is a function or a type.
fn declaration(line: &str) -> Option<(Kind, &str)> {
    let (public, mut rest) = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => (false, rest.split_once(") ")?.1),
        Some(rest) => (true, rest.trim_start()),
        None => (false, line),
    };
    loop {
        let (word, after) = rest.split_once(' ')?;
        let kind = match word {
            "const" | "async" | "unsafe" | "extern" | "" => None,
            "fn" => Some(Kind::Function),
            "struct" | "enum" | "union" | "trait" | "type" => Some(Kind::Type { public }),
            _ => return None,
        };
        if let Some(kind) = kind {
            let end = after.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(after.len());
            return Some((kind, &after[..end])).filter(|(_, name)| !name.is_empty());
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &str) -> Vec<(usize, Kind, String, Option<String>)> {
        let items = items(source).into_iter();
        items.map(|item| (item.line, item.kind, item.name, item.doc.map(|doc| doc.text))).collect()
    }

    #[test]
    fn code_is_told_from_strings_and_comments() {
        let code = |source: &str| lines(source).into_iter().map(|line| line.code).collect::<Vec<_>>();
        assert_eq!(code("say(\"a // b\"); // \"c"), ["say(); "]);
        assert_eq!(code("say(\"a\\\" b\", '\"', '\\'', x)"), ["say(, , , x)"]);
        assert_eq!(code("x(\"a \\\n/// b\nfn c\", d)\ne"), ["x(", "", ", d)", "e"]);
        assert_eq!(code("x(r#\"a \"\nfn b \\\"#, c)\ne"), ["x(r#", ", c)", "e"]);
        assert_eq!(lines("a; // b // c")[0].comment, "// b // c");
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), ["fn f<'a>(x: &'a str) {}"]);
    }

    #[test]
    fn declarations_are_read_with_what_is_said_of_them() {
        let source = "//! Owns x.\n//! And y.\n\nuse a::B;\n/// Adds\n/// one.\n#[must_use]\npub const fn add<T>() {\n    let x = 1;\n";
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(
            read(source),
            [
                (3, Kind::Other, String::new(), said("Owns x. And y.")),
                (8, Kind::Function, "add".to_owned(), said("Adds one."))
            ]
        );
        let source = "/// Form.\n#[derive(\n    Debug,\n)]\n// why\npub struct Form;\npub(crate) enum Part {\n    /// First.\n    A,\n    //// No.\n    B,\n}\n";
        assert_eq!(
            read(source),
            [
                (6, Kind::Type { public: true }, "Form".to_owned(), said("Form.")),
                (7, Kind::Type { public: false }, "Part".to_owned(), None),
                (9, Kind::Other, String::new(), said("First.")),
            ]
        );
    }

    #[test]
    fn a_test_is_told_from_a_function() {
        let kinds = |source: &'static str| items(source).into_iter().map(|item| item.kind).collect::<Vec<_>>();
        assert_eq!(kinds("#[test]\nfn a() {}\nfn b() {}\n"), [Kind::Test, Kind::Function]);
        assert_eq!(kinds("/// Proves: O1\n#[tokio::test(start_paused = true)]\nasync fn a() {}\n"), [Kind::Test]);
        assert_eq!(kinds("#[expect(x, reason = \"[\")]\nunsafe extern \"C\" fn b() {}\n"), [Kind::Function]);
        assert_eq!(kinds("#[command(help = \"\\\nfn a [\n\")]\npub(crate) fn b() {}\n"), [Kind::Function]);
        assert_eq!(kinds("let fn_a = 1;\npublic struct A;\nimpl A {}\nconst A: u8 = 1;\n"), []);
    }

    #[test]
    fn what_is_for_tests_alone_is_left_out_and_nothing_else() {
        let kept = |source: &str| without_tests(lines(source)).into_iter().map(|line| line.code).collect::<Vec<_>>();
        for (test, after) in [
            ("mod tests {\n    fn x() {}\n}", ""),
            ("mod tests;", "use a::B;"),
            ("use a::{\n    b,\n};", "mod c;"),
            ("#[expect(\n    x,\n    reason = \"y\"\n)]\npub(crate) mod fake;", "fn f() {}"),
            ("fn x()\nwhere\n    A: B,\n{\n    y();\n\n    z()\n}", "fn f() {}"),
        ] {
            let kept = kept(&format!("use x;\n#[cfg(test)]\n{test}\n{after}\n")).join("\n");
            assert_eq!(kept.trim_end(), format!("use x;\n{}{after}", "\n".repeat(test.lines().count() + 1)).trim_end());
        }
        assert_eq!(kept("    #[cfg(test)]\n    a,\n    b,\n"), ["", "", "    b,"]);
    }
}
