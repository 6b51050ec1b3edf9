//! One text for each way in which such files are written.

use super::Form::{Entry, Grub, Install, Line, Modprobe};
use super::*;

#[test]
fn a_parameter_is_set_in_every_form_and_nothing_else_changes() {
    let variants: &[(Form, &str, &str)] = &[
        // The command line itself.
        (Line, "", "ttm.pages_limit=31457280"),
        (Line, "\n", "ttm.pages_limit=31457280\n"),
        (Line, "ro quiet", "ro quiet ttm.pages_limit=31457280"),
        (
            Line,
            "ro  quiet \n",
            "ro  quiet ttm.pages_limit=31457280 \n",
        ),
        (Line, "ttm.pages_limit=1 ro", "ttm.pages_limit=31457280 ro"),
        (Line, "ttm.pages-limit=1 ro", "ttm.pages_limit=31457280 ro"),
        (Line, "ttm.pages_limit ro", "ttm.pages_limit=31457280 ro"),
        (
            Line,
            "ttm.pages_limit=1 ro ttm.pages_limit=2",
            "ttm.pages_limit=1 ro ttm.pages_limit=31457280",
        ),
        (
            Line,
            "ttm.pages_limit=31457280 ro",
            "ttm.pages_limit=31457280 ro",
        ),
        (
            Line,
            "ttm.pages_limit=\"31457280\" ro",
            "ttm.pages_limit=\"31457280\" ro",
        ),
        (
            Line,
            "ro -- single",
            "ro ttm.pages_limit=31457280 -- single",
        ),
        (
            Line,
            "-- ttm.pages_limit=5",
            "ttm.pages_limit=31457280 -- ttm.pages_limit=5",
        ),
        (
            Line,
            "amdttm.pages_limit=7",
            "amdttm.pages_limit=7 ttm.pages_limit=31457280",
        ),
        (
            Line,
            "dyndbg=\"module ttm.pages_limit=1 +p\"",
            "dyndbg=\"module ttm.pages_limit=1 +p\" ttm.pages_limit=31457280",
        ),
        // /etc/default/grub.
        (
            Grub,
            "",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"ttm.pages_limit=31457280\"\n",
        ),
        (
            Grub,
            "GRUB_DEFAULT=0",
            "GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT=\"ttm.pages_limit=31457280\"\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash\"\nGRUB_CMDLINE_LINUX=\"\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash ttm.pages_limit=31457280\"\nGRUB_CMDLINE_LINUX=\"\"\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX_DEFAULT='quiet splash'",
            "GRUB_CMDLINE_LINUX_DEFAULT='quiet splash ttm.pages_limit=31457280'",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet ttm.pages_limit=31457280\"\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX_DEFAULT=quiet\\ splash\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=quiet\\ splash\" ttm.pages_limit=31457280\"\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX_DEFAULT=\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"ttm.pages_limit=31457280\"\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX_DEFAULT=\"\"",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"ttm.pages_limit=31457280\"",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX_DEFAULT=''\n",
            "GRUB_CMDLINE_LINUX_DEFAULT='ttm.pages_limit=31457280'\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX=\"rhgb quiet\"\n",
            "GRUB_CMDLINE_LINUX=\"rhgb quiet ttm.pages_limit=31457280\"\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX=\"a ttm.pages_limit=9 b\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n",
            "GRUB_CMDLINE_LINUX=\"a ttm.pages_limit=31457280 b\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet  \" # don't ask\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet ttm.pages_limit=31457280  \" # don't ask\n",
        ),
        (
            Grub,
            "# it's `odd'\n#GRUB_CMDLINE_LINUX_DEFAULT=\"x\"\nGRUB_CMDLINE_LINUX_DEFAULT='q'\n",
            "# it's `odd'\n#GRUB_CMDLINE_LINUX_DEFAULT=\"x\"\nGRUB_CMDLINE_LINUX_DEFAULT='q ttm.pages_limit=31457280'\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX_DEFAULT=\"a\"\nGRUB_CMDLINE_LINUX_DEFAULT+=\" b\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"a\"\nGRUB_CMDLINE_LINUX_DEFAULT+=\" b ttm.pages_limit=31457280\"\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX_DEFAULT=\"a\"\nGRUB_CMDLINE_LINUX_DEFAULT+=\"\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"a\"\nGRUB_CMDLINE_LINUX_DEFAULT+=\" ttm.pages_limit=31457280\"\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX=\"rd.luks.uuid=luks-aa rd.luks.uuid=luks-bb quiet\"\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX usb=off\"\n",
            "GRUB_CMDLINE_LINUX=\"rd.luks.uuid=luks-aa rd.luks.uuid=luks-bb quiet\"\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX usb=off ttm.pages_limit=31457280\"\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX=\"ttm.pages_limit=4 quiet\"\nGRUB_CMDLINE_LINUX=\"${GRUB_CMDLINE_LINUX} usb=off\"\n",
            "GRUB_CMDLINE_LINUX=\"ttm.pages_limit=31457280 quiet\"\nGRUB_CMDLINE_LINUX=\"${GRUB_CMDLINE_LINUX} usb=off\"\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX=\"old ttm.pages_limit=4\"\nGRUB_CMDLINE_LINUX=\"new\"\n",
            "GRUB_CMDLINE_LINUX=\"old ttm.pages_limit=4\"\nGRUB_CMDLINE_LINUX=\"new ttm.pages_limit=31457280\"\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX=\"dyndbg=\\\"module spi_x +p\\\" dyndbg=\\\"module spi_y +p\\\"\"\n",
            "GRUB_CMDLINE_LINUX=\"dyndbg=\\\"module spi_x +p\\\" dyndbg=\\\"module spi_y +p\\\" ttm.pages_limit=31457280\"\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet \\\n  splash\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet \\\n  splash ttm.pages_limit=31457280\"\n",
        ),
        (
            Grub,
            "GRUB_DISTRIBUTOR=\"$(sed 's, release .*$,,g' /etc/x-release)\"\nGRUB_CMDLINE_LINUX=\"rhgb\"\n",
            "GRUB_DISTRIBUTOR=\"$(sed 's, release .*$,,g' /etc/x-release)\"\nGRUB_CMDLINE_LINUX=\"rhgb ttm.pages_limit=31457280\"\n",
        ),
        (
            Grub,
            "GRUB_DISTRIBUTOR=`( . /etc/os-release; echo ${NAME:-Debian} ) 2>/dev/null || echo Debian`\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n",
            "GRUB_DISTRIBUTOR=`( . /etc/os-release; echo ${NAME:-Debian} ) 2>/dev/null || echo Debian`\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet ttm.pages_limit=31457280\"\n",
        ),
        (
            Grub,
            "export GRUB_CMDLINE_LINUX=\"a\"; GRUB_TIMEOUT=1\n",
            "export GRUB_CMDLINE_LINUX=\"a ttm.pages_limit=31457280\"; GRUB_TIMEOUT=1\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX=\"a\"'b'\n",
            "GRUB_CMDLINE_LINUX=\"a\"'b ttm.pages_limit=31457280'\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX=\"root=x -- single\"\n",
            "GRUB_CMDLINE_LINUX=\"root=x ttm.pages_limit=31457280 -- single\"\n",
        ),
        (
            Grub,
            "if [ -f /x ]; then\n  GRUB_TIMEOUT=3\nfi\nGRUB_CMDLINE_LINUX=\"a\"\n",
            "if [ -f /x ]; then\n  GRUB_TIMEOUT=3\nfi\nGRUB_CMDLINE_LINUX=\"a ttm.pages_limit=31457280\"\n",
        ),
        // Loader entries.
        (
            Entry,
            "title X\nlinux /vmlinuz\noptions root=UUID=1 ro\n",
            "title X\nlinux /vmlinuz\noptions root=UUID=1 ro ttm.pages_limit=31457280\n",
        ),
        (
            Entry,
            "linux /v\noptions root=x\noptions quiet\ngrub_class fedora",
            "linux /v\noptions root=x\noptions quiet ttm.pages_limit=31457280\ngrub_class fedora",
        ),
        (
            Entry,
            "linux /v\noptions ttm.pages_limit=3 root=x\noptions quiet\n",
            "linux /v\noptions ttm.pages_limit=31457280 root=x\noptions quiet\n",
        ),
        (
            Entry,
            "linux\t/v\r\noptions\troot=x  \r\n",
            "linux\t/v\r\noptions\troot=x ttm.pages_limit=31457280  \r\n",
        ),
        (
            Entry,
            "linux /v\n# options no\noptions console=tty0 console=ttyS0,115200n8 $tuned_params\n",
            "linux /v\n# options no\noptions console=tty0 console=ttyS0,115200n8 $tuned_params ttm.pages_limit=31457280\n",
        ),
        (
            Entry,
            "linux /v",
            "linux /v\noptions ttm.pages_limit=31457280\n",
        ),
        (
            Entry,
            "linux /v\noptions\n",
            "linux /v\noptions ttm.pages_limit=31457280\n",
        ),
        // /etc/kernel/cmdline.
        (
            Install,
            "root=UUID=1 rw quiet\n",
            "root=UUID=1 rw quiet ttm.pages_limit=31457280\n",
        ),
        (
            Install,
            "cryptdevice=UUID=1:root root=/dev/mapper/root rw",
            "cryptdevice=UUID=1:root root=/dev/mapper/root rw ttm.pages_limit=31457280",
        ),
        (
            Install,
            "\nroot=ZFS=rpool/ROOT boot=zfs\n\n",
            "\nroot=ZFS=rpool/ROOT boot=zfs ttm.pages_limit=31457280\n\n",
        ),
        // modprobe.d.
        (Modprobe, "", "options ttm pages_limit=31457280\n"),
        (
            Modprobe,
            "options ttm pages_limit=4 page_pool_size=4\n",
            "options ttm pages_limit=31457280 page_pool_size=4\n",
        ),
        (
            Modprobe,
            "options ttm page_pool_size=4",
            "options ttm page_pool_size=4\noptions ttm pages_limit=31457280\n",
        ),
        (
            Modprobe,
            "options ttm pages_limit=1\noptions ttm pages_limit=2\n",
            "options ttm pages_limit=1\noptions ttm pages_limit=31457280\n",
        ),
        (
            Modprobe,
            "# options ttm pages_limit=1\noptions ttm \\\n  pages_limit=1 \\\n  page_pool_size=2\n",
            "# options ttm pages_limit=1\noptions ttm \\\n  pages_limit=31457280 \\\n  page_pool_size=2\n",
        ),
        (
            Modprobe,
            "options amdttm pages_limit=1\n",
            "options amdttm pages_limit=1\noptions ttm pages_limit=31457280\n",
        ),
    ];
    assert!(variants.len() >= 40);
    for (form, before, after) in variants {
        changes(*form, before, &pages(), after);
    }
}

