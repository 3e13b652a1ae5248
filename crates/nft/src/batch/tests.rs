//! Texts and what Debian's `nft` makes of them, which `tests/debian.txt` has: each block is a text, and the output of
//! `nft --check --debug=netlink` for it. Where that program is installed, root rewrites the outputs:
//! `CAIRN_REWRITE_GOLDEN=1 cargo test -p nft`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command as Program, Stdio};
use std::{env, fs};

use super::*;
use crate::expression::Expression;

impl Writer {
    pub(super) fn show_rule(&mut self, (family, table): (Family, &str), chain: &str, expressions: &[Expression]) {
        let shown = &mut self.batch.shown;
        let _never = writeln!(shown, "{} {table} {chain}", family.name());
        for expression in expressions {
            let _never = writeln!(shown, "  {expression}");
        }
    }

    pub(super) fn show_set(&mut self, table: &str, set: &Declared<'_>) {
        let shown = &mut self.batch.shown;
        let _never = write!(shown, "{} {table} {:x}", set.name, set.flags);
        if let Some(timeout) = set.timeout {
            let _never = write!(shown, " timeout {timeout}ms");
        }
        if let Some(size) = set.size.filter(|_| set.flags & ANONYMOUS != 0) {
            let _never = write!(shown, " size {size}");
        }
        let _never = writeln!(shown);
    }
}

/// Lines of Debian's output that say what a rule or set is: elements and user data are compared byte by byte elsewhere.
fn told_by_debian(output: &str) -> Vec<&str> {
    let is_other = |line: &str| {
        let line = line.trim_start();
        line.is_empty() || line.starts_with("element ") || line.starts_with("userdata") || line.contains("(null)")
    };
    let all: Vec<&str> = output.lines().filter(|line| !is_other(line)).map(str::trim_end).collect();
    // A set is named once where it is made, and once more before its elements.
    let is_repeated = |place: usize| {
        all[place].ends_with(" 0")
            && all[..place].iter().any(|before| {
                let of = |line: &str| line.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
                !before.starts_with(' ') && of(before) == of(all[place])
            })
    };
    (0..all.len()).filter(|place| !is_repeated(*place)).map(|place| all[place]).collect()
}

const DEBIANS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/debian.txt");
const NEXT: &str = "\n====\n";
const OUTPUT: &str = "\n----\n";

/// Output of Debian's `nft` for a text, in a network namespace of its own.
fn by_debian(text: &str) -> String {
    let mut nft = Program::new("unshare");
    nft.args(["--net", "nft", "--check", "--debug=netlink", "--file", "-"]);
    let mut nft = nft.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("nft is installed");
    nft.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("nft reads");
    let output = nft.wait_with_output().expect("nft ends");
    assert!(output.status.success(), "nft takes no {text}");
    String::from_utf8(output.stdout).expect("it is text").trim_end().to_owned()
}

#[test]
fn texts_become_the_expressions_that_debians_nft_makes() {
    let kept = fs::read_to_string(DEBIANS).expect("it is there");
    let texts = kept.split(NEXT).map(|block| block.split_once(OUTPUT).expect("a text, and what becomes of it").0);
    if env::var_os("CAIRN_REWRITE_GOLDEN").is_some() {
        let blocks: Vec<String> = texts.map(|text| [text, &by_debian(text)].join(OUTPUT)).collect();
        fs::write(DEBIANS, blocks.join(NEXT) + "\n").expect("it is rewritten");
        return;
    }
    let mut seen = 0;
    for block in kept.split(NEXT) {
        let (text, output) = block.split_once(OUTPUT).expect("a text, and what becomes of it");
        let transaction = Transaction::parse(text).expect("a text that is understood");
        let batch = transaction.batch(&KernelSets::new()).expect("sets of the text");
        assert_eq!(batch.shown.lines().collect::<Vec<_>>(), told_by_debian(output), "{text}");
        seen += batch.lines.len();
    }
    assert!(seen > 60, "{seen} messages");
}

/// Sets of a table `t` that the kernel is said to have.
fn kernel(sets: &[(&str, u32, Option<u32>, u32)]) -> KernelSets {
    let key = |name: &str| SetKey { family: Family::Ip, table: String::from("t"), name: name.to_owned() };
    let types = |key, data, flags| SetTypes::of_numbers(key, data, flags).expect("types that are known");
    sets.iter().map(|(name, key_type, data, flags)| (key(name), types(*key_type, *data, *flags))).collect()
}

