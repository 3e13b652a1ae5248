//! PID 1.

fn main() {}
