//! Learns how a model counts prompts before its first ladder: two short requests, remembered with the target.
//!
//! A calibration that fails is no failure of the sweep: the prompts keep their estimated lengths, and whatever is
//! wrong with the endpoint shows in the level's own requests.

use std::{sync::Arc, time::Duration};

use super::{
    Errand, Event, Role, Run,
    caught::caught,
    gate::Gate,
    noted,
    shot::{CalibrationKey, Prepared, Shots},
};
use crate::{
    cell::Cell,
    measurement::Measurement,
    probe::{Again, Lane, Shot},
    prompt::calibration::{Calibration, REQUESTS_MAX, Reading, lengths},
};

/// Calibrates the cell's model at the target unless that was done, or cannot be done.
pub(super) async fn calibrate(run: &Run, (prepared, gate): (&Prepared, &Gate), cell: &Arc<Cell>) {
    let settings = &run.sweep.level;
    let key = CalibrationKey::new(&cell.model, settings);
    if !settings.calibrate || !settings.prompts.have_wanted_length() || prepared.needs_no_calibration(&key) {
        return;
    }
    let mut caller = Caller {
        run,
        gate,
        cell,
        lane: Lane::new(prepared.endpoint.clone(), settings.connection),
        shots: Shots::new(cell, settings, prepared, run.gap_bounds.clone()),
        left: REQUESTS_MAX,
        cold_after: prepared.endpoint.target().cold_after,
        role: Role::Calibration,
    };
    let mut readings = Vec::new();
    for length in lengths(cell.prompt_tokens, settings.prompt_language) {
        match caller.read(length).await {
            Answer::Counted(reading) => readings.push(reading),
            Answer::Uncounted => {
                tracing::info!(target = %cell.target, model = %cell.model,
                    "does not count prompt tokens: prompts have about the wanted length");
                prepared.cannot_calibrate(key);
                return;
            }
            Answer::Failed => return,
        }
    }
    let line = match readings.as_slice() {
        [short, long] => Calibration::through(*short, *long),
        _ => None,
    };
    let Some(calibration) = line else {
        tracing::warn!(target = %cell.target, model = %cell.model, ?readings,
            "counts prompt tokens in a way that has nothing to do with their length: it is not followed");
        prepared.cannot_calibrate(key);
        return;
    };
    tracing::debug!(target = %cell.target, model = %cell.model, ?calibration, "calibrated");
    prepared.calibrated(key, calibration);
}

enum Answer {
    Counted(Reading),
    /// It answered and did not count.
    Uncounted,
    /// It did not answer, or the requests are used up.
    Failed,
}

struct Caller<'a> {
    run: &'a Run,
    gate: &'a Gate,
    cell: &'a Arc<Cell>,
    lane: Lane,
    shots: Shots,
    left: u32,
    cold_after: Duration,
    /// What the latest probe was sent for.
    role: Role,
}

impl Caller<'_> {
    /// What the server makes of a prompt of this estimated length.
    async fn read(&mut self, length: u32) -> Answer {
        while let Some(left) = self.left.checked_sub(1).filter(|_| !self.run.halt.is_stopping()) {
            self.left = left;
            let Some((estimated, measurement)) = self.probe(length).await else { break };
            let counted = measurement.tokens.prompt.filter(|counted| *counted > 0);
            let answered = measurement.timeline.first_event.is_some() && measurement.is_ok();
            // A server that refuses to be asked for its counts is asked once more, without.
            let again = self.shots.learn(&measurement);
            let held_off = self.gate.hold_off(&measurement);
            self.tell(measurement).await;
            match counted {
                Some(counted) => return Answer::Counted(Reading { estimated, counted: counted as f64 }),
                None if answered => return Answer::Uncounted,
                None if again && !held_off => {}
                None => break,
            }
        }
        Answer::Failed
    }

    /// `None` when it was cancelled, or may not be paid for.
    async fn probe(&mut self, length: u32) -> Option<(f64, Measurement)> {
        let mut halt = self.run.halt.clone();
        let toll = self.shots.toll();
        let loaded = self.shots.calibrating(length);
        let estimated = loaded.estimated();
        let worst_case = toll.worst_case(loaded.prompt_tokens(), &self.run.governor);
        let mut reservation = self.run.governor.reserve(&toll.order, worst_case).ok()?;
        noted(&self.run.events).await;
        let cold = self.gate.asks_cold(&self.cell.model, self.cold_after);
        let role = if cold { Role::Cold } else { Role::Calibration };
        let entry = self.run.register.enter(Errand::of(self.cell, role));
        let again =
            || self.run.governor.reserve(&toll.order, worst_case).map(|mut further| further.sent()).is_ok();
        let shot = Shot { again: Some(Again(&again)), ..loaded.as_shot() };
        reservation.sent();
        let measurement = tokio::select! {
            measurement = caught(self.lane.probe(&shot)) => measurement,
            () = halt.cancelled() => return None,
        };
        entry.ended(&measurement);
        let used = toll.used(reservation.held(), &measurement, &self.run.governor);
        reservation.settle(used);
        self.role = role;
        Some((estimated, measurement))
    }

    async fn tell(&mut self, measurement: Measurement) {
        let event = Event::Probed {
            cell: self.cell.clone(),
            role: self.role,
            measurement: Box::new(measurement),
            trace_id: self.shots.trace_id(),
        };
        self.run.send(event).await;
    }
}
