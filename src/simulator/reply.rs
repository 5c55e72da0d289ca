//! One streamed answer: tokens of the engine in, bytes for the socket out, and every fault that lies between.
//!
//! Knows nothing of the request, nor when tokens are due: it writes each as soon as it comes.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::watch;

use super::{
    clockwork::{Ticket, Token},
    engine::Finish,
    fault::{Fault, Faults},
    oracle::Record,
    wire::{self, COMMENT, DONE, Piece, Usage, Writer},
};

/// One answer under way.
pub(super) struct Reply {
    pub(super) ticket: Ticket,
    pub(super) writer: Writer,
    pub(super) faults: Faults,
    pub(super) record: Record,
    pub(super) prompt_tokens: u32,
    /// Tokens that come before a fault that cuts the answer short.
    pub(super) tokens_before_cut: u32,
    /// Whether the stream ends with its usage.
    pub(super) include_usage: bool,
    pub(super) keepalive: Duration,
    /// Turns true when the server stops.
    pub(super) closing: watch::Receiver<bool>,
}

/// A finished answer, for those who do not stream.
pub(super) struct Whole {
    pub(super) pieces: Vec<Piece>,
    pub(super) finish: Finish,
    pub(super) usage: Usage,
}

impl Reply {
    /// The answer as a body that writes each token by itself.
    pub(super) fn into_body(self) -> axum::body::Body {
        let stream = Stream {
            reply: self,
            phase: Phase::Start,
            usage: Usage::default(),
            held: String::new(),
            piece: None,
        };
        axum::body::Body::new(Frames { next: Some(Box::pin(stream.next())) })
    }

    /// Waits for the whole answer; `None` if it is cut short.
    pub(super) async fn whole(mut self) -> Option<Whole> {
        let mut pieces = Vec::new();
        let mut usage = Usage { prompt_tokens: self.prompt_tokens, ..Usage::default() };
        loop {
            if usage.completion_tokens == self.tokens_before_cut {
                if self.faults.has(Fault::Stall) {
                    self.closed().await;
                }
                if self.faults.has(Fault::Truncate) || self.faults.has(Fault::ErrorInStream) {
                    return None;
                }
            }
            let token = self.token().await?;
            usage.add(token);
            pieces.push(Piece::of(token.index, token.reasoning));
            if let Some(finish) = token.finish {
                self.record.hand_over(usage.completion_tokens);
                self.record.update(|seen| {
                    seen.cached_tokens = token.cached_tokens;
                    seen.completed = true;
                });
                return Some(Whole { pieces, finish, usage });
            }
        }
    }

    async fn token(&mut self) -> Option<Token> {
        tokio::select! {
            token = self.ticket.next() => token,
            () = closed(&mut self.closing) => None,
        }
    }

    async fn closed(&mut self) {
        closed(&mut self.closing).await;
    }
}

/// Completes when the server stops.
pub(super) async fn closed(closing: &mut watch::Receiver<bool>) {
    // The sender going away means the same as its saying so.
    let _ = closing.wait_for(|closing| *closing).await;
}

impl Usage {
    fn add(&mut self, token: Token) {
        self.completion_tokens += 1;
        self.reasoning_tokens += u32::from(token.reasoning);
        self.cached_tokens = token.cached_tokens;
    }
}

struct Stream {
    reply: Reply,
    phase: Phase,
    usage: Usage,
    /// Events not yet handed over.
    held: String,
    /// Text not yet in an event.
    piece: Option<Piece>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Start,
    Tokens,
    Over,
}

/// The next bytes, or the error that breaks the connection off; and what is to follow.
type Next = (io::Result<Bytes>, Stream);

impl Stream {
    async fn next(self) -> Option<Next> {
        match self.phase {
            Phase::Start => Some(self.start().await),
            Phase::Tokens => Some(self.tokens().await),
            Phase::Over => None,
        }
    }

    async fn start(mut self) -> Next {
        self.phase = Phase::Tokens;
        self.usage.prompt_tokens = self.reply.prompt_tokens;
        self.reply.writer.role(&mut self.held);
        if self.reply.faults.has(Fault::Empty) {
            return self.end(Finish::Stop);
        }
        if self.reply.faults.has(Fault::RoleFirst) && !self.held.is_empty() {
            return self.hand_over(0);
        }
        self.tokens().await
    }

