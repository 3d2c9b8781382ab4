//! Without a script cargo does not look at the dependencies of scripts.

fn main() {}
