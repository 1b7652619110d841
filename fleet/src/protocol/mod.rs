//! (the argument: to be written)

pub(crate) mod member;
pub(crate) mod record;
pub(crate) mod rendezvous;

#[cfg(test)]
mod model;
