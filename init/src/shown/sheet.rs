//! The sheet that a person in front of the machine reads: facts and board, drawn for each kind of console.
//!
//! ```text
//!   board ──► sheet ──┬─► screen: drawn in place at the top; below it the log scrolls
//!                     └─► serial line: whole at first, then only the rows that changed
//! ```

use std::fmt::Write;

use api::{Condition, Truth};
use model::{Assignment, MachineState};

use crate::facts::Now;
use crate::machine::kernel::Boot;
use crate::runtime::console::Kind;
use crate::runtime::log;
use crate::shown::board::{self, BoardReader, OnScreen, Words};

/// Shows the board whenever what a person would read on it changes. Runs for good.
pub(crate) async fn show(reader: BoardReader) {
    let mut changes = reader.changes();
    let mut shown = None;
    loop {
        let sheet = reader.read(|facts, words| Sheet::of(reader.board().facts().boot(), facts, words));
        if shown.as_ref() != Some(&sheet) {
            let (drawn, told) = (sheet.drawn_over(shown.as_ref()), sheet.told_after(shown.as_ref()));
            log::show(|kind| match kind {
                Kind::Screen => &drawn,
                Kind::Line => &told,
            });
            shown = Some(sheet);
        }
        if changes.next().await.is_err() {
            return;
        }
    }
}

/// Columns that every screen has.
const WIDTH: usize = 80;
/// Where values begin: two spaces, a label, a space.
const INDENT: usize = 13;
/// Rows that a value may take: a screen of 25 keeps room for the log.
const ROWS_OF_A_VALUE: usize = 3;

/// Labels and values in their order; labels without a value stand there, too.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sheet(Vec<(&'static str, String)>);

impl Sheet {
    fn of(boot: &Boot, facts: &Now, words: &Words) -> Self {
        let step = if words.step.is_empty() { String::new() } else { format!(" ({})", words.step) };
        let state = facts.state().map_or("starting", MachineState::word);
        let level = facts.level.map(|level| format!("{level}, ")).unwrap_or_default();
        let holds = |condition: &&Condition| condition.truth == Truth::True;
        let held: Vec<&str> = words.conditions.iter().filter(holds).map(|condition| condition.name.as_str()).collect();
        let rows = [
            (
                "Cairn",
                format!("{} {} · image {:.12}", crate::version::VERSION, boot.profile, boot.root_hash.to_string()),
            ),
            ("name", facts.names.as_ref().map(|names| names.node.to_string()).unwrap_or_default()),
            ("cluster", facts.names.as_ref().map(|names| names.cluster.to_string()).unwrap_or_default()),
            ("role", facts.assignment.as_ref().map(roles).unwrap_or_default()),
            ("state", format!("{state}{step}")),
            ("reason", words.reason.clone()),
            ("activate", words.code.as_ref().map(|code| activation(facts, code)).unwrap_or_default()),
            ("key", words.key.map(|key| key.to_string()).unwrap_or_default()),
            ("address", board::public_addresses(facts).join(" ")),
            ("vpn", board::vpn_addresses(facts).join(" ")),
            ("protection", format!("{level}{} · booted {}", facts.protection, boot.class)),
            ("holds", held.join(" ")),
            ("waits for", words.waits_for.join(", ")),
            ("meanwhile", words.meanwhile.to_owned()),
            ("last error", words.last_error.clone()),
        ];
        // Words of others are among them: none of them steers a terminal.
        let plain = |value: String| value.replace(char::is_control, " ");
        Self(rows.map(|(label, value)| (label, plain(value))).into())
    }

    /// For a serial line: all of it at first, then what is another than in `before`.
    fn told_after(&self, before: Option<&Self>) -> String {
        let mut text = String::new();
        for (number, (label, value)) in self.0.iter().enumerate() {
            let old = before.and_then(|before| before.0.get(number)).map_or("", |(_, old)| old.as_str());
            match value.as_str() {
                same if same == old => {}
                "" => line(&mut text, label, "-"),
                value => line(&mut text, label, value),
            }
        }
        if before.is_none() { format!("\n{text}\n") } else { text }
    }

