//! The kernel's options: fragments by topic, a table that says why, a check of the final config.
