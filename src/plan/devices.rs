//! What computes on a host, and what is left unused, in words. Pure.

/// What an engine uses of a host's devices, e.g. `CPU; the Radeon 8060S is not used by candle`.
/// `asked`: the inventory's `device`; `gpus`: names as the host's facts have them.
///
/// # Errors
/// A device that the engine cannot use, by name.
pub fn describe(asked: Option<&str>, gpus: &[String], engine: &str) -> Result<String, String> {
    if let Some(device) = asked
        && !device.eq_ignore_ascii_case("cpu")
    {
        return Err(format!(
            "device \"{device}\" cannot be used: {engine} computes on the CPU here; set device = \"cpu\" or leave it out"
        ));
    }
    Ok(match gpus {
        [] => "CPU".to_owned(),
        [one] => format!("CPU; the {one} is not used by {engine}"),
        [others @ .., last] => {
            let others: Vec<String> = others.iter().map(|name| format!("the {name}")).collect();
            format!(
                "CPU; {} and the {last} are not used by {engine}",
                others.join(", ")
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn what_is_left_unused_is_said() {
        let gpus = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let table: [(Option<&str>, &[&str], &str); 4] = [
            (None, &[], "CPU"),
            (
                Some("CPU"),
                &["Radeon 8060S"],
                "CPU; the Radeon 8060S is not used by candle",
            ),
            (
                None,
                &["A", "B"],
                "CPU; the A and the B are not used by candle",
            ),
            (
                None,
                &["A", "B", "C"],
                "CPU; the A, the B and the C are not used by candle",
            ),
        ];
        for (asked, names, wanted) in table {
            assert_eq!(describe(asked, &gpus(names), "candle").unwrap(), wanted);
        }
    }

    #[test]
    fn a_device_that_cannot_be_used_is_refused_by_name() {
        let error = describe(Some("cuda"), &[], "candle").unwrap_err();
        assert!(error.contains("cuda") && error.contains("cpu"), "{error}");
    }
}