    /// For a screen (console_codes(4)): over the rows of `before`, which stand at the top, those that are others now. What
    /// is below scrolls by itself, and the cursor is left there for whoever writes next.
    fn drawn_over(&self, before: Option<&Self>) -> String {
        let (rows, old) = (self.rows(), before.map(Self::rows).unwrap_or_default());
        let mut text = String::new();
        for number in 0..rows.len().max(old.len()) {
            let place = number + 1;
            match (rows.get(number), old.get(number)) {
                (Some(row), Some(old)) if row == old => Ok(()),
                // Without a moment in which the row is empty: somebody reads it.
                (Some(row), Some(old)) => write!(text, "\x1b[{place};1H{row:<0$}", old.chars().count()),
                (row, _) => write!(text, "\x1b[{place};1H\x1b[K{}", row.map_or("", String::as_str)),
            }
            .expect(TO_A_STRING);
        }
        // The last row of any screen is above 999.
        write!(text, "\x1b[{}r\x1b[999;1H", rows.len() + 1).expect(TO_A_STRING);
        text
    }

    /// The rows of a screen, an empty one at the end.
    fn rows(&self) -> Vec<String> {
        let mut rows = Vec::new();
        for (label, value) in self.0.iter().filter(|(_, value)| !value.is_empty()) {
            for (number, part) in wrapped(value).iter().enumerate() {
                let mut row = String::new();
                line(&mut row, if number == 0 { label } else { "" }, part);
                rows.push(row.trim_end().to_owned());
            }
        }
        rows.push(String::new());
        rows
    }
}

/// Command to type elsewhere, so that this machine joins a cluster.
fn activation(facts: &Now, code: &OnScreen) -> String {
    let address = facts.links.first().map_or_else(|| "ADDRESS".to_owned(), |link| link.address.ip.to_string());
    format!("cairnctl machine activate {address} --code {}", code.text())
}

const TO_A_STRING: &str = "writing to a String does not fail";

/// Words for the machine's role in its cluster and its roles in Kubernetes.
fn roles(assignment: &Assignment) -> String {
    let kubernetes = assignment.kubernetes().iter().map(|role| role.word());
    std::iter::once(assignment.role().word()).chain(kubernetes).collect::<Vec<_>>().join(", ")
}

fn line(text: &mut String, label: &str, value: &str) {
    writeln!(text, "  {label:<10} {value}").expect(TO_A_STRING);
}

/// `value` in pieces that fit a row, at spaces where there are some; what needs more rows than it may have is cut.
fn wrapped(value: &str) -> Vec<String> {
    let room = WIDTH - INDENT;
    let mut rows = vec![String::new()];
    for word in value.split(' ') {
        let letters: Vec<char> = word.chars().collect();
        for (number, piece) in letters.chunks(room).enumerate() {
            let row = rows.last_mut().expect("there is one from the start");
            let used = row.chars().count();
            let space = usize::from(used > 0 && number == 0);
            if used + space + piece.len() <= room {
                row.extend(std::iter::repeat_n(' ', space).chain(piece.iter().copied()));
            } else {
                rows.push(piece.iter().collect());
            }
        }
    }
    if rows.len() > ROWS_OF_A_VALUE {
        rows.truncate(ROWS_OF_A_VALUE);
        let last = rows.last_mut().expect("three are left");
        *last = last.chars().take(room - 1).chain(['…']).collect();
    }
    rows
}

#[cfg(test)]
mod tests {
    use api::{ConditionName, LevelInForce};
    use model::{
        ClusterId, Ipv4Prefix, KubernetesRole, MachineId, MachinePubKey, NodeName, Prefixes, RootHash, VPN_PREFIX,
        WaitState,
    };

    use super::*;
    use crate::facts::{Address, Facts, Names};
    use crate::shown::board::Board;

