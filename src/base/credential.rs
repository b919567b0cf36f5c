//! A provider's credential: sent as it is, signing each request, or exchanged for a token.

use super::{Base, Secret};
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A token is renewed when so much of its life is left, or a tenth of a short life.
const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// Between two tries of an exchange, doubled from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A provider that refuses a second token within this refuses the credential itself.
const REFUSAL: Duration = Duration::from_secs(60);
/// A life that a provider does not tell, and the longest that is believed.
const LIFE: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(30 * 86_400));

/// One credential of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Its name in events: what config says, else `key-1`, `key-2` in order.
    pub name: String,
    /// What a request shows of it.
    pub proof: Proof,
    /// Its share among the provider's credentials.
    pub weight: u32,
    /// What may be asked of it; `None`: as much as comes.
    pub caps: Option<Caps>,
}

/// What may be asked of one credential; `None` of one kind: as much as comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caps {
    /// Requests a minute.
    pub rpm: Option<u64>,
    /// Tokens a minute, prompts and answers.
    pub tpm: Option<u64>,
    /// Calls at once.
    pub concurrent: Option<u64>,
}

/// What a request shows of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// The secret itself.
    Bare(Secret),
    /// A signature (AWS Signature Version 4).
    Aws(Arc<Aws>),
    /// A token that was given for it, for a while.
    Lease(Arc<Lease>),
}

/// AWS keys.
#[derive(Debug, PartialEq, Eq)]
pub struct Aws {
    /// `AKIA…`; no secret by itself.
    pub access_key_id: String,
    /// Signs.
    pub secret_access_key: Secret,
    /// Of keys that were lent for a while.
    pub session_token: Option<Secret>,
    /// Where the signature is good for.
    pub region: String,
}

/// What is exchanged for a token, and where.
#[derive(Debug, PartialEq, Eq)]
pub enum Grant {
    /// A service account of Google's: a signed claim (RFC 7523).
    Google {
        /// `token_uri`
        at: Base,
        /// `token_uri` as it is written, which the claim is addressed to.
        audience: String,
        /// `client_email`
        email: String,
        /// `private_key_id`
        key_id: Option<String>,
        /// `project_id`, of the account itself.
        project: Option<String>,
        /// `private_key`: PKCS#8 in base64, without its frame.
        key: Secret,
    },
    /// An API key and its secret key of Baidu's.
    Baidu {
        /// Where tokens are given: `/oauth/2.0/token` of the provider's host.
        at: Base,
        /// `client_id`
        api_key: Secret,
        /// `client_secret`
        secret_key: Secret,
    },
}

/// A credential that is exchanged for a token, and the token of now. Equal when the grants are.
#[derive(Debug)]
pub struct Lease {
    /// What is exchanged.
    pub grant: Grant,
    held: RwLock<Held>,
}

#[derive(Debug, Default)]
struct Held {
    token: Option<Token>,
    /// An exchange is under way.
    busy: bool,
    /// Exchanges that failed in a row.
    failures: u32,
    /// The last one was refused, not broken.
    denied: bool,
    /// No exchange before this.
    next: Option<Instant>,
    /// A token was dropped because the provider refused it.
    refused: Option<Instant>,
}

#[derive(Debug)]
struct Token {
    secret: Secret,
    renew: Instant,
    end: Instant,
}

/// Why there is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// It is being fetched.
    Soon,
    /// The exchange was refused; the next one is at this moment.
    Denied(Instant),
}

impl PartialEq for Lease {
    fn eq(&self, other: &Self) -> bool {
        self.grant == other.grant
    }
}

impl Eq for Lease {}

impl Proof {
    /// What is sent as it is; `None` where requests are signed.
    ///
    /// # Errors
    /// There is no token now.
    pub fn show(&self, now: Instant) -> Result<Option<Secret>, Lack> {
        match self {
            Self::Bare(secret) => Ok(Some(secret.clone())),
            Self::Aws(_) => Ok(None),
            Self::Lease(lease) => lease.token(now).map(Some),
        }
    }

    /// What lacks for it to be used now.
    #[must_use]
    pub fn lack(&self, now: Instant) -> Option<Lack> {
        match self {
            Self::Lease(lease) => lease.token(now).err(),
            Self::Bare(_) | Self::Aws(_) => None,
        }
    }
}

impl Lease {
    /// Without a token yet.
    #[must_use]
    pub fn new(grant: Grant) -> Self {
        Self { grant, held: RwLock::default() }
    }

