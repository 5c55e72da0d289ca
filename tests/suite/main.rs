//! The integration tests, one binary.
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod corpus;
mod fake_clock;
