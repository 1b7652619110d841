//! Counts the bytes per key. The test has a process of its own, because allocations of other tests would be counted too.

use keyqueue_benches::memory::{Counting, per_key_of};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_key_takes_at_least_its_own_size_and_less_than_a_kilobyte() {
    let rows = per_key_of(10_000);
    assert_eq!(rows.len(), if cfg!(feature = "kube") { 19 } else { 16 });
    for row in rows {
        let least = if row.what == "queued, String" { 24.0 + 30.0 } else { 8.0 };
        assert!((least..1024.0).contains(&row.bytes), "{}, {}: {} bytes", row.what, row.subject, row.bytes);
    }
}
