//! TLS for callers: both protocols, certificates that change, and clients that do not shake hands.

use crate::harness::binary::Tables;
use crate::harness::h2c::H2;
use crate::harness::tls::{Papers, connect, wrapper};
use crate::harness::*;
use std::path::Path;
use std::time::{Duration, Instant};

/// A gateway with a TLS listener under these papers; its port.
async fn start(provider: &Provider, papers: &Papers, more: &str) -> (Weir, u16) {
    let port = closed_port();
    let tls = format!(
        "tls = {{ listen = [\"127.0.0.1:{port}\"], cert = \"cert.pem\", key = \"file:key.pem\" }}\n"
    );
    let tables = Tables { server: tls + more, ..Tables::default() };
    let mut weir = Weir::prepare(&toml::simple(provider), tables, &[]).await;
    write(weir.path(), papers);
    weir.run();
    weir.ready().await;
    (weir, port)
}

fn write(dir: &Path, papers: &Papers) {
    // The key first: two looks must agree, so that both are there when they are read.
    for (name, text) in [("key.pem", papers.key_pem()), ("cert.pem", papers.cert_pem())] {
        let new = dir.join(format!("{name}.new"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, dir.join(name)).unwrap();
    }
}

#[tokio::test]
async fn callers_speak_h1_and_h2_over_tls_and_plain_beside_it() {
    let provider = answering(Answer::default()).await;
    let authority = Papers::authority();
    let (weir, port) = start(&provider, &authority.issue("localhost"), "").await;
    let plain = wrapper(&authority, port).await;
    let mut h1 = Client::connect(plain).await;
    for ask in [chat(), streamed(), chat().body(big()), streamed()] {
        assert_eq!(h1.ask(&ask).await.status(), 200, "and the connection is kept");
    }
    let tls = connect(&authority, port, "h2").await.unwrap();
    assert_eq!(tls.ssl().selected_alpn_protocol(), Some(&b"h2"[..]));
    let mut h2 = H2::over(tls).await;
    assert!(h2.ask(&streamed()).await.done());
    assert_eq!(h2.ask(&chat().body(big())).await.status(), 200);
    assert_eq!(weir.ask(&chat()).await.status(), 200);
    let stranger = connect(&Papers::authority(), port, "h2").await;
    assert!(stranger.is_err(), "we are who our papers say and nobody else");
}

/// A body that no single record or frame holds.
fn big() -> String {
    let text = "b".repeat(300_000);
    serde_json::json!({"model": "m", "messages": [{"role": "user", "content": text}]}).to_string()
}

#[tokio::test]
async fn a_hundred_streams_share_a_tls_connection() {
    let words = (0..20).map(|i| format!("{i} ")).collect();
    let delay = Duration::from_millis(5);
    let provider = answering(Answer { words, delay, ..Answer::default() }).await;
    let authority = Papers::authority();
    let (weir, port) = start(&provider, &authority.issue("localhost"), "").await;
    let mut h2 = H2::over(connect(&authority, port, "h2").await.unwrap()).await;
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (head, mut body) = h2.begin(&streamed()).await;
        assert_eq!(head.status, 200);
        streams.spawn(async move {
            let mut text = Vec::new();
            while let Some(bytes) = soon("bytes", body.data()).await {
                let bytes = bytes.unwrap();
                body.flow_control().release_capacity(bytes.len()).unwrap();
                text.extend_from_slice(&bytes);
            }
            String::from_utf8(text).unwrap().ends_with("data: [DONE]\n\n")
        });
    }
    assert!(streams.join_all().await.into_iter().all(|whole| whole));
    weir.idle().await;
    assert_eq!(weir.events(100).await.len(), 100);
}

