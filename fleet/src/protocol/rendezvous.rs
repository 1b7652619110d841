//! Which member should have a partition: the one with the highest score, a hash of member and partition (rendezvous hashing, Thaler and
//! Ravishankar 1998). Each member computes it alone. When a member joins or leaves, only the partitions that it gets or had move.

use crate::hash::{StableHasher, mix};

/// The name that should have `partition`, or `None` if there are no names.
pub(crate) fn owner_of<'a>(partition: u32, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names.into_iter().max_by_key(|name| (score(name, partition), *name))
}

/// A number that depends on both, evenly spread.
pub(crate) fn score(name: &str, partition: u32) -> u64 {
    let mut hasher = StableHasher::new();
    hasher.write(name.as_bytes());
    hasher.write(&partition.to_le_bytes());
    mix(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(names: &[String], partitions: u32) -> Vec<&str> {
        (0..partitions).map(|p| owner_of(p, names.iter().map(String::as_str)).unwrap()).collect()
    }

    fn names(n: usize) -> Vec<String> {
        (0..n).map(|i| format!("pod-{i}")).collect()
    }

    #[test]
    fn a_join_moves_only_what_the_new_member_gets() {
        for n in 1..20 {
            let (before, after) = (names(n), names(n + 1));
            for (old, new) in owners(&before, 256).iter().zip(owners(&after, 256)) {
                assert!(*old == new || new == format!("pod-{n}"));
            }
        }
    }

    #[test]
    fn members_get_similar_shares() {
        for n in [2, 3, 10] {
            let names = names(n);
            let owners = owners(&names, 256);
            for name in &names {
                let share = owners.iter().filter(|owner| *owner == name).count();
                let fair = 256 / n;
                assert!((fair / 2..=fair * 2).contains(&share), "{name} of {n} has {share}");
            }
        }
        assert_eq!(owner_of(0, []), None);
    }
}
