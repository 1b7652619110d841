//! An open watch: lines of JSON, until it ends.

use crate::objects::event_line;
use crate::rules::WatchEnd;
use crate::selection::Selection;
use crate::server::Shared;
use crate::status::Refused;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How often a client hears of a version without an event. (A real server tells it each minute.)
const BOOKMARKS: Duration = Duration::from_secs(1);

/// Counts the open watches.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: Arc<Shared>) -> Self {
        shared.open_watches.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open_watches.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Watch {
    open: Open,
    resource: String,
    api_version: String,
    selection: Selection,
    /// What is said at once: the objects that there are, or an error.
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

/// Answers a request for a watch.
pub(crate) fn open(
    shared: &Arc<Shared>,
    resource: &str,
    api_version: &str,
    selection: Selection,
    query: &HashMap<String, String>,
) -> Response {
    let ask = |name: &str| query.get(name).map_or("", String::as_str);
    let changes = shared.changes.subscribe();
    let ends = shared.rules.end();
    let (mut time, mut end) = shared.rules.watch_time();
    if let Some(wished) = ask("timeoutSeconds").parse().ok().map(Duration::from_secs).filter(|wished| *wished < time) {
        (time, end) = (wished, WatchEnd::Complete);
    }
    let now = Instant::now();
    let bookmark_at = (ask("allowWatchBookmarks") == "true").then(|| now + BOOKMARKS);
    let mut watch = Watch {
        open: Open::new(shared.clone()),
        resource: resource.to_owned(),
        api_version: api_version.to_owned(),
        selection,
        first: None,
        seen: 0,
        changes,
        ends,
        end_at: now + time,
        end,
        bookmark_at,
        has_ended: false,
    };
    watch.begin(ask("resourceVersion").parse().unwrap_or(0), ask("sendInitialEvents") == "true");
    let lines = futures_util::stream::unfold(watch, async |mut watch| watch.next().await.map(|lines| (lines, watch)));
    Body::from_stream(lines).into_response()
}

impl Watch {
    /// Decides what is said at once. A watch from version 0 begins with all objects, and so does a list by watch, which also says when it is
    /// complete. A version that is forgotten is an event, as with a real server, and not the answer's code.
    fn begin(&mut self, version: u64, is_list: bool) {
        let objects = self.open.0.objects.lock().unwrap();
        if version > 0 && !is_list {
            self.seen = version;
            if objects.is_forgotten(version) {
                self.has_ended = true;
                self.first = Some(error_line(410));
            }
            return;
        }
        let seen = objects.version();
        let mut lines = String::new();
        for (_, object) in objects.page(&self.resource, &self.selection, seen, None, usize::MAX).objects {
            event_line(&mut lines, "ADDED", object);
        }
        drop(objects);
        self.seen = seen;
        if is_list {
            self.bookmark(&mut lines, true);
        }
        self.first = Some(lines).filter(|lines| !lines.is_empty());
    }

    fn bookmark(&self, lines: &mut String, ends_list: bool) {
        let objects = self.open.0.objects.lock().unwrap();
        let kind = objects.kind(&self.resource);
        let mut bookmark = json!({ "kind": kind, "apiVersion": self.api_version,
                                   "metadata": { "resourceVersion": self.seen.to_string() } });
        if ends_list {
            bookmark["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        event_line(lines, "BOOKMARK", &bookmark);
    }

    /// The next lines, as soon as there are some.
    async fn next(&mut self) -> Option<io::Result<String>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        while !self.has_ended {
            self.changes.borrow_and_update();
            let lines = self.news();
            if !lines.is_empty() {
                return Some(Ok(lines));
            }
            let bookmark_at = self.bookmark_at.unwrap_or(self.end_at);
            tokio::select! {
                _ = self.changes.changed() => {}
                _ = self.ends.changed() => {
                    let end = *self.ends.borrow();
                    return self.last_words(end);
                }
                () = sleep_until(self.end_at) => return self.last_words(self.end),
                () = sleep_until(bookmark_at), if self.bookmark_at.is_some() => {
                    self.bookmark_at = Some(Instant::now() + BOOKMARKS);
                    let mut line = String::new();
                    self.bookmark(&mut line, false);
                    return Some(Ok(line));
                }
            }
        }
        None
    }

    /// What has happened since the client was told last.
    fn news(&mut self) -> String {
        let objects = self.open.0.objects.lock().unwrap();
        let lines = objects.since(self.seen, &self.resource, &self.selection);
        self.seen = self.seen.max(objects.version());
        lines
    }

    fn last_words(&mut self, end: WatchEnd) -> Option<io::Result<String>> {
        self.has_ended = true;
        match end {
            WatchEnd::Cut => Some(Err(io::ErrorKind::ConnectionReset.into())),
            WatchEnd::Error(code) => Some(Ok(error_line(code))),
            WatchEnd::Complete => {
                self.bookmark_at?;
                let mut line = String::new();
                self.bookmark(&mut line, false);
                Some(Ok(line))
            }
        }
    }
}

fn error_line(code: u16) -> String {
    let mut line = String::new();
    event_line(&mut line, "ERROR", &Refused::with(code).to_json());
    line
}
