# Installs MySQL into a copy of a suite's minimal system and lays it out as the
# official image is. Runs in a mount namespace of its own: what it mounts is
# gone when it ends, however it ends.
#   $1 minimal system  $2 new root
set -eu
base=$1 root=$2
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

mv "$base" "$root"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
mount -t proc proc "$root/proc"

# The user first, or a package takes its id. The two core packages start no
# service and make no data directory.
chroot "$root" groupadd --system --gid 999 mysql
chroot "$root" useradd --system --uid 999 --gid 999 --home-dir /var/lib/mysql --no-create-home --shell /bin/false mysql

apt-config dump Acquire | grep -iE '::(http|https)::proxy' > "$root/etc/apt/apt.conf.d/90machine" || true
chroot "$root" apt-get -qq --yes --no-install-recommends install mysql-server-core mysql-client-core tzdata >/dev/null
umount "$root/proc"

# Only what the official image has: no mysqlbinlog and no innochecksum, among
# others. The paths of the server's own files are compiled into Debian's.
cd "$root"
for program in usr/bin/my* usr/bin/inno* usr/bin/ibd2sdi usr/bin/lz4_decompress usr/bin/zlib_decompress usr/bin/perror usr/bin/resolveip usr/bin/replace; do
	case ${program##*/} in
	mysql | mysqladmin | mysqldump | my_print_defaults | mysql_tzinfo_to_sql) ;;
	*) rm -f "$program" ;;
	esac
done
rm -rf usr/share/doc usr/share/man usr/share/info usr/share/lintian usr/share/i18n usr/share/locale usr/share/bug \
	usr/share/perl usr/share/perl5 usr/lib/*/perl usr/lib/*/perl5 usr/share/zoneinfo/right usr/share/zoneinfo/posix \
	usr/lib/mysql/plugin/*test* usr/lib/mysql/plugin/qa_* usr/lib/mysql/plugin/mock_* usr/share/mysql-test usr/lib/mysql-test \
	var/lib/apt/lists/* var/cache/* var/log/* var/lib/dpkg/info tmp/* run/* etc/apt/apt.conf.d/90machine etc/mysql
: > etc/resolv.conf
install -d -o 999 -g 999 -m 1777 var/lib/mysql run/mysqld
install -d -o 999 -g 999 -m 750 var/lib/mysql-files
install -d -m 755 docker-entrypoint-initdb.d
