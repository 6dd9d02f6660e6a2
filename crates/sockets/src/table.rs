//! The tables.
mod pick;
pub(crate) use pick::PickHash;
