#!/usr/bin/env bash
# The unsafe code is what reports/unsafe.md says: the table has each file with its number of blocks, impls and functions, and each SAFETY
# comment cites a rule by its number, but for prefetch hints, which rest on none. And each file of tests is in a part of ci/miri.sh, or
# is left out there by name.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
report=reports/unsafe.md
failed=0
mapfile -t files < <(git ls-files -- 'src/*.rs' 'fleet/src/*.rs')

# `file what count`, sorted. Comments, and the names of lints, do not count.
counted="$(awk '
    { sub(/\/\/.*/, "") }
    /(^|[^a-z_])unsafe \{/ { count[FILENAME " block"] += gsub(/unsafe \{/, "") }
    /(^|[^a-z_])unsafe impl/ { count[FILENAME " impl"]++ }
    /(^|[^a-z_])unsafe (extern|fn)/ { count[FILENAME " fn"]++ }
    END { for (at in count) print at, count[at] }' "${files[@]}" | LC_ALL=C sort)"
reported="$(awk -F ' *[|] *' '
    /^\| `(src|fleet)\// { file = $2; gsub(/`/, "", file) }
    $4 ~ /^(block|impl|fn)$/ { count[file " " $4] += $5 }
    END { for (at in count) print at, count[at] }' "$report" | LC_ALL=C sort)"
[ -n "$counted" ] || { echo "no unsafe code found"; exit 1; }
if ! diff <(echo "$counted") <(echo "$reported"); then
    echo "the lines above differ: < is in the code, > in $report"
    failed=1
fi
sum() { awk -v what="$1" '$2 == what { sum += $3 } END { print sum + 0 }' <<<"$counted"; }
total="$(sum block) blocks, $(sum impl) impls, $(sum fn) functions in $(cut -d' ' -f1 <<<"$counted" | sort -u | wc -l) files"
grep -qxF "$total, as in $report" "$report" || { echo "$report does not say: $total"; failed=1; }

# A SAFETY comment goes on until a line without `//`.
if ! awk '
    FNR == 1 && comment { check() }
    /\/\/ SAFETY:/ { comment = $0; place = FILENAME ":" FNR; next }
    comment && /^[ \t]*\/\// { comment = comment $0; next }
    comment { check() }
    function check() {
        if (comment !~ /[^A-Za-z0-9][A-Z][0-9]+[^A-Za-z0-9]/ && place !~ /^src\/prefetch\.rs:/) { print place ": cites no rule"; bad = 1 }
        comment = ""
    }
    END { exit bad }' "${files[@]}"; then
    failed=1
fi

bash ci/miri.sh --check || failed=1
[ "$failed" = 1 ] || echo "$total, as in $report"
exit "$failed"
