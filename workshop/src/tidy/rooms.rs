//! The rooms of `init`: a file names its own room and those that come before it, so that there is no circle among them.

use super::finding::Finding;
use super::text;

/// In the order in which they stand on each other; files at the top are rooms of their own.
const ROOMS: &[&str] = &[
    "runtime",
    "version",
    "machine",
    "stage0",
    "shown",
    "network",
    "storage",
    "enrolment",
    "control",
    "applet",
    "rpc",
    "public_api",
    "serve",
    "boot",
    "main",
];

/// Every arrow of one file that runs up.
pub(super) fn findings(file: &str, source: &str) -> Vec<Finding> {
    let Some(room) = file.strip_prefix("init/src/").and_then(|rest| rest.split(['/', '.']).next()) else {
        return Vec::new();
    };
    let Some(place) = ROOMS.iter().position(|known| *known == room) else {
        return vec![Finding { place: file.to_owned(), rule: format!("`{room}` is no room of init") }];
    };
    let mut findings = Vec::new();
    for (index, line) in source.lines().enumerate() {
        for named in text::code(line).split("crate::").skip(1) {
            let named = named.split(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric()).next();
            if let Some(above) = ROOMS.iter().skip(place + 1).find(|above| Some(**above) == named) {
                let rule = format!("`{room}` names `{above}`, which stands on it");
                findings.push(Finding { place: format!("{file}:{}", index + 1), rule });
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_names_those_before_it_only() {
        let found = |file: &str, source: &str| findings(file, source).len();
        assert_eq!(found("init/src/machine/disk.rs", "use crate::runtime::clock;\nuse crate::machine::esp;\n"), 0);
        assert_eq!(found("init/src/machine/disk.rs", "use crate::shown::board::Board;\n"), 1);
        assert_eq!(found("init/src/runtime.rs", "let x = crate::rpc::serve(crate::machine::y);\n"), 2);
        assert_eq!(found("init/src/machine/disk.rs", "// as crate::shown does\n"), 0, "a comment is not code");
        assert_eq!(found("init/src/cellar/wine.rs", ""), 1, "a room that nobody has placed");
        assert_eq!(found("cli/src/main.rs", "use crate::shown::x;\n"), 0);
    }
}
