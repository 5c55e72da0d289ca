//! The reference server: streams on an exact schedule and says afterwards what it really sent.
//!
//! One thread, one epoll, nothing between two writes but a look at the sockets, so that a burst of due tokens cannot
//! delay the stamp of a request that just came. Token `k` of an answer is due `ttft + k * gap` after its request was
//! read, whatever became of the tokens before it. Knows nothing of who asks.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::AsFd,
};

use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, CreateFlags, Event, EventData, EventFlags},
    fd::OwnedFd,
    time::{ClockId, Timespec, clock_gettime},
};

use crate::record::{self, Truth};

/// What every answer looks like.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Script {
    /// Request read to first token, in microseconds
    #[arg(long, default_value_t = 50_000)]
    pub(crate) ttft: u64,
    /// Token to token, in microseconds
    #[arg(long, default_value_t = 10_000)]
    pub(crate) gap: u64,
    /// Tokens of an answer, one chunk each
    #[arg(long, default_value_t = 64)]
    pub(crate) tokens: u32,
    /// Send a chunk that holds only the role along with the headers
    #[arg(long)]
    pub(crate) role_first: bool,
}

/// Serves until standard input is closed; the port and then the truth go to standard output.
pub(crate) fn serve(script: Script) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", listener.local_addr()?.port())?;
    out.flush()?;
    let mut server = Server::new(listener, script)?;
    server.run()?;
    for truth in &server.truths {
        writeln!(out, "{truth}")?;
    }
    writeln!(out, "{}", record::Usage::of_this_process())?;
    out.flush()
}

const LISTENER: u64 = u64::MAX;
const STDIN: u64 = u64::MAX - 1;
/// Due writes between two looks at the sockets.
const WRITES_PER_TURN: usize = 4;
/// Longest request read.
const REQUEST_BYTES_MAX: usize = 1 << 20;

struct Server {
    script: Script,
    epoll: OwnedFd,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    due: BinaryHeap<Reverse<Due>>,
    serial: u64,
    wire: Wire,
    scratch: Vec<u8>,
    truths: Vec<Truth>,
}

/// When the next token of an answer has to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: u64,
    serial: u64,
    slot: usize,
}

struct Connection {
    stream: TcpStream,
    inbox: Vec<u8>,
    answer: Option<(u64, Truth)>,
}

