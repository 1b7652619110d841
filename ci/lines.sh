#!/usr/bin/env bash
# Lines of code of the Rust files, by folder. A line counts if it has more than white space and comments. The files are those that git
# tracks, as they are now, and new ones that git does not ignore. In src/ tests are counted apart: modules under `cfg(test)`, and files
# that such a line names (`mod stopped;`), that are called tests.rs or lie in a folder tests. `ci/lines.sh <folder> ...` counts the files of
# these folders one by one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folders=("$@")
[ $# -gt 0 ] || folders=(src tests benches fuzz loom-tests examples fleet kube)
git ls-files --cached --others --exclude-standard -- "${folders[@]/%//*.rs}" | sort -u | while read -r file; do [ ! -f "$file" ] || echo "$file"; done |
    LC_ALL=C xargs awk -v each="$#" '
        # Whether the line has code. `hashes`: how many of them end the raw string that the line is in; -1 in another string. `depth`: of
        # block comments.
        function has_code(line,    at, end, one, two, code) {
            if (!string && !depth && line !~ /"|\/\*/)
                return line !~ /^[ \t]*(\/\/|$)/
            for (at = 1; at <= length(line); at++) {
                one = substr(line, at, 1)
                two = substr(line, at, 2)
                if (string) {
                    if (one != " " && one != "\t") code = 1
                    if (hashes < 0 && one == "\\") at++
                    else if (one == "\"" && (hashes <= 0 || substr(line, at + 1, hashes) == substr(pounds, 1, hashes))) {
                        string = 0
                        if (hashes > 0) at += hashes
                    }
                } else if (depth) {
                    if (two == "*/") { depth--; at++ }
                    else if (two == "/*") { depth++; at++ }
                } else if (two == "//") {
                    break
                } else if (two == "/*") {
                    depth++
                    at++
                } else if (one == "\"") {
                    string = code = 1
                    hashes = -1
                    # r"…", br##"…"##: the pounds before the quote, and an `r` before them that ends no longer name.
                    end = at - 1
                    while (end > 0 && substr(line, end, 1) == "#") end--
                    if (substr(line, 1, end) ~ /(^|[^A-Za-z0-9_])[bc]?r$/) hashes = at - 1 - end
                } else if (one == "\047" && match(substr(line, at), /^\047(\\[^\047]*\047?\047|[^\047\\]\047)/)) {
                    # A letter such as a quote. A lifetime has no second apostrophe.
                    code = 1
                    at += RLENGTH - 1
                } else if (one != " " && one != "\t") {
                    code = 1
                }
            }
            return code
        }
        BEGIN { pounds = "################" }
        FNR == 1 {
            string = depth = inside = pending = 0
            names[++files] = FILENAME
            if (FILENAME ~ /(^|\/)tests(\.rs$|\/)/) is_test[FILENAME] = 1
        }
        {
            fresh = !string && !depth
            if (!has_code($0)) next
            indent = match($0, /[^ \t]/) - 1
            if (fresh && !inside && $0 ~ /^[ \t]*#\[cfg\((all\()?test[,)]/) {
                pending = 1
                waiting = 0
            }
            if (pending && $0 !~ /^[ \t]*#\[/) {
                if ($0 ~ /^[ \t]*(pub(\([a-z]*\))? )?mod [A-Za-z0-9_]+ \{/) { inside = 1; margin = indent; tests[FILENAME] += waiting }
                else {
                    count[FILENAME] += waiting
                    if (match($0, /mod [A-Za-z0-9_]+;/)) {
                        module = FILENAME
                        if (module !~ /\/(mod|lib|main)\.rs$/) sub(/\.rs$/, "/", module); else sub(/[^\/]*$/, "", module)
                        is_test[module substr($0, RSTART + 4, RLENGTH - 5) ".rs"] = 1
                    }
                }
                pending = 0
            }
            if (pending) waiting++
            else if (inside) {
                tests[FILENAME]++
                if (fresh && indent == margin && $0 ~ /^[ \t]*\}/ && !string) inside = 0
            } else count[FILENAME]++
        }
        END {
            for (i = 1; i <= files; i++) {
                name = names[i]
                if (name in is_test) { tests[name] += count[name]; count[name] = 0 }
                # Outside of src/ all is one.
                if (name !~ /^src\//) { count[name] += tests[name]; tests[name] = 0 }
                place = name
                top = name
                sub(/\/.*/, "", top)
                if (!each) {
                    sub(/\/[^\/]*$/, "", place)
                    if (top == "src") { if (split(place, parts, "/") > 2) place = parts[1] "/" parts[2] }
                    else if (place !~ /^tests(\/|$)/) place = top
                }
                if (!(place in lines)) order[++places] = place
                lines[place] += count[name]
                unit[place] += tests[name]
                if (!(top in sum)) tops[++all] = top
                sum[top] += count[name]
                units[top] += tests[name]
            }
            printf "%-36s %7s %7s\n", "", "code", "tests"
            for (i = 1; i <= places; i++) printf "%-36s %7d %7s\n", order[i], lines[order[i]], unit[order[i]] ? unit[order[i]] : ""
            print ""
            for (i = 1; i <= all; i++) printf "%-36s %7d %7s\n", tops[i] " in all", sum[tops[i]], units[tops[i]] ? units[tops[i]] : ""
        }'
