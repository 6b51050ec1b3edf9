//! What the readers make of texts.

use super::*;

#[test]
fn words_are_cut_as_the_kernel_cuts_them() {
    let text = "BOOT_IMAGE=(hd0,gpt2)/vmlinuz-6.18.9-200.fc43.x86_64 root=UUID=1 rootflags=subvol=root \
                \"dyndbg=module x +p\" y=\"a b\" initrd=\\initramfs.img ro -- z=1\n";
    let words: Vec<(String, Option<String>, bool)> = cmdline::words(text)
        .into_iter()
        .map(|word| (word.name, word.value, word.for_init))
        .collect();
    let word =
        |name: &str, value: Option<&str>, init| (name.to_owned(), value.map(str::to_owned), init);
    assert_eq!(
        words,
        [
            word(
                "BOOT_IMAGE",
                Some("(hd0,gpt2)/vmlinuz-6.18.9-200.fc43.x86_64"),
                false
            ),
            word("root", Some("UUID=1"), false),
            word("rootflags", Some("subvol=root"), false),
            word("dyndbg", Some("module x +p"), false),
            word("y", Some("a b"), false),
            word("initrd", Some("\\initramfs.img"), false),
            word("ro", None, false),
            word("--", None, false),
            word("z", Some("1"), true),
        ]
    );
    assert_eq!(
        cmdline::image(text),
        Some((
            "/vmlinuz-6.18.9-200.fc43.x86_64".into(),
            Some("6.18.9-200.fc43.x86_64".into())
        ))
    );
    assert_eq!(cmdline::value("a=1 a=2", "a").as_deref(), Some("2"));
    assert_eq!(cmdline::value("ttm_pages_limit=2", "ttm.pages_limit"), None);
}

#[test]
fn grub_files_are_read_as_the_shell_reads_them() {
    let files = [
        File::new(
            "/etc/default/grub",
            "A='x y'\nGRUB_CMDLINE_LINUX=\"a \\\"b c\\\" $A\"\nGRUB_CMDLINE_LINUX_DEFAULT=quiet\n\
             GRUB_ENABLE_BLSCFG=\"false\"\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX d\"\n",
        ),
        File::new(
            "/etc/default/grub.d/1.cfg",
            "GRUB_CMDLINE_LINUX_DEFAULT+=' splash'",
        ),
    ];
    let values = grub::read(&files).unwrap();
    assert_eq!(values.command_line(), "a \"b c\" x y d quiet splash");
    assert_eq!(values.entries(), Some(false));
    assert_eq!(values.assignments.get("GRUB_CMDLINE_LINUX"), Some(&2));
    // What dash itself says.
    let script: String = files
        .iter()
        .map(|file| format!("{}\n", file.text))
        .collect();
    // `+=` is bash's, which grub-mkconfig's files are read by only where sh is bash.
    let told = std::process::Command::new("bash")
        .arg("-c")
        .arg(format!(
            "{script}printf '%s %s' \"$GRUB_CMDLINE_LINUX\" \"$GRUB_CMDLINE_LINUX_DEFAULT\""
        ))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&told.stdout), values.command_line());
}

#[test]
fn options_of_modules_add_up_over_lines_and_files() {
    let first = "options ttm pages_limit=1 page_pool_size=2\noptions snd-hda-intel power_save=0\n";
    let second = "options ttm \\\n pages_limit=3\n#options ttm pages_limit=4\n";
    let (at, found) = modprobe::value(&[first, second], "ttm.pages_limit").unwrap();
    assert_eq!((at, found.value.as_str(), found.line), (1, "3", 2));
    let (at, found) = modprobe::value(&[first, second], "ttm.page_pool_size").unwrap();
    assert_eq!((at, found.value.as_str(), found.line), (0, "2", 1));
    let (_, found) = modprobe::value(&[first], "snd_hda_intel.power_save").unwrap();
    assert_eq!(found.value, "0");
    assert_eq!(
        modprobe::value(&[first, second], "amdttm.pages_limit"),
        None
    );
}

#[test]
fn entries_give_their_options_of_all_lines() {
    let text = "title Fedora Linux\nversion 6.18.9\nlinux /v\noptions root=x\noptions  quiet\n";
    let entry = entry::read(text).unwrap();
    assert_eq!(entry.options, "root=x quiet");
    assert_eq!(entry.version.as_deref(), Some("6.18.9"));
    assert_eq!(
        kernel_install::read(" root=x quiet \n").unwrap(),
        "root=x quiet"
    );
}
