//! Arguments; one subcommand, one function.
