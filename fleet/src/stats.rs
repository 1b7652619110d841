//! Numbers of a member.

use crate::owners::Owners;
use crate::protocol::member::{Member, Notice, Time};
use std::time::Duration;

/// A snapshot of a member, from [`Fleet::stats`](crate::Fleet::stats).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The member's name, and the number of its present life.
    pub member: String,
    /// Partitions of the fleet.
    pub partitions: u32,
    /// Members that this one knows of, itself included.
    pub members: usize,
    /// Partitions that this member owns. Those that are [being handed over](Self::releasing) count.
    pub owned: usize,
    /// Partitions whose keys this member hands out: it owns them, does not hand them over, and its deadline is not reached.
    pub serving: usize,
    /// Partitions that this member should own. The others are being handed over, or wait for another
    /// member's handlers.
    pub wanted: usize,
    /// Partitions that no member owns, as far as this one knows, or whose owner has not renewed its record for the
    /// [time after which it expires](crate::FleetBuilder::lease). No replica processes their keys.
    pub unowned: usize,
    /// For how long the first of these has had no owner.
    pub unowned_for: Duration,
    /// Partitions whose owner has not renewed its record for a lease, as far as this member knows, and is not expired yet. If that is so,
    /// no replica processes their keys. Partitions of this member count after its own deadline.
    pub stale: usize,
    /// Partitions that are to be handed over and wait for their handlers to return.
    pub releasing: usize,
    /// For how long the first of these has waited.
    pub releasing_for: Duration,
    /// How long the last hand-over to this member took: from the moment at which it should have the partition until it had it.
    pub last_hand_over: Option<Duration>,
    /// The longest hand-over to this member.
    pub longest_hand_over: Duration,
    /// The number of times that partitions were acquired, released and lost.
    pub acquired: u64,
    /// See `acquired`.
    pub released: u64,
    /// See `acquired`. Not 0: the store or this process stood still for longer than a lease.
    pub lost: u64,
    /// Hand-outs that were refused because the partition was not owned; their keys were dropped.
    pub refused: u64,
    /// Hand-outs that were refused because the deadline was reached; their keys were queued again.
    pub late: u64,
    /// The time until this member stops handing out keys, unless it renews its record. Zero: it has stopped.
    pub time_to_deadline: Duration,
    /// Requests and watches that failed, and records that could not be read: of another version's format, or edited by hand.
    pub store_errors: u64,
    /// The last of these.
    pub last_store_error: Option<String>,
}

/// What the member's task writes.
#[derive(Debug, Default, Clone)]
pub(crate) struct Measured {
    pub(crate) member: String,
    pub(crate) members: usize,
    pub(crate) owned: usize,
    pub(crate) open: usize,
    pub(crate) stale: usize,
    pub(crate) releasing: usize,
    pub(crate) releasing_since: Option<Time>,
    pub(crate) wanted: usize,
    pub(crate) unowned: usize,
    pub(crate) unowned_since: Option<Time>,
    pub(crate) last_hand_over: Option<Duration>,
    pub(crate) longest_hand_over: Duration,
    pub(crate) acquired: u64,
    pub(crate) released: u64,
    pub(crate) lost: u64,
}

impl Measured {
    pub(crate) fn copy_from(&mut self, owners: &Owners, member: &Member, notices: &[Notice], now: Time) {
        for notice in notices {
            match *notice {
                Notice::Acquired(partition) => {
                    self.acquired += 1;
                    let since = owners.wanted_since(partition).unwrap_or(now);
                    let took = Duration::from_nanos(now.saturating_sub(since));
                    self.last_hand_over = Some(took);
                    self.longest_hand_over = self.longest_hand_over.max(took);
                }
                Notice::Released(_) => self.released += 1,
                Notice::Lost(_) => self.lost += 1,
            }
        }
        self.member = member.id().to_string();
        self.members = member.peers() + usize::from(member.has_joined());
        self.owned = member.owned();
        self.open = member.open();
        self.stale = owners.stale();
        (self.releasing, self.releasing_since) = owners.releasing();
        self.wanted = owners.wanted();
        (self.unowned, self.unowned_since) = owners.unowned();
    }
}
