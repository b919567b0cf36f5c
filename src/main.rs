//! The `weir` command.

use std::process::ExitCode;

/// Streams make and drop many small buffers on many threads: mimalloc keeps them apart.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    weir::cli::main()
}
