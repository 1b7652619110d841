//! Compiles what `src/key` has for the machine, which the crate compiles for its tests only.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=keyqueue_machine");
}
