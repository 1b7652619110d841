#!/usr/bin/env bash
# The calls inside src/shared go down: a file imports, and calls on the queue, only what is below it in the list at the top of
# src/shared/mod.rs. Within a line of that list they go to the right. Tests do not count.
# A file that is not in the list is an error, but for free.rs, which has the arms of all calls.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
shopt -s extglob
order="$(awk '/^\/\/! ```text/ { list = 0; block++ } block == 2 && /^\/\/!   [a-z_]/ { print }' src/shared/mod.rs |
    sed -E 's|^//!   ||; s/ *[|].*//' | tac)"
files=""
for name in $(awk '{ for (i = NF; i > 0; i--) print $i }' <<<"$order"); do files+=" $(ls src/shared/{,*/}"$name.rs" "src/shared/$name/mod.rs" 2>/dev/null || true)"; done
missing="$(comm -23 <(ls src/shared/!(mod|driven|driverless|stopped|free).rs src/shared/*/*.rs | sort) <(tr ' ' '\n' <<<"$files" | sort))"
[ -z "$missing" ] || { echo "not in the list of src/shared/mod.rs: $missing"; exit 1; }
awk '
    function name(file) { sub(/\/mod\.rs$/, ".rs", file); sub(/.*\//, "", file); sub(/\.rs$/, "", file); return file }
    FNR == 1 { tests = 0; rank[name(FILENAME)] = ++files }
    /^#\[cfg\(all\(test/ { tests = 1 }
    tests { next }
    { sub(/\/\/.*/, "") }
    match($0, /fn [a-z_]+/) { f = substr($0, RSTART + 3, RLENGTH - 3); homes[f]++; home[f] = name(FILENAME) }
    {
        line = $0
        while (match(line, /(self|this|shared|Self|Shared)(\.|::)[a-z_]+\(/)) {
            call = substr(line, RSTART, RLENGTH - 1)
            line = substr(line, RSTART + RLENGTH)
            sub(/.*[.:]/, "", call)
            calls[++n] = call; from[n] = name(FILENAME); at[n] = FILENAME ":" FNR
        }
    }
    match($0, /^use (super|crate::shared)::([a-z_]+::)?[a-z_]+/) {
        imports[++m] = substr($0, RSTART, RLENGTH)
        sub(/.*:/, "", imports[m])
        by[m] = name(FILENAME)
        where[m] = FILENAME ":" FNR
    }
    END {
        for (i = 1; i <= n; i++) if (homes[calls[i]] == 1) {
            checked++
            if (rank[home[calls[i]]] > rank[from[i]]) { print at[i] ": " calls[i] " is above, in " home[calls[i]] ".rs"; bad = 1 }
        }
        for (i = 1; i <= m; i++) if (rank[imports[i]] > rank[by[i]]) { print where[i] ": imports " imports[i] ", which is above"; bad = 1 }
        if (checked < 100) { print "only " checked + 0 " calls were found"; bad = 1 }
        print checked " calls and " m " imports go down"
        exit bad
    }
' $files
