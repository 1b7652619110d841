//! Members of two versions in one fleet: a rolling upgrade, and its rollback. The other version is the same code over a store that changes
//! what is written and read: records without a format, with more fields, and of another format.

use crate::common::{join, millis, seconds, within};
use keyqueue_fleet::store::{Change, Deleted, MemoryStore, Store, StoreError, Stored, Version, Watch, Written};
use keyqueue_fleet::{Fleet, FleetError};
use serde_json::{Value, json};

/// How another version writes a record, or reads one: it changes its text.
type Translation = fn(&str, &mut Value);

#[derive(Clone)]
struct Other {
    store: MemoryStore,
    writes: Translation,
    reads: Translation,
}

struct OtherWatch(<MemoryStore as Store>::Watch, Translation);

fn translated(translation: Translation, record: &str, text: &[u8]) -> Vec<u8> {
    let Ok(mut value) = serde_json::from_slice(text) else { return text.to_vec() };
    translation(record, &mut value);
    serde_json::to_vec(&value).unwrap()
}

fn read(translation: Translation, record: &str, stored: Stored) -> Stored {
    Stored { value: translated(translation, record, &stored.value), ..stored }
}

impl Store for Other {
    type Watch = OtherWatch;

    async fn read(&self, record: &str) -> Result<Option<Stored>, StoreError> {
        Ok(self.store.read(record).await?.map(|stored| read(self.reads, record, stored)))
    }

    async fn write(&self, record: &str, expected: Option<Version>, value: &[u8]) -> Result<Written, StoreError> {
        self.store.write(record, expected, &translated(self.writes, record, value)).await
    }

    async fn delete(&self, record: &str, expected: Version) -> Result<Deleted, StoreError> {
        self.store.delete(record, expected).await
    }

    async fn watch(&self) -> Result<OtherWatch, StoreError> {
        Ok(OtherWatch(self.store.watch().await?, self.reads))
    }
}

impl Watch for OtherWatch {
    async fn next(&mut self) -> Result<Change, StoreError> {
        Ok(match self.0.next().await? {
            Change::All(records) => Change::All(
                records.into_iter().map(|(name, stored)| (name.clone(), read(self.1, &name, stored))).collect(),
            ),
            Change::Put(name, stored) => Change::Put(name.clone(), read(self.1, &name, stored)),
            deleted => deleted,
        })
    }
}

fn same(_: &str, _: &mut Value) {}

/// A version before `v`.
fn without_format(_: &str, value: &mut Value) {
    value.as_object_mut().unwrap().remove("v");
}

/// A version with a field more in each record.
fn with_zones(record: &str, value: &mut Value) {
    let (name, content) = if record == "owners" { ("zones", json!({ "north": [1, 2] })) } else { ("zone", json!("x")) };
    value[name] = content;
}

/// A version that writes members' records in format 2. This one cannot read them.
fn members_in_format_2(record: &str, value: &mut Value) {
    if record != "owners" {
        *value = json!({ "v": 2, "state": value });
    }
}

fn table_in_format_2(record: &str, value: &mut Value) {
    if record == "owners" {
        *value = json!({ "v": 2, "state": value });
    }
}

/// The version that writes format 2 reads both.
fn reads_both(_: &str, value: &mut Value) {
    if value["v"] == 2 {
        *value = value["state"].take();
    }
}

async fn stored(store: &MemoryStore, record: &str) -> Value {
    serde_json::from_slice(&store.read(record).await.unwrap().unwrap().value).unwrap()
}

fn shared(fleets: &[&Fleet<u64>]) -> bool {
    let stats: Vec<_> = fleets.iter().map(|fleet| fleet.stats()).collect();
    stats.iter().map(|stats| stats.owned).sum::<usize>() == 16
        && stats.iter().all(|stats| stats.owned > 0 && stats.owned == stats.wanted && stats.members == fleets.len())
}

#[tokio::test(start_paused = true)]
async fn an_older_and_a_newer_writer_share_the_partitions() {
    for (writes, kept) in [(without_format as Translation, false), (with_zones, true)] {
        let store = MemoryStore::new();
        let other = Other { store: store.clone(), writes, reads: same };
        let (a, b) = (join(&other, "a").await.unwrap(), join(&store, "b").await.unwrap());
        within(seconds(5), || shared(&[&a, &b])).await;
        b.leave().await; // the last to write the table is a, then b again
        let b = join(&store, "c").await.unwrap();
        within(seconds(5), || shared(&[&a, &b])).await;
        drop(a);
        let took = within(seconds(20), || b.stats().owned == 16).await;
        assert!(took >= seconds(11));
        let table = stored(&store, "owners").await;
        assert_eq!(table["v"], 1);
        assert_eq!(table["zones"] == json!({ "north": [1, 2] }), kept, "what it does not know it writes back: {table}");
        let last = b.stats();
        assert_eq!((last.lost, last.store_errors), (0, 0));
        let a = join(&other, "a").await.unwrap();
        within(seconds(5), || shared(&[&a, &b])).await;
    }
}

