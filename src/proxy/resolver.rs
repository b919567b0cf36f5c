//! Providers' addresses, looked up in the background: no request waits for a name twice, and none
//! fails because a name server does for a while. A name that has no address is asked for once at a
//! time and once a second, however many requests want it: each question costs a thread.

use super::dial::Way;
use crate::flow::Gateway;
use crate::route::Base;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Between two look-ups of a name in use. `getaddrinfo` tells no lifetime.
const REFRESH: Duration = Duration::from_secs(30);
/// Look-ups at once: each is a thread.
const TOGETHER_MAX: usize = 16;
/// How long a failed look-up answers for those that come after it.
const FAILED_KEEP: Duration = Duration::from_secs(1);

/// One name's addresses, used in turn.
#[derive(Debug)]
pub struct Known {
    addresses: Vec<SocketAddr>,
    /// Beside each address: the last connection to it failed. Forgotten at the next look-up.
    failed: Vec<AtomicBool>,
    turn: AtomicUsize,
}

impl Known {
    /// Addresses that nothing is known of yet.
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        let failed = addresses.iter().map(|_| AtomicBool::new(false)).collect();
        Self { addresses, failed, turn: AtomicUsize::new(0) }
    }

    /// This turn's: the next that has not failed, or the next.
    fn next(&self) -> Option<SocketAddr> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let from = turn.checked_rem(self.addresses.len())?;
        let sound = |at: &usize| !self.failed.get(*at).is_some_and(|f| f.load(Ordering::Relaxed));
        let at = (from..self.addresses.len()).chain(0..from).find(sound).unwrap_or(from);
        self.addresses.get(at).copied()
    }

    /// Every address, this one first and those that failed last.
    pub fn from(&self, first: SocketAddr) -> Vec<SocketAddr> {
        let mut order: Vec<_> = self.addresses.iter().copied().zip(&self.failed).collect();
        order.sort_by_key(|(a, failed)| (*a != first, failed.load(Ordering::Relaxed)));
        order.into_iter().map(|(address, _)| address).collect()
    }

    /// Whether a connection to an address could be made.
    pub fn answers(&self, address: SocketAddr, well: bool) {
        let at = self.addresses.iter().position(|a| *a == address);
        if let Some(failed) = at.and_then(|at| self.failed.get(at)) {
            failed.store(!well, Ordering::Relaxed);
        }
    }

    fn forgive(&self) {
        self.failed.iter().for_each(|failed| failed.store(false, Ordering::Relaxed));
    }
}

/// A name and a port.
type Name = (String, u16);

/// The last failed look-up of a name; locked while one is under way.
type Failed = Arc<tokio::sync::Mutex<Option<(Instant, String)>>>;

/// Every provider's addresses.
#[derive(Debug, Default)]
pub struct Resolver {
    known: RwLock<HashMap<Name, Arc<Known>>>,
    /// Of names without an address, for as long as a provider uses them.
    failed: Mutex<HashMap<Name, Failed>>,
}

impl Resolver {
    /// The way to a provider, by its next address. Looks up only what has never been looked up.
    ///
    /// # Errors
    /// The name has no address, in the resolver's words.
    pub async fn way(&self, base: &Base) -> Result<Way, String> {
        if let Ok(ip) = base.host.parse::<IpAddr>() {
            return Ok(Way { address: SocketAddr::new(ip, base.port), known: None });
        }
        let name = (base.host.clone(), base.port);
        let known = self.known.read().get(&name).cloned();
        let known = match known {
            Some(known) => known,
            None => self.look_up_once(name).await?,
        };
        let address = known.next().ok_or_else(|| format!("no address for {}", base.host))?;
        let known = (known.addresses.len() > 1).then_some(known);
        Ok(Way { address, known })
    }

    /// One look-up for all that wait for it.
    async fn look_up_once(&self, name: Name) -> Result<Arc<Known>, String> {
        let failed = self.failed.lock().entry(name.clone()).or_default().clone();
        let mut failed = failed.lock().await;
        if let Some(known) = self.known.read().get(&name) {
            return Ok(known.clone());
        }
        if let Some((at, why)) = &*failed
            && at.elapsed() < FAILED_KEEP
        {
            return Err(why.clone());
        }
        let found = self.look_up(name).await;
        *failed = found.as_ref().err().map(|why| (Instant::now(), why.clone()));
        found
    }

