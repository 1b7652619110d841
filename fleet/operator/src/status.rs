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
    /// The replica that has written it.
    pub replica: String,
    /// The token of the hand-out in which it was written.
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
/// object is still at the version that was compared. An old owner that wakes up late is refused if the
/// object has changed since it was read, or has a status with a higher token. (Tokens are lower again if the fleet's Leases were deleted while the
/// objects stayed: then delete the statuses too.)
pub async fn reconcile(
    objects: &Api<DynamicObject>,
    object: &DynamicObject,
    replica: &str,
    token: u64,
) -> Fallible<()> {
    if Status::is_right(object) {
        return Ok(());
    }
    if let Some(newer) = Status::of(object).filter(|status| status.token > token) {
        return Err(format!("token {token}: {} has written with {}", newer.replica, newer.token).into());
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
