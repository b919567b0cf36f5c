//! Config that changes under load.

use super::*;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Clients that ask without a pause; each failed request is kept.
struct Load {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    clients: tokio::task::JoinSet<()>,
}

impl Load {
    fn start(port: u16) -> Self {
        let (stop, served) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut clients = tokio::task::JoinSet::new();
        for i in 0..4 {
            let (stop, served) = (stop.clone(), served.clone());
            clients.spawn(async move {
                let mut client = Client::connect(port).await;
                while !stop.load(Ordering::Acquire) {
                    let ask =
                        if i % 2 == 0 { chat() } else { streamed().say("words=4 delay=0.01") };
                    let reply = client.ask(&ask).await;
                    assert_eq!(reply.status(), 200, "{}", reply.text());
                    assert!(i % 2 == 0 || reply.done(), "{}", reply.text());
                    served.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        Self { stop, served, clients }
    }
    /// Waits until more requests have been served from now on.
    async fn more(&self) {
        let want = self.served.load(Ordering::Acquire) + 20;
        let enough = || (self.served.load(Ordering::Acquire) >= want).then_some(());
        found("twenty more answers", enough).await;
    }
    async fn end(self) -> usize {
        self.stop.store(true, Ordering::Release);
        self.clients.join_all().await;
        self.served.load(Ordering::Acquire)
    }
}

async fn reloads(weir: &Weir, result: &str) -> f64 {
    let name = "weir_config_reloads_total";
    weir.metric(name, &[("result", result)]).await.unwrap_or_default()
}

/// Waits for one reload more of this result.
async fn reloaded(weir: &Weir, result: &str, before: f64) {
    let start = std::time::Instant::now();
    while reloads(weir, result).await <= before {
        assert!(start.elapsed() < PATIENCE, "no reload: {}", weir.stderr());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// The config file with a line before all tables.
fn lead(weir: &Weir, line: &str) {
    let text = fs::read_to_string(weir.config()).unwrap();
    let new = weir.path().join("weir.toml.lead");
    fs::write(&new, format!("{line}\n{text}")).unwrap();
    fs::rename(new, weir.config()).unwrap();
}

#[tokio::test]
async fn no_request_fails_while_config_is_moved_in_added_and_broken() {
    let provider = provider(knobs()).await;
    let config = toml::simple(&provider);
    let mut weir = Weir::prepare(&config, Tables::default(), &[]).await;
    fs::create_dir(weir.path().join("conf.d")).unwrap();
    lead(&weir, "include = [\"conf.d/*.toml\"]");
    weir.run();
    weir.ready().await;
    let load = Load::start(weir.port);
    load.more().await;
    let counted = weir.metric("weir_requests_total", &[]).await.unwrap();

    // A new file in the glob.
    assert_eq!(weir.ask(&chat().model("n")).await.status(), 404);
    let before = reloads(&weir, "ok").await;
    fs::write(weir.path().join("conf.d/n.toml"), toml::model("n", &["a/up-model"])).unwrap();
    reloaded(&weir, "ok", before).await;
    assert_eq!(weir.ask(&chat().model("n")).await.status(), 200);
    load.more().await;

    // The main file, moved into place.
    let before = reloads(&weir, "ok").await;
    weir.write(&[&config, &toml::model("o", &["a/up-model"])].map(String::as_str).concat());
    lead(&weir, "include = [\"conf.d/*.toml\"]");
    reloaded(&weir, "ok", before).await;
    assert_eq!(weir.ask(&chat().model("o")).await.status(), 200);
    load.more().await;

    // A broken file: the old config stays, and the log says where it is broken.
    let (fine, before) = (reloads(&weir, "ok").await, reloads(&weir, "error").await);
    fs::write(weir.path().join("conf.d/x.toml"), "[models.\"x\"]\ntargets = [{ to = \"no").unwrap();
    reloaded(&weir, "error", before).await;
    assert!(weir.stderr().contains("x.toml"), "{}", weir.stderr());
    for model in ["m", "n", "o"] {
        assert_eq!(weir.ask(&chat().model(model)).await.status(), 200);
    }
    load.more().await;
    assert_eq!(reloads(&weir, "ok").await, fine);

    // And by a signal, once it is whole again.
    let before = reloads(&weir, "ok").await;
    fs::remove_file(weir.path().join("conf.d/x.toml")).unwrap();
    weir.signal(rustix::process::Signal::HUP);
    reloaded(&weir, "ok", before).await;
    load.more().await;
    let served = load.end().await;
    let after = weir.metric("weir_requests_total", &[]).await.unwrap();
    assert!(after > counted && after >= served as f64, "a reload resets no counter");
    assert_eq!(weir.metric("weir_events_lost_total", &[]).await, Some(0.0));
    let all = weir.metric("weir_requests_total", &[]).await.unwrap() as usize;
    assert_eq!(rows(&weir, all).await.len(), all);
}
