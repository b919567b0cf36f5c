//! What config made, read-only and without a secret: providers and models.

use crate::route::{Auth, Model, Offer, Provider, Table};
use serde_json::{Value, json};
use std::time::Duration;
use weir_filters::wire::WIRES;

/// `{"providers":[…]}`, by name. Credentials are names and weights.
pub fn providers(table: &Table) -> Value {
    json!({"providers": table.providers.values().map(|p| provider(p)).collect::<Vec<_>>()})
}

/// `{"models":[…]}`: the `[models]` tables in the order they are tried, then every other exact
/// name a caller can ask for.
pub fn models(table: &Table) -> Value {
    let mut all: Vec<Value> = table.models.iter().map(|m| model(m, true)).collect();
    let listed = |name: &str| table.models.iter().any(|m| m.name.as_str() == name);
    let direct = table.names().into_iter().filter(|n| !listed(n));
    all.extend(direct.filter_map(|n| table.resolve(&n).map(|m| model(&m, false))));
    json!({"models": all})
}

fn provider(p: &Provider) -> Value {
    let scheme = if p.base.tls { "https" } else { "http" };
    let wire = WIRES.iter().find(|(_, wire)| *wire == p.wire).map(|(name, _)| *name);
    let credentials = p.credentials.iter().map(|c| json!({"name": c.name, "weight": c.weight}));
    let t = &p.timeouts;
    json!({
        "name": p.id.as_str(),
        "wire": wire,
        "base_url": format!("{scheme}://{}{}", p.base.authority(), p.base.path),
        "auth": auth(&p.auth),
        "api_version": p.api_version,
        "credentials": credentials.collect::<Vec<_>>(),
        "timeouts_ms": {
            "connect": ms(t.connect), "first_token": ms(t.first_token), "idle": ms(t.idle),
            "write": ms(t.write), "reply": ms(t.reply), "total": ms(t.total),
        },
        "retry_attempts": p.retry.attempts,
        "models": p.offers.iter().map(offer).collect::<Vec<_>>(),
        "source": "file",
    })
}

fn model(m: &Model, listed: bool) -> Value {
    let target = |t: &crate::route::Target| {
        json!({"provider": t.provider.id.as_str(), "model": t.model, "weight": t.weight,
               "priority": t.priority})
    };
    json!({
        "name": m.name.as_str(),
        "strict": m.strict,
        "targets": m.targets.iter().map(target).collect::<Vec<_>>(),
        "source": if listed { "file" } else { "provider" },
    })
}

fn offer(o: &Offer) -> Value {
    let price = o.price.as_ref().map(|p| {
        json!({"input_nano_usd_per_million": p.base.input,
               "cached_input_nano_usd_per_million": p.base.cached_input,
               "cache_write_nano_usd_per_million": p.base.cache_write,
               "output_nano_usd_per_million": p.base.output,
               "source": p.source})
    });
    json!({"name": o.name.as_str(), "price": price, "context": o.context,
           "max_output": o.max_output, "tags": o.tags})
}

/// As config writes it; the name of a query parameter is none of its value.
fn auth(auth: &Auth) -> String {
    match auth {
        Auth::Bearer => "bearer".to_owned(),
        Auth::Header(name) => (*name).to_owned(),
        Auth::Query(name) => format!("query:{name}"),
        Auth::None => "none".to_owned(),
    }
}

fn ms(time: Option<Duration>) -> Option<u64> {
    time.map(|t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX))
}
