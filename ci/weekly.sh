#!/usr/bin/env bash
# What finds little for its time: once a week, and before a release. The steps of .ci/run are not repeated. ci/miri.sh runs beside it: it
# takes hours, and needs a nightly toolchain.
exec bash "$(dirname "${BASH_SOURCE[0]}")/steps.sh" "fleet --wide" fleet-etcd "examples --alone" "sanitizers --thread" "fuzz --long" "loom --deep" "reference --long" "lock-free --loom" planted "planted --machine" "test --bare" "test --ignored" traces soak cross deny foreign careful
