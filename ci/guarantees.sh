#!/usr/bin/env bash
# The promises (P1 …) are defined in src/guarantees.rs, which names no files, and the invariants (I9, W2 …) in INVARIANTS.md.
# Each number that a text cites is defined on one of the two pages, and each number that is defined there is cited elsewhere. Each has one
# row in the tables of INVARIANTS.md, and the files and tests that this page names exist.
#
# A citation is a capital letter and one or two digits, as a word of its own, in text:
#   * in Markdown, but not in code: not between backticks, not between fences (those of ```text are text);
#   * in Rust, in a comment (the same about backticks and fences), and in code as the beginning of a message: "I1: …" anywhere, or
#     "I9" alone in an assertion.
# So a type parameter P1, the hexadecimal 0xB1, a name such as T1_MICRO or tokio#P1, a version such as S3.5 and a string "S1" in a
# program are none. A text that means something else, such as a cache level, puts it between backticks.
# "P4 to P7" and "P4-P7" cite what lies between, too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
promises=src/guarantees.rs
invariants=INVARIANTS.md

# Prints FILE:LINE NUMBER for each citation in the files.
citations() {
    awk '
        FNR == 1 { fence = code = 0; markdown = FILENAME ~ /\.md$/ }
        {
            text = $0
            messages = ""
            if (!markdown) {
                comment = match(text, /(^|[ \t])\/\//)
                rest = comment ? substr(text, RSTART) : ""
                program = comment ? substr(text, 1, RSTART - 1) : text
                while (match(program, /"[A-Z][0-9][0-9]?(: |")/)) {
                    if (substr(program, RSTART + RLENGTH - 1, 1) == " " || text ~ /assert/)
                        messages = messages " " substr(program, RSTART + 1, RLENGTH - 2)
                    program = substr(program, RSTART + RLENGTH)
                }
                if (!comment) fence = code = 0
                text = rest
                sub(/^[ \t]*\/\/[\/!]?[ \t]?/, "", text)
            }
            if (text ~ /^ *```/) {
                fence = !fence
                code = fence && text !~ /^ *```text/
                text = ""
            }
            if (code) text = ""
            gsub(/`[^`]*`/, "`", text)
            find(text messages)
        }
        function find(text,    before, after, at, from, to, letter) {
            while (match(text, /[A-Z][0-9][0-9]?/)) {
                before = substr(text, 1, RSTART - 1)
                at = substr(text, RSTART, RLENGTH)
                after = substr(text, RSTART + RLENGTH)
                text = after
                if (before ~ /[A-Za-z0-9_#.$&@-]$/ || before ~ /[a-z0-9]\/$/ || after ~ /^([A-Za-z0-9_(]|[.][0-9])/) {
                    sub(/^[A-Za-z0-9_]+/, "", text)
                    text = "_" text
                    continue
                }
                letter = substr(at, 1, 1)
                from = to = substr(at, 2) + 0
                if (match(after, "^( to |-|–)" letter "[0-9][0-9]?")) {
                    range = substr(after, 1, RLENGTH)
                    text = substr(after, RLENGTH + 1)
                    sub(".*" letter, "", range)
                    to = range + 0
                }
                for (; from <= to; from++) print FILENAME ":" FNR, letter from
                text = " " text
            }
        }
    ' "$@"
}

# The pattern itself, on a text of which the answer is known.
sample="$(mktemp -d)"
trap 'rm -rf "$sample"' EXIT
cat > "$sample/a.rs" <<'END'
//! As A1 says (A2, A3): `A98`, A4 to A6. 0xA98 A98x x-A98 tokio#A98 a/A98 A98.2 A98_B
//! ```
//! let A98 = 1; // A98
//! ```
//! ```text
//! A7/A8
//! ```
fn f<A98>(a: A98) -> Map<A98, u8> { // A9-A11.
    debug_assert_eq!(a, 1, "A12"); assert!(b, "A13: c", "A98 d");
    let c = ["A98", "A98 b"];
END
printf '%s\n' 'A1 and A2.' '```rust' 'A98' '```' '| `A98` | **A3**: |' > "$sample/b.md"
found="$(citations "$sample/a.rs" "$sample/b.md" | cut -d' ' -f2 | tr '\n' ' ')"
[ "$found" = "A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 A13 A1 A2 A3 " ] || { echo "$0 finds in its sample: $found"; exit 1; }

mapfile -t files < <(git ls-files -- src tests loom-tests fuzz benches examples README.md CONTRIBUTING.md POLICY.md reports/lock.md reports/unsafe.md | grep -E '\.(rs|md)$' | grep -vxF "$promises")
cited="$(citations "${files[@]}")"
failed=0

# Prints the numbers that a page defines: `* **P1** …`.
definitions() { sed -nE 's/^(\/\/! )?\* \*\*([A-Z][0-9]{1,2})\*\* .*/\2/p' "$1"; }

declare -A page uses rows
for file in "$promises" "$invariants"; do
    for number in $(definitions "$file"); do
        [ -z "${page[$number]:-}" ] || { echo "$file: $number is defined twice"; failed=1; }
        page[$number]=$file
        [[ "$number" == P* ]] && right=$promises || right=$invariants
        [ "$file" = "$right" ] || { echo "$file: $number belongs in $right"; failed=1; }
    done
done
while read -r place number; do
    [ -z "${page[$number]:-}" ] || continue
    echo "$place: $number is defined neither in $promises nor in $invariants (if it is no citation, put it between backticks)"
    failed=1
done < <(citations "$promises" "$invariants" && echo "$cited")
while read -r _ number; do uses[$number]=1; done <<<"$cited"

# The first cell of a row has its numbers: "P1", "I2, I3" or "T1 to T7".
awk -F '|' '/^\| *[A-Z][0-9]/ { print $2 }' "$invariants" > "$sample/rows.md"
while read -r _ number; do rows[$number]=$((${rows[$number]:-0} + 1)); done < <(citations "$sample/rows.md")
for number in "${!page[@]}"; do
    [ -n "${uses[$number]:-}" ] || { echo "${page[$number]}: nothing cites $number"; failed=1; }
    [ "${rows[$number]:-0}" = 1 ] || { echo "$invariants: $number has ${rows[$number]:-0} rows"; failed=1; }
done
if awk -F '|' '/^\| *[A-Z][0-9]/ && ($3 ~ /^ *$/ || $4 ~ /^ *$/) { print FILENAME ":" FNR ": an empty cell"; found = 1 } END { exit !found }' "$invariants"; then
    failed=1
fi

# What a page names between backticks: paths, and tests, which are functions with a name of three words or more.
paths() { grep -oE '`[a-z-]+/[^`]*`' "$1" | tr -d '`' | sort -u; }
for path in $(paths "$invariants"); do
    [ -n "$(git ls-files -- "$path")" ] || { echo "$invariants: there is no $path"; failed=1; }
done
for path in $(paths "$promises"); do
    echo "$promises names a file, which the package may not have: $path"
    failed=1
done
functions="$(git grep -hoE '\bfn [a-z0-9_]+' -- src tests loom-tests | sort -u)"
for name in $(grep -oE '`[a-z0-9]+(_[a-z0-9]+){2,}`' "$invariants" | tr -d '`' | sort -u); do
    grep -qxF "fn $name" <<<"$functions" || { echo "$invariants: there is no test $name"; failed=1; }
done

echo "${#page[@]} numbers, cited $(wc -l <<<"$cited") times"
exit "$failed"
