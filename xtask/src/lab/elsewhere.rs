//! Stands in for the lab where there are no namespaces.

use crate::chores::Done;

/// Refuses.
pub fn lab(_arguments: &[String]) -> Done {
    Err("a lab needs Linux".into())
}

/// Nothing to install.
pub fn install_packages() -> Done {
    println!("\nskipped: packages of the lab (it needs Linux)");
    Ok(())
}

/// Refuses.
pub fn vm(_arguments: &[String]) -> Done {
    Err("virtual machines need Linux".into())
}

/// Refuses.
pub fn deep(_arguments: &[String]) -> Done {
    vm(&[])
}
