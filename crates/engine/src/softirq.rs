//! Which instance is polled next, and when a run must stop.
