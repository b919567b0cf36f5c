//! Any order of appends, passes, rotations and kills.

use super::{Home, beginning, event, hex, now};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir::meter::{Event, Ledger, Spool};

/// What can happen to a gateway.
#[derive(Debug, Clone)]
enum Act {
    Append,
    Admit,
    /// The oldest running stream ends.
    Finish,
    /// A line that was appended before is appended again.
    Repeat,
    Rotate,
    Pass,
    /// `kill -9` at the n-th step of a pass, or after it, and a new process.
    Kill(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => Just(Act::Append),
        3 => Just(Act::Admit),
        2 => Just(Act::Finish),
        1 => Just(Act::Repeat),
        1 => Just(Act::Rotate),
        2 => Just(Act::Pass),
        2 => (0usize..12).prop_map(Act::Kill),
    ]
}

/// A gateway's process: what it holds.
struct Process {
    home: Arc<Home>,
    spool: Spool,
    ledger: Ledger,
    hours: u64,
    /// Counts steps down to the one at which an image is taken.
    at: Arc<Mutex<(usize, Option<Home>)>>,
}

impl Process {
    fn start(home: Home) -> Self {
        let (home, at) = (Arc::new(home), Arc::new(Mutex::new((usize::MAX, None))));
        let spool = home.spool();
        let (of, into) = (Arc::clone(&home), Arc::clone(&at));
        let probe = Box::new(move |_| {
            let mut at = into.lock().unwrap();
            at.0 = at.0.saturating_sub(1);
            if at.0 == 0 && at.1.is_none() {
                at.1 = Some(of.image());
            }
        });
        let mut ledger = home.ledger().spool_keep(Duration::ZERO).probe(probe);
        ledger.apply_all(&spool, now()).unwrap();
        Self { home, spool, ledger, hours: 0, at }
    }
    fn kill(mut self, step: usize) -> Self {
        *self.at.lock().unwrap() = (step + 1, None);
        self.ledger.pass(&self.spool, now()).unwrap();
        let image = self.at.lock().unwrap().1.take();
        Self::start(image.unwrap_or_else(|| self.home.image()))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn any_life_of_a_gateway_gives_one_row_per_request(
        acts in prop::collection::vec(act(), 1..40),
    ) {
        let mut process = Process::start(Home::new());
        let (mut want, mut running, mut old) = (BTreeMap::new(), Vec::new(), Vec::<Event>::new());
        for act in acts {
            match act {
                Act::Append => old.push(event()),
                Act::Admit => {
                    running.push(event());
                    process.spool.admit(&beginning(running.last().unwrap()));
                    continue;
                }
                Act::Finish if !running.is_empty() => old.push(running.remove(0)),
                Act::Repeat if !old.is_empty() => {}
                Act::Finish | Act::Repeat => continue,
                Act::Rotate => {
                    process.hours += 2;
                    process.spool.tick(Instant::now() + Duration::from_secs(3600 * process.hours));
                    continue;
                }
                Act::Pass => {
                    process.ledger.pass(&process.spool, now()).unwrap();
                    continue;
                }
                Act::Kill(step) => {
                    process = process.kill(step);
                    let dead = running.drain(..);
                    want.extend(dead.map(|e| (hex(&e), ("interrupted".to_string(), 0))));
                    old.retain(|e| want[&hex(e)].0 == "success");
                    continue;
                }
            }
            let event = old.last().unwrap();
            process.spool.append(event);
            want.insert(hex(event), ("success".to_string(), 3));
        }
        let process = process.kill(usize::MAX - 1);
        want.extend(running.iter().map(|e| (hex(e), ("interrupted".to_string(), 0))));
        prop_assert_eq!(process.home.rows(), want);
        process.home.check_sums();
        prop_assert_eq!(process.spool.stats().skipped(), 0);
    }
}
