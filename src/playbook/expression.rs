//! Texts with `{{ }}`, and conditions: what they name, and what they come to. Pure.
//!
//! Names are strict: one that is not defined is an error. Known names are `vars`, `host`, `facts`
//! and `results`; a text that is exactly one `{{ }}` keeps the type of its value.

use std::collections::BTreeSet;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::inventory::fault::offer;

/// Functions that an expression may call.
const FUNCTIONS: [&str; 3] = ["range", "dict", "namespace"];

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ExpressionError {
    /// What is wrong, with the expression.
    pub message: String,
    /// Whether a name in it is not defined.
    pub undefined: bool,
    /// That name with its dots, where it can be told.
    pub missing: Option<String>,
}

impl ExpressionError {
    /// Whether what is not defined may be so because a task was not done: in a check none is.
    pub fn may_come(&self) -> bool {
        let missing = self.missing.as_deref();
        self.undefined && missing.is_none_or(|name| name.split('.').next() == Some("results"))
    }

    /// With the name that is not defined, and the nearest that is.
    fn about(mut self, source: &str, used: &BTreeSet<String>, names: &Value) -> Self {
        if self.undefined
            && let Some((name, offered)) = missing(used, names)
        {
            self.message = format!("`{}`: there is no {name}{offered}", shown(source));
            self.missing = Some(name);
        }
        self
    }
}

/// The first of the used names that is not defined, as far as it is wrong, and the words that offer the
/// nearest that is.
fn missing(used: &BTreeSet<String>, names: &Value) -> Option<(String, String)> {
    used.iter().find_map(|name| {
        let mut table = names;
        let mut path = String::new();
        for part in name.split('.') {
            // What is no table has no names that could be meant.
            let fields = table.as_object()?;
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(part);
            match fields.get(part) {
                Some(inner) => table = inner,
                None if is_function(&path) => return None,
                None => {
                    let (offered, _) = offer(part, fields.keys().map(String::as_str));
                    return Some((path, offered));
                }
            }
        }
        None
    })
}

fn shown(source: &str) -> String {
    source.trim().chars().take(120).collect()
}

/// A value whose texts may hold `{{ }}`.
#[derive(Clone, Debug, PartialEq)]
pub enum Template {
    /// A value as it stands.
    Value(Value),
    /// Exactly one `{{ }}`; what stands in it.
    Whole(String),
    /// A text with `{{ }}` or `{% %}` in it.
    Text(String),
    /// A list with such values.
    List(Vec<Template>),
    /// A table with such values.
    Table(Vec<(String, Template)>),
}

/// A condition: an expression without `{{ }}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition(pub String);

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        environment.set_syntax(syntax);
    }
    environment
}

fn failed(source: &str, error: &minijinja::Error) -> ExpressionError {
    let undefined = error.kind() == ErrorKind::UndefinedError;
    let what = match (error.detail(), undefined) {
        (Some(detail), _) => detail.to_owned(),
        (None, true) => "it uses something that is not defined".to_owned(),
        (None, false) => error.kind().to_string(),
    };
    ExpressionError {
        message: format!("`{}`: {what}", shown(source)),
        undefined,
        missing: None,
    }
}

/// Compiles an expression; the names it uses with their dots.
fn compiled(source: &str) -> Result<BTreeSet<String>, ExpressionError> {
    let environment = environment();
    let expression = environment
        .compile_expression(source)
        .map_err(|error| failed(source, &error))?;
    Ok(expression.undeclared_variables(true).into_iter().collect())
}

/// Evaluates an expression.
///
/// # Errors
/// When it is none, or a name in it is not defined.
pub fn evaluate(source: &str, names: &Value) -> Result<Value, ExpressionError> {
    let environment = environment();
    let expression = environment
        .compile_expression(source)
        .map_err(|error| failed(source, &error))?;
    let used = || expression.undeclared_variables(true).into_iter().collect();
    let value = expression
        .eval(minijinja::Value::from(Serde(names)))
        .map_err(|error| failed(source, &error).about(source, &used(), names))?;
    if value.is_undefined() {
        let error = ExpressionError {
            message: format!("`{}` is not defined", source.trim()),
            undefined: true,
            missing: None,
        };
        return Err(error.about(source, &used(), names));
    }
    serde_json::to_value(&value).map_err(|error| ExpressionError {
        message: format!("`{}` gives no plain value: {error}", source.trim()),
        undefined: false,
        missing: None,
    })
}

