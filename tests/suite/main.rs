//! The product's tests over real sockets, in one binary.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests say what they mean, and what fails here fails the test"
)]

mod cli;
mod documents;
mod harness;
mod levels;
mod simulator;
mod sockets;
mod surface;
