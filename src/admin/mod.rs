//! The control plane: health, metrics and the JSON API on a listener of their own.
