//! Open loops against a queue whose waiting is known in closed form, on a paused clock: exact.

use std::sync::{Arc, Mutex};

use super::*;
use crate::{
    arrivals::{Arrivals, Rate, Schedule},
    sweep::{Stop, brake},
};

/// One server with a line: answers one request at a time, in the order of arrival, and may have stalled.
#[derive(Clone)]
struct Queue {
    service: Duration,
    /// Nothing is answered between these.
    stalled: Option<(Instant, Instant)>,
    line: Arc<tokio::sync::Mutex<()>>,
    /// Latency of every request since it was due.
    seen: Arc<Mutex<Vec<(Instant, Duration)>>>,
}

impl Queue {
    fn new(service: Duration) -> Self {
        Self { service, stalled: None, line: Arc::default(), seen: Arc::default() }
    }

    async fn answer(&self, due: Instant) {
        {
            let _turn = self.line.lock().await;
            if let Some((_, until)) =
                self.stalled.filter(|(from, until)| (*from..*until).contains(&Instant::now()))
            {
                sleep_until(until).await;
            }
            tokio::time::sleep(self.service).await;
        }
        self.seen.lock().unwrap().push((due, due.elapsed()));
    }

    /// Latencies by the time requests were due.
    fn latencies(&self) -> Vec<Duration> {
        let mut seen = self.seen.lock().unwrap().clone();
        seen.sort();
        seen.into_iter().map(|(_, latency)| latency).collect()
    }
}

impl Serve for Queue {
    async fn serve(self, _: Role, due: Instant) -> Self {
        sleep_until(due).await;
        self.answer(due).await;
        self
    }
}

/// Offers `requests` at constant gaps; how many were turned away.
async fn offer(queue: &Queue, rate: &str, requests: usize, in_flight_max: u32) -> usize {
    let (_brake, halt) = brake();
    let (_over, over) = watch::channel(false);
    let mut crew = Crew::new(|| queue.clone(), in_flight_max, halt, over);
    let rate: Rate = rate.parse().unwrap();
    let due = Schedule::new(rate, Arrivals::Constant, 0).take(requests);
    let mut refused = 0;
    let plan = due.map(|due| (due, Role::Measured));
    crew.serve_all(Instant::now() + LEAD, plan, |_, _, sent| refused += usize::from(!sent)).await;
    crew.come_home().await;
    refused
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::test(start_paused = true)]
async fn below_saturation_nobody_waits() {
    let queue = Queue::new(ms(200));
    assert_eq!(offer(&queue, "4/s", 50, 100).await, 0);
    assert_eq!(queue.latencies(), vec![ms(200); 50]);
}

/// D/D/1: the k-th request waits k (1/m - 1/r).
#[tokio::test(start_paused = true)]
async fn above_saturation_each_waits_longer_by_what_the_server_is_too_slow() {
    let queue = Queue::new(ms(250));
    assert_eq!(offer(&queue, "5/s", 50, 100).await, 0);
    let expected: Vec<Duration> = (0..50).map(|k| ms(250 + k * 50)).collect();
    assert_eq!(queue.latencies(), expected);
}

/// What coordinated omission hides: a closed loop asks once while the server stalls, and reports one long time. Users
/// go on coming.
#[tokio::test(start_paused = true)]
async fn a_stall_is_charged_for_everyone_who_came_meanwhile() {
    let begin = Instant::now() + LEAD;
    let stall = Some((begin + ms(1000), begin + ms(3000)));
    let slow = |latencies: &[Duration]| latencies.iter().filter(|latency| **latency > ms(100)).count();

    let open = Queue { stalled: stall, ..Queue::new(ms(10)) };
    offer(&open, "10/s", 100, 1000).await;
    let latencies = open.latencies();
    // The one due at 1.0 s waits 2 s, the next 1.9 s and those before it, and so on, until the line is empty again.
    let waiting: Vec<Duration> = (0..23).map(|k| ms(2000 + (k + 1) * 10 - k * 100)).collect();
    assert_eq!(latencies[10..33], waiting);
    assert_eq!(latencies[33..], vec![ms(10); 67]);
    assert_eq!(slow(&latencies), 22);

    let closed = Queue { stalled: Some((begin + ms(12_000), begin + ms(14_000))), ..Queue::new(ms(10)) };
    while closed.latencies().len() < 300 {
        closed.answer(Instant::now()).await;
    }
    assert_eq!(slow(&closed.latencies()), 1);
}

#[tokio::test(start_paused = true)]
async fn no_more_are_in_flight_than_may_be_and_the_rest_is_told_of() {
    let queue = Queue::new(ms(1000));
    // Ten a second, each one second: three are served, the line is full until one leaves.
    let refused = offer(&queue, "10/s", 40, 3).await;
    assert_eq!(refused + queue.latencies().len(), 40);
    let longest = queue.latencies().into_iter().max().unwrap();
    assert!(longest <= ms(3000), "{longest:?}");
    // One leaves a second, over the four seconds of arrivals.
    assert_eq!(queue.latencies().len(), 3 + 3);
}

#[tokio::test(start_paused = true)]
async fn who_is_told_to_stop_starts_nobody_and_waits_for_those_under_way() {
    let queue = Queue::new(ms(1000));
    let (brake, halt) = brake();
    let (_over, over) = watch::channel(false);
    let mut crew = Crew::new(|| queue.clone(), 100, halt, over);
    let plan = (0..100).map(|k| (ms(k * 100), Role::Measured));
    let stop = async {
        tokio::time::sleep(ms(450)).await;
        brake.pull(Stop::Drain);
    };
    tokio::join!(crew.serve_all(Instant::now() + LEAD, plan, |_, _, _| {}), stop);
    crew.come_home().await;
    assert_eq!(queue.latencies().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn who_is_cancelled_is_not_served() {
    let queue = Queue::new(ms(1000));
    let (brake, halt) = brake();
    brake.pull(Stop::Cancel);
    let mut crew = Crew::new(|| queue.clone(), 100, halt, watch::channel(false).1);
    crew.serve_alone(Role::WarmUp).await;
    crew.come_home().await;
    assert!(queue.latencies().is_empty());
}
