//! The flags of leader election, and what a pod knows of itself.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use crate::{
    config::{Shard, process_environment},
    election::Settings,
};

/// Where Kubernetes mounts a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Flags of leader election.
#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election (one of several replicas probes)")]
pub(super) struct ElectionArgs {
    /// Take part in leader election through the Kubernetes Lease of this name
    #[arg(long = "leader-election.lease", value_name = "NAME")]
    lease: Option<String>,
    /// Namespace of the lease; the pod's own by default
    #[arg(long = "leader-election.namespace", value_name = "NAMESPACE", requires = "lease")]
    namespace: Option<String>,
    /// Within how long a leader that is gone is replaced
    #[arg(long = "leader-election.lease-duration", value_name = "DURATION", default_value = "15s",
        value_parser = humantime::parse_duration)]
    takeover: Duration,
    /// API server; the cluster's own by default, with the pod's service account
    #[arg(long = "leader-election.api-server", value_name = "URL", requires = "lease")]
    api_server: Option<String>,
    /// File of the bearer token for an API server that is named
    #[arg(long = "leader-election.token-file", value_name = "FILE", requires = "api_server")]
    token_file: Option<PathBuf>,
    /// PEM file of the authorities of an API server that is named
    #[arg(long = "leader-election.ca-file", value_name = "FILE", requires = "api_server")]
    ca_file: Option<PathBuf>,
}

impl ElectionArgs {
    /// How this process stands for election; `None` when it does not. Every shard has a lease of its own.
    ///
    /// # Errors
    /// What is missing, and the mend.
    pub(super) fn settings(&self, shard: Option<Shard>) -> Result<Option<Settings>, String> {
        let Some(lease) = &self.lease else { return Ok(None) };
        let lease = shard
            .map_or_else(|| lease.clone(), |shard| format!("{lease}-{}-of-{}", shard.index(), shard.of()));
        for (flag, name) in [("lease", Some(&lease)), ("namespace", self.namespace.as_ref())] {
            if let Some(name) = name.filter(|name| !is_object_name(name)) {
                return Err(format!(
                    "--leader-election.{flag}: \"{}\" is no name of Kubernetes; use lower-case letters, digits and dashes",
                    name.escape_debug()
                ));
            }
        }
        let (api_server, token_file, ca_file) = match &self.api_server {
            Some(url) => (url.clone(), self.token_file.clone(), self.ca_file.clone()),
            None => (in_cluster()?, Some(mounted("token")), Some(mounted("ca.crt"))),
        };
        let namespace = match &self.namespace {
            Some(namespace) => namespace.clone(),
            None => std::fs::read_to_string(mounted("namespace"))
                .map(|text| text.trim().to_owned())
                .map_err(|_| {
                    "leader election: the namespace is not known; name it with --leader-election.namespace"
                        .to_owned()
                })?,
        };
        let identity = format!("{}_{:016x}", host_name(), fastrand::u64(..));
        Ok(Some(Settings {
            api_server,
            namespace,
            lease,
            identity,
            takeover: self.takeover,
            token_file,
            ca_file,
        }))
    }
}

fn mounted(file: &str) -> PathBuf {
    PathBuf::from(SERVICE_ACCOUNT).join(file)
}

fn in_cluster() -> Result<String, String> {
    let variable = |name| process_environment(name).ok().filter(|value| !value.is_empty());
    let (Some(host), Some(port)) = (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"))
    else {
        return Err("leader election: this is no pod of a cluster; name the API server with \
                    --leader-election.api-server"
            .into());
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Ok(format!("https://{host}:{port}"))
}

/// The pod's name, for people; what follows it makes it unique.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// An RFC 1123 subdomain.
fn is_object_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = name.as_bytes().first().zip(name.as_bytes().last());
    ends.is_some_and(|(first, last)| inner(*first) && inner(*last))
        && name.len() <= 253
        && name.bytes().all(|byte| inner(byte) || byte == b'-' || byte == b'.')
}
