//! The executor of real threads.