/// Renders a text.
///
/// # Errors
/// When it is malformed, or a name in it is not defined.
pub fn render_text(source: &str, names: &Value) -> Result<String, ExpressionError> {
    let environment = environment();
    let template = environment
        .template_from_str(source)
        .map_err(|error| failed(source, &error))?;
    template
        .render(minijinja::Value::from(Serde(names)))
        .map_err(|error| {
            let used = template.undeclared_variables(true).into_iter().collect();
            failed(source, &error).about(source, &used, names)
        })
}

impl Template {
    /// A text as it stands in a playbook.
    ///
    /// # Errors
    /// When what stands between its braces is no expression.
    pub fn of_text(text: &str) -> Result<Self, ExpressionError> {
        if !text.contains("{{") && !text.contains("{%") && !text.contains("{#") {
            return Ok(Self::Value(text.into()));
        }
        let inner = text
            .trim()
            .strip_prefix("{{")
            .and_then(|rest| rest.strip_suffix("}}"));
        if let Some(inner) = inner
            && compiled(inner).is_ok()
        {
            return Ok(Self::Whole(inner.trim().to_owned()));
        }
        let environment = environment();
        environment
            .template_from_str(text)
            .map_err(|error| failed(text, &error))?;
        Ok(Self::Text(text.to_owned()))
    }

    /// The names it uses, with their dots.
    pub fn names(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        self.collect(&mut all);
        all
    }

    fn collect(&self, all: &mut BTreeSet<String>) {
        match self {
            Self::Value(_) => {}
            Self::Whole(source) => all.extend(compiled(source).unwrap_or_default()),
            Self::Text(source) => {
                let environment = environment();
                if let Ok(template) = environment.template_from_str(source) {
                    all.extend(template.undeclared_variables(true));
                }
            }
            Self::List(items) => items.iter().for_each(|item| item.collect(all)),
            Self::Table(entries) => entries.iter().for_each(|(_, item)| item.collect(all)),
        }
    }

    /// Its value.
    ///
    /// # Errors
    /// When a name in it is not defined, or an operation in it is invalid.
    pub fn render(&self, names: &Value) -> Result<Value, ExpressionError> {
        Ok(match self {
            Self::Value(value) => value.clone(),
            Self::Whole(source) => evaluate(source, names)?,
            Self::Text(source) => render_text(source, names)?.into(),
            Self::List(items) => {
                let values: Result<Vec<Value>, _> =
                    items.iter().map(|item| item.render(names)).collect();
                values?.into()
            }
            Self::Table(entries) => {
                let mut table = Map::new();
                for (name, item) in entries {
                    table.insert(name.clone(), item.render(names)?);
                }
                table.into()
            }
        })
    }

    /// The value when nothing in it is to be rendered.
    pub fn literal(&self) -> Option<Value> {
        match self {
            Self::Value(value) => Some(value.clone()),
            Self::Whole(_) | Self::Text(_) => None,
            Self::List(items) => {
                let values: Option<Vec<Value>> = items.iter().map(Self::literal).collect();
                values.map(Value::from)
            }
            Self::Table(entries) => {
                let mut table = Map::new();
                for (name, item) in entries {
                    table.insert(name.clone(), item.literal()?);
                }
                Some(table.into())
            }
        }
    }
}

impl Condition {
    /// A condition as it stands in a playbook.
    ///
    /// # Errors
    /// When it is no expression.
    pub fn new(source: &str) -> Result<Self, ExpressionError> {
        if source.contains("{{") {
            return Err(ExpressionError {
                message: format!(
                    "`{}` is a condition: write the expression without {{{{ }}}}",
                    source.trim()
                ),
                undefined: false,
                missing: None,
            });
        }
        compiled(source)?;
        Ok(Self(source.to_owned()))
    }

