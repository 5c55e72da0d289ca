//! Prompts.
