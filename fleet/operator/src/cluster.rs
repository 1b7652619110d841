//! Which server, and which objects.

use crate::Fallible;
use kube::api::ApiResource;
use kube::core::GroupVersion;
use kube::{Client, Config};

/// The label of the objects that the operator looks after.
pub const LABEL: &str = "keyqueue.example/operator";
pub const SELECTOR: &str = "keyqueue.example/operator=checksum";

/// The name of the fleet: its Leases begin with it.
pub const FLEET: &str = "operator";

/// A client of the server at an address without authentication, or else of the cluster of the kube config.
pub async fn client(server: Option<&str>) -> Fallible<Client> {
    Ok(match server {
        Some(address) => Client::try_from(Config::new(address.parse()?))?,
        None => Client::try_default().await?,
    })
}

/// A kind by its group, version and name: `apps/v1/Deployment`, `v1/ConfigMap`.
pub fn kind(text: &str) -> Fallible<ApiResource> {
    let (version, kind) = text.rsplit_once('/').ok_or("a kind is group/version/Kind or version/Kind")?;
    let version: GroupVersion = version.parse()?;
    Ok(ApiResource::from_gvk(&version.with_kind(kind)))
}
