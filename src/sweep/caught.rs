//! A panic in a probe is a failed measurement, not the end of its level.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Poll,
    time::Duration,
};

use crate::{measurement::Measurement, protocol::TransportFailure};

/// The measurement, or one that says that the prober itself broke.
pub(super) fn caught(probe: impl Future<Output = Measurement>) -> impl Future<Output = Measurement> {
    // A probe's state is many times a worker's: it takes memory only while there is a probe.
    let mut probe = Box::pin(probe);
    std::future::poll_fn(move |cx| {
        match catch_unwind(AssertUnwindSafe(|| probe.as_mut().poll(cx))) {
            Ok(poll) => poll,
            // The payload is not shown: it may quote what was being handled. The panic hook has logged the place.
            Err(_) => Poll::Ready(
                TransportFailure::Internal("the prober panicked; its log says where".into())
                    .into_measurement(Duration::ZERO),
            ),
        }
    })
}
