//! Side-by-side measurements; the floor.
