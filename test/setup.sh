#!/bin/sh
# Installs what a fresh Debian machine with Go and make lacks for the named
# needs, or says in one line what to install:
#
#	test/setup.sh cc git postgresql
#
# cc is a C compiler, for the race detector. PostgreSQL is only the server's
# programs: no server is started, tests start their own.
set -eu

has() {
	case $1 in
	cc) command -v gcc || command -v cc || command -v clang ;;
	git) command -v git ;;
	postgresql) [ -n "${TEST_DATABASE_URL:-}" ] || command -v initdb || ls /usr/lib/postgresql/*/bin/initdb ;;
	*) echo "setup.sh: unknown need: $1" >&2 && exit 2 ;;
	esac >/dev/null 2>&1
}

missing=
for need; do
	has "$need" || missing="$missing $need"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "missing:$missing. Install (Debian: apt-get install gcc libc6-dev git postgresql) and try again." >&2
	exit 1
fi

install() {
	apt-get install -y -q --no-install-recommends "$@" </dev/null >&2
}

echo "installing:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -q </dev/null >&2
for need in $missing; do
	case $need in
	cc) install gcc libc6-dev ;;
	git) install git ;;
	postgresql)
		# The package makes a cluster and starts it on port 5432, unless it is told
		# not to before it is there.
		install postgresql-common
		sed -i 's/^#\{0,1\} *create_main_cluster *=.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
		install postgresql
		;;
	esac
	has "$need" || { echo "installed, but still missing: $need" >&2 && exit 1; }
done