/// Errors are told by the line that they are in, and what is right beside them is not sent either.
#[test]
fn a_line_that_is_not_understood_is_named() {
    let wrong = [
        ("", "unexpected end of the line"),
        ("add", "unexpected end of the line"),
        ("add table", "unexpected end of the line"),
        ("list table ip t", "unexpected `list`"),
        ("create rule ip t c accept", "unexpected `rule`"),
        ("add table ip t { flags dormant ; }", "unexpected `flags`"),
        ("add table ip t t", "unexpected `t`"),
        ("add chain ip t c { policy drop ; }", "unexpected `policy`"),
        ("add chain ip t c { type filter hook ingress priority 0 ; }", "unexpected `ingress`"),
        ("add chain ip t c { type filter hook input priority dstnat ; }", "unexpected `dstnat`"),
        ("add set ip t s { type ether_addr ; }", "unexpected `ether_addr`"),
        ("add set ip t s { type ipv4_addr ; flags interval ; }", "unexpected `interval`"),
        ("add set ip t s { type ipv4_addr ; timeout 3h ; }", "unexpected `3h`"),
        ("add set ip t s", "unexpected end of the line"),
        ("add map ip t s { type ipv4_addr ; }", "unexpected `;`"),
        ("delete rule ip t c", "unexpected end of the line"),
        ("add rule ip t c", "unexpected end of the line"),
        ("add rule ip t c comment \"alone\"", "unexpected end of the line"),
        ("add rule ip t c index 0 accept", "unexpected `index`"),
        ("add rule ip t c tcp flags syn drop", "unexpected `tcp`"),
        ("add rule ip t c ip daddr . th dport { 1.2.3.4 . 80 } drop", "unexpected `{`"),
        ("add rule ip t c ip daddr 10.0.0.0/0 drop", "unexpected `10.0.0.0/0`"),
        ("add rule ip t c ct state fresh drop", "unexpected `fresh`"),
        ("add rule ip t c dnat to 10.0.0.1", "unexpected `10.0.0.1`"),
        (
            "add rule ip t c dnat ip6 addr . port to numgen random mod 1 map { 0 : ::1 . 1 }",
            "addresses of the other family",
        ),
        ("add rule ip t c numgen random mod 0 vmap { 0 : drop }", "unexpected `0`"),
        ("add rule ip t c numgen random mod 1 vmap { 0 : 1 }", "unexpected `1`"),
        ("add rule ip t c tcp dport != 80-90 drop", "unexpected `!=`"),
        ("add rule ip t c tcp dport { 90-80, 443 } drop", "`90-80` is no range of ports"),
        ("add rule ip t c ip saddr 10.0.0 drop", "`10.0.0` is no ipv4_addr"),
        ("add rule ip t c tcp dport 65536 drop", "`65536` is no inet_service"),
        ("add rule ip t c accept comment \"x", "a quotation mark without its end"),
    ];
    for (line, why) in wrong {
        let text = format!("add table ip t\n{line}");
        let told = Transaction::parse(&text).map_err(|error| error.to_string());
        let expected = if line.is_empty() { Ok(1) } else { Err(format!("line 2: {why}")) };
        assert_eq!(told.map(|read| read.0.len()), expected, "{line}");
    }
    let long = format!("add table ip t {{ comment \"{}\" ; }}", "x".repeat(129));
    assert_eq!(
        Transaction::parse(&long).map(drop),
        Err(BatchError::Grammar { line: 1, why: GrammarError::Comment(129) })
    );
    assert!(Transaction::parse(&long.replace("xx", "x")).is_ok());
}

