//! TLS client configurations: which certificates are accepted, which protocols are offered.

use std::{fs, io, path::Path, sync::Arc};

use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme, WantsVerifier,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use crate::config::{ClientCertificate, HttpVersion, TlsTrust};

/// Builds the TLS configuration of one target.
///
/// # Errors
/// The CA file cannot be read or holds no certificate, or the system has no certificates at all.
pub(super) fn client_config(trust: &TlsTrust, version: HttpVersion) -> io::Result<Arc<ClientConfig>> {
    let verified = if trust.insecure_skip_verify {
        builder()?.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny(provider())))
    } else {
        builder()?.with_root_certificates(roots(trust)?)
    };
    let mut config = match &trust.client_certificate {
        None => verified.with_no_client_auth(),
        Some(files) => {
            let (chain, key) = client_certificate(files)?;
            verified
                .with_client_auth_cert(chain, key)
                .map_err(|error| io::Error::other(format!("{}: {error}", files.cert_file.display())))?
        }
    };
    config.alpn_protocols = match version {
        HttpVersion::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        HttpVersion::Http11 => vec![b"http/1.1".to_vec()],
        HttpVersion::Http2 => vec![b"h2".to_vec()],
    };
    Ok(Arc::new(config))
}

/// For token endpoints: the system's authorities and the target's own. They are always verified, and never shown
/// the target's client certificate.
pub(super) fn token_endpoint_config(trust: &TlsTrust) -> io::Result<ClientConfig> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if trust.ca_file.is_some() {
        store.extend(roots(trust)?.roots);
    }
    Ok(builder()?.with_root_certificates(store).with_no_client_auth())
}

/// For whatever is asked beside the targets: the authorities of a PEM file, or the system's.
///
/// # Errors
/// The file cannot be read or holds no certificate.
pub(crate) fn authorities_config(ca_file: Option<&Path>) -> io::Result<ClientConfig> {
    let trust = TlsTrust { ca_file: ca_file.map(Path::to_owned), ..TlsTrust::default() };
    Ok(builder()?.with_root_certificates(roots(&trust)?).with_no_client_auth())
}

fn client_certificate(
    files: &ClientCertificate,
) -> io::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let named =
        |path: &Path, error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let pem = fs::read(&files.cert_file).map_err(|error| named(&files.cert_file, &error))?;
    let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| named(&files.cert_file, &error))?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key_file).map_err(|error| named(&files.key_file, &error))?;
    Ok((chain, key))
}

/// For a client that will not speak TLS and yet wants a configuration: no certificate is trusted.
pub(super) fn trusting_nobody() -> io::Result<ClientConfig> {
    Ok(builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn builder() -> io::Result<ConfigBuilder<ClientConfig, WantsVerifier>> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(trust: &TlsTrust) -> io::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    if let Some(path) = &trust.ca_file {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let pem = fs::read(path).map_err(named)?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| named(io::Error::other(error.to_string())))?;
            store.add(certificate).map_err(|error| named(io::Error::other(error)))?;
        }
        if store.is_empty() {
            return Err(named(io::Error::other("holds no certificate in PEM form")));
        }
        return Ok(store);
    }
    let found = rustls_native_certs::load_native_certs();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "no certificate authorities found on this system: install ca-certificates, point SSL_CERT_FILE \
             at a bundle, or set tls.ca_file",
        ));
    }
    Ok(store)
}

/// Accepts any certificate, as `--insecure` asks for; signatures are still checked.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