    /// The names it uses, with their dots.
    pub fn names(&self) -> BTreeSet<String> {
        compiled(&self.0).unwrap_or_default()
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// When a name in it is not defined, or it is neither true nor false.
    pub fn holds(&self, names: &Value) -> Result<bool, ExpressionError> {
        match evaluate(&self.0, names)? {
            Value::Bool(holds) => Ok(holds),
            other => Err(ExpressionError {
                message: format!(
                    "`{}` gives {other}, which is neither true nor false",
                    self.0.trim()
                ),
                undefined: false,
                missing: None,
            }),
        }
    }
}

/// Whether a name is one of the functions.
pub(super) fn is_function(name: &str) -> bool {
    FUNCTIONS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_that_is_one_expression_keeps_its_type_and_any_other_is_text() {
        let names = json!({"vars": {"n": 8, "on": true, "list": [1, 2], "model": "m", "f": 0.5}});
        let table = [
            ("plain", json!("plain")),
            ("{{ vars.n }}", json!(8)),
            (" {{ vars.n }} ", json!(8)),
            ("{{ vars.on }}", json!(true)),
            ("{{ vars.list }}", json!([1, 2])),
            ("{{ vars.f }}", json!(0.5)),
            ("{{ vars.n + 1 }}", json!(9)),
            ("n={{ vars.n }}", json!("n=8")),
            ("{{ vars.n }}{{ vars.n }}", json!("88")),
            ("{{ vars.model }}-{{ vars.n }}", json!("m-8")),
            ("{{ '}}' }}", json!("}}")),
            ("{% if vars.on %}a{% endif %}", json!("a")),
            ("a\n{{ vars.model }}\n", json!("a\nm\n")),
        ];
        for (text, wanted) in table {
            let template = Template::of_text(text).unwrap();
            assert_eq!(template.render(&names).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_not_defined_is_an_error_and_never_empty() {
        let names = json!({"vars": {"n": 8}, "results": {"a": {"changed": true}}});
        for text in [
            "{{ vars.m }}",
            "x{{ vars.m }}",
            "{{ results.a.stdout }}",
            "{{ nothing }}",
        ] {
            let error = Template::of_text(text).unwrap().render(&names).unwrap_err();
            assert!(error.undefined, "{text}: {error}");
        }
        let tested = Template::of_text("{{ results.a.stdout is defined }}").unwrap();
        assert_eq!(tested.render(&names).unwrap(), json!(false));
    }

    #[test]
    fn a_name_that_is_not_defined_is_named_with_the_nearest() {
        let names = json!({
            "vars": {"n": 8, "deep": {"size": 1}},
            "host": {"name": "a", "vars": {"rack": 3}},
            "results": {"a": {"changed": true}},
        });
        for (source, name, offered, may_come) in [
            (
                "host.vars.rak == 3",
                "host.vars.rak",
                "did you mean \"rack\"?",
                false,
            ),
            (
                "vars.n == 8 and vars.deep.sice > 0",
                "vars.deep.sice",
                "did you mean \"size\"?",
                false,
            ),
            (
                "results.a.stdout == ''",
                "results.a.stdout",
                "the nearest is \"changed\"",
                true,
            ),
            (
                "results.b.changed",
                "results.b",
                "did you mean \"a\"?",
                true,
            ),
            ("facts.os.name == 'x'", "facts", "", false),
        ] {
            let error = Condition::new(source).unwrap().holds(&names).unwrap_err();
            assert_eq!(error.missing.as_deref(), Some(name), "{source}: {error}");
            let wanted = format!("there is no {name}");
            assert!(error.message.contains(&wanted), "{error}");
            assert!(error.message.contains(offered), "{error}");
            assert_eq!(error.may_come(), may_come, "{source}");
        }
        let error = render_text("x{{ host.vars.rak }}", &names).unwrap_err();
        assert_eq!(error.missing.as_deref(), Some("host.vars.rak"));
        // What asks whether it is there, or says what else holds, is no error.
        for source in [
            "host.vars.rak is not defined",
            "host.vars.rak | default(5) == 5",
        ] {
            assert_eq!(
                Condition::new(source).unwrap().holds(&names),
                Ok(true),
                "{source}"
            );
        }
    }

    #[test]
    fn a_condition_is_true_or_false_and_nothing_else() {
        let names = json!({"vars": {"n": 8}});
        let holds = |source: &str| Condition::new(source).unwrap().holds(&names);
        assert_eq!(holds("vars.n <= 8"), Ok(true));
        assert_eq!(holds("vars.n > 8 or false"), Ok(false));
        assert!(holds("vars.n").unwrap_err().message.contains("gives 8"));
        assert!(Condition::new("{{ vars.n }}").is_err());
        assert!(Condition::new("vars.n <=").is_err());
    }

    #[test]
    fn names_are_found_with_their_dots() {
        let names = |text: &str| -> Vec<String> {
            Template::of_text(text)
                .unwrap()
                .names()
                .into_iter()
                .collect()
        };
        assert_eq!(
            names("{{ vars.a ~ facts.os.name }}"),
            ["facts.os.name", "vars.a"]
        );
        assert_eq!(
            names("{% for x in vars.l %}{{ x }}{% endfor %}"),
            ["vars.l"]
        );
    }
}
