//! The objects, and the rules by which an API server changes them. No HTTP.

use crate::selection::Selection;
use crate::status::Refused;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// A namespace, which is empty for objects that have none, and a name.
pub(crate) type Key = (String, String);

/// The server's clock stands still.
const TIME: &str = "2030-01-01T00:00:00Z";

/// Which part of an object a write may change.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Part {
    All,
    AllButStatus,
    Status,
}

struct Event {
    version: u64,
    resource: Arc<str>,
    key: Key,
    before: Option<Arc<Value>>,
    /// The object after the change, or as it was deleted.
    object: Arc<Value>,
    is_deleted: bool,
}

/// The objects of one resource, such as `deployments.apps`.
struct Resource {
    name: Arc<str>,
    /// Of the newest object; `Deployment`.
    kind: String,
    objects: BTreeMap<Key, Arc<Value>>,
}

#[derive(Default)]
pub(crate) struct Objects {
    /// The number of changes so far: one count for all resources, as in etcd.
    version: u64,
    /// No list and no watch begins before this version.
    forgotten: u64,
    resources: BTreeMap<String, Resource>,
    events: Vec<Event>,
}

/// A part of a list. There is more after the last object of `objects` if `is_last` is false.
pub(crate) struct Page<'a> {
    pub(crate) objects: Vec<(&'a Key, &'a Value)>,
    pub(crate) is_last: bool,
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

/// Whether the objects differ in what the user wants: in more than metadata and status.
fn differ_in_spec(old: &Value, new: &Value) -> bool {
    let fields = [old, new].into_iter().filter_map(Value::as_object).flat_map(|object| object.keys());
    fields.filter(|field| !matches!(field.as_str(), "metadata" | "status")).any(|field| old[field] != new[field])
}

impl Objects {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// From now on no list and no watch begins before this moment.
    pub(crate) fn forget(&mut self) {
        self.version += 1;
        self.forgotten = self.version;
    }

    pub(crate) fn is_forgotten(&self, version: u64) -> bool {
        version < self.forgotten
    }

    /// The kind of the objects of a resource. Of one without objects so far it is the name of the resource.
    pub(crate) fn kind<'a>(&'a self, resource: &'a str) -> &'a str {
        self.resources.get(resource).map_or(resource, |resource| &resource.kind)
    }

