//! `/etc/fstab` and what else names file systems by identifiers. Pure.

use crate::clone::disks::octal;
use crate::clone::source::Volume;

/// A line that mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What is mounted.
    pub spec: String,
    /// Where.
    pub place: String,
    /// Its file system.
    pub kind: String,
    /// Options.
    pub options: String,
}

/// The lines that mount.
pub fn entries(text: &str) -> Vec<Entry> {
    text.lines().filter_map(entry).collect()
}

fn entry(line: &str) -> Option<Entry> {
    let line = line.trim_start();
    if line.starts_with('#') {
        return None;
    }
    let mut fields = line.split_whitespace();
    let spec = fields.next()?;
    Some(Entry {
        spec: octal(spec.trim_matches('"')),
        place: octal(fields.next()?),
        kind: fields.next()?.to_owned(),
        options: fields.next().unwrap_or("defaults").to_owned(),
    })
}

/// Whether a line's first field means a volume.
pub fn is_of(spec: &str, volume: &Volume) -> bool {
    if volume.names.iter().any(|name| name == spec) {
        return true;
    }
    let is = |value: &str, own: &Option<String>| {
        let value = value.trim_matches('"');
        own.as_deref()
            .is_some_and(|own| own.eq_ignore_ascii_case(value))
    };
    let (key, value) = match spec.split_once('=') {
        Some(pair) => pair,
        None => match spec.strip_prefix("/dev/disk/by-") {
            Some(rest) => rest.split_once('/').unwrap_or((rest, "")),
            None => return same_device(spec, &volume.path),
        },
    };
    match key.to_ascii_lowercase().as_str() {
        "uuid" => is(value, &volume.uuid),
        "label" => volume.label.as_deref() == Some(value.trim_matches('"')),
        "partuuid" => is(value, &volume.part_uuid),
        _ => false,
    }
}

/// `/dev/mapper/vg-root` and `/dev/vg/root` are one device.
fn same_device(spec: &str, path: &str) -> bool {
    if spec == path {
        return true;
    }
    let (Some(spec), Some(mapped)) = (
        spec.strip_prefix("/dev/"),
        path.strip_prefix("/dev/mapper/"),
    ) else {
        return false;
    };
    let Some((group, volume)) = spec.split_once('/') else {
        return false;
    };
    mapped == format!("{}-{}", group.replace('-', "--"), volume.replace('-', "--"))
}

/// A volume with the identifiers that its copy has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The volume.
    pub volume: Volume,
    /// New identifier of the file system.
    pub uuid: String,
    /// New identifier of the partition.
    pub part_uuid: String,
}

/// The text with new identifiers; lines that mount what is not on the new disk are set apart as comments,
/// for a boot would wait for it. Everything else stays as it is.
pub fn renew(text: &str, renewed: &[Renewed]) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let Some(entry) = entry(line) else {
            out.push_str(line);
            continue;
        };
        if let Some(one) = renewed.iter().find(|one| is_of(&entry.spec, &one.volume)) {
            let field = line.split_whitespace().next().unwrap_or_default();
            let spec = match entry.spec.split_once('=') {
                Some((key, _)) if key.eq_ignore_ascii_case("label") => field.to_owned(),
                Some((key, _)) if key.eq_ignore_ascii_case("partuuid") => {
                    format!("PARTUUID={}", one.part_uuid)
                }
                _ => format!("UUID={}", one.uuid),
            };
            let line = line.replacen(field, &spec, 1);
            out.push_str(&numberless(&line, &entry, &one.volume));
        } else if local(&entry.spec) {
            out.push_str("# not on this disk: ");
            out.push_str(line);
        } else {
            out.push_str(line);
        }
    }
    out
}

/// The line without the number of a subvolume that it names too: the copy's have others, and a mount by
/// both fails where they are not of one.
fn numberless(line: &str, entry: &Entry, volume: &Volume) -> String {
    let named = |option: &str| option.starts_with("subvol=");
    if volume.kind != "btrfs" || !entry.options.split(',').any(named) {
        return line.to_owned();
    }
    let kept: Vec<&str> = entry
        .options
        .split(',')
        .filter(|option| !option.starts_with("subvolid="))
        .collect();
    line.replacen(&entry.options, &kept.join(","), 1)
}