    /// Names that are known, and those that were asked for in vain.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.read().len() + self.failed.lock().len()
    }

    /// Whether no name was asked for yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    async fn look_up(&self, name: Name) -> Result<Arc<Known>, String> {
        let found = tokio::net::lookup_host((name.0.as_str(), name.1)).await;
        let found = found.map(Iterator::collect);
        let mut addresses: Vec<SocketAddr> =
            found.map_err(|error| format!("cannot resolve {}: {error}", name.0))?;
        addresses.sort();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(format!("no address for {}", name.0));
        }
        let old = self.known.read().get(&name).cloned();
        if let Some(old) = old.filter(|old| old.addresses == addresses) {
            old.forgive();
            return Ok(old);
        }
        let known = Arc::new(Known::new(addresses));
        self.known.write().insert(name, known.clone());
        Ok(known)
    }

    /// Looks up every provider's name now; those that fail keep their last good addresses. Names
    /// that no provider uses any more are forgotten.
    pub async fn refresh(self: &Arc<Self>, gateway: &Gateway) {
        let snapshot = gateway.snapshot.load_full();
        let mut used = Vec::new();
        for provider in snapshot.routes.providers.values() {
            let base = &provider.base;
            if provider.through.is_none() && base.host.parse::<IpAddr>().is_err() {
                used.push((base.host.clone(), base.port));
            }
        }
        used.sort();
        used.dedup();
        // Side by side: a name server that is silent for one must not keep the others old.
        let mut asked = JoinSet::new();
        for name in &used {
            if asked.len() >= TOGETHER_MAX {
                asked.join_next().await;
            }
            let (resolver, name) = (self.clone(), name.clone());
            asked.spawn(async move {
                if let Err(error) = resolver.look_up(name).await {
                    log::warn!("dns: {error}");
                }
            });
        }
        while asked.join_next().await.is_some() {}
        self.known.write().retain(|name, _| used.contains(name));
        let known = self.known.read();
        self.failed.lock().retain(|name, _| used.contains(name) && !known.contains_key(name));
    }
}

/// Keeps the addresses fresh for as long as it is polled.
pub async fn run(resolver: Arc<Resolver>, gateway: Arc<Gateway>) {
    loop {
        resolver.refresh(&gateway).await;
        tokio::time::sleep(REFRESH).await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn base(host: &str) -> Base {
        Base { tls: false, host: host.into(), port: 80, path: String::new() }
    }

    #[tokio::test]
    async fn addresses_need_no_look_up_and_unknown_names_are_errors() {
        let resolver = Resolver::default();
        let six = resolver.way(&base("::1")).await.unwrap();
        assert!(six.address == "[::1]:80".parse().unwrap() && six.known.is_none());
        assert!(resolver.way(&base("localhost")).await.is_ok());
        assert!(resolver.way(&base("no-such-name.invalid")).await.is_err());
    }

    #[tokio::test]
    async fn a_name_that_has_moved_is_followed_at_the_next_look_up() {
        let resolver = Resolver::default();
        let name: Name = ("localhost".into(), 80);
        let old: SocketAddr = "127.9.9.9:80".parse().unwrap();
        resolver.known.write().insert(name.clone(), Arc::new(Known::new(vec![old])));
        assert_eq!(resolver.way(&base("localhost")).await.unwrap().address, old);
        resolver.look_up(name.clone()).await.unwrap();
        let new = resolver.way(&base("localhost")).await.unwrap().address;
        assert!(new != old && new.ip().is_loopback(), "{new}");
        // A look-up that fails leaves what was known.
        let gone: Name = ("no-such-name.invalid".into(), 80);
        resolver.known.write().insert(gone.clone(), Arc::new(Known::new(vec![old])));
        assert!(resolver.look_up(gone).await.is_err());
        assert_eq!(resolver.way(&base("no-such-name.invalid")).await.unwrap().address, old);
    }

    #[tokio::test]
    async fn a_name_without_an_address_is_asked_for_once_for_all_that_want_it() {
        let resolver = Arc::new(Resolver::default());
        let ask = |resolver: Arc<Resolver>| async move {
            resolver.way(&base("no-such-name.invalid")).await.unwrap_err()
        };
        let first = ask(resolver.clone()).await;
        let failed = resolver.failed.lock().values().next().unwrap().clone();
        let asked = failed.lock().await.as_ref().unwrap().0;
        let all: tokio::task::JoinSet<String> = (0..100).map(|_| ask(resolver.clone())).collect();
        assert!(all.join_all().await.into_iter().all(|why| why == first));
        assert_eq!(failed.lock().await.as_ref().unwrap().0, asked, "nobody asked again");
        assert_eq!(resolver.len(), 1);
        // Its answer holds for a moment only.
        let before = Instant::now().checked_sub(FAILED_KEEP);
        failed.lock().await.as_mut().unwrap().0 = before.unwrap();
        ask(resolver).await;
        assert!(failed.lock().await.as_ref().unwrap().0 > asked);
    }

    #[test]
    fn addresses_take_turns_and_one_that_failed_waits_for_the_next_look_up() {
        let all: Vec<SocketAddr> =
            ["127.0.0.1:1", "127.0.0.2:1", "[::1]:1"].map(|a| a.parse().unwrap()).into();
        let known = Known::new(all.clone());
        let turns = |n: usize| (0..n).map(|_| known.next().unwrap()).collect::<Vec<_>>();
        assert_eq!(turns(4), [all[0], all[1], all[2], all[0]]);
        known.answers(all[1], false);
        assert!(!turns(6).contains(&all[1]));
        assert_eq!(known.from(all[2]), [all[2], all[0], all[1]], "this one, and the failed last");
        known.answers(all[0], false);
        known.answers(all[2], false);
        assert_eq!(turns(3).len(), 3, "where all failed, any is as good");
        known.forgive();
        let mut three = turns(3);
        three.sort();
        assert_eq!(three, all);
    }
}
