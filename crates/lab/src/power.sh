#!/bin/sh
# Keeps one host on: starts its first program in namespaces of its own, and again after a reboot.
# power.sh HOST-FOLDER NETWORK-NAMESPACE CONTROL-GROUP FIRST-PROGRAM CAPABILITIES
set -u
folder=$1
while :; do
    nsenter --net="$2" \
        unshare --mount --uts --ipc --pid --fork --kill-child --propagation private \
        /bin/sh "$folder/init.sh" "$folder" "$3" "$4" "$5"
    ended=$?
    rm -f "$folder/pid"
    # A reboot(2) inside ends the first process of its PID namespace with SIGHUP, a power-off with
    # SIGINT.
    echo "ended with $ended"
    [ "$ended" = 129 ] || exit 0
done
