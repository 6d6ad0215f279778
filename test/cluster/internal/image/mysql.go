package image

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/holdfast-db/holdfast/test/cluster/internal/artifact"
)

//go:embed mysql.sh
var mysqlScript string

// mysqlRepository is where the operator looks for MySQL's images.
const mysqlRepository = "docker.io/library/mysql"

// mysqlSuite is the release of Debian that has MySQL: no stable one has.
const mysqlSuite = "sid"

// mysqlRecipe changes when the way of building changes and the scripts do not.
const mysqlRecipe = "1"

// mysqlRecord is what a built folder says of itself.
type mysqlRecord struct {
	Version string `json:"version"` // 9.7.4
	Package string `json:"package"` // 9.7.4-1
}

// BuildMySQL builds the image of the MySQL that Debian has, or takes the one it
// built before. There is one line at a time: others cannot be built. With
// refresh the suite is asked again.
func BuildMySQL(ctx context.Context, lines []string, refresh bool, _ io.Writer) ([]Image, error) {
	folder, record, err := buildMySQL(ctx, refresh)
	if err != nil {
		return nil, err
	}
	line := lineOf(record.Version)
	if len(lines) > 0 && !slices.Contains(lines, line) {
		return nil, fmt.Errorf("Debian %s has MySQL %s, and none of %s", mysqlSuite, record.Version, strings.Join(lines, ", "))
	}
	return []Image{{
		Engine: "mysql", Line: line, Version: record.Version,
		Source:  mysqlSuite + ", " + record.Package,
		Archive: filepath.Join(folder, mysqlArchive),
		Refs:    []string{mysqlRepository + ":" + record.Version, mysqlRepository + ":" + line},
	}}, nil
}

// MySQLPrograms returns the folder of mysqld and its clients, for tests that
// need no Kubernetes, of a version such as 9.7.4 or a line such as 9.7.
func MySQLPrograms(ctx context.Context, version string) (string, error) {
	folder, record, err := buildMySQL(ctx, false)
	if err != nil {
		return "", err
	}
	if version != record.Version && version != lineOf(record.Version) {
		return "", fmt.Errorf("MySQL %s was built from Debian %s, and %s cannot be; "+
			"`cluster images mysql --build-only --refresh` asks for a newer one", record.Version, mysqlSuite, version)
	}
	return filepath.Join(folder, "bin"), nil
}

func lineOf(version string) string { return version[:strings.LastIndex(version, ".")] }

// Names in the built folder: the image, the file tree that it was packed from,
// and beside them bin.
const (
	mysqlArchive = "mysql.tar"
	mysqlRoot    = "root"
)

func buildMySQL(ctx context.Context, refresh bool) (folder string, record mysqlRecord, err error) {
	key, err := artifact.ComputeKey(nil, mysqlScript, mysqlWrapper, mysqlSuite, mysqlRecipe)
	if err != nil {
		return "", record, err
	}
	if refresh {
		if err := artifact.RemoveFolder("mysql", key); err != nil {
			return "", record, err
		}
	}
	folder, err = artifact.MakeFolder("mysql", key, func(folder string) error {
		what := "building MySQL from Debian " + mysqlSuite + ", a minute or two, once"
		return artifact.RunTimed(what, func() error { return fillMySQL(ctx, folder) })
	})
	if err != nil {
		return "", record, err
	}
	return folder, record, readRecord(folder, &record)
}

func fillMySQL(ctx context.Context, folder string) error {
	base, root := filepath.Join(folder, "base"), filepath.Join(folder, mysqlRoot)
	mirrors, err := machineMirrors(ctx)
	if err != nil {
		return err
	}
	if err := runDebootstrap(ctx, mysqlSuite, base, mirrors.main); err != nil {
		return err
	}
	err = runQuietly(exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private",
		"sh", "-c", mysqlScript, "mysql.sh", base, root))
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"),
		"--show", "--showformat=${Version}", "mysql-server-core").Output()
	if err != nil {
		return fmt.Errorf("read the installed version: %w", err)
	}
	record := mysqlRecord{Package: string(out)}
	if record.Version, err = mysqlVersion(record.Package); err != nil {
		return err
	}
	if err := packRoot(ctx, root, mysqlRepository+":"+record.Version, mysqlConfig(record), filepath.Join(folder, mysqlArchive)); err != nil {
		return err
	}
	if err := writeMySQLPrograms(ctx, folder, record.Version); err != nil {
		return err
	}
	return writeRecord(folder, record)
}

// mysqlConfig has the official image's settings that others rely on.
func mysqlConfig(record mysqlRecord) v1.Config {
	return v1.Config{
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"MYSQL_MAJOR=" + lineOf(record.Version),
			"MYSQL_VERSION=" + record.Package,
		},
		Cmd:        []string{"mysqld"},
		Volumes:    map[string]struct{}{"/var/lib/mysql": {}},
		WorkingDir: "/",
	}
}

var mysqlPattern = regexp.MustCompile(`^(?:\d+:)?(\d+\.\d+\.\d+)(?:[-+].*)?$`)

// mysqlVersion takes "9.7.4" from a package version such as "9.7.4-1".
func mysqlVersion(packageVersion string) (string, error) {
	match := mysqlPattern.FindStringSubmatch(strings.TrimSpace(packageVersion))
	if match == nil {
		return "", fmt.Errorf("%q is no released version of MySQL", packageVersion)
	}
	return match[1], nil
}

// mysqlWrapper runs a program of the unpacked image on a machine of another
// release: with the image's own loader, libraries and files. A server of root's
// says that it may be one.
const mysqlWrapper = `#!/bin/sh
here=$(dirname "$(readlink -f "$0")")/../` + mysqlRoot + `
program=$(basename "$0")
set -- "$@" "--character-sets-dir=$here/usr/share/mysql/charsets"
if [ "$program" = mysqld ]; then
	set -- "$@" "--basedir=$here/usr" "--plugin-dir=$here/usr/lib/mysql/plugin" "--lc-messages-dir=$here/usr/share/mysql"
	[ "$(id -u)" != 0 ] || set -- "$@" --user=root
fi
path=$here/usr/bin/$program
[ -e "$path" ] || path=$here/usr/sbin/$program
for loader in "$here"/lib*/ld-linux-*.so.*; do
	exec "$loader" --argv0 "$program" --library-path "$(echo "$here"/usr/lib/*-linux-gnu*):$here/usr/lib/mysql/private" "$path" "$@"
done
echo "$program: no loader in $here" >&2
exit 127
`

// writeMySQLPrograms makes bin and tries it.
func writeMySQLPrograms(ctx context.Context, folder, version string) error {
	bin := filepath.Join(folder, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	for _, program := range []string{"mysqld", "mysql", "mysqladmin", "mysqldump"} {
		if err := os.WriteFile(filepath.Join(bin, program), []byte(mysqlWrapper), 0o755); err != nil {
			return err
		}
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "mysqld"), "--no-defaults", "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("ask mysqld for its version: %w: %s", err, out)
	}
	if !strings.Contains(string(out), "Ver "+version) {
		return fmt.Errorf("MySQL %s was installed and says %q", version, out)
	}
	return nil
}
