//! Time: what it is ([`clock`]), where delayed keys wait for it ([`wheel`]), and who looks at it ([`driver`]).

pub(crate) mod clock;
pub(crate) mod driver;
mod rough;
pub(crate) mod wheel;