impl Server {
    fn new(listener: TcpListener, script: Script) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        watch(&epoll, &listener, LISTENER)?;
        watch(&epoll, io::stdin(), STDIN)?;
        Ok(Self {
            epoll,
            listener,
            wire: Wire::new(&script),
            script,
            connections: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            serial: 0,
            scratch: vec![0; 64 << 10],
            truths: Vec::new(),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(64);
        loop {
            let wait = self.due.peek().map(|Reverse(due)| due.at.saturating_sub(nanos())).map(timespec);
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    STDIN => {
                        for connection in self.connections.iter_mut().flatten() {
                            self.truths.extend(connection.answer.take().map(|(_, truth)| truth));
                        }
                        return Ok(());
                    }
                    LISTENER => self.accept()?,
                    slot => self.read(usize::try_from(slot).unwrap_or(usize::MAX)),
                }
            }
            for _ in 0..WRITES_PER_TURN {
                match self.due.peek() {
                    Some(Reverse(due)) if due.at <= nanos() => self.write_due(),
                    _ => break,
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            watch(&self.epoll, &stream, slot as u64)?;
            if let Some(place) = self.connections.get_mut(slot) {
                *place = Some(Connection { stream, inbox: Vec::new(), answer: None });
            }
        }
        Ok(())
    }

    fn read(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else { return };
        let read = connection.stream.read(&mut self.scratch);
        let at = nanos();
        match read {
            Ok(len) if len > 0 && connection.inbox.len() < REQUEST_BYTES_MAX => {
                connection.inbox.extend_from_slice(self.scratch.get(..len).unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            _ => return self.drop_connection(slot),
        }
        let Some(trace) = whole_request(&connection.inbox) else { return };
        connection.inbox.clear();
        let head = connection.stream.write(&self.wire.head);
        if head.is_err() {
            return self.drop_connection(slot);
        }
        self.serial += 1;
        connection.answer = Some((self.serial, Truth { trace, received: at, ..Truth::default() }));
        self.due.push(Reverse(Due { at: at + self.script.ttft * 1000, serial: self.serial, slot }));
    }

    fn write_due(&mut self) {
        let Some(Reverse(due)) = self.due.pop() else { return };
        let Some(connection) = self.connections.get_mut(due.slot).and_then(Option::as_mut) else { return };
        let Some((serial, truth)) = connection.answer.as_mut() else { return };
        if *serial != due.serial {
            return;
        }
        // Stamped before the write: the client may have the bytes before the call returns.
        let at = nanos();
        let chunk = self.wire.token(truth.tokens);
        if !matches!(connection.stream.write(chunk), Ok(len) if len == chunk.len()) {
            return self.drop_connection(due.slot);
        }
        if truth.tokens == 0 {
            truth.first = at;
        }
        truth.last = at;
        truth.tokens += 1;
        if truth.tokens < self.script.tokens {
            self.due.push(Reverse(Due { at: due.at + self.script.gap * 1000, ..due }));
            return;
        }
        truth.complete = true;
        self.truths.extend(connection.answer.take().map(|(_, truth)| truth));
        if connection.stream.write(&self.wire.tail).is_err() {
            self.drop_connection(due.slot);
        }
    }

    fn drop_connection(&mut self, slot: usize) {
        let gone = self.connections.get_mut(slot).and_then(Option::take);
        if let Some(connection) = gone {
            self.truths.extend(connection.answer.map(|(_, truth)| truth));
            self.free.push(slot);
        }
    }
}

/// Everything that is ever sent, made beforehand.
struct Wire {
    head: Vec<u8>,
    tokens: Vec<Vec<u8>>,
    tail: Vec<u8>,
}

impl Wire {
    fn new(script: &Script) -> Self {
        const WORDS: [&str; 8] = [" the", " wind", " blew", " over", " a", " quiet", " harbour", ","];
        let mut head =
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                .to_vec();
        if script.role_first {
            head.extend(event(&delta(r#"{"role":"assistant","content":""}"#, "null")));
        }
        let tokens = WORDS.iter().map(|word| event(&delta(&format!(r#"{{"content":"{word}"}}"#), "null")));
        let total = 100 + script.tokens;
        let usage = format!(
            r#"{{"id":"chatcmpl-0","object":"chat.completion.chunk","created":1,"model":"bench","choices":[],"usage":{{"prompt_tokens":100,"completion_tokens":{},"total_tokens":{total}}}}}"#,
            script.tokens,
        );
        let ends = [event(&delta("{}", r#""stop""#)), event(&usage), event("[DONE]"), b"0\r\n\r\n".to_vec()];
        Self { head, tokens: tokens.collect(), tail: ends.concat() }
    }

    fn token(&self, number: u32) -> &[u8] {
        let index = number as usize % self.tokens.len();
        self.tokens.get(index).map(Vec::as_slice).unwrap_or_default()
    }
}

fn delta(delta: &str, finish: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}]}}"#
    )
}

fn event(data: &str) -> Vec<u8> {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}

/// The trace id of a request that is there to its last byte.
fn whole_request(inbox: &[u8]) -> Option<u128> {
    let end = inbox.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(inbox.get(..end)?).to_ascii_lowercase();
    let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let length: usize = value("content-length:")?.parse().ok()?;
    let trace = value("traceparent:").and_then(|value| value.split('-').nth(1)).unwrap_or("0");
    (inbox.len() >= end + length).then(|| u128::from_str_radix(trace, 16).unwrap_or_default())
}

fn watch(epoll: &OwnedFd, source: impl AsFd, data: u64) -> io::Result<()> {
    Ok(epoll::add(epoll, source, EventData::new_u64(data), EventFlags::IN)?)
}

/// `CLOCK_MONOTONIC`.
fn nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or_default()
}

fn timespec(nanos: u64) -> Timespec {
    const SECOND: u64 = 1_000_000_000;
    Timespec {
        tv_sec: i64::try_from(nanos / SECOND).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanos % SECOND).unwrap_or_default(),
    }
}
