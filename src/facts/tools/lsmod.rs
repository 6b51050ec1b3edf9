//! Loaded modules of the kernel, as lsmod(8) lists them.

/// A module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Modules that use it.
    pub holders: Vec<String>,
}

/// Reads it: name, size, count, users.
pub fn parse(text: &str) -> Vec<Module> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            // The heading has no numbers.
            words.next()?.parse::<u64>().ok()?;
            words.next()?.parse::<i64>().ok()?;
            let holders = words.next().unwrap_or_default().split(',');
            Some(Module {
                name: name.to_owned(),
                holders: holders
                    .filter(|own| !own.is_empty())
                    .map(str::to_owned)
                    .collect(),
            })
        })
        .collect()
}
