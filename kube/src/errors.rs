//! What a handler makes of an error of the API server, and of a key.

use keyqueue::Outcome;
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use std::time::Duration;

/// What a handler may return for an error of the API server: the object is retried as for each error, but not before the time that the
/// server has asked for (`retryAfterSeconds` of its answer, as with 429).
///
/// To leave the whole namespace alone for that time, return [`PauseGroup`](Outcome::PauseGroup) in a queue that is fair by
/// [`namespace`].
///
/// # Examples
/// ```
/// use keyqueue::Outcome;
/// use keyqueue_kube::outcome_of;
/// # let answer = serde_json::json!({ "code": 429, "details": { "retryAfterSeconds": 7 } });
/// # let error = kube::Error::Api(serde_json::from_value(answer)?);
///
/// let outcome = outcome_of(error); // 429, with 7 seconds
/// assert!(matches!(outcome, Outcome::RetryAfter { delay, .. } if delay.as_secs() == 7));
/// // In a handler: `api.patch(…).await.map_err(outcome_of)?`
/// # Ok::<(), serde_json::Error>(())
/// ```
#[must_use]
pub fn outcome_of(error: kube::Error) -> Outcome {
    let kube::Error::Api(status) = &error else { return error.into() };
    match status.details.as_ref().map_or(0, |details| details.retry_after_seconds) {
        0 => error.into(),
        seconds => Outcome::RetryAfter { delay: Duration::from_secs(seconds.into()), error: error.into() },
    }
}

/// The namespace of an object, for [`fair_by`](keyqueue::WorkQueueBuilder::fair_by): then no namespace holds up the others, and each may have
/// a limit, a rate or a pause.
///
/// # Examples
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use keyqueue::WorkQueue;
/// use keyqueue_kube::namespace;
/// use kube::runtime::reflector::ObjectRef;
///
/// let queue = WorkQueue::builder().fair_by(namespace::<ConfigMap>).max_processing_per_group(4).build();
/// queue.add(ObjectRef::new("settings").within("team-a"));
/// ```
#[must_use]
pub fn namespace<K: Resource>(object: &ObjectRef<K>) -> Option<String> {
    object.namespace.clone()
}
