//! The kernel's options: fragments by topic, the table that says why, and the check of the final config against it.
//!
//! ```text
//! fragments/*.config ──merge──► asked ──(the kernel's own olddefconfig)──► final ──check──► Ok | every row that failed
//!                                                            needs::NEEDS ───────────┘
//! ```
//! The kernel's tools drop, without a word, an option whose dependency is missing; so nothing here believes what was
//! asked, only what the final config says. This crate reads and compares text: it must never run a tool or touch a file.
//!
//! # Invariants
//! - The final config has every option of the table, each for a reason: `kernel-config/src/config.rs`,
//!   `workshop/src/kernel.rs`

mod config;
mod needs;

use std::fmt;

pub use config::{KernelConfig, MergeError, ParseError, Value, merge};
pub use needs::NEEDS;

/// Options of one topic, as a file of the kernel's own config syntax.
#[derive(Debug, Clone, Copy)]
pub struct Fragment {
    /// The file's name without its ending; errors name it.
    pub topic: &'static str,
    /// The file's text.
    pub text: &'static str,
}

/// The fragments of the release kernel, to be merged over `make tinyconfig`.
pub const FRAGMENTS: &[Fragment] = &[
    Fragment { topic: "base", text: include_str!("../fragments/base.config") },
    Fragment { topic: "storage", text: include_str!("../fragments/storage.config") },
    Fragment { topic: "crypto", text: include_str!("../fragments/crypto.config") },
    Fragment { topic: "network", text: include_str!("../fragments/network.config") },
    Fragment { topic: "containers", text: include_str!("../fragments/containers.config") },
    Fragment { topic: "tpm", text: include_str!("../fragments/tpm.config") },
    Fragment { topic: "security", text: include_str!("../fragments/security.config") },
    Fragment { topic: "hardware", text: include_str!("../fragments/hardware.config") },
    Fragment { topic: "console", text: include_str!("../fragments/console.config") },
];

/// Row of the table: a value that the final config must have for an option, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionRequirement {
    /// The option's name without `CONFIG_`.
    pub option: &'static str,
    /// The value it must have.
    pub value: NeededValue,
    /// Reason: the thing that breaks, or opens, without it.
    pub because: &'static str,
}

/// A value the table can ask for. There is no "module": the kernel has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeededValue {
    /// Built in.
    On,
    /// Not built: absent, or "is not set".
    Off,
    /// A number or a quoted string, as the config writes it.
    Text(&'static str),
}

/// A row that the final config does not fulfil.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} must be {} ({}) but is {}", need.option, need.value, need.because, Found(found.as_ref()))]
pub struct Violation {
    /// The row.
    pub need: OptionRequirement,
    /// Value in the config; `None` when it does not name the option at all.
    pub found: Option<Value>,
}

/// Compares the final config with every row of the table and returns all rows that fail, not only the first.
///
/// # Errors
/// The failing rows, in the table's order.
pub fn check(config: &KernelConfig, needs: &[OptionRequirement]) -> Result<(), Vec<Violation>> {
    let violations: Vec<Violation> = needs
        .iter()
        .filter(|need| !need.value.is_met_by(config.get(need.option)))
        .map(|need| Violation { need: *need, found: config.get(need.option).cloned() })
        .collect();
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

const fn on(option: &'static str, because: &'static str) -> OptionRequirement {
    OptionRequirement { option, value: NeededValue::On, because }
}

const fn off(option: &'static str, because: &'static str) -> OptionRequirement {
    OptionRequirement { option, value: NeededValue::Off, because }
}

const fn text(option: &'static str, value: &'static str, because: &'static str) -> OptionRequirement {
    OptionRequirement { option, value: NeededValue::Text(value), because }
}

impl NeededValue {
    fn is_met_by(self, found: Option<&Value>) -> bool {
        match (self, found) {
            (Self::On, Some(Value::Yes)) | (Self::Off, None | Some(Value::No)) => true,
            (Self::Text(wanted), Some(Value::Text(found))) => wanted == found,
            (Self::On | Self::Off | Self::Text(_), _) => false,
        }
    }
}

impl fmt::Display for NeededValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On => f.write_str("y"),
            Self::Off => f.write_str("off"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Shows what was found, for a person.
struct Found<'a>(Option<&'a Value>);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("absent: no such option, or a dependency is missing"),
            Some(Value::No) => f.write_str("off"),
            Some(Value::Yes) => f.write_str("y"),
            Some(Value::Module) => f.write_str("a module"),
            Some(Value::Text(text)) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn asked() -> KernelConfig {
        merge(FRAGMENTS).expect("the fragments merge")
    }

    /// Proves: O4. The fragments and the table say the same: no option without a reason, no reason without an option.
    #[test]
    fn every_option_has_one_row_and_every_row_one_option() {
        let asked = asked();
        check(&asked, NEEDS).expect("the fragments ask for what the table needs");
        let mut rows = BTreeMap::new();
        for need in NEEDS {
            assert!(rows.insert(need.option, need).is_none(), "{} has two rows", need.option);
            assert!(asked.get(need.option).is_some(), "{} stands in no fragment", need.option);
            assert!(!need.because.is_empty(), "{} has no reason", need.option);
        }
        for option in asked.options() {
            assert!(rows.contains_key(option), "{option} has no row");
        }
    }

    /// Proves: O4. An option that no kernel knows is absent from the final config, and that fails.
    #[test]
    fn a_nonsense_option_fails() {
        let nonsense = on("FLUX_CAPACITOR", "time travel");
        let violations = check(&asked(), &[nonsense]).expect_err("no kernel has it");
        assert_eq!(violations, [Violation { need: nonsense, found: None }]);
        assert_eq!(
            violations[0].to_string(),
            "FLUX_CAPACITOR must be y (time travel) but is absent: no such option, or a dependency is missing"
        );
    }

    /// Proves: O4. An option that was asked for and that olddefconfig dropped, or switched off, fails.
    #[test]
    fn a_vanished_option_fails() {
        for replacement in ["", "# CONFIG_DM_VERITY is not set\n", "CONFIG_DM_VERITY=m\n"] {
            let text = asked().to_string().replace("CONFIG_DM_VERITY=y\n", replacement);
            let config = KernelConfig::parse(&text).expect("still a config");
            let violations = check(&config, NEEDS).expect_err("verity is needed");
            assert_eq!(violations.len(), 1, "{violations:?}");
            assert_eq!(violations[0].need.option, "DM_VERITY");
        }
    }

    /// Proves: O4. An option that must be off fails when it comes on, whether asked for or selected by another.
    #[test]
    fn an_option_that_must_be_off_fails_when_on() {
        let text = asked().to_string().replace("# CONFIG_MODULES is not set\n", "CONFIG_MODULES=y\n");
        let violations =
            check(&KernelConfig::parse(&text).expect("a config"), NEEDS).expect_err("modules are forbidden");
        assert_eq!(violations[0].need.option, "MODULES");
        let absent = asked().to_string().replace("# CONFIG_MODULES is not set\n", "");
        check(&KernelConfig::parse(&absent).expect("a config"), NEEDS).expect("absent is off");
    }

    /// Proves: O4. Strings and numbers are compared as written.
    #[test]
    fn a_text_value_must_be_equal() {
        let text = asked().to_string().replace("CONFIG_PANIC_TIMEOUT=10\n", "CONFIG_PANIC_TIMEOUT=0\n");
        let violations =
            check(&KernelConfig::parse(&text).expect("a config"), NEEDS).expect_err("0 means wait for ever");
        assert_eq!(violations[0].found, Some(Value::Text("0".to_owned())));
    }
}
