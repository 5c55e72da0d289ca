//! Which program this is: version, revision and compiler, fixed when it was compiled.

/// Version of the package.
pub const PACKAGE: &str = env!("CARGO_PKG_VERSION");

/// Source revision, `unknown` when it was not compiled from a checkout.
pub const REVISION: &str = env!("TOKENPROBE_REVISION");

/// Version of the compiler.
pub const RUSTC: &str = env!("TOKENPROBE_RUSTC");
