//! Content of the initramfs: stage 0, and what it must know of the root before it trusts anything.

use std::collections::BTreeMap;

use formats::verity::Verity;
use initramfs::{BadPath, FileTree, Node};

use crate::cmdline;
use crate::manifest::ManifestEntry;

/// Where stage 0 finds how its root verifies; text of [`Verity`].
pub(crate) const VERITY: &str = "cairn/verity";
/// Where it finds the only command line it may run under.
pub(crate) const COMMAND_LINE: &str = "cairn/cmdline";

/// The tree, with `init` as stage 0.
pub(crate) fn tree(init: Vec<u8>, verity: &Verity) -> Result<FileTree, BadPath> {
    let mut tree = FileTree::default();
    // Mount points, and /root for the verified root before it becomes /.
    for directory in ["cairn", "dev", "proc", "root", "run", "sys"] {
        tree.add(directory, Node::Directory { mode: 0o755 })?;
    }
    // The kernel opens it for PID 1 before anything is mounted; without it a failing stage 0 is silent.
    tree.add("dev/console", Node::CharacterDevice { mode: 0o600, major: 5, minor: 1 })?;
    tree.add("init", Node::File { mode: 0o555, bytes: init })?;
    tree.add(VERITY, text(&verity.to_string()))?;
    tree.add(COMMAND_LINE, text(&cmdline::text()))?;
    Ok(tree)
}

/// Entries of a tree, by absolute path.
pub(crate) fn list(tree: &FileTree) -> BTreeMap<String, ManifestEntry> {
    let entry = |node: &Node| match node {
        Node::Directory { .. } => ManifestEntry::Directory,
        Node::File { mode, bytes } => ManifestEntry::file_with_mode(bytes, u32::from(*mode)),
        Node::CharacterDevice { .. } => ManifestEntry::Device,
    };
    tree.iter().map(|(path, node)| (format!("/{path}"), entry(node))).collect()
}

fn text(line: &str) -> Node {
    Node::File { mode: 0o444, bytes: format!("{line}\n").into_bytes() }
}
