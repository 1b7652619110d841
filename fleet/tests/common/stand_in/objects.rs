//! The objects of one kind, and the rules by which an API server changes them. No HTTP.

use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// Why a request is refused.
pub enum Refused {
    NotFound,
    AlreadyExists,
    Conflict,
}

/// What a deletion did.
pub enum Deletion {
    Done,
    /// The object has finalizers, and is deleted when the last one is removed.
    Begun(Value),
}

struct Event {
    version: u64,
    key: String,
    before: Option<Value>,
    /// The object after the change, or as it was deleted.
    object: Value,
    deleted: bool,
}

#[derive(Default)]
pub struct Objects {
    version: u64,
    objects: BTreeMap<String, Value>,
    events: Vec<Event>,
}

/// What a request for a list or a watch selects: a namespace or all, and objects with a label or all.
pub struct Selection {
    namespace: Option<String>,
    label: Option<(String, String)>,
}

impl Selection {
    pub fn new(namespace: Option<String>, query: &HashMap<String, String>) -> Self {
        let selector = query.get("labelSelector").and_then(|selector| selector.split_once('='));
        Self { namespace, label: selector.map(|(label, value)| (label.to_owned(), value.to_owned())) }
    }

    fn is_within(&self, key: &str) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| key.split('/').next() == Some(namespace))
    }

    fn has_label(&self, object: &Value) -> bool {
        self.label.as_ref().is_none_or(|(label, value)| object["metadata"]["labels"][label] == **value)
    }
}

/// A merge patch (RFC 7386).
fn merge(object: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *object = patch;
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            object.as_object_mut().expect("it is one").remove(&name);
        } else {
            merge(&mut object[name], value);
        }
    }
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

impl Objects {
    pub fn version(&self) -> u64 {
        self.version
    }

    fn happened(&mut self, key: &str, object: &mut Value, deleted: bool) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let key = key.to_owned();
        let before = if deleted { self.objects.remove(&key) } else { self.objects.insert(key.clone(), object.clone()) };
        self.events.push(Event { version: self.version, key, before, object: object.clone(), deleted });
    }

    pub fn get(&self, key: &str) -> Result<&Value, Refused> {
        self.objects.get(key).ok_or(Refused::NotFound)
    }

    /// The object, if it is at the version that `wanted` names, or if that names none.
    fn at(&self, key: &str, wanted: &Value) -> Result<&Value, Refused> {
        let object = self.get(key)?;
        let matches = wanted.is_null() || *wanted == object["metadata"]["resourceVersion"];
        if matches { Ok(object) } else { Err(Refused::Conflict) }
    }

    pub fn create(&mut self, key: &str, mut object: Value) -> Result<Value, Refused> {
        if self.objects.contains_key(key) {
            return Err(Refused::AlreadyExists);
        }
        let namespace = key.split('/').next();
        merge(
            &mut object,
            json!({ "metadata": { "namespace": namespace, "uid": format!("uid-{}", self.version), "deletionTimestamp": null } }),
        );
        self.happened(key, &mut object, false);
        Ok(object)
    }

    /// A PUT. Of an object that does not exist it is a creation, also if it names a version: a real API server does that with Leases.
    pub fn replace(&mut self, key: &str, object: Value) -> Result<Value, Refused> {
        match self.at(key, &object["metadata"]["resourceVersion"]) {
            Ok(_) => Ok(self.update(key, object)),
            Err(Refused::NotFound) => self.create(key, object),
            Err(refused) => Err(refused),
        }
    }

    pub fn patch(&mut self, key: &str, patch: Value) -> Result<Value, Refused> {
        let mut object = self.at(key, &patch["metadata"]["resourceVersion"])?.clone();
        merge(&mut object, patch);
        Ok(self.update(key, object))
    }

    /// A change that changes nothing makes no version. The removal of the last finalizer deletes an object whose deletion has begun.
    fn update(&mut self, key: &str, mut object: Value) -> Value {
        let old = &self.objects[key];
        for field in ["uid", "namespace", "deletionTimestamp", "resourceVersion"] {
            merge(&mut object, json!({ "metadata": { field: old["metadata"][field] } }));
        }
        if object != *old {
            let deleted = !object["metadata"]["deletionTimestamp"].is_null() && !has_finalizers(&object);
            self.happened(key, &mut object, deleted);
        }
        object
    }

    pub fn delete(&mut self, key: &str, wanted: &Value) -> Result<Deletion, Refused> {
        let mut object = self.at(key, wanted)?.clone();
        if !has_finalizers(&object) {
            self.happened(key, &mut object, true);
            return Ok(Deletion::Done);
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
            self.happened(key, &mut object, false);
        }
        Ok(Deletion::Begun(object))
    }

    pub fn list(&self, selection: &Selection) -> Vec<&Value> {
        let within =
            self.objects.iter().filter(|(key, object)| selection.is_within(key) && selection.has_label(object));
        within.map(|(_, object)| object).collect()
    }

    /// The events after version `seen`, as a watch says them. An object that loses the label is deleted for a watch that selects the label, and one that
    /// gains it is new.
    pub fn since(&self, seen: u64, selection: &Selection) -> Vec<Value> {
        let new = self.events.iter().filter(|event| event.version > seen && selection.is_within(&event.key));
        let say = |event: &Event| {
            let before = event.before.as_ref().is_some_and(|object| selection.has_label(object));
            let kind = match (before, !event.deleted && selection.has_label(&event.object)) {
                (false, true) => "ADDED",
                (true, true) => "MODIFIED",
                (true, false) => "DELETED",
                (false, false) => return None,
            };
            Some(json!({ "type": kind, "object": event.object }))
        };
        new.filter_map(say).collect()
    }

    pub fn history(&self) -> Vec<Value> {
        self.events.iter().map(|event| event.object.clone()).collect()
    }
}