    /// The token of now.
    ///
    /// # Errors
    /// There is none.
    pub fn token(&self, now: Instant) -> Result<Secret, Lack> {
        let held = self.held.read();
        match (&held.token, held.next) {
            (Some(token), _) if token.end > now => Ok(token.secret.clone()),
            (_, Some(next)) if held.denied => Err(Lack::Denied(next)),
            _ => Err(Lack::Soon),
        }
    }

    /// Takes on an exchange, where one is due. Whoever gets `true` tells how it went.
    #[must_use]
    pub fn begin(&self, now: Instant) -> bool {
        let mut held = self.held.write();
        let wanted = held.token.as_ref().is_none_or(|token| token.renew <= now);
        let due = wanted && !held.busy && held.next.is_none_or(|next| next <= now);
        held.busy |= due;
        due
    }

    /// The exchange gave a token for so long.
    pub fn granted(&self, secret: Secret, life: Option<Duration>, now: Instant) {
        let life = life.unwrap_or(LIFE.0).min(LIFE.1);
        let early = RENEW_BEFORE.min(life / 10);
        let token = Token { secret, renew: now + (life - early), end: now + life };
        let mut held = self.held.write();
        *held = Held { token: Some(token), refused: held.refused, ..Held::default() };
    }

    /// The exchange failed; `denied`: for good reason. The wait until the next one.
    pub fn failed(&self, denied: bool, now: Instant) -> Duration {
        let mut held = self.held.write();
        let wait = BACKOFF.0.saturating_mul(1 << held.failures.min(16)).min(BACKOFF.1);
        held.failures = held.failures.saturating_add(1);
        (held.busy, held.denied, held.next) = (false, denied, Some(now + wait));
        wait
    }

    /// The provider refused the token. True where that is no habit: it is dropped, and another one
    /// fetched.
    pub fn refused(&self, now: Instant) -> bool {
        let mut held = self.held.write();
        let again = |then: Instant| now.saturating_duration_since(then) < REFUSAL;
        if held.token.is_some() && held.refused.is_some_and(again) {
            return false;
        }
        // Of several requests with one token the first drops it.
        if held.token.take().is_some() {
            held.refused = Some(now);
        }
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease() -> Lease {
        let at = Base { tls: true, host: "h".into(), port: 443, path: "/t".into() };
        let (api_key, secret_key) = (Secret::new("a"), Secret::new("b"));
        Lease::new(Grant::Baidu { at, api_key, secret_key })
    }

    #[test]
    fn a_token_is_renewed_before_its_end_and_serves_until_then() {
        let (lease, now) = (lease(), Instant::now());
        assert_eq!(lease.token(now), Err(Lack::Soon));
        assert!(lease.begin(now) && !lease.begin(now), "one exchange at a time");
        lease.granted(Secret::new("one"), Some(3_600 * SECOND), now);
        assert!(!lease.begin(now + 3_299 * SECOND));
        assert!(lease.begin(now + 3_300 * SECOND));
        assert_eq!(lease.failed(true, now + 3_300 * SECOND), SECOND);
        assert_eq!(lease.token(now + 3_599 * SECOND).unwrap().expose(), "one");
        assert!(matches!(lease.token(now + 3_600 * SECOND), Err(Lack::Denied(_))));
        lease.granted(Secret::new("two"), None, now + 3_600 * SECOND);
        assert_eq!(lease.token(now + 3_601 * SECOND).unwrap().expose(), "two");
    }

    #[test]
    fn failed_exchanges_come_more_and_more_seldom() {
        let (lease, mut now) = (lease(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert!(lease.begin(now));
            let wait = lease.failed(false, now);
            assert!(!lease.begin(now + wait - Duration::from_millis(1)));
            waits.push(wait.as_secs());
            now += wait;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn a_refused_token_is_fetched_anew_and_a_second_one_within_a_minute_is_not() {
        let (lease, now) = (lease(), Instant::now());
        lease.granted(Secret::new("planted"), Some(3_600 * SECOND), now);
        assert!(lease.refused(now) && lease.refused(now), "two requests with one token");
        assert_eq!(lease.token(now), Err(Lack::Soon));
        assert!(lease.begin(now), "at once");
        lease.granted(Secret::new("two"), Some(3_600 * SECOND), now + SECOND);
        assert!(!lease.refused(now + 59 * SECOND));
        assert_eq!(lease.token(now + 59 * SECOND).unwrap().expose(), "two");
        assert!(lease.refused(now + 60 * SECOND));
        assert!(!format!("{lease:?}").contains("planted"));
    }
}
