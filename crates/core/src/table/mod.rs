//! Flow tables.
