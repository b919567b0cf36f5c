//! A word to systemd (`Type=notify`, sd_notify(3)); nothing where nobody asked for it.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Every listener accepts.
pub const READY: &str = "READY=1";
/// A new config is being read; [`READY`] follows.
pub const RELOADING: &str = "RELOADING=1";
/// The way out has begun.
pub const STOPPING: &str = "STOPPING=1";

/// Sends a state to the socket that `NOTIFY_SOCKET` names. A lost word is logged, no more.
pub fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(name.as_encoded_bytes(), state) {
        log::warn!("cannot tell systemd {state}: {error}");
    }
}

fn send(name: &[u8], state: &str) -> io::Result<()> {
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => {
            let path = std::str::from_utf8(name).map_err(io::Error::other)?;
            SocketAddr::from_pathname(path)?
        }
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
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
}
