//! Providers behind TLS: whom we trust, what is said where we do not, HTTP/2, several addresses.

use super::*;
use crate::harness::tls::{Papers, terminator};

/// A gateway whose provider is at `https://localhost` under these papers.
async fn behind(provider: &Provider, papers: &Papers, ca: Option<&Papers>, more: &str) -> Weir {
    let port = terminator(papers, provider.port()).await;
    let trust = if ca.is_some() { "ca = \"file:ca.pem\"\n" } else { "" };
    let config = config(&format!("https://localhost:{port}/v1"), &format!("{trust}{more}"));
    let mut weir = Weir::prepare(&config, Default::default(), &[]).await;
    if let Some(ca) = ca {
        std::fs::write(weir.path().join("ca.pem"), ca.cert_pem()).unwrap();
    }
    weir.run();
    weir.ready().await;
    weir
}

/// Where `localhost` has an address of each family, the provider listens on one of them.
#[tokio::test]
async fn a_provider_of_our_own_authority_is_reached() {
    let provider = answering(Answer::default()).await;
    let authority = Papers::authority();
    let papers = authority.issue("localhost");
    let weir = behind(&provider, &papers, Some(&authority), "").await;
    for _ in 0..6 {
        let reply = weir.ask(&chat()).await;
        assert_eq!(reply.status(), 200, "{}", reply.text());
        assert_eq!(reply.header("x-weir-attempts"), Some("1"));
        assert!(weir.ask(&streamed()).await.done());
    }
    assert!(provider.connections() < 12, "connections are kept");
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_named_and_no_byte_of_the_request_leaves() {
    let provider = answering(Answer::default()).await;
    let (ours, other) = (Papers::authority(), Papers::authority());
    let cases = [
        (ours.issue("localhost"), None),
        (other.issue("localhost"), Some(&ours)),
        (ours.issue("elsewhere"), Some(&ours)),
        (ours.expired("localhost"), Some(&ours)),
    ];
    for (i, (papers, ca)) in cases.into_iter().enumerate() {
        let weir = behind(&provider, &papers, ca, "").await;
        let reply = weir.ask(&chat()).await;
        assert_eq!(reply.error(), (502, "upstream_error".into()), "case {i}");
        let text = reply.text();
        assert!(text.contains("TLS to a failed: its certificate is not trusted"), "{i}: {text}");
    }
    assert_eq!(provider.count(), 0);
    // Whoever speaks no TLS at all.
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/v1", plain.local_addr().unwrap().port());
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        loop {
            let (mut stream, _) = plain.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        }
    });
    let weir = Weir::start(&config(&url, "")).await;
    let text = weir.ask(&chat()).await.text();
    assert!(text.contains("TLS to a failed: "), "{text}");
    assert!(text.contains("wrong version number") || text.contains("packet length"), "{text}");
}

#[tokio::test]
async fn a_new_authority_takes_effect_and_connections_under_the_old_one_are_left() {
    let provider = answering(Answer::default()).await;
    let (ours, other) = (Papers::authority(), Papers::authority());
    let weir = behind(&provider, &ours.issue("localhost"), Some(&ours), "").await;
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    std::fs::write(weir.path().join("ca.pem"), other.cert_pem()).unwrap();
    soon("the new authority", async { while weir.ask(&chat()).await.status() == 200 {} }).await;
    std::fs::write(weir.path().join("ca.pem"), ours.cert_pem()).unwrap();
    soon("the old authority", async { while weir.ask(&chat()).await.status() != 200 {} }).await;
}

#[tokio::test]
async fn max_age_ends_the_use_of_a_connection() {
    let provider = answering(Answer::default()).await;
    let weir = Weir::start(&config(&provider.url(), "pool = { max_age = \"1s\" }")).await;
    let start = std::time::Instant::now();
    while start.elapsed() < std::time::Duration::from_millis(2500) {
        assert_eq!(weir.ask(&chat()).await.status(), 200);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let (asked, made) = (provider.count(), provider.connections());
    assert!(made >= 3 && made < asked, "{made} connections for {asked} requests");
}

#[tokio::test]
async fn ipv6_callers_reach_ipv6_providers() {
    let listener = tokio::net::TcpListener::bind("[::1]:0").await;
    let Ok(listener) = listener else { return skip("there is no IPv6 here") };
    let port = listener.local_addr().unwrap().port();
    let provider = Provider::serve(listener, Answer::default().script(), 1000).unwrap();
    let config = config(&format!("http://[::1]:{port}/v1"), "");
    let at = closed_port();
    let config = format!("{config}[server]\nlisten = [\"[::1]:{at}\"]\n");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weir.toml");
    let admin = closed_port();
    let folders = dir.path().display();
    let rest = format!(
        "[admin]\nlisten = \"[::1]:{admin}\"\n[store]\nurl = \"sqlite:{folders}/w.db\"\nspool = \
         \"{folders}/spool\"\n"
    );
    std::fs::write(&path, config + &rest).unwrap();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["run", "--config"])
        .arg(&path)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let stream = found("a listener", || std::net::TcpStream::connect(("::1", at)).ok()).await;
    drop(stream);
    let stream = tokio::net::TcpStream::connect(("::1", at)).await.unwrap();
    let mut h2 = crate::harness::h2c::H2::over(stream).await;
    let reply = h2.ask(&chat()).await;
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(reply.status(), 200);
    let seen = provider.requests().pop().unwrap().request;
    let host = format!("[::1]:{port}");
    assert_eq!(seen.header("host"), Some(host.as_str()));
}
