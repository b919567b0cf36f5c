//! Certificates made on the spot, and relays that put TLS on a connection or take it off.

use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{Ssl, SslAcceptor, SslConnector, SslMethod, SslVerifyMode};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509NameBuilder};
use pingora::tls::tokio_ssl::SslStream;
use std::pin::Pin;
use tokio::net::{TcpListener, TcpStream};

/// A certificate and its key.
#[derive(Debug, Clone)]
pub struct Papers {
    pub cert: X509,
    pub key: PKey<Private>,
}

impl Papers {
    /// An authority that nobody knows.
    pub fn authority() -> Self {
        make("an authority", None, 30)
    }
    /// Papers for a name, by this authority.
    pub fn issue(&self, name: &str) -> Self {
        make(name, Some(self), 30)
    }
    /// Papers that ended at their beginning.
    pub fn expired(&self, name: &str) -> Self {
        make(name, Some(self), 0)
    }
    /// The certificate in PEM.
    pub fn cert_pem(&self) -> String {
        String::from_utf8(self.cert.to_pem().unwrap()).unwrap()
    }
    /// The key in PEM.
    pub fn key_pem(&self) -> String {
        String::from_utf8(self.key.private_key_to_pem_pkcs8().unwrap()).unwrap()
    }
}

fn make(name: &str, by: Option<&Papers>, days: u32) -> Papers {
    let curve = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&curve).unwrap()).unwrap();
    let mut subject = X509NameBuilder::new().unwrap();
    subject.append_entry_by_text("CN", name).unwrap();
    let subject = subject.build();
    let mut to = X509::builder().unwrap();
    to.set_version(2).unwrap();
    let serial = BigNum::from_u32(fastrand::u32(1..)).unwrap().to_asn1_integer().unwrap();
    to.set_serial_number(&serial).unwrap();
    to.set_subject_name(&subject).unwrap();
    to.set_issuer_name(by.map_or(&*subject, |by| by.cert.subject_name())).unwrap();
    to.set_pubkey(&key).unwrap();
    let ends =
        if days == 0 { Asn1Time::from_unix(1_000_000_000) } else { Asn1Time::days_from_now(days) };
    to.set_not_before(&Asn1Time::from_unix(999_999_999).unwrap()).unwrap();
    to.set_not_after(&ends.unwrap()).unwrap();
    if by.is_none() {
        to.append_extension(BasicConstraints::new().critical().ca().build().unwrap()).unwrap();
    } else {
        let names = SubjectAlternativeName::new().dns(name).build(&to.x509v3_context(None, None));
        to.append_extension(names.unwrap()).unwrap();
    }
    to.sign(by.map_or(&key, |by| &by.key), MessageDigest::sha256()).unwrap();
    Papers { cert: to.build(), key }
}

/// A port of the loopback that speaks TLS under these papers and passes all on to another port.
pub async fn terminator(papers: &Papers, to: u16) -> u16 {
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).unwrap();
    acceptor.set_certificate(&papers.cert).unwrap();
    acceptor.set_private_key(&papers.key).unwrap();
    acceptor.set_alpn_select_callback(|_, offered| {
        openssl::ssl::select_next_proto(b"\x02h2\x08http/1.1", offered)
            .ok_or(openssl::ssl::AlpnError::NOACK)
    });
    let acceptor = acceptor.build();
    relay(move |stream| {
        let ssl = Ssl::new(acceptor.context()).unwrap();
        async move {
            let mut tls = SslStream::new(ssl, stream).unwrap();
            if Pin::new(&mut tls).accept().await.is_ok()
                && let Ok(mut plain) = TcpStream::connect(("127.0.0.1", to)).await
            {
                let _ = tokio::io::copy_bidirectional(&mut tls, &mut plain).await;
            }
        }
    })
    .await
}

/// A port of the loopback that takes plain bytes and passes them on to a TLS port, as `localhost`.
pub async fn wrapper(authority: &Papers, to: u16) -> u16 {
    let authority = authority.clone();
    relay(move |mut stream| {
        let authority = authority.clone();
        async move {
            if let Ok(mut tls) = connect(&authority, to, "http/1.1").await {
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut tls).await;
            }
        }
    })
    .await
}

async fn relay<F>(mut serve: impl FnMut(TcpStream) -> F + Send + 'static) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(serve(stream));
        }
    });
    port
}

/// A TLS connection to `localhost`, believing this authority alone and offering one protocol.
pub async fn connect(
    authority: &Papers,
    port: u16,
    alpn: &str,
) -> Result<SslStream<TcpStream>, openssl::ssl::Error> {
    let mut connector = SslConnector::builder(SslMethod::tls()).unwrap();
    connector.cert_store_mut().add_cert(authority.cert.clone()).unwrap();
    connector.set_verify(SslVerifyMode::PEER);
    let wire = [&[alpn.len() as u8], alpn.as_bytes()].concat();
    connector.set_alpn_protos(&wire).unwrap();
    let ssl = connector.build().configure().unwrap().into_ssl("localhost").unwrap();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a listener");
    stream.set_nodelay(true).unwrap();
    let mut tls = SslStream::new(ssl, stream).unwrap();
    super::soon("a handshake", Pin::new(&mut tls).connect()).await?;
    Ok(tls)
}
