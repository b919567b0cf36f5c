//! Limits, windows and budgets as config writes them: what is taken, and every fault.

use super::{P, check, sound};
use weir::limit::{Kind, Measure, Per, Scope};

fn key(lines: &str) -> String {
    format!("{P}[keys.k]\nsecret = \"env:SET\"\n{lines}\n")
}

#[test]
fn every_rule_has_an_identity_of_its_own() {
    let text = key("limits = [{ rpm = 3, rps = 2, burst = 9 }, { rpm = 1, models = [\"m\"] }]\n\
         windows = [{ tokens = 5, per = \"15m\" }]\n\
         budgets = [{ usd = 0.000000001, per = \"week\" }, { tokens = 7, per = \"week\" }]");
    let rules = sound(&text).snapshot.rules;
    let mut ids: Vec<_> = rules.of(Scope::Key, "k").map(|r| r.id.to_string()).collect();
    ids.sort();
    let want = [
        "key:k/budget/tokens/week",
        "key:k/budget/usd/week",
        "key:k/rpm",
        "key:k/rpm[m|]",
        "key:k/rps",
        "key:k/window/tokens/900s",
    ];
    assert_eq!(ids, want);
    for rule in rules.of(Scope::Key, "k") {
        match (&*rule.name, &rule.kind) {
            ("rpm", Kind::Bucket { amount, burst, .. }) => assert_eq!(amount, burst),
            ("rps", Kind::Bucket { amount, burst, .. }) => assert_eq!((*amount, *burst), (2, 9)),
            ("usd per week", Kind::Budget { measure, amount, per, .. }) => {
                assert_eq!((*measure, *amount, *per), (Measure::Money, 1, Per::Week));
            }
            _ => {}
        }
    }
}

#[test]
fn what_makes_no_sense_is_a_fault_with_its_place() {
    let faults = [
        ("limits = { rpm = 0 }", "limits.rpm: 0 is not within 1"),
        ("limits = { rpm = -1 }", "-1 is not within"),
        ("limits = { rpm = 1.5 }", "a whole number is needed"),
        ("limits = {}", "limits nothing"),
        ("limits = { rmp = 1, tpm = 1 }", "did you mean \"rpm\""),
        ("limits = { burst = 5, tpm = 1 }", "needs rpm or rps beside it"),
        ("limits = { burst_tokens = 5, rpm = 1 }", "needs tpm or tps beside it"),
        ("limits = [{ rpm = 1 }, { rpm = 2 }]", "rpm stands twice"),
        ("limits = { rpm = 1, models = [\"nobody\"] }", "nobody serves \"nobody\""),
        ("limits = { rpm = 1, models = [] }", "holds for nothing"),
        ("limits = { rpm = 1, endpoints = [\"chats\"] }", "no endpoint \"chats\""),
        ("limits = { rpm = 1, on_exhausted = \"stop\" }", "none of finish, cut"),
        ("limits = { rpm = 1, penalty = \"0s\" }", "penalty"),
        ("windows = [{ tokens = 5 }]", "needs `per`"),
        ("windows = [{ tokens = 5, per = \"500ms\" }]", "is under a second"),
        ("windows = [{ tokens = 5, requests = 5, per = \"hour\" }]", "either `requests` or"),
        ("budgets = [{ usd = 1.0 }]", "needs `per`"),
        ("budgets = [{ usd = -1.0, per = \"day\" }]", "an amount of dollars"),
        ("budgets = [{ usd = \"20\", per = \"day\" }]", "an amount of dollars"),
        ("budgets = [{ usd = 1.0, per = \"year\" }]", "none of hour, day, week, month, ever"),
        ("budgets = [{ usd = 1.0, per = \"day\", alert = 80 }]", "a part of the budget"),
        ("budgets = [{ usd = 1.0, per = \"day\", downgrade = { at = 0.9 } }]", "`at` and `to`"),
    ];
    for (line, fault) in faults {
        check(&key(line), fault);
    }
    let second = "budgets = [{ usd = 1, per = \"day\" }, { usd = -1, per = \"week\" }]";
    check(&key(second), "keys.k.budgets[1].usd: an amount of dollars");
    check("[alerts]\ntime_zone = \"Mars/Olympus\"\n", "is no time zone");
    check("time_zone = \"UTC\"\n", "time_zone: unknown key");
    check("[server]\ndefault_output = \"some\"\n", "none of learned, max");
    check("[redis]\nprefix = \"x\"\n", "needs a url");
    check("[redis]\nurl = \"http://h\"\n", "is no \"redis://");
}

#[test]
fn a_zone_needs_no_files_of_the_system() {
    let rules = sound("[alerts]\ntime_zone = \"Asia/Shanghai\"\n").snapshot.rules;
    assert_eq!(rules.zone.iana_name(), Some("Asia/Shanghai"));
}
