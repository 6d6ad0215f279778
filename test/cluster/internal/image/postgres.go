package image

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/holdfast-db/holdfast/test/cluster/internal/artifact"
)

//go:embed postgres.sh
var postgresScript string

// repository is where the operator looks for PostgreSQL's images.
const repository = "docker.io/library/postgres"

// suite is a release of Debian and the PostgreSQL that it has. Where security
// updates come from a place of their own, the two places give two minors.
type suite struct {
	Name        string
	Major       int
	HasSecurity bool
}

var suites = []suite{
	{"bookworm", 15, true},
	{"trixie", 17, true},
	{"sid", 18, false},
}

// postgres is one image of PostgreSQL.
type postgres struct {
	Major   int      `json:"major"`
	Version string   `json:"version"` // 17.11
	Package string   `json:"package"` // 17.11-0+deb13u1
	Suite   string   `json:"suite"`   // trixie-security
	Archive string   `json:"archive"`
	Refs    []string `json:"-"` // the newest minor of a major has the major as a tag, too
}

// BuildPostgres builds the images of every suite that has one of the lines, or
// of all without lines; or takes those it built before. A suite that cannot give its image is said on complaints and left
// out: what Debian offers changes, and most tests need one version only.
// With refresh the suites are asked again.
func BuildPostgres(ctx context.Context, lines []string, refresh bool, complaints io.Writer) ([]Image, error) {
	var all []postgres
	for _, s := range suites {
		if len(lines) > 0 && !slices.Contains(lines, strconv.Itoa(s.Major)) {
			continue
		}
		built, err := buildSuite(ctx, s, refresh, complaints)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			fmt.Fprintf(complaints, "\n!!! NO IMAGE OF POSTGRESQL %d from %s: %v\n\n", s.Major, s.Name, err)
			continue
		}
		all = append(all, built...)
	}
	if len(all) == 0 {
		return nil, errors.New("no suite gave an image of PostgreSQL")
	}
	var images []Image
	for _, p := range withRefs(all) {
		images = append(images, Image{
			Engine: "postgres", Line: strconv.Itoa(p.Major), Version: p.Version,
			Source: p.Suite + ", " + p.Package, Archive: p.Archive, Refs: p.Refs,
		})
	}
	return images, nil
}

func buildSuite(ctx context.Context, s suite, refresh bool, complaints io.Writer) ([]postgres, error) {
	key, err := artifact.ComputeKey(nil, postgresScript, fmt.Sprint(s), recipe)
	if err != nil {
		return nil, err
	}
	name := "postgres-" + s.Name
	if refresh {
		if err := artifact.RemoveFolder(name, key); err != nil {
			return nil, err
		}
	}
	folder, err := artifact.MakeFolder(name, key, func(folder string) error {
		what := fmt.Sprintf("building PostgreSQL %d from Debian %s, a minute or two, once", s.Major, s.Name)
		return artifact.RunTimed(what, func() error {
			built, err := fillSuite(ctx, s, folder, complaints)
			if err != nil {
				return err
			}
			return writeRecord(folder, built)
		})
	})
	if err != nil {
		return nil, err
	}
	var built []postgres
	if err := readRecord(folder, &built); err != nil {
		return nil, err
	}
	for i := range built {
		built[i].Archive = filepath.Join(folder, built[i].Archive)
	}
	return built, nil
}

// fillSuite makes the archives of a suite in the folder.
func fillSuite(ctx context.Context, s suite, folder string, complaints io.Writer) ([]postgres, error) {
	base := filepath.Join(folder, "base")
	defer os.RemoveAll(base)
	mirrors, err := machineMirrors(ctx)
	if err != nil {
		return nil, err
	}
	if err := runDebootstrap(ctx, s.Name, base, mirrors.main); err != nil {
		return nil, err
	}
	lines := map[string]string{s.Name: ""}
	order := []string{s.Name}
	if security := s.Name + "-security"; s.HasSecurity && mirrors.security != "" {
		lines[security] = fmt.Sprintf("deb %s %s main", mirrors.security, security)
		order = append(order, security)
	} else if s.HasSecurity {
		fmt.Fprintf(complaints, "\n!!! ONE MINOR ONLY from %s: this machine's apt knows no security mirror\n\n", s.Name)
	}
	var built []postgres
	for _, source := range order {
		image, err := buildImage(ctx, s, source, lines[source], folder)
		if err != nil {
			return nil, err
		}
		if len(built) > 0 && built[0].Version == image.Version {
			fmt.Fprintf(complaints, "\n!!! ONE MINOR ONLY: %s has the same %s as %s\n\n", source, image.Version, s.Name)
			continue
		}
		built = append(built, image)
	}
	return built, nil
}

