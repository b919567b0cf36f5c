//! Requests that are ready together go the same way together.
//!
//! A request is taken in, sent to its provider, answered, and put away. Between these it lets all
//! others that are ready come as far. So the code of a step is in the nearest cache for all of
//! them, and who waits on the same machine for the first is awake when the second comes. Nothing
//! waits for what is not there: a request that is alone goes on after one look at the sockets.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// One poll, without a waker of its own: `Ready` where nothing has to be waited for. What is not
/// ready must be polled again.
pub fn now<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Lets the others come as far.
pub async fn abreast() {
    tokio::task::yield_now().await;
}
