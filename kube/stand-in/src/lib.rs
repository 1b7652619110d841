//! A stand-in for the API server of Kubernetes, in the process of a test, an example or a benchmark.
//!
//! It keeps objects of any kind, answers kube-rs's client and watcher as a real server would, and fails when it is told to. It never fails by
//! chance, so a test that has met a failure meets it again.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::{Api, Client, Config};
//! use kube_stand_in::{Fault, Rule, Server, Verb};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::start().await;
//! server.put("configmaps", json!({
//!     "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "default", "name": "one" },
//! }));
//! server.rules.add(Rule::next(1, Fault::Status(500)).verb(Verb::Get));
//!
//! let client = Client::try_from(Config::new(server.address.parse()?))?;
//! let config_maps = Api::<ConfigMap>::namespaced(client, "default");
//! assert!(config_maps.get("one").await.is_err());
//! assert_eq!(config_maps.get("one").await?.metadata.name.as_deref(), Some("one"));
//! assert_eq!(server.requests(Verb::Get), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # What it can do
//!
//! | | as a real server | not as a real server |
//! |---|---|---|
//! | paths | `/api/v1/…`, `/apis/GROUP/VERSION/…`, with a namespace or without, `/status` | each resource exists, no kind has a schema, and nothing tells which there are |
//! | get, create, put | uid, generation, `generateName`; 404; 409 for an old `resourceVersion` or an object that exists; a put creates a Lease | the clock stands still |
//! | patch | merge patch; server-side apply | strategic merge and apply are merges, and fields have no managers; a JSON patch is refused with 415 |
//! | status | only `/status` changes it, and it changes nothing else | this is so for each resource; [`Server::put`] writes all |
//! | delete | preconditions; an object with finalizers stays, with `deletionTimestamp`, until they are gone | owners are kept as given, and nobody collects what they leave; no deletion of a whole collection |
//! | list | pages of one version; 410 for a token that is too old ([`Server::forget_versions`]); labels and fields | a list is always the newest; `in` and `notin` are refused with 400 |
//! | watch | from a version, or with all objects first; lists by watch; bookmarks; `timeoutSeconds`; 410 for a forgotten version | bookmarks come each second; versions are forgotten only on demand |
//! | [failures](Rules) | 403, 404, 409, 410, 429 with `Retry-After`, 500, an answer that is lost, no answer, a closed connection; a server that is away; watches that end, break or say an error | by count, and never by chance |
//! | [in the process](Server) | | objects without HTTP, counts of requests and of open watches, the history |

mod objects;
mod requests;
mod rules;
mod selection;
mod server;
mod status;
mod watches;

pub use rules::{Fault, Rule, Rules, Verb, WatchEnd};
pub use server::Server;
