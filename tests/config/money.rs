//! Prices: exact, in any currency, and refused where the unit is mistaken.

use super::{P, check, faults, sound};
use weir::config::Unpriced;
use weir_filters::usage::{NanoUsd, Price, Rates};

/// One provider with one model of this price, and what stands before it.
fn text(before: &str, price: &str) -> String {
    let table = P.split("price").next().unwrap();
    format!("{before}\n{table}price = {{ {price} }}\n")
}

fn price(before: &str, line: &str) -> Price {
    let loaded = sound(&text(before, line));
    let (_, provider) = loaded.snapshot.routes.providers.into_iter().next().unwrap();
    Price::clone(provider.offer("m").unwrap().price.as_ref().unwrap())
}

#[test]
fn prices_are_exact_in_nano_usd_per_million() {
    let input = |text: &str| price("", &format!("input = {text}, output = 0")).base.input;
    for (text, nano) in [
        ("2.5", 2_500_000_000),
        ("0", 0),
        ("0.0", 0),
        ("3", 3_000_000_000),
        ("0.075", 75_000_000),
        ("1_000.0", 1_000_000_000_000),
        ("1e-3", 1_000_000),
        ("1.5E2", 150_000_000_000),
        ("0.0001", 100_000),
        ("0.1234567891", 123_456_789),
        ("0.1234567895", 123_456_790),
    ] {
        assert_eq!(input(text), nano, "{text}");
    }
}

#[test]
fn currencies_are_converted_exactly_and_need_a_rate() {
    let cny = "currency = \"CNY\", input = 0.5, output = 2.0";
    let rates = price("[currency]\nCNY = 0.14\n", cny).base;
    assert_eq!((rates.input, rates.output), (70_000_000, 280_000_000));
    assert_eq!(price("[currency]\nCNY = 0.1379\n", cny).base.output, 275_800_000);
    check(
        &text("", cny),
        "weir.toml:8: providers.p.models.m.price.currency: CNY has no rate in [currency]",
    );
    check("[currency]\nCNY = 0\n", "currency.CNY: a rate of zero");
    check("[currency]\nCNY = -0.1\n", "is below zero");
    check("[currency]\nUSD = 1.1\n", "USD itself is 1");
    check("[currency]\nyuan = 0.14\n", "currency.yuan: is no currency");
    check("[currency]\nCNY = \"0.14\"\n", "a number, its worth in USD");
}

#[test]
fn what_is_not_said_costs_what_input_and_output_cost() {
    let p = price("", "input = 2.0, output = 8.0, per_request = 0.001");
    let base = Rates {
        input: 2_000_000_000,
        cached_input: 2_000_000_000,
        cache_write: 2_000_000_000,
        output: 8_000_000_000,
        reasoning: None,
    };
    assert_eq!((p.base, p.per_request, p.source.as_str()), (base, NanoUsd(1_000_000), "config"));
    let p = price(
        "",
        "input = 2.0, cached_input = 0.0, cache_write = 2.5, output = 8.0, reasoning = 9.0",
    );
    assert_eq!(
        (p.base.cached_input, p.base.cache_write, p.base.reasoning),
        (0, 2_500_000_000, Some(9_000_000_000))
    );
}

#[test]
fn tiers_ascend() {
    let tier = |above: u64| format!("{{ above = {above}, input = 2.5, output = 15.0 }}");
    let line = |a, b| format!("input = 1.25, output = 10, tiers = [{}, {}]", tier(a), tier(b));
    let steps: Vec<u64> =
        price("", &line(200_000, 500_000)).tiers.iter().map(|(above, _)| *above).collect();
    assert_eq!(steps, [200_000, 500_000]);
    check(
        &text("", &line(200_000, 200_000)),
        "providers.p.models.m.price.tiers[1].above: tiers must ascend",
    );
    check(
        &text("", "input = 1, output = 1, tiers = [{ input = 1, output = 1 }]"),
        "a tier needs `above`",
    );
}

/// Hazard C05: a price in the wrong unit would be off by a million.
#[test]
fn a_price_in_the_wrong_unit_is_refused() {
    check(&text("", "input = 1000.1, output = 1"), "is over USD 1 per 1,000 tokens");
    check(&text("", "input = 0.0000025, output = 1"), "is under USD 0.0001 per million tokens");
    check(
        &text("[currency]\nKWD = 3.25\n", "currency = \"KWD\", input = 400, output = 1"),
        "over USD 1",
    );
    for wrong in ["-1.0", "nan", "inf", "\"2.5\"", "1e300", "0.123456789012345678"] {
        let found = faults(&text("", &format!("input = {wrong}, output = 1.0")));
        assert!(found.contains("price.input: "), "{wrong}: {found}");
    }
    let found = faults(&text("", "input_cost_per_token = 0.0000025, output = 1"));
    assert!(found.contains("price.input_cost_per_token: unknown key"), "{found}");
}

/// Hazard C02: free is written, never meant.
#[test]
fn a_model_without_a_price_is_told_or_refused_never_silently_free() {
    check(&text("", "output = 1.0"), "has no `input` price; write 0.0 where it is free");
    check(&text("", "input = 1.0"), "has no `output` price");
    let free =
        format!("{P}[models.x]\ntargets = [\"p/other\"]\n[providers.p.models.bare]\ncontext = 1\n");
    let loaded = sound(&free);
    let warned: Vec<String> =
        loaded.warnings.iter().map(|w| format!("{}: {}", w.key, w.message)).collect();
    assert_eq!(
        warned,
        [
            "providers.p: no price for bare: their cost is unknown",
            "models.x.targets[0]: p/other has no price: its cost is unknown"
        ]
    );
    let refuse = format!("{free}[server]\nunpriced = \"refuse\"\n");
    check(&refuse, "models.x.targets[0]: p/other has no price, and server.unpriced is \"refuse\"");
    let flat = sound(&format!("{free}[server]\nunpriced = {{ input = 1.0, output = 5.0 }}\n"));
    let Unpriced::Price(price) = &flat.snapshot.server.unpriced else { panic!("no price") };
    assert_eq!((price.base.output, flat.warnings.len()), (5_000_000_000, 0));
    check("[server]\nunpriced = \"wran\"\n", "did you mean \"warn\"?");
}
