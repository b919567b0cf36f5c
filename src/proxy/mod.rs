//! The data plane: Pingora's phases, each one short call.