/// A mount of a btrfs of these by nothing but the number of a subvolume: where, and which.
pub fn by_number(text: &str, volumes: &[Volume]) -> Option<(String, String)> {
    let mut lines = entries(text).into_iter();
    lines.find_map(|entry| {
        let of = |key: &str| {
            let mut options = entry.options.split(',');
            options.find_map(|option| option.strip_prefix(key))
        };
        let mut own = volumes.iter().filter(|one| one.kind == "btrfs");
        let number = of("subvolid=").filter(|number| !["0", "5"].contains(number))?;
        (of("subvol=").is_none() && own.any(|one| is_of(&entry.spec, one)))
            .then(|| (entry.place.clone(), number.to_owned()))
    })
}

/// What lines mount that are set apart on the copy.
pub fn apart(text: &str, volumes: &[Volume]) -> Vec<Entry> {
    let mut all = entries(text);
    all.retain(|one| local(&one.spec) && !volumes.iter().any(|volume| is_of(&one.spec, volume)));
    all
}

/// Whether a line's first field means a disk of the machine.
fn local(spec: &str) -> bool {
    let upper = spec.to_ascii_uppercase();
    spec.starts_with("/dev/")
        || ["UUID=", "LABEL=", "PARTUUID=", "PARTLABEL=", "ID="]
            .iter()
            .any(|key| upper.starts_with(key))
}

/// Pairs of old and new identifiers, as they stand in boot entries, in GRUB's and initramfs' files.
pub fn pairs(renewed: &[Renewed]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for one in renewed {
        let pairs = [
            (&one.volume.uuid, &one.uuid),
            (&one.volume.part_uuid, &one.part_uuid),
        ];
        for (old, new) in pairs {
            if let Some(old) = old.as_ref().filter(|old| is_identifier(old)) {
                all.push((old.clone(), new.clone()));
            }
        }
    }
    all
}

/// What names volumes by their place, and what means their copies, as kernels and initramfs take it: those
/// that look into partitions themselves know their identifiers only.
pub fn devices(renewed: &[Renewed]) -> Vec<(String, String)> {
    let of = |one: &Renewed| {
        let new = match one.volume.part_uuid {
            Some(_) => format!("PARTUUID={}", one.part_uuid),
            None => format!("UUID={}", one.uuid),
        };
        let names = one.volume.names.clone();
        names.into_iter().map(move |name| (name, new.clone()))
    };
    renewed.iter().flat_map(of).collect()
}

