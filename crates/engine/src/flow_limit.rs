//! Who is refused by a backlog that is half full.
