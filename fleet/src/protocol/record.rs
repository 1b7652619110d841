//! What the store holds: one record per member, and one table of owners. As JSON, to be read with the store's own tools.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The format of the records that this version writes, and the only one that it reads.
const FORMAT: u64 = 1;

/// The name of the record that holds the table of owners.
pub(crate) const TABLE: &str = "owners";

/// The name of a member's record.
pub(crate) fn member_record(name: &str) -> String {
    format!("member-{name}")
}

/// The member of a record's name, if it is a member's.
pub(crate) fn member_of(record: &str) -> Option<&str> {
    record.strip_prefix("member-")
}

/// One life of a member: from the creation of its record to its deletion. An incarnation never comes back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MemberId {
    pub(crate) name: String,
    pub(crate) incarnation: u64,
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{:016x}", self.name, self.incarnation)
    }
}

/// The field `v` of a record. A record without it has the format 1. A record of another format is not read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Format;

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(FORMAT)
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            FORMAT => Ok(Self),
            other => Err(D::Error::custom(format_args!("its format is {other}, and this version reads {FORMAT}"))),
        }
    }
}

/// A member's record. Its writer is the member alone; others may only delete it. So nobody else writes back its unknown fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct MemberRecord {
    #[serde(default)]
    pub(crate) v: Format,
    #[serde(with = "hex")]
    pub(crate) incarnation: u64,
    /// Grows with each renewal, so that each renewal changes the record.
    pub(crate) renewals: u64,
    /// The member leaves: it should have no partition any more.
    pub(crate) leaving: bool,
    /// D, nanoseconds: a member that sees the record unchanged for so long deletes it. The writer's setting, not the reader's.
    pub(crate) expiry: u64,
}

/// The owner of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    pub(crate) member: MemberId,
    /// The table's token when the member claimed the partition.
    pub(crate) token: u64,
}

/// The owner of each partition. All claims and releases are writes of this one record, so owners cannot overlap.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Table {
    #[serde(default)]
    pub(crate) v: Format,
    /// The incarnation of the member that created the table: another one if the table was deleted by hand.
    #[serde(with = "hex")]
    pub(crate) creator: u64,
    pub(crate) partitions: u32,
    /// Grows with each write, so that of two readings the later one is known.
    pub(crate) revision: u64,
    /// Grows with each claim, and never falls.
    pub(crate) token: u64,
    /// Partitions that are not here have no owner.
    #[serde(with = "by_owner")]
    pub(crate) owners: BTreeMap<u32, Owner>,
    /// Fields of a newer version: they are written back as they are.
    #[serde(flatten)]
    pub(crate) rest: BTreeMap<String, Value>,
}

/// The highest numbers of the tables that a member has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Highest {
    pub(crate) revision: u64,
    pub(crate) token: u64,
}

impl Table {
    /// `highest`: what the creator knows of earlier tables.
    pub(crate) fn new(creator: u64, partitions: u32, highest: Highest) -> Self {
        Self {
            v: Format,
            creator,
            partitions,
            revision: highest.revision + 1,
            token: highest.token,
            owners: BTreeMap::new(),
            rest: BTreeMap::new(),
        }
    }
}

/// Incarnations are 64 random bits; numbers of that size do not survive every JSON tool.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{number:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        u64::from_str_radix(&String::deserialize(deserializer)?, 16).map_err(D::Error::custom)
    }
}

/// `[{"name": "pod-1", "incarnation": "…", "partitions": {"7": [0, 1, 5]}}]`, partitions by token: names are written once.
mod by_owner {
    use super::{BTreeMap, MemberId, Owner};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Row {
        name: String,
        #[serde(with = "super::hex")]
        incarnation: u64,
        partitions: BTreeMap<u64, Vec<u32>>,
    }

    pub(super) fn serialize<S: Serializer>(owners: &BTreeMap<u32, Owner>, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rows: BTreeMap<&MemberId, BTreeMap<u64, Vec<u32>>> = BTreeMap::new();
        for (partition, owner) in owners {
            rows.entry(&owner.member).or_default().entry(owner.token).or_default().push(*partition);
        }
        let row =
            |(id, partitions): (&MemberId, _)| Row { name: id.name.clone(), incarnation: id.incarnation, partitions };
        serializer.collect_seq(rows.into_iter().map(row))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u32, Owner>, D::Error> {
        let mut owners = BTreeMap::new();
        for row in Vec::<Row>::deserialize(deserializer)? {
            let member = MemberId { name: row.name, incarnation: row.incarnation };
            for (token, partitions) in row.partitions {
                owners.extend(
                    partitions.into_iter().map(|partition| (partition, Owner { member: member.clone(), token })),
                );
            }
        }
        Ok(owners)
    }
}

/// A record of either kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Record {
    Member(MemberRecord),
    Table(Table),
    /// This version cannot read it: it has another format, or was edited by hand.
    Unknown,
}

