//! How fast an answer is decoded, and what it allocates: one thousand chunks per iteration, all in one reply.
//!
//! Chunks per second are the items, bytes per second the bytes; allocations are those of a whole answer, its opening
//! and its verdict included, so a handful per thousand chunks means none per chunk.

use std::{fmt, sync::Arc, time::Duration};

use divan::{
    AllocProfiler, Bencher, black_box,
    counter::{BytesCount, ItemsCount},
};
use http::HeaderMap;
use tokenprobe::{
    config::Histograms,
    measurement::Measurement,
    protocol::{Ending, Protocol, Reply, ReplyHead},
};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// What a stream consists of.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// A word of content in each.
    Chat,
    /// A word of reasoning in the first half, of content in the second.
    Reasoning,
    /// The running usage beside the word.
    UsageInEveryChunk,
    /// Four kilobytes of content in each.
    LongChunks,
    /// As `Chat`, sixteen chunks in a read.
    Coalesced,
    /// As `Chat`, cut into single bytes.
    OneBytePerRead,
}

const SHAPES: [Shape; 6] = [
    Shape::Chat,
    Shape::Reasoning,
    Shape::UsageInEveryChunk,
    Shape::LongChunks,
    Shape::Coalesced,
    Shape::OneBytePerRead,
];

/// The size of an answer.
const CHUNKS: usize = 1000;

#[divan::bench(args = SHAPES, sample_count = 50)]
fn decode(bencher: Bencher<'_, '_>, shape: Shape) {
    let reads = shape.reads();
    let bytes: usize = reads.iter().map(Vec::len).sum();
    let bounds: Arc<[f64]> = Histograms::default().time_per_output_token_seconds.into();
    bencher
        .counter(BytesCount::new(bytes))
        .counter(ItemsCount::new(CHUNKS))
        .bench_local(|| answer(black_box(&reads), &bounds));
}

fn answer(reads: &[Vec<u8>], bounds: &Arc<[f64]>) -> Measurement {
    let headers = HeaderMap::new();
    let head = ReplyHead {
        protocol: Protocol::OpenAiChat,
        host: "localhost",
        status: 200,
        headers: &headers,
        include_usage: true,
        keep_text: false,
        gap_bounds: bounds.clone(),
    };
    let mut at = Duration::from_millis(50);
    let mut reply = Reply::new(&head, at);
    for read in reads {
        at += Duration::from_millis(10);
        reply.read(at, read);
    }
    reply.end(at, Ending::Clean)
}

impl Shape {
    fn reads(self) -> Vec<Vec<u8>> {
        let chunks: Vec<String> = (0..CHUNKS).map(|index| self.chunk(index)).collect();
        let end = r#"{"id":"chatcmpl-0","object":"chat.completion.chunk","created":1,"model":"org/model","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1000,"total_tokens":1009}}"#;
        let end = format!("data: {end}\n\ndata: [DONE]\n\n");
        let mut events: Vec<Vec<u8>> =
            chunks.iter().map(|chunk| format!("data: {chunk}\n\n").into_bytes()).collect();
        events.push(end.into_bytes());
        match self {
            Self::Chat | Self::Reasoning | Self::UsageInEveryChunk | Self::LongChunks => events,
            Self::Coalesced => events.chunks(16).map(<[Vec<u8>]>::concat).collect(),
            Self::OneBytePerRead => events.concat().chunks(1).map(<[u8]>::to_vec).collect(),
        }
    }

    fn chunk(self, index: usize) -> String {
        const WORDS: [&str; 8] = [" the", " wind", " blew", " over", " a", " quiet", " harbour", ","];
        let word = WORDS.iter().cycle().nth(index % WORDS.len()).copied().unwrap_or_default();
        let finish = if index + 1 == CHUNKS { r#""stop""# } else { "null" };
        let (delta, usage) = match self {
            Self::Reasoning if index < CHUNKS / 2 => {
                (format!(r#"{{"reasoning_content":"{word}"}}"#), String::new())
            }
            Self::LongChunks => {
                (format!(r#"{{"content":"{}"}}"#, word.repeat(4096 / word.len())), String::new())
            }
            Self::UsageInEveryChunk => {
                let usage = format!(
                    r#","usage":{{"prompt_tokens":9,"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":0}}}}"#,
                    index + 1,
                    index + 10
                );
                (format!(r#"{{"content":"{word}"}}"#), usage)
            }
            Self::Reasoning | Self::Chat | Self::Coalesced | Self::OneBytePerRead => {
                (format!(r#"{{"content":"{word}"}}"#), String::new())
            }
        };
        format!(
            r#"{{"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1,"model":"org/model","choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}]{usage}}}"#
        )
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chat => "chat",
            Self::Reasoning => "reasoning",
            Self::UsageInEveryChunk => "usage in every chunk",
            Self::LongChunks => "4 KiB chunks",
            Self::Coalesced => "16 chunks per read",
            Self::OneBytePerRead => "one byte per read",
        })
    }
}
