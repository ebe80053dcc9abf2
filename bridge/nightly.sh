#!/usr/bin/env bash
# README.md's two commands on a bare Debian 12 that has what README.md asks for and nothing else: as root, and as a user in a folder with
# a blank and a letter beyond ASCII. What a development machine hides (another Python, caches, CI) fails here.
#
# usage: bridge/nightly.sh [root|user|test]...     default: all three
#   root, user: the first command as root and as a user. test: the second, as root. What is committed is tested, in a clone.
#   $MORPHSEEK_NIGHTLY (/var/tmp/morphseek-nightly) keeps the bare system between runs; 12 GB while it runs.
#
# Needs root, debootstrap, git and Go; exit code 77, in words, where it may not. The registries are reached as this machine reaches them.
set -euo pipefail
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
place=${MORPHSEEK_NIGHTLY:-/var/tmp/morphseek-nightly} base=${MORPHSEEK_NIGHTLY:-/var/tmp/morphseek-nightly}/base
skip() { echo "SKIPPED: $1; a bare system was NOT tried"; exit 77; }
[ "$(id -u)" = 0 ] || skip "only root may make a bare system"
for tool in debootstrap git go unshare; do command -v $tool >/dev/null || skip "there is no $tool here"; done
if [ -z "${MORPHSEEK_NIGHTLY_INSIDE:-}" ]; then # mounts in a namespace of their own are gone with it
  unshare --mount --propagation private true 2>/dev/null || skip "no mount namespace may be made here"
  MORPHSEEK_NIGHTLY_INSIDE=1 exec unshare --mount --propagation private "${BASH_SOURCE[0]}" "$@"
fi

authorities=/etc/ssl/certs/ca-certificates.crt
go_root=$(go env GOROOT) go_proxy=$(go env GOPROXY) go_sums=$(go env GOSUMDB)

# The bare system, once, with the packages of README.md's own line.
if [ ! -e "$base/.done" ]; then
  packages=$(sed -n 's/^apt-get install \([^#]*\).*/\1/p' "$here/README.md" | head -n 1)
  [ -n "$packages" ] || { echo "README.md has no line that begins with apt-get install"; exit 1; }
  rm -rf "$base"; mkdir -p "$base"
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -v security | head -n 1 || true)
  debootstrap --variant=minbase bookworm "$base" ${mirror:+"$mirror"} >"$place/debootstrap.log" || { tail "$place/debootstrap.log"; exit 1; }
  rm -rf "$base/etc/apt/sources.list"*
  for file in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/auth.conf.d /etc/apt/keyrings /etc/pip.conf; do
    [ ! -e $file ] || cp -rLT $file "$base$file"
  done
  mkdir -p "$base/etc/ssl/certs"
  cp -L $authorities "$base$authorities"
  cp -L /etc/resolv.conf /etc/hosts "$base/etc/"
  chroot "$base" sh -c "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages" \
    >"$place/apt.log" 2>&1 || { tail "$place/apt.log"; exit 1; }
  cp -L $authorities "$base$authorities" # this machine's own authority among them
  chroot "$base" useradd -m tess
  touch "$base/.done"
fi

rm -rf "$place/source"
git -c safe.directory='*' clone -q --bare "$here" "$place/source" # a worktree is no repository without its other half

# try NAME USER FOLDER COMMAND...: clones into FOLDER of a fresh copy of the bare system and runs the command there.
try() {
  local name=$1 user=$2 folder=$3 home=/root root=$place/root left
  shift 3
  [ "$user" = root ] || home=/home/$user
  echo "=== $name: $* (as $user, in $home/$folder)"
  umount -R "$root" 2>/dev/null || true
  rm -rf "$place/upper" "$place/work"; mkdir -p "$place/upper" "$place/work" "$root"
  mount -t overlay overlay -o "lowerdir=$base,upperdir=$place/upper,workdir=$place/work" "$root" 2>/dev/null || skip "no overlay may be mounted here"
  mkdir -p "$root"/{proc,dev,src,usr/local/go}
  mount -t proc proc "$root/proc"
  mount -t tmpfs -o mode=755 dev "$root/dev"
  for device in null zero full random urandom tty; do touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
  ln -s /proc/self/fd "$root/dev/fd"; mkdir -m 1777 "$root/dev/shm"
  mount --bind "$place/source" "$root/src"; mount --bind "$go_root" "$root/usr/local/go"
  local keep=() variable
  for variable in PIP_INDEX_URL PIP_DEFAULT_TIMEOUT http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [ -z "${!variable:-}" ] || keep+=("$variable=${!variable}")
  done
  for variable in SSL_CERT_FILE PIP_CERT REQUESTS_CA_BUNDLE GIT_SSL_CAINFO; do keep+=("$variable=$authorities"); done
  env -i PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=$home USER="$user" LANG=C.UTF-8 TERM=dumb \
    GOPROXY="$go_proxy" GOSUMDB="$go_sums" "${keep[@]}" chroot --userspec="$user:$user" "$root" bash -c '
      git config --global --add safe.directory "*"
      cd && git clone -q /src "$1" && cd "$1" && shift && time "$@"' _ "$folder" "$@" || { echo "FAILED: $name"; return 1; }
  # Beside the clone's build folder: Go's and pip's caches, and nothing else.
  left=$({ cd "$root$home"
    find . -mindepth 1 -newer "$base/.done" \( -path "./$folder" -o -path ./go -o -path ./.cache/go-build -o -path ./.cache/pip -o -path ./.config/go \) -prune \
      -o -type f -newer "$base/.done" -not -name .gitconfig -print
    git -c safe.directory='*' -C "$folder" status --porcelain --ignored | grep -vx '!! build/' || true
    find "$root/tmp" -mindepth 1 -maxdepth 1; })
  [ -z "$left" ] || { echo "FAILED: $name left:"; echo "$left"; return 1; }
  du -sm "$root$home/$folder/build" | sed "s/\s.*/ MB in build: $name/"
}

failed=0
for what in "${@:-root user test}"; do
  for one in $what; do
    case $one in
      root) try "the first command" root morphseek cmake --workflow --preset demo || failed=1 ;;
      user) try "the first command as a user" tess 'Grüße Ordner' cmake --workflow --preset demo || failed=1 ;;
      test) try "the second command" root morphseek bash -c "cmake --workflow --preset test && cmake --workflow --preset thorough" || failed=1 ;;
      *) echo "unknown: $one"; exit 2 ;;
    esac
  done
done
umount -R "$place/root" 2>/dev/null || true
exit $failed
