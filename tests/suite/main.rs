//! The product's tests over real sockets, in one binary.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unchecked_time_subtraction,
    clippy::cast_possible_truncation,
    clippy::format_push_string,
    clippy::single_match_else,
    reason = "tests say what they mean, and what fails here fails the test"
)]

mod archive;
mod aws_platform;
mod calibration;
mod check;
mod cli;
mod corpus;
mod credentials;
mod dashboards;
mod documents;
mod election;
mod fake_clock;
mod gentle;
mod guard;
mod harness;
mod levels;
mod on_demand;
mod openapi;
mod rates;
mod readme;
mod runaway;
mod simulator;
mod sockets;
mod surface;
mod transport;
