//! One CPU: what it does next, one packet's worth at a time.
