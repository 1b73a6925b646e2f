#!/bin/sh
# Installs Macrame on this Mac from the folder that this script is in. Needs no compiler and no Python.
#
#   sudo ./install.sh [OPTION...]      the agent becomes a service; OPTIONs are those of `clusterctl service install`:
#                                      --secret FILE, --state FOLDER, --new-state, ...
#   ./install.sh --check               says whether this Mac can run it, and changes nothing but the marks below
set -eu
here=$(cd "$(dirname "$0")" && pwd)
needed=@MACOS@
die() { printf 'install: %s\n' "$*" >&2; exit 1; }

[ "$(uname -s)" = Darwin ] || die "this is not macOS; for Debian there is a package (deploy/package deb)"
[ "$(uname -m)" = arm64 ] || die "this Mac has no Apple silicon, which MLX needs"
have=$(sw_vers -productVersion)
older=$(printf '%s\n%s\n' "$have" "$needed" | sort -t. -k1,1n -k2,2n | head -n 1)
if [ "$older" != "$needed" ]; then
  die "this Mac has macOS $have, and ranks need $needed: update it, or build Macrame from source, as its README says"
fi
(cd "$here" && shasum -a 256 --status -c SHA256SUMS) || {
  (cd "$here" && shasum -a 256 -c SHA256SUMS 2>/dev/null | grep -v ': OK$' | head -n 5 >&2) || true
  die "files are damaged or missing: fetch the archive again"
}
# Browsers mark what they fetch; macOS refuses to run programs that are marked and not notarised.
if command -v xattr >/dev/null; then xattr -dr com.apple.quarantine "$here" 2>/dev/null || true; fi
if [ "${1:-}" = --check ]; then
  "$here/bin/clusterctl" help >/dev/null || die "its programs do not run here"
  echo "install: this Mac can run it"
  exit 0
fi
[ "$(id -u)" -eq 0 ] || die "the agent is made a service of the machine, which takes root: sudo $0 $*"
exec "$here/bin/clusterctl" service install "$@"