#[test]
fn a_parameter_is_taken_out_with_the_blank_it_leaves() {
    let variants: &[(Form, &str, &str)] = &[
        (Line, "ttm.pages_limit=1", ""),
        (Line, "ttm.pages_limit=1 ro\n", "ro\n"),
        (
            Line,
            "ro  ttm.pages-limit=1 quiet ttm.pages_limit=2",
            "ro quiet",
        ),
        (
            Line,
            "ro ttm.pages_limit=1 -- ttm.pages_limit=1",
            "ro -- ttm.pages_limit=1",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX=\"a ttm.pages_limit=1 b\"\n",
            "GRUB_CMDLINE_LINUX=\"a b\"\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX='ttm.pages_limit=1'\n",
            "GRUB_CMDLINE_LINUX=''\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX=ttm.pages_limit=1\n",
            "GRUB_CMDLINE_LINUX=\n",
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX=\"ttm.pages_limit=1 a\"\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX ttm.pages_limit=2\"\n",
            "GRUB_CMDLINE_LINUX=\"a\"\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX\"\n",
        ),
        (
            Entry,
            "linux /v\noptions a ttm.pages_limit=1\noptions ttm.pages_limit=2 b\n",
            "linux /v\noptions a\noptions b\n",
        ),
        (Install, "root=x ttm.pages_limit=1\n", "root=x\n"),
        (Modprobe, "options ttm pages_limit=1\n# x\n", "# x\n"),
        (
            Modprobe,
            "options ttm pages_limit=1 page_pool_size=2\n",
            "options ttm page_pool_size=2\n",
        ),
        (
            Modprobe,
            "options ttm page_pool_size=2 pages_limit=1\n",
            "options ttm page_pool_size=2\n",
        ),
    ];
    for (form, before, after) in variants {
        changes(*form, before, &gone("ttm.pages_limit"), after);
    }
}

