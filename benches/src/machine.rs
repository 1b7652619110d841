//! What a measurement is made on.

/// The processor's name, as Linux tells it.
pub fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name"));
    name.map_or("unknown", |name| name.trim_start_matches([' ', '\t', ':'])).to_owned()
}
