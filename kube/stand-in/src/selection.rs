//! Which objects a list or a watch selects: a namespace, labels and fields.

use crate::status::Refused;
use serde_json::Value;

/// One term of a selector.
struct Requirement {
    /// Where the label or the field is in an object.
    path: Vec<String>,
    /// What it must be; without it, it must exist.
    value: Option<String>,
    /// The term asks for the opposite.
    is_negated: bool,
}

pub(crate) struct Selection {
    /// Empty: all.
    namespace: String,
    requirements: Vec<Requirement>,
}

/// `a=b`, `a==b`, `a!=b`, `a` and `!a`, with commas between them. Sets such as `a in (b, c)` are refused.
fn parse(selector: &str, path: impl Fn(&str) -> Vec<String>) -> Result<Vec<Requirement>, Refused> {
    let parse_term = |term: &str| {
        let (name, value, is_negated) = match (term.split_once("!="), term.split_once('=')) {
            (Some((name, value)), _) => (name, Some(value), true),
            (None, Some((name, value))) => (name, Some(value.trim_start_matches('=')), false),
            (None, None) => (term.trim_start_matches('!'), None, term.starts_with('!')),
        };
        let (name, value) = (name.trim(), value.map(|value| value.trim().to_owned()));
        let is_a_set = name.contains([' ', '(', ')']);
        if is_a_set { Err(Refused::with(400)) } else { Ok(Requirement { path: path(name), value, is_negated }) }
    };
    selector.split(',').map(str::trim).filter(|term| !term.is_empty()).map(parse_term).collect()
}

impl Requirement {
    fn holds(&self, object: &Value) -> bool {
        let found = self.path.iter().try_fold(object, |object, name| object.get(name)).and_then(Value::as_str);
        let holds = match &self.value {
            Some(value) => found == Some(value),
            None => found.is_some(),
        };
        holds != self.is_negated
    }
}

impl Selection {
    pub(crate) fn new(namespace: &str, labels: &str, fields: &str) -> Result<Self, Refused> {
        let mut requirements =
            parse(labels, |label| ["metadata", "labels", label].into_iter().map(str::to_owned).collect())?;
        requirements.extend(parse(fields, |field| field.split('.').map(str::to_owned).collect())?);
        Ok(Self { namespace: namespace.to_owned(), requirements })
    }

    pub(crate) fn is_within(&self, namespace: &str) -> bool {
        self.namespace.is_empty() || self.namespace == namespace
    }

    /// Whether it selects an object of its namespace.
    pub(crate) fn selects(&self, object: &Value) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(object))
    }
}
