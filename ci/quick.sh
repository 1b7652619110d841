#!/usr/bin/env bash
# The first answer about a change, in six minutes on two cores: format, links, numbers, unsafe code, lints of the crate, its tests, the reference, the main models.
exec bash "$(dirname "${BASH_SOURCE[0]}")/steps.sh" fmt links calls guarantees unsafe "clippy --core" "test --quick" "reference --quick" "loom --main"
