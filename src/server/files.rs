//! File descriptors: as many as the system lets us have, and a part of them that clients cannot
//! take. Without one left nothing works any more: no provider is reached, and no segment of the
//! spool is opened.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections of clients there may be however few descriptors there are.
const CLIENTS_MIN: u64 = 64;
/// For listeners, logs, spool, ledger and the admin side.
const OURS: u64 = 512;
/// An idle connection weighs about 20 KiB: so many for each request that may be open are enough
/// for any balancer, and a gateway's memory still has an end.
const CLIENTS_PER_REQUEST: u64 = 4;
/// A small `max_requests` is no reason to send away those who only wait.
const CLIENTS_USUAL: u64 = 1024;

/// Raises the process's limit of open files as far as it may go, and tells what it is then.
pub fn raise() -> u64 {
    let now = getrlimit(Resource::Nofile);
    let most = Rlimit { current: now.maximum, maximum: now.maximum };
    if now.current != now.maximum && setrlimit(Resource::Nofile, most).is_ok() {
        return most.current.unwrap_or(u64::MAX);
    }
    now.current.unwrap_or(u64::MAX)
}

/// How many connections clients may have, of so many files and with so many requests open at once.
pub fn clients(files: u64, max_requests: usize) -> u64 {
    // Each of them may want a provider's connection beside its own: two more (`proxy/cork.rs`).
    let by_files = (files.saturating_sub(OURS) / 3).max(CLIENTS_MIN);
    let by_requests = (max_requests as u64).saturating_mul(CLIENTS_PER_REQUEST);
    by_files.min(by_requests.max(CLIENTS_USUAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_less_than_a_third_of_the_files_and_few_for_each_request() {
        assert_eq!(clients(1_048_576, 20_000), 80_000);
        assert_eq!(clients(1_048_576, 10), CLIENTS_USUAL);
        assert_eq!(clients(4_096, 20_000), 1_194);
        assert_eq!(clients(256, 20_000), CLIENTS_MIN);
        assert_eq!(clients(u64::MAX, usize::MAX), (u64::MAX - OURS) / 3);
    }

    #[test]
    fn what_is_raised_holds() {
        assert_eq!(raise(), raise());
    }
}
