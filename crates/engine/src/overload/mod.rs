//! What is done when more comes than can be carried: shed early, place beside, spill.