    async fn tokens(mut self) -> Next {
        let mut tokens = 0;
        loop {
            if self.usage.completion_tokens == self.reply.tokens_before_cut && self.is_cut_short() {
                return self.cut_short(tokens).await;
            }
            let Some(token) = self.token_or_comment().await else {
                return self.broken("the simulator stopped");
            };
            let Ok(token) = token else { return self.comment() };
            self.usage.add(token);
            self.reply.record.update(|seen| seen.cached_tokens = token.cached_tokens);
            tokens += 1;
            self.write(token);
            if token.finish.is_some() {
                self.reply.record.hand_over(tokens);
                return self.end_after();
            }
            let holds = self.reply.faults.has(Fault::Burst) || self.piece.is_some();
            if !holds {
                return self.hand_over(tokens);
            }
        }
    }

    /// `Some(Err(()))` when a comment is due first, `None` when no token will come.
    async fn token_or_comment(&mut self) -> Option<Result<Token, ()>> {
        let waits_with_comments =
            self.reply.faults.has(Fault::Keepalive) && self.usage.completion_tokens == 0;
        if !waits_with_comments {
            return self.reply.token().await.map(Ok);
        }
        match tokio::time::timeout(self.reply.keepalive, self.reply.token()).await {
            Ok(token) => token.map(Ok),
            Err(_) => Some(Err(())),
        }
    }

    fn write(&mut self, token: Token) {
        const TOKENS_PER_CHUNK: u32 = 4;
        let Piece { reasoning, text } = Piece::of(token.index, token.reasoning);
        if !self.reply.faults.has(Fault::FourPerChunk) {
            self.reply.writer.piece(&mut self.held, &Piece { reasoning, text }, token.finish);
            return;
        }
        // A chunk holds one kind of text, so a change of kind ends it early.
        if let Some(piece) = self.piece.take_if(|piece| piece.reasoning != reasoning) {
            self.reply.writer.piece(&mut self.held, &piece, None);
        }
        self.piece.get_or_insert(Piece { reasoning, text: String::new() }).text.push_str(&text);
        if (token.finish.is_some() || self.usage.completion_tokens.is_multiple_of(TOKENS_PER_CHUNK))
            && let Some(piece) = self.piece.take()
        {
            self.reply.writer.piece(&mut self.held, &piece, token.finish);
        }
    }

    fn is_cut_short(&self) -> bool {
        [Fault::Stall, Fault::Truncate, Fault::ErrorInStream]
            .into_iter()
            .any(|fault| self.reply.faults.has(fault))
    }

    async fn cut_short(mut self, tokens: u32) -> Next {
        if let Some(piece) = self.piece.take() {
            self.reply.writer.piece(&mut self.held, &piece, None);
        }
        if !self.held.is_empty() {
            // What was held back goes out first; the next call comes here again.
            return self.hand_over(tokens);
        }
        if self.reply.faults.has(Fault::Stall) {
            self.reply.closed().await;
        }
        if self.reply.faults.has(Fault::ErrorInStream) {
            let message = "EngineCore encountered an issue. See stack trace (above) for the root cause.";
            wire::push_event(&mut self.held, &wire::error(500, "InternalServerError", None, message));
            self.held.push_str(DONE);
            self.phase = Phase::Over;
            return self.hand_over(0);
        }
        // The server writes out what it was handed while it waits for more; a break would take that with it.
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.broken("cut short as asked for")
    }

    fn end(mut self, finish: Finish) -> Next {
        self.reply.writer.finish(&mut self.held, finish);
        self.end_after()
    }

    /// What follows the finish: usage and the end mark, in the same write as the last token.
    fn end_after(mut self) -> Next {
        if self.reply.include_usage && !self.reply.faults.has(Fault::NoUsage) {
            self.reply.writer.usage(&mut self.held, self.usage);
        }
        self.held.push_str(DONE);
        self.phase = Phase::Over;
        self.reply.record.update(|seen| seen.completed = true);
        self.hand_over(0)
    }

    fn comment(self) -> Next {
        (Ok(Bytes::from_static(COMMENT.as_bytes())), self)
    }

    fn broken(mut self, why: &str) -> Next {
        self.phase = Phase::Over;
        (Err(io::Error::other(why.to_owned())), self)
    }

    fn hand_over(mut self, tokens: u32) -> Next {
        self.reply.record.hand_over(tokens);
        let bytes = Bytes::from(std::mem::take(&mut self.held));
        (Ok(bytes), self)
    }
}

/// Polls one future after the other as a body's frames.
struct Frames {
    next: Option<Pin<Box<dyn Future<Output = Option<Next>> + Send>>>,
}

impl Body for Frames {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let next = ready!(next.as_mut().poll(context));
        let Some((bytes, stream)) = next else {
            self.next = None;
            return Poll::Ready(None);
        };
        self.next = Some(Box::pin(stream.next()));
        Poll::Ready(Some(bytes.map(Frame::data)))
    }
}