    fn board() -> (Board, BoardReader, model::PowerOn) {
        let (facts, power_on) = Facts::new(Boot { root_hash: RootHash([0xab; 32]), ..Boot::fixture() });
        let (board, reader) = Board::new(facts);
        (board, reader, power_on)
    }

    fn sheet(reader: &BoardReader) -> Sheet {
        reader.read(|facts, words| Sheet::of(reader.board().facts().boot(), facts, words))
    }

    fn lines(reader: &BoardReader) -> Vec<String> {
        sheet(reader).told_after(None).lines().map(str::to_owned).collect()
    }

    /// As much of the kernel's terminal as is used here: rows, a cursor, a region that scrolls.
    struct Terminal {
        rows: Vec<Vec<char>>,
        cursor: (usize, usize),
        top: usize,
    }

    impl Terminal {
        fn new() -> Self {
            Self { rows: vec![vec![' '; WIDTH]; 25], cursor: (0, 0), top: 0 }
        }

        fn write(&mut self, text: &str) {
            let mut rest = text.chars();
            while let Some(letter) = rest.next() {
                match letter {
                    '\x1b' => {
                        assert_eq!(rest.next(), Some('['));
                        let code: String = rest.by_ref().take_while_inclusive_letter();
                        self.obey(&code);
                    }
                    '\n' => self.new_line(),
                    letter => {
                        if self.cursor.1 == WIDTH {
                            self.new_line();
                        }
                        self.rows[self.cursor.0][self.cursor.1] = letter;
                        self.cursor.1 += 1;
                    }
                }
            }
        }

        fn new_line(&mut self) {
            self.cursor = (self.cursor.0 + 1, 0);
            if self.cursor.0 == self.rows.len() {
                self.rows.remove(self.top);
                self.rows.push(vec![' '; WIDTH]);
                self.cursor.0 -= 1;
            }
        }

        fn obey(&mut self, code: &str) {
            let (numbers, command) = code.split_at(code.len() - 1);
            let numbers: Vec<usize> = numbers.split(';').filter_map(|number| number.parse().ok()).collect();
            match (command, numbers.as_slice()) {
                ("H", [row, column]) => self.cursor = ((*row).min(25) - 1, column - 1),
                ("K", []) => self.rows[self.cursor.0][self.cursor.1..].fill(' '),
                ("r", [top]) => (self.top, self.cursor) = (top - 1, (0, 0)),
                other => panic!("{other:?}"),
            }
        }

        fn text(&self) -> Vec<String> {
            self.rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect()
        }
    }

    trait Code {
        /// Up to and with the letter that ends a control sequence.
        fn take_while_inclusive_letter(self) -> String;
    }

    impl<I: Iterator<Item = char>> Code for I {
        fn take_while_inclusive_letter(self) -> String {
            let mut code = String::new();
            for letter in self {
                code.push(letter);
                if letter.is_ascii_alphabetic() {
                    break;
                }
            }
            code
        }
    }

    /// A machine that runs, and what it says at each percent of its tagging.
    fn tagging(mut each: impl FnMut(&Sheet, &Sheet)) -> Sheet {
        let (board, reader, power_on) = board();
        board.waiting(&power_on.waits(WaitState::NeedsOwner), "a reason");
        let mut before = sheet(&reader);
        for percent in 0..100 {
            board.facts().update(|now| now.level = Some(LevelInForce::Tagging { percent }));
            let now = sheet(&reader);
            each(&before, &now);
            before = now;
        }
        before
    }

