#!/bin/sh
# schedule.sh SECONDS JOB.toml [OPTION...]
#
# Makes a pass over the times of a job now, and again so many seconds after each end; brings the page over all
# runs of out/ up to date, and, when there is a new run, that of `cagp view`, out/report/maps; and looks
# whether the error bars hold. The exit code of the last pass or page, or 4 for error bars that do not hold, is in
# last-exit-code in the folder for temporary files.
# SIGTERM is passed on to the pass, which keeps what it has done.
set -u
every=$1
shift
last=${TMPDIR:-/tmp}/last-exit-code
echo 0 > "$last"
child=
shown=
trap 'kill -TERM "$child" 2> /dev/null; wait "$child"; exit 143' TERM INT
while :; do
    cagp daily "$@" &
    child=$!
    wait "$child"
    code=$?
    if [ "$code" -eq 0 ]; then
        cagp report out && cagp index out
        current=$(cat out/CURRENT; readlink out/series.zarr)
        if [ "$current" != "$shown" ]; then
            cagp view out --export out/report/maps
            page=$?
            case $page in
            0 | 2) shown=$current ;; # 2: of places in a plane there is no such page
            *) code=$page ;;
            esac
        fi
        cagp drift out || code=$?
    fi
    echo "$code" > "$last"
    echo "cagp daily ended with exit code $code; the next one begins in $every s" >&2
    sleep "$every" &
    child=$!
    wait "$child"
done