/// A newer version writes members' records in another format, and older members run beside it: an upgrade that leaves out a step.
#[tokio::test(start_paused = true)]
async fn members_whose_records_cannot_be_read_are_members_and_expire() {
    let store = MemoryStore::new();
    let newer = Other { store: store.clone(), writes: members_in_format_2, reads: reads_both };
    let (a, b) = (join(&store, "a").await.unwrap(), join(&newer, "b").await.unwrap());
    within(seconds(5), || shared(&[&a, &b])).await;
    tokio::time::sleep(seconds(60)).await;
    assert!(shared(&[&a, &b]) && a.stats().lost == 0 && b.stats().lost == 0, "{:?}", a.stats());
    let stats = a.stats();
    let error = stats.last_store_error.unwrap();
    assert!(
        error.starts_with("the record member-b cannot be read: its format is 2, and this version reads 1"),
        "{error}"
    );

    // The newer one is killed.
    drop(b);
    let took = within(seconds(20), || a.stats().owned == 16).await;
    assert!(took >= seconds(11), "{took:?}");
    assert_eq!((a.stats().members, a.stats().lost), (1, 0));

    // The older one is killed.
    let b = join(&newer, "b").await.unwrap();
    within(seconds(5), || shared(&[&a, &b])).await;
    drop(a);
    within(seconds(20), || b.stats().owned == 16).await;

    // The rollback: the older version starts under the name of the newer one.
    let name_taken = join(&store, "b").await.unwrap_err();
    assert!(matches!(name_taken, FleetError::NameTaken { .. }), "{name_taken}");
    drop(b);
    let b = join(&store, "b").await.unwrap();
    within(seconds(1), || b.stats().owned == 16).await;
    let error = b.stats().last_store_error.unwrap();
    assert!(error.contains("member-b cannot be read"), "{error}");
}

/// A newer version writes the table in another format: nothing moves, all see it, and all goes on when the table can be read again.
#[tokio::test(start_paused = true)]
async fn while_the_table_cannot_be_read_nothing_moves_and_all_see_it() {
    let store = MemoryStore::new();
    let newer = Other { store: store.clone(), writes: table_in_format_2, reads: reads_both };
    let (a, b) = (join(&store, "a").await.unwrap(), join(&store, "b").await.unwrap());
    within(seconds(5), || shared(&[&a, &b])).await;
    // It claims nothing from members that live, and writes the table when it releases or claims: so b leaves first.
    b.leave().await;
    let mut newer_ones = Vec::new();
    for name in ["c", "d", "e"] {
        newer_ones.push(join(&newer, name).await.unwrap());
    }
    tokio::time::sleep(seconds(1)).await;
    assert_eq!(stored(&store, "owners").await["v"], 2);
    let errors = a.stats().store_errors;
    let owned = a.owned();
    tokio::time::sleep(seconds(60)).await;
    assert!(!owned.is_empty() && owned.len() == a.stats().owned && a.owned() == owned, "{owned:?}");
    let stats = a.stats();
    let error = stats.last_store_error.unwrap();
    assert!(
        error.starts_with("the record owners cannot be read: its format is 2, and this version reads 1"),
        "{error}"
    );
    assert!((10..60).contains(&(stats.store_errors - errors)), "about once a renewal: {}", stats.store_errors - errors);
    assert!(stats.time_to_deadline > seconds(0) && stats.lost == 0, "it goes on with what it owns");
    let refused = join(&store, "f").await.unwrap_err();
    assert!(matches!(refused, FleetError::Store(_)), "a new one cannot join: {refused}");
    assert!(refused.to_string().contains("the record owners cannot be read"), "{refused}");

    // The rollback: the table is written in format 1.
    let reader = Other { store: store.clone(), writes: same, reads: reads_both };
    let table = reader.read("owners").await.unwrap().unwrap();
    assert!(matches!(store.write("owners", Some(table.version), &table.value).await.unwrap(), Written::Done(_)));
    drop(newer_ones);
    within(seconds(20), || a.stats().owned == 16).await;
    assert_eq!(a.stats().lost, 0);
}

/// `kubectl annotate`, or an editor: a member's record is no record any more.
#[tokio::test(start_paused = true)]
async fn a_member_whose_record_was_edited_by_hand_is_lost_and_joins_again() {
    let store = MemoryStore::new();
    let (a, b) = (join(&store, "a").await.unwrap(), join(&store, "b").await.unwrap());
    within(seconds(5), || shared(&[&a, &b])).await;
    for text in ["", "{", "[]", r#"{"v":1}"#] {
        let version = store.read("member-b").await.unwrap().unwrap().version;
        store.write("member-b", Some(version), text.as_bytes()).await.unwrap();
        let lost = b.stats().lost;
        within(millis(10), || b.stats().lost > lost).await;
        within(seconds(20), || shared(&[&a, &b])).await;
        assert!(b.stats().last_store_error.unwrap().contains("the record member-b cannot be read"));
    }
    assert_eq!(a.stats().lost, 0);
}
