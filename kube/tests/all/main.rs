//! The controller against the stand-in for an API server.

mod common;
mod corners;
mod runs;
mod storms;
mod watches;
