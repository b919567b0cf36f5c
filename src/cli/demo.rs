//! `weir demo`: the gateway in front of a simulated provider, all on loopback.

use super::complain;
use crate::{config, demo, server};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

/// The ports that README's lines use, taken when they are free.
const GATEWAY_PORT: u16 = 8080;
const ADMIN_PORT: u16 = 9180;

/// Runs both until a signal.
pub fn demo() -> u8 {
    let provider = match provider() {
        Ok(port) => port,
        Err(error) => {
            complain(&format!("weir demo: cannot start the simulated provider: {error}"));
            return server::EXIT_UNAVAILABLE;
        }
    };
    // Of this user alone: another one's folder could not be written to.
    let folder = format!("weir-demo-{}", rustix::process::getuid().as_raw());
    let data = std::env::temp_dir().join(folder);
    let text = demo::config(free(GATEWAY_PORT), free(ADMIN_PORT), provider, &data);
    let environment = |name: &str| std::env::var(name).ok();
    match config::load_text(Path::new("demo.toml"), &text, &environment) {
        Ok(loaded) => {
            let banner: server::Banner = Box::new(|at| demo::curl_lines(at.port()));
            let source = server::Source::Fixed;
            server::run(loaded, server::Options { source, banner: Some(banner) })
        }
        Err(faults) => super::refuse(&faults),
    }
}

/// Starts the provider on a thread of its own; its port.
fn provider() -> std::io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("demo-provider".into()).spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let _provider = demo::start(listener).await?;
            std::future::pending::<std::io::Result<()>>().await
        })
    })?;
    Ok(port)
}

/// This port, or any free one where somebody has it.
fn free(port: u16) -> u16 {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let bound = bind(port).or_else(|_| bind(0)).and_then(|l| l.local_addr());
    bound.map_or(port, |address| address.port())
}
