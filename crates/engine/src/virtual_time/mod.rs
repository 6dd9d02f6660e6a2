//! The executor of discrete events.
