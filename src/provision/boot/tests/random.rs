//! What holds for every text, by chance.

use proptest::prelude::*;

use super::Form::{Entry, Grub, Install, Line, Modprobe};
use super::*;

/// A word of a command line.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,4}",
        "[a-z]{1,4}=[a-z0-9,:/]{0,5}",
        Just("rd.luks.uuid=luks-1".to_owned()),
        Just("ttm.pages_limit=5".to_owned()),
        Just("ttm.pages-limit=6".to_owned()),
        Just("amdttm.pages_limit=7".to_owned()),
        Just("--".to_owned()),
    ]
}

fn line() -> impl Strategy<Value = String> {
    proptest::collection::vec((word(), " {1,2}"), 0..7).prop_map(|words| {
        words
            .iter()
            .map(|(word, blank)| format!("{word}{blank}"))
            .collect()
    })
}

fn grub_file() -> impl Strategy<Value = String> {
    let statement = prop_oneof![
        line().prop_map(|l| format!("GRUB_CMDLINE_LINUX=\"{l}\"")),
        line().prop_map(|l| format!("GRUB_CMDLINE_LINUX_DEFAULT='{l}'")),
        line().prop_map(|l| format!("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {l}\"")),
        line().prop_map(|l| format!("GRUB_CMDLINE_LINUX_DEFAULT+=\" {l}\"")),
        word().prop_map(|w| format!("GRUB_CMDLINE_LINUX_DEFAULT={w}")),
        Just("# don't \"touch".to_owned()),
        Just("GRUB_DISTRIBUTOR=\"$(sed 's, .*$,,' /x)\"".to_owned()),
        Just(String::new()),
    ];
    (proptest::collection::vec(statement, 0..6), any::<bool>()).prop_map(|(lines, end)| {
        let text = lines.join("\n");
        if end { format!("{text}\n") } else { text }
    })
}

fn others(line: &str) -> Vec<String> {
    cmdline::words(line)
        .into_iter()
        .filter(|word| !word.is("ttm.pages_limit"))
        .map(|word| format!("{}={:?}", word.name, word.value))
        .collect()
}

/// The command line that a text leads to.
fn leads_to(form: Form, text: &str) -> String {
    match form {
        Line | Install => text.to_owned(),
        Grub => grub::read(&[File::new("f", text)]).unwrap().command_line(),
        Entry => entry::read(text).unwrap().options,
        Modprobe => String::new(),
    }
}

fn holds(form: Form, text: &str) -> Result<(), TestCaseError> {
    let Ok(new) = edited(form, text, &pages()) else {
        return Ok(());
    };
    let (before, after) = (leads_to(form, text), leads_to(form, &new));
    prop_assert_eq!(
        cmdline::value(&after, "ttm.pages_limit"),
        Some("31457280".to_owned())
    );
    prop_assert_eq!(others(&before), others(&after));
    prop_assert_eq!(&edited(form, &new, &pages()).unwrap(), &new);
    if let Some(edit) = Edit::between(text, &new) {
        prop_assert_eq!(edit.undo(&new), Some(text.to_owned()));
    }
    if let Ok(gone) = edited(form, text, &gone("ttm.pages_limit")) {
        let after = leads_to(form, &gone);
        prop_assert_eq!(cmdline::value(&after, "ttm.pages_limit"), None);
        prop_assert_eq!(others(&before), others(&after));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn command_lines_keep_all_other_words(text in line()) {
        holds(Line, &text)?;
        holds(Install, &text)?;
        holds(Entry, &format!("linux /v\noptions {text}\n"))?;
    }

    #[test]
    fn grub_files_keep_all_other_words(text in grub_file()) {
        holds(Grub, &text)?;
    }

    #[test]
    fn no_text_makes_an_editor_panic(text in "[GRUB_CMDLINEXFAT=\"'$(){}`\\\\ \n\r#;&|a-c.<+-]{0,60}") {
        for form in [Line, Grub, Entry, Install, Modprobe] {
            for wish in [pages(), gone("ttm.pages_limit")] {
                if let Ok(new) = edited(form, &text, &wish)
                    && let Some(edit) = Edit::between(&text, &new)
                {
                    prop_assert_eq!(edit.undo(&new), Some(text.clone()));
                }
            }
        }
    }
}
