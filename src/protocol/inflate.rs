//! Bodies compressed although identity was asked for: inflates them as they come, in bounded memory.
//!
//! The first byte decides, for headers lie. Knows nothing of what the bytes mean.

use std::io::Write;

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

/// Compressed bytes inflated at once: the most memory one step can take is a thousand times this.
const STEP_BYTES: usize = 512;
/// Most bytes a body may inflate to.
const INFLATED_BYTES_MAX: usize = 64 << 20;

/// What `content-encoding` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Nothing, `identity`, or gzip: told by the first byte.
    Plain,
    /// `deflate`, with or without a zlib header.
    Deflate,
    /// One that is not spoken here.
    Unknown,
}

/// Why a body cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InflateError {
    /// An encoding we never asked for and cannot undo.
    UnknownEncoding,
    /// The compressed data is broken.
    Corrupt,
    /// It inflates to more than we take.
    TooLarge,
}

/// Undoes the compression of one body.
#[derive(Debug)]
pub(super) struct Inflater {
    encoding: Encoding,
    decoder: Option<Decoder>,
    inflated: usize,
}

#[derive(Debug)]
enum Decoder {
    Identity,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    Zlib(Box<ZlibDecoder<Vec<u8>>>),
    Raw(Box<DeflateDecoder<Vec<u8>>>),
}

impl Encoding {
    /// Reads a `content-encoding` header.
    pub(super) fn of(header: Option<&str>) -> Self {
        match header.map(|value| value.trim().to_ascii_lowercase()).as_deref() {
            None | Some("" | "identity" | "gzip" | "x-gzip") => Self::Plain,
            Some("deflate") => Self::Deflate,
            Some(_) => Self::Unknown,
        }
    }
}

impl Inflater {
    pub(super) fn new(encoding: Encoding) -> Self {
        Self { encoding, decoder: None, inflated: 0 }
    }

    /// Hands on what `bytes` inflate to, piece by piece.
    pub(super) fn feed(&mut self, bytes: &[u8], sink: &mut impl FnMut(&[u8])) -> Result<(), InflateError> {
        let Some(first) = bytes.first() else { return Ok(()) };
        if self.decoder.is_none() {
            self.decoder = Some(Decoder::choose(self.encoding, *first)?);
        }
        match &mut self.decoder {
            None | Some(Decoder::Identity) => {
                sink(bytes);
                Ok(())
            }
            Some(Decoder::Gzip(decoder)) => {
                inflate(decoder.as_mut(), bytes, &mut self.inflated, |decoder| take(decoder.get_mut(), sink))
            }
            Some(Decoder::Zlib(decoder)) => {
                inflate(decoder.as_mut(), bytes, &mut self.inflated, |decoder| take(decoder.get_mut(), sink))
            }
            Some(Decoder::Raw(decoder)) => {
                inflate(decoder.as_mut(), bytes, &mut self.inflated, |decoder| take(decoder.get_mut(), sink))
            }
        }
    }
}

impl Decoder {
    fn choose(encoding: Encoding, first: u8) -> Result<Self, InflateError> {
        const GZIP_MAGIC: u8 = 0x1f;
        const ZLIB_MAGIC: u8 = 0x78;
        match (encoding, first) {
            (Encoding::Unknown, _) => Err(InflateError::UnknownEncoding),
            (_, GZIP_MAGIC) => Ok(Self::Gzip(Box::new(MultiGzDecoder::new(Vec::new())))),
            (Encoding::Deflate, ZLIB_MAGIC) => Ok(Self::Zlib(Box::new(ZlibDecoder::new(Vec::new())))),
            (Encoding::Deflate, _) => Ok(Self::Raw(Box::new(DeflateDecoder::new(Vec::new())))),
            (Encoding::Plain, _) => Ok(Self::Identity),
        }
    }
}

fn inflate<W: Write>(
    decoder: &mut W,
    bytes: &[u8],
    inflated: &mut usize,
    mut drain: impl FnMut(&mut W) -> usize,
) -> Result<(), InflateError> {
    for step in bytes.chunks(STEP_BYTES) {
        let written = decoder.write_all(step).and_then(|()| decoder.flush());
        *inflated += drain(decoder);
        if written.is_err() {
            return Err(InflateError::Corrupt);
        }
        if *inflated > INFLATED_BYTES_MAX {
            return Err(InflateError::TooLarge);
        }
    }
    Ok(())
}

fn take(inflated: &mut Vec<u8>, sink: &mut impl FnMut(&[u8])) -> usize {
    let bytes = inflated.len();
    if bytes > 0 {
        sink(inflated);
        inflated.clear();
    }
    bytes
}
