//! Forms: for a host of the inventory and the edit that its fields make, and for the values of a
//! playbook and the run that they begin. Pure.

use tui_input::Input;

use super::{Job, ListedHost, Play};
use crate::figures::memory;
use crate::inventory::edit::{Edit, Whom};

/// One field.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its label.
    pub label: String,
    /// The inventory's key, or the playbook's value; empty for a host's name.
    pub key: String,
    /// What it is for.
    pub hint: String,
    /// What was there.
    was: String,
    /// What is typed.
    pub input: Input,
}

/// What a form is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// A host that is changed; `None` for a new one.
    Host(Option<String>),
    /// A playbook that is to be run.
    Play {
        /// The playbook.
        play: Play,
        /// Whether changes are only computed.
        check: bool,
    },
}

/// The form.
#[derive(Clone, Debug)]
pub struct Form {
    /// What it is for.
    pub about: About,
    /// Its fields.
    pub fields: Vec<Field>,
    /// The field that is typed in.
    pub at: usize,
    /// Why what was typed is refused.
    pub fault: Option<String>,
}

const FIELDS: &[(&str, &str, &str)] = &[
    ("name", "", "halo1, or several at once: mac[1-5]"),
    (
        "address",
        "address",
        "where SSH connects: a name or an address",
    ),
    (
        "data address",
        "data",
        "where the other workers reach it; empty: the same",
    ),
    ("user", "user", "to log in as; empty: as ssh would"),
    ("ssh port", "ssh.port", "empty: 22"),
    (
        "ssh identity",
        "ssh.identity",
        "private key file; empty: the agent and the usual ones",
    ),
    ("connection", "connection", "ssh, or local for this machine"),
    (
        "memory limit",
        "memory_limit",
        "the most to plan with, as 110GiB; empty: all",
    ),
];

impl Form {
    /// For a new host.
    pub fn new() -> Self {
        Self::with(None, &ListedHost::default())
    }

    /// For a host that is there.
    pub fn of(host: &ListedHost) -> Self {
        Self::with(Some(host.name.clone()), host)
    }

    /// For the values of a playbook.
    pub fn of_play(play: Play, check: bool) -> Self {
        let field = |(name, value): &(String, String)| Field {
            label: name.clone(),
            key: name.clone(),
            hint: format!("as the playbook has it: {value}"),
            input: Input::from(value.clone()),
            was: value.clone(),
        };
        Self {
            fields: play.vars.iter().map(field).collect(),
            about: About::Play { play, check },
            at: 0,
            fault: None,
        }
    }

    /// The playbook that is to be run, and the run that was asked for: with the values that differ
    /// from its own. `None` of a form for something else.
    pub fn job(&self) -> Option<(&Play, Job)> {
        let About::Play { play, check } = &self.about else {
            return None;
        };
        let changed = self
            .fields
            .iter()
            .filter(|field| field.input.value() != field.was);
        let job = Job::Playbook {
            name: play.name.clone(),
            check: *check,
            vars: changed
                .map(|field| (field.key.clone(), field.input.value().to_owned()))
                .collect(),
        };
        Some((play, job))
    }

    fn with(name: Option<String>, host: &ListedHost) -> Self {
        let value = |key: &str| -> String {
            match key {
                "address" if host.address_written => host.address.clone(),
                "data" => host.data.clone().unwrap_or_default(),
                "user" => host.user.clone().unwrap_or_default(),
                "ssh.port" => host.port.map(|port| port.to_string()).unwrap_or_default(),
                "ssh.identity" => host.identity.clone().unwrap_or_default(),
                "connection" if host.local => "local".to_owned(),
                "memory_limit" => host.memory_limit.map(limit).unwrap_or_default(),
                _ => String::new(),
            }
        };
        let is_new = name.is_none();
        Self {
            about: About::Host(name),
            fields: FIELDS
                .iter()
                .filter(|(_, key, _)| is_new || !key.is_empty())
                .map(|(label, key, hint)| {
                    let was = value(key);
                    Field {
                        label: (*label).to_owned(),
                        key: (*key).to_owned(),
                        hint: (*hint).to_owned(),
                        input: Input::from(was.clone()),
                        was,
                    }
                })
                .collect(),
            at: 0,
            fault: None,
        }
    }

