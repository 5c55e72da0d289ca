//! The body of one answer, read to its end or to a deadline, every read stamped.
//!
//! In a task of its own: a stream spends its life here, woken once per chunk, and finds all it needs close together. Were
//! this awaited by the layers above in their own task, every chunk would pass through each of them, and their state has
//! left the caches since the chunk before.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::http::Connection;
use crate::{
    measurement::Measurement,
    protocol::{Ending, Reply, Timeouts, TransportFailure},
};

/// An answer whose head has arrived.
pub(super) struct Reading {
    /// What times count from.
    pub(super) t0: Instant,
    pub(super) timeouts: Timeouts,
    pub(super) connection: Connection,
    pub(super) body: Incoming,
    pub(super) reply: Reply,
}

impl Reading {
    /// Begins to read. What comes of it: the measurement, and the connection if it carried the answer to its proper end.
    /// Ends with that future.
    pub(super) fn begin(
        mut self,
    ) -> impl Future<Output = Result<(Measurement, Option<Connection>), TransportFailure>> + Send {
        let mut task = JoinSet::new();
        task.spawn(async move {
            let (ended, ending) = self.read_body().await;
            let connection = (ending == Ending::Clean).then_some(self.connection);
            (self.reply.end(ended, ending), connection)
        });
        async move {
            match task.join_next().await {
                Some(Ok(done)) => Ok(done),
                // For whoever catches panics of a probe.
                Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Some(Err(_)) | None => Err(TransportFailure::Internal("its runtime ended".into())),
            }
        }
    }

    async fn read_body(&mut self) -> (Duration, Ending) {
        let Self { t0, timeouts, connection, body, reply } = self;
        let t0 = *t0;
        let (mut due, mut deadline) = reply.due(timeouts);
        let mut alarm_at = due;
        let mut alarm = pin!(sleep_until(t0 + alarm_at));
        // The alarm wakes this task once it was asked. To ask again after every chunk would cost as much as to decode it: only
        // a task that was woken and finds nothing to read has reason to.
        let mut asked = false;
        loop {
            let frame = {
                let mut next = pin!(connection.drive(body.frame()));
                let mut woken = false;
                poll_fn(|cx| match next.as_mut().poll(cx) {
                    Poll::Ready(frame) => Poll::Ready(Some(frame)),
                    Poll::Pending if std::mem::replace(&mut woken, true) || !asked => {
                        asked = true;
                        alarm.as_mut().poll(cx).map(|()| None)
                    }
                    Poll::Pending => Poll::Pending,
                })
                .await
            };
            let Some(frame) = frame else {
                // The alarm is moved forward lazily: it may have been set for a deadline long met.
                if t0.elapsed() >= due {
                    return (due, Ending::Deadline(deadline));
                }
                alarm_at = due;
                alarm.as_mut().reset(t0 + alarm_at);
                asked = false;
                continue;
            };
            // The stamp comes first: it was taken when the read returned, before anything was parsed.
            let at = connection.last_read().saturating_duration_since(t0);
            if at >= due {
                return (due, Ending::Deadline(deadline));
            }
            match frame {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        reply.read(at, data);
                    }
                }
                Some(Err(_)) => return (at, Ending::Aborted),
                None => return (at, Ending::Clean),
            }
            if reply.is_finished() {
                return (at, Ending::TooLarge);
            }
            (due, deadline) = reply.due(timeouts);
            if due < alarm_at {
                alarm_at = due;
                alarm.as_mut().reset(t0 + alarm_at);
                asked = false;
            }
            // It may have rung along with this chunk, and does so but once.
            asked &= at < alarm_at;
        }
    }
}
