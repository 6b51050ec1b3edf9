//! The list on made-up hosts.

use super::*;
use crate::facts::firmware::Loaded;
use crate::facts::{Facts, Gpu, RdmaPort, Settings};

/// The GPU of Strix Halo.
const HALO: (u16, u16) = (0x1002, 0x1586);
/// That of GB10.
const SPARK: (u16, u16) = (0x10de, 0x2e12);

#[derive(Default)]
struct Host {
    facts: Facts,
    settings: Settings,
}

impl Host {
    fn with(gpu: Option<(u16, u16)>, kernel: &str) -> Self {
        let mut host = Self::default();
        host.facts.kernel.release = Some(kernel.into());
        host.facts.gpus = Some(
            gpu.map(|(vendor, device)| Gpu {
                vendor_id: Some(vendor),
                device_id: Some(device),
                ..Gpu::default()
            })
            .into_iter()
            .collect(),
        );
        host
    }

    fn line(mut self, line: &str) -> Self {
        self.facts.kernel.command_line = Some(line.into());
        self
    }

    fn package(mut self, name: &str, version: &str) -> Self {
        let packages = self.settings.packages.get_or_insert_default();
        let packages = std::sync::Arc::make_mut(packages);
        packages.insert(name.into(), version.into());
        self
    }

    fn mes(mut self, version: u32) -> Self {
        self.facts.firmware.loaded = Some(vec![Loaded {
            slot: None,
            versions: [("mes".to_owned(), version)].into(),
        }]);
        self
    }

    fn rdma(mut self) -> Self {
        self.facts.rdma = Some(vec![RdmaPort {
            state: Some("active".into()),
            ..RdmaPort::default()
        }]);
        self
    }

    /// Values that are known bad.
    fn values(&self) -> Vec<String> {
        self.found().into_iter().map(|bad| bad.value).collect()
    }

    fn found(&self) -> Vec<Bad> {
        let seen = Seen {
            host: "h",
            facts: &self.facts,
            settings: Some(&self.settings),
            data: None,
        };
        known_bad(&seen, entries())
    }
}

#[test]
fn the_list_can_be_read_and_names_subjects_that_there_are() {
    let file: File = data::read(include_str!("known_bad.toml")).unwrap();
    assert!(file.bad.len() > 10);
    for entry in &file.bad {
        for has in [Some(&entry.has), entry.with.as_ref()]
            .into_iter()
            .flatten()
        {
            assert!(subjects::named(&has.subject).is_some(), "{entry:?}");
            let bounds = [&has.from, &has.below, &has.holds];
            assert!(
                bounds.iter().any(|bound| bound.is_some())
                    || !has.is.is_empty()
                    || !has.keys.is_empty(),
                "{entry:?}"
            );
        }
        for text in [&entry.what, &entry.mend, &entry.source] {
            assert!(!text.is_empty() && !text.ends_with('.'), "{entry:?}");
        }
    }
}

#[test]
fn old_kernels_are_bad_for_the_gpu_that_they_fail_with_only() {
    let old = "6.17.1-300.fc43.x86_64";
    assert_eq!(Host::with(Some(HALO), old).values(), [old]);
    for (kernel, gpu) in [
        ("6.18.4", Some(HALO)),
        ("6.18.9-200.fc43.x86_64", Some(HALO)),
        ("6.17.0-1018-oem", Some(HALO)),
        (old, Some((0x1002, 0x150e))),
        (old, None),
    ] {
        let found = Host::with(gpu, kernel).values();
        assert_eq!(found, [""; 0], "{kernel} {gpu:?}");
    }
}

#[test]
fn the_firmware_that_breaks_compute_is_found_under_every_distributions_name_and_no_other_is() {
    let good = "6.18.9-200.fc43.x86_64";
    for (package, version, bad) in [
        ("amd-gpu-firmware", "20251125-1.fc43", true),
        ("amd-gpu-firmware", "20251111-1.fc43", false),
        ("amd-gpu-firmware", "20260110-1.fc43", false),
        ("linux-firmware-amdgpu", "1:20251125-2", true),
        ("linux-firmware-amdgpu", "1:20260110-1", false),
        ("firmware-amd-graphics", "20251125-1", true),
        ("firmware-amd-graphics", "20251124-3", false),
        ("intel-gpu-firmware", "20251125-1.fc43", false),
    ] {
        let found = Host::with(Some(HALO), good)
            .package(package, version)
            .values();
        assert_eq!(found.len(), usize::from(bad), "{package} {version}");
        let other = Host::with(None, good).package(package, version).values();
        assert_eq!(other, [""; 0], "{package} {version}");
    }
}

#[test]
fn a_pair_is_bad_only_together() {
    let good = "6.18.9";
    let loaded = |line: &str, mes| Host::with(Some(HALO), good).line(line).mes(mes);
    assert_eq!(loaded("", 0x83).found().len(), 1);
    assert_eq!(loaded("amdgpu.cwsr_enable=0", 0x83).found().len(), 2);
    assert_eq!(loaded("amdgpu.cwsr_enable=0", 0x80).found(), []);

    let npu = |kernel: &str| Host::with(Some(HALO), kernel).package("linux-firmware", "20260309-1");
    assert_eq!(npu("6.19.6-2-cachyos").values(), ["20260309-1"]);
    assert_eq!(npu("7.0.3").values(), [""; 0]);

    let spark = |kernel: &str| Host::with(Some(SPARK), kernel);
    assert_eq!(spark("7.0.0-1019-nvidia").rdma().found().len(), 1);
    assert_eq!(spark("7.0.0-1019-nvidia").found(), []);
    assert_eq!(spark("6.17.0-1032-nvidia").rdma().found(), []);
}

#[test]
fn what_is_said_names_what_happens_what_mends_it_and_where_it_is_told() {
    let found = Host::with(Some(HALO), "6.18.9").mes(0x83).found();
    let words = found[0].words();
    assert!(
        words.starts_with("mes 0x83 is known bad: ")
            && words.contains("initramfs")
            && words.ends_with("(ROCm/ROCm #5724)"),
        "{words}"
    );
}
