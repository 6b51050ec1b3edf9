//! The `windlass` program: everything is in the library.

fn main() -> std::process::ExitCode {
    windlass::cli::main()
}
