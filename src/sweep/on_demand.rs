//! One probe because somebody asked for it: under the same ceilings, holds and budgets as those of a sweep.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::timeout};

use super::{Errand, Event, Fleet, Halt, Register, Role, caught::caught, noted, shot::Shots};
use crate::{
    budget::Governor,
    cell::Cell,
    config::{ConnectionPolicy, LevelSettings},
    measurement::Measurement,
    probe::Lane,
};

/// What to ask, of whom, and by when.
#[derive(Debug, Clone)]
pub struct Demand {
    /// Target, model and prompt length; the sweep has no name.
    pub cell: Arc<Cell>,
    /// How the probe is sent.
    pub settings: LevelSettings,
    /// The answer is of no use after this, counted from now.
    pub within: Duration,
    /// Bucket bounds of the gap sketch.
    pub gap_bounds: Arc<[f64]>,
}

/// What the probe may use, and must heed.
#[derive(Debug, Clone)]
pub struct Means {
    /// The targets.
    pub fleet: Fleet,
    /// Where it is entered.
    pub register: Register,
    /// What may be spent.
    pub governor: Governor,
    /// Who takes note of what is spent.
    pub events: mpsc::Sender<Event>,
    /// When to stop.
    pub halt: Halt,
}

/// Sends one probe over a connection of its own.
///
/// # Errors
/// Nothing was sent, and why.
pub async fn on_demand(demand: Demand, mut means: Means) -> Result<Measurement, String> {
    let Demand { cell, settings, within, gap_bounds } = demand;
    let Some((prepared, gate)) = means.fleet.members.get(&cell.target).cloned() else {
        return Err("the target was removed meanwhile".into());
    };
    if let Some(left) = gate.held_off() {
        return Err(format!(
            "the target asked to be left alone for {} more seconds",
            left.as_secs_f64().ceil()
        ));
    }
    let passing = timeout(within, gate.pass(&means.fleet.ceiling, 1, &mut means.halt)).await;
    let Ok(Some(_pass)) = passing else {
        return Err("as many requests as are allowed were in flight all the time".into());
    };
    gate.asks_cold(&cell.model, settings.timeouts.total);
    let mut shots = Shots::new(&cell, &settings, &prepared, gap_bounds);
    let toll = shots.toll();
    let loaded = shots.next();
    let worst_case = toll.worst_case(loaded.prompt_tokens(), &means.governor);
    let reserved = means.governor.reserve(&toll.order, worst_case);
    let mut reservation = reserved.map_err(|exhausted| exhausted.to_string())?;
    noted(&means.events).await;
    let mut lane = Lane::new(prepared.endpoint.clone(), ConnectionPolicy::New);
    let entry = means.register.enter(Errand::of(&cell, Role::OnDemand));
    let shot = loaded.as_shot();
    reservation.sent();
    let measurement = tokio::select! {
        measurement = caught(lane.probe(&shot)) => measurement,
        () = means.halt.cancelled() => return Err("tokenprobe stops probing".into()),
    };
    entry.ended(&measurement);
    let used = toll.used(reservation.held(), &measurement, &means.governor);
    reservation.settle(used);
    gate.hold_off(&measurement);
    Ok(measurement)
}
