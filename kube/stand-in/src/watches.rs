//! An open watch: lines of JSON, until it ends.

use crate::objects::event_line;
use crate::requests::{Request, Target};
use crate::rules::WatchEnd;
use crate::selection::Selection;
use crate::server::Shared;
use crate::status::Refused;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How often a client hears of a version without an event. (A real server tells it each minute.)
const BOOKMARKS: Duration = Duration::from_secs(1);

/// A watch that is counted until it is dropped.
struct Watch {
    shared: Arc<Shared>,
    target: Target,
    selection: Selection,
    /// What is said at once: the objects that there are.
    first: Option<String>,
    /// The last version that the client knows of.
    seen: u64,
    changes: watch::Receiver<u64>,
    ends: watch::Receiver<WatchEnd>,
    end_at: Instant,
    end: WatchEnd,
    bookmark_at: Option<Instant>,
    has_ended: bool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.open_watches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers a request for a watch. One from version 0 begins with all objects, and so does a list by watch, which also says when it is complete.
/// That a version is forgotten is said by an event, as at a real server, and not by the answer's code.
pub(crate) fn open(shared: &Arc<Shared>, request: Request) -> Result<Response, Refused> {
    let selection = request.selection()?;
    let is_list = request.ask("sendInitialEvents") == "true";
    let from = request.ask("resourceVersion").parse().ok().filter(|version| *version > 0 && !is_list);
    let wished = request.ask("timeoutSeconds").parse().ok().map(Duration::from_secs);
    let (time, end) = match (shared.rules.watch_time(), wished) {
        ((time, _), Some(wished)) if wished < time => (wished, WatchEnd::Complete),
        (rule, _) => rule,
    };
    let (mut changes, ends) = (shared.changes.subscribe(), shared.rules.end());
    changes.mark_changed(); // there may be some since the version that the client has
    let (seen, first) = {
        let objects = shared.objects.lock().unwrap();
        match from {
            Some(version) if objects.is_forgotten(version) => return Ok(error_line(410).into_response()),
            Some(version) => (version, None),
            None => (objects.version(), Some(objects.added(&request.target.resource, &selection))),
        }
    };
    let now = Instant::now();
    let bookmark_at = (request.ask("allowWatchBookmarks") == "true").then(|| now + BOOKMARKS);
    let (shared, target, end_at) = (shared.clone(), request.target, now + time);
    shared.open_watches.fetch_add(1, Ordering::Relaxed);
    let mut watch =
        Watch { shared, target, selection, first, seen, changes, ends, end_at, end, bookmark_at, has_ended: false };
    if is_list {
        let end = watch.bookmark(json!({ "k8s.io/initial-events-end": "true" }));
        watch.first.get_or_insert_default().push_str(&end);
    }
    let lines = futures_util::stream::unfold(watch, async |mut watch| watch.next().await.map(|lines| (lines, watch)));
    Ok(Body::from_stream(lines).into_response())
}

impl Watch {
    fn bookmark(&self, annotations: Value) -> String {
        let objects = self.shared.objects.lock().unwrap();
        let metadata = json!({ "resourceVersion": self.seen.to_string(), "annotations": annotations });
        let kind = objects.kind(&self.target.resource);
        event_line("BOOKMARK", &json!({ "kind": kind, "apiVersion": self.target.api_version, "metadata": metadata }))
    }

    /// The next lines, as soon as there are some.
    async fn next(&mut self) -> Option<io::Result<String>> {
        if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
            return Some(Ok(first));
        }
        while !self.has_ended {
            let bookmark_at = self.bookmark_at.unwrap_or(self.end_at);
            tokio::select! {
                biased; // a watch also ends if there is always something to say
                _ = self.ends.changed() => {
                    let end = *self.ends.borrow();
                    return self.last_words(end);
                }
                () = sleep_until(self.end_at) => return self.last_words(self.end),
                _ = self.changes.changed() => {
                    let lines = self.news();
                    if !lines.is_empty() {
                        return Some(Ok(lines));
                    }
                }
                () = sleep_until(bookmark_at), if self.bookmark_at.is_some() => {
                    self.bookmark_at = Some(Instant::now() + BOOKMARKS);
                    return Some(Ok(self.bookmark(json!({}))));
                }
            }
        }
        None
    }

    /// What has happened since the client was told last.
    fn news(&mut self) -> String {
        let objects = self.shared.objects.lock().unwrap();
        let lines = objects.since(self.seen, &self.target.resource, &self.selection);
        self.seen = self.seen.max(objects.version());
        lines
    }

    fn last_words(&mut self, end: WatchEnd) -> Option<io::Result<String>> {
        self.has_ended = true;
        match end {
            WatchEnd::Cut => Some(Err(io::ErrorKind::ConnectionReset.into())),
            WatchEnd::Error(code) => Some(Ok(error_line(code))),
            WatchEnd::Complete => self.bookmark_at.map(|_| Ok(self.bookmark(json!({})))),
        }
    }
}

fn error_line(code: u16) -> String {
    event_line("ERROR", &Refused::with(code).to_json())
}
