//! The machine's program `nft`, called as kube-proxy calls it.

use std::io::{self, Write as _};
use std::process::{Command, Output, Stdio};

use crate::say;

/// Transaction of which the kernel could do the first line.
const HALF_KNOWN: &str = "add table inet tried\nadd rule inet tried c quota over 5 mbytes drop\n";
/// Transaction that the kernel refuses at its last line: there is no such chain.
const REFUSED: &str = "add table inet tried\nadd rule inet tried c ip saddr 10.0.0.1 drop\n";

/// Tries what must change nothing, and shows that something else does.
pub(super) fn tried() -> io::Result<()> {
    let before = run(&["--json", "--terse", "list", "table", "inet", "cairn"], "")?;
    say(&format!("chains: {}", String::from_utf8_lossy(&before.stdout).matches("\"chain\":{").count()));
    for (what, arguments, text) in [
        ("an unknown word", ["--file", "-"].as_slice(), HALF_KNOWN),
        ("a line that is refused", &["--file", "-"], REFUSED),
        ("a trial", &["--check", "--file", "-"], "destroy table inet cairn\nadd table inet tried\n"),
        ("a listing of what is not there", &["--json", "--terse", "list", "table", "inet", "tried"], ""),
        ("a transaction", &["--file", "-"], "add table inet tried\nadd chain inet tried c\n"),
        ("a listing of what is there", &["--json", "list", "chain", "inet", "tried", "c"], ""),
    ] {
        let Output { status, stderr, .. } = run(arguments, text)?;
        let words = String::from_utf8_lossy(&stderr);
        say(&format!("{what}: {} {}", status.code().unwrap_or_default(), words.trim_end()));
    }
    let after = run(&["--json", "--terse", "list", "table", "inet", "cairn"], "")?;
    say(&format!("the same table: {}", before.stdout == after.stdout));
    Ok(())
}

/// Runs `nft` with these arguments and this input.
///
/// # Errors
/// When there is no such program, or it cannot be heard.
pub(super) fn run(arguments: &[&str], text: &str) -> io::Result<Output> {
    let mut nft = Command::new("/bin/nft");
    let nft = nft.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut nft = nft.spawn()?;
    // Whoever refuses its arguments reads nothing.
    let _it_may_have_ended = nft.stdin.take().map(|mut input| input.write_all(text.as_bytes()));
    nft.wait_with_output()
}
