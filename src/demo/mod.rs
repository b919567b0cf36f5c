//! A scripted provider on loopback: what `weir demo` and the tests talk to.
