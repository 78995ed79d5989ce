//! Tests of single things, in the simulated bucket.
