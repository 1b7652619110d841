//! A flag whose release can be another step.

use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const STORE: u8 = 0;
pub(crate) const SWAP: u8 = 1;
pub(crate) const EXCHANGE: u8 = 2;

/// An `AtomicBool` whose store with `Release`, which releases the lock, is what `HOW` says.
pub(crate) struct Flag<const HOW: u8>(AtomicBool);

impl<const HOW: u8> Flag<HOW> {
    pub(crate) const fn new(value: bool) -> Self {
        Self(AtomicBool::new(value))
    }

    #[inline(always)]
    pub(crate) fn load(&self, order: Ordering) -> bool {
        self.0.load(order)
    }

    #[inline(always)]
    pub(crate) fn store(&self, value: bool, order: Ordering) {
        match (HOW, order) {
            (SWAP, Ordering::Release) => _ = self.0.swap(value, order),
            (EXCHANGE, Ordering::Release) => {
                _ = self.0.compare_exchange(!value, value, order, Ordering::Relaxed);
            }
            _ => self.0.store(value, order),
        }
    }

    #[inline(always)]
    pub(crate) fn compare_exchange(&self, from: bool, to: bool, yes: Ordering, no: Ordering) -> Result<bool, bool> {
        self.0.compare_exchange(from, to, yes, no)
    }
}
