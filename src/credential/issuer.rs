//! A credential that somebody issues for a while: fetched when first needed and again ahead of its expiry.
//!
//! However many probes want it, one of them fetches. While the old one is still good the others go on with it, and
//! a failed fetch costs nobody anything until it has expired. A source that fails is left alone for a while.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{aws_issuer, command, oauth2};
use crate::{
    config::{AwsIssuer, AwsKeys, OAuth2, Secret, TokenCommand},
    measurement::Failure,
};

/// How long before its end a credential is fetched anew at most: longer than a probe and the fetch take.
const AHEAD_MAX: Duration = Duration::from_secs(5 * 60);
/// The same as a share of its life, for short ones.
const AHEAD_SHARE: u32 = 5;
/// How long a source that failed is left alone, and how old a token is before a refusal of it is believed.
const HOLD_OFF: Duration = Duration::from_secs(5);
/// Whoever issues something that is over at once would be asked before every probe.
const LIFETIME_MIN: Duration = Duration::from_secs(1);
/// What is believed of a token that does not say how long it lasts.
pub(super) const LIFETIME_UNKNOWN: Duration = Duration::from_secs(5 * 60);

/// Fetches into the rooms of the configuration.
#[derive(Debug)]
pub(super) struct Issuer {
    source: Source,
    /// Whoever holds it fetches.
    fetching: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum Source {
    OAuth2(Box<OAuth2>, reqwest::Client),
    Command(TokenCommand),
    AwsCommand(TokenCommand, AwsKeys),
    Aws(Box<AwsIssuer>, AwsKeys, reqwest::Client),
}

#[derive(Debug, Default)]
struct State {
    current: Option<Term>,
    failed: Option<(Instant, Failure)>,
}

/// How long something issued is used.
#[derive(Debug, Clone, Copy)]
struct Term {
    issued: Instant,
    renew: Instant,
    end: Instant,
}

/// What a source issued.
#[derive(Debug)]
pub(super) struct Issue {
    /// One value per room.
    pub(super) values: Vec<secrecy::SecretString>,
    pub(super) lifetime: Duration,
}

impl Issuer {
    pub(super) fn oauth2(oauth2: OAuth2, client: reqwest::Client) -> Self {
        Self::new(Source::OAuth2(Box::new(oauth2), client))
    }

    pub(super) fn command(command: TokenCommand) -> Self {
        Self::new(Source::Command(command))
    }

    pub(super) fn aws_command(command: TokenCommand, keys: AwsKeys) -> Self {
        Self::new(Source::AwsCommand(command, keys))
    }

    pub(super) fn aws(issuer: AwsIssuer, keys: AwsKeys, client: reqwest::Client) -> Self {
        Self::new(Source::Aws(Box::new(issuer), keys, client))
    }

    fn new(source: Source) -> Self {
        Self { source, fetching: tokio::sync::Mutex::default(), state: Mutex::default() }
    }

    /// Returns once the rooms hold something that is good now.
    ///
    /// # Errors
    /// Nothing is, and this is why.
    pub(super) async fn refresh(&self) -> Result<(), Failure> {
        let now = Instant::now();
        let term = self.term();
        if term.is_some_and(|term| now < term.renew) {
            return Ok(());
        }
        let good = term.is_some_and(|term| now < term.end);
        let _fetching = if good {
            // Somebody is at it already.
            let Ok(guard) = self.fetching.try_lock() else { return Ok(()) };
            guard
        } else {
            self.fetching.lock().await
        };
        // Another one may have fetched, or failed, while this one waited.
        let now = Instant::now();
        if self.term().is_some_and(|term| now < term.renew) {
            return Ok(());
        }
        if let Some(failure) = self.recent_failure(now) {
            return if good { Ok(()) } else { Err(failure) };
        }
        match self.fetch().await {
            Ok(lifetime) => {
                self.state().failed = None;
                self.state().current = Some(Term::of(now, lifetime));
                Ok(())
            }
            Err(failure) => {
                self.state().failed = Some((Instant::now(), failure.clone()));
                if !good {
                    return Err(failure);
                }
                tracing::warn!(
                    error = failure.message,
                    "credential not renewed, going on with the one of before"
                );
                Ok(())
            }
        }
    }

    /// The target refused what was issued: it may have been withdrawn, so the next probe wants a new one.
    pub(super) fn refused(&self) {
        let now = Instant::now();
        let mut state = self.state();
        if state.current.is_some_and(|term| now.saturating_duration_since(term.issued) >= HOLD_OFF) {
            state.current = None;
        }
    }

    async fn fetch(&self) -> Result<Duration, Failure> {
        let (issue, rooms): (Issue, Vec<&Secret>) = match &self.source {
            Source::OAuth2(oauth2, client) => (oauth2::fetch(oauth2, client).await?, vec![&oauth2.token]),
            Source::Command(command) => {
                (command::fetch(command, command::token).await?, vec![&command.token])
            }
            Source::AwsCommand(command, keys) => {
                (command::fetch(command, super::aws::keys).await?, keys.rooms().into())
            }
            Source::Aws(issuer, keys, client) => {
                (aws_issuer::fetch(issuer, client).await?, keys.rooms().into())
            }
        };
        for (room, value) in rooms.into_iter().zip(&issue.values) {
            room.renew(secrecy::ExposeSecret::expose_secret(value));
        }
        Ok(issue.lifetime)
    }

    fn term(&self) -> Option<Term> {
        self.state().current
    }

    fn recent_failure(&self, now: Instant) -> Option<Failure> {
        let state = self.state();
        let (at, failure) = state.failed.as_ref()?;
        (now.saturating_duration_since(*at) < HOLD_OFF).then(|| failure.clone())
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Term {
    /// Of something asked for at `asked`: its life is counted from there, so that it never ends too late.
    fn of(asked: Instant, lifetime: Duration) -> Self {
        let lifetime = lifetime.max(LIFETIME_MIN);
        let ahead = (lifetime / AHEAD_SHARE).min(AHEAD_MAX);
        Self { issued: asked, renew: asked + lifetime.saturating_sub(ahead), end: asked + lifetime }
    }
}
