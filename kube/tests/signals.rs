//! Signals end a controller, one after the other in this process.

use futures_util::future::join;
use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue_kube::Controller;
use kube::runtime::reflector::store;
use kube::runtime::watcher::Event;
use std::future::pending;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(20);

fn kill(signal: &str) {
    let pid = std::process::id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().expect("there is a command kill").success());
}

/// A controller of one object, whose handler hangs, gets these signals. Returns how long it took to end, and the keys that were left.
async fn run(timeout_of_runs: Duration, signals: &[&str], is_boxed: bool) -> (Duration, Vec<String>) {
    let (reader, mut writer) = store::<ConfigMap>();
    let mut object = ConfigMap::default();
    object.metadata.name = Some("one".to_owned());
    [Event::Init, Event::InitApply(object.clone()), Event::InitDone]
        .iter()
        .for_each(|event| writer.apply_watcher_event(event));
    let trigger = futures_util::stream::iter([Ok(object)]);
    let trigger = futures_util::StreamExt::chain(trigger, futures_util::stream::pending());
    let controller = Controller::for_stream(trigger, reader).shutdown_on_signal(timeout_of_runs);
    let began = std::sync::Arc::new(Notify::new());
    let begins = std::sync::Arc::clone(&began);
    let controls = async {
        let left = if is_boxed {
            let run = controller.run_boxed(move |_| {
                begins.notify_one();
                Box::pin(pending::<()>())
            });
            run.await
        } else {
            let run = controller.run(async |_| {
                begins.notify_one();
                pending::<()>().await
            });
            run.await
        };
        (Instant::now(), left)
    };
    let kills = async {
        began.notified().await;
        let start = Instant::now();
        for signal in signals {
            kill(signal);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        start
    };
    let ((end, left), start) = timeout(LONG, join(controls, kills)).await.expect("it ends");
    (end - start, left.into_keys().map(|key| key.name).collect())
}

#[tokio::test]
async fn a_signal_ends_the_controller_and_a_second_one_at_once() {
    for is_boxed in [false, true] {
        // The handler hangs, so the deadline ends the run.
        let (took, left) = run(Duration::from_millis(300), &["-TERM"], is_boxed).await;
        assert!(took >= Duration::from_millis(300));
        assert_eq!(left, ["one"]);
        let (took, left) = run(LONG * 10, &["-INT", "-TERM"], is_boxed).await;
        assert!(took < LONG, "{took:?}");
        assert_eq!(left, ["one"]);
    }
}