#[test]
fn values_with_blanks_and_quotes_are_written_as_each_form_needs_them() {
    let wish = set("dyndbg", "module spi_x +p");
    changes(Line, "ro", &wish, "ro dyndbg=\"module spi_x +p\"");
    let double = "GRUB_CMDLINE_LINUX=\"a dyndbg=\\\"module spi_x +p\\\"\"\n";
    changes(Grub, "GRUB_CMDLINE_LINUX=\"a\"\n", &wish, double);
    let single = "GRUB_CMDLINE_LINUX='a dyndbg=\"module spi_x +p\"'\n";
    changes(Grub, "GRUB_CMDLINE_LINUX='a'\n", &wish, single);
}

#[test]
fn what_cannot_be_changed_safely_is_refused_with_its_line_and_what_to_type() {
    let by_hand =
        "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT ttm.pages_limit=31457280\"";
    let variants: &[(Form, &str, Option<usize>, &str)] = &[
        (
            Grub,
            "A=1\nGRUB_CMDLINE_LINUX=\"quiet $(cat /etc/extra)\"\n",
            Some(2),
            by_hand,
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX_DEFAULT=\"`cat /etc/extra`\"\n",
            Some(1),
            by_hand,
        ),
        (
            Grub,
            "GRUB_CMDLINE_LINUX_DEFAULT=\"${X:-quiet}\"\n",
            Some(1),
            by_hand,
        ),
        (
            Grub,
            "X=$(date)\nGRUB_CMDLINE_LINUX=\"quiet $X\"\n",
            Some(2),
            by_hand,
        ),
        (
            Grub,
            "if true; then\nGRUB_CMDLINE_LINUX=\"a\"\nfi\n",
            Some(2),
            by_hand,
        ),
        (
            Grub,
            "[ -f /x ] && GRUB_CMDLINE_LINUX=\"a\"\n",
            Some(1),
            by_hand,
        ),
        (Grub, "f() {\nGRUB_CMDLINE_LINUX=a\n}\n", Some(2), by_hand),
        (Grub, "GRUB_CMDLINE_LINUX=\"a\nb=c\n", Some(1), "not closed"),
        (
            Grub,
            "A=0\r\nGRUB_CMDLINE_LINUX=\"a\"\r\n",
            Some(1),
            "CR LF",
        ),
        (
            Grub,
            "cat <<E\nGRUB_CMDLINE_LINUX=x\nE\n",
            Some(1),
            "here-document",
        ),
        (
            Grub,
            "P=ttm.pages_limit=3\nGRUB_CMDLINE_LINUX=\"a $P\"\n",
            Some(2),
            by_hand,
        ),
        (Entry, "title X\noptions a\n", None, "boots nothing"),
        (Entry, "title X\nlinux /v\noption a\n", Some(3), "`options`"),
        (
            Entry,
            "linux /v\noptions $kernelopts\n",
            Some(2),
            "grubby --update-kernel=ALL --args=\"ttm.pages_limit=31457280\"",
        ),
        (
            Install,
            "title X\noption rw quiet\nlinux /v\n",
            Some(1),
            "loader entry",
        ),
        (Install, "root=x\nquiet\n", Some(2), "one line"),
        (Install, "", None, "empty"),
        (Install, "root=x\r\n", Some(1), "CR LF"),
        (
            Modprobe,
            "\noptions ttm pages_limit=1\r\n",
            Some(2),
            "CR LF",
        ),
    ];
    for (form, text, line, wanted) in variants {
        let refusal = edited(*form, text, &pages()).expect_err(text);
        assert_eq!(refusal.line, *line, "{text:?}: {refusal}");
        assert!(refusal.to_string().contains(wanted), "{text:?}: {refusal}");
    }
    let refusal = edited(Modprobe, "", &set("quiet", "1")).unwrap_err();
    assert!(refusal.to_string().contains("no module's"), "{refusal}");
}

#[test]
fn of_several_files_the_one_whose_value_counts_is_changed() {
    let files = |a: &str, b: &str| {
        [
            File::new("/etc/default/grub", a),
            File::new("/etc/default/grub.d/50-cloud.cfg", b),
        ]
    };
    for (a, b, new_a, new_b) in [
        (
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"console=tty1 console=ttyS0\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"console=tty1 console=ttyS0 ttm.pages_limit=31457280\"\n",
        ),
        (
            "GRUB_CMDLINE_LINUX_DEFAULT=\"ttm.pages_limit=1\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT x\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"ttm.pages_limit=31457280\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT x\"\n",
        ),
        (
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n",
            "GRUB_TIMEOUT=0\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet ttm.pages_limit=31457280\"\n",
            "GRUB_TIMEOUT=0\n",
        ),
    ] {
        let new = grub::edit(&files(a, b), &pages()).unwrap();
        assert_eq!(new, files(new_a, new_b));
        assert_eq!(grub::edit(&new, &pages()).unwrap(), new);
    }
}
