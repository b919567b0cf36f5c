//! Providers' names, and a name server that has moods.

use super::*;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;

/// Port 53 of an address that nobody else uses.
const SERVER: &str = "127.83.0.53";

/// A name server that gives every name 127.0.0.1, but for those of `silent.test`, on which it says
/// nothing. `None` (after [`skip`]) where that port may not be had.
async fn name_server() -> Option<()> {
    let Ok(socket) = UdpSocket::bind((SERVER, 53)).await else {
        skip("a name server needs the right to port 53");
        return None;
    };
    tokio::spawn(async move {
        let mut question = [0; 512];
        loop {
            let (n, from) = socket.recv_from(&mut question).await.unwrap();
            let question = &question[..n];
            if question.windows(6).any(|part| part == b"silent") {
                continue;
            }
            socket.send_to(&answer(question), from).await.unwrap();
        }
    });
    Some(())
}

/// One address for a question of type A, none for any other (RFC 1035, section 4).
fn answer(question: &[u8]) -> Vec<u8> {
    let name = 12 + question[12..].iter().position(|b| *b == 0).unwrap() + 1;
    let is_a = question[name..name + 2] == [0, 1];
    let mut out = question[..2].to_vec();
    out.extend([0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
    out.extend(&question[12..name + 4]);
    if is_a {
        out.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    out
}

/// Starts a gateway that asks our name server: in a mount namespace, with a resolv.conf of its own.
async fn asking(config: &str) -> Option<Weir> {
    let mut weir = Weir::prepare(config, Default::default(), &[]).await;
    let resolv = weir.path().join("resolv.conf");
    std::fs::write(&resolv, format!("nameserver {SERVER}\noptions timeout:5 attempts:2\n"))
        .unwrap();
    let mount = format!("mount --bind {} /etc/resolv.conf && exec \"$@\"", resolv.display());
    let starter = ["unshare", "--mount", "sh", "-c", &mount, "sh"];
    let tried = std::process::Command::new(starter[0]).args(&starter[1..]).arg("true").status();
    if !tried.is_ok_and(|status| status.success()) {
        skip("a resolv.conf of one's own needs the right to mount it");
        return None;
    }
    weir.under(&starter);
    weir.run();
    weir.ready().await;
    Some(weir)
}

#[tokio::test]
async fn a_silent_name_server_costs_the_wait_to_connect_and_holds_up_nobody_else() {
    let provider = answering(Answer::default()).await;
    let at = |name: &str| format!("http://{name}.test:{}/v1", provider.port());
    let silent = toml::custom("a", "openai", &at("silent"), "timeouts = { connect = \"400ms\" }");
    let named = toml::custom("b", "openai", &at("named"), "");
    let models = [toml::model("m", &["a/x", "b/up-model"]), toml::model("n", &["b/up-model"])];
    let config = [silent, named, models.concat(), toml::key()].concat();
    let Some(()) = name_server().await else { return };
    let Some(weir) = asking(&config).await else { return };
    let (start, port) = (Instant::now(), weir.port);
    let mut all = tokio::task::JoinSet::new();
    for i in 0..8 {
        let ask = chat().model(if i % 2 == 0 { "m" } else { "n" });
        all.spawn(async move { (i, Client::connect(port).await.ask(&ask).await) });
    }
    for (i, reply) in all.join_all().await {
        assert_eq!(reply.status(), 200, "{i}: {}", reply.text());
        assert_eq!(reply.header("x-weir-attempts") == Some("1"), i % 2 == 1, "{i}");
    }
    // The resolver itself would wait for twenty seconds.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let events = weir.events(8).await;
    let late = events.iter().filter(|e| e["attempts"][0]["error"] == "connect").count();
    assert_eq!(late, 4, "{events:?}");
}
