//! Probes that somebody asked for: one at a time for each target and model, however many ask.

use std::{collections::HashMap, sync::Arc};

use tokio::{
    sync::oneshot,
    task::{Id, JoinSet},
};

use crate::{
    cell::Cell,
    measurement::Measurement,
    server::Demanded,
    sweep::{Demand, Means, on_demand},
};

/// Most probes of this kind at a time, over all targets.
const RUNNING_MAX: usize = 64;

/// Most who wait for them: each holds a connection of the surface, which must answer scrapes meanwhile.
const WAITING_MAX: usize = 64;

/// Those that are under way, and who waits for them.
#[derive(Debug, Default)]
pub(super) struct OnDemand {
    running: JoinSet<Result<Measurement, String>>,
    waiting: HashMap<Id, (Arc<Cell>, Vec<oneshot::Sender<Demanded>>)>,
}

impl OnDemand {
    /// Joins the probe that is under way, or sends one.
    pub(super) fn ask(&mut self, demand: Demand, means: Means, reply: oneshot::Sender<Demanded>) {
        if self.waiting.values().map(|(_, waiting)| waiting.len()).sum::<usize>() >= WAITING_MAX {
            drop(reply.send(Demanded::Refused(format!("{WAITING_MAX} others wait for probes on demand"))));
            return;
        }
        let cell = demand.cell.clone();
        if let Some((_, waiting)) = self.waiting.values_mut().find(|(each, _)| **each == *cell) {
            waiting.push(reply);
            return;
        }
        if self.running.len() >= RUNNING_MAX {
            drop(reply.send(Demanded::Refused(format!("{RUNNING_MAX} probes on demand are under way"))));
            return;
        }
        let id = self.running.spawn(on_demand(demand, means)).id();
        self.waiting.insert(id, (cell, vec![reply]));
    }

    /// The next one that was sent and ended; everybody who waited for it has been answered. `None`: none is under way, or
    /// it was not sent.
    pub(super) async fn ended(&mut self) -> Option<(Arc<Cell>, Arc<Measurement>)> {
        let (id, outcome) = match self.running.join_next_with_id().await? {
            Ok((id, outcome)) => (id, outcome),
            Err(error) => (error.id(), Err("the prober broke; its log says where".to_owned())),
        };
        let (cell, waiting) = self.waiting.remove(&id)?;
        let (answer, ended) = match outcome {
            Ok(measurement) => {
                let measurement = Arc::new(measurement);
                (Demanded::Measured(measurement.clone()), Some((cell, measurement)))
            }
            Err(why) => (Demanded::Refused(why), None),
        };
        for reply in waiting {
            drop(reply.send(answer.clone()));
        }
        ended
    }
}
