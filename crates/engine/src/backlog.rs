//! The queue of one CPU that all others put packets on.
