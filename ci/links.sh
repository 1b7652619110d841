#!/usr/bin/env bash
# Relative links in the texts lead to files of the repository, and the registry's page can resolve those of the README. It resolves
# them against `repository` in Cargo.toml, which the owner fills in. Until then the script reports it as missing, and passes.
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
