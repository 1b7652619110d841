//! The builds.

use crate::REPOSITORY;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One way to build a program.
#[derive(Debug, PartialEq)]
pub struct Build {
    pub name: &'static str,
    /// Settings of the profile `release`, and their values.
    profile: &'static [(&'static str, &'static str)],
    rustflags: &'static str,
}

/// All of them. The first is a plain release build. "off" is what a plain release build has: no LTO between crates.
pub const BUILDS: &[Build] = &[
    Build { name: "16-off", profile: &[], rustflags: "" },
    Build { name: "16-thin", profile: &[("LTO", "thin")], rustflags: "" },
    Build { name: "16-fat", profile: &[("LTO", "fat")], rustflags: "" },
    Build { name: "1-off", profile: &[("CODEGEN_UNITS", "1")], rustflags: "" },
    Build { name: "1-thin", profile: &[("CODEGEN_UNITS", "1"), ("LTO", "thin")], rustflags: "" },
    Build { name: "1-fat", profile: &[("CODEGEN_UNITS", "1"), ("LTO", "fat")], rustflags: "" },
    Build { name: "abort", profile: &[("PANIC", "abort")], rustflags: "" },
    Build { name: "opt2", profile: &[("OPT_LEVEL", "2")], rustflags: "" },
    Build { name: "native", profile: &[], rustflags: "-C target-cpu=native" },
];

impl Build {
    /// Builds the program in a target folder of its own, with the settings of this build and no others. Returns the program's path.
    ///
    /// # Errors
    /// If cargo cannot be started or fails.
    pub fn make(&self) -> io::Result<PathBuf> {
        const PREFIX: &str = "CARGO_PROFILE_RELEASE_";
        let target = Path::new(REPOSITORY).join("target/matrix").join(self.name);
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with(PREFIX) || text.ends_with("RUSTFLAGS") {
                cargo.env_remove(&name);
            }
        }
        cargo.args(["build", "--locked", "--release", "--package", "matrix", "--target-dir"]).arg(&target);
        cargo.current_dir(REPOSITORY).env("RUSTFLAGS", self.rustflags);
        // The workspace's profile has debug information, which a plain release build has not.
        cargo.env(format!("{PREFIX}DEBUG"), "none");
        cargo.envs(self.profile.iter().map(|(setting, value)| (format!("{PREFIX}{setting}"), value)));
        if !cargo.status()?.success() {
            return Err(io::Error::other(format!("cargo could not build {}", self.name)));
        }
        Ok(target.join("release/one-build"))
    }
}
