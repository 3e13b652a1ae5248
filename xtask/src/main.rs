//! What developers run: up, test, ci, image, bench, fuzz, tidy.

fn main() {}
