//! The server's side of TLS, from PEM texts. Reads no file itself.

use std::{path::Path, sync::Arc};

use rustls::{
    RootCertStore, ServerConfig, SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    version::{TLS12, TLS13},
};

use super::file::{ClientAuth, TlsForm, TlsVersion};

type Pem<'a> = dyn FnMut(&Path) -> Result<Vec<u8>, String> + 'a;

/// Builds what TLS connections are accepted with.
pub(super) fn server_config(form: &TlsForm, pem: &mut Pem<'_>) -> Result<Arc<ServerConfig>, String> {
    for (key, path) in [("cert_file", &form.cert_file), ("key_file", &form.key_file)] {
        if path.as_os_str().is_empty() {
            return Err(format!("tls_server_config: {key} is missing; name a PEM file"));
        }
    }
    let chain = certificates(&form.cert_file, &pem(&form.cert_file)?)?;
    let key = PrivateKeyDer::from_pem_slice(&pem(&form.key_file)?).map_err(|error| {
        format!("{}: {error}; export the key as PEM, without a passphrase", form.key_file.display())
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions(form)?)
        .map_err(|error| format!("tls_server_config: {error}"))?;
    let builder = match client_verifier(form, pem, provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| format!("tls_server_config: certificate and key do not fit: {error}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| format!("{}: {error}", path.display()))?;
    if chain.is_empty() {
        return Err(format!("{} holds no PEM certificate; export it as PEM", path.display()));
    }
    Ok(chain)
}

fn versions(form: &TlsForm) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let least = form.min_version.unwrap_or(TlsVersion::Tls12);
    let most = form.max_version.unwrap_or(TlsVersion::Tls13);
    let all = [(TlsVersion::Tls13, &TLS13), (TlsVersion::Tls12, &TLS12)];
    let chosen: Vec<_> = all
        .into_iter()
        .filter(|(version, _)| (least..=most).contains(version))
        .map(|(_, known)| known)
        .collect();
    if chosen.is_empty() {
        return Err("tls_server_config: max_version is below min_version; swap them".into());
    }
    Ok(chosen)
}

fn client_verifier(
    form: &TlsForm,
    pem: &mut Pem<'_>,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let file = match (form.client_auth_type, &form.client_ca_file) {
        (ClientAuth::NoClientCert, None) => return Ok(None),
        (ClientAuth::NoClientCert, Some(_)) => {
            return Err("tls_server_config: client_ca_file has no effect without client_auth_type: \
                        write RequireAndVerifyClientCert, or remove it"
                .into());
        }
        (_, None) => {
            return Err("tls_server_config: client_ca_file is missing; name the authorities' PEM file".into());
        }
        (_, Some(file)) => file,
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, &pem(file)?)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match form.client_auth_type {
        ClientAuth::VerifyClientCertIfGiven => builder.allow_unauthenticated(),
        ClientAuth::NoClientCert | ClientAuth::RequireAndVerifyClientCert => builder,
    };
    builder.build().map(Some).map_err(|error| format!("{}: {error}", file.display()))
}
