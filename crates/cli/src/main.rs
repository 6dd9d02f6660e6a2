//! The `rxsteer` command.
fn main() {}
