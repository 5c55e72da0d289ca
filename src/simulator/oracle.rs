//! What the server really did, for tests to compare with what a client says it saw.
//!
//! Off unless asked for: a demo that runs for weeks keeps no requests. Times are taken where bytes meet the socket
//! (`socket`), not where they were meant to.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use http::HeaderMap;
use tokio::time::Instant;

/// A bounded record of the latest requests. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Oracle {
    requests_max: usize,
    requests: Arc<Mutex<VecDeque<Record>>>,
}

/// One request, as the server lived it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The path as asked for.
    pub path: String,
    /// Header fields as received; the authorization is there, but marked so that it is not printed.
    pub headers: HeaderMap,
    /// The body as received.
    pub body: Bytes,
    /// The model asked for, suffixes included; empty if none could be read.
    pub model: String,
    /// When the body's last byte had been read.
    pub received: Instant,
    /// The status answered; 0 while undecided and for a reset connection.
    pub status: u16,
    /// Just before the write that carried the first token.
    pub first_token_written: Option<Instant>,
    /// Just before the write that carried the last token so far.
    pub last_token_written: Option<Instant>,
    /// Tokens written so far, reasoning included.
    pub tokens_sent: u32,
    /// Writes that carried tokens so far.
    pub token_writes: u32,
    /// Tokens of the prompt, by the server's own count.
    pub prompt_tokens: u32,
    /// Those of them that the prefix cache held.
    pub cached_tokens: u32,
    /// Whether the answer came to its proper end.
    pub completed: bool,
}

impl Oracle {
    /// An oracle that keeps the latest `requests_max` requests.
    #[must_use]
    pub fn recording(requests_max: usize) -> Self {
        Self { requests_max, requests: Arc::default() }
    }

    /// All requests kept, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<Seen> {
        lock(&self.requests).iter().map(|record| lock(&record.0).seen.clone()).collect()
    }

    /// Forgets all requests.
    pub fn clear(&self) {
        lock(&self.requests).clear();
    }

    /// Opens the record of a request that has just been received.
    pub(super) fn open(&self, path: &str, headers: &HeaderMap, body: &Bytes) -> Record {
        let keeps = self.requests_max > 0;
        let mut headers = if keeps { headers.clone() } else { HeaderMap::new() };
        if let Some(authorization) = headers.get_mut(http::header::AUTHORIZATION) {
            authorization.set_sensitive(true);
        }
        let seen = Seen {
            path: path.to_owned(),
            headers,
            body: if keeps { body.clone() } else { Bytes::new() },
            model: String::new(),
            received: Instant::now(),
            status: 0,
            first_token_written: None,
            last_token_written: None,
            tokens_sent: 0,
            token_writes: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
            completed: false,
        };
        let record = Record(Arc::new(Mutex::new(Entry { seen, tokens_to_write: 0 })));
        if keeps {
            let mut requests = lock(&self.requests);
            if requests.len() >= self.requests_max {
                requests.pop_front();
            }
            requests.push_back(record.clone());
        }
        record
    }
}

/// The record of one request, written by those who serve it.
#[derive(Debug, Clone)]
pub(super) struct Record(Arc<Mutex<Entry>>);

#[derive(Debug)]
struct Entry {
    seen: Seen,
    tokens_to_write: u32,
}

impl Record {
    pub(super) fn update(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut lock(&self.0).seen);
    }

    pub(super) fn received(&self) -> Instant {
        lock(&self.0).seen.received
    }

    /// `tokens` more have been handed to the HTTP layer.
    pub(super) fn hand_over(&self, tokens: u32) {
        lock(&self.0).tokens_to_write += tokens;
    }

    /// A write begins: whatever was handed over goes out with it.
    pub(super) fn stamp_write(&self) {
        let mut entry = lock(&self.0);
        let tokens = std::mem::take(&mut entry.tokens_to_write);
        if tokens == 0 {
            return;
        }
        let now = Instant::now();
        entry.seen.first_token_written.get_or_insert(now);
        entry.seen.last_token_written = Some(now);
        entry.seen.tokens_sent += tokens;
        entry.seen.token_writes += 1;
    }
}

/// A record is plain data: half a change by a panicking thread cannot break it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
