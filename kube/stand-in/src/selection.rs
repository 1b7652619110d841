//! Which objects a list or a watch selects: a namespace, labels and fields.

use crate::status::Refused;
use serde_json::Value;

/// What one term of a selector asks of a label or a field.
enum Wanted {
    Is(String),
    IsNot(String),
    Exists,
    IsAbsent,
}

struct Requirement {
    /// Where the label or the field is in an object.
    path: Vec<String>,
    wanted: Wanted,
}

pub(crate) struct Selection {
    /// Empty: all.
    namespace: String,
    requirements: Vec<Requirement>,
}

/// `a=b`, `a==b`, `a!=b`, `a` and `!a`, with commas between them. Sets such as `a in (b, c)` are refused.
fn parse(selector: &str, path: impl Fn(&str) -> Vec<String>) -> Result<Vec<Requirement>, Refused> {
    let parse_term = |term: &str| {
        let (name, wanted) = if let Some((name, value)) = term.split_once("!=") {
            (name, Wanted::IsNot(value.trim().to_owned()))
        } else if let Some((name, value)) = term.split_once('=') {
            (name, Wanted::Is(value.trim_start_matches('=').trim().to_owned()))
        } else if let Some(name) = term.strip_prefix('!') {
            (name, Wanted::IsAbsent)
        } else {
            (term, Wanted::Exists)
        };
        let name = name.trim();
        let is_a_set = name.contains([' ', '(', ')']);
        if is_a_set { Err(Refused::with(400)) } else { Ok(Requirement { path: path(name), wanted }) }
    };
    selector.split(',').map(str::trim).filter(|term| !term.is_empty()).map(parse_term).collect()
}

impl Requirement {
    fn holds(&self, object: &Value) -> bool {
        let found = self.path.iter().try_fold(object, |object, name| object.get(name)).and_then(Value::as_str);
        match &self.wanted {
            Wanted::Is(value) => found == Some(value),
            Wanted::IsNot(value) => found != Some(value),
            Wanted::Exists => found.is_some(),
            Wanted::IsAbsent => found.is_none(),
        }
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