// runDebootstrap installs the suite's minimal system. Without a mirror debootstrap
// takes its own default.
func runDebootstrap(ctx context.Context, suite, base, mirror string) error {
	arguments := []string{"--variant=minbase", suite, base}
	if mirror != "" {
		arguments = append(arguments, mirror)
	}
	return runQuietly(exec.CommandContext(ctx, "debootstrap", arguments...))
}

// buildImage makes one image; its version is what was really installed.
func buildImage(ctx context.Context, s suite, source, aptLine, folder string) (postgres, error) {
	root := filepath.Join(folder, "root")
	defer os.RemoveAll(root)
	err := runQuietly(exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private",
		"sh", "-c", postgresScript, "postgres.sh", filepath.Join(folder, "base"), root, strconv.Itoa(s.Major), aptLine))
	if err != nil {
		return postgres{}, err
	}
	out, err := exec.CommandContext(ctx, "dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"),
		"--show", "--showformat=${Version}", fmt.Sprintf("postgresql-%d", s.Major)).Output()
	if err != nil {
		return postgres{}, fmt.Errorf("read the installed version: %w", err)
	}
	version, err := upstreamVersion(string(out), s.Major)
	if err != nil {
		return postgres{}, err
	}
	p := postgres{Major: s.Major, Version: version, Package: string(out), Suite: source, Archive: "postgres-" + version + ".tar"}
	return p, packRoot(ctx, root, repository+":"+version, postgresConfig(p), filepath.Join(folder, p.Archive))
}

// packRoot packs a file tree as an image of one layer.
func packRoot(ctx context.Context, root, ref string, config v1.Config, archive string) error {
	compressed := root + ".tar.gz"
	defer os.Remove(compressed)
	pack := `tar --create --directory "$0" --numeric-owner --sort=name . | gzip -1 > "$1"`
	if err := runQuietly(exec.CommandContext(ctx, "sh", "-c", pack, root, compressed)); err != nil {
		return err
	}
	layer, err := tarball.LayerFromFile(compressed)
	if err != nil {
		return err
	}
	return writeArchive(archive, ref, config, layer)
}

// recipe changes when postgresConfig changes the image without the script
// doing so.
const recipe = "1"

// postgresConfig has the official image's settings that others rely on.
func postgresConfig(p postgres) v1.Config {
	data := "/var/lib/postgresql/data"
	if p.Major >= 18 {
		data = fmt.Sprintf("/var/lib/postgresql/%d/docker", p.Major)
	}
	return v1.Config{
		Env: []string{
			fmt.Sprintf("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/%d/bin", p.Major),
			"LANG=C.UTF-8",
			fmt.Sprintf("PG_MAJOR=%d", p.Major),
			"PG_VERSION=" + p.Package,
			"PGDATA=" + data,
		},
		Cmd:        []string{"postgres"},
		StopSignal: "SIGINT",
		WorkingDir: "/",
	}
}

var versionPattern = regexp.MustCompile(`^(?:\d+:)?(\d+)[.~](\S+?)(?:-[^-]*)?$`)

// upstreamVersion takes "17.11" from a package version such as
// "17.11-0+deb13u1"; one of another major is an error.
func upstreamVersion(packageVersion string, major int) (string, error) {
	match := versionPattern.FindStringSubmatch(strings.TrimSpace(packageVersion))
	if match == nil || match[1] != strconv.Itoa(major) {
		return "", fmt.Errorf("%q is no version of PostgreSQL %d", packageVersion, major)
	}
	if _, err := strconv.Atoi(match[2]); err != nil {
		return "", fmt.Errorf("%q is no released minor of PostgreSQL %d", packageVersion, major)
	}
	return match[1] + "." + match[2], nil
}

// withRefs names the images: each by its version, the newest of a major by the
// major as well.
func withRefs(images []postgres) []postgres {
	newest := map[int]int{}
	for i, p := range images {
		j, found := newest[p.Major]
		if !found || minorOf(p.Version) > minorOf(images[j].Version) {
			newest[p.Major] = i
		}
	}
	for i := range images {
		p := &images[i]
		p.Refs = []string{repository + ":" + p.Version}
		if newest[p.Major] == i {
			p.Refs = append(p.Refs, fmt.Sprintf("%s:%d", repository, p.Major))
		}
	}
	return images
}

func minorOf(version string) int {
	_, after, _ := strings.Cut(version, ".")
	number, _ := strconv.Atoi(after)
	return number
}

// runQuietly runs a command, and shows what it said only when it failed.
func runQuietly(command *exec.Cmd) error {
	out, err := command.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%s: %w: %s", filepath.Base(command.Path), err, strings.Join(lines[max(0, len(lines)-8):], "\n"))
	}
	return nil
}
