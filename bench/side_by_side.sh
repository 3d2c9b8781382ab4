# Sourced by scripts whose runs of tiny policies go side by side, one a core, with --set threads=1: the weights are those of a run on all
# cores, bit for bit, and two such runs take 0.6 of the time of one after the other. For Python there is bench/harness/side_by_side.py.
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
# Counted here, because a run that was stopped for a while is none of `jobs -r`.
begun=0
failed=0
# beside COMMAND...: begins a command, a function say, as soon as there is a core for it. Where one fails the others go on.
beside() {
  if [ "$begun" -lt "$(nproc)" ]; then
    begun=$((begun + 1))
  else
    wait -n || failed=1
  fi
  "$@" &
}
# Waits for all of them; fails where one has.
together() {
  for (( ; begun > 0; begun--)); do wait -n || failed=1; done
  [ "$failed" = 0 ]
}
# logged FILE PROGRAM...: what such a command runs. The file has what the program says, and its end is shown where that fails.
logged() {
  "${@:2}" >>"$1" 2>&1 &
  # Who ends this shell ends the program too: a shell that waits for one in the foreground would leave it running.
  trap "kill $!" TERM
  wait "$!" || { tail "$1" >&2; return 1; }
}
