//! Test helpers for pure crates: a clock origin, fixtures.
