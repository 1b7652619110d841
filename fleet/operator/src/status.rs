//! What a replica writes about an object, and how the write carries its token.

use crate::Fallible;
use keyqueue_fleet::StableHasher;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::{Error, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;

const ANNOTATION: &str = "keyqueue.example/status";

/// An annotation of the object.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    pub checksum: String,
    /// Who has written it.
    pub replica: String,
    /// With the token of which hand-out.
    pub token: u64,
}

impl Status {
    pub fn of(object: &DynamicObject) -> Option<Self> {
        serde_json::from_str(object.annotations().get(ANNOTATION)?).ok()
    }

    pub fn is_right(object: &DynamicObject) -> bool {
        Self::of(object).is_some_and(|status| status.checksum == checksum(object))
    }
}

/// Of what the object says, apart from metadata and status: the `data` of a ConfigMap, the `spec` of others.
fn checksum(object: &DynamicObject) -> String {
    let mut hasher = StableHasher::new();
    for (name, value) in object.data.as_object().into_iter().flatten().filter(|(name, _)| *name != "status") {
        hasher.write(name.as_bytes());
        hasher.write(value.to_string().as_bytes());
    }
    format!("{:016x}", hasher.finish())
}

/// Writes the object's status if it is not right.
///
/// No write follows one with a higher token: the token is compared with the one in the object, and the server takes the patch only if the
/// object is still at the version that was compared. So an old owner that wakes up late is refused, whatever it believes.
pub async fn reconcile(
    objects: &Api<DynamicObject>,
    object: &DynamicObject,
    replica: &str,
    token: u64,
) -> Fallible<()> {
    match Status::of(object) {
        Some(status) if status.token > token => {
            return Err(format!("token {token}: {} has written with {}", status.replica, status.token).into());
        }
        Some(_) if Status::is_right(object) => return Ok(()),
        _ => {}
    }
    let status = Status { checksum: checksum(object), replica: replica.to_owned(), token };
    let patch = json!({ "metadata": {
        "resourceVersion": object.resource_version(),
        "annotations": { ANNOTATION: serde_json::to_string(&status)? },
    }});
    match objects.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        // The object was deleted or has changed, and the watch says so soon: then the key is added again.
        Err(Error::Api(answer)) if matches!(answer.code, 404 | 409) => Ok(()),
        answer => Ok(answer.map(drop)?),
    }
}
