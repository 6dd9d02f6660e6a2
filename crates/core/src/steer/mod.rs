//! Choosing the CPU.
