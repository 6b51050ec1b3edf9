//! `template`: a file whose content is rendered for each host.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::argument::{Argument, Form};
use super::work::{Acted, Done, Work};
use super::{Kind, file, remote};
use crate::event::{Failure, Status};
use crate::playbook::expression::{Template, render_text};

/// The kind.
#[derive(Debug)]
pub struct TemplateFile;

impl Kind for TemplateFile {
    fn name(&self) -> &'static str {
        "template"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            Argument::must("src", Form::Text),
            Argument::must("path", Form::Text),
            Argument::may("mode", Form::Text),
            Argument::may("owner", Form::Text),
            Argument::may("group", Form::Text),
            Argument::may("root", Form::Flag),
        ];
        ALL
    }

    fn check(&self, arguments: &[(String, Template)]) -> Option<String> {
        file::wrong_mode(arguments)
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let host = work.host()?;
            let src = work.given.must("src");
            let source = String::from_utf8(remote::local(work, src).await?).map_err(|_| {
                work.failed(host.name(), format!("the template {src} is not UTF-8"))
            })?;
            let content = match render_text(&source, &work.names) {
                Ok(content) => content,
                Err(error) if work.context.check && error.undefined => {
                    return Ok(work.one(Done::new(
                        Status::Unknown,
                        "uses what was not done in a check",
                    )));
                }
                // The whole template would hide what is wrong with it.
                Err(error) => {
                    let what = error.message.rsplit("`: ").next().unwrap_or_default();
                    return Err(work.failed(host.name(), format!("the template {src}: {what}")));
                }
            };
            let done = file::content_is(work, host, Some(content.as_bytes())).await?;
            Ok(work.one(done))
        }
        .boxed()
    }
}