impl Record {
    /// `None` if it cannot be read.
    pub(crate) fn member(self) -> Option<MemberRecord> {
        match self {
            Self::Member(record) => Some(record),
            _ => None,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let text = match self {
            Self::Member(record) => serde_json::to_vec(record),
            Self::Table(table) => serde_json::to_vec(table),
            Self::Unknown => unreachable!("a member writes what it can read"),
        };
        text.expect("numbers and strings are always written")
    }

    /// The record of this name, or why it cannot be read. `None` if the name is of no record of the protocol.
    pub(crate) fn decode(name: &str, text: &[u8]) -> Option<Result<Self, serde_json::Error>> {
        if name == TABLE {
            return Some(serde_json::from_slice(text).map(Self::Table));
        }
        member_of(name)?;
        Some(serde_json::from_slice(text).map(Self::Member))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_what_was_written() {
        let mut table = Table::new(1, 4, Highest::default());
        for (partition, name, token) in [(0, "a", 7), (1, "b", 8), (2, "a", 7), (3, "a", 9)] {
            let member = MemberId { name: name.to_owned(), incarnation: u64::MAX - 1 };
            table.owners.insert(partition, Owner { member, token });
        }
        let text = Record::Table(table.clone()).encode();
        let shown = String::from_utf8(text.clone()).unwrap();
        assert!(
            shown.contains(r#"{"name":"a","incarnation":"fffffffffffffffe","partitions":{"7":[0,2],"9":[3]}}"#),
            "{shown}"
        );
        assert_eq!(Record::decode(TABLE, &text).unwrap().unwrap(), Record::Table(table));

        let record = MemberRecord { v: Format, incarnation: 3, renewals: 4, leaving: false, expiry: 5 };
        let member = Record::Member(record);
        assert_eq!(Record::decode("member-a", &member.encode()).unwrap().unwrap(), member);
        assert!(Record::decode("other", &member.encode()).is_none());
        assert!(Record::decode("member-a", b"{").unwrap().is_err());
        assert!(Record::decode("member-a", b"").unwrap().is_err(), "a Lease without its annotation");
    }

    /// Records of a version before `v`, of this one, of one that has more fields, and of one with another format.
    #[test]
    fn a_record_says_its_format_and_keeps_what_it_does_not_know() {
        let text = |v: &str, more: &str| {
            format!(
                r#"{{{v}"creator":"1","partitions":4,"revision":2,"token":3,"owners":[{{"name":"a","incarnation":"5","partitions":{{"3":[0,2]}}}}]{more}}}"#
            )
        };
        let read = |text: String| Record::decode(TABLE, text.as_bytes()).unwrap();
        let old = read(text("", "")).unwrap();
        assert_eq!(old, read(text(r#""v":1,"#, "")).unwrap());
        assert!(String::from_utf8(old.encode()).unwrap().starts_with(r#"{"v":1,"creator":"#));

        let newer =
            read(text(r#""v":1,"#, r#","zones":{"a":["x",1.5,null]},"weights":[18446744073709551615]"#)).unwrap();
        let Record::Table(table) = &newer else { panic!("a table") };
        assert_eq!(table.owners.len(), 2);
        let written = Record::Table(Table { revision: 3, ..table.clone() }).encode();
        let written: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(written["zones"], serde_json::json!({"a": ["x", 1.5, null]}));
        assert_eq!((&written["weights"][0], &written["revision"]), (&u64::MAX.into(), &3.into()));

        let error = read(text(r#""v":2,"#, "")).unwrap_err().to_string();
        assert!(error.starts_with("its format is 2, and this version reads 1"), "{error}");
        for other in ["0", "\"1\"", "null", "1.5", "-1", "[]"] {
            assert!(read(text(&format!("\"v\":{other},"), "")).is_err(), "{other}");
        }
        let member = br#"{"incarnation":"3","renewals":4,"leaving":false,"expiry":5,"zone":"x"}"#;
        let record = MemberRecord { v: Format, incarnation: 3, renewals: 4, leaving: false, expiry: 5 };
        assert_eq!(Record::decode("member-a", member).unwrap().unwrap(), Record::Member(record));
    }
}
