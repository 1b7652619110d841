//! How members share the partitions, and why no key has two handlers. One page.
//!
//! # What the store holds
//!
//! ```text
//!   member-pod-1   { v, incarnation, renewals, leaving }       written by pod-1 alone; others may only delete it
//!   member-pod-2   { v, incarnation, renewals, leaving }
//!   owners         { v, partitions, revision, token, owners: partition → (name, incarnation, token) }
//! ```
//!
//! Each write compares and swaps one record. An incarnation is one life of a member: from the creation of its record to its deletion. It is
//! 64 bits, random at first, and never comes back. A member should have the partitions for which it has the highest
//! score among the members that it sees (`rendezvous.rs`). Members that see different members compute different owners; the table decides.
//!
//! # The steps of a member
//!
//! 1. **Renew.** It writes its record every R/3. Its *deadline* is the moment at which the last renewal that succeeded was *sent*, plus R, by
//!    a clock that counts suspends.
//! 2. **Hand out.** A key is handed out only while its partition's gate is open and the deadline is not reached. The gate counts the
//!    handlers inside.
//! 3. **Release.** A partition that it should not have any more: it closes the gate, waits until no handler is inside, and writes the
//!    table without its own name. The gate does not open again without a new claim. Then it takes the partition's keys out of the queue.
//!    If it should have the partition after all, it does not wait, and claims it *in place*.
//! 4. **Claim.** A partition that it should have, and that has no owner, or one whose incarnation is gone, or whose gate it has closed
//!    itself (step 3): it writes the table with its own name as the owner, and a higher token. Gone means that a read of the owner's
//!    record, after the owner was seen in the table, found none, or another incarnation, and that the owner's last record would have expired
//!    by now: see "Records that are deleted by hand".
//! 5. **Expire.** A record that has not changed for D by its own clock: it deletes the record *as it saw it*. D is 1.25 * (R + grace). Only
//!    time in which the member itself reached the store counts: see "When the store is away".
//! 6. **Tell.** After a claim it opens the gate, and then tells the program to list its objects and add their keys. The program's
//!    event thread first stores the object and then calls `add`, which looks at the gate. Either `add` finds it open, or the list finds the object: see
//!    `gate.rs`.
//!
//! If it reads that its own record is gone, it closes all gates, tells the handlers inside, and begins a new incarnation. So it does if the
//! table was deleted or went back.
//!
//! A request has one of three outcomes: done, not done, or unknown. After an unknown one the member reads the record before it goes on. (A
//! deletion of another's record is sent again.) A client may send a request again whose answer was lost. A repeated write or deletion with a
//! version fails. A repeated *creation* of a member's record can succeed after the record was renewed and deleted: then the record has fewer
//! renewals than the store has confirmed to its member, or none at another version. So the member counts it as gone; no process renews it, and it
//! expires.
//!
//! **Many members.** After a conflict over the table a member pauses; pauses double, and differ from member to member. The members take turns
//! to delete an expired record, so that one of them sends the request, and not all.
//!
//! # Always, whatever clocks do
//!
//! **A partition has one owner at most, and tokens only grow.** All claims and releases are writes of one record with compare-and-swap. So they
//! have an order, and each one was decided on the table that it replaces. A claim writes a token higher than all before it.
//!
//! **An owner that was passed over is gone for good.** Step 4 claims from an owner only if its incarnation is gone. Gone is stable: an incarnation
//! never comes back. So it does not matter how old the observation is, and the claim need not be one transaction with a look at the owner's
//! record. (Nor with a look at the claimant's own: if that is gone, the claim is one of an incarnation that is gone, and the next member claims the
//! partition in its turn. So one record per write is enough, which is all that Kubernetes offers.)
//!
//! **A request that is carried out late does no harm.** The table's version has moved on, so the write fails; or it has not, and then nothing was
//! decided since. A late claim is seen in the table: the gate opens, or the partition is released. A late release finds the gate closed,
//! because a closed gate opens only after a claim, which moves the version.
//!
//! # No two handlers of a key at once
//!
//! if the store does what [`Store`](crate::Store) says, only members write or delete records while they run (but see below), the rates of
//! two clocks differ by less than D : (R + grace), and handlers stop within the grace after the deadline. Let B claim a partition that A
//! had.
//!
//! * *A has released it.* Then A's gate was closed and empty before the table was written, and A hands out no key of it without another claim.
//! * *A's incarnation is gone.* Somebody, say C, deleted A's record as it saw it (only A itself deletes it otherwise, as it leaves: all gates
//!   are closed then, and while it leaves it opens none, even if a late claim of its own is carried out). C saw this version appear at a moment s, and deleted it at s + D or later, by its clock. The record was still at this version, so it is A's
//!   last renewal that was carried out. A sent it before s. Hence A's deadline is at most R after s by A's clock, and its handlers have stopped R +
//!   grace after s. D by C's clock is more than that, if the clocks' rates differ by less than D : (R + grace). So A's handlers have stopped
//!   before the record was deleted.
//!
//! **Records that are deleted by hand** (`kubectl delete lease`) are not C's doing, and A learns of it as late as B. So B waits by its own
//! clock as well: until D after it saw A's record change last. If it is a list that lacks the record, A may have renewed it unseen before,
//! and B waits until D after the list. If B never saw a record of this incarnation, it waits until D after it looked: also a member that
//! has just started, and also if it knows an earlier incarnation under the name. B does not wait for an incarnation of its own process. In
//! each case A sent its last renewal before the moment from which B counts, and the reasoning above holds with B in C's place. (The watch
//! must not have left out a last renewal before the deletion. Those of the stores in this crate deliver each change.) That A was leaving
//! does not shorten it: handlers may be inside, and a member that leaves by itself has released all before its record goes, so nobody has
//! to wait. When another member has deleted the record after D, B has seen it for as long, but for the delay of its watch, and waits no
//! more.
//!
//! Within one process the queue hands a key out once at a time, even if the gate was closed and opened again with a new token meanwhile. A
//! loop keeps the key of a handler until the owned permits of that handler are dropped, and these count in the gate like the handler.
//!
//! **A claim in place** replaces a table in which the claimant itself is the owner. So no other member has had the partition since the
//! gate was closed. The handlers inside go on, with the token that they have: they are the owner's. Their keys are not handed out a second
//! time, because the queue counts them as being processed; the partition's other keys are handed out with the higher token. For one key,
//! tokens grow. (A receiver that compares the tokens of a whole partition refuses the older handlers from then on. They fail, and their
//! keys are tried again.) A release whose outcome is unknown was carried out before the claim, which fails then; or it fails itself,
//! because the claim has moved the version.
//!
//! **A limit for releases** is no part of the argument. After it the handlers inside are told, and the release waits for the empty gate as
//! before. A leave that does not come to an end closes all gates and stops, as if the process were killed: its record expires.
//!
//! # What it cannot prevent
//!
//! **A process that is stopped inside a handler** can go on after its grace. Its writes carry the token; their receiver refuses a lower
//! token than one that it has seen.
//!
//! **A virtual machine that is paused.** All its clocks stand still, the one that counts suspends too. So after the pause the member takes
//! its deadline for a time in the future, although others may have deleted its record. Its handlers go on, and it also *starts* handlers:
//! until its next renewal is answered, which is R/3 and a round trip later at most, or until the deadline, which is R later at most, if it
//! cannot reach the store. Then it is lost. Its writes carry the old token until then.
//!
//! **A store that goes back**: a backup that is restored, or `etcd --force-new-cluster` (or another recovery of a lost quorum) on a server
//! that lags behind. What others have read is undone then. Suppose that the write that was lost is B's claim. B has opened the gate. The
//! recovered table shows no owner, so C claims the partition with the revision and perhaps the token of B's claim, and opens its gate. B
//! does not take C's table for newer than its own. Both gates are open until the table's next write, and the token does not tell the two
//! apart. So stop all members before, and start them afterwards: each one begins a new incarnation, and reads the table.
//!
//! # When the store is away
//!
//! all members are silent, and each one's D runs out at the same time. If that counted, the first one that could reach the store again
//! would delete the records of all others. So the time from one confirmed renewal of a member's own to the next counts towards the expiry
//! of others up to R/3 and a retry; the rest is added to the moment since when it has known their records. A renewal is due every R/3,
//! which is less than D, and comes before any deletion. So at least D - 2R/3 - R/30 remains to the others when a member has the store
//! again. A member that has not joined yet renews nothing; it deletes no record but one under its own name.
//!
//! That only makes deletions later, so it is safe. It makes them later by the time without the store, so the record of a member that has
//! died is deleted at most D after the store is back, at which time it could be deleted at the earliest. And each confirmed renewal counts,
//! so requests that fail now and then do not put an expiry off without end.
//!
//! # Other versions of this program
//!
//! Each record says its format: `"v": 1`; without it, it is 1. This version writes and reads the format 1.
//!
//! **To add a field** to the table or to a member's record, at its top level, the format stays. An older member does not look at it, and
//! writes the table's back as it is. So the field must make sense when an older member has changed the owners meanwhile. A field inside of
//! `owners` would not survive.
//!
//! **To change the format** takes two releases. The first one reads both formats and writes the old one; the second one writes the new one.
//! An upgrade or a rollback goes from one to the next, and each is complete before the next one begins.
//!
//! **Where that is left out**, or a record is edited by hand, a member meets a record that it cannot read. Each such reading counts in
//! [`Stats::store_errors`](crate::Stats::store_errors), and the last one is in `last_store_error`.
//!
//! * *Another member's record.* It is a member all the same, and should have partitions, because it may be a newer process that lives. It
//!   may be of any incarnation. It expires when it has not changed for D: of the reader, or of the others or of its former content if they
//!   are longer. Then it is deleted as seen.
//! * *The member's own record.* The member is lost, as if it were gone. Its next incarnation joins when the record has expired. A process
//!   that starts under the name does the same, and is refused if the record is renewed.
//! * *The table.* Members renew their records and go on with what they own. They claim, release and delete nothing, and close no gate for
//!   another member, which could not claim. They read the table again when the watch tells of it, and after each renewal. A new member is
//!   refused with [`FleetError::Store`](crate::FleetError::Store). A member that leaves closes its gates, and cannot end unless it owns
//!   nothing. Safe it is, as nobody claims without a table that it can read; and a newer member that can read it claims as always.
//!
//! # Nothing is lost
//!
//! A partition that has no owner is claimed by the member that should have it as soon as that sees the table; members see each other's
//! records by the watch, and a record whose owner is silent is deleted after D. Each member says for how long partitions have been without
//! an owner ([`Stats::unowned_for`](crate::Stats::unowned_for)). An owner that is silent for D counts as none there, whether its record
//! can be deleted or not. What `add` refused while a gate was closed, the program lists after a claim in place as after any other. The
//! keys themselves are not in the store: the member that acquires a partition lists them (step 6).
//!
//! # What shows it
//!
//! `model.rs` runs this code through all orders of steps within bounds, with two members, and with three so that one deletes a record and
//! another one claims, and with a record that is deleted by hand. It finds each of five built-in faults: no deadline, no waiting at a
//! release, D too short, a table written without a comparison, and a deadline that counts from the answer. `sequences.rs` has single
//! sequences of events that once went wrong. `tests/simulation.rs` runs whole members over a store that loses requests, and deletes their
//! records by hand. `tests/formats.rs` has members of two versions. `loom-tests/tests/fleet_gate.rs` has the gates. `fleet/chaos` has real
//! processes and etcd.

pub(crate) mod member;
pub(crate) mod record;
pub(crate) mod rendezvous;

#[cfg(test)]
mod model;
#[cfg(test)]
mod sequences;
