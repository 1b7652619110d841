#!/usr/bin/env bash
# The public face of the crate is what ci/face.txt says: each public item, method, variant, field and trait, the auto traits (`Send` …)
# included. So a change of it is a change of that file, which a reviewer sees.
#
#   ci/face.sh              compares
#   ci/face.sh --accept     writes the file anew
#
# The text is what rustdoc prints on its pages, all features on. Another rustdoc may print the same item in another way: the file
# names the version that it was made with, and a difference says so. After the first release, `cargo semver-checks` is what decides
# whether a change breaks users; RELEASING.md names it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v perl >/dev/null || { echo "skipped: perl is not installed, which takes the text out of rustdoc's pages"; exit 0; }
accepted=ci/face.txt
docs="${CARGO_TARGET_DIR:-target}/face"
rm -rf "$docs/doc"
cargo doc --quiet --locked --no-deps --all-features -p keyqueue --target-dir "$docs"

face() {
    echo "# The public face of keyqueue, all features on. Made by \`ci/face.sh --accept\` with $(rustdoc --version | cut -d' ' -f1,2)."
    (cd "$docs/doc/keyqueue" && find . -name '*.html' ! -name all.html | LC_ALL=C sort) | while read -r page; do
        perl -0777 -ne '
            sub text {
                my ($text) = @_;
                $text =~ s{<summary.*?</summary>}{}gs;          # "Show 15 variants"
                $text =~ s{<br ?/?>|</?div[^>]*>}{ }g;
                $text =~ s{<[^>]*>}{}g;
                $text =~ s{&lt;}{<}g; $text =~ s{&gt;}{>}g; $text =~ s{&quot;}{"}g; $text =~ s{&#(?:39|x27);}{\x27}g;
                $text =~ s{&nbsp;|\xc2\xa0}{ }g; $text =~ s{ \xe2\x93\x98}{}g; $text =~ s{&amp;}{&}g;
                return $text;
            }
            s{<div id="blanket-implementations-list">.*}{}s;     # what std implements for all types
            s{<div id="implementors-list">.*}{}s;                # they are on the pages of the types
            my @lines;
            while (m{<pre class="rust item-decl"><code>(.*?)</code></pre>|<h3 class="code-header">(.*?)</h3>|<h4 class="code-header">(.*?)</h4>|<dt id="reexport[^>]*>(.*?)</dt>}gs) {
                if (defined $1) { push @lines, map { s/^ (?=\S)|\s+$//gr } split /\n/, text($1 =~ s{</div>}{\n}gr); next }
                my ($what, $indent) = defined $2 ? ($2, "") : defined $3 ? ($3, "    ") : ($4, "");
                $what = text($what);
                $what =~ s/\s+/ /g; $what =~ s/^ | $//g;
                next if $what =~ /^(const |async |unsafe )*fn /; # of an implemented trait: the trait says it
                next if defined $2 && $what !~ /^(unsafe )?impl\b/; # variants: the item says them
                next if $what =~ /^impl\b.* (Freeze|UnsafeUnpin|StructuralPartialEq) for /; # not stable
                push @lines, $indent . $what;
            }
            my @blocks; # an `impl` with its items, in the order of their text: versions of rustdoc have orders of their own
            for (grep { /\S/ } @lines) { if (@blocks && /^\s/) { $blocks[-1] .= "\n$_" } else { push @blocks, $_ } }
            my @impls = sort grep { /^(unsafe )?impl\b/ } @blocks;
            @blocks = ((grep { !/^(unsafe )?impl\b/ } @blocks), @impls);
            print "\n## $ARGV\n", map { "$_\n" } @blocks if @blocks;
        ' "$docs/doc/keyqueue/$page" | sed "s|^## .*|## ${page#./}|"
    done
}
made="$docs/face.txt"
face >"$made"
items="$(grep -c '^## ' "$made" || true)"
echo "$items pages, $(grep -c '^    pub ' "$made" || true) methods, $(wc -l <"$made") lines"
[ "$items" -gt 20 ] || { echo "too few: rustdoc's pages look different"; exit 1; }
if [ "${1:-}" = --accept ]; then
    cp "$made" "$accepted"
    exit
fi
if ! diff -u <(tail -n +2 "$accepted") <(tail -n +2 "$made"); then
    echo "the public face has changed (-: as accepted, +: as it is). If that is meant: ci/face.sh --accept, and a line in CHANGELOG.md."
    [ "$(head -1 "$accepted")" = "$(head -1 "$made")" ] || echo "or another rustdoc prints it differently: $(rustdoc --version); $(head -1 "$accepted")"
    exit 1
fi