#[tokio::test]
async fn a_new_certificate_is_shown_without_a_restart_and_a_wrong_one_is_not() {
    let provider = answering(Answer::default()).await;
    let (old, new) = (Papers::authority(), Papers::authority());
    let (weir, port) = start(&provider, &old.issue("localhost"), "").await;
    let mut kept = H2::over(connect(&old, port, "h2").await.unwrap()).await;
    // A key of something else: the config is refused whole, the old one goes on.
    let wrong = Papers { key: new.key.clone(), ..old.issue("localhost") };
    write(weir.path(), &wrong);
    let refused = || weir.stderr().contains("is not the key of").then_some(());
    found("the refusal", refused).await;
    assert!(connect(&old, port, "h2").await.is_ok());
    write(weir.path(), &new.issue("localhost"));
    soon("the new certificate", async {
        while connect(&new, port, "h2").await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(connect(&old, port, "h2").await.is_err());
    assert_eq!(kept.ask(&chat()).await.status(), 200, "open connections go on");
    let log = weir.stderr();
    assert!(!log.contains("needs restart"), "{log}");
}

#[tokio::test]
async fn who_does_not_shake_hands_or_sends_no_request_is_let_go_without_a_line() {
    let provider = answering(Answer::default()).await;
    let authority = Papers::authority();
    let (weir, port) = start(&provider, &authority.issue("localhost"), "header = \"300ms\"").await;
    let before = weir.stderr();
    let mut plain = Client::connect(port).await;
    plain.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(plain.closed().await || plain.closed().await);
    drop(Client::connect(port).await);
    for alpn in ["h2", "http/1.1"] {
        for bytes in [&b""[..], b"PR", b"GET / HT"] {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            let mut tls = connect(&authority, port, alpn).await.unwrap();
            tls.write_all(bytes).await.unwrap();
            let mut rest = Vec::new();
            let _ = soon("the end", tls.read_to_end(&mut rest)).await; // an abrupt one is one too
        }
    }
    let mut h2 = H2::over(connect(&authority, port, "h2").await.unwrap()).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(h2.ask(&chat()).await.status(), 200, "an open connection waits longer than a head");
    assert_eq!(weir.stderr(), before);
}

/// Half a ClientHello (RFC 8446, section 5.1): a record's head that says 512 bytes, and a few.
const HALF_A_HELLO: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

#[tokio::test]
async fn a_handshake_that_never_ends_has_a_heads_time() {
    let provider = answering(Answer::default()).await;
    let authority = Papers::authority();
    let (weir, port) = start(&provider, &authority.issue("localhost"), "header = \"300ms\"").await;
    let before = weir.stderr();
    // One says nothing, one stops in its first record, one drips it.
    let silent = Client::connect(port).await;
    let mut half = Client::connect(port).await;
    half.send(HALF_A_HELLO).await;
    let mut drips = Client::connect(port).await;
    let drip = tokio::spawn(async move {
        for byte in HALF_A_HELLO.iter().cycle() {
            if !drips.try_send(&[*byte]).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let begun = Instant::now();
    for mut client in [silent, half] {
        assert!(client.closed().await);
    }
    soon("the end of the third", drip).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let mut h2 = H2::over(connect(&authority, port, "h2").await.unwrap()).await;
    assert_eq!(h2.ask(&chat()).await.status(), 200, "others are not kept by them");
    assert_eq!(weir.stderr(), before);
    assert!(weir.metric("weir_open_connections", &[]).await <= Some(2.0));
}

#[tokio::test]
async fn the_admin_side_speaks_tls_and_shows_a_new_certificate_without_a_restart() {
    let provider = answering(Answer::default()).await;
    let (old, new) = (Papers::authority(), Papers::authority());
    let admin = "tls = { cert = \"cert.pem\", key = \"file:key.pem\" }\n";
    let tables = Tables { admin: admin.into(), ..Tables::default() };
    let mut weir = Weir::prepare(&toml::simple(&provider), tables, &[]).await;
    write(weir.path(), &old.issue("localhost"));
    weir.run();
    weir.ready().await;
    let banner = format!("admin on https://127.0.0.1:{}\n", weir.admin);
    let said = || std::fs::read_to_string(weir.path().join("stdout.log")).unwrap();
    found("the banner", || said().contains(&banner).then_some(())).await;
    let get = |path: &str| Ask::get(path).key(crate::harness::binary::TOKEN);
    let plain = wrapper(&old, weir.admin).await;
    let mut client = Client::connect(plain).await;
    assert_eq!(client.ask(&get("/metrics")).await.status(), 200);
    assert_eq!(client.ask(&get("/admin/v1/keys")).await.status(), 200, "and it is kept");
    assert!(connect(&Papers::authority(), weir.admin, "http/1.1").await.is_err());
    // Plain HTTP is not spoken there, and neither a silent caller nor a wrong one keeps others.
    let silent = Client::connect(weir.admin).await;
    let mut wrong = Client::connect(weir.admin).await;
    wrong.send(&get("/metrics").bytes()).await;
    assert!(wrong.closed().await || wrong.closed().await);
    write(weir.path(), &new.issue("localhost"));
    soon("the new certificate", async {
        while connect(&new, weir.admin, "http/1.1").await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(client.ask(&get("/health/ready")).await.status(), 200, "open connections go on");
    // Without TLS altogether: said, and not done before a restart.
    let text = std::fs::read_to_string(weir.config()).unwrap().replace(admin, "");
    std::fs::write(weir.config(), text).unwrap();
    let told = || weir.stderr().contains("needs restart: admin.tls").then_some(());
    found("the warning", told).await;
    assert!(connect(&new, weir.admin, "http/1.1").await.is_ok());
    drop(silent);
}

#[tokio::test]
async fn a_token_and_tls_open_the_admin_side_beyond_loopback() {
    let papers = Papers::authority().issue("localhost");
    let weir = Weir::prepare("", Tables::default(), &[]).await;
    write(weir.path(), &papers);
    let config = weir.path().join("x.toml");
    for (token, sound) in [("token = \"secret\"", true), ("", false)] {
        let tls = "tls = { cert = \"cert.pem\", key = \"key.pem\" }";
        let text = format!("[admin]\nlisten = \"0.0.0.0:9180\"\n{tls}\n{token}\n");
        std::fs::write(&config, text).unwrap();
        assert_eq!(weir::config::load(&config).is_ok(), sound, "{token}");
    }
    std::fs::write(&config, "[admin]\ntls = { cert = \"cert.pem\" }\n").unwrap();
    let faults = weir::config::load(&config).unwrap_err();
    assert_eq!(
        faults[0].to_string().rsplit_once("x.toml:").unwrap().1,
        "2: admin.tls: needs a key"
    );
}

#[tokio::test]
async fn papers_that_do_not_fit_are_faults_with_their_place() {
    let authority = Papers::authority();
    let (a, b) = (authority.issue("localhost"), authority.issue("localhost"));
    let weir = Weir::prepare("", Tables::default(), &[]).await;
    std::fs::write(weir.path().join("cert.pem"), a.cert_pem()).unwrap();
    std::fs::write(weir.path().join("a.pem"), a.key_pem()).unwrap();
    std::fs::write(weir.path().join("b.pem"), b.key_pem()).unwrap();
    let config = weir.path().join("x.toml");
    let check = |tls: &str, said: &str| {
        std::fs::write(&config, format!("[server]\ntls = {{ {tls} }}\n")).unwrap();
        let faults = weir::config::load(&config).err().unwrap_or_default();
        let text: Vec<_> = faults.iter().map(|f| format!("{}: {}", f.key, f.message)).collect();
        assert!(text.iter().any(|t| t.starts_with(said)), "{tls}: {text:?}");
        assert!(faults.iter().all(|f| f.line == 2), "{faults:?}");
    };
    let at = "listen = [\"127.0.0.1:1\"]";
    check(&format!("{at}, cert = \"cert.pem\", key = \"b.pem\""), "server.tls.key: is not the key");
    check(&format!("{at}, cert = \"a.pem\", key = \"a.pem\""), "server.tls.cert: holds no cert");
    check(&format!("{at}, cert = \"cert.pem\", key = \"cert.pem\""), "server.tls.key: is no priv");
    check(&format!("{at}, cert = \"no.pem\", key = \"a.pem\""), "server.tls.cert: ");
    check("cert = \"cert.pem\", key = \"a.pem\"", "server.tls: needs a listen");
    check(&format!("{at}, cert = \"cert.pem\", key = \"a.pem\", x = 1"), "server.tls.x: unknown");
    let same = "listen = [\"127.0.0.1:8080\"], cert = \"cert.pem\", key = \"a.pem\"";
    check(same, "server.tls: 127.0.0.1:8080 is listened on twice");
}
