#!/usr/bin/env bash
# Relative links in the texts lead to files of the repository, and what pages and comments name between backticks exists (below). The
# registry's page can resolve the links of the README. It resolves them against `repository` in Cargo.toml, which the owner fills in. Until
# then the script reports it as missing, and passes.
#
#   ci/links.sh --release     fails while something is not filled in, as a release requires (ci/release.sh)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
release="${1:-}"
failed=0
missing() {
    echo "not filled in: $1"
    [ "$release" != --release ] || failed=1
}

checked=0
while read -r file; do
    while read -r link; do
        case "$link" in http://* | https://* | mailto:* | \#*) continue ;; esac
        checked=$((checked + 1))
        path="$(realpath -ms --relative-to=. "$(dirname "$file")/${link%%#*}")"
        [ -n "$(git ls-files -- "$path")" ] || { echo "$file: $link leads nowhere"; failed=1; }
    done < <(grep -oE '\]\([^) ]+\)' "$file" | sed -E 's/^\]\((.*)\)$/\1/')
done < <(git ls-files -- '*.md' ':!benches/text') # parts of other files, relative to those
echo "$checked relative links"
[ "$checked" -gt 0 ]

# What Markdown and the comments of Rust name between backticks exists:
#   * a file or a folder: a word that ends as one (`key/{slot,chunk}.rs`, `order/`) or begins with a folder of the root (`ci/fuzz`). It lies
#     in the root, beside the text or in a folder above it; or, unless it begins with a folder of the root, anywhere (`choose.rs`). Without
#     backticks, too, a word that does both is a file (`ci/quick.sh`).
#   * a name of two words or more, such as `take_where`, `STAY_IN_ORDER` or `DelayedAdd`: it stands in a program, or is a file's name.
# These are names of other projects, in data, and of values that an example leaves to the reader. CHANGELOG.md names what is gone, and two
# reports are about a former state.
foreign="error_policy graceful_shutdown_on spawn_blocking buffer_unordered default_retry CLOCK_BOOTTIME CLOCK_MONOTONIC get_or_alloc_next"
foreign+=" MaxConcurrentReconciles RecoverPanic LowPriority UsePriorityQueue controller_runtime_reconcile_total queue_test"
foreign+=" negative_delay mutants.json ms_200 an_hour"
mapfile -t texts < <(git ls-files -- '*.md' '*.rs' ':!CHANGELOG.md')
mapfile -t programs < <(git ls-files -- '*.toml' '*.sh' '*.py' '*.yml' '*.patch' .ci)
git ls-files | awk -v foreign="$foreign" '
    BEGIN { split(foreign, list, " "); for (i in list) known[list[i]] }
    # The files of the repository and their folders, each with the ends of its path.
    NR == FNR {
        for (path = $0; ; sub(/\/[^\/]*$/, "", path)) {
            exact[path]
            for (end = path; ; sub(/^[^\/]*\//, "", end)) { ends[end]; if (end !~ /\//) break }
            if (path !~ /\//) break
        }
        if ($0 ~ /\//) top[path]
        end = $0
        gsub(/^.*\/|\.[a-z]+$/, "", end)
        known[end]
        next
    }
    FNR == 1 { fence = 0; markdown = FILENAME ~ /\.md$/; rust = FILENAME ~ /\.rs$/ }
    {
        text = $0
        if (!markdown && !rust && text ~ /^ *#/) { find_paths(text, 1); next }
        if (!markdown && !(rust && sub(/^[ \t]*\/\/[\/!]?/, "", text))) { fence = 0; program(text); next }
        if (text ~ /^ *```/) { fence = !fence; next }
        if (fence) { program(text); find_paths(text, 1); next }
        count = split(text, part, "`")
        for (i = 1; i <= count; i++) {
            find_paths(part[i], i % 2)
            if (i % 2) continue
            while (match(part[i], /[A-Za-z0-9_]+/)) {
                name = substr(part[i], RSTART, RLENGTH)
                part[i] = substr(part[i], RSTART + RLENGTH)
                if (name ~ /^[a-z0-9]+(_[a-z0-9]+)+$/ || name ~ /^[A-Z0-9]+(_[A-Z0-9]+)+$/ || name ~ /^[A-Z][a-z0-9]+([A-Z][a-z0-9]+)+$/) {
                    names++
                    places[name] = places[name] " " FILENAME ":" FNR
                }
            }
        }
    }
    function program(text) {
        while (match(text, /[A-Za-z0-9_]+/)) {
            known[substr(text, RSTART, RLENGTH)]
            text = substr(text, RSTART + RLENGTH)
        }
    }
    function find_paths(text, is_plain,    word, words, i) {
        words = split(text, word, " ")
        for (i = 1; i <= words; i++) {
            gsub(/^[("]+|(:[0-9]+|[.,;:)"]+)$/, "", word[i])
            if (word[i] ~ /^[A-Za-z0-9_.{},*\/-]+$/ && looks_like_a_path(word[i], is_plain)) { paths++; expand(word[i]) }
        }
    }
    function looks_like_a_path(word, is_plain,    first, is_in_root, is_file) {
        first = word
        is_in_root = sub(/\/.*/, "", first) && first in top
        is_file = word ~ /[A-Za-z0-9_}*]\.(rs|md|sh|py|toml|yml|txt|json|svg|patch)$/
        return is_plain ? is_in_root && is_file : is_in_root || is_file || word ~ /^[a-z_\/-]+\/$/
    }
    # `a/{b,c}.rs` is two paths.
    function expand(word,    before, after, choices, count, i) {
        if (!match(word, /\{[^{}]*\}/)) { find(word); return }
        before = substr(word, 1, RSTART - 1)
        after = substr(word, RSTART + RLENGTH)
        count = split(substr(word, RSTART + 1, RLENGTH - 2), choices, ",")
        for (i = 1; i <= count; i++) expand(before choices[i] after)
    }
    function find(path,    folder, first, pattern, end) {
        while (sub(/^\.\.?\//, "", path)) { }
        sub(/\/$/, "", path)
        if (path in exact || path in known) return
        for (folder = FILENAME; sub(/\/[^\/]*$/, "", folder);) if ((folder "/" path) in exact) return
        first = path
        sub(/\/.*/, "", first)
        if (!(first in top) && path in ends) return
        if (path ~ /\*/) {
            pattern = path
            gsub(/\./, "[.]", pattern)
            gsub(/\*/, "[^/]*", pattern)
            for (end in ends) if (end ~ ("^" pattern "$")) return
        }
        print FILENAME ":" FNR ": there is no " path
        bad = 1
    }
    END {
        for (name in places) if (!(name in known)) { print substr(places[name], 2) ": no program has the name " name " (that of another project goes to `foreign` here)"; bad = 1 }
        print paths " names of files, " names " of code"
        exit bad || !paths || !names
    }
' - "${texts[@]}" "${programs[@]}" || failed=1

repository="$(sed -n 's/^repository = "\(.*\)"$/\1/p' Cargo.toml)"
if [ -z "$repository" ]; then
    missing "repository in Cargo.toml: the registry's page of the crate has no links and no charts"
elif [[ ! "$repository" =~ ^https://(github\.com|gitlab\.com|bitbucket\.org)/[^/]+/[^/]+$ || "$repository" == *[\<\>]* ]]; then
    echo "$repository: the registry resolves no relative links against this"
    failed=1
else
    # For a person to try once. An address in the texts would be a second place to change.
    grep -oE '\]\([^):# ]+' README.md | cut -c 3- | sort -u | sed "s,^,$repository/blob/HEAD/,"
    if git grep -nF "$repository" -- '*.md' '*.rs' ':!SECURITY.md'; then
        echo "use relative links: only Cargo.toml holds the address"
        failed=1
    fi
fi
contact="$(sed -n 's/^Contact: //p' SECURITY.md)"
[ -n "$contact" ] || { echo "SECURITY.md: no line \`Contact: \`"; failed=1; }
[[ "$contact" != *"not filled in"* ]] || missing "the contact in SECURITY.md"
exit "$failed"
