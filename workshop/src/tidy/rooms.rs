//! The rooms of `init`: a file names its own room and those that come before it, so that there is no circle among them; and
//! what is shown to people is read by what shows it, so that nothing decides by it.

use super::{finding::Finding, source::lines};

/// In the order in which they stand on each other; files at the top are rooms of their own.
const ROOMS: &[&str] = &[
    "runtime",
    "version",
    "machine",
    "stage0",
    "facts",
    "shown",
    "network",
    "storage",
    "enrolment",
    "records",
    "control",
    "applet",
    "rpc",
    "member",
    "serve",
    "boot",
    "main",
];

/// Reader of the board, whose other users only write on it.
const READER: &str = "BoardReader";
/// Where the board is shown.
const SHOWS: &[&str] = &["init/src/shown/", "init/src/rpc/public.rs", "init/src/rpc/public/"];

/// Every arrow of one file that runs up, and every look at the board where nothing is shown.
pub(super) fn findings(file: &str, source: &str) -> Vec<Finding> {
    let Some(room) = file.strip_prefix("init/src/").and_then(|rest| rest.split(['/', '.']).next()) else {
        return Vec::new();
    };
    let Some(place) = ROOMS.iter().position(|known| *known == room) else {
        return vec![Finding { place: file.to_owned(), rule: format!("`{room}` is no room of init") }];
    };
    let mut findings = Vec::new();
    for (index, code) in lines(source).into_iter().map(|line| line.code).enumerate() {
        if code.contains(READER) && !SHOWS.iter().any(|shows| file.starts_with(shows)) {
            let rule = format!("`{READER}`: nothing decides by what is shown; `facts` are there to decide by");
            findings.push(Finding { place: format!("{file}:{}", index + 1), rule });
        }
        for named in code.split("crate::").skip(1) {
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

    #[test]
    fn nothing_decides_by_what_is_shown() {
        let found = |file: &str| findings(file, "use crate::shown::board::BoardReader;\n").len();
        assert_eq!(found("init/src/shown/sheet.rs") + found("init/src/rpc/public/streams.rs"), 0, "they show it");
        for decides in ["rpc/access.rs", "enrolment.rs", "storage.rs", "control/node.rs", "serve.rs", "boot.rs"] {
            assert_eq!(found(&format!("init/src/{decides}")), 1, "{decides}");
        }
    }
}
