#!/usr/bin/env bash
# What finds little for its time: once a week, and before a release. The steps of .ci/run are not repeated.
exec bash "$(dirname "${BASH_SOURCE[0]}")/steps.sh" fleet-etcd "sanitizers --thread" "fuzz --long" "loom --deep" soak cross miri