#[test]
fn an_element_or_rule_goes_with_its_set() {
    let sets = kernel(&[("s", 7, None, 0), ("m", 7, Some(VERDICTS), MAP), ("v", 7, Some(13), MAP)]);
    let read = |line: &str| Transaction::parse(line).expect("it is understood").batch(&sets);
    for right in [
        "add element ip t s { 10.0.0.1 }",
        "add element ip t m { 10.0.0.1 : drop, 10.0.0.2 comment \"two\" : jump c }",
        "add element ip t v { 10.0.0.1 : 80 }",
        "delete element ip t m { 10.0.0.1 }",
        "add rule ip t c ip saddr @s drop",
        "add rule ip t c ip saddr vmap @m",
        "add rule ip t c update @s { ip saddr }",
    ] {
        assert_eq!(read(right).map(|batch| batch.lines), Ok(vec![1]), "{right}");
    }
    let named = String::from;
    for (wrong, why) in [
        ("add element ip t x { 10.0.0.1 }", SetError::Unknown(named("x"))),
        ("add rule ip6 t c ip6 saddr @s drop", SetError::Unknown(named("s"))),
        ("add element ip t s { 10.0.0.1 : drop }", SetError::Data(named("s"))),
        ("add element ip t m { 10.0.0.1 }", SetError::Data(named("m"))),
        ("add element ip t m { 10.0.0.1 : 80 }", SetError::Data(named("m"))),
        ("add element ip t v { 10.0.0.1 : drop }", SetError::Data(named("v"))),
        ("add rule ip t c tcp dport @s drop", SetError::Types(named("s"))),
        ("add rule ip t c ip saddr . ip daddr @s drop", SetError::Types(named("s"))),
        ("add rule ip t c ip saddr @m drop", SetError::Kind(named("m"))),
        ("add rule ip t c ip saddr vmap @s", SetError::Kind(named("s"))),
        ("add rule ip t c ip saddr vmap @v", SetError::Kind(named("v"))),
        ("add element ip t s { tcp }", SetError::Value(ValueError { text: named("tcp"), of: "ipv4_addr" })),
    ] {
        assert_eq!(read(wrong).map(drop), Err(BatchError::Set { line: 1, why }), "{wrong}");
    }
}

#[test]
fn the_kernel_is_asked_for_sets_that_the_text_only_names() {
    let text = "add rule ip t c ip saddr @old drop\nadd set ip t new { type ipv4_addr ; }\n\
                add element ip t new { 10.0.0.1 }\nadd element inet t new { 10.0.0.1 }\nflush set ip t other\n";
    let named = Transaction::parse(text).expect("it is understood").kernel_sets();
    let named: Vec<_> = named.iter().map(|set| (set.family, set.name.as_str())).collect();
    assert_eq!(named, [(Family::Inet, "new"), (Family::Ip, "old")]);
    assert_eq!(SetTypes::of_numbers(7, None, INTERVAL), None, "ranges are not written here");
    assert_eq!(SetTypes::of_numbers(9, None, 0), None, "link-layer addresses are not known");
}

/// The kernel names a message by its number, and a message is of the line whose command it does.
#[test]
fn a_refusal_of_the_kernel_names_its_line() {
    let text = "# two commands\nadd table ip t\n\nadd rule ip t c ip saddr { 10.0.0.1, 10.0.0.2 } drop\n";
    let batch = Transaction::parse(text).expect("it is understood").batch(&KernelSets::new()).expect("it fits");
    assert_eq!(batch.lines, [2, 4, 4, 4], "the set, its elements and the rule are of one line");
    let answer = |sequence: u32| {
        let mut bytes = [[36, 0, 0, 0, 2, 0, 0, 0].as_slice(), &sequence.to_ne_bytes(), &[0; 4]].concat();
        bytes.extend((-2_i32).to_ne_bytes());
        bytes.resize(36, 0);
        bytes
    };
    let failed = |sequence| batch.refusals(&answer(sequence)).first().map(|refusal| (refusal.line, refusal.errno));
    assert_eq!([1, 2, 4, 9].map(failed), [Some((2, 2)), Some((4, 2)), Some((4, 2)), Some((2, 2))]);
    assert_eq!(batch.refusals(&[]), []);
}

#[test]
fn a_trial_is_the_transaction_without_its_end() {
    let read = |text| Transaction::parse(text).expect("it is understood").batch(&KernelSets::new()).expect("it fits");
    let batch = read("add table ip t");
    let (bytes, trial) = (batch.bytes(), batch.trial());
    assert_eq!((bytes.len(), bytes.starts_with(&trial)), (trial.len() + 20, true));
    assert!(!batch.is_empty() && read("# nothing\n\n").is_empty());
}

#[test]
fn many_elements_are_told_in_several_messages() {
    let all: Vec<String> =
        (0..1200_u32).map(|it| std::net::Ipv4Addr::from_bits(0x0a00_0000 + it).to_string()).collect();
    let text = format!("add set ip t s {{ type ipv4_addr ; }}\nadd element ip t s {{ {} }}", all.join(", "));
    let batch = Transaction::parse(&text).expect("it is understood").batch(&KernelSets::new()).expect("it fits");
    assert_eq!(batch.lines, [1, 2, 2, 2]);
}
