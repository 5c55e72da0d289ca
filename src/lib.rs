//! tokenprobe measures TTFT, TPOT and TPS of LLM endpoints on a schedule and exports them to Prometheus.
//!
//! # Layout
//!
//! Modules are declared in reading order; pure ones never meet a socket, a file or a clock.
//!
//! The way of one probe: a due tick (`daemon`) starts a sweep, which climbs ladders, which run levels, whose
//! workers send probes (`probe`, every network read stamped); `protocol` turns bytes into tokens with times;
//! the resulting `measurement` goes through one bounded channel to whoever listens: metrics, progress, tables.

pub mod cell;
// pub mod config;
pub mod measurement;
pub mod protocol;
