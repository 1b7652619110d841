//! Why an object is reconciled.

use std::fmt;

/// An event that brings a run about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Reason {
    /// The object is in a list, with which each watch begins.
    Listed,
    /// The object was created or changed.
    Changed,
    /// The object was deleted, or changed so that the [selection](kube::runtime::watcher::Config) does not have it any more, or it is missing
    /// in a list after a watch that was cut. If the store has an object of its name at the [run](crate::Reconcile::object), that has come
    /// since.
    Gone,
    /// An object was created, changed or deleted that this one [owns](crate::Controller::owns), or that was mapped to it
    /// ([`watches`](crate::Controller::watches)).
    Related,
    /// A stream named the object: [`reconcile_on`](crate::Controller::reconcile_on).
    Requested,
    /// All objects were asked for: [`reconcile_all_on`](crate::Controller::reconcile_all_on).
    Bulk,
}

impl Reason {
    const ALL: [Self; 6] = [Self::Listed, Self::Changed, Self::Gone, Self::Related, Self::Requested, Self::Bulk];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listed => "listed",
            Self::Changed => "changed",
            Self::Gone => "gone",
            Self::Related => "related object changed",
            Self::Requested => "requested",
            Self::Bulk => "bulk",
        })
    }
}

/// Why an object is reconciled: all events since the last run of it that has succeeded. From
/// [`Reconcile::reasons`](crate::Reconcile::reasons).
///
/// A run without a reason is one that the handler has asked for, with [`RequeueAfter`](keyqueue::Outcome::RequeueAfter). If the queue has
/// a bound and is full, a run may also come just before its reason, which the next run has then.
///
/// A run that was given up hands its reasons on to the next one, if one comes. Until then they are kept, also those of an object that is
/// gone, unless its handler itself has returned [`GiveUp`](keyqueue::Outcome::GiveUp).
///
/// Like all level-triggered controllers, a handler should not depend on them: it brings the cluster into the state that the object
/// describes, whatever has happened. They are for logs, and for work that can be skipped.
///
/// # Examples
/// ```
/// use keyqueue_kube::{Reason, Reasons};
///
/// let reasons = Reasons::from(Reason::Listed) | Reason::Changed.into();
/// assert!(reasons.contains(Reason::Changed) && !reasons.contains(Reason::Gone));
/// assert_eq!(reasons.to_string(), "listed, changed");
/// assert!(Reasons::default().is_empty());
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Reasons(u8);

impl Reasons {
    /// Whether this is one of them.
    #[must_use]
    pub fn contains(self, reason: Reason) -> bool {
        self.0 & Self::from(reason).0 != 0
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All of them, in the order in which [`Reason`] names them.
    pub fn iter(self) -> impl Iterator<Item = Reason> {
        Reason::ALL.into_iter().filter(move |reason| self.contains(*reason))
    }
}

impl From<Reason> for Reasons {
    fn from(reason: Reason) -> Self {
        Self(1 << reason as u8)
    }
}

impl std::ops::BitOr for Reasons {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons: Vec<String> = self.iter().map(|reason| reason.to_string()).collect();
        f.write_str(&reasons.join(", "))
    }
}
