#!/usr/bin/env bash
# Says what a release lacks, and fails while something is missing: ci/release.sh [<tag>]. The workflow release.yml runs it before it
# publishes, with the tag that started it; RELEASING.md has the steps.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
failed=0
missing() {
    echo "missing: $1"
    failed=1
}
version="$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)"
of() { sed -n 's/^version = "\(.*\)"$/\1/p' "$1/Cargo.toml" | head -1; }
echo "keyqueue $version, keyqueue-fleet $(of fleet), keyqueue-kube $(of kube)"

# The two lines of the owner: `repository` in Cargo.toml, the contact in SECURITY.md.
bash ci/links.sh --release | grep -E '^not filled in|: ' || true
bash ci/links.sh --release >/dev/null || missing "what ci/links.sh --release says"
for package in fleet kube; do
    [ "$(grep '^repository' Cargo.toml)" = "$(grep '^repository' "$package/Cargo.toml")" ] || missing "the same \`repository\` in $package/Cargo.toml"
    grep -qE "^keyqueue = \{ path = \"\.\.\", version = \"${version%.*}\"[, ]" "$package/Cargo.toml" || missing "$package/Cargo.toml asks for keyqueue ${version%.*}"
done

grep -qE "^## ${version//./\\.}, [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md || missing "a heading \`## $version, <day>\` in CHANGELOG.md"
! grep -q 'not published yet' README.md || missing "README.md still says that the crate is not published"
[ -z "${1:-}" ] || [ "$1" = "v$version" ] || missing "the tag is $1, the version $version"
[ -z "$(git status --porcelain)" ] || missing "a clean work tree"
[ "$failed" = 0 ] && echo "nothing is missing"
exit "$failed"
