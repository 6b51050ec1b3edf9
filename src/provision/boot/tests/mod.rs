//! Texts as real hosts have them, with what becomes of them; and what holds for every text.

mod decisions;
mod random;
mod readers;
mod variants;

use super::grub::File;
use super::{Edit, Parameter, Refusal, Wish, cmdline, entry, grub, kernel_install, modprobe};

/// The form of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Line,
    Grub,
    Entry,
    Install,
    Modprobe,
}

/// The text with a wish fulfilled.
fn edited(form: Form, text: &str, wish: &Wish) -> Result<String, Refusal> {
    match form {
        Form::Line => Ok(cmdline::edit(text, wish)),
        Form::Entry => entry::edit(text, wish),
        Form::Install => kernel_install::edit(text, wish),
        Form::Modprobe => modprobe::edit(text, wish),
        Form::Grub => grub::edit(&[File::new("/etc/default/grub", text)], wish)
            .map(|files| files.into_iter().next().unwrap().text)
            .map_err(|(_, refusal)| refusal),
    }
}

fn set(name: &str, value: &str) -> Wish {
    Wish {
        set: vec![Parameter::new(name, value)],
        ..Wish::default()
    }
}

fn gone(name: &str) -> Wish {
    Wish {
        remove: vec![name.to_owned()],
        ..Wish::default()
    }
}

/// 120 GiB in pages of 4 KiB.
fn pages() -> Wish {
    set("ttm.pages_limit", "31457280")
}

/// What must hold of every change: it makes that text, nothing when done twice, and can be taken
/// back.
fn changes(form: Form, before: &str, wish: &Wish, after: &str) {
    let new = edited(form, before, wish).unwrap_or_else(|why| panic!("{before:?}: {why}"));
    assert_eq!(new, after, "from {before:?}");
    assert_eq!(edited(form, &new, wish).unwrap(), new, "twice: {before:?}");
    match Edit::between(before, &new) {
        None => assert_eq!(before, after),
        Some(edit) => assert_eq!(edit.undo(&new).as_deref(), Some(before)),
    }
}