    /// The edit that was asked for.
    ///
    /// # Errors
    /// When a name is missing, nothing was changed, or the form is for something else.
    pub fn edit(&self) -> Result<Edit, String> {
        let value = |field: &Field| field.input.value().trim().to_owned();
        let changed: Vec<String> = self
            .fields
            .iter()
            .filter(|field| !field.key.is_empty() && value(field) != field.was)
            .map(|field| format!("{}={}", field.key, value(field)))
            .collect();
        let About::Host(host) = &self.about else {
            return Err("this changes no host".into());
        };
        match host {
            Some(_) if changed.is_empty() => {
                Err("nothing was changed: change a field, or leave with esc".into())
            }
            Some(name) => Ok(Edit::Set(Whom::Host(name.clone()), changed)),
            None => {
                let name = self.fields.first().map(value).unwrap_or_default();
                if name.is_empty() {
                    return Err("a host needs a name".into());
                }
                if name.starts_with('@') {
                    return Err("a host's name does not begin with @".into());
                }
                Ok(Edit::Add(Whom::Host(name), changed))
            }
        }
    }
}

impl Default for Form {
    fn default() -> Self {
        Self::new()
    }
}

/// A limit as the inventory writes it.
fn limit(bytes: u64) -> String {
    let gib = 1_u64 << 30;
    if bytes.is_multiple_of(gib) {
        format!("{}GiB", bytes / gib)
    } else if bytes.is_multiple_of(1 << 20) {
        format!("{}MiB", bytes >> 20)
    } else {
        // Only shown; a field that is not touched is not written.
        memory(bytes).replace(' ', "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(form: &mut Form, label: &str, text: &str) {
        let field = form.fields.iter_mut().find(|f| f.label == label).unwrap();
        field.input = Input::from(text.to_owned());
    }

    #[test]
    fn a_playbook_is_begun_with_the_values_that_were_changed_and_no_others() {
        let play = Play {
            name: "benchmark".into(),
            vars: vec![
                ("concurrency".into(), "1,2,4,8".into()),
                ("tokens".into(), "128".into()),
            ],
            ..Play::default()
        };
        let mut form = Form::of_play(play, true);
        typed(&mut form, "tokens", "32");
        let (_, job) = form.job().unwrap();
        assert_eq!(
            job,
            Job::Playbook {
                name: "benchmark".into(),
                check: true,
                vars: vec![("tokens".into(), "32".into())],
            }
        );
        assert!(form.edit().is_err() && Form::new().job().is_none());
    }

    #[test]
    fn a_new_host_takes_only_what_was_typed() {
        let mut form = Form::new();
        assert!(form.edit().is_err());
        typed(&mut form, "name", "halo3");
        typed(&mut form, "address", " 10.0.0.3 ");
        assert_eq!(
            form.edit().unwrap(),
            Edit::Add(Whom::Host("halo3".into()), vec!["address=10.0.0.3".into()])
        );
    }

    #[test]
    fn a_change_names_only_fields_that_differ_and_an_empty_one_takes_the_key_out() {
        let host = ListedHost {
            name: "halo1".into(),
            address: "10.0.0.1".into(),
            address_written: true,
            user: Some("ai".into()),
            memory_limit: Some(110 << 30),
            ..ListedHost::default()
        };
        let mut form = Form::of(&host);
        assert!(form.edit().is_err());
        typed(&mut form, "user", "");
        typed(&mut form, "ssh port", "2222");
        assert_eq!(
            form.edit().unwrap(),
            Edit::Set(
                Whom::Host("halo1".into()),
                vec!["user=".into(), "ssh.port=2222".into()]
            )
        );
    }
}
