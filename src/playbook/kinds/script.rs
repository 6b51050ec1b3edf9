//! `script`: a file of this machine, run on the host by the interpreter its first line names.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::argument::{Argument, Form};
use super::work::{Acted, Work};
use super::{Kind, command, remote};
use crate::event::Failure;
use crate::ssh::quote;

/// The kind.
#[derive(Debug)]
pub struct Script;

impl Kind for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            Argument::must("src", Form::Text),
            Argument::may("args", Form::Texts),
            Argument::may("chdir", Form::Text),
            Argument::may("creates", Form::Text),
            Argument::may("changed_when", Form::Conditions),
            Argument::may("root", Form::Flag),
        ];
        ALL
    }

    fn main(&self) -> Option<&'static str> {
        Some("src")
    }

    fn leaves_marks(&self) -> bool {
        true
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let host = work.host()?;
            let src = work.given.must("src");
            let bytes = remote::local(work, src).await?;
            let root = work.given.flag("root");
            let path = if work.context.check {
                "/nonexistent".to_owned()
            } else {
                remote::temporary(work, host, root, &bytes).await?
            };
            // Run by sh where the file names no interpreter.
            let mut line = if bytes.starts_with(b"#!") {
                format!("chmod 700 {0} && {0}", quote(&path))
            } else {
                format!("sh {}", quote(&path))
            };
            for argument in work.given.texts("args") {
                line.push(' ');
                line.push_str(&quote(&argument));
            }
            let done = command::apply(work, host, &line, src).await;
            if !work.context.check {
                remote::remove(work, host, root, &path).await;
            }
            Ok(work.one(done?))
        }
        .boxed()
    }
}
