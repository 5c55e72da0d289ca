//! Files read up to a limit: a path may name a device or a model by mistake, whose length its metadata does not say.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

/// The whole file.
///
/// # Errors
/// It cannot be read, or holds more than `bytes_max`.
pub(super) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("holds more than the {bytes_max} bytes it may have: is this the right file?"),
        ));
    }
    Ok(bytes)
}
