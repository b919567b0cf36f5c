//! Gauges of providers' targets and credentials, read at each scrape.

use parking_lot::RwLock;
use prometheus::{IntGaugeVec, Opts, Registry};

/// Rows of one scrape, breakers and credentials each: more targets than that are watched by their
/// provider's logs, not by a scraper.
const ROWS_MAX: usize = 2_000;

/// One gauge's value.
#[derive(Debug, Clone, Copy)]
pub enum Row<'a> {
    /// A breaker: 0 closed, 1 half-open, 2 open.
    Breaker {
        /// Whose.
        provider: &'a str,
        /// The provider's name of the model.
        model: &'a str,
        /// As above.
        state: u8,
    },
    /// A credential: 0 in use, 1 too fast, 2 out of money or quota, 3 refused.
    Credential {
        /// Whose.
        provider: &'a str,
        /// Its name, never its secret.
        credential: &'a str,
        /// As above.
        state: u8,
    },
}

type Probe = Box<dyn Fn(&mut dyn FnMut(Row<'_>)) + Send + Sync>;

/// Both families, and who tells their rows.
pub struct Targets {
    breakers: IntGaugeVec,
    credentials: IntGaugeVec,
    probe: RwLock<Option<Probe>>,
}

impl Targets {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            let made = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(made.clone()))?;
            prometheus::Result::Ok(made)
        };
        Ok(Self {
            breakers: gauge(
                "weir_breaker_state",
                "0 closed, 1 half-open, 2 open.",
                &["provider", "model"],
            )?,
            credentials: gauge(
                "weir_credential_state",
                "0 in use, 1 too fast, 2 out of money or quota, 3 refused.",
                &["provider", "credential"],
            )?,
            probe: RwLock::new(None),
        })
    }

    /// Who tells the rows, at each scrape.
    pub fn on_scrape(&self, probe: impl Fn(&mut dyn FnMut(Row<'_>)) + Send + Sync + 'static) {
        *self.probe.write() = Some(Box::new(probe));
    }

    /// Sets every gauge anew; rows that are not told any more are gone.
    pub(super) fn read(&self) {
        self.breakers.reset();
        self.credentials.reset();
        let (mut breakers, mut credentials) = (0, 0);
        let mut tell = |row: Row<'_>| match row {
            Row::Breaker { provider, model, state } if breakers < ROWS_MAX => {
                breakers += 1;
                self.breakers.with_label_values(&[provider, model]).set(i64::from(state));
            }
            Row::Credential { provider, credential, state } if credentials < ROWS_MAX => {
                credentials += 1;
                self.credentials.with_label_values(&[provider, credential]).set(i64::from(state));
            }
            _ => {}
        };
        if let Some(probe) = self.probe.read().as_ref() {
            probe(&mut tell);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use prometheus::TextEncoder;

    #[test]
    fn what_is_told_is_shown_and_nothing_else() {
        let registry = Registry::new();
        let targets = Targets::new(&registry).unwrap();
        let text = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        targets.on_scrape(|tell| {
            tell(Row::Breaker { provider: "a", model: "m", state: 2 });
            tell(Row::Credential { provider: "a", credential: "key-1", state: 3 });
        });
        targets.read();
        assert!(text().contains("weir_breaker_state{model=\"m\",provider=\"a\"} 2"));
        assert!(text().contains("weir_credential_state{credential=\"key-1\",provider=\"a\"} 3"));
        targets.on_scrape(|_| {});
        targets.read();
        assert!(!text().contains("provider=\"a\""));
    }
}
