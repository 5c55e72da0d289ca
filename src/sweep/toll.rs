//! What a probe may cost at most before it leaves, and what it did cost once its answer is in.
//!
//! Pure. What nobody can know counts as the worst case: a budget is there for the day on which things go wrong.

use std::sync::Arc;

use crate::{
    budget::{Amount, Governor, Order, Price},
    cell::Cell,
    config::{LevelSettings, Sweep, Target},
    measurement::{FailureClass, Measurement, TokenSource},
};

/// Tokenizers differ, and servers wrap a prompt in a template: how much longer than wanted a prompt may come out.
const PROMPT_SLACK: f64 = 1.25;
const TEMPLATE_TOKENS: f64 = 50.0;
/// Held when `extra_body` takes the output limit away.
const UNBOUNDED_OUTPUT_TOKENS: u64 = 32_768;
/// Members of a body that limit the output, in the formats there are.
const LIMIT_MEMBERS: [&str; 4] =
    ["max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"];

/// What the probes of one cell cost.
#[derive(Debug, Clone)]
pub(super) struct Toll {
    pub(super) order: Order,
    model: Arc<str>,
    price: Price,
    /// Output tokens of one probe at most.
    output_tokens: u64,
}

impl Toll {
    pub(super) fn new(cell: &Cell, settings: &LevelSettings, target: &Target) -> Self {
        Self {
            order: Order { sweep: cell.sweep.clone(), target: cell.target.clone() },
            model: cell.model.clone(),
            price: target.prices.get(&cell.model).copied().unwrap_or_default(),
            output_tokens: output_tokens_max(settings.output_tokens_max(), &target.extra_body),
        }
    }

    /// The worst case of one probe with a prompt of about so many tokens; never less, for its length, than what the dearest
    /// answer of this model came to.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and a length is never negative"
    )]
    pub(super) fn worst_case(&self, prompt_tokens: f64, governor: &Governor) -> Amount {
        let prompt = (prompt_tokens * PROMPT_SLACK + TEMPLATE_TOKENS).ceil() as u64;
        let amount = self.amount(prompt, self.output_tokens);
        governor.dearness(&self.order.target, &self.model).of(amount)
    }

    /// What a probe used that ended like this, of which `held` was held.
    pub(super) fn used(&self, held: Amount, measurement: &Measurement, governor: &Governor) -> Amount {
        let tokens = &measurement.tokens;
        let counted = matches!(
            tokens.source,
            TokenSource::Usage | TokenSource::UsageCumulative | TokenSource::Vendor(_)
        );
        match (tokens.prompt, tokens.output) {
            (Some(prompt), Some(output)) if counted => {
                let used = self.amount(prompt, output);
                governor.learn(&self.order.target, &self.model, held, used);
                used
            }
            _ if tokens.chunks == 0 && never_ran(measurement) => {
                Amount { requests: held.requests, ..Amount::default() }
            }
            _ => held,
        }
    }

    fn amount(&self, prompt_tokens: u64, output_tokens: u64) -> Amount {
        Amount {
            requests: 1,
            tokens: prompt_tokens.saturating_add(output_tokens),
            cost: self.price.of(prompt_tokens, output_tokens),
        }
    }
}

/// The worst case of a whole level.
pub(super) fn level(cell: &Cell, settings: &LevelSettings, target: &Target, governor: &Governor) -> Amount {
    let toll = Toll::new(cell, settings, target);
    let requests = settings.requests.saturating_add(settings.excluded(cell));
    toll.worst_case(settings.prompt_tokens_max(cell.prompt_tokens), governor).times(u64::from(requests))
}

/// The cheapest level of each target, model by model: what a start needs at least.
pub(super) fn cheapest<'a>(
    sweep: &'a Sweep,
    governor: &'a Governor,
) -> impl Iterator<Item = (Order, Amount)> + 'a {
    let first = sweep.prompt_tokens.first().copied().zip(sweep.loads().next());
    let models =
        sweep.targets.iter().flat_map(|(target, models)| models.iter().map(move |model| (target, model)));
    models.filter_map(move |(target, model)| {
        let (prompt_tokens, (concurrency, rate)) = first?;
        let cell = Cell {
            sweep: sweep.name.clone(),
            target: target.name.clone(),
            model: model.clone(),
            prompt_tokens,
            concurrency,
            rate,
        };
        let order = Order { sweep: cell.sweep.clone(), target: cell.target.clone() };
        Some((order, level(&cell, &sweep.level, target, governor)))
    })
}

/// Refused before a model looked at it: nobody charges tokens for that.
fn never_ran(measurement: &Measurement) -> bool {
    let Some(failure) = measurement.outcome.failure() else { return false };
    match failure.class {
        FailureClass::Connect
        | FailureClass::Tls
        | FailureClass::Edge
        | FailureClass::Auth
        | FailureClass::Quota
        | FailureClass::RateLimited
        | FailureClass::Overloaded
        | FailureClass::ModelNotFound
        | FailureClass::EndpointNotFound
        | FailureClass::BadRequest => true,
        FailureClass::Timeout
        | FailureClass::ContentFilter
        | FailureClass::UpstreamError
        | FailureClass::StreamTruncated
        | FailureClass::Protocol
        | FailureClass::EmptyOutput
        | FailureClass::NotStreaming => false,
    }
}

/// `extra_body` wins over the request's own members, so it is asked first.
fn output_tokens_max(max_tokens: u32, extra_body: &serde_json::Map<String, serde_json::Value>) -> u64 {
    let written = LIMIT_MEMBERS.iter().filter_map(|member| extra_body.get(*member));
    let most = written.map(|value| value.as_u64().unwrap_or(UNBOUNDED_OUTPUT_TOKENS)).max();
    let answers = extra_body.get("n").and_then(serde_json::Value::as_u64).unwrap_or(1).max(1);
    most.unwrap_or(0).max(u64::from(max_tokens)).saturating_mul(answers)
}
