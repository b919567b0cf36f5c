//! Assembly: listeners, background tasks, signals, drain.