/// Whether a text is safe in a pattern, and long enough to mean nothing else.
pub fn is_identifier(text: &str) -> bool {
    text.len() >= 8 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(path: &str, uuid: &str, label: Option<&str>) -> Volume {
        Volume {
            path: path.into(),
            uuid: Some(uuid.into()),
            label: label.map(str::to_owned),
            part_uuid: Some(format!("aaaa0000-{uuid}")),
            ..Volume::default()
        }
    }

    fn renewed() -> Vec<Renewed> {
        let volumes = [
            volume("/dev/sda2", "1111-2222", Some("root")),
            volume("/dev/mapper/my--vg-home", "3333-4444", None),
        ];
        volumes
            .into_iter()
            .enumerate()
            .map(|(at, volume)| Renewed {
                volume,
                uuid: format!("new-{at}"),
                part_uuid: format!("part-{at}"),
            })
            .collect()
    }

    #[test]
    fn a_subvolume_s_number_goes_where_its_name_stands_and_alone_it_is_told() {
        let mut one = volume("/dev/sda2", "11112222", None);
        one.kind = "btrfs".into();
        let renewed = [Renewed {
            volume: one.clone(),
            uuid: "new".into(),
            part_uuid: "newpart".into(),
        }];
        let line = "UUID=11112222 /home btrfs rw,subvolid=258,subvol=/@home 0 0\n";
        assert_eq!(
            renew(line, &renewed),
            "UUID=new /home btrfs rw,subvol=/@home 0 0\n"
        );
        assert_eq!(by_number(line, std::slice::from_ref(&one)), None);
        let line = "UUID=11112222 /home btrfs rw,subvolid=258 0 0\n";
        assert_eq!(
            by_number(line, std::slice::from_ref(&one)),
            Some(("/home".to_owned(), "258".to_owned()))
        );
        assert_eq!(renew(line, &renewed).matches("subvolid=258").count(), 1);
    }

    #[test]
    fn a_partition_by_its_name_or_place_is_the_copy_s_and_what_is_elsewhere_is_told() {
        let mut one = volume("/dev/sda2", "11112222", None);
        one.names = vec!["PARTLABEL=home".into(), "/dev/sda2".into()];
        let text = "PARTLABEL=home /home ext4 defaults 0 2\n/dev/sdb1 /data xfs defaults 0 2\n";
        let renewed = [Renewed {
            volume: one.clone(),
            uuid: "new".into(),
            part_uuid: "newpart".into(),
        }];
        assert_eq!(
            renew(text, &renewed),
            "UUID=new /home ext4 defaults 0 2\n# not on this disk: /dev/sdb1 /data xfs defaults 0 2\n"
        );
        let apart = apart(text, std::slice::from_ref(&one));
        let places: Vec<&str> = apart.iter().map(|one| one.place.as_str()).collect();
        assert_eq!(places, ["/data"]);
        // A kernel that has no initramfs looks into partitions for nothing but this.
        let wanted = [
            ("PARTLABEL=home", "PARTUUID=newpart"),
            ("/dev/sda2", "PARTUUID=newpart"),
        ];
        assert_eq!(
            devices(&renewed),
            wanted.map(|(old, new)| (old.to_owned(), new.to_owned()))
        );
    }

    #[test]
    fn lines_get_new_identifiers_and_every_other_byte_stays() {
        let text = "# /etc/fstab: by hand\n\
            UUID=1111-2222  /      ext4 errors=remount-ro 0 1\n\
            /dev/my-vg/home\t/home ext4 defaults 0 2\n\
            PARTUUID=\"AAAA0000-1111-2222\" /b auto ro 0 0\n\
            LABEL=root /c ext4 ro 0 0\n\
            /dev/disk/by-uuid/3333-4444 /d ext4 ro 0 0\n\
            UUID=9999-0000 /data ext4 defaults 0 2\n\
            /dev/sdb1 none swap sw 0 0\n\
            tmpfs /tmp tmpfs size=1g 0 0\n\
            nas:/x /x nfs ro 0 0\n\
            /swapfile none swap sw 0 0";
        let wanted = "# /etc/fstab: by hand\n\
            UUID=new-0  /      ext4 errors=remount-ro 0 1\n\
            UUID=new-1\t/home ext4 defaults 0 2\n\
            PARTUUID=part-0 /b auto ro 0 0\n\
            LABEL=root /c ext4 ro 0 0\n\
            UUID=new-1 /d ext4 ro 0 0\n\
            # not on this disk: UUID=9999-0000 /data ext4 defaults 0 2\n\
            # not on this disk: /dev/sdb1 none swap sw 0 0\n\
            tmpfs /tmp tmpfs size=1g 0 0\n\
            nas:/x /x nfs ro 0 0\n\
            /swapfile none swap sw 0 0";
        assert_eq!(renew(text, &renewed()), wanted);
    }

    #[test]
    fn only_what_can_be_nothing_else_is_replaced_in_other_files() {
        let mut all = renewed();
        all[1].volume.uuid = Some("a.*".into());
        let old: Vec<String> = pairs(&all).into_iter().map(|(old, _)| old).collect();
        assert_eq!(
            old,
            ["1111-2222", "aaaa0000-1111-2222", "aaaa0000-3333-4444"]
        );
    }
}