    fn happened(&mut self, resource: &str, key: &Key, mut object: Value, is_deleted: bool) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let shared = Arc::new(object.clone());
        let new = || Resource { name: resource.into(), kind: String::new(), objects: BTreeMap::new() };
        let resource = self.resources.entry(resource.to_owned()).or_insert_with(new);
        resource.kind = object["kind"].as_str().unwrap_or(&resource.name).to_owned();
        let before = match is_deleted {
            true => resource.objects.remove(key),
            false => resource.objects.insert(key.clone(), shared.clone()),
        };
        let (version, resource, key) = (self.version, resource.name.clone(), key.clone());
        self.events.push(Event { version, resource, key, before, object: shared, is_deleted });
        object
    }

    pub(crate) fn get(&self, resource: &str, key: &Key) -> Result<&Value, Refused> {
        let object = self.resources.get(resource).and_then(|resource| resource.objects.get(key));
        object.map(|object| &**object).ok_or(Refused::with(404))
    }

    /// The object, if its metadata has what `wanted` names of these fields.
    fn get_at(&self, resource: &str, key: &Key, wanted: &Value) -> Result<&Value, Refused> {
        let object = self.get(resource, key)?;
        let fits = |field: &str| wanted[field].is_null() || wanted[field] == object["metadata"][field];
        if fits("resourceVersion") && fits("uid") { Ok(object) } else { Err(Refused::with(409)) }
    }

    /// Creates an object in a namespace, under the name that it has or a new one that begins as it wishes.
    pub(crate) fn create(&mut self, resource: &str, namespace: &str, mut object: Value) -> Result<Value, Refused> {
        let metadata = &object["metadata"];
        let name = match (metadata["name"].as_str(), metadata["generateName"].as_str()) {
            (Some(name), _) => name.to_owned(),
            (None, Some(begin)) => format!("{begin}{:05}", self.version),
            (None, None) => return Err(Refused::with(422)),
        };
        let key = (namespace.to_owned(), name);
        if self.get(resource, &key).is_ok() {
            return Err(Refused::ALREADY_EXISTS);
        }
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let metadata = json!({ "name": key.1, "namespace": namespace, "uid": format!("uid-{}", self.version), "generation": 1,
                               "creationTimestamp": TIME, "deletionTimestamp": null });
        merge(&mut object, json!({ "metadata": metadata }));
        Ok(self.happened(resource, &key, object, false))
    }

    /// A PUT. Of a Lease that does not exist it is a creation, also if it names a version: a real API server does that with Leases.
    pub(crate) fn replace(&mut self, resource: &str, key: &Key, object: Value, part: Part) -> Result<Value, Refused> {
        match self.get_at(resource, key, &object["metadata"]) {
            Ok(_) => Ok(self.update(resource, key, object, part)),
            Err(_) if resource == "leases.coordination.k8s.io" && self.get(resource, key).is_err() => {
                self.create(resource, &key.0, object)
            }
            Err(refused) => Err(refused),
        }
    }

    pub(crate) fn patch(&mut self, resource: &str, key: &Key, patch: Value, part: Part) -> Result<Value, Refused> {
        let mut object = self.get_at(resource, key, &patch["metadata"])?.clone();
        merge(&mut object, patch);
        Ok(self.update(resource, key, object, part))
    }

    /// Server-side apply, as a merge: fields have no managers.
    pub(crate) fn apply(&mut self, resource: &str, key: &Key, mut patch: Value, part: Part) -> Result<Value, Refused> {
        if self.get(resource, key).is_ok() || part == Part::Status {
            return self.patch(resource, key, patch, part);
        }
        merge(&mut patch, json!({ "metadata": { "name": key.1 } }));
        self.create(resource, &key.0, patch)
    }

    /// Creates the object, or gives it this content whatever its version is.
    pub(crate) fn put(&mut self, resource: &str, key: &Key, mut object: Value) -> Result<Value, Refused> {
        match self.get(resource, key) {
            Ok(_) => {
                merge(&mut object, json!({ "metadata": { "resourceVersion": null, "uid": null } }));
                self.replace(resource, key, object, Part::All)
            }
            Err(_) => self.create(resource, &key.0, object),
        }
    }

    /// A change that changes nothing makes no version. The removal of the last finalizer deletes an object whose deletion has begun.
    fn update(&mut self, resource: &str, key: &Key, mut object: Value, part: Part) -> Value {
        let old = self.get(resource, key).expect("the caller has it");
        if part == Part::Status {
            let status = object["status"].take();
            object = old.clone();
            merge(&mut object, json!({ "status": null }));
            merge(&mut object, json!({ "status": status }));
        } else if part == Part::AllButStatus {
            merge(&mut object, json!({ "status": null }));
            merge(&mut object, json!({ "status": old.get("status") }));
        }
        let kept =
            ["name", "namespace", "uid", "generation", "creationTimestamp", "deletionTimestamp", "resourceVersion"];
        for field in kept {
            merge(&mut object, json!({ "metadata": { field: old["metadata"][field] } }));
        }
        if object == *old {
            return object;
        }
        if differ_in_spec(old, &object) {
            object["metadata"]["generation"] = json!(old["metadata"]["generation"].as_u64().unwrap_or(0) + 1);
        }
        let is_deleted = !object["metadata"]["deletionTimestamp"].is_null() && !has_finalizers(&object);
        self.happened(resource, key, object, is_deleted)
    }

    /// Deletes an object, if its metadata has what `wanted` names. Returns one with finalizers, which stays until the last one is removed.
    pub(crate) fn delete(&mut self, resource: &str, key: &Key, wanted: &Value) -> Result<Option<Value>, Refused> {
        let mut object = self.get_at(resource, key, wanted)?.clone();
        if !has_finalizers(&object) {
            self.happened(resource, key, object, true);
            return Ok(None);
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = json!(TIME);
            object = self.happened(resource, key, object, false);
        }
        Ok(Some(object))
    }

    /// All events of a resource after a version.
    fn events<'a>(&'a self, resource: &'a str, after: u64) -> impl Iterator<Item = &'a Event> {
        let first = self.events.partition_point(|event| event.version <= after);
        self.events[first..].iter().filter(move |event| *event.resource == *resource)
    }

    /// At most `limit` of the objects as they were at a version: those after the key `last`, or the first ones.
    pub(crate) fn page<'a>(
        &'a self,
        resource: &'a str,
        selection: &Selection,
        version: u64,
        last: Option<&Key>,
        limit: usize,
    ) -> Page<'a> {
        let mut changed = BTreeMap::new();
        for event in self.events(resource, version) {
            changed.entry(&event.key).or_insert(event.before.as_ref());
        }
        let is_wanted = |(key, object): &(&Key, &Value)| selection.is_within(&key.0) && selection.selects(object);
        let after = (last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let now = self.resources.get(resource).into_iter().flat_map(|resource| resource.objects.range(after));
        let unchanged = now.filter(|(key, _)| !changed.contains_key(key)).map(|(key, object)| (key, &**object));
        let before = changed.range::<Key, _>(after).filter_map(|(key, object)| object.map(|object| (*key, &**object)));
        let mut objects: Vec<_> = unchanged.filter(is_wanted).take(limit.saturating_add(1)).collect();
        objects.extend(before.filter(is_wanted));
        objects.sort_by_key(|(key, _)| *key);
        let is_last = objects.len() <= limit;
        objects.truncate(limit);
        Page { objects, is_last }
    }

    /// The events after a version, each a line of a watch. An object that loses a label is deleted for a watch that selects this label,
    /// and one that gains it is new.
    pub(crate) fn since(&self, version: u64, resource: &str, selection: &Selection) -> String {
        let say = |event: &Event| {
            let was_selected = event.before.as_ref().is_some_and(|object| selection.selects(object));
            let name = match (was_selected, !event.is_deleted && selection.selects(&event.object)) {
                (false, true) => "ADDED",
                (true, true) => "MODIFIED",
                (true, false) => "DELETED",
                (false, false) => return None,
            };
            Some(event_line(name, &event.object))
        };
        self.events(resource, version).filter(|event| selection.is_within(&event.key.0)).filter_map(say).collect()
    }

    /// The objects that there are, as lines of a watch.
    pub(crate) fn added(&self, resource: &str, selection: &Selection) -> String {
        let all = self.page(resource, selection, self.version, None, usize::MAX);
        all.objects.iter().map(|(_, object)| event_line("ADDED", object)).collect()
    }

    /// All objects of a resource.
    pub(crate) fn all(&self, resource: &str) -> Vec<Value> {
        let objects = self.resources.get(resource).into_iter().flat_map(|resource| resource.objects.values());
        objects.map(|object| (**object).clone()).collect()
    }

    /// The objects after each change so far, and each one as it was deleted.
    pub(crate) fn history(&self, resource: &str) -> Vec<Value> {
        self.events(resource, 0).map(|event| (*event.object).clone()).collect()
    }
}

/// A line of a watch.
pub(crate) fn event_line(name: &str, object: &Value) -> String {
    format!("{{\"type\":\"{name}\",\"object\":{object}}}\n")
}
