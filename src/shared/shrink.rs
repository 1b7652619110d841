//! `shrink_to_fit`.

use super::Shared;
use super::section::in_steps;
use super::settings::Limiter;

impl<K> Shared<K> {
    /// Gives back what is kept for keys to come, in many short critical sections.
    pub(crate) fn shrink(&self) {
        if let Limiter::External(limiter) = &self.settings.limiter {
            limiter.shrink_to_fit();
        }
        self.hub().getters.shrink();
        #[cfg(feature = "lock-free")]
        self.free().into_iter().for_each(|free| self.free_shrink(free));
        self.directory.iter().for_each(|directory| directory.shrink());
        for locked in self.all() {
            in_steps(|at| {
                let held = locked.lock();
                let mut section = self.section(held);
                let next = section.verb(|machine, _| machine.shrink(at));
                section.end();
                next
            });
        }
    }
}
