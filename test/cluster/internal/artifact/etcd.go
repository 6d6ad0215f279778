package artifact

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// etcdModules are the modules of etcd's programs by the programs' names.
var etcdModules = map[string]string{
	"etcd":    "go.etcd.io/etcd/server/v3",
	"etcdctl": "go.etcd.io/etcd/etcdctl/v3",
	"etcdutl": "go.etcd.io/etcd/etcdutl/v3",
}

// EtcdPrograms are in the folder that Etcd returns.
func EtcdPrograms() []string { return []string{"etcd", "etcdctl", "etcdutl"} }

// BuildEtcd returns the folder of the programs of a version such as 3.5.9.
//
// The module that it builds from is made on the way: the newest patch of a
// line is asked for rather than written down, and a program cannot be
// installed by its own module here, since etcd's modules replace each other.
func BuildEtcd(ctx context.Context, version string) (string, error) {
	key, err := ComputeKey(nil, recipe, "etcd", version)
	if err != nil {
		return "", err
	}
	return MakeFolder("etcd-"+version, key, func(folder string) error {
		what := fmt.Sprintf("building etcd %s, about a minute, once", version)
		return RunTimed(what, func() error { return buildEtcd(ctx, version, folder) })
	})
}

func buildEtcd(ctx context.Context, version, folder string) error {
	module, err := os.MkdirTemp("", "etcd-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(module)
	lines := "module etcd\n\ngo 1.26.0\n\n"
	arguments := []string{"build", "-mod=mod", "-trimpath", "-ldflags", "-s -w", "-o", folder + "/"}
	for _, program := range EtcdPrograms() {
		lines += fmt.Sprintf("require %s v%s\n", etcdModules[program], version)
		arguments = append(arguments, etcdModules[program])
	}
	if err := os.WriteFile(filepath.Join(module, "go.mod"), []byte(lines), 0o644); err != nil {
		return err
	}
	if _, err := inModule(ctx, module, arguments...); err != nil {
		return err
	}
	// Named after its module's folder.
	if err := os.Rename(filepath.Join(folder, "server"), filepath.Join(folder, "etcd")); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(folder, "etcd"), "--version").Output()
	if err != nil {
		return fmt.Errorf("ask etcd for its version: %w", err)
	}
	if first, _, _ := strings.Cut(string(out), "\n"); first != "etcd Version: "+version {
		return fmt.Errorf("etcd %s was built and says %q", version, first)
	}
	return nil
}

// NewestEtcd is the newest patch of a line such as 3.6 whose programs can all
// be built; one without a release is an error.
func NewestEtcd(ctx context.Context, line string) (string, error) {
	offered := map[string][]string{}
	for program, module := range etcdModules {
		out, err := inModule(ctx, os.TempDir(), "list", "-m", "-versions", module)
		if err != nil {
			return "", err
		}
		offered[program] = strings.Fields(out)
	}
	newest := newestOfLine(line, offered)
	if newest == "" {
		return "", fmt.Errorf("no release of etcd %s is offered", line)
	}
	return newest, nil
}

// newestOfLine chooses among lists of versions in ascending order, of each
// program one: a patch need not be offered of every one of them.
func newestOfLine(line string, offered map[string][]string) string {
	for _, version := range slices.Backward(offered["etcd"]) {
		if !strings.HasPrefix(version, "v"+line+".") || strings.Contains(version, "-") {
			continue
		}
		everywhere := true
		for _, versions := range offered {
			everywhere = everywhere && slices.Contains(versions, version)
		}
		if everywhere {
			return strings.TrimPrefix(version, "v")
		}
	}
	return ""
}

// inModule runs the go command in a folder and returns what it printed.
func inModule(ctx context.Context, folder string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = folder
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var complaints bytes.Buffer
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(complaints.String()), "\n")
		return "", fmt.Errorf("go %s: %w: %s", arguments[0], err, strings.Join(lines[max(0, len(lines)-8):], "\n"))
	}
	return string(out), nil
}
