#!/bin/sh
# schedule.sh SECONDS JOB.toml [OPTION...]
#
# Does a job now, and again so many seconds after each end, and brings the page over all runs of out/ up to
# date. The exit code of the last run is in last-exit-code in the folder for temporary files.
# SIGTERM is passed on to the run, which keeps what it has done.
set -u
every=$1
shift
last=${TMPDIR:-/tmp}/last-exit-code
echo 0 > "$last"
child=
trap 'kill -TERM "$child" 2> /dev/null; wait "$child"; exit 143' TERM INT
while :; do
    cagp run "$@" &
    child=$!
    wait "$child"
    code=$?
    echo "$code" > "$last"
    if [ "$code" -eq 0 ]; then
        cagp index out
    fi
    echo "cagp run ended with exit code $code; the next one begins in $every s" >&2
    sleep "$every" &
    child=$!
    wait "$child"
done
