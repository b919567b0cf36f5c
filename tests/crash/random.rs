//! `kill -9` at random, under streams.

use super::*;
use crate::harness::client::Piece;
use crate::harness::reply::End;
use std::time::Duration;

/// One client that asks until its gateway is gone; the ids of the answers it saw finished, and of
/// those it began.
async fn ask_on(port: u16, name: String) -> (Vec<String>, Vec<String>) {
    let (mut finished, mut begun) = (vec![], vec![]);
    for i in 0.. {
        let Ok(probe) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else { break };
        drop(probe);
        let id = format!("{name}-{i}");
        let ask = if i % 4 == 3 { chat() } else { streamed().say("words=6 delay=0.004") };
        let ask = ask.with("x-request-id", &id);
        let Some(mut client) = Client::try_connect(port).await else { break };
        if !client.try_send(&ask.bytes()).await {
            break;
        }
        begun.push(id.clone());
        let Some(head) = client.try_head().await else { break };
        assert_eq!(head.status, 200);
        let mut text = String::new();
        let end = loop {
            match client.piece().await {
                Piece::Data(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
                Piece::End(end) => break end,
            }
        };
        let json = head.header("content-length").is_some();
        if text.contains("[DONE]") || (json && end == End::Clean) {
            finished.push(id);
        }
    }
    (finished, begun)
}

#[tokio::test]
async fn ten_kills_at_random_lose_no_answer_that_a_client_saw_and_double_none() {
    let provider = provider(knobs()).await;
    let mut weir = Weir::prepare(&toml::simple(&provider), Tables::default(), &[]).await;
    let (mut finished, mut begun) = (vec![], vec![]);
    for round in 0..10_u64 {
        weir.run();
        weir.ready().await;
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..8 {
            clients.spawn(ask_on(weir.port, format!("r{round}c{client}")));
        }
        // At any point of the streams' lives: this wait is the test's dice, not its hope.
        let wait = 60 + fastrand::u64(0..120);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        weir.kill().await;
        for (done, all) in clients.join_all().await {
            finished.extend(done);
            begun.extend(all);
        }
    }
    assert!(finished.len() > 20, "only {} answers were finished", finished.len());
    weir.run();
    weir.ready().await;
    let end = chat().with("x-request-id", "the-last");
    assert_eq!(weir.ask(&end).await.status(), 200);
    let there = || ledger(&weir).values().any(|r| r.request == "the-last").then_some(());
    found("the last row", there).await;
    let rows: Vec<Row> = ledger(&weir).into_values().collect();
    let mut by_request: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        by_request.entry(&row.request).or_default().push(row);
    }
    let twice = by_request.values().find(|rows| rows.len() > 1);
    assert!(twice.is_none(), "{twice:?}");
    for id in &finished {
        let row = by_request.get(id.as_str()).unwrap_or_else(|| panic!("{id} has no row"));
        assert_eq!(row[0].outcome, "success", "{id}");
    }
    // What has a row was asked for, and what is no success was never seen finished.
    for row in rows.iter().filter(|r| r.request != "the-last") {
        assert!(begun.contains(&row.request), "{row:?}");
        assert!(row.outcome == "success" || !finished.contains(&row.request), "{row:?}");
    }
    assert_eq!(summed(&weir), rows.len() as u64);
    let events = crate::harness::spool::read(&weir.spool());
    let mut once = ids(&events);
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), rows.len(), "spool and ledger agree");
}
