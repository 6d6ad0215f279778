# Installs one PostgreSQL into a copy of a suite's minimal system and trims it.
# Runs in a mount namespace of its own: what it mounts is gone when it ends,
# however it ends.
#   $1 minimal system  $2 new root  $3 major  $4 extra line for apt, or empty
set -eu
base=$1 root=$2 major=$3 extra=$4
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

cp -a --reflink=auto "$base" "$root"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
mount -t proc proc "$root/proc"

# The user first, or the package takes the next free id; no cluster and no
# service of the package's own.
chroot "$root" groupadd --system --gid 999 postgres
chroot "$root" useradd --system --uid 999 --gid 999 --home-dir /var/lib/postgresql --shell /bin/bash postgres
mkdir -p "$root/etc/postgresql-common"
echo 'create_main_cluster = false' > "$root/etc/postgresql-common/createcluster.conf"
printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"

apt-config dump Acquire | grep -iE '::(http|https)::proxy' > "$root/etc/apt/apt.conf.d/90machine" || true
# The suite's own lists came with the minimal system, and are as fresh: asking
# again would only fail on a mirror that lags behind.
if [ -n "$extra" ]; then
	echo "$extra" > "$root/etc/apt/sources.list.d/extra.list"
	chroot "$root" apt-get -qq update
fi
chroot "$root" apt-get -qq --yes --no-install-recommends install "postgresql-$major" tzdata >/dev/null
umount "$root/proc"

# What nothing in a container reads. Without the JIT's library PostgreSQL runs
# without JIT; without perl its wrappers cannot run, and the programs
# themselves are on the PATH.
cd "$root"
rm -rf usr/share/doc usr/share/man usr/share/info usr/share/lintian usr/share/i18n usr/share/locale usr/share/bug \
	usr/share/perl usr/share/perl5 usr/lib/*/perl usr/lib/*/perl5 usr/lib/llvm* usr/lib/*/libLLVM* usr/lib/*/libz3.so* \
	usr/lib/postgresql/*/lib/llvmjit* usr/lib/postgresql/*/lib/bitcode usr/share/postgresql/*/man usr/share/postgresql-common \
	usr/share/zoneinfo/right usr/share/zoneinfo/posix \
	var/lib/apt/lists/* var/cache/* var/log/* var/lib/dpkg/info tmp/* run/* etc/apt/apt.conf.d/90machine usr/sbin/policy-rc.d
for link in usr/bin/*; do
	case $(readlink "$link" || true) in
	*pg_wrapper) rm "$link" ;;
	esac
done
: > etc/resolv.conf
install -d -o 999 -g 999 -m 3777 var/lib/postgresql run/postgresql
install -d -m 755 docker-entrypoint-initdb.d
