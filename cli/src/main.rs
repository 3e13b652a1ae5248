//! cairnctl: what an operator has in hand.

fn main() {}
