//! A word to systemd (`Type=notify`, sd_notify(3)); nothing where nobody asked for it.

use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Every listener accepts.
pub const READY: &str = "READY=1";
/// The way out has begun.
pub const STOPPING: &str = "STOPPING=1";
/// The runtime that serves clients is alive.
pub const WATCHDOG: &str = "WATCHDOG=1";

/// Sends states, one a line, to the socket that `NOTIFY_SOCKET` names. A lost word is logged, no
/// more.
pub fn notify(states: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(name.as_encoded_bytes(), states) {
        log::warn!("cannot tell systemd {states:?}: {error}");
    }
}

/// A new config is being read; [`READY`] follows. With the moment of it on the monotonic clock,
/// without which `Type=notify-reload` takes it for an older reload's.
#[must_use]
pub fn reloading() -> String {
    let now = clock_gettime(ClockId::Monotonic);
    format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1_000)
}

/// The manager waits so much longer for what was asked of us, counted from now.
#[must_use]
pub fn extend(by: Duration) -> String {
    format!("EXTEND_TIMEOUT_USEC={}", by.as_micros())
}

/// After which silence systemd ends the process (`WatchdogSec=`), if it does.
#[must_use]
pub fn watchdog() -> Option<Duration> {
    silence(|name| std::env::var(name).ok(), std::process::id())
}

/// As [`watchdog`], of this environment: the variables are a parent's where they name another
/// process (sd_watchdog_enabled(3)).
fn silence(env: impl Fn(&str) -> Option<String>, pid: u32) -> Option<Duration> {
    env("NOTIFY_SOCKET")?;
    let ours = env("WATCHDOG_PID").is_none_or(|text| text.parse() == Ok(pid));
    let micros = env("WATCHDOG_USEC")?.parse().ok().filter(|micros| *micros > 0 && ours)?;
    Some(Duration::from_micros(micros))
}

fn send(name: &[u8], states: &str) -> io::Result<()> {
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => {
            let path = std::str::from_utf8(name).map_err(io::Error::other)?;
            SocketAddr::from_pathname(path)?
        }
    };
    UnixDatagram::unbound()?.send_to_addr(states.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reaches_a_socket_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("weir-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        send(path.as_os_str().as_encoded_bytes(), READY).unwrap();
        send(format!("@{name}").as_bytes(), STOPPING).unwrap();
        let read = |socket: UnixDatagram| {
            let mut text = [0; 32];
            let n = socket.recv(&mut text).unwrap();
            String::from_utf8_lossy(&text[..n]).into_owned()
        };
        assert_eq!((read(by_path), read(by_name)), (READY.to_owned(), STOPPING.to_owned()));
        assert!(send(b"/nowhere/at/all", READY).is_err());
    }

    #[test]
    fn a_watchdog_is_ours_only_where_it_names_this_process_or_none() {
        let check = |pairs: &[(&str, &str)], want: Option<u64>| {
            let env = |name: &str| {
                pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(silence(env, 7), want.map(Duration::from_micros), "{pairs:?}");
        };
        let (socket, usec) = (("NOTIFY_SOCKET", "/s"), ("WATCHDOG_USEC", "500"));
        check(&[socket, usec], Some(500));
        check(&[socket, usec, ("WATCHDOG_PID", "7")], Some(500));
        check(&[socket, usec, ("WATCHDOG_PID", "8")], None);
        check(&[socket, usec, ("WATCHDOG_PID", "x")], None);
        check(&[socket, ("WATCHDOG_USEC", "0")], None);
        check(&[socket, ("WATCHDOG_USEC", "soon")], None);
        check(&[socket], None);
        check(&[usec], None);
    }
}
