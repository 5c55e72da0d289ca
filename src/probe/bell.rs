//! One waker for everything on a connection, so that a connection that wakes itself does not wake its task.
//!
//! Inside one lane, hyper's connection hands each frame to hyper's body through a channel, and the channel wakes
//! whoever waits for the body: the very task that is polling both. Left alone, every chunk would schedule its task
//! once more for nothing. A wake-up that comes while the lane polls is answered by polling again at once; any other
//! goes on to the task. Knows nothing of HTTP.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use atomic_waker::AtomicWaker;

/// Polls in one go at most. A future that is never quiet (tokio makes one yield whose budget is spent) gets its
/// turn again through the scheduler.
const ROUNDS_MAX: usize = 4;

/// The listening end: one per connection.
#[derive(Debug)]
pub(super) struct Bell {
    wire: Arc<Wire>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Wire {
    /// Someone polls and will see `rung` before leaving.
    listening: AtomicBool,
    rung: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Wire {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Either the listener sees the ring after it stopped listening, or this sees that it stopped: the order of
        // these two against the two at the end of `answer` must be the same for all.
        self.rung.store(true, Ordering::SeqCst);
        if !self.listening.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

impl Bell {
    pub(super) fn new() -> Self {
        let wire = Arc::<Wire>::default();
        Self { waker: Waker::from(wire.clone()), wire }
    }

    /// Polls until the output is there or the bell keeps quiet; then whoever rings it wakes the task of `cx`.
    pub(super) fn answer<T>(
        &self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.wire.task.register(cx.waker());
        self.wire.listening.store(true, Ordering::SeqCst);
        let mut output = Poll::Pending;
        for _ in 0..ROUNDS_MAX {
            self.wire.rung.store(false, Ordering::SeqCst);
            output = poll(&mut Context::from_waker(&self.waker));
            if output.is_ready() || !self.wire.rung.load(Ordering::SeqCst) {
                break;
            }
        }
        self.wire.listening.store(false, Ordering::SeqCst);
        if output.is_pending() && self.wire.rung.load(Ordering::SeqCst) {
            cx.waker().wake_by_ref();
        }
        output
    }
}
