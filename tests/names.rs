//! The names that users of client-go and controller-runtime search for: those in the left cells of the cookbook's tables.
//!
//! Checks: each is a `#[doc(alias)]` of an item that its row names, so that rustdoc's search finds it. Their number is known, so that none
//! goes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The text of all files of a folder.
fn read_all(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).expect("the sources are here") {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, text);
        } else {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

/// The name of the item that follows these lines of attributes.
fn item(lines: &str) -> &str {
    let line = lines.lines().map(str::trim_start).find(|line| !line.starts_with("#[") && !line.starts_with("//"));
    let words = line.unwrap_or_default().split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut words =
        words.filter(|word| !matches!(*word, "pub" | "const" | "async" | "fn" | "struct" | "enum" | "trait" | "type"));
    words.next().unwrap_or_default()
}

/// Whether a text has this name as a word.
fn has_word(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let around = [text[..at].chars().next_back(), text[at + name.len()..].chars().next()];
        around.into_iter().flatten().all(|c| !c.is_alphanumeric() && c != '_')
    })
}

#[test]
fn the_names_of_client_go_are_found() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut sources, cookbook) = (String::new(), std::fs::read_to_string(folder.join("cookbook.rs")).unwrap());
    read_all(&folder, &mut sources);
    let mut aliases = BTreeMap::<_, BTreeSet<_>>::new();
    for alias in sources.split("#[doc(alias = \"").skip(1) {
        let (name, after) = alias.split_once("\")]\n").expect("an alias has a line of its own");
        aliases.entry(name).or_default().insert(item(after));
    }
    let rows = cookbook.lines().filter_map(|line| line.strip_prefix("//! | ")?.split_once(" | "));
    let (mut named, mut found) = (BTreeSet::new(), BTreeSet::new());
    for (left, right) in rows {
        // Between backticks: `Get`, `wait.BackoffUntil`, `Result{RequeueAfter: d}`.
        let is_left = |name: &str| left.split('`').skip(1).step_by(2).any(|code| has_word(code, name));
        for (name, items) in aliases.iter().filter(|(name, _)| is_left(name)) {
            named.insert(name);
            found.extend(items.iter().any(|item| has_word(right, item)).then_some(name));
        }
    }
    assert_eq!(named, found, "the row does not name the alias's item");
    assert_eq!(found.len(), 74, "{found:?}");
}