    /// Proves: O11
    #[test]
    fn a_serial_line_is_told_once_and_then_what_changed() {
        let mut told = String::new();
        tagging(|before, now| told += &now.told_after(Some(before)));
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), 100, "{told}");
        assert_eq!(lines[7], "  protection authenticated (7 % tagged), none · booted direct");

        let (board, reader, power_on) = board();
        let first = sheet(&reader);
        board.waiting(&power_on.waits(WaitState::NeedsOwner), "the disk is blank");
        board.waits_for(vec![String::from("etcd")]);
        let second = sheet(&reader);
        let all = "  state      NeedsOwner\n  reason     the disk is blank\n  waits for  etcd\n";
        assert_eq!(second.told_after(Some(&first)), all, "a state with its reason, in this order");
        board.waits_for(Vec::new());
        assert_eq!(sheet(&reader).told_after(Some(&second)), "  waits for  -\n", "what is gone is said, too");
        assert_eq!(second.told_after(Some(&second)), "");
    }

    /// Proves: O11
    #[test]
    fn a_screen_is_drawn_in_place_and_keeps_the_log_below() {
        let mut terminal = Terminal::new();
        (0..30).for_each(|number| terminal.write(&format!("kernel line {number}\n")));
        let mut first = true;
        let last = tagging(|before, now| {
            if std::mem::take(&mut first) {
                terminal.write(&before.drawn_over(None));
                terminal.write("[ 1.0] INFO one\n[ 2.0] INFO two\n");
            }
            terminal.write(&now.drawn_over(Some(before)));
        });
        let text = terminal.text();
        assert_eq!(text.iter().filter(|row| row.starts_with("  Cairn ")).count(), 1, "{text:#?}");
        assert_eq!(text[..last.rows().len()], last.rows(), "at the top: {text:#?}");
        assert!(text[3].contains("(99 % tagged)"), "{text:#?}");
        let mut drawn = String::new();
        tagging(|before, now| drawn = now.drawn_over(Some(before)));
        assert_eq!(drawn.matches('H').count(), 2, "one row and the way back: {drawn:?}");
        assert_eq!(text[22..], ["[ 1.0] INFO one", "[ 2.0] INFO two", ""], "{text:#?}");
        // However much is logged, the sheet stays.
        (0..100).for_each(|number| terminal.write(&format!("line {number}\n")));
        let text = terminal.text();
        assert_eq!(text[..last.rows().len()], last.rows(), "{text:#?}");
        assert_eq!(text[23], "line 99");
    }

    #[test]
    fn a_sheet_that_shrinks_leaves_nothing_of_itself() {
        let (board, reader, _power_on) = board();
        board.waits_for(vec![String::from("etcd")]);
        board.error("a service failed");
        let long = sheet(&reader);
        board.waits_for(Vec::new());
        board.error("");
        let short = sheet(&reader);
        let mut terminal = Terminal::new();
        terminal.write(&long.drawn_over(None));
        assert!(terminal.text().contains(&String::from("  waits for  etcd")));
        terminal.write(&short.drawn_over(Some(&long)));
        let text = terminal.text();
        assert_eq!(text[..short.rows().len()], short.rows());
        assert!(text[short.rows().len()..].iter().all(String::is_empty), "{text:#?}");
    }

    #[test]
    fn long_values_are_wrapped_and_never_steer_the_terminal() {
        let (board, reader, _power_on) = board();
        board.error(&format!("open \x1b[2J`x`:\nno {}", "word ".repeat(12)));
        let rows = sheet(&reader).rows();
        assert!(rows.iter().all(|row| row.chars().count() <= WIDTH), "{rows:#?}");
        let at = rows.iter().position(|row| row.starts_with("  last error open [2J`x`: no word word")).unwrap();
        assert!(rows[at + 1].starts_with("             word"), "{rows:#?}");
        assert!(!sheet(&reader).told_after(None).contains('\x1b'));
        let cut = wrapped(&"x".repeat(1000));
        assert_eq!(cut.len(), ROWS_OF_A_VALUE);
        assert!(cut[2].ends_with('…') && cut.iter().all(|row| row.chars().count() == WIDTH - INDENT), "{cut:#?}");
        assert_eq!(wrapped("a b"), ["a b"]);
    }

    /// Whole, so that it can be typed: on a screen, too, a code is never broken.
    ///
    /// Proves: N1 O11
    #[test]
    fn a_blank_machine_shows_its_command_until_it_is_activated() {
        let (board, reader, _power_on) = board();
        let code = "abcd-efgh-ijkl-mnop-qrst-uvwx-yz23";
        board.code(Some(String::from(code).into()));
        let shown = || lines(&reader).into_iter().find(|line| line.starts_with("  activate")).expect("a line for it");
        assert_eq!(shown(), format!("  activate   cairnctl machine activate ADDRESS --code {code}"));
        let address = Address { ip: [192, 0, 2, 10].into(), prefix: VPN_PREFIX };
        board.facts().update(|now| now.link("eth0", Some(address)));
        assert_eq!(shown(), format!("  activate   cairnctl machine activate 192.0.2.10 --code {code}"));
        assert!(sheet(&reader).rows().iter().any(|row| row.ends_with(code)), "{:#?}", sheet(&reader).rows());
        let words = reader.read(|_, words| format!("{words:?}"));
        assert!(!words.contains(code), "{words}");
        let before = sheet(&reader);
        board.code(None);
        assert_eq!(sheet(&reader).told_after(Some(&before)), "  activate   -\n");
    }

    /// Whole, so that a ticket can be issued for it. Proves: S4 O11
    #[test]
    fn a_machine_shows_its_key_while_it_asks_to_be_let_in() {
        let (board, reader, _power_on) = board();
        let (before, key) = (sheet(&reader), MachinePubKey([0xab; 32]));
        board.key(Some(key));
        let shown = sheet(&reader);
        assert_eq!(shown.told_after(Some(&before)), format!("  key        {key}\n"));
        assert!(shown.rows().iter().any(|row| row.ends_with(&key.to_string())), "{:#?}", shown.rows());
        board.key(None);
        assert_eq!(sheet(&reader).told_after(Some(&shown)), "  key        -\n");
    }

    /// Proves: O11
    #[test]
    fn a_person_reads_state_step_reason_and_what_was_wrong() {
        let (board, reader, power_on) = board();
        assert!(lines(&reader).contains(&String::from("  state      starting (start)")), "{:?}", lines(&reader));
        assert!(!lines(&reader).iter().any(|line| line.starts_with("  reason")), "nothing to say, no line");
        board.waiting(&power_on.waits(WaitState::NeedsOwner), "the disk is blank");
        board.error("a service failed");
        board.condition(ConditionName::EtcdReady, Truth::True, "");
        let address = |ip: [u8; 4], bits| Address {
            ip: ip.into(),
            prefix: Ipv4Prefix::around(ip.into(), bits).expect("a length"),
        };
        board.facts().update(|now| {
            let name = NodeName::chosen("m-1").expect("plain");
            now.names = Some(Names { node: name, machine: MachineId([0xef; 16]), cluster: ClusterId([0xcd; 16]) });
            let both = KubernetesRole::ALL.iter().copied().collect();
            now.assignment = Some(Assignment::first(&Prefixes::of(VPN_PREFIX), both));
            now.link("eth0", Some(address([192, 0, 2, 1], 24)));
            now.vpn = Some(address([10, 118, 0, 1], 16));
        });
        board.waits_for(vec![String::from("kube.apiserver (failed 3 times)")]);
        board.meanwhile("tagging makes way until the node is ready");
        let shown = lines(&reader);
        for line in [
            "  name       m-1",
            "  cluster    cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
            "  role       coordinator, control-plane, worker",
            "  state      NeedsOwner",
            "  reason     the disk is blank",
            "  address    192.0.2.1/24 (eth0)",
            "  vpn        10.118.0.1/16",
            "  protection none · booted direct",
            "  holds      EtcdReady",
            "  waits for  kube.apiserver (failed 3 times)",
            "  meanwhile  tagging makes way until the node is ready",
            "  last error a service failed",
        ] {
            assert!(shown.contains(&line.to_owned()), "{line}: {shown:?}");
        }
    }
}
