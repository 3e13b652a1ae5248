//! How long the functions of cases on machines are. A case shows one property; what several cases do is a method with a name
//! from the field.

use super::{
    finding::Finding,
    source::{self, Kind},
};

/// Folder of the cases.
const FOLDER: &str = "tests/cases/";
/// Most lines that such a function has between its braces.
const MOST_LINES: usize = 25;

/// Functions of a file of cases that are longer.
pub(super) fn findings(file: &str, source: &str) -> Vec<Finding> {
    if !file.starts_with(FOLDER) {
        return Vec::new();
    }
    let lines = source::lines(source);
    let functions = source::items(source).into_iter().filter(|item| matches!(item.kind, Kind::Function | Kind::Test));
    let long = functions.filter_map(|item| {
        let length = source::body(&lines, item.line - 1);
        let rule = format!("`{}` has {length} lines: at most {MOST_LINES}, for one property", item.name);
        (length > MOST_LINES).then(|| Finding { place: format!("{file}:{}", item.line), rule })
    });
    long.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        let body = "    step(\n        \"}\",\n    );\n".repeat(lines / 3) + &"    step();\n".repeat(lines % 3);
        format!("/// Doc.\nfn case(\n    t: &Context,\n) -> Result<()> {{\n{body}}}\n\nfn next() {{}}\n")
    }

    #[test]
    fn a_long_function_is_found_among_cases_alone() {
        assert_eq!(findings("tests/cases/a.rs", &function(MOST_LINES)), []);
        let long = function(MOST_LINES + 1);
        let [Finding { place, rule }] = &findings("tests/cases/a.rs", &long)[..] else { panic!("one is found") };
        assert_eq!(place, "tests/cases/a.rs:2");
        assert!(rule.starts_with("`case` has 26 lines"), "{rule}");
        assert_eq!(findings("tests/src/a.rs", &long), []);
    }
}
