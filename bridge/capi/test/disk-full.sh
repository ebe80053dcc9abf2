# usage: disk-full.sh CAPI-FAILURES FOLDER: the program's test disk-full on a small tmpfs that only it sees; 77 where that is not allowed.
for own in -m -rm none; do # root needs no user namespace, which a container or chroot may refuse
  [ $own = none ] || ! unshare $own true 2>/dev/null || break
done
if [ $own = none ]; then
  echo "SKIPPED: no mount namespace may be made here (a container refuses that); a full disk was NOT tested"
  exit 77
fi
exec unshare $own sh -c '
  mount -t tmpfs -o size=16k full "$2" || { echo "SKIPPED: no tmpfs may be mounted here; a full disk was NOT tested"; exit 77; }
  exec "$1" disk-full "$2"' sh "$1" "$2"
